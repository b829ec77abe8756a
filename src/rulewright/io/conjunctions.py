"""Rules as other rule miners write them: a head and a conjunction of atoms over two variables or entities."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rulewright.errors import DataError, ParseError
from rulewright.logic import Atom, Number, PredicateVariable, Rule, Statement

INTEGER = re.compile(r"[0-9]{1,15}")


def conjunction(statement: Statement, format: str) -> list[Atom]:
    """Return the head of a rule and the atoms of its body; what is no conjunction of binary atoms is refused.

    >>> from rulewright.logic import parse_rule
    >>> print(*conjunction(parse_rule("p(X, Y) :- q(Y, X), r(Y, ann)."), "AMIE"))
    p(X, Y) q(Y, X) r(Y, ann)
    """
    if not isinstance(statement, Rule):
        raise DataError(f"{format} has rules and no formulas or templates, so it cannot say: {statement}")
    found = []
    for unit in (statement.head, *statement.body):
        if not isinstance(unit, Atom) or unit.arity != 2 or isinstance(unit.predicate, PredicateVariable):
            raise DataError(f"{format} knows only relations of two arguments, so it cannot say {unit} in: {statement}")
        if any(isinstance(term, Number) for term in unit.args):
            raise DataError(f"{format} has no numbers, so it cannot say {unit} in: {statement}")
        found.append(unit)
    return found


def check_reads_back(rule: Rule, again: Iterable[Rule], format: str) -> None:
    """Refuse a rule whose line would be read as another one, since a name holds what separates names there."""
    if [each.canonical() for each in again] != [rule.canonical()]:
        raise DataError(f"a name would be misread in a file of {format}, which has no quotes, so it cannot say: {rule}")


def count(text: str, what: str, *, file: str | None, line: int) -> int:
    """Read a count; anything else is an error with its place."""
    if not INTEGER.fullmatch(text):
        raise ParseError(f"{what} must be a whole number, got {text[:30]!r}", file=file, line=line)
    return int(text)


def share(text: str, what: str, *, file: str | None, line: int) -> float:
    """Read a number in [0, 1]; anything else is an error with its place."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ParseError(f"{what} must be a number in [0, 1], got {text[:30]!r}", file=file, line=line)
    return value
