"""Formulas as the texts of Markov logic write them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping

from rulewright.data import ENTITY_TYPE, KnowledgeBaseBuilder
from rulewright.errors import DataError, RulewrightError, unknown_name
from rulewright.io.cursor import Cursor
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
_TERM = rf"(?:{NAME}|{_NUMBER})"
# A line with one ground atom and nothing that needs a second look
_GROUND_ATOM = re.compile(rf"[ \t]*([!?]?)({NAME})\(({_TERM}(?:, *{_TERM})*)\)[ \t]*(?:\n|\Z)")
_COMMENT = re.compile(r"\"[^\"\n]*\"|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)


class MarkovCursor(Cursor):
    """Walks over a text of Markov logic, in which line ends are tokens; comments are blank to it."""

    tokens = re.compile(
        rf"(?P<newline>\n)|(?P<string>\"[^\"\n]*\")|(?P<number>{_NUMBER})|(?P<name>{NAME})"
        r"|(?P<sign><=>|=>|!=|<=|>=|\.\.\.|.)|(?P<end>\Z)"
    )
    gap = re.compile(r"[ \t\r\f\v]*")

    def __init__(self, text: str, *, file: str | None) -> None:
        super().__init__(text, file=file)
        self.text = _COMMENT.sub(self._blank_comment, self.text)
        self.move(0)

    def _blank_comment(self, match: re.Match[str]) -> str:
        text = match.group()
        if text.startswith('"'):
            return text
        if text.startswith("/*") and (len(text) < 4 or not text.endswith("*/")):
            raise self.error("a comment that does not end; close it with */", match.start())
        return re.sub(r"[^\n]", " ", text)

    def take_name(self, expected: str) -> str:
        """Take a name."""
        return self.expect_kind(expected, "name").text

    def take_line_end(self, expected: str = "the end of the line") -> None:
        """Take the end of a line or of the text."""
        self.expect_kind(expected, "newline", "end")

    def skip_newlines(self) -> bool:
        """Go to the next token that is not a newline; tell whether there is one."""
        while self.token.kind == "newline":
            self.take()
        return self.token.kind != "end"

    def take_constant(self) -> str:
        """Take a name, a numeral or a text in double quotes and return what it names."""
        token = self.expect_kind("a name, a number or a text in double quotes", "name", "number", "string")
        return token.text[1:-1] if token.kind == "string" else token.text

    def hint(self) -> str:
        """Say what double quotes are for, where that may be the matter."""
        kind, text, _ = self.token
        if text == '"':
            return "; a text in double quotes ends on its line"
        if kind == "sign" and not (text.isascii() and text.isprintable()):
            return "; a name with such a character stands in double quotes"
        return ""


def read_declaration(cursor: MarkovCursor) -> PredicateDeclaration:
    """Read ``Friends(person, person)`` to the end of its line."""
    name = cursor.take_name("the name of a predicate")

    def take_type() -> str:
        offset = cursor.token.offset
        type_name = cursor.take_name("the name of a type")
        if type_name == NUMBER_TYPE:
            raise cursor.error(
                f"the type '{NUMBER_TYPE}' would make its arguments numbers, and here all are names; rename it", offset
            )
        if cursor.token.text == "!":
            raise cursor.error(
                f"'{type_name}!' (exclusive and exhaustive values) is not supported; in a .rules file a multi-class "
                f"predicate says it: predicate {name}(…) in {{…}}."
            )
        return type_name

    types = cursor.take_list(take_type)
    cursor.take_line_end()
    return PredicateDeclaration(name, tuple(types))


def add_ground_atoms(
    cursor: MarkovCursor, builder: KnowledgeBaseBuilder, known: Mapping[str, PredicateDeclaration] | None, *, split: str
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
            for arg, type_name in zip(args, types, strict=True):
                builder.entity(arg, type=type_name)
        except RulewrightError as error:
            raise cursor.error(str(error), offset) from None


def _ground_atoms(cursor: MarkovCursor) -> Iterator[tuple[int, str, str, list[str]]]:
    while cursor.skip_newlines():
        offset = cursor.token.offset
        if match := _GROUND_ATOM.match(cursor.text, offset):
            while match:
                sign, name, inner = match.groups()
                yield offset, sign, name, inner.replace(" ", "").split(",")
                offset = match.end()
                match = _GROUND_ATOM.match(cursor.text, offset)
            cursor.move(offset)
            continue
        mark = cursor.accept("!", "?")
        name = cursor.take_name("an atom such as Friends(Anna, Bob)")
        args = cursor.take_list(cursor.take_constant)
        cursor.take_line_end()
        yield offset, mark.text if mark else "", name, args


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
        self,
        cursor: MarkovCursor,
        *,
        is_constant: Callable[[str], bool],
        known: Mapping[str, PredicateDeclaration] | None,
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
            self._cursor.take_name("a variable")
            while self._cursor.accept(","):
                self._cursor.take_name("a variable")
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
        name = cursor.take_name("an atom such as Smokes(x)")
        if self._known is not None and name not in self._known:
            raise cursor.error(str(unknown_name("predicate", name, self._known)), offset)
        return Atom(name, tuple(cursor.take_list(self._argument)))

    def _argument(self) -> Term:
        term = self._term("a variable, a name, a number or a text in double quotes")
        if self._cursor.token.text == "(":
            raise self._cursor.error("functions are not supported; use a predicate with one argument more")
        return term

    def _term(self, expected: str) -> Term:
        cursor = self._cursor
        plus = cursor.accept("+")
        if cursor.token.kind not in ("name", "number", "string") or (plus and cursor.token.kind != "name"):
            raise cursor.unexpected("a variable" if plus else expected)
        if cursor.token.kind != "name" or self._is_constant(cursor.token.text):
            return Symbol(cursor.take_constant())
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
    types = {declaration.name: declaration.types for declaration in rules.predicates}
    for statement in rules.formulas:
        for atom in filter(None, map(atom_of, units(statement.formula))):
            for term, type_name in zip(atom.args, types.get(str(atom.predicate), ()), strict=False):
                if isinstance(term, Symbol):
                    yield type_name, term.name
