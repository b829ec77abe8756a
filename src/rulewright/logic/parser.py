"""Text to rules: the whole rule language, with errors that say where, what was found and what was expected."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from typing import Any

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from rulewright.errors import DataError, ParseError
from rulewright.logic import rules as r
from rulewright.logic import terms as t
from rulewright.logic.ruleset import RuleSet, Usage

_UNESCAPES = {"\\'": "'", "\\\\": "\\", "\\n": "\n", "\\t": "\t", "\\r": "\r"}
_VARIABLES = re.compile(r"_[0-9]+")
_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{4}|\\.", re.DOTALL)


def unquote(quoted: str) -> str:
    r"""Read a name in single quotes.

    >>> unquote(r"'it\'s'")
    "it's"
    """
    inner = quoted[1:-1]
    return _ESCAPE.sub(_unescape, inner) if "\\" in inner else inner


def _unescape(found: re.Match[str]) -> str:
    escape = found.group()
    if escape.startswith("\\u") and len(escape) == 6:
        return chr(int(escape[2:], 16))
    if escape not in _UNESCAPES:
        shown = escape if escape.isprintable() else ascii(escape)[1:-1]
        raise DataError(rf"unknown escape {shown} in a quoted name; allowed are \' \\ \n \t \r \uXXXX")
    return _UNESCAPES[escape]


class _Closed(str):
    """The name in a ``closed`` declaration."""


class _Build(Transformer[Token, Any]):
    """Builds values bottom up while lark reads; each ``_`` gets a name that its statement does not use."""

    taken: set[str]
    anonymous: int

    def begin(self, statement: str) -> None:
        self.taken = set(_VARIABLES.findall(statement))
        self.anonymous = 0

    def name(self, children: list[Token]) -> str:
        token = children[0]
        return unquote(token) if token.type == "QUOTED" else str(token)

    def names(self, children: list[str]) -> tuple[str, ...]:
        return tuple(children)

    def classes(self, children: list[tuple[str, ...]]) -> tuple[str, ...]:
        return children[0]

    def variable(self, children: list[Token]) -> t.Variable:
        name = str(children[0])
        while name == "_":
            self.anonymous += 1
            if f"_{self.anonymous}" not in self.taken:
                name = f"_{self.anonymous}"
        return t.Variable(name)

    def number(self, children: list[Token]) -> t.Number:
        return t.Number(_number(children[0]))

    def symbol(self, children: list[str]) -> t.Symbol:
        return t.Symbol(children[0])

    def hole(self, children: list[Token]) -> t.PredicateVariable:
        return t.PredicateVariable(children[0][1:])

    def atom(self, children: list[Any]) -> t.Atom:
        return t.Atom(children[0], tuple(children[1:]))

    def membership(self, children: list[Any]) -> t.Membership:
        return t.Membership(children[0], children[1])

    def comparison(self, children: list[Any]) -> t.Comparison:
        return t.Comparison(str(children[1]), children[0], children[2])  # type: ignore[arg-type]

    def negation(self, children: list[t.Formula]) -> t.Formula:
        return t.Not(children[0])

    def conjoined(self, children: list[t.Formula]) -> t.Formula:
        return t.And(tuple(children))

    def disjunction(self, children: list[t.Formula]) -> t.Formula:
        return t.Or(tuple(children))

    def implies(self, children: list[t.Formula]) -> t.Formula:
        return t.Implies(children[0], children[1])

    def iff(self, children: list[t.Formula]) -> t.Formula:
        return t.Iff(children[0], children[1])

    def conjunction(self, children: list[t.Formula]) -> tuple[t.Formula, ...]:
        return tuple(children)

    def body(self, children: list[tuple[t.Formula, ...]]) -> tuple[t.Formula, ...]:
        if len(children) == 1:
            return children[0]
        return (t.Or(tuple(_one(each) for each in children)),)

    def group(self, children: list[tuple[t.Formula, ...]]) -> t.Formula:
        return _one(children[0])

    def weight(self, children: list[Token]) -> tuple[str, float | None]:
        token = children[0]
        return ("soft", _number(token)) if token.type == "NUMBER" else (str(token), None)

    def rule(self, children: list[Any]) -> r.Rule:
        confidence, head, body, annotations = children
        value = 1.0 if confidence is None else float(confidence)
        return r.Rule(head, body, value, annotations or r.Annotations())

    def formula_statement(self, children: list[Any]) -> r.WeightedFormula:
        (kind, weight), formula, annotations = children
        return r.WeightedFormula(formula, kind, weight, annotations or r.Annotations())

    def domain(self, children: list[Any]) -> tuple[t.PredicateVariable, tuple[str, ...] | None]:
        hole, names = children
        return hole, None if isinstance(names, Token) else names

    def domains(self, children: list[Any]) -> tuple[Any, ...]:
        return tuple(children)

    def template(self, children: list[Any]) -> r.Template:
        head, body, domains, annotations = children
        return r.Template(head, body, domains or (), annotations or r.Annotations())

    def predicate(self, children: list[Any]) -> r.PredicateDeclaration:
        return r.PredicateDeclaration(*children)

    def closed(self, children: list[str]) -> _Closed:
        return _Closed(children[0])

    def plain_number(self, children: list[Token]) -> int | float:
        return _number(children[0])

    def plain_text(self, children: list[str]) -> str:
        return children[0]

    def truth(self, children: list[Token]) -> bool:
        return str(children[0]) == "true"

    def listing(self, children: list[object]) -> list[object]:
        return [each for each in children if each is not None]

    def pair(self, children: list[Any]) -> tuple[str, object]:
        return children[0], children[1]

    def mapping(self, children: list[Any]) -> dict[str, object]:
        return dict(each for each in children if each is not None)

    def annotations(self, children: list[dict[str, object]]) -> r.Annotations:
        return r.Annotations(children[0])


def _one(parts: tuple[t.Formula, ...]) -> t.Formula:
    return parts[0] if len(parts) == 1 else t.And(parts)


def _number(token: str) -> int | float:
    if len(token) > 400:
        raise DataError(f"a number of {len(token)} digits is too long; 400 are allowed")
    return int(token) if token.isdecimal() or token[1:].isdecimal() else float(token)


@lru_cache(maxsize=1)
def _readers() -> tuple[_Build, Lark]:
    build = _Build()
    grammar = files("rulewright.logic").joinpath("grammar.lark").read_text(encoding="utf-8")
    starts = ["statement", "formula_text", "unit"]
    return build, Lark(grammar, parser="lalr", start=starts, maybe_placeholders=True, transformer=build)


_MARK = re.compile(r"'(?:\\.|[^'\\\n])*'|%[^\n]*|(?P<stop>\.(?=\s|%|\Z))|(?P<open>\{)|(?P<close>\})")
_GAP = re.compile(r"(?:\s|%[^\n]*)*")


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Cut a text at its full stops, an annotation going with the statement before it: (offset, statement)."""
    position = _GAP.match(text, 0).end()  # type: ignore[union-attr]
    while position < len(text):
        end = len(text)
        for mark in _MARK.finditer(text, position):
            if mark["stop"]:
                end = _after_annotation(text, mark.end())
                break
        yield position, text[position:end]
        position = _GAP.match(text, end).end()  # type: ignore[union-attr]


