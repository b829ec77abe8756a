"""Making a labelling free of violations without search: the answer where there is no time for the best one."""

from __future__ import annotations

import time
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from rulewright.inject.inference import Problem, constraints_of, feasible
from rulewright.inject.zero_one import Constraint

Labels: TypeAlias = npt.NDArray[np.bool_]


def repaired(problem: Problem, labels: Labels, *, patience: float) -> tuple[Labels, dict[int, Constraint]]:
    """Return a flat labelling near the given one that violates nothing, and for each atom why it was set.

    For ``patience`` seconds every violation is repaired by the cheapest flip, of a head to 1 or of a body atom to 0,
    and no atom is flipped twice. After that, labels are only taken away, many at a time. Without unconditional
    clauses this always ends well; with them, any labelling that satisfies them is the last resort.
    """
    reasons: dict[int, Constraint] = {}
    labels = labels.copy()
    if _cheapest_flips(problem, labels, reasons, time.monotonic() + patience):
        return labels, reasons
    if _taken_away(problem, labels, reasons):
        return labels, reasons
    return feasible(problem), {}


def _cheapest_flips(problem: Problem, labels: Labels, reasons: dict[int, Constraint], deadline: float) -> bool:
    """Flip atom after atom; tell whether nothing is violated in the end."""
    gain, free = problem.gain.reshape(-1), problem.free.reshape(-1)
    while time.monotonic() < deadline:
        broken = list(problem.broken(labels))
        if not broken:
            return True
        for constraint in broken:
            while constraint.excess(labels) > 0:
                choices = [(-gain[atom], atom) for atom in constraint.plus if labels[atom] and atom not in reasons]
                choices += [(gain[atom], atom) for atom in constraint.minus if free[atom] and atom not in reasons]
                if not choices:
                    return False
                _, atom = min(choices)
                labels[atom] = not labels[atom]
                reasons[atom] = constraint
    return False


def _taken_away(problem: Problem, labels: Labels, reasons: dict[int, Constraint]) -> bool:
    """Take the cheapest body atom of every violated grounding away, until none is left; False where one has no body."""
    gain = problem.gain.reshape(-1)
    while True:
        before = labels.copy()  # the joins look at this one while labels change
        for found in problem.joins.violated(problem.shaped(before)):
            groundings = found.only(found.violated_in(labels))
            if not len(groundings):
                continue
            if groundings.bodies.shape[1] == 0:
                return False
            cost = np.where(groundings.bodies >= 0, -gain[groundings.bodies], np.inf)
            atoms = np.take_along_axis(groundings.bodies, cost.argmin(1)[:, None], axis=1)[:, 0]
            labels[atoms] = False
            atoms, first = np.unique(atoms, return_index=True)
            kept = np.zeros(len(groundings), dtype=bool)
            kept[first] = True
            order = np.argsort(first)
            for atom, constraint in zip(atoms[order].tolist(), constraints_of(groundings.only(kept)), strict=True):
                reasons.setdefault(atom, constraint)
        for constraint in problem.over_limit(labels):
            on = sorted((atom for atom in constraint.plus if labels[atom]), key=lambda atom: gain[atom])
            labels[on[constraint.bound :]] = False
        if np.array_equal(labels, before):
            return True
