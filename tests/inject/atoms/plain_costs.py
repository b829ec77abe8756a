"""Decoding with rules that may be broken by its definition: all labellings, with every false assignment counted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from inject.layer.plain_mean_field import groundings

from rulewright.inject.atom_space import statement_formulas
from rulewright.logic import (
    And,
    Atom,
    Comparison,
    Formula,
    Iff,
    Implies,
    Membership,
    Not,
    Or,
    PredicateDeclaration,
    Statement,
    Symbol,
    Term,
    Variable,
    units,
)

GroundAtom = tuple[str, tuple[str, ...]]
COMPARE = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: float(a) < float(b),
    "<=": lambda a, b: float(a) <= float(b),
    ">": lambda a, b: float(a) > float(b),
    ">=": lambda a, b: float(a) >= float(b),
}


def is_true(
    formula: Formula,
    at: Mapping[Variable, str],
    worlds: Mapping[GroundAtom, np.ndarray],
    predicates: Mapping[str, PredicateDeclaration],
) -> Any:
    """Evaluate a formula in all worlds at once: each atom has an array of values, a class index or 0 and 1."""

    def name(term: Term) -> str:
        return at[term] if isinstance(term, Variable) else term.name if isinstance(term, Symbol) else str(term.value)

    def inner(part: Formula) -> Any:
        return is_true(part, at, worlds, predicates)

    match formula:
        case Not(part):
            return ~inner(part)
        case And(parts):
            return np.logical_and.reduce([inner(part) for part in parts])
        case Or(parts):
            return np.logical_or.reduce([inner(part) for part in parts])
        case Implies(left, right):
            return ~inner(left) | inner(right)
        case Iff(left, right):
            return inner(left) == inner(right)
        case Comparison(operator, left, right):
            size = len(next(iter(worlds.values())))
            return np.full(size, COMPARE[operator](name(left), name(right)))
        case Membership():
            classes = predicates[str(formula.predicate)].classes
            chosen = [classes.index(class_name) for class_name in formula.classes]
            return np.isin(worlds[str(formula.predicate), tuple(map(name, formula.args))], chosen)
        case Atom():
            return worlds[str(formula.predicate), tuple(map(name, formula.args))] == 1
    raise AssertionError(formula)


def count_false(
    statement: Statement,
    worlds: Mapping[GroundAtom, np.ndarray],
    predicates: Mapping[str, PredicateDeclaration],
    domains: Mapping[str, Sequence[str]],
    *,
    distinct: bool = False,
) -> np.ndarray:
    """Count for every world the groundings of a statement that are false in it."""
    total = np.zeros(len(next(iter(worlds.values()))))
    for formula in statement_formulas(statement):
        constants = [
            (type_name, term.name)
            for unit in units(formula)
            if not isinstance(unit, Comparison)
            for term, type_name in zip(unit.args, predicates[str(unit.predicate)].types, strict=True)
            if isinstance(term, Symbol)
        ]
        if all(name in domains[type_name] for type_name, name in constants):
            for at in groundings(formula, predicates, domains, distinct=distinct):
                total += ~is_true(formula, at, worlds, predicates)
    return total


def all_worlds(values: Mapping[GroundAtom, Sequence[int]]) -> dict[GroundAtom, np.ndarray]:
    """Return for each atom its value in each of the worlds that its possible values make."""
    grid = np.array(list(itertools.product(*values.values())))
    return {atom: grid[:, index] for index, atom in enumerate(values)}


def best_with_costs(
    statements: Sequence[Statement],
    costs: Sequence[float],
    predicates: Mapping[str, PredicateDeclaration],
    potentials: Mapping[GroundAtom, Sequence[float]],
    evidence: Mapping[GroundAtom, int],
    domains: Mapping[str, Sequence[str]],
    *,
    distinct: bool = False,
) -> tuple[float, dict[GroundAtom, int], list[int]] | None:
    """Return the least cost, its values and how often they break each statement; None where nothing satisfies all."""
    values = {atom: [evidence[atom]] if atom in evidence else range(len(potentials[atom])) for atom in potentials}
    worlds = all_worlds(values)
    total = np.zeros(len(next(iter(worlds.values()))))
    for atom, logits in potentials.items():
        if atom not in evidence:
            normaliser = math.log(sum(map(math.exp, logits)))
            total += np.array([normaliser - logit for logit in logits])[worlds[atom]]
    counts = [count_false(statement, worlds, predicates, domains, distinct=distinct) for statement in statements]
    for count, cost in zip(counts, costs, strict=True):
        total += np.where(count > 0, np.inf, 0.0) if math.isinf(cost) else cost * count
    best = int(total.argmin())
    if math.isinf(total[best]):
        return None
    found = {atom: int(column[best]) for atom, column in worlds.items()}
    return float(total[best]), found, [int(count[best]) for count in counts]
