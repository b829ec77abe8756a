"""Formulas as clauses: conjunctive normal form, and clauses of which no two can be false together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rulewright.logic.terms import And, Comparison, Formula, Iff, Implies, Literal, Not, Or, Unit, units


@dataclass(frozen=True, slots=True)
class Clause:
    """A disjunction of literals, no unit twice; the empty clause is false."""

    literals: tuple[Literal, ...]

    def __str__(self) -> str:
        return " | ".join(map(str, self.literals)) or "false"


def cnf(formula: Formula) -> tuple[Clause, ...]:
    """Return clauses whose conjunction is equivalent to the formula; tautologies and subsumed clauses are left out.

    >>> from rulewright.logic import parse_formula
    >>> [str(clause) for clause in cnf(parse_formula("p(X) <=> q(X) & r(X)"))]
    ['!p(X) | q(X)', '!p(X) | r(X)', 'p(X) | !q(X) | !r(X)']
    """
    found: list[dict[Unit, bool]] = []
    for clause in _distributed(formula, True):
        if not any(other.items() <= clause.items() for other in found):
            found = [other for other in found if not clause.items() <= other.items()]
            found.append(clause)
    return tuple(_clause(signs) for signs in found)


def _clause(signs: Mapping[Unit, bool]) -> Clause:
    return Clause(tuple(Literal(unit, positive) for unit, positive in signs.items()))


def _distributed(formula: Formula, positive: bool) -> Iterator[dict[Unit, bool]]:
    """Yield the clauses of the formula (or of its negation) as unit → sign."""
    match formula:
        case Not(inner):
            yield from _distributed(inner, not positive)
        case Implies(premise, conclusion):
            yield from _distributed(Or((Not(premise), conclusion)), positive)
        case Iff(left, right):
            both = And((Or((Not(left), right)), Or((left, Not(right)))))
            either = And((Or((left, right)), Or((Not(left), Not(right)))))
            yield from _distributed(both if positive else either, True)
        case And(parts) | Or(parts):
            if isinstance(formula, And) == positive:
                for part in parts:
                    yield from _distributed(part, positive)
            else:
                yield from _joined(parts, positive)
        case Comparison():
            yield {formula if positive else formula.opposite(): True}
        case _:
            yield {formula: positive}


def _joined(parts: tuple[Formula, ...], positive: bool) -> Iterator[dict[Unit, bool]]:
    """Yield every union of one clause per part that is no tautology."""
    if not parts:
        yield {}
        return
    rest = list(_joined(parts[1:], positive))
    for first in _distributed(parts[0], positive):
        for other in rest:
            if all(other.get(unit, sign) == sign for unit, sign in first.items()):
                yield {**first, **other}


def exclusive_clauses(formula: Formula) -> tuple[Clause, ...]:
    """Return clauses of which every assignment that falsifies the formula falsifies exactly one, and no other any.

    So the formula's truth is ``1 − Σ 1[clause is false]``. A disjunction of literals stays one clause.

    >>> from rulewright.logic import parse_formula
    >>> [str(clause) for clause in exclusive_clauses(parse_formula("a(X) & b(X)"))]
    ['a(X)', '!a(X) | b(X)']
    """
    order = tuple(dict.fromkeys(_oriented(unit)[0] for unit in units(formula)))
    return tuple(_clause(signs) for signs in _falsifying(formula, order, {}))


def _falsifying(formula: Formula, order: tuple[Unit, ...], fixed: dict[Unit, bool]) -> Iterator[dict[Unit, bool]]:
    """Branch on one unit after another; each branch that is false whatever follows is one clause."""
    truth = _truth(formula, fixed)
    if truth is True:
        return
    if truth is False:
        yield {unit: not value for unit, value in fixed.items()}
        return
    unit = next(each for each in order if each not in fixed)
    for value in (False, True):
        yield from _falsifying(formula, order, {**fixed, unit: value})


def _oriented(unit: Unit) -> tuple[Unit, bool]:
    """Write opposite comparisons as one unit with a sign."""
    if isinstance(unit, Comparison) and unit.operator in (">=", ">", "!="):
        return unit.opposite(), False
    return unit, True


def _truth(formula: Formula, fixed: Mapping[Unit, bool]) -> bool | None:
    """Evaluate under a partial assignment: True, False, or None where it depends on what is open."""
    match formula:
        case Not(inner):
            value = _truth(inner, fixed)
            return None if value is None else not value
        case And(parts) | Or(parts):
            decisive = isinstance(formula, Or)
            values = [_truth(part, fixed) for part in parts]
            if decisive in values:
                return decisive
            return None if None in values else not decisive
        case Implies(premise, conclusion):
            return _truth(Or((Not(premise), conclusion)), fixed)
        case Iff(left, right):
            one, other = _truth(left, fixed), _truth(right, fixed)
            return None if one is None or other is None else one == other
        case _:
            unit, sign = _oriented(formula)
            known = fixed.get(unit)
            return None if known is None else known == sign
