"""Rules made ready for a layer: their formulas over typed domains, split into patterns, with the constants found.

A clause ``l_1 | … | l_m`` of a formula stands for all assignments of its variables. Where two of its atoms become one,
a doubled literal counts once and opposite ones make a tautology. `exact_patterns` writes the sum over all assignments,
without enumeration, as a sum of *patterns*, in each of which every literal may be treated as an atom of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from rulewright.errors import DataError, unknown_name
from rulewright.logic import (
    And,
    Clause,
    Comparison,
    Formula,
    Implies,
    Membership,
    PredicateDeclaration,
    Rule,
    RuleSet,
    Statement,
    Symbol,
    Template,
    Term,
    Variable,
    exclusive_clauses,
    unify,
    units,
    variables,
)
from rulewright.logic import cnf as cnf_clauses

ENTITY = "entity"
"""The type of all arguments that no declaration reaches, where they are of one type."""

Argument: TypeAlias = tuple[str, int]
"""A predicate and the position of one of its arguments."""

Domains: TypeAlias = Mapping[str, int | Sequence[str]]
"""For each type, how many entities it has, or their names."""

Equalities: TypeAlias = tuple[tuple[Term, Term], ...]
Binding: TypeAlias = Mapping[Variable, Term]

FALSE, TRUE = 0, 1
"""The classes of a predicate that has none."""

MAX_PATTERNS = 5_000
"""How many patterns a clause may become."""


def statement_formulas(statement: Statement) -> list[Formula]:
    """Return what a statement says: its formula, or one implication for each alternative of a rule."""
    if isinstance(statement, Template):
        raise DataError(f"a template is not a formula until its predicates are found; learn them first: {statement}")
    if not isinstance(statement, Rule):
        return [statement.formula]
    bodies = [tuple(literal.formula() for literal in body) for body in statement.alternatives()]
    return [Implies(body[0] if len(body) == 1 else And(body), statement.head) for body in bodies]


def infer_declarations(
    formulas: Iterable[Formula], declared: Iterable[PredicateDeclaration]
) -> dict[str, PredicateDeclaration]:
    """Return a declaration for every predicate of the formulas and every declared one.

    Arguments that share a variable are of one type. What no declaration reaches is an ``entity``, or named by the
    predicate and position where it first occurs, such as ``likes/2``, where there are several such types.

    >>> from rulewright.logic import parse_formula
    >>> inferred = infer_declarations([parse_formula("smokes(X) & friend(X, Y) => smokes(Y)")], [])
    >>> [str(declaration) for declaration in inferred.values()]
    ['predicate smokes(entity).', 'predicate friend(entity, entity).']
    """
    known = {declaration.name: declaration for declaration in declared}
    arities = {declaration.name: declaration.arity for declaration in known.values()}
    groups: dict[Argument, list[Argument]] = {}  # the arguments of one type, named by the first of them
    types: dict[Argument, str] = {}  # by first argument, where declared
    declared_groups: dict[str, list[Argument]] = {}
    for declaration in known.values():
        for position, type_name in enumerate(declaration.types):
            group = groups[declaration.name, position] = declared_groups.setdefault(type_name, [])
            group.append((declaration.name, position))
            types[group[0]] = type_name

    def join(one: Argument, other: Argument, formula: Formula) -> None:
        left, right = groups[one], groups[other]
        if left is right:
            return
        if left[0] in types and right[0] in types:
            raise DataError(
                f"argument {one[1] + 1} of {one[0]} is a {types[left[0]]} and argument {other[1] + 1} of {other[0]} "
                f"a {types[right[0]]}, but a variable stands for both in: {formula}"
            )
        if right[0] in types:
            left, right = right, left
        left += right
        groups.update(dict.fromkeys(right, left))

    for formula in formulas:
        occurrences: dict[Variable, Argument] = {}
        comparisons: list[Comparison] = []
        for unit in units(formula):
            if isinstance(unit, Comparison):
                comparisons.append(unit)
                continue
            name = str(unit.predicate)
            if isinstance(unit, Membership) and (name not in known or known[name].classes is None):
                raise DataError(f"{name} is multi-class; declare its classes in order: predicate {name}(…) in {{…}}.")
            arities.setdefault(name, len(unit.args))
            for position, term in enumerate(unit.args):
                groups.setdefault((name, position), [(name, position)])
                if isinstance(term, Variable):
                    join(occurrences.setdefault(term, (name, position)), (name, position), formula)
        for comparison in comparisons:
            sides = [occurrences[term] for term in comparison.args if term in occurrences]
            if len(sides) == 2 and comparison.operator in ("=", "!="):
                join(sides[0], sides[1], formula)
    undeclared = list(dict.fromkeys(group[0] for group in groups.values() if group[0] not in types))
    if len(undeclared) == 1 and ENTITY not in types.values():
        types[undeclared[0]] = ENTITY
    else:
        types |= {(name, position): f"{name}/{position + 1}" for name, position in undeclared}
    return {
        name: known.get(name)
        or PredicateDeclaration(name, tuple(types[groups[name, position][0]] for position in range(arity)))
        for name, arity in arities.items()
    }


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

    def count_groundings(self, sizes: Mapping[str, int]) -> int:
        """Return the number of assignments of its variables."""
        return prod(sizes[type_name] for type_name in self.types.values())


class Grounding:
    """The formulas of a rule set over types, made ready once for all sizes.

    >>> from rulewright.logic import parse_rules
    >>> grounding = Grounding(parse_rules("1.5 smokes(X) & friend(X, Y) => smokes(Y). closed friend."))
    >>> grounding.types, grounding.formulas[0].count_groundings({"entity": 100})
    (('entity',), 10000)
    """

    def __init__(
        self, rules: RuleSet, *, domains: Domains | None = None, cnf: Literal["exact", "paper"] = "exact"
    ) -> None:
        self.rules = rules
        stated = [
            (index, formula) for index, statement in enumerate(rules) for formula in statement_formulas(statement)
        ]
        self.predicates: Mapping[str, PredicateDeclaration] = infer_declarations(
            (formula for _, formula in stated), rules.predicates
        )
        self.types: tuple[str, ...] = tuple(
            dict.fromkeys(type_name for declaration in self.predicates.values() for type_name in declaration.types)
        )
        self.given_sizes: dict[str, int] = {}
        self.entity_indices: dict[str, dict[str, int]] = {}  # by type and name, where the names are given
        for type_name, given in (domains or {}).items():
            if type_name not in self.types:
                raise unknown_name("type", type_name, self.types)
            if not isinstance(given, int):
                self.entity_indices[type_name] = {str(name): index for index, name in enumerate(given)}
                if len(self.entity_indices[type_name]) != len(given):
                    raise DataError(f"the names of type {type_name} must differ")
            self.given_sizes[type_name] = size = given if isinstance(given, int) else len(given)
            if size < 1:
                raise DataError(f"the domain {type_name} is empty; a type needs at least one entity")
        self.formulas = tuple(self._ground(index, formula, cnf) for index, formula in stated)
        self.closed = frozenset(rules.closed)
        self.used = frozenset(  # the predicates that occur in a formula
            str(unit.predicate) for _, formula in stated for unit in units(formula) if not isinstance(unit, Comparison)
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
        patterns = [pattern for clause in clauses for pattern in exact_patterns(clause, tuple(types), self.predicates)]
        return GroundFormula(statement_index, formula, clauses, tuple(patterns), types)

    def constant_index(self, term: Term, type_name: str, formula: Formula | None = None) -> int:
        """Return the index of a constant in the domain of its type."""
        where = "" if formula is None else f", in: {formula}"
        name = term.name if isinstance(term, Symbol) else str(term)
        if type_name not in self.entity_indices:
            raise DataError(
                f"the constant {term} needs the names of type {type_name}: domains={{{type_name!r}: […]}}{where}"
            )
        index = self.entity_indices[type_name].get(name)
        if index is None:
            error = unknown_name(f"constant of type {type_name}", name, self.entity_indices[type_name])
            raise DataError(f"{error}{where}")
        return index

    def entity_names(self, type_name: str) -> Sequence[str] | None:
        """Return the names of a type's entities in order, where they are given."""
        return [*self.entity_indices[type_name]] if type_name in self.entity_indices else None

    def entity_numbers(self, type_name: str, formula: Formula) -> Tensor:
        """Return the names of a type's entities as numbers, which an order comparison needs."""
        try:
            return torch.tensor([float(name) for name in self.entity_indices.get(type_name, ())], dtype=torch.float64)
        except ValueError:
            raise DataError(
                f"the names of type {type_name} are not all numbers and cannot be compared in: {formula}"
            ) from None
