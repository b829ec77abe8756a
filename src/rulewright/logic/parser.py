"""Text to rules: the whole rule language, with errors that say where, what was found and what was expected."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import count
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from lark import Token
from lark.exceptions import UnexpectedToken

from rulewright.errors import DataError, ParseError
from rulewright.logic import rules as r
from rulewright.logic import terms as t
from rulewright.logic.hints import describe_mismatch, lacks_stop
from rulewright.logic.ruleset import RuleSet, Usage
from rulewright.logic.tokens import (
    COMMENT,
    FOREIGN,
    find_end,
    grammar,
    line_and_column,
    shorten,
    skip_space,
    split_statements,
    split_tokens,
    token_span,
    token_type,
)

MOST_ERRORS = 20
"""After so many errors the rest of a text is not read."""

# A deeper value could not be printed or compared within Python's own limit on recursion.
_MAX_DEPTH = 100

_UNESCAPED = {"\\'": "'", "\\\\": "\\", "\\n": "\n", "\\t": "\t", "\\r": "\r"}
_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{4}|\\.", re.DOTALL)


def unquote(quoted: str) -> str:
    r"""Read a name in single quotes.

    >>> unquote(r"'it\'s'")
    "it's"
    """
    inner = quoted[1:-1]
    return _ESCAPE.sub(_unescape, inner) if "\\" in inner else inner


def _unescape(match: re.Match[str]) -> str:
    escape = match.group()
    if len(escape) == 6:
        return chr(int(escape[2:], 16))
    if escape not in _UNESCAPED:
        shown = escape if escape.isprintable() else ascii(escape)[1:-1]
        raise DataError(rf"unknown escape {shown} in a quoted name; allowed are \' \\ \n \t \r \uXXXX")
    return _UNESCAPED[escape]


class _Closed(str):
    """The name in a ``closed`` declaration."""


class _Build:
    """What each rule of the grammar becomes, given the tokens and values of its parts."""

    @staticmethod
    def name(token: str) -> str:
        return unquote(token) if token[0] == "'" else token

    variable = lru_cache(maxsize=4096)(t.Variable)
    symbol = lru_cache(maxsize=4096)(t.Symbol)

    @staticmethod
    def number(token: str) -> int | float:
        return float(token) if "." in token or "e" in token or "E" in token else int(token)

    @staticmethod
    def number_term(token: str) -> t.Number:
        return t.Number(_Build.number(token))

    @staticmethod
    def hole(token: str) -> t.PredicateVariable:
        return t.PredicateVariable(token[1:])

    @staticmethod
    def atom(predicate: str | t.PredicateVariable, *args: t.Term) -> t.Atom:
        return t.Atom(predicate, args)

    membership = t.Membership

    @staticmethod
    def comparison(left: t.Term, operator: t.Comparator, right: t.Term) -> t.Comparison:
        return t.Comparison(operator, left, right)

    negation = t.Not
    implies = t.Implies
    iff = t.Iff

    @staticmethod
    def conjoined(*parts: t.Formula) -> t.And:
        return t.And(parts)

    @staticmethod
    def disjunction(*parts: t.Formula) -> t.Or:
        return t.Or(parts)

    @staticmethod
    def conjunction(*parts: Any) -> tuple[Any, ...]:
        return parts

    names = domain = domains = conjunction

    @staticmethod
    def body(*alternatives: tuple[t.Formula, ...]) -> tuple[t.Formula, ...]:
        if len(alternatives) == 1:
            return alternatives[0]
        return (t.Or(tuple(map(_Build.group, alternatives))),)

    @staticmethod
    def group(parts: tuple[t.Formula, ...]) -> t.Formula:
        return parts[0] if len(parts) == 1 else t.And(parts)

    @staticmethod
    def rule(
        confidence: str | None, head: r.Head, body: tuple[t.Formula, ...], annotations: r.Annotations | None
    ) -> r.Rule:
        return r.Rule(head, body, 1.0 if confidence is None else float(confidence), annotations or r.Annotations())

    @staticmethod
    def weight(token: str) -> tuple[str, int | float | None]:
        return (token, None) if token in ("hard", "learn") else ("soft", _Build.number(token))

    @staticmethod
    def formula_statement(
        weight: tuple[Any, float | None], formula: t.Formula, annotations: r.Annotations | None
    ) -> r.WeightedFormula:
        return r.WeightedFormula(formula, *weight, annotations or r.Annotations())

    @staticmethod
    def any() -> None:
        return None

    @staticmethod
    def template(
        head: r.Head, body: tuple[t.Formula, ...], domains: tuple[Any, ...] | None, annotations: r.Annotations | None
    ) -> r.Template:
        return r.Template(head, body, domains or (), annotations or r.Annotations())

    @staticmethod
    def predicate(name: str, types: tuple[str, ...] | None, classes: tuple[str, ...] | None) -> r.PredicateDeclaration:
        return r.PredicateDeclaration(name, types or (), classes)

    closed = _Closed

    @staticmethod
    def word(token: str) -> str | bool:
        return token == "true" if token in ("true", "false") else token

    @staticmethod
    def listing(*values: object) -> tuple[object, ...]:
        return () if values == (None,) else values

    @staticmethod
    def pair(key: str, value: object) -> tuple[str, object]:
        return key, value

    @staticmethod
    def pair_with_negative(key: str, token: str) -> tuple[str, object]:
        if token[0] == "-":
            raise DataError(f"a number has one sign, got -{token}")
        return key, -_Build.number(token)

    @staticmethod
    def mapping(*pairs: tuple[str, object] | None) -> r.Annotations:
        items = {pair[0]: pair[1] for pair in pairs if pair is not None}
        if len(items) < len(pairs) and pairs != (None,):
            keys = [pair[0] for pair in pairs if pair is not None]
            raise DataError(f"annotation {next(key for key in keys if keys.count(key) > 1)} is given twice")
        return r.Annotations(items)


_Plan: TypeAlias = Callable[[Sequence[str]], Any]


class _StatementError(Exception):
    """An error in a statement, and where to read on."""

    def __init__(self, error: ParseError, next_begin: int) -> None:
        super().__init__(error)
        self.error, self.next_begin = error, next_begin


class _UnexpectedError(Exception):
    """The token at this position cannot stand there; one of these types could."""

    def __init__(self, position: int, expected: set[str]) -> None:
        super().__init__(position)
        self.position, self.expected = position, expected


@lru_cache(maxsize=1024)
def _plan(start: str, types: tuple[str, ...]) -> _Plan:
    """Parse a statement given by the types of its tokens; return what builds its value from the tokens themselves.

    How a statement is to be read depends on the types alone, so that of all statements of one shape (there are
    many in a learned file) only the first is parsed.
    """
    reader = grammar().lark.parse_interactive(start=start)
    try:
        for position, name in enumerate(types):
            reader.feed_token(Token(name, "", start_pos=position))
        tree = reader.feed_token(Token("$END", "", start_pos=len(types)))
    except UnexpectedToken as error:
        # The reader that failed has already taken steps that only the token at fault made it take.
        reader = grammar().lark.parse_interactive(start=start)
        for name in types[: error.token.start_pos]:
            reader.feed_token(Token(name, ""))
        expected: set[str] = reader.accepts()  # type: ignore[no-untyped-call]
        raise _UnexpectedError(error.token.start_pos, expected) from None
    return _make_builder(tree, 0)


def _make_builder(node: Any, depth: int) -> _Plan:
    if node is None:
        return lambda words: None
    if isinstance(node, Token):
        return itemgetter(node.start_pos)
    if depth > _MAX_DEPTH:
        raise DataError("nested too deeply")
    if node.data == "name" and node.children[0].type == "WORD":
        return itemgetter(node.children[0].start_pos)  # it is its own name
    make = getattr(_Build, node.data)
    parts = [_make_builder(child, depth + 1) for child in node.children]
    if node.data == "atom":
        leaves = [leaf.start_pos for leaf in node.scan_values(lambda value: isinstance(value, Token))]
        return _remember(lambda words: make(*[part(words) for part in parts]), leaves[0], leaves[-1] + 1)
    if len(parts) == 1:
        (only,) = parts
        return lambda words: make(only(words))
    return lambda words: make(*[part(words) for part in parts])


_atoms: dict[tuple[str, ...], t.Atom] = {}


def _remember(build: _Plan, begin: int, end: int) -> _Plan:
    """Build equal atoms once: learned files repeat few atoms often."""

    def atom(words: Sequence[str]) -> t.Atom:
        key = tuple(words[begin:end])
        known = _atoms.get(key)
        if known is None:
            if len(_atoms) >= 1 << 16:
                _atoms.clear()
            known = _atoms[key] = build(words)
        return known

    return atom


class _Source(NamedTuple):
    """A text, and the file it is from for its errors."""

    text: str
    file: str | None = None

    def error(self, message: str, position: int) -> ParseError:
        line, column = line_and_column(self.text, position)
        return ParseError(message, file=self.file, line=line, column=column)

    def value(self, start: str, begin: int, end: int, words: list[str]) -> Any:
        """Build what ``start`` makes of a part of the text, given as ``words``."""
        try:
            return self.try_value(start, begin, end, words)
        except _StatementError as failure:
            raise failure.error from None

    def try_value(self, start: str, begin: int, end: int, words: list[str] | None = None) -> Any:
        """Build what ``start`` makes of a part of the text; an error says where to read on."""
        words = split_tokens(self.text, begin, end) if words is None else words
        try:
            build = _plan(start, tuple(map(token_type, words)))
            return build(_name_anonymous(words) if "_" in words else words)
        except _UnexpectedError as error:
            at, after = token_span(self.text, begin, end, error.position)
            found, starts_line = self.text[at:after], self._starts_line(at)
            before = words[: error.position]
            message = describe_mismatch(found, error.expected, before, starts_line=starts_line)
            if FOREIGN.get(found) == COMMENT:
                next_begin = self.text.find("\n", at) + 1 or len(self.text)
            else:
                is_next = lacks_stop(found, error.expected, starts_line=starts_line)
                next_begin = at if is_next and error.position else end
            raise _StatementError(self.error(message, at), next_begin) from None
        except DataError as error:
            raise _StatementError(self.error(str(error), begin), end) from None

    def _starts_line(self, position: int) -> bool:
        return not self.text[self.text.rfind("\n", 0, position) + 1 : position].strip()

    def statement(self, classes: Any, wanted: str) -> Any:
        """Build the only statement of the text; its full stop may be missing."""
        spans = list(split_statements(self.text))
        if len(spans) != 1:
            raise self.error(f"expected {wanted}, got {len(spans)} statements", spans[1][0] if spans else 0)
        ((begin, end),) = spans
        words = split_tokens(self.text, begin, end)
        value = self.value("statement", begin, end, words if "." in words else [*words, "."])
        if not isinstance(value, classes):
            raise self.error(f"expected {wanted}, got {shorten(self.text[begin:end], 60)}", begin)
        return value

    def whole(self, start: str) -> Any:
        """Build what ``start`` makes of the whole text, whether or not it ends with a full stop."""
        begin, end = skip_space(self.text, 0), len(self.text)
        words = split_tokens(self.text, begin, end)
        return self.value(start, begin, end, words[:-1] if words[-1:] == ["."] else words)


def _name_anonymous(words: list[str]) -> list[str]:
    """Give each ``_`` a name that its statement does not use."""
    taken = set(words)
    fresh = (name for index in count(1) if (name := f"_{index}") not in taken)
    return [next(fresh) if word == "_" else word for word in words]


OFF = "%off "
"""What makes a comment of a line whose statement is switched off; see `switched_off`."""


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
    reading = read_statements(text, file=file)
    if reading.errors:
        raise _join_errors(reading.errors)
    numbers = None
    if OFF in reading.text:
        from rulewright.logic.switched_off import number_statements

        numbers = number_statements(reading.text, [begin for begin, _ in reading.stated])
    return RuleSet(
        (value for _, value in reading.stated),
        predicates=(value for _, value in reading.declared),
        closed=(name for _, name in reading.closed),
        numbers=numbers,
    )


class RuleReading(NamedTuple):
    """What a text holds, each part with the position where it begins, and all that is wrong with it, in order."""

    text: str
    stated: list[tuple[int, r.Statement]]
    declared: list[tuple[int, r.PredicateDeclaration]]
    closed: list[tuple[int, str]]
    errors: list[ParseError]


def read_statements(text: str, *, file: str | None = None) -> RuleReading:
    """Read statement by statement; after an error go on with the next, up to `MOST_ERRORS`.

    >>> reading = read_statements("p(X) : q(X). hard r(X). s(X) -> r(X).")
    >>> [str(statement) for _, statement in reading.stated]
    ['hard r(X).']
    >>> [error.column for error in reading.errors]
    [6, 30]
    """
    source = _Source(text.removeprefix("\ufeff"), file)
    reading = RuleReading(source.text, [], [], [], [])
    begin = skip_space(source.text, 0)
    while begin < len(source.text) and len(reading.errors) < MOST_ERRORS:
        next_begin = end = find_end(source.text, begin)
        try:
            value = source.try_value("statement", begin, end)
        except _StatementError as failure:
            reading.errors.append(failure.error)
            next_begin = failure.next_begin
        else:
            if isinstance(value, r.PredicateDeclaration):
                reading.declared.append((begin, value))
            elif isinstance(value, _Closed):
                reading.closed.append((begin, str(value)))
            else:
                reading.stated.append((begin, value))
        begin = skip_space(source.text, next_begin)
    reading.errors.extend(_find_misuses(source, reading))
    reading.errors.sort(key=lambda error: (error.line or 0, error.column or 0))
    return reading


def _find_misuses(source: _Source, reading: RuleReading) -> list[ParseError]:
    """Find the statements that contradict what stands before them."""
    usage, errors = Usage(), []
    for begin, value in [*reading.declared, *reading.stated]:
        try:
            if isinstance(value, r.PredicateDeclaration):
                usage.declare(value)
            else:
                usage.add(value)
        except DataError as error:
            errors.append(source.error(str(error), begin))
            if len(errors) >= MOST_ERRORS:
                break
    return errors


def _join_errors(errors: Sequence[ParseError]) -> ParseError:
    """Return the first error with the others behind it."""
    first, *others = errors[:MOST_ERRORS]
    return ParseError(
        first.message,
        file=first.file,
        line=first.line,
        column=first.column,
        others=others,
        is_cut=len(errors) >= MOST_ERRORS,
    )


RuleSource: TypeAlias = RuleSet | r.Statement | str | Iterable[r.Statement | str]
"""What is taken where rules are: a rule set, one statement or several, or their text."""


def as_rules(rules: RuleSource) -> RuleSet:
    """Return rules that are given as a rule set, as statements or as text, as a rule set.

    >>> as_rules("hard dog(X) => animal(X).")
    RuleSet(1 formulas)
    >>> as_rules(["hard dog(X) => animal(X).", parse_rule("pet(X) :- dog(X)")])
    RuleSet(1 rules, 1 formulas)
    """
    if isinstance(rules, RuleSet):
        return rules
    if isinstance(rules, str):
        return parse_rules(rules)
    if isinstance(rules, r.Rule | r.WeightedFormula | r.Template):
        return RuleSet([rules])
    parts: list[RuleSet] = []
    for given in rules:
        if isinstance(given, str):
            parts.append(parse_rules(given))
        elif isinstance(given, r.Rule | r.WeightedFormula | r.Template):
            parts.append(RuleSet([given]))
        else:
            raise DataError(f"rules must be statements or their text, got {given!r}")
    return RuleSet(
        (statement for part in parts for statement in part),
        predicates=(declaration for part in parts for declaration in part.predicates),
        closed=(name for part in parts for name in part.closed),
    )


def parse_rule(text: str) -> r.Rule:
    """Read one rule; its full stop may be left out.

    >>> str(parse_rule("p(X) :- q(X, _)"))
    'p(X) :- q(X, _1).'
    """
    rule: r.Rule = _Source(text).statement(r.Rule, "a rule")
    return rule


def parse_template(text: str) -> r.Template:
    """Read one ``template`` statement; its full stop may be left out."""
    template: r.Template = _Source(text).statement(r.Template, "a template")
    return template


def parse_statement(text: str) -> r.Statement:
    """Read one rule, weighted formula or template; its full stop may be left out."""
    classes = r.Rule | r.WeightedFormula | r.Template
    statement: r.Statement = _Source(text).statement(classes, "a rule, weighted formula or template")
    return statement


def parse_formula(text: str) -> t.Formula:
    """Read a formula without its weight.

    >>> str(parse_formula("smoke(X) & friend(X, Y) => smoke(Y)"))
    'smoke(X) & friend(X, Y) => smoke(Y)'
    """
    formula: t.Formula = _Source(text).whole("formula")
    return formula


def parse_atom(text: str) -> t.Atom:
    """Read an atom.

    >>> parse_atom("parent_of(ann, X)").args
    (Symbol(name='ann'), Variable(name='X'))
    """
    unit = _Source(text).whole("unit")
    if not isinstance(unit, t.Atom):
        raise ParseError(f"expected an atom like parent_of(ann, X), got {shorten(text.strip(), 60)}", line=1, column=1)
    return unit
