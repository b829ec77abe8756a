"""Global inference over the labels of a batch: exactly by lazy constraints, simplified, or fully written out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

import numpy as np
from scipy import sparse

from rulewright.data.index import Ids, range_bounds
from rulewright.errors import MemoryLimitError
from rulewright.inject.atom_space import ENTITY
from rulewright.inject.atoms.clauses import AtomClause
from rulewright.inject.atoms.joins import ClauseJoins, GroundingFinder, Groundings
from rulewright.inject.atoms.layout import AtomLayout, Choices, Floats, Labels
from rulewright.inject.atoms.zero_one import (
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
    """What is to be decided, all flat as the layout says.

    Attributes:
        finder: the clauses, and how their groundings are found.
        gain: what a label costs more when it is on than when it is off; of classes only the differences matter.
        free: which labels are decided.
        fixed: the others that are on.
        limit: at most so many labels of a pair of entities, the arguments of the first block.
        deadline: when the search ends.
        patience: how many seconds a repair may look for cheap flips after that.
        costs: what a broken grounding of each clause costs, infinite where it must hold; None where all must.
        parts: for each clause that counts a part of a formula's false groundings which formula that is, -1 for others.
    """

    finder: GroundingFinder
    gain: Floats
    free: Labels
    fixed: Labels
    limit: int | None
    deadline: float | None
    patience: float = 0.0
    costs: Floats | None = None
    parts: Ids | None = None

    @property
    def layout(self) -> AtomLayout:
        """Where the labels stand."""
        return self.finder.layout

    @cached_property
    def choices(self) -> Choices | None:
        """Which labels are classes of one atom."""
        return self.layout.find_choices()

    @cached_property
    def start(self) -> Labels:
        """The best labels where no clause ties them together."""
        return choose_labels(self.layout, self.gain, self.free, self.fixed)

    def without_costs(self) -> LabelProblem:
        """Return the same problem with nothing that may be violated at a cost."""
        return self if self.costs is None else replace(self, costs=np.where(np.isinf(self.costs), np.inf, 0.0))

    def start_program(self) -> GrowingProgram:
        """Return the program without constraints."""
        return GrowingProgram(self.gain, self.free, self.deadline, start=self.start, choices=self.choices)

    def find_broken(self, labels: Labels) -> Iterator[ZeroOneConstraint]:
        """Yield constraints that must hold and that a flat labelling breaks: none exactly when it breaks none."""
        for groundings in self.find_violated(labels, limit=MOST_PER_ROUND):
            yield from write_constraints(groundings, self.finder.joins)
        yield from self.find_over_limit(labels)

    def find_violated(self, labels: Labels, *, limit: int | None = None) -> Iterator[Groundings]:
        """Yield groundings that must hold and that a flat labelling violates."""
        must_hold = None if self.costs is None else np.isinf(self.costs)
        yield from self.finder.find_violated(labels, limit=limit, among=must_hold)

    def find_costly(self, labels: Labels) -> Iterator[Groundings]:
        """Yield groundings that a flat labelling violates at a cost."""
        if self.costs is not None:
            may_break = np.isfinite(self.costs) & (self.costs > 0)
            yield from self.finder.find_violated(labels, among=may_break)

    def costs_of(self, groundings: Groundings) -> Floats:
        """Return what it costs to violate each of some groundings."""
        return np.full(len(groundings), np.inf) if self.costs is None else self.costs[groundings.clauses]

    def name_assignments(self, groundings: Groundings) -> list[tuple[int, ...] | None]:
        """Return the formula, row and entities of each grounding of a part of one; None for other groundings.

        Of the parts of a formula one at most is violated at an assignment, but by another label it may be another one.
        """
        if self.parts is None:
            return [None] * len(groundings)
        rows = zip(
            groundings.clauses.tolist(),
            self.parts[groundings.clauses].tolist(),
            groundings.entities.tolist(),
            strict=True,
        )
        values = self.finder.joins.read_values
        return [None if part < 0 else (part, *values(clause, entities)) for clause, part, entities in rows]

    def find_all_broken(self, labels: Labels) -> Iterator[ZeroOneConstraint]:
        """Yield constraints that a flat labelling breaks, also those that it may break at a cost."""
        if self.costs is None:
            yield from self.find_broken(labels)
            return
        costly: list[Groundings] = []
        most = MOST_PER_ROUND
        for groundings in self.finder.find_violated(labels):
            costs = self.costs_of(groundings)
            must_hold = groundings.select(np.flatnonzero(np.isinf(costs))[:most])
            most -= len(must_hold)
            yield from write_constraints(must_hold, self.finder.joins)
            costly.append(groundings.select(np.isfinite(costs) & (costs > 0)))
        yield from self.merge_groundings(costly)
        yield from self.find_over_limit(labels)

    def merge_groundings(self, parts: Iterable[Groundings]) -> Iterator[ZeroOneConstraint]:
        """Yield groundings that may be violated at a cost as constraints on labels that are free.

        Groundings that ask for the same are one, which costs as much as they do together. ``parts`` must have all that
        are violated in some labelling: whatever else is violated where one of them is, is then among them. Those that
        no free label can help have no constraint.
        """
        found = [groundings for groundings in parts if len(groundings)]
        if not found or self.costs is None:
            return
        bodies, heads = (
            _sort_members([getattr(groundings, side) for groundings in found], self.free)
            for side in ("bodies", "heads")
        )
        if not bodies.shape[1] + heads.shape[1]:
            return
        clauses = np.concatenate([groundings.clauses for groundings in found])
        part_of = np.repeat(np.arange(len(found)), [len(groundings) for groundings in found])
        starts = np.cumsum([0, *(len(groundings) for groundings in found)])
        _, firsts, inverse = np.unique(
            np.concatenate([bodies, heads], axis=1), axis=0, return_index=True, return_inverse=True
        )
        costs = np.bincount(inverse.reshape(-1), weights=self.costs[clauses])
        for position in np.argsort(firsts).tolist():
            row = int(firsts[position])
            plus, minus = (tuple(label for label in side[row].tolist() if label >= 0) for side in (bodies, heads))
            if plus or minus:
                part, clause_index = found[part_of[row]], int(clauses[row])
                entities = part.entities[row - starts[part_of[row]]].tolist()
                values = self.finder.joins.read_values(clause_index, entities)
                yield ZeroOneConstraint(plus, minus, len(plus) - 1, clause_index, values, float(costs[position]))

    def find_over_limit(self, labels: Labels) -> Iterator[ZeroOneConstraint]:
        """Yield the limit of labels for every pair that has more."""
        if self.limit is None:
            return
        pairs = self.layout.block_of(labels, 0)
        width = pairs.shape[-1]
        for row, head, tail in np.argwhere(pairs.sum(-1) > self.limit).tolist():
            first = int(np.ravel_multi_index((row, head, tail, 0), pairs.shape))
            yield ZeroOneConstraint(tuple(range(first, first + width)), (), self.limit, -1, (row, head, tail))


def _sort_members(parts: Sequence[Ids], free: Labels) -> Ids:
    """Return the labels of groundings that are free, [grounding, label], each once and in order behind some of -1."""
    labels = np.full((sum(map(len, parts)), max(part.shape[1] for part in parts)), -1, dtype=np.int64)
    start = 0
    for part in parts:
        labels[start : start + len(part), : part.shape[1]] = part
        start += len(part)
    labels[~free[labels]] = -1
    labels.sort(axis=1)
    labels[:, 1:][labels[:, 1:] == labels[:, :-1]] = -1
    labels.sort(axis=1)
    return labels


def choose_labels(layout: AtomLayout, cost: Floats, free: Labels, fixed: Labels) -> Labels:
    """Return the labels that cost less on than off, and the cheapest class of each atom that has several.

    Ties go to off and to the first class; labels outside ``free`` are as ``fixed`` says.
    """
    labels = (cost < 0) & free
    for block in layout.channels.blocks if layout.channels.has_classes else ():
        for name in block.names:
            if layout.channels[name].has_classes:
                best = layout.predicate_of(cost, name).argmin(-1)[..., None]
                one_hot = best == np.arange(layout.channels[name].width)
                layout.predicate_of(labels, name)[...] = one_hot & layout.predicate_of(free, name)
    return np.asarray(labels | fixed)


@dataclass(frozen=True)
class Solution:
    """Flat labels and how they were found; among ``constraints`` are the reasons of changes.

    ``reasons`` has the constraint that an atom was set for where that is known, by the first of its labels.
    """

    labels: Labels
    is_optimal: bool
    rounds: int
    n_constraints: int
    constraints: list[ZeroOneConstraint]
    reasons: dict[int, ZeroOneConstraint] = field(default_factory=dict)


def solve_exact(problem: LabelProblem) -> Solution:
    """Solve with the constraints that are broken so far until none is: the optimum of the full program."""
    return _solve_in_rounds(problem, problem.start_program(), problem.find_all_broken)


def solve_simplified(problem: LabelProblem, silver: Labels) -> Solution:
    """Solve once with the groundings whose bodies hold among the thresholded labels (Algorithm 2 of the MILR paper)."""
    program = problem.start_program()
    costly: list[Groundings] = []
    for groundings in problem.finder.find_holding(silver):
        if problem.costs is not None:
            is_hard = np.isinf(problem.costs[groundings.clauses])
            is_helped = np.any(problem.fixed[groundings.heads] & (groundings.heads >= 0), axis=1)
            costly.append(groundings.select(~is_hard & ~is_helped))
            groundings = groundings.select(is_hard)
        program.add(write_constraints(groundings, problem.finder.joins))
    program.add(problem.merge_groundings(costly))
    solution = _solve_in_rounds(problem, program, problem.find_over_limit, rounds=1 if program.constraints else 0)
    # Its constraints are some of all: where no other is broken, nothing can cost less.
    violated = problem.find_violated(solution.labels, limit=1)
    others = (
        constraint
        for constraint in problem.merge_groundings(problem.find_costly(solution.labels))
        if not program.has(constraint)
    )
    is_optimal = next(violated, None) is None and next(others, None) is None
    return replace(solution, is_optimal=solution.is_optimal and is_optimal)


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
    labels, reasons = repair_labels(problem, labels, patience=problem.patience)
    if problem.choices is not None:
        reasons = {int(problem.choices.first[label]): constraint for label, constraint in reasons.items()}
    return Solution(labels, False, rounds, len(constraints), constraints, reasons)


def solve_full(problem: LabelProblem) -> Solution:
    """Write out all variables and all constraints, and solve once."""
    layout, joins = problem.layout, problem.finder.joins
    groundings_of = [count_assignments(clause, layout) for clause in joins.clauses]
    atoms_of = [len(clause.atoms) for clause in joins.clauses]
    if sum(map(prod, zip(groundings_of, atoms_of, strict=True))) > LARGEST_FULL_PROGRAM:
        sizes = ", ".join(
            f"{size} entities{'' if type_name == ENTITY else f' of type {type_name}'}"
            for type_name, size in layout.sizes.items()
        )
        raise MemoryLimitError(
            f"method='full' would write {sum(groundings_of):,} constraints for {sizes}; "
            "method='exact' finds the same optimum with those that are broken"
        )
    everything = GroundingFinder(ClauseJoins(joins.clauses, joins.channels, joined=()), layout, problem.finder.exists)
    blocks = [
        (*_write_rows(groundings, layout.size), problem.costs_of(groundings))
        for groundings in everything.find_holding(problem.start)
    ]
    if problem.limit is not None:
        width = layout.channels.blocks[0].width
        count = prod(layout.shapes[0][:-1])
        pairs = sparse.csr_array(
            (np.ones(count * width), np.arange(count * width), range_bounds([width] * count)), (count, layout.size)
        )
        blocks.append((pairs, np.full(count, float(problem.limit)), np.full(count, np.inf)))
    blocks = [block for block in blocks if len(block[1])]
    if not blocks:
        return solve_exact(problem)
    rows = sparse.csr_array(sparse.vstack([rows for rows, _, _ in blocks]))
    bounds, costs = (np.concatenate([block[part] for block in blocks]) for part in (1, 2))
    lower = problem.fixed.astype(np.float64)
    fixed = (lower, np.maximum(lower, problem.free))
    try:
        labels = solve_program(
            problem.gain, rows, bounds, problem.deadline, costs=costs, fixed=fixed, choices=problem.choices
        )
    except OutOfTimeError as error:
        return _repair(problem, problem.start if error.labels is None else error.labels, 0, [])
    except InfeasibleError:
        solve_exact(problem)  # which finds the conflict and names it
        raise
    # A grounding that forces a label has its body among the labels before and after.
    holding = problem.finder.find_holding(labels | problem.start)
    constraints = [
        constraint
        for groundings in holding
        for constraint in write_constraints(groundings, joins, problem.costs_of(groundings))
    ]
    return Solution(labels, True, 1, len(bounds), constraints)


def count_assignments(clause: AtomClause, layout: AtomLayout) -> int:
    """Return for how many assignments a clause is asked in a batch, at most; entities that are apart count once."""
    counts = [layout.rows]
    for variable, type_name in enumerate(clause.types):
        apart = sum(1 for one, other in clause.apart if other == variable and 0 <= one < variable)
        counts.append(max(0, layout.sizes[type_name] - apart))
    return prod(counts)


def _write_rows(groundings: Groundings, size: int) -> tuple[sparse.csr_array, Floats]:
    """Write groundings as rows of a program."""
    labels = np.concatenate([groundings.bodies, groundings.heads], axis=1)
    signs = np.repeat([1.0, -1.0], [groundings.bodies.shape[1], groundings.heads.shape[1]])
    present = labels >= 0
    rows = sparse.csr_array(
        (np.broadcast_to(signs, labels.shape)[present], labels[present], range_bounds(present.sum(1))),
        shape=(len(labels), size),
    )
    rows.sum_duplicates()  # an atom may be there twice, also in body and heads
    return rows, (groundings.bodies >= 0).sum(1) - 1.0


def write_constraints(
    groundings: Groundings, joins: ClauseJoins, costs: Floats | None = None
) -> Iterator[ZeroOneConstraint]:
    """Write groundings as constraints: not all of the body, or one of the heads; ``costs`` is that of breaking them."""
    if costs is None:
        costs = np.full(len(groundings), np.inf)
    columns = (groundings.clauses, groundings.entities, groundings.bodies, groundings.heads, costs)
    for clause_index, entities, body, heads, cost in zip(*(column.tolist() for column in columns), strict=True):
        plus = tuple(dict.fromkeys(atom for atom in body if atom >= 0))
        minus = tuple(dict.fromkeys(atom for atom in heads if atom >= 0))
        values = joins.read_values(clause_index, entities)
        yield ZeroOneConstraint(plus, minus, len(plus) - 1, clause_index, values, cost)


def repair_labels(
    problem: LabelProblem, labels: Labels, *, patience: float
) -> tuple[Labels, dict[int, ZeroOneConstraint]]:
    """Return a flat labelling near the given one that violates nothing, and for each label why it was set.

    For ``patience`` seconds every violation is repaired by the cheapest flip, of a head to on or of a body atom to off
    or to another class, and no atom is changed twice. After that, labels are only taken away, many at a time. Without
    classes, evidence and unconditional clauses this always ends well; with them, any labelling that satisfies them is
    the last resort.
    """
    reasons: dict[int, ZeroOneConstraint] = {}
    labels = labels.copy()
    deadline = time.monotonic() + patience
    if _flip_cheapest(problem, labels, reasons, deadline) or _take_away(problem, labels, reasons):
        return labels, reasons
    anything = replace(problem.without_costs(), gain=np.zeros_like(problem.gain), deadline=None)
    return solve_exact(anything).labels, {}


def _flip_cheapest(
    problem: LabelProblem, labels: Labels, reasons: dict[int, ZeroOneConstraint], deadline: float
) -> bool:
    """Change atom after atom; return whether nothing is violated in the end."""
    while time.monotonic() < deadline:
        broken = list(problem.find_broken(labels))
        if not broken:
            return True
        for constraint in broken:
            while constraint.excess(labels) > 0:
                flips = [
                    flip for flip in _list_flips(problem, labels, constraint) if reasons.keys().isdisjoint(flip[1])
                ]
                if not flips:
                    return False
                for atom in min(flips)[1]:
                    labels[atom] = not labels[atom]
                    reasons[atom] = constraint
    return False


def _list_flips(
    problem: LabelProblem, labels: Labels, constraint: ZeroOneConstraint
) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Yield what may be changed for a broken constraint: the cost, and the labels that change.

    An atom that has classes takes one that the constraint does not forbid.
    """
    gain, free, choices = problem.gain, problem.free, problem.choices

    def is_class(atom: int) -> bool:
        return choices is not None and bool(choices.width[atom] > 1)

    for atom in constraint.plus:
        if not (labels[atom] and free[atom]):
            continue
        if not is_class(atom):
            yield -gain[atom], (atom,)
            continue
        assert choices is not None
        others = [(gain[other] - gain[atom], other) for other in choices.members(atom) if other not in constraint.plus]
        if others:
            cost, other = min(others)
            yield cost, (atom, other)
    for atom in constraint.minus:
        if labels[atom] or not free[atom]:
            continue
        if not is_class(atom):
            yield gain[atom], (atom,)
            continue
        assert choices is not None
        now = next(other for other in choices.members(atom) if labels[other])
        yield gain[atom] - gain[now], (atom, now)


