"""Rules made ready for a layer: their formulas over typed domains, split into patterns, with the constants found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from rulewright.checks import OneOf, check_parameter
from rulewright.errors import DataError, unknown_name
from rulewright.inject.layer.patterns import Pattern, exact_patterns
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
    parents: dict[Argument, Argument] = {}  # arguments of one type have one root
    types: dict[Argument, str] = {}  # of the roots whose type is declared
    first: dict[str, Argument] = {}
    for declaration in known.values():
        for position, type_name in enumerate(declaration.types):
            argument = (declaration.name, position)
            parents[argument] = first.setdefault(type_name, argument)
            types[first[type_name]] = type_name

    def find_root(argument: Argument) -> Argument:
        parent = parents.setdefault(argument, argument)
        if parent != argument:
            parent = parents[argument] = find_root(parent)
        return parent

    def join(one: Argument, other: Argument, formula: Formula) -> None:
        left, right = find_root(one), find_root(other)
        if left != right and left in types and right in types:
            raise DataError(
                f"argument {one[1] + 1} of {one[0]} is a {types[left]} and argument {other[1] + 1} of {other[0]} "
                f"a {types[right]}, but a variable stands for both in: {formula}"
            )
        if right in types:
            left, right = right, left
        parents[right] = left

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
                find_root((name, position))
                if isinstance(term, Variable):
                    join(occurrences.setdefault(term, (name, position)), (name, position), formula)
        for comparison in comparisons:
            sides = [
                occurrences[term] for term in comparison.args if isinstance(term, Variable) and term in occurrences
            ]
            if len(sides) == 2 and comparison.operator in ("=", "!="):
                join(sides[0], sides[1], formula)
    undeclared = list(dict.fromkeys(root for root in map(find_root, parents) if root not in types))
    if len(undeclared) == 1 and ENTITY not in types.values():
        types[undeclared[0]] = ENTITY
    else:
        types |= {(name, position): f"{name}/{position + 1}" for name, position in undeclared}
    return {
        name: known.get(name)
        or PredicateDeclaration(name, tuple(types[find_root((name, position))] for position in range(arity)))
        for name, arity in arities.items()
    }


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
        check_parameter("cnf", cnf, OneOf("exact", "paper"))
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
