"""Clauses over all assignments, with atoms that coincide treated exactly and without enumeration.

A clause ``l_1 | … | l_m`` stands for all assignments of its variables. Where two of its atoms become one, a doubled
literal counts once and opposite ones make a tautology. `exact_patterns` writes the sum over all assignments as a sum
of *patterns*, in each of which every literal may be treated as an atom of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

from rulewright.errors import DataError
from rulewright.logic import Clause, Comparison, Literal, Membership, PredicateDeclaration, Term, Variable

Equalities: TypeAlias = tuple[tuple[Term, Term], ...]
Binding: TypeAlias = Mapping[Variable, Term]

FALSE, TRUE = 0, 1
"""The classes of a predicate that has none."""

MAX_PATTERNS = 5_000
"""How many patterns a clause may become."""


@dataclass(frozen=True, slots=True)
class ClauseLiteral:
    """A literal that is true when its atom's class is one of ``classes``: {1} for an atom, {0} for a negated one.

    An order comparison has its operator as ``predicate``.
    """

    predicate: str
    args: tuple[Term, ...]
    classes: frozenset[int]

    def bound(self, binding: Binding) -> ClauseLiteral:
        """Return the literal with its variables replaced."""
        return ClauseLiteral(self.predicate, _bound(self.args, binding), self.classes)


@dataclass(frozen=True, slots=True)
class Pattern:
    """``coefficient`` times a clause over all assignments in which each pair of ``apart`` differs.

    Its literals count as different atoms even where they are equal. ``variables`` may be more than the literals have;
    each pair of ``apart`` stands in one literal together.
    """

    literals: tuple[ClauseLiteral, ...]
    variables: tuple[Variable, ...]
    apart: frozenset[frozenset[Term]]
    coefficient: int = 1


def exact_patterns(
    clause: Clause, variables: Sequence[Variable], predicates: Mapping[str, PredicateDeclaration]
) -> tuple[Pattern, ...]:
    """Return the patterns whose sum is the clause over all assignments of ``variables``.

    Transitivity needs one: where a = b or b = c it is a tautology, which the pattern leaves out.

    >>> from rulewright.logic import exclusive_clauses, parse_formula, variables
    >>> formula = parse_formula("r(A, B) & r(B, C) => r(A, C)")
    >>> declared = {"r": PredicateDeclaration("r", ("node", "node"))}
    >>> pattern, = exact_patterns(exclusive_clauses(formula)[0], variables(formula), declared)
    >>> sorted(sorted(map(str, pair)) for pair in pattern.apart)
    [['A', 'B'], ['B', 'C']]
    """
    literals: list[ClauseLiteral] = []
    required: list[tuple[Term, Term]] = []
    excluded: list[Equalities] = []
    for literal in clause.literals:
        match literal.unit:
            case Comparison("!=", left, right):  # false only where they are equal
                required.append((left, right))
            case Comparison("=", left, right):
                excluded.append(((left, right),))
            case _:
                literals.append(_clause_literal(literal, predicates))
    binding = _solved(required)
    if binding is None:
        return ()
    rest = _restricted(excluded, binding)
    if rest is None:
        return ()
    exact = _exact(
        tuple(each.bound(binding) for each in literals),
        tuple(each for each in variables if each not in binding),
        rest,
        {name: len(each.classes or (FALSE, TRUE)) for name, each in predicates.items()},
    )
    return _collected(exact)


def _clause_literal(literal: Literal, predicates: Mapping[str, PredicateDeclaration]) -> ClauseLiteral:
    unit = literal.unit
    if isinstance(unit, Comparison):
        return ClauseLiteral(unit.operator, unit.args, frozenset({TRUE}))
    name = str(unit.predicate)
    if isinstance(unit, Membership):
        known = predicates[name].classes or ()
        inside = {known.index(each) for each in unit.classes}
        chosen = inside if literal.positive else set(range(len(known))) - inside
        return ClauseLiteral(name, unit.args, frozenset(chosen))
    return ClauseLiteral(name, unit.args, frozenset({TRUE if literal.positive else FALSE}))


def _exact(
    literals: tuple[ClauseLiteral, ...],
    variables: tuple[Variable, ...],
    excluded: tuple[Equalities, ...],
    n_classes: Mapping[str, int],
) -> list[Pattern]:
    """Split by whether the first two atoms that can coincide do; ``excluded`` holds what is known not to be."""
    merged = _merged(literals, n_classes)
    if merged is None:
        return []
    for one, other in combinations(merged, 2):
        if one.predicate != other.predicate:
            continue
        binding = _solved(zip(one.args, other.args, strict=True))
        if binding is None:
            continue
        apart = _restricted(excluded, binding)
        if apart is None:  # they can only coincide where it is excluded
            continue
        together = _exact(
            tuple(each.bound(binding) for each in merged),
            tuple(each for each in variables if each not in binding),
            apart,
            n_classes,
        )
        return together + _exact(merged, variables, (*excluded, tuple(binding.items())), n_classes)
    return _separated(merged, variables, _irredundant(excluded))


def _merged(literals: tuple[ClauseLiteral, ...], n_classes: Mapping[str, int]) -> tuple[ClauseLiteral, ...] | None:
    """Join the literals of one atom; None for a tautology."""
    found: dict[tuple[str, tuple[Term, ...]], frozenset[int]] = {}
    for literal in literals:
        key = (literal.predicate, literal.args)
        found[key] = found.get(key, frozenset()) | literal.classes
        if len(found[key]) == n_classes.get(literal.predicate, 0):
            return None
    return tuple(ClauseLiteral(name, args, classes) for (name, args), classes in found.items())


def _separated(
    literals: tuple[ClauseLiteral, ...], variables: tuple[Variable, ...], excluded: tuple[Equalities, ...]
) -> list[Pattern]:
    """Leave out the assignments in which one of ``excluded`` holds: as ``apart`` where a literal has both sides,
    else as all assignments less those in which it holds."""
    for place, equalities in enumerate(excluded):
        if _pair_in_a_literal(equalities, literals):
            continue
        others = (*excluded[:place], *excluded[place + 1 :])
        kept = _separated(literals, variables, others)
        binding = _solved(equalities)
        assert binding is not None
        rest = _restricted(others, binding)
        if rest is None:
            return kept
        left = tuple(each for each in variables if each not in binding)
        taken = _separated(tuple(each.bound(binding) for each in literals), left, rest)
        if len(kept) + len(taken) > MAX_PATTERNS:
            raise DataError(f"a formula whose atoms coincide in more than {MAX_PATTERNS} ways; split it into several")
        return kept + [Pattern(each.literals, each.variables, each.apart, -each.coefficient) for each in taken]
    return [Pattern(literals, variables, frozenset(frozenset(each[0]) for each in excluded))]


def _pair_in_a_literal(equalities: Equalities, literals: Iterable[ClauseLiteral]) -> bool:
    return (
        len(equalities) == 1
        and all(isinstance(each, Variable) for each in equalities[0])
        and any(set(equalities[0]) <= set(each.args) for each in literals)
    )


def _irredundant(excluded: tuple[Equalities, ...]) -> tuple[Equalities, ...]:
    """Leave out what can only hold where another of them does."""
    kept: list[Equalities] = []
    for place, each in enumerate(excluded):
        binding = _solved(each)
        assert binding is not None
        others = (*kept, *excluded[place + 1 :])
        if not any(_restricted((other,), binding) is None for other in others):
            kept.append(each)
    return tuple(kept)


def _restricted(excluded: Iterable[Equalities], binding: Binding) -> tuple[Equalities, ...] | None:
    """Return what is still to be excluded where a binding holds; None where one of them holds with it."""
    kept: list[Equalities] = []
    for equalities in excluded:
        solved = _solved(_bound(pair, binding) for pair in equalities)
        if solved is None:
            continue
        if not solved:
            return None
        kept.append(tuple(solved.items()))
    return tuple(kept)


def _solved(pairs: Iterable[Sequence[Term]]) -> dict[Variable, Term] | None:
    """Return the most general binding that makes each pair equal; None where there is none."""
    found: dict[Variable, Term] = {}

    def resolved(term: Term) -> Term:
        while isinstance(term, Variable) and term in found:
            term = found[term]
        return term

    for left, right in pairs:
        one, other = resolved(left), resolved(right)
        if one == other:
            continue
        if isinstance(one, Variable):
            found[one] = other
        elif isinstance(other, Variable):
            found[other] = one
        else:
            return None
    return {variable: resolved(variable) for variable in found}


def _bound(terms: Sequence[Term], binding: Binding) -> tuple[Term, ...]:
    return tuple(binding.get(term, term) if isinstance(term, Variable) else term for term in terms)


def _collected(patterns: Iterable[Pattern]) -> tuple[Pattern, ...]:
    """Add up equal patterns."""
    totals: dict[Pattern, int] = {}
    for each in patterns:
        key = Pattern(each.literals, each.variables, each.apart)
        totals[key] = totals.get(key, 0) + each.coefficient
    return tuple(Pattern(each.literals, each.variables, each.apart, total) for each, total in totals.items() if total)
