"""Decoding by its definition: all labellings of all atoms, the formulas evaluated at every assignment."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rulewright.inject.atom_space import AtomSpace
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
    Term,
    Variable,
    units,
    variables,
)

World = Mapping[str, np.ndarray]
"""The truth values or class indices of all atoms of one row, by predicate."""


def holds(space: AtomSpace, formula: Formula, world: World, at: Mapping[Term, int]) -> bool:
    """Evaluate a formula where its variables are entities."""

    def index(term: Term, type_name: str) -> int:
        return at[term] if isinstance(term, Variable) else space.constant_index(term, type_name)

    def ground(unit: Any) -> Any:
        types = space.predicates[str(unit.predicate)].types
        return world[str(unit.predicate)][tuple(map(index, unit.args, types))]

    match formula:
        case Not(inner):
            return not holds(space, inner, world, at)
        case And(parts):
            return all(holds(space, part, world, at) for part in parts)
        case Or(parts):
            return any(holds(space, part, world, at) for part in parts)
        case Implies(premise, conclusion):
            return not holds(space, premise, world, at) or holds(space, conclusion, world, at)
        case Iff(left, right):
            return holds(space, left, world, at) == holds(space, right, world, at)
        case Membership():
            classes = space.predicates[str(formula.predicate)].classes
            return classes[int(ground(formula))] in formula.classes
        case Comparison(operator, left, right):
            equal = at.get(left, left) == at.get(right, right)
            return {"=": equal, "!=": not equal}[operator]
        case Atom():
            return bool(ground(formula))
    raise AssertionError(formula)


def assignments(
    space: AtomSpace, formula: Formula, sizes: Mapping[str, int], exists: Mapping[str, np.ndarray]
) -> Iterator[dict[Term, int]]:
    """Yield all assignments of entities that exist, of different ones where variables are distinct."""
    types: dict[Variable, str] = {}
    for unit in units(formula):
        if not isinstance(unit, Comparison):
            for term, type_name in zip(unit.args, space.predicates[str(unit.predicate)].types, strict=True):
                if isinstance(term, Variable):
                    types[term] = type_name
                elif type_name in exists and not exists[type_name][space.constant_index(term, type_name)]:
                    return
    names = variables(formula)
    for values in itertools.product(*(range(sizes[types[name]]) for name in names)):
        pairs = list(zip(names, values, strict=True))
        if all(types[name] not in exists or exists[types[name]][value] for name, value in pairs) and not (
            space.distinct
            and any(types[a] == types[b] and x == y for (a, x), (b, y) in itertools.combinations(pairs, 2))
        ):
            yield dict(pairs)


def is_consistent(space: AtomSpace, world: World, sizes: Mapping[str, int], exists: Mapping[str, np.ndarray]) -> bool:
    """Tell whether a world violates nothing."""
    return all(
        holds(space, formula, world, at)
        for _, formula in space.stated
        for at in assignments(space, formula, sizes, exists)
    )


def label_cost(logit: float | np.ndarray, label: int) -> float:
    """Return −log of the probability of a label."""
    if np.ndim(logit) == 0:
        signed = float(logit) if label else -float(logit)
        return math.log1p(math.exp(-signed))
    return float(np.log(np.exp(logit - logit.max()).sum()) + logit.max() - logit[label])


def best_labelling(
    space: AtomSpace,
    logits: Mapping[str, np.ndarray],
    evidence: Mapping[str, Any],
    exists: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
) -> tuple[float, dict[str, np.ndarray]] | None:
    """Return the least cost of one row and its labels, from all labellings; None where all violate something."""
    world: dict[str, np.ndarray] = {}
    free: list[tuple[str, tuple[int, ...]]] = []
    for name, observation in evidence.items():
        world[name] = np.array(observation[0] if isinstance(observation, tuple) else observation)
    for name, given in logits.items():
        declaration = space.predicates[name]
        shape = given.shape[: declaration.arity]
        known = evidence.get(name)
        where = np.zeros(shape, dtype=bool)
        if known is not None:
            where = known[1] if isinstance(known, tuple) else np.ones(shape, dtype=bool)
        world.setdefault(name, np.zeros(shape, dtype=bool if declaration.classes is None else int))
        for args in itertools.product(*map(range, shape)):
            real = all(
                type_name not in exists or exists[type_name][entity]
                for type_name, entity in zip(declaration.types, args, strict=True)
            )
            if not real:
                world[name][args] = 0
            elif not where[args]:
                free.append((name, args))
    best: tuple[float, dict[str, np.ndarray]] | None = None
    choices = [range(2 if space.predicates[name].classes is None else logits[name].shape[-1]) for name, _ in free]
    for values in itertools.product(*choices):
        cost = 0.0
        for (name, args), value in zip(free, values, strict=True):
            world[name][args] = value
            cost += label_cost(logits[name][args], value)
        if (best is None or cost < best[0]) and is_consistent(space, world, sizes, exists):
            best = cost, {name: world[name].copy() for name in logits}
    return best
