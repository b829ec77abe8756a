"""Rules made ready for a layer: their formulas over typed domains, split into patterns, with the constants found.

A clause ``l_1 | … | l_m`` of a formula stands for all assignments of its variables. Where two of its atoms become one,
a doubled literal counts once and opposite ones make a tautology. `exact_patterns` writes the sum over all assignments,
without enumeration, as a sum of *patterns*, in each of which every literal may be treated as an atom of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import perm, prod
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from rulewright.errors import DataError
from rulewright.inject.atom_space import AtomSpace, Domains
from rulewright.logic import (
    Clause,
    Comparison,
    Formula,
    Membership,
    PredicateDeclaration,
    RuleSource,
    Term,
    Variable,
    WeightedFormula,
    exclusive_clauses,
    unify,
    units,
    variables,
)
from rulewright.logic import Literal as LogicLiteral
from rulewright.logic import cnf as cnf_clauses

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


@dataclass(frozen=True, slots=True)
class GroundFormula:
    """A formula of a statement, the clauses it is split into, and these as patterns over all assignments."""

    statement_index: int
    formula: Formula
    clauses: tuple[Clause, ...]
    patterns: tuple[Pattern, ...]
    types: Mapping[Variable, str]
    distinct: bool = False

    def count_groundings(self, sizes: Mapping[str, int]) -> int:
        """Return the number of assignments of its variables; where these are distinct, of different entities."""
        counts = Counter(self.types.values())
        if self.distinct:
            return prod(perm(sizes[type_name], count) for type_name, count in counts.items())
        return prod(sizes[type_name] ** count for type_name, count in counts.items())


class Grounding(AtomSpace):
    """The formulas of a rule set over types, made ready once for all sizes.

    >>> grounding = Grounding("1.5 smokes(X) & friend(X, Y) => smokes(Y). closed friend.")
    >>> grounding.types, grounding.formulas[0].count_groundings({"entity": 100})
    (('entity',), 10000)
    """

    def __init__(
        self,
        rules: RuleSource,
        *,
        domains: Domains | None = None,
        relations: Sequence[str] | None = None,
        distinct: bool | None = None,
        cnf: Literal["exact", "paper"] = "exact",
    ) -> None:
        super().__init__(rules, domains=domains, relations=relations, distinct=distinct)
        self.formulas = tuple(self._ground(index, formula, cnf) for index, formula in self.stated)
        self.hard = frozenset(  # the indices of hard statements
            index
            for index, statement in enumerate(self.rules)
            if isinstance(statement, WeightedFormula) and statement.kind == "hard"
        )

    def _ground(self, statement_index: int, formula: Formula, cnf: str) -> GroundFormula:
        types: dict[Variable, str] = {}
        for unit in units(formula):
            if isinstance(unit, Comparison):
                continue
            for term, type_name in zip(unit.args, self.predicates[str(unit.predicate)].types, strict=True):
                if isinstance(term, Variable):
                    types[term] = type_name
                else:
                    self.constant_index(term, type_name, formula)
        for variable in variables(formula):
            if variable not in types:
                raise DataError(f"variable {variable} occurs only in a comparison, so it has no type, in: {formula}")
        clauses = cnf_clauses(formula) if cnf == "paper" else exclusive_clauses(formula)
        if self.distinct:  # all clauses hold where two of what must differ are the same entity
            apart = [LogicLiteral(Comparison("=", one, other)) for one, other in self._pairs_apart(formula, types)]
            clauses = tuple(Clause((*clause.literals, *apart)) for clause in clauses)
        patterns = [pattern for clause in clauses for pattern in exact_patterns(clause, tuple(types), self.predicates)]
        return GroundFormula(statement_index, formula, clauses, tuple(patterns), types, self.distinct)

    def _pairs_apart(self, formula: Formula, types: Mapping[Variable, str]) -> list[tuple[Term, Term]]:
        """Return what stands for different entities: variables of one type, and arguments of one type of an atom."""
        pairs: dict[frozenset[Term], tuple[Term, Term]] = {
            frozenset(pair): pair for pair in combinations(types, 2) if types[pair[0]] == types[pair[1]]
        }
        for unit in units(formula):
            if isinstance(unit, Comparison):
                continue
            declared = self.predicates[str(unit.predicate)].types
            for one, other in combinations(range(len(unit.args)), 2):
                pair = (unit.args[one], unit.args[other])
                if declared[one] != declared[other]:
                    continue
                if pair[0] == pair[1]:
                    raise DataError(
                        f"variables are distinct, so an atom of an entity with itself is in no grounding, as {unit} "
                        f"asks in: {formula}; leave it out, or give distinct=False"
                    )
                pairs.setdefault(frozenset(pair), pair)
        return list(pairs.values())

    def entity_numbers(self, type_name: str, formula: Formula) -> Tensor:
        """Return the names of a type's entities as numbers, which an order comparison needs."""
        try:
            return torch.tensor([float(name) for name in self.entity_indices.get(type_name, ())], dtype=torch.float64)
        except ValueError:
            raise DataError(
                f"the names of type {type_name} are not all numbers and cannot be compared in: {formula}"
            ) from None
