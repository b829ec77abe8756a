r"""The tokens of Prolog as far as facts and rules need them, and names as Prolog writes them.

Atoms stand bare where they are lower-case words, else in single quotes with ``''`` or ``\'`` for a quote and ISO's
escapes, ``\n`` and ``\x1f600\`` among them. ``%`` and ``/* */`` are comments.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rulewright.errors import DataError, ParseError

_NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_ESCAPED = r"\\x[0-9a-fA-F]+\\|\\[0-7]+\\|\\(?:.|\n)"
_TOKEN = re.compile(
    rf"""(?P<stop>\.(?=\s|%|\Z))|(?P<quoted>'(?:''|{_ESCAPED}|[^'\\\n])*+')|(?P<string>"(?:""|{_ESCAPED}|[^"\\\n])*+")
    |(?P<number>{_NUMBER})|(?P<variable>[A-Z_]\w*)|(?P<word>[^\W\d_]\w*)
    |(?P<sign>:-|<-|::|\\\+|=<|>=|=:=|=\\=|\\==|==|\\=|[(),;|<>=!{{}}\[\]:+\-]|.)|(?P<end>\Z)""",
    re.VERBOSE | re.DOTALL,
)
_GAP = re.compile(r"(?:\s|%[^\n]*|/\*.*?\*/)*", re.DOTALL)
_BARE = re.compile(r"[a-z][A-Za-z0-9_]*\Z")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b", "s": " "}
_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]+)\\?|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]+)\\|(\n)|(.))|''|\"\"", re.DOTALL
)
# Besides quotes: what a text file cannot hold, what ends a line, and what changes the order a line is shown in
_TO_ESCAPE = re.compile(r"[\\'\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_HALF = re.compile(r"[\ud800-\udfff]")


class Token(NamedTuple):
    """A piece of a program."""

    kind: str
    text: str
    offset: int


def atom(name: str) -> str:
    r"""Write a name as a Prolog atom.

    >>> print(atom("ann"), atom("P17"), atom("it's"), atom("a\nb"))
    ann 'P17' 'it\'s' 'a\x0a\b'
    """
    if _BARE.match(name):
        return name
    if _HALF.search(name):
        raise DataError(f"Prolog cannot write the name {name!r}: it holds half of a character")
    return "'" + _TO_ESCAPE.sub(lambda found: _escaped(found.group()), name) + "'"


def _escaped(character: str) -> str:
    return f"\\{character}" if character in "\\'" else f"\\x{ord(character):02x}\\"


def unquoted(text: str) -> str:
    r"""Return the name that a quoted atom or a string stands for.

    >>> unquoted(r"'it''s \x1f600\ \'x\''")
    "it's 😀 'x'"
    """
    mark = text[0]

    def meaning(found: re.Match[str]) -> str:
        whole = found.group()
        if whole in ("''", '""'):
            return mark if whole[0] == mark else whole
        hexadecimal, four, eight, octal, continued, letter = found.groups()
        digits = hexadecimal or four or eight
        if digits or octal:
            code = int(digits, 16) if digits else int(octal, 8)
            if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                raise DataError(f"{whole} stands for no character")
            return chr(code)
        if continued:
            return ""
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        if letter in "\\'\"`":
            return letter
        raise DataError(f"unknown escape {whole} in a quoted name")

    return _ESCAPE.sub(meaning, text[1:-1])


class Cursor:
    """Walks over the tokens of a program."""

    def __init__(self, text: str, *, file: str | None) -> None:
        self.text, self.file = text.removeprefix("\ufeff"), file
        self.position = 0
        self.token = self._next()

    def _next(self) -> Token:
        gap = _GAP.match(self.text, self.position)
        start = gap.end() if gap else self.position
        if self.text.startswith("/*", start):
            self.token = Token("sign", "/*", start)
            raise self.error("a comment that does not end; close it with */")
        found = _TOKEN.match(self.text, start)
        assert found is not None and found.lastgroup is not None
        return Token(found.lastgroup, found.group(), start)

    def move(self, offset: int) -> None:
        """Go on reading at an offset."""
        self.position = offset
        self.token = self._next()

    def take(self) -> Token:
        """Return the token here and go to the next."""
        token = self.token
        self.move(token.offset + len(token.text))
        return token

    def accept(self, *texts: str) -> Token | None:
        """Take the token here if it is one of these signs."""
        return self.take() if self.token.text in texts and self.token.kind in ("sign", "word") else None

    def expect(self, *texts: str) -> Token:
        """Take the token here, which must be one of these signs."""
        found = self.accept(*texts)
        if found is None:
            raise self.unexpected(" or ".join(map(repr, texts)))
        return found

    def unexpected(self, expected: str) -> ParseError:
        """Build the error for the token here."""
        kind, text, _ = self.token
        found = "the end of the text" if kind == "end" else repr(text if len(text) <= 30 else text[:29] + "…")
        hint = "; a quoted name ends on the line it starts on" if text in ("'", '"') else ""
        return self.error(f"found {found}, expected {expected}{hint}")

    def error(self, message: str, offset: int | None = None) -> ParseError:
        """Build an error at an offset, or at the token here."""
        place = self.token.offset if offset is None else offset
        line, start = self.text.count("\n", 0, place) + 1, self.text.rfind("\n", 0, place) + 1
        return ParseError(message.replace("\n", "\\n"), file=self.file, line=line, column=place - start + 1)
