"""Clauses over all assignments, with atoms that coincide treated exactly and without enumeration.

A clause ``l_1 | … | l_m`` stands for all assignments of its variables. Where two of its atoms become one, a doubled
literal counts once and opposite ones make a tautology. `exact_patterns` writes the sum over all assignments as a sum
of *patterns*, in each of which every literal may be treated as an atom of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeAlias

from rulewright.errors import DataError
from rulewright.logic import Clause, Comparison, Membership, PredicateDeclaration, Term, Variable, unify

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

    def positions_apart(self, literal_position: int) -> list[tuple[int, int]]:
        """Return the arguments of a literal that it keeps apart: of the pairs that no literal before it has."""
        args = self.literals[literal_position].args
        positions = []
        for pair in self.apart:
            if next(i for i, literal in enumerate(self.literals) if pair <= set(literal.args)) == literal_position:
                first, second = sorted(args.index(term) for term in pair)
                positions.append((first, second))
        return sorted(positions)


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
            case Comparison(operator) as comparison:
                literals.append(ClauseLiteral(operator, comparison.args, frozenset({TRUE})))
            case Membership() as membership:
                declared = predicates[str(membership.predicate)].classes or ()
                inside = {declared.index(class_name) for class_name in membership.classes}
                classes = inside if literal.positive else set(range(len(declared))) - inside
                literals.append(ClauseLiteral(str(membership.predicate), membership.args, frozenset(classes)))
            case atom:
                classes = {TRUE if literal.positive else FALSE}
                literals.append(ClauseLiteral(str(atom.predicate), atom.args, frozenset(classes)))
    binding = unify(required)
    remaining = None if binding is None else _restrict(excluded, binding)
    if binding is None or remaining is None:
        return ()
    n_classes = {name: len(declaration.classes or (FALSE, TRUE)) for name, declaration in predicates.items()}
    totals: dict[Pattern, int] = {}  # equal patterns are added up
    for pattern in _split(*_bind(literals, variables, binding), remaining, n_classes):
        key = replace(pattern, coefficient=1)
        totals[key] = totals.get(key, 0) + pattern.coefficient
    return tuple(replace(pattern, coefficient=total) for pattern, total in totals.items() if total)


def _split(
    literals: tuple[ClauseLiteral, ...],
    variables: tuple[Variable, ...],
    excluded: tuple[Equalities, ...],
    n_classes: Mapping[str, int],
) -> list[Pattern]:
    """Split by whether the first two atoms that can coincide do; ``excluded`` are equalities known not to hold."""
    merged: dict[tuple[str, tuple[Term, ...]], frozenset[int]] = {}
    for literal in literals:
        key = (literal.predicate, literal.args)
        merged[key] = merged.get(key, frozenset()) | literal.classes
        if len(merged[key]) == n_classes.get(literal.predicate, 0):
            return []  # a tautology
    literals = tuple(ClauseLiteral(name, args, classes) for (name, args), classes in merged.items())
    for one, other in combinations(literals, 2):
        binding = unify(zip(one.args, other.args, strict=True)) if one.predicate == other.predicate else None
        if binding is None:
            continue
        remaining = _restrict(excluded, binding)
        if remaining is None:  # they can only coincide where it is excluded
            continue
        together = _split(*_bind(literals, variables, binding), remaining, n_classes)
        return together + _split(literals, variables, (*excluded, tuple(binding.items())), n_classes)
    kept: list[Equalities] = []  # without those that can only hold where another of them does
    for position, equalities in enumerate(excluded):
        binding = unify(equalities)
        assert binding is not None
        if all(_restrict((other,), binding) is not None for other in (*kept, *excluded[position + 1 :])):
            kept.append(equalities)
    return _leave_out(literals, variables, tuple(kept))


def _leave_out(
    literals: tuple[ClauseLiteral, ...], variables: tuple[Variable, ...], excluded: tuple[Equalities, ...]
) -> list[Pattern]:
    """Leave out the assignments in which one of ``excluded`` holds: as ``apart`` where a literal has both sides,
    else as all assignments less those in which it holds."""
    for position, equalities in enumerate(excluded):
        if (
            len(equalities) == 1
            and all(isinstance(term, Variable) for term in equalities[0])
            and any(set(equalities[0]) <= set(literal.args) for literal in literals)
        ):
            continue
        others = (*excluded[:position], *excluded[position + 1 :])
        everywhere = _leave_out(literals, variables, others)
        binding = unify(equalities)
        assert binding is not None
        remaining = _restrict(others, binding)
        if remaining is None:
            return everywhere
        where_equal = _leave_out(*_bind(literals, variables, binding), remaining)
        if len(everywhere) + len(where_equal) > MAX_PATTERNS:
            raise DataError(f"a formula whose atoms coincide in more than {MAX_PATTERNS} ways; split it into several")
        return everywhere + [replace(pattern, coefficient=-pattern.coefficient) for pattern in where_equal]
    return [Pattern(literals, variables, frozenset(frozenset(equalities[0]) for equalities in excluded))]


def _restrict(excluded: Iterable[Equalities], binding: Binding) -> tuple[Equalities, ...] | None:
    """Return what is still to be excluded where a binding holds; None where one of them holds with it."""
    remaining: list[Equalities] = []
    for equalities in excluded:
        unifier = unify(_substitute(pair, binding) for pair in equalities)
        if unifier is None:
            continue
        if not unifier:
            return None
        remaining.append(tuple(unifier.items()))
    return tuple(remaining)


def _bind(
    literals: Iterable[ClauseLiteral], variables: Iterable[Variable], binding: Binding
) -> tuple[tuple[ClauseLiteral, ...], tuple[Variable, ...]]:
    """Return literals with their variables replaced, and the variables that are left."""
    bound = tuple(replace(literal, args=_substitute(literal.args, binding)) for literal in literals)
    return bound, tuple(variable for variable in variables if variable not in binding)


def _substitute(terms: Sequence[Term], binding: Binding) -> tuple[Term, ...]:
    return tuple(binding.get(term, term) if isinstance(term, Variable) else term for term in terms)
