"""Formulas as clauses: conjunctive normal form, and clauses of which no two can be false together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from rulewright.errors import DataError
from rulewright.logic.terms import And, Comparison, Formula, Iff, Implies, Literal, Not, Or, Unit

MAX_CLAUSES = 1_000
"""How many clauses a formula may become."""

_Signs: TypeAlias = Mapping[Unit, bool]


@dataclass(frozen=True, slots=True)
class Clause:
    """A disjunction of literals, no unit twice; the empty clause is false. Comparisons are never negated in it."""

    literals: tuple[Literal, ...]

    def __str__(self) -> str:
        return " | ".join(map(str, self.literals)) or "false"


def cnf(formula: Formula) -> tuple[Clause, ...]:
    """Return clauses whose conjunction is equivalent to the formula; tautologies and subsumed clauses are left out.

    >>> from rulewright.logic import parse_formula
    >>> [str(clause) for clause in cnf(parse_formula("p(X) <=> q(X) & r(X)"))]
    ['!p(X) | q(X)', '!p(X) | r(X)', 'p(X) | !q(X) | !r(X)']
    """
    return tuple(map(_make_clause, _distribute(formula, True)))


def _make_clause(signs: _Signs) -> Clause:
    return Clause(
        tuple(
            Literal(unit.opposite()) if isinstance(unit, Comparison) and not positive else Literal(unit, positive)
            for unit, positive in signs.items()
        )
    )


def _distribute(formula: Formula, positive: bool) -> list[_Signs]:
    """Return the clauses of the formula, or of its negation, as unit → sign."""
    match formula:
        case Not(inner):
            return _distribute(inner, not positive)
        case Implies(premise, conclusion):
            return _distribute(Or((Not(premise), conclusion)), positive)
        case Iff(left, right):
            both = And((Or((Not(left), right)), Or((left, Not(right)))))
            either = And((Or((left, right)), Or((Not(left), Not(right)))))
            return _distribute(both if positive else either, True)
        case And(parts) | Or(parts):
            by_part = [_distribute(part, positive) for part in parts]
            if isinstance(formula, And) == positive:
                return _drop_subsumed(clause for clauses in by_part for clause in clauses)
            joined: list[_Signs] = [{}]
            for clauses in by_part:
                joined = _drop_subsumed(
                    {**one, **other} for one in joined for other in clauses if not _contradict(one, other)
                )
            return joined
        case _:
            unit, sign = _orient(formula)
            return [{unit: sign == positive}]


def _contradict(one: _Signs, other: _Signs) -> bool:
    return any(one.get(unit, sign) != sign for unit, sign in other.items())


def _drop_subsumed(clauses: Iterable[_Signs]) -> list[_Signs]:
    kept: dict[frozenset[tuple[Unit, bool]], _Signs] = {}
    for signs in clauses:
        clause = frozenset(signs.items())
        if not any(other <= clause for other in kept):
            for wider in [other for other in kept if clause <= other]:
                del kept[wider]
            kept[clause] = signs
            _check_count(len(kept))
    return list(kept.values())


def _check_count(clauses: int) -> None:
    if clauses > MAX_CLAUSES:
        raise DataError(f"a formula of more than {MAX_CLAUSES} clauses; split it into several")


def exclusive_clauses(formula: Formula) -> tuple[Clause, ...]:
    """Return clauses of which every assignment that falsifies the formula falsifies exactly one, and no other any.

    So the formula's truth is ``1 − Σ 1[clause is false]``. A disjunction of literals stays one clause.

    >>> from rulewright.logic import parse_formula
    >>> [str(clause) for clause in exclusive_clauses(parse_formula("a(X) & b(X)"))]
    ['a(X)', '!a(X) | b(X)']
    """
    literals = _disjuncts(formula, True)
    if literals is not None:
        signs = dict(literals)
        is_tautology = any(signs[unit] != sign for unit, sign in literals)
        return () if is_tautology else (_make_clause(signs),)
    # Branch on one unit after another; each branch that is false whatever follows is one clause.
    clauses: list[Clause] = []
    branches: list[_Signs] = [{}]
    while branches:
        fixed = branches.pop()
        truth = _evaluate(formula, fixed)
        if truth is None:
            unit = _open_unit(formula, fixed)
            branches += [{**fixed, unit: True}, {**fixed, unit: False}]
        elif not truth:
            clauses.append(_make_clause({unit: not value for unit, value in fixed.items()}))
            _check_count(len(clauses))
    return tuple(clauses)


def _disjuncts(formula: Formula, positive: bool) -> list[tuple[Unit, bool]] | None:
    """Return the literals of a formula, or of its negation, that is a disjunction of literals, else None."""
    match formula:
        case Not(inner):
            return _disjuncts(inner, not positive)
        case Implies(premise, conclusion) if positive:
            parts = [_disjuncts(premise, False), _disjuncts(conclusion, True)]
        case Or(formulas) | And(formulas) if positive == isinstance(formula, Or):
            parts = [_disjuncts(part, positive) for part in formulas]
        case And() | Or() | Implies() | Iff():
            return None
        case _:
            unit, sign = _orient(formula)
            return [(unit, sign == positive)]
    return None if None in parts else [literal for part in parts for literal in part or ()]


def _open_unit(formula: Formula, fixed: _Signs) -> Unit:
    """Return the first unit that the formula's truth still depends on."""
    match formula:
        case Not(inner):
            return _open_unit(inner, fixed)
        case And(parts) | Or(parts):
            return _open_unit(next(part for part in parts if _evaluate(part, fixed) is None), fixed)
        case Implies(left, right) | Iff(left, right):
            return _open_unit(left if _evaluate(left, fixed) is None else right, fixed)
        case _:
            return _orient(formula)[0]


def _orient(unit: Unit) -> tuple[Unit, bool]:
    """Write opposite comparisons as one unit with a sign."""
    if isinstance(unit, Comparison) and unit.operator in (">=", ">", "!="):
        return unit.opposite(), False
    return unit, True


def _evaluate(formula: Formula, fixed: _Signs) -> bool | None:
    """Evaluate under a partial assignment: True, False, or None where it depends on what is open."""
    match formula:
        case Not(inner):
            value = _evaluate(inner, fixed)
            return None if value is None else not value
        case And(parts) | Or(parts):
            decisive = isinstance(formula, Or)
            values = [_evaluate(part, fixed) for part in parts]
            if decisive in values:
                return decisive
            return None if None in values else not decisive
        case Implies(left, right) | Iff(left, right):
            one, other = _evaluate(left, fixed), _evaluate(right, fixed)
            if isinstance(formula, Implies) and (one is False or other is True):
                return True
            return None if one is None or other is None else one == other
        case _:
            unit, sign = _orient(formula)
            known = fixed.get(unit)
            return None if known is None else known == sign
