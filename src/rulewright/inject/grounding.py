"""Formulas and typed domains made ready for contraction: clauses, patterns, types and constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal as OneOf
from typing import TypeAlias

import torch
from torch import Tensor

from rulewright.errors import DataError, unknown_name
from rulewright.inject.coincidence import Pattern, exact_patterns
from rulewright.inject.plan import Plan, Purpose, Shape
from rulewright.inject.predicate_types import typed_predicates
from rulewright.logic import (
    And,
    Clause,
    Comparison,
    Formula,
    Implies,
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
