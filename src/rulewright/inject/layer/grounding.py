"""Formulas and typed domains made ready for contraction: clauses, patterns, types and constants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal as OneOf
from typing import TypeAlias

import torch
from torch import Tensor

from rulewright.errors import DataError, unknown_name
from rulewright.inject.layer.coincidence import Pattern, exact_patterns
from rulewright.inject.layer.plan import Plan, Purpose, Shape
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
    cnf,
    exclusive_clauses,
    units,
    variables,
)

ENTITY = "entity"
"""The type of all arguments that no declaration reaches, where they are of one type."""

_Place = tuple[str, int]


def typed_predicates(
    formulas: Iterable[Formula], declared: Iterable[PredicateDeclaration]
) -> dict[str, PredicateDeclaration]:
    """Return a declaration for every predicate of the formulas and every declared one.

    Arguments that share a variable are of one type. What no declaration reaches is an ``entity``, or named by the
    predicate and position where it first occurs, such as ``likes/2``, where there are several such types.

    >>> from rulewright.logic import parse_formula
    >>> found = typed_predicates([parse_formula("smokes(X) & friend(X, Y) => smokes(Y)")], [])
    >>> [str(each) for each in found.values()]
    ['predicate smokes(entity).', 'predicate friend(entity, entity).']
    """
    known = {each.name: each for each in declared}
    types = _Types(known)
    arities: dict[str, int] = {each.name: each.arity for each in known.values()}
    for formula in formulas:
        places: dict[Variable, _Place] = {}
        equal: list[Comparison] = []
        for unit in units(formula):
            if isinstance(unit, Comparison):
                equal.append(unit)
                continue
            name = str(unit.predicate)
            if isinstance(unit, Membership) and (name not in known or known[name].classes is None):
                raise DataError(f"{name} is multi-class; declare its classes in order: predicate {name}(…) in {{…}}.")
            arities.setdefault(name, len(unit.args))
            for position, term in enumerate(unit.args):
                types.root((name, position))
                if isinstance(term, Variable):
                    types.join(places.setdefault(term, (name, position)), (name, position), formula)
        for comparison in equal:
            sides = [places[term] for term in comparison.args if isinstance(term, Variable) and term in places]
            if len(sides) == 2 and comparison.operator in ("=", "!="):
                types.join(sides[0], sides[1], formula)
    names = types.names()
    return {
        name: known.get(name) or PredicateDeclaration(name, tuple(names[name, place] for place in range(arity)))
        for name, arity in arities.items()
    }


class _Types:
    """Arguments of predicates in classes, each with at most one declared type."""

    def __init__(self, declared: Mapping[str, PredicateDeclaration]) -> None:
        self._parent: dict[_Place, _Place] = {}
        self._type: dict[_Place, str] = {}
        first: dict[str, _Place] = {}
        for each in declared.values():
            for position, kind in enumerate(each.types):
                place = (each.name, position)
                self._parent[place] = first.setdefault(kind, place)
                self._type[first[kind]] = kind

    def root(self, place: _Place) -> _Place:
        parent = self._parent.setdefault(place, place)
        if parent != place:
            parent = self._parent[place] = self.root(parent)
        return parent

    def join(self, one: _Place, other: _Place, formula: Formula) -> None:
        left, right = self.root(one), self.root(other)
        if left == right:
            return
        if left in self._type and right in self._type:
            raise DataError(
                f"argument {one[1] + 1} of {one[0]} is a {self._type[left]} and argument {other[1] + 1} of {other[0]} "
                f"a {self._type[right]}, but a variable stands for both in: {formula}"
            )
        if right in self._type:
            left, right = right, left
        self._parent[right] = left

    def names(self) -> dict[_Place, str]:
        open_roots = list(dict.fromkeys(root for root in map(self.root, self._parent) if root not in self._type))
        taken = set(self._type.values())
        if len(open_roots) == 1 and ENTITY not in taken:
            named = {open_roots[0]: ENTITY}
        else:
            named = {root: f"{root[0]}/{root[1] + 1}" for root in open_roots}
        return {place: self._type.get(root) or named[root] for place in self._parent for root in [self.root(place)]}


Domains: TypeAlias = Mapping[str, int | Sequence[str]]
"""For each type, how many entities it has, or their names."""


@dataclass(frozen=True, slots=True)
class GroundFormula:
    """A formula of a statement, the clauses it is split into, and these as patterns over all assignments."""

    statement: int
    formula: Formula
    clauses: tuple[Clause, ...]
    patterns: tuple[Pattern, ...]
    types: Mapping[Variable, str]

    def groundings(self, sizes: Mapping[str, int]) -> int:
        """Return the number of assignments of its variables."""
        return prod(sizes[kind] for kind in self.types.values())


class Grounding:
    """The formulas of a rule set over types, made ready once for all sizes.

    >>> from rulewright.logic import parse_rules
    >>> grounding = Grounding(parse_rules("1.5 smokes(X) & friend(X, Y) => smokes(Y). closed friend."))
    >>> plan = grounding.plan(Shape((("entity", 100),)))
    >>> plan.rows[0].groundings, plan.rows[0].contractions
    (10000, 2)
    """

    def __init__(
        self,
        rules: RuleSet,
        *,
        domains: Domains | None = None,
        cnf: OneOf["exact", "paper"] = "exact",
        optimize: bool = True,
        share: bool = True,
    ) -> None:
        if cnf not in ("exact", "paper"):
            raise DataError(f"cnf must be 'exact' or 'paper', got {cnf!r}")
        self.rules = rules
        self.statements: tuple[Statement, ...] = rules.statements
        stated = [(number, formula) for number, each in enumerate(rules) for formula in _formulas(each)]
        self.predicates: Mapping[str, PredicateDeclaration] = typed_predicates(
            (formula for _, formula in stated), rules.predicates
        )
        self._names = _named(domains or {}, self.predicates)
        self.given_sizes: Mapping[str, int] = {
            kind: each if isinstance(each, int) else len(each) for kind, each in (domains or {}).items()
        }
        for kind, size in self.given_sizes.items():
            if size < 1:
                raise DataError(f"the domain {kind} is empty; a type needs at least one entity")
        self.formulas = tuple(self._grounded(number, formula, cnf) for number, formula in stated)
        self.closed = frozenset(rules.closed)
        self.types: tuple[str, ...] = tuple(
            dict.fromkeys(kind for each in self.predicates.values() for kind in each.types)
        )
        self.used = frozenset(  # the predicates that occur in a formula
            str(unit.predicate) for _, formula in stated for unit in units(formula) if not isinstance(unit, Comparison)
        )
        self._optimize, self._share = optimize, share
        self._plans: dict[tuple[Shape, Purpose], Plan] = {}

    def _grounded(self, number: int, formula: Formula, split: str) -> GroundFormula:
        types: dict[Variable, str] = {}
        for unit in units(formula):
            if isinstance(unit, Comparison):
                continue
            kinds = self.predicates[str(unit.predicate)].types
            for term, kind in zip(unit.args, kinds, strict=True):
                if isinstance(term, Variable):
                    types[term] = kind
                else:
                    self.index_of(term, kind, formula)
        for variable in variables(formula):
            if variable not in types:
                raise DataError(f"variable {variable} occurs only in a comparison, so it has no type, in: {formula}")
        clauses = cnf(formula) if split == "paper" else exclusive_clauses(formula)
        patterns = tuple(
            pattern for clause in clauses for pattern in exact_patterns(clause, tuple(types), self.predicates)
        )
        return GroundFormula(number, formula, clauses, patterns, types)

    def index_of(self, term: Term, kind: str, formula: Formula | None = None) -> int:
        """Return the position of a constant in the domain of its type."""
        where = "" if formula is None else f", in: {formula}"
        name = term.name if isinstance(term, Symbol) else str(term)
        if kind not in self._names:
            raise DataError(f"the constant {term} needs the names of type {kind}: domains={{{kind!r}: […]}}{where}")
        found = self._names[kind].get(name)
        if found is None:
            raise DataError(f"{unknown_name(f'constant of type {kind}', name, self._names[kind])}{where}")
        return found

    def names_of(self, kind: str) -> Sequence[str] | None:
        """Return the names of a type's entities in order, where they are known."""
        found = self._names.get(kind)
        return None if found is None else tuple(found)

    def numbers_of(self, kind: str, formula: Formula) -> Tensor:
        """Return the entities of a type as numbers, which an order comparison needs."""
        names = self.names_of(kind)
        try:
            return torch.tensor([float(name) for name in names or ()], dtype=torch.float64)
        except ValueError:
            raise DataError(
                f"the names of type {kind} are not all numbers and cannot be compared in: {formula}"
            ) from None

    def plan(self, shape: Shape, purpose: Purpose = "messages") -> Plan:
        """Return the plan for a shape; the same one when asked again."""
        shape = Shape(shape.sizes, shape.batched, shape.batched_masks, shape.observed | self.closed)
        names = (shape.batched, shape.batched_masks, shape.observed)
        self._make_plan(shape.sizes, *(tuple(sorted(each)) for each in names), purpose)
        return self._plans[shape, purpose]

    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
    def _make_plan(
        self,
        sizes: tuple[tuple[str, int], ...],
        batched: tuple[str, ...],
        batched_masks: tuple[str, ...],
        observed: tuple[str, ...],
        purpose: Purpose,
    ) -> bool:
        """Plan once, apart from what torch.compile traces; it can only hand over plain values."""
        shape = Shape(sizes, frozenset(batched), frozenset(batched_masks), frozenset(observed))
        if (shape, purpose) in self._plans:
            return False
        self._plans[shape, purpose] = Plan(self, shape, purpose, optimize=self._optimize, share=self._share)
        return True


def _formulas(statement: Statement) -> tuple[Formula, ...]:
    """Return what a statement says as formulas: itself, or one implication for each alternative of a rule."""
    if isinstance(statement, Template):
        raise DataError(f"a template is not a formula until its predicates are found; learn them first: {statement}")
    if not isinstance(statement, Rule):
        return (statement.formula,)
    found: list[Formula] = []
    for body in statement.alternatives():
        parts = tuple(literal.formula() for literal in body)
        found.append(Implies(parts[0] if len(parts) == 1 else And(parts), statement.head))
    return tuple(found)


def _named(domains: Domains, predicates: Mapping[str, PredicateDeclaration]) -> dict[str, dict[str, int]]:
    kinds = {kind for each in predicates.values() for kind in each.types}
    found: dict[str, dict[str, int]] = {}
    for kind, names in domains.items():
        if kind not in kinds:
            raise unknown_name("type", kind, kinds)
        if not isinstance(names, int):
            found[kind] = {str(name): number for number, name in enumerate(names)}
            if len(found[kind]) != len(names):
                raise DataError(f"the names of type {kind} must differ")
    return found