def _after_annotation(text: str, stop: int) -> int:
    start = _GAP.match(text, stop).end()  # type: ignore[union-attr]
    if not text.startswith("@", start):
        return stop
    depth = 0
    for mark in _MARK.finditer(text, start):
        depth += bool(mark["open"]) - bool(mark["close"])
        if mark["close"] and depth <= 0:
            return mark.end()
    return len(text)


_WORDS = {
    "_STOP": "'.'",
    "NUMBER": "a number",
    "VARIABLE": "a variable",
    "HOLE": "a predicate variable like ?P",
    "WORD": "a name",
    "QUOTED": "a quoted name",
    "OPERATOR": "a comparison",
    "LPAR": "'('",
    "RPAR": "')'",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
    "LSQB": "'['",
    "RSQB": "']'",
    "COMMA": "','",
    "SEMICOLON": "';'",
    "COLON": "':'",
    "_BANG": "'!'",
    "ANY": "'*'",
    "AT": "'@{'",
    "VBAR": "'|'",
    "_AND": "'&'",
    "_IMPLIES": "'=>'",
    "_IFF": "'<=>'",
    "_BY": "':-'",
    "_WITH": "'::'",
    "$END": "the end",
}


def _explain(error: UnexpectedInput, statement: str) -> str:
    if isinstance(error, UnexpectedCharacters):
        rest = statement[error.pos_in_stream :].splitlines()[0]
        if rest.startswith("'"):
            return f"found {_shortened(rest)}: a quoted name that does not end on its line, or a quote inside a name"
        return f"found '{_shortened(rest)}'; names that are not lower-case ASCII words are written in quotes"
    if not isinstance(error, UnexpectedToken):
        return "found the end of the text in the middle of a statement"
    token, expected = error.token, {str(each) for each in error.accepts or error.expected}
    if token.type == "_STOP" and "_BY" in expected:
        return "a rule needs ':-' and a body; facts live in fact files (.facts), not among rules"
    if token.type == "_BY" and "_IFF" in expected:
        return "found ':-' after a weight; a rule's confidence is followed by '::', a weighted formula has '=>'"
    if token.type == "_WITH":
        return "found '::'; a confidence stands before a rule, as in 0.9 :: p(X) :- q(X)."
    if token.type == "LPAR" and expected == {"OPERATOR"}:
        return "found '(' after a variable; a predicate that starts upper-case is written in quotes, as in 'P17'(X, Y)"
    found = "the end of the text" if token.type == "$END" else f"'{_shortened(str(token))}'"
    if {"WORD", "QUOTED"} <= expected:
        expected -= {"QUOTED", "HARD", "LEARN", "TEMPLATE", "PREDICATE", "CLOSED", "TRUTH"}
    words = sorted(_WORDS.get(each, f"'{each.lower()}'") for each in expected)
    return f"found {found}, expected {' or '.join(filter(None, [', '.join(words[:-1]), words[-1]]))}"


