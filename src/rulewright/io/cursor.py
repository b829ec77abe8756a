"""A cursor over the tokens of a text, for the formats that are read token by token."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar, NamedTuple, TypeVar

from rulewright.errors import ParseError

_Item = TypeVar("_Item")


class Token(NamedTuple):
    """A piece of text and what it is."""

    kind: str
    text: str
    offset: int


class Cursor:
    """Stands on a token of a text; its errors name file, line and column.

    A format gives two patterns: ``tokens``, whose named groups are the kinds of tokens (``end`` is the end of the
    text), and ``gap``, which matches what stands between them.
    """

    tokens: ClassVar[re.Pattern[str]]
    gap: ClassVar[re.Pattern[str]]

    def __init__(self, text: str, *, file: str | None) -> None:
        self.file = file
        self.text = text.removeprefix("\ufeff")
        self.move(0)

    def move(self, offset: int) -> None:
        """Go to the first token from an offset on."""
        gap = self.gap.match(self.text, offset)
        start = gap.end() if gap else offset
        match = self.tokens.match(self.text, start)
        assert match is not None and match.lastgroup is not None
        self.token = Token(match.lastgroup, match.group(), start)

    def take(self) -> Token:
        """Return the token here and go to the next."""
        token = self.token
        self.move(token.offset + len(token.text))
        return token

    def accept(self, *texts: str) -> Token | None:
        """Take the token here if it is one of these."""
        return self.take() if self.token.text in texts else None

    def expect(self, *texts: str) -> Token:
        """Take the token here, which must be one of these."""
        if self.token.text not in texts:
            raise self.unexpected(" or ".join(map(repr, texts)))
        return self.take()

    def expect_kind(self, expected: str, *kinds: str) -> Token:
        """Take the token here, which must be of one of these kinds; ``expected`` says so in words."""
        if self.token.kind not in kinds:
            raise self.unexpected(expected)
        return self.take()

    def take_list(self, take: Callable[[], _Item], opening: str = "(", closing: str = ")") -> list[_Item]:
        """Take a list in brackets whose items, of which there is at least one, ``take`` takes."""
        self.expect(opening)
        items = [take()]
        while self.expect(",", closing).text == ",":
            items.append(take())
        return items

    def unexpected(self, expected: str) -> ParseError:
        """Build the error for the token here."""
        kind, text, _ = self.token
        shown = {"end": "the end of the text", "newline": "the end of the line"}.get(kind, repr(shorten(text)))
        return self.error(f"found {shown}, expected {expected}{self.hint()}")

    def hint(self) -> str:
        """Return what may have gone wrong at the token here, if anything is known."""
        return ""

    def error(self, message: str, offset: int | None = None) -> ParseError:
        """Build an error at an offset, or at the token here."""
        offset = self.token.offset if offset is None else offset
        line, start = self.text.count("\n", 0, offset) + 1, self.text.rfind("\n", 0, offset) + 1
        one_line = message.replace("\n", "\\n")  # a name may hold line breaks
        return ParseError(one_line, file=self.file, line=line, column=offset - start + 1)


def shorten(text: str, limit: int = 30) -> str:
    """Cut a text that is too long for a message.

    >>> shorten("supercalifragilistic", 8)
    'superca…'
    """
    return text if len(text) <= limit else text[: limit - 1] + "…"
