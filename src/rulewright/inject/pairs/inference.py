"""Global inference over the labels of one document: exactly by lazy constraints, simplified, or fully written out."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from rulewright.errors import MemoryLimitError
from rulewright.inject.pairs.clauses import PairClause
from rulewright.inject.pairs.joins import ClauseJoins, Groundings
from rulewright.inject.pairs.zero_one import Constraint, GrowingProgram, InfeasibleError, OutOfTimeError, solved

Floats: TypeAlias = npt.NDArray[np.float64]
Labels: TypeAlias = npt.NDArray[np.bool_]
Integers: TypeAlias = npt.NDArray[np.int64]

MOST_PER_ROUND = 20_000
"""How many violated groundings one round takes up; what remains, a later round finds."""

LARGEST_FULL_PROGRAM = 20_000_000
"""How many atoms in constraints the fully written program may have; HiGHS needs some hundred bytes for each."""


@dataclass(frozen=True)
class Problem:
    """What is to be decided: ``gain[n, n, R]`` is what label 1 costs more than label 0; outside ``free`` it is 0."""

    joins: ClauseJoins
    gain: Floats
    free: Labels
    limit: int | None
    deadline: float | None

    def program(self, *, gain: Floats | None = None, timed: bool = True) -> GrowingProgram:
        """Return the program without constraints; its labels are the best where nothing ties them together."""
        chosen = self.gain if gain is None else gain
        return GrowingProgram(chosen.reshape(-1), self.free.reshape(-1), self.deadline if timed else None)

    def shaped(self, labels: Labels) -> Labels:
        """Return a flat labelling as [n, n, R]."""
        return labels.reshape(self.gain.shape)

    def broken(self, labels: Labels) -> Iterator[Constraint]:
        """Yield constraints that a flat labelling breaks: none exactly when it breaks none."""
        for groundings in self.joins.violated(self.shaped(labels), limit=MOST_PER_ROUND):
            yield from constraints_of(groundings)
        yield from self.over_limit(labels)

    def over_limit(self, labels: Labels) -> Iterator[Constraint]:
        """Yield the limit of labels for every pair that has more."""
        if self.limit is None:
            return
        size, _, relations = self.gain.shape
        for head, tail in np.argwhere(self.shaped(labels).sum(2) > self.limit).tolist():
            first = (head * size + tail) * relations
            yield Constraint(tuple(range(first, first + relations)), (), self.limit, -1, (head, tail))


@dataclass(frozen=True)
class Solution:
    """Flat labels and how they were found; ``pool`` has the constraints among which reasons are found."""

    labels: Labels
    optimal: bool
    rounds: int
    constraints: int
    pool: list[Constraint]
    repairs: dict[int, Constraint] = field(default_factory=dict)


class UnfinishedError(Exception):
    """The deadline has passed: ``labels`` is where the search stands, and may violate rules."""

    def __init__(self, labels: Labels, rounds: int, pool: list[Constraint]) -> None:
        super().__init__("out of time")
        self.labels, self.rounds, self.pool = labels, rounds, pool


def exact(problem: Problem) -> Solution:
    """Solve with the constraints that are broken so far until none is: the optimum of the full program."""
    return _in_rounds(problem.program(), problem.broken)


def simplified(problem: Problem, silver: Labels) -> Solution:
    """Solve once with the groundings whose bodies hold among the thresholded labels (Algorithm 2 of the MILR paper)."""
    program = problem.program()
    for groundings in problem.joins.holding(silver):
        program.add(constraints_of(groundings))
    solution = _in_rounds(program, problem.over_limit, rounds=1 if program.constraints else 0)
    # Its constraints are some of all: where the others hold too, nothing that violates none can cost less.
    optimal = next(problem.joins.violated(problem.shaped(solution.labels), limit=1), None) is None
    return Solution(solution.labels, optimal, solution.rounds, solution.constraints, solution.pool)


def _in_rounds(program: GrowingProgram, broken: Callable[[Labels], Iterable[Constraint]], rounds: int = 0) -> Solution:
    try:
        program.solve()
        while program.add(list(broken(program.labels))):
            rounds += 1
            program.solve()
    except OutOfTimeError:
        raise UnfinishedError(program.labels, rounds, program.constraints) from None
    return Solution(program.labels, True, rounds, len(program.constraints), program.constraints)


def feasible(problem: Problem) -> Labels:
    """Return some labelling that violates nothing, whatever it costs and however long it takes to find."""
    program = problem.program(gain=np.zeros_like(problem.gain), timed=False)
    return _in_rounds(program, problem.broken).labels


def full(problem: Problem) -> Solution:
    """Write out all variables and all constraints, and solve once."""
    size, _, relations = problem.gain.shape
    clauses = problem.joins.clauses
    needed = sum(math.perm(size, len(each.variables)) * (len(each.body) + len(each.heads)) for each in clauses)
    if needed > LARGEST_FULL_PROGRAM:
        count = sum(math.perm(size, len(each.variables)) for each in clauses)
        raise MemoryLimitError(
            f"method='full' would write {count:,} constraints for {size} entities; "
            "method='exact' finds the same optimum with those that are broken"
        )
    blocks = [_written(clause, size, relations) for clause in clauses]
    if problem.limit is not None:
        pairs = sparse.kron(sparse.eye_array(size * size), np.ones((1, relations)))
        blocks.append((pairs, np.full(size * size, float(problem.limit))))
    blocks = [(rows, bounds) for rows, bounds in blocks if len(bounds)]
    if not blocks:
        return exact(problem)
    rows = sparse.csr_array(sparse.vstack([rows for rows, _ in blocks]))
    bounds = np.concatenate([bounds for _, bounds in blocks])
    gain, free = problem.gain.reshape(-1), problem.free.reshape(-1)
    try:
        labels = solved(gain, rows, bounds, problem.deadline, upper=free.astype(np.float64))
    except OutOfTimeError as error:
        start = problem.program().labels if error.labels is None else error.labels
        raise UnfinishedError(start, 0, []) from None
    except InfeasibleError:
        exact(problem)  # which finds the conflict and names it
        raise
    # A grounding that forces a label has its body among the labels before and after.
    pool = [
        constraint
        for groundings in problem.joins.holding(problem.shaped(labels | problem.program().labels))
        for constraint in constraints_of(groundings)
    ]
    return Solution(labels, True, 1, len(bounds), pool)


def _written(clause: PairClause, size: int, relations: int) -> tuple[sparse.csr_array, Floats]:
    """Write one clause for all assignments of distinct entities."""
    grid = np.indices((size,) * len(clause.variables)).reshape(len(clause.variables), -1)
    for one, other in itertools.combinations(range(len(clause.variables)), 2):
        grid = grid[:, grid[one] != grid[other]]
    atoms = [*((each, 1.0) for each in clause.body), *((each, -1.0) for each in clause.heads)]
    columns = [(grid[atom.first] * size + grid[atom.second]) * relations + atom.relation for atom, _ in atoms]
    count = grid.shape[1]
    rows = sparse.csr_array(
        (np.tile([sign for _, sign in atoms], count), np.stack(columns, axis=1).reshape(-1), _ends(count, len(atoms))),
        shape=(count, size * size * relations),
    )
    return rows, np.full(count, len(clause.body) - 1.0)


def _ends(rows: int, width: int) -> Integers:
    return np.arange(rows + 1, dtype=np.int64) * width


def constraints_of(groundings: Groundings) -> Iterator[Constraint]:
    """Write groundings as constraints: not all of the body, or one of the heads."""
    columns = (groundings.clause, groundings.entities, groundings.bodies, groundings.heads)
    for clause, entities, body, heads in zip(*(each.tolist() for each in columns), strict=True):
        plus = tuple(atom for atom in body if atom >= 0)
        minus = tuple(atom for atom in heads if atom >= 0)
        yield Constraint(plus, minus, len(plus) - 1, clause, tuple(entities))


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