def _shortened(text: str, limit: int = 30) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _read(statement: str, start: str, *, file: str | None, line: int, column: int) -> Any:
    build, lark = _readers()
    build.begin(statement)
    try:
        return lark.parse(statement, start=start)
    except UnexpectedInput as error:
        known = getattr(error, "line", -1)
        if known is None or known < 1:  # the text ended too early
            row, at = statement.count("\n") + 1, len(statement) - statement.rfind("\n")
        else:
            row, at = known, error.column
        raise ParseError(
            _explain(error, statement), file=file, line=line + row - 1, column=at + (column - 1 if row == 1 else 0)
        ) from None
    except DataError as error:
        raise ParseError(str(error), file=file, line=line, column=column) from None
    except RecursionError:
        raise ParseError("nested too deeply", file=file, line=line, column=column) from None


def parse_rules(text: str, *, file: str | None = None) -> RuleSet:
    """Read a whole ``.rules`` text.

    >>> rules = parse_rules("0.9 :: child_of(X, Y) :- parent_of(Y, X).  hard !(male(X) & female(X)).")
    >>> len(rules.rules), len(rules.formulas)
    (1, 1)
    >>> parse_rules("p(X) : q(X).")
    Traceback (most recent call last):
    ...
    rulewright.errors.ParseError: <text>:1:6: found ':', expected ':-' or 'in'
    """
    if text.startswith("\ufeff"):
        text = text[1:]
    statements: list[r.Statement] = []
    predicates: list[r.PredicateDeclaration] = []
    closed: list[str] = []
    usage = Usage()
    line, counted, line_start = 1, 0, 0
    for offset, statement in _statements(text):
        line += text.count("\n", counted, offset)
        counted = offset
        line_start = text.rfind("\n", 0, offset) + 1
        value = _read(statement, "statement", file=file, line=line, column=offset - line_start + 1)
        try:
            if isinstance(value, _Closed):
                closed.append(str(value))
            elif isinstance(value, r.PredicateDeclaration):
                usage.declare(value)
                predicates.append(value)
            else:
                usage.add(value)
                statements.append(value)
        except DataError as error:
            raise ParseError(str(error), file=file, line=line, column=offset - line_start + 1) from None
    try:
        return RuleSet(statements, predicates=predicates, closed=closed)
    except DataError as error:
        raise ParseError(str(error), file=file) from None


def parse_rule(text: str) -> r.Rule:
    """Read one rule; its full stop may be left out.

    >>> str(parse_rule("p(X) :- q(X, _)"))
    'p(X) :- q(X, _1).'
    """
    rule: r.Rule = _single(text, r.Rule, "a rule")
    return rule


def parse_template(text: str) -> r.Template:
    """Read one ``template`` statement; its full stop may be left out."""
    template: r.Template = _single(text, r.Template, "a template")
    return template


def parse_statement(text: str) -> r.Statement:
    """Read one rule, weighted formula or template; its full stop may be left out."""
    kinds = (r.Rule, r.WeightedFormula, r.Template)
    statement: r.Statement = _single(text, kinds, "a rule, weighted formula or template")
    return statement


def _single(text: str, kind: Any, name: str) -> Any:
    stripped = text.strip()
    found = list(_statements(stripped if re.search(r"\.\s*(?:@.*)?\Z", stripped, re.DOTALL) else stripped + "."))
    if len(found) != 1:
        raise ParseError(f"expected one statement, got {len(found)}")
    value = _read(found[0][1], "statement", file=None, line=1, column=found[0][0] + 1)
    if not isinstance(value, kind):
        raise ParseError(f"expected {name}, got: {_shortened(stripped, 60)}")
    return value


def parse_formula(text: str) -> t.Formula:
    """Read a formula without its weight.

    >>> str(parse_formula("smoke(X) & friend(X, Y) => smoke(Y)"))
    'smoke(X) & friend(X, Y) => smoke(Y)'
    """
    formula: t.Formula = _read(text.strip(), "formula_text", file=None, line=1, column=1)
    return formula


def parse_atom(text: str) -> t.Atom:
    """Read an atom.

    >>> parse_atom("parent_of(ann, X)").args
    (Symbol(name='ann'), Variable(name='X'))
    """
    unit = _read(text.strip().removesuffix("."), "unit", file=None, line=1, column=1)
    if not isinstance(unit, t.Atom):
        raise ParseError(f"expected an atom like parent_of(ann, X), got: {_shortened(text, 60)}")
    return unit