def _take_away(problem: LabelProblem, labels: Labels, reasons: dict[int, ZeroOneConstraint]) -> bool:
    """Take the cheapest body atom of every violated grounding away, until none is left.

    False where one has no body that can be taken away, as where atoms have classes.
    """
    if problem.choices is not None:
        return False
    gain = np.where(problem.free, problem.gain, -np.inf)
    while True:
        before = labels.copy()  # the joins look at this one while labels change
        for groundings in problem.find_violated(before):
            groundings = groundings.select(groundings.is_violated(labels))
            if not len(groundings):
                continue
            if groundings.bodies.shape[1] == 0:
                return False
            cost = np.where(groundings.bodies >= 0, -gain[groundings.bodies], np.inf)
            if np.any(np.isinf(cost.min(1))):
                return False
            atoms = np.take_along_axis(groundings.bodies, cost.argmin(1)[:, None], axis=1)[:, 0]
            labels[atoms] = False
            atoms, rows = np.unique(atoms, return_index=True)
            constraints = write_constraints(groundings.select(rows), problem.finder.joins)
            for atom, constraint in zip(atoms.tolist(), constraints, strict=True):
                reasons.setdefault(atom, constraint)
        for constraint in problem.find_over_limit(labels):
            on = sorted((atom for atom in constraint.plus if labels[atom]), key=lambda atom: gain[atom])
            if not all(problem.free[on[constraint.bound :]]):
                return False
            labels[on[constraint.bound :]] = False
        if np.array_equal(labels, before):
            return True
