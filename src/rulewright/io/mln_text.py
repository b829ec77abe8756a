"""What the texts of Markov logic have in common: tokens, declarations and ground atoms.

Alchemy's ``.mln`` and ``.db`` and the four-file form differ in which files they have and in what counts as a constant;
the rest is here and, for formulas, in `rulewright.io.mln_formulas`. Every constant names an entity, a numeral too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rulewright.data import ENTITY_TYPE, KnowledgeBaseBuilder
from rulewright.errors import DataError, ParseError, RulewrightError, unknown_name
from rulewright.logic import NUMBER_TYPE, PredicateDeclaration

NAME = r"[^\W\d][\w'-]*"
_NUMBER = r"-?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_TOKEN = re.compile(
    rf"(?P<newline>\n)|(?P<string>\"[^\"\n]*\")|(?P<number>{_NUMBER})|(?P<name>{NAME})"
    r"|(?P<sign><=>|=>|!=|<=|>=|\.\.\.|.)|(?P<end>\Z)"
)
_BLANKS = re.compile(r"[ \t\r\f\v]*")
_TERM = rf"(?:{NAME}|{_NUMBER})"
# A line with one ground atom and nothing that needs a second look
_GROUND_ATOM = re.compile(rf"[ \t]*([!?]?)({NAME})\(({_TERM}(?:, *{_TERM})*)\)[ \t]*(?:\n|\Z)")
_COMMENT = re.compile(r"\"[^\"\n]*\"|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)


class Token(NamedTuple):
    """A piece of text: a newline, string, number, name, sign or the end."""

    kind: str
    text: str
    offset: int

    def __str__(self) -> str:
        if self.kind in ("newline", "end"):
            return f"the end of the {'line' if self.kind == 'newline' else 'text'}"
        return repr(self.text)


class Cursor:
    """Walks over a text's tokens; comments are blank to it. Its errors name file, line and column."""

    def __init__(self, text: str, *, file: str | None) -> None:
        self.file = file
        self.text = text.removeprefix("\ufeff")
        self.text = _COMMENT.sub(self._blanked, self.text)
        self.move(0)

    def _blanked(self, found: re.Match[str]) -> str:
        matched = found.group()
        if matched.startswith('"'):
            return matched
        if matched.startswith("/*") and (len(matched) < 4 or not matched.endswith("*/")):
            raise self.error("a comment that does not end; close it with */", found.start())
        return re.sub(r"[^\n]", " ", matched)

    def move(self, offset: int) -> None:
        """Go on reading at an offset."""
        blanks = _BLANKS.match(self.text, offset)
        start = blanks.end() if blanks else offset
        found = _TOKEN.match(self.text, start)
        assert found is not None and found.lastgroup is not None
        self.token = Token(found.lastgroup, found.group(), start)

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

    def name(self, expected: str) -> str:
        """Take a name."""
        if self.token.kind != "name":
            raise self.unexpected(expected)
        return self.take().text

    def end_of_line(self, expected: str = "the end of the line") -> None:
        """Take the end of a line or of the text."""
        if self.token.kind not in ("newline", "end"):
            raise self.unexpected(expected)
        self.take()

    def skip_newlines(self) -> bool:
        """Go to the next token that is not a newline; tell whether there is one."""
        while self.token.kind == "newline":
            self.take()
        return self.token.kind != "end"

    def unexpected(self, expected: str) -> ParseError:
        """Build the error for the token here."""
        hint = ""
        if self.token.text == '"':
            hint = "; a text in double quotes ends on its line"
        elif self.token.kind == "sign" and not (self.token.text.isascii() and self.token.text.isprintable()):
            hint = "; a name with such a character stands in double quotes"
        return self.error(f"found {self.token}, expected {expected}{hint}")

    def error(self, message: str, offset: int | None = None) -> ParseError:
        """Build an error at an offset, or at the token here."""
        place = self.token.offset if offset is None else offset
        line, start = self.text.count("\n", 0, place) + 1, self.text.rfind("\n", 0, place) + 1
        return ParseError(message, file=self.file, line=line, column=place - start + 1)


def read_declaration(cursor: Cursor) -> PredicateDeclaration:
    """Read ``Friends(person, person)`` to the end of its line."""
    name = cursor.name("the name of a predicate")
    types: list[str] = []
    cursor.expect("(")
    while not types or cursor.expect(",", ")").text == ",":
        offset = cursor.token.offset
        types.append(cursor.name("the name of a type"))
        if types[-1] == NUMBER_TYPE:
            raise cursor.error(
                f"the type '{NUMBER_TYPE}' would make its arguments numbers, and here all are names; rename it", offset
            )
        if cursor.token.text == "!":
            raise cursor.error(
                f"'{types[-1]}!' (exclusive and exhaustive values) is not supported; in a .rules file a multi-class "
                f"predicate says it: predicate {name}(…) in {{…}}."
            )
    cursor.end_of_line()
    return PredicateDeclaration(name, tuple(types))


def add_ground_atoms(
    cursor: Cursor, builder: KnowledgeBaseBuilder, known: Mapping[str, PredicateDeclaration] | None, *, split: str
) -> None:
    """Add a text's ground atoms, one a line: true, false with ``!``, and with ``?`` unknown, which names entities only.

    Only predicates that are ``known`` are allowed, or any if it is None.
    """
    for offset, sign, name, args in _ground_atoms(cursor):
        try:
            if known is not None and name not in known:
                raise unknown_name("predicate", name, known)
            if sign != "?":
                builder.add(name, args, truth=sign != "!", split=split)
                continue
            types = (ENTITY_TYPE,) * len(args) if known is None else known[name].types
            if len(types) != len(args):
                raise DataError(f"{name} has {len(types)} arguments, got {len(args)}")
            for arg, kind in zip(args, types, strict=True):
                builder.entity(arg, type=kind)
        except RulewrightError as error:
            raise cursor.error(str(error), offset) from None


def _ground_atoms(cursor: Cursor) -> Iterator[tuple[int, str, str, list[str]]]:
    while cursor.skip_newlines():
        offset = cursor.token.offset
        if found := _GROUND_ATOM.match(cursor.text, offset):
            while found:
                sign, name, inner = found.groups()
                yield offset, sign, name, inner.replace(" ", "").split(",")
                offset = found.end()
                found = _GROUND_ATOM.match(cursor.text, offset)
            cursor.move(offset)
            continue
        mark = cursor.accept("!", "?")
        name = cursor.name("an atom such as Friends(Anna, Bob)")
        args: list[str] = []
        cursor.expect("(")
        while not args or cursor.expect(",", ")").text == ",":
            args.append(read_constant(cursor))
        cursor.end_of_line()
        yield offset, mark.text if mark else "", name, args


def read_constant(cursor: Cursor) -> str:
    """Take a name, a numeral or a text in double quotes and return what it names."""
    if cursor.token.kind not in ("name", "number", "string"):
        raise cursor.unexpected("a name, a number or a text in double quotes")
    token = cursor.take()
    return token.text[1:-1] if token.kind == "string" else token.text
