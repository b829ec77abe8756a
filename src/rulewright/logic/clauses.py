"""Formulas as clauses: conjunctive normal form, and clauses of which no two can be false together; unification."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from rulewright.errors import DataError
from rulewright.logic.terms import And, Comparison, Formula, Iff, Implies, Literal, Not, Or, Term, Unit, Variable

MAX_CLAUSES = 1_000
"""How many clauses a formula may become."""

_TOO_MANY = f"a formula of more than {MAX_CLAUSES} clauses; split it into several"

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
            if len(kept) > MAX_CLAUSES:
                raise DataError(_TOO_MANY)
    return list(kept.values())


def exclusive_clauses(formula: Formula) -> tuple[Clause, ...]:
    """Return clauses of which every assignment that falsifies the formula falsifies exactly one, and no other any.

    So the formula's truth is ``1 − Σ 1[clause is false]``. A disjunction of literals stays one clause.

    >>> from rulewright.logic import parse_formula
    >>> [str(clause) for clause in exclusive_clauses(parse_formula("a(X) & b(X)"))]
    ['a(X)', '!a(X) | b(X)']
    """
    # Branch on one unit after another; each branch that is false whatever follows is one clause.
    clauses: list[Clause] = []
    branches: list[_Signs] = [{}]
    while branches:
        fixed = branches.pop()
        truth = _evaluate(formula, fixed)
        if not isinstance(truth, bool):
            branches += [{**fixed, truth: True}, {**fixed, truth: False}]
        elif not truth:
            clauses.append(_make_clause({unit: not value for unit, value in fixed.items()}))
            if len(clauses) > MAX_CLAUSES:
                raise DataError(_TOO_MANY)
    return tuple(clauses)


def _evaluate(formula: Formula, fixed: _Signs) -> bool | Unit:
    """Evaluate under a partial assignment: True, False, or the first open unit that the truth depends on."""
    match formula:
        case Not(inner):
            value = _evaluate(inner, fixed)
            return not value if isinstance(value, bool) else value
        case And(parts) | Or(parts):
            decisive = isinstance(formula, Or)
            values = [_evaluate(part, fixed) for part in parts]
            if decisive in values:
                return decisive
            return next((value for value in values if not isinstance(value, bool)), not decisive)
        case Implies(left, right) | Iff(left, right):
            one, other = _evaluate(left, fixed), _evaluate(right, fixed)
            if isinstance(formula, Implies) and (one is False or other is True):
                return True
            if isinstance(one, bool):
                return one == other if isinstance(other, bool) else other
            return one
        case _:
            unit, sign = _orient(formula)
            return fixed[unit] == sign if unit in fixed else unit


def _orient(unit: Unit) -> tuple[Unit, bool]:
    """Write opposite comparisons as one unit with a sign."""
    if isinstance(unit, Comparison) and unit.operator in (">=", ">", "!="):
        return unit.opposite(), False
    return unit, True


def unify(pairs: Iterable[Sequence[Term]]) -> dict[Variable, Term] | None:
    """Return the most general substitution that makes the two terms of each pair equal, or None.

    >>> from rulewright.logic import Symbol
    >>> x, y, a = Variable("X"), Variable("Y"), Symbol("a")
    >>> {str(variable): str(term) for variable, term in unify([(x, y), (x, a)]).items()}
    {'X': 'a', 'Y': 'a'}
    >>> unify([(x, a), (x, Symbol("b"))]) is None
    True
    """
    binding: dict[Term, Term] = {}  # no term of it is a variable that it binds
    for left, right in pairs:
        one, other = binding.get(left, left), binding.get(right, right)
        if one == other:
            continue
        if not isinstance(one, Variable):
            one, other = other, one
        if not isinstance(one, Variable):
            return None
        binding = {variable: other if term == one else term for variable, term in binding.items()}
        binding[one] = other
    return cast("dict[Variable, Term]", binding)
