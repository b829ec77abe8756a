"""Formulas as the texts of Markov logic write them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from rulewright.data import ENTITY_TYPE, KnowledgeBaseBuilder
from rulewright.errors import DataError, ParseError, RulewrightError, unknown_name
from rulewright.logic import (
    NUMBER_TYPE,
    And,
    Atom,
    Comparison,
    Formula,
    Iff,
    Implies,
    Not,
    Or,
    PredicateDeclaration,
    RuleSet,
    Symbol,
    Term,
    Variable,
    atom_of,
    units,
)

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


QUANTIFIERS = {"FORALL": "all", "Forall": "all", "forall": "all", "EXIST": "some", "Exist": "some", "exist": "some"}
MOST_NESTED = 30
"""The deepest nesting and the most arrows of a formula: no one writes more, and every later step recurses."""
MOST_STARS = 8


def unique_name(wanted: str, taken: Collection[str]) -> str:
    """Return the name, with a number where it is taken.

    >>> unique_name("X", {"X", "X_2"})
    'X_3'
    """
    name, count = wanted, 1
    while name in taken:
        count += 1
        name = f"{wanted}_{count}"
    return name


class FormulaReader:
    """Reads formulas with ``! ^ v => <=>``, which bind in this order and group from the left.

    ``*`` before an atom stands for the atom and its negation, so that one text gives several formulas; ``+`` before a
    variable is read over. Variables get upper-case names that are unique within the formula. Only predicates that are
    ``known`` are allowed, or any if it is None.
    """

    def __init__(
        self, cursor: Cursor, *, is_constant: Callable[[str], bool], known: Mapping[str, PredicateDeclaration] | None
    ) -> None:
        self._cursor = cursor
        self._is_constant = is_constant
        self._known = known

    def read(self) -> list[Formula]:
        """Read a formula here, in all the ways its stars can be replaced."""
        start = self._cursor.token.offset
        formulas = [self._read(negated=0)]
        if self._stars > MOST_STARS:
            raise self._cursor.error(
                f"{self._stars} stars stand for {2**self._stars:,} formulas; {MOST_STARS} are allowed"
            )
        for negated in range(1, 2**self._stars):
            self._cursor.move(start)
            formulas.append(self._read(negated=negated))
        return formulas

    def _read(self, *, negated: int) -> Formula:
        """Read the formula here, its stars being negations where ``negated`` has their bit."""
        self._variables: dict[str, Variable] = {}
        self._names: set[str] = set()
        self._negated = negated
        self._stars = self._depth = self._arrows = 0
        while QUANTIFIERS.get(self._cursor.token.text) == "all":  # free variables are universal anyway
            self._cursor.take()
            self._cursor.name("a variable")
            while self._cursor.accept(","):
                self._cursor.name("a variable")
        return self._equivalence()

    def _accept(self, *operators: str) -> bool:
        accepted = self._cursor.accept(*operators)
        if accepted:
            while self._cursor.token.kind == "newline":  # a formula goes on after an operator
                self._cursor.take()
        return accepted is not None

    def _equivalence(self) -> Formula:
        left = self._implication()
        while self._accept("<=>"):
            self._count_arrow()
            left = Iff(left, self._implication())
        return left

    def _implication(self) -> Formula:
        left = self._disjunction()
        while self._accept("=>"):
            self._count_arrow()
            left = Implies(left, self._disjunction())
        return left

    def _count_arrow(self) -> None:
        self._arrows += 1
        if self._arrows > MOST_NESTED:
            raise self._cursor.error(f"more than {MOST_NESTED} arrows in one formula")

    def _disjunction(self) -> Formula:
        parts = [self._conjunction()]
        while self._accept("v"):
            parts.append(self._conjunction())
        return Or(tuple(parts)) if len(parts) > 1 else parts[0]

    def _conjunction(self) -> Formula:
        parts = [self._part()]
        while self._accept("^"):
            parts.append(self._part())
        return And(tuple(parts)) if len(parts) > 1 else parts[0]

    def _part(self) -> Formula:
        cursor = self._cursor
        self._depth += 1
        if self._depth > MOST_NESTED:
            raise cursor.error(f"nested more than {MOST_NESTED} deep")
        if cursor.accept("!"):
            formula: Formula = Not(self._part())
        elif opening := cursor.accept("(", "["):  # in brackets a formula counts as a whole; here it always does
            formula = self._equivalence()
            cursor.expect(")" if opening.text == "(" else "]")
        elif cursor.accept("*"):
            formula = self._atom()
            negated = self._negated >> self._stars & 1
            self._stars += 1
            formula = Not(formula) if negated else formula
        else:
            formula = self._unit()
        self._depth -= 1
        return formula

    def _unit(self) -> Formula:
        cursor = self._cursor
        start = cursor.token
        if QUANTIFIERS.get(start.text) == "some":
            raise cursor.error(
                f"{start.text} is not supported: a formula's variables are universal; write out its cases with "
                "'v', or a rule, whose body may have variables of its own"
            )
        if start.text in QUANTIFIERS:
            raise cursor.error(f"{start.text} may stand only before the whole formula")
        left = self._term("an atom such as Smokes(x)")
        if cursor.token.text == "(":
            cursor.move(start.offset)
            return self._atom()
        if cursor.token.text in ("<", "<=", ">", ">="):
            raise cursor.error(
                f"'{cursor.token.text}' compares numbers, and here a numeral names an entity; use = or !="
            )
        if cursor.token.text not in ("=", "!="):
            raise cursor.unexpected("'(' and arguments (predicates without any are not supported), '=' or '!='")
        return Comparison("=" if cursor.take().text == "=" else "!=", left, self._term("a term"))

    def _atom(self) -> Atom:
        cursor = self._cursor
        offset = cursor.token.offset
        name = cursor.name("an atom such as Smokes(x)")
        if self._known is not None and name not in self._known:
            raise cursor.error(str(unknown_name("predicate", name, self._known)), offset)
        cursor.expect("(")
        terms: list[Term] = []
        while not terms or cursor.expect(",", ")").text == ",":
            terms.append(self._term("a variable, a name, a number or a text in double quotes"))
            if cursor.token.text == "(":
                raise cursor.error("functions are not supported; use a predicate with one argument more")
        return Atom(name, tuple(terms))

    def _term(self, expected: str) -> Term:
        cursor = self._cursor
        plus = cursor.accept("+")
        if cursor.token.kind not in ("name", "number", "string") or (plus and cursor.token.kind != "name"):
            raise cursor.unexpected("a variable" if plus else expected)
        if cursor.token.kind != "name" or self._is_constant(cursor.token.text):
            return Symbol(read_constant(cursor))
        name = cursor.take().text
        if name not in self._variables:
            upper = re.sub(r"[^A-Za-z0-9_]", "_", name)
            upper = upper[0].upper() + upper[1:]
            chosen = unique_name(upper if upper != "_" else "V_", self._names)
            self._names.add(chosen)
            self._variables[name] = Variable(chosen)
        return self._variables[name]


def constants_by_type(rules: RuleSet) -> Iterator[tuple[str, str]]:
    """Yield the type and name of every constant in the formulas, by the declarations of their predicates.

    >>> from rulewright.logic import parse_rules
    >>> rules = parse_rules("predicate lives(person, city). hard lives(X, 'Rome') => lives(X, italy).")
    >>> list(constants_by_type(rules))
    [('city', 'Rome'), ('city', 'italy')]
    """
    types = {each.name: each.types for each in rules.predicates}
    for statement in rules.formulas:
        for atom in filter(None, map(atom_of, units(statement.formula))):
            for term, kind in zip(atom.args, types.get(str(atom.predicate), ()), strict=False):
                if isinstance(term, Symbol):
                    yield kind, term.name
