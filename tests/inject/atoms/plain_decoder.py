"""Global inference by its definition: the cost of a labelling, and the best one by trying all."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from inject.atoms.plain_pairs import log_p, plain_groundings

from rulewright.inject import Change
from rulewright.logic import RuleSet


def plain_objective(margins: np.ndarray, labels: np.ndarray, weights: Sequence[float], epsilon: float = 0.0) -> float:
    """Return the cost of labels by the formula, over all pairs of different entities."""
    total = 0.0
    size = len(margins)
    for head, tail in itertools.permutations(range(size), 2):
        for relation, weight in enumerate(weights):
            margin = float(margins[head, tail, relation])
            if labels[head, tail, relation]:
                total -= log_p(margin)
            else:
                total -= weight * (log_p(-margin) if epsilon == 0 else math.log(1 / (1 + math.exp(margin)) + epsilon))
    return total


def exhaustive(
    margins: np.ndarray,
    rules: RuleSet,
    relations: Sequence[str],
    weights: Sequence[float],
    *,
    epsilon: float = 0.0,
    limit: int | None = None,
) -> tuple[float, np.ndarray] | None:
    """Return the least cost and its labels among all labellings that violate nothing; None where there is none."""
    size = len(margins)
    atoms = [(h, t, r) for h, t in itertools.permutations(range(size), 2) for r in range(len(relations))]
    column = {atom: index for index, atom in enumerate(atoms)}
    patterns = ((np.arange(2 ** len(atoms))[:, None] >> np.arange(len(atoms))) & 1).astype(bool)
    allowed = np.ones(len(patterns), dtype=bool)
    for body, heads in set(plain_groundings(rules, size)):
        plus, minus = ([column[h, t, relations.index(name)] for name, h, t in side] for side in (body, heads))
        allowed &= ~(patterns[:, plus].all(1) & ~patterns[:, minus].any(1))
    if limit is not None:
        for head, tail in itertools.permutations(range(size), 2):
            columns = [column[head, tail, r] for r in range(len(relations))]
            allowed &= patterns[:, columns].sum(1) <= limit
    if not allowed.any():
        return None

    def labelled(pattern: np.ndarray) -> np.ndarray:
        labels = np.zeros((size, size, len(relations)), dtype=bool)
        for atom, value in zip(atoms, pattern, strict=True):
            labels[atom] = value
        return labels

    nothing = labelled(np.zeros(len(atoms), dtype=bool))
    base = plain_objective(margins, nothing, weights, epsilon)
    gains = []
    for atom in atoms:
        one = nothing.copy()
        one[atom] = True
        gains.append(plain_objective(margins, one, weights, epsilon) - base)
    patterns = patterns[allowed]
    best = patterns[np.argmin(patterns @ np.array(gains))]
    return plain_objective(margins, labelled(best), weights, epsilon), labelled(best)


def forces(change: Change, labels: np.ndarray, relations: Sequence[str]) -> bool:
    """Tell whether undoing the change alone would violate its rule at its grounding."""
    undone = labels.copy()
    undone[(*change.args, relations.index(change.predicate))] = change.before
    at = dict(change.grounding)
    names = sorted(at)
    atom = (change.predicate, *change.args)

    def holds(other: tuple[str, int, int]) -> bool:
        return bool(undone[other[1], other[2], relations.index(other[0])])

    return any(
        atom in body | heads
        and {entity for _, *pair in body | heads for entity in pair} <= {at[name] for name in names}
        and all(map(holds, body))
        and not any(map(holds, heads))
        for body, heads in plain_groundings(RuleSet([change.rule]), len(labels))
    )
