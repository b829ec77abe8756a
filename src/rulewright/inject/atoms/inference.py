"""Global inference over the labels of one document: exactly by lazy constraints, simplified, or fully written out."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from scipy import sparse

from rulewright.errors import MemoryLimitError
from rulewright.inject.atoms.clauses import PairClause
from rulewright.inject.atoms.joins import ClauseJoins, Groundings, Labels
from rulewright.inject.atoms.zero_one import (
    Floats,
    GrowingProgram,
    InfeasibleError,
    OutOfTimeError,
    ZeroOneConstraint,
    solve_program,
)

MOST_PER_ROUND = 20_000
"""How many violated groundings one round takes up; a later round finds the rest."""

LARGEST_FULL_PROGRAM = 20_000_000
"""How many atoms in constraints the fully written program may have; HiGHS needs some hundred bytes for each."""


@dataclass(frozen=True)
class LabelProblem:
    """What is to be decided: ``gain[n, n, R]`` is what label 1 costs more than label 0; outside ``free`` it is 0."""

    joins: ClauseJoins
    gain: Floats
    free: Labels
    limit: int | None
    deadline: float | None
    patience: float = 0.0  # how many seconds a repair may look for cheap flips

    def start_program(self) -> GrowingProgram:
        """Return the program without constraints; its labels are the best where nothing ties them together."""
        return GrowingProgram(self.gain.reshape(-1), self.free.reshape(-1), self.deadline)

    def shape_labels(self, labels: Labels) -> Labels:
        """Return a flat labelling as [n, n, R]."""
        return labels.reshape(self.gain.shape)

    def find_broken(self, labels: Labels) -> Iterator[ZeroOneConstraint]:
        """Yield constraints that a flat labelling breaks: none exactly when it breaks none."""
        for groundings in self.joins.find_violated(self.shape_labels(labels), limit=MOST_PER_ROUND):
            yield from write_constraints(groundings)
        yield from self.find_over_limit(labels)

    def find_over_limit(self, labels: Labels) -> Iterator[ZeroOneConstraint]:
        """Yield the limit of labels for every pair that has more."""
        if self.limit is None:
            return
        size, _, relations = self.gain.shape
        for head, tail in np.argwhere(self.shape_labels(labels).sum(2) > self.limit).tolist():
            first = (head * size + tail) * relations
            yield ZeroOneConstraint(tuple(range(first, first + relations)), (), self.limit, -1, (head, tail))


@dataclass(frozen=True)
class Solution:
    """Flat labels and how they were found; among ``constraints`` are the reasons of changes.

    ``repairs`` has the constraint that an atom was set for, after a time limit.
    """

    labels: Labels
    is_optimal: bool
    rounds: int
    n_constraints: int
    constraints: list[ZeroOneConstraint]
    repairs: dict[int, ZeroOneConstraint] = field(default_factory=dict)


def solve_exact(problem: LabelProblem) -> Solution:
    """Solve with the constraints that are broken so far until none is: the optimum of the full program."""
    return _solve_in_rounds(problem, problem.start_program(), problem.find_broken)


def solve_simplified(problem: LabelProblem, silver: Labels) -> Solution:
    """Solve once with the groundings whose bodies hold among the thresholded labels (Algorithm 2 of the MILR paper)."""
    program = problem.start_program()
    for groundings in problem.joins.find_holding(silver):
        program.add(write_constraints(groundings))
    solution = _solve_in_rounds(problem, program, problem.find_over_limit, rounds=1 if program.constraints else 0)
    # Its constraints are some of all: where the others hold too, nothing that violates none can cost less.
    violated = problem.joins.find_violated(problem.shape_labels(solution.labels), limit=1)
    return replace(solution, is_optimal=solution.is_optimal and next(violated, None) is None)


def _solve_in_rounds(
    problem: LabelProblem,
    program: GrowingProgram,
    find_broken: Callable[[Labels], Iterable[ZeroOneConstraint]],
    rounds: int = 0,
) -> Solution:
    try:
        program.solve()
        while program.add(list(find_broken(program.labels))):
            rounds += 1
            program.solve()
    except OutOfTimeError:
        return _repair(problem, program.labels, rounds, program.constraints)
    return Solution(program.labels, True, rounds, len(program.constraints), program.constraints)


def _repair(problem: LabelProblem, labels: Labels, rounds: int, constraints: list[ZeroOneConstraint]) -> Solution:
    labels, repairs = repair_labels(problem, labels, patience=problem.patience)
    return Solution(labels, False, rounds, len(constraints), constraints, repairs)


def solve_full(problem: LabelProblem) -> Solution:
    """Write out all variables and all constraints, and solve once."""
    size, _, relations = problem.gain.shape
    clauses = problem.joins.clauses
    groundings_of = [math.perm(size, len(clause.variables)) for clause in clauses]
    atoms_of = [len(clause.body) + len(clause.heads) for clause in clauses]
    if sum(map(math.prod, zip(groundings_of, atoms_of, strict=True))) > LARGEST_FULL_PROGRAM:
        raise MemoryLimitError(
            f"method='full' would write {sum(groundings_of):,} constraints for {size} entities; "
            "method='exact' finds the same optimum with those that are broken"
        )
    blocks = [_write_clause(clause, size, relations) for clause in clauses]
    if problem.limit is not None:
        pairs = sparse.kron(sparse.eye_array(size * size), np.ones((1, relations)))
        blocks.append((pairs, np.full(size * size, float(problem.limit))))
    blocks = [(rows, bounds) for rows, bounds in blocks if len(bounds)]
    if not blocks:
        return solve_exact(problem)
    rows = sparse.csr_array(sparse.vstack([rows for rows, _ in blocks]))
    bounds = np.concatenate([bounds for _, bounds in blocks])
    start = problem.start_program().labels
    try:
        upper = problem.free.reshape(-1).astype(np.float64)
        labels = solve_program(problem.gain.reshape(-1), rows, bounds, problem.deadline, upper=upper)
    except OutOfTimeError as error:
        return _repair(problem, start if error.labels is None else error.labels, 0, [])
    except InfeasibleError:
        solve_exact(problem)  # which finds the conflict and names it
        raise
    # A grounding that forces a label has its body among the labels before and after.
    holding = problem.joins.find_holding(problem.shape_labels(labels | start))
    constraints = [constraint for groundings in holding for constraint in write_constraints(groundings)]
    return Solution(labels, True, 1, len(bounds), constraints)


def _write_clause(clause: PairClause, size: int, relations: int) -> tuple[sparse.csr_array, Floats]:
    """Write one clause for all assignments of distinct entities."""
    grid = np.indices((size,) * len(clause.variables)).reshape(len(clause.variables), -1)
    for one, other in itertools.combinations(range(len(clause.variables)), 2):
        grid = grid[:, grid[one] != grid[other]]
    atoms, count = [*clause.body, *clause.heads], grid.shape[1]
    signs = [1.0] * len(clause.body) + [-1.0] * len(clause.heads)
    columns = [(grid[atom.first] * size + grid[atom.second]) * relations + atom.relation for atom in atoms]
    row_bounds = np.arange(count + 1, dtype=np.int64) * len(atoms)
    rows = sparse.csr_array(
        (np.tile(signs, count), np.stack(columns, axis=1).reshape(-1), row_bounds),
        shape=(count, size * size * relations),
    )
    return rows, np.full(count, len(clause.body) - 1.0)


def write_constraints(groundings: Groundings) -> Iterator[ZeroOneConstraint]:
    """Write groundings as constraints: not all of the body, or one of the heads."""
    columns = (groundings.clauses, groundings.entities, groundings.bodies, groundings.heads)
    for clause_index, entities, body, heads in zip(*(column.tolist() for column in columns), strict=True):
        plus = tuple(atom for atom in body if atom >= 0)
        minus = tuple(atom for atom in heads if atom >= 0)
        yield ZeroOneConstraint(plus, minus, len(plus) - 1, clause_index, tuple(entities))


def repair_labels(
    problem: LabelProblem, labels: Labels, *, patience: float
) -> tuple[Labels, dict[int, ZeroOneConstraint]]:
    """Return a flat labelling near the given one that violates nothing, and for each atom why it was set.

    For ``patience`` seconds every violation is repaired by the cheapest flip, of a head to 1 or of a body atom to 0,
    and no atom is flipped twice. After that, labels are only taken away, many at a time. Without unconditional
    clauses this always ends well; with them, any labelling that satisfies them is the last resort.
    """
    reasons: dict[int, ZeroOneConstraint] = {}
    labels = labels.copy()
    deadline = time.monotonic() + patience
    if _flip_cheapest(problem, labels, reasons, deadline) or _take_away(problem, labels, reasons):
        return labels, reasons
    return solve_exact(replace(problem, gain=np.zeros_like(problem.gain), deadline=None)).labels, {}


def _flip_cheapest(
    problem: LabelProblem, labels: Labels, reasons: dict[int, ZeroOneConstraint], deadline: float
) -> bool:
    """Flip atom after atom; return whether nothing is violated in the end."""
    gain, free = problem.gain.reshape(-1), problem.free.reshape(-1)
    while time.monotonic() < deadline:
        broken = list(problem.find_broken(labels))
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


def _take_away(problem: LabelProblem, labels: Labels, reasons: dict[int, ZeroOneConstraint]) -> bool:
    """Take the cheapest body atom of every violated grounding away, until none is left; False where one has no body."""
    gain = problem.gain.reshape(-1)
    while True:
        before = labels.copy()  # the joins look at this one while labels change
        for groundings in problem.joins.find_violated(problem.shape_labels(before)):
            groundings = groundings.select(groundings.is_violated(labels))
            if not len(groundings):
                continue
            if groundings.bodies.shape[1] == 0:
                return False
            cost = np.where(groundings.bodies >= 0, -gain[groundings.bodies], np.inf)
            atoms = np.take_along_axis(groundings.bodies, cost.argmin(1)[:, None], axis=1)[:, 0]
            labels[atoms] = False
            atoms, rows = np.unique(atoms, return_index=True)
            for atom, constraint in zip(atoms.tolist(), write_constraints(groundings.select(rows)), strict=True):
                reasons.setdefault(atom, constraint)
        for constraint in problem.find_over_limit(labels):
            on = sorted((atom for atom in constraint.plus if labels[atom]), key=lambda atom: gain[atom])
            labels[on[constraint.bound :]] = False
        if np.array_equal(labels, before):
            return True
