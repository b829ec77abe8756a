"""Small zero-one programs that grow by constraints, solved exactly one connected part at a time.

A zero-one variable is called an atom here: the truth of one, or one of the classes of an atom that has several.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from rulewright.data.index import expand_ranges, range_bounds
from rulewright.errors import RulewrightError
from rulewright.inject.atoms.layout import Choices, Floats, Labels

ENUMERATED = 14
"""Up to 2 to the power of how many labellings are all tried at once, which beats the start of a solver."""

LARGEST_COST = 1e4
"""Costs are scaled to this size: the solver stops within an absolute gap of 1e-6, which is then next to nothing."""

LARGEST_RATIO = 1e4
"""How many times the largest cost of a label that of a constraint may be before labels are scaled down for it."""

MOST_TRIED = 2**24
"""How many pairs of a labelling and a constraint that may be broken are looked at; beyond that a solver is better."""


class ZeroOneConstraint(NamedTuple):
    """``Σ plus − Σ minus ≤ bound`` over atoms; ``clause_index`` and ``entities`` say which grounding needs it.

    A clause index of -1 is the limit of labels of the row and pair ``entities``. It may be broken, by 1, at its
    ``cost``, unless this is infinite.
    """

    plus: tuple[int, ...]
    minus: tuple[int, ...]
    bound: int
    clause_index: int
    entities: tuple[int, ...]
    cost: float = math.inf

    @property
    def is_hard(self) -> bool:
        """Whether it must hold."""
        return self.cost == math.inf

    @property
    def atoms(self) -> tuple[int, ...]:
        """All atoms of the constraint."""
        return self.plus + self.minus

    def excess(self, labels: Labels) -> int:
        """Return by how much a labelling breaks the constraint; 0 where it is tight."""
        on = sum(bool(labels[atom]) for atom in self.plus) - sum(bool(labels[atom]) for atom in self.minus)
        return on - self.bound


_Key: TypeAlias = tuple[frozenset[int], frozenset[int], int, bool]


def _key(constraint: ZeroOneConstraint) -> _Key:
    """Return what is equal for constraints that ask for the same."""
    return frozenset(constraint.plus), frozenset(constraint.minus), constraint.bound, constraint.is_hard


class InfeasibleError(Exception):
    """No labelling satisfies these constraints together."""

    def __init__(self, constraints: list[ZeroOneConstraint]) -> None:
        super().__init__(f"{len(constraints)} constraints have no solution")
        self.constraints = constraints


class OutOfTimeError(Exception):
    """The deadline has passed; ``labels`` is the best labelling of the atoms so far, where the solver had one."""

    def __init__(self, labels: Labels | None = None) -> None:
        super().__init__("out of time")
        self.labels = labels


class GrowingProgram:
    """Minimises ``Σ gain · label`` over 0/1 labels under constraints that are added once they are broken.

    Constraints with a finite cost may stay broken and add it; one that comes again is the same one. An atom in no
    constraint keeps its label of ``start``, which is its best; atoms outside ``free`` always do. Without a start these
    are 0. Of the members of each of ``choices`` exactly one is 1.
    """

    def __init__(
        self,
        gain: Floats,
        free: Labels,
        deadline: float | None,
        *,
        start: Labels | None = None,
        choices: Choices | None = None,
    ) -> None:
        self._gain, self._free, self._deadline, self._choices = gain, free, deadline, choices
        self.labels: Labels = (gain < 0) & free if start is None else start.copy()
        self.constraints: list[ZeroOneConstraint] = []
        self._seen: set[_Key] = set()
        self._parent: dict[int, int] = {}
        self._parts: dict[int, tuple[list[int], list[ZeroOneConstraint]]] = {}
        self._changed: set[int] = set()

    def add(self, constraints: Iterable[ZeroOneConstraint]) -> int:
        """Take up constraints that are new, and return how many were."""
        before = len(self.constraints)
        for constraint in constraints:
            reduced = self._reduce(constraint)
            if reduced is None:
                continue
            key = _key(reduced)
            if key not in self._seen:
                self._seen.add(key)
                self._connect(reduced)
        return len(self.constraints) - before

    def has(self, constraint: ZeroOneConstraint) -> bool:
        """Tell whether it has taken a constraint up, as it is on the labels that are free."""
        return _key(constraint) in self._seen

    def _reduce(self, constraint: ZeroOneConstraint) -> ZeroOneConstraint | None:
        """Take the labels that are fixed out of a constraint; None where they fulfil it."""
        plus = tuple(atom for atom in constraint.plus if self._free[atom])
        minus = tuple(atom for atom in constraint.minus if self._free[atom])
        if len(plus) == len(constraint.plus) and len(minus) == len(constraint.minus):
            return constraint
        on = sum(bool(self.labels[atom]) for atom in constraint.plus if not self._free[atom])
        on -= sum(bool(self.labels[atom]) for atom in constraint.minus if not self._free[atom])
        bound = constraint.bound - on
        return None if len(plus) <= bound else constraint._replace(plus=plus, minus=minus, bound=bound)

    def _connect(self, constraint: ZeroOneConstraint) -> None:
        """Keep a constraint, and join the parts that its atoms belong to."""
        self.constraints.append(constraint)
        if not constraint.atoms:  # every atom that could help is fixed
            raise InfeasibleError([constraint])
        roots = list(dict.fromkeys(self._find_root(atom) for atom in constraint.atoms))
        largest = max(roots, key=lambda root: len(self._parts[root][0]))
        part_atoms, part_constraints = self._parts[largest]
        part_constraints.append(constraint)
        for root in roots:
            if root != largest:
                self._parent[root] = largest
                other_atoms, other_constraints = self._parts.pop(root)
                part_atoms += other_atoms
                part_constraints += other_constraints
                self._changed.discard(root)
        self._changed.add(largest)

    def _find_root(self, atom: int) -> int:
        if atom not in self._parent:
            members = [atom] if self._choices is None else list(self._choices.members(atom))
            self._parent.update(dict.fromkeys(members, members[0]))
            self._parts[members[0]] = (members, [])
            return members[0]
        while self._parent[atom] != atom:
            self._parent[atom] = self._parent[self._parent[atom]]
            atom = self._parent[atom]
        return atom

    def solve(self) -> None:
        """Bring the labels to the optimum under all constraints so far; only parts with new ones are solved again."""
        for root in sorted(self._changed):
            if self._deadline is not None and time.monotonic() >= self._deadline:
                raise OutOfTimeError
            atoms, constraints = sorted(self._parts[root][0]), self._parts[root][1]
            try:
                self.labels[atoms] = _find_best(self._gain[atoms], atoms, constraints, self._choices, self._deadline)
            except OutOfTimeError as error:
                if error.labels is not None:
                    self.labels[atoms] = error.labels
                raise
            except InfeasibleError:
                hard = [constraint for constraint in constraints if constraint.is_hard]
                raise InfeasibleError(find_smallest_conflict(hard, self._choices)) from None
            self._changed.discard(root)


def _find_best(
    gain: Floats,
    atoms: Sequence[int],
    constraints: Sequence[ZeroOneConstraint],
    choices: Choices | None,
    deadline: float | None,
) -> Labels:
    """Return the best labels of atoms under constraints; of equally good ones of few atoms, the fewest labels."""
    column = {atom: index for index, atom in enumerate(atoms)}
    columns = [column[atom] for constraint in constraints for atom in constraint.atoms]
    signs = [sign for c in constraints for sign in [1.0] * len(c.plus) + [-1.0] * len(c.minus)]
    counts = [len(constraint.atoms) for constraint in constraints]
    bounds = np.array([constraint.bound for constraint in constraints], dtype=np.float64)
    costs = np.array([constraint.cost for constraint in constraints])
    is_hard = np.isinf(costs)
    shape = (len(constraints), len(atoms))
    chosen = None if choices is None else choices.select(atoms)
    widths = (1,) * len(atoms) if chosen is None else tuple(chosen.width[chosen.starts()].tolist())
    n_labellings = prod(max(2, width) for width in widths)
    most = min(2**ENUMERATED, MOST_TRIED // max(1, int((~is_hard).sum())))
    if len(widths) > ENUMERATED or n_labellings > most:
        rows = sparse.csr_array((signs, columns, range_bounds(counts)), shape)
        return solve_program(gain, rows, bounds, deadline, costs=costs, choices=chosen)
    matrix = np.zeros(shape)
    matrix[np.repeat(np.arange(len(counts)), counts), columns] = signs
    labellings = _list_labellings(widths)
    labellings = labellings[np.all(labellings @ matrix[is_hard].T <= bounds[is_hard], axis=1)]
    if not len(labellings):
        raise InfeasibleError([])
    total = labellings @ gain
    if not is_hard.all():
        total += (labellings @ matrix[~is_hard].T > bounds[~is_hard]) @ costs[~is_hard]
    return np.asarray(labellings[np.argmin(total)] > 0.5)


@lru_cache(32)
def _list_labellings(widths: tuple[int, ...]) -> Floats:
    """Return all labellings of a few atoms, one with a width of 1 being 0 or 1 and others one of so many classes.

    Those with fewer labels, and with the first of the classes, come first.
    """
    if all(width == 1 for width in widths):
        bits = (np.arange(2 ** len(widths))[:, None] >> np.arange(len(widths))) & 1
        return bits[np.argsort(bits.sum(1), kind="stable")].astype(np.float64)
    values = np.array(list(product(*(range(max(2, width)) for width in widths))))
    values = values[np.argsort(values.sum(1), kind="stable")]
    columns = [
        values[:, [atom]] if width == 1 else values[:, [atom]] == np.arange(width) for atom, width in enumerate(widths)
    ]
    return np.concatenate(columns, axis=1).astype(np.float64)


def solve_program(
    gain: Floats,
    rows: sparse.csr_array,
    bounds: Floats,
    deadline: float | None,
    *,
    costs: Floats | None = None,
    fixed: tuple[Floats, Floats] | None = None,
    choices: Choices | None = None,
) -> Labels:
    """Return labels of least ``Σ gain · label`` with ``rows @ labels <= bounds``, by HiGHS.

    Rows with finite ``costs`` may be broken, by 1, and add these where they are: each has a variable of its own that
    makes up for it. ``fixed`` has the least and the largest label of each atom; of the members of each of ``choices``
    that are not fixed exactly one is 1.
    """
    n_atoms = len(gain)
    lower, upper = fixed or (np.zeros(n_atoms), np.ones(n_atoms))
    soft = np.flatnonzero(np.isfinite(costs)) if costs is not None else np.zeros(0, dtype=np.int64)
    if choices is not None:
        starts = choices.starts()
        starts = starts[(choices.width[starts] > 1) & (lower[starts] < upper[starts])]
        widths = choices.width[starts]
        members = expand_ranges(starts, widths)
        once = sparse.csr_array((np.ones(len(members)), members, range_bounds(widths)), (len(starts), n_atoms))
        rows = sparse.csr_array(sparse.vstack([rows, once, -once]))
        bounds = np.concatenate([bounds, np.ones(len(starts)), -np.ones(len(starts))])
    scale = float(np.abs(gain).max(initial=0.0))
    if costs is not None and len(soft):
        scale = max(scale, float(costs[soft].max()) / LARGEST_RATIO)
        made_up = sparse.csr_array((-np.ones(len(soft)), (soft, np.arange(len(soft)))), (len(bounds), len(soft)))
        rows = sparse.csr_array(sparse.hstack([rows, made_up]))
        gain = np.concatenate([gain, costs[soft]])
        lower, upper = np.concatenate([lower, np.zeros(len(soft))]), np.concatenate([upper, np.ones(len(soft))])
        if choices is not None:
            choices = choices.append(len(soft))
    options: dict[str, float] = {"mip_rel_gap": 0.0}
    if deadline is not None:
        options["time_limit"] = max(0.0, deadline - time.monotonic())
    result = milp(
        gain * (LARGEST_COST / (scale or 1.0)),
        integrality=np.arange(len(gain)) < n_atoms,
        bounds=Bounds(lower, upper),
        constraints=LinearConstraint(rows, -np.inf, bounds),
        options=options,
    )
    if result.status == 2:
        raise InfeasibleError([])
    labels = None if result.x is None else np.asarray(result.x) > 0.5
    if labels is not None:
        labels[n_atoms:] = False
        labels[n_atoms:] = (rows @ labels > bounds)[soft]
        labels = _settle_ties(labels, gain, rows, bounds, lower, choices)
    if result.status == 1:
        raise OutOfTimeError(None if labels is None else labels[:n_atoms])
    if labels is None or np.any(rows @ labels > bounds):
        raise RulewrightError(f"the solver failed on {n_atoms:,} atoms: {result.message}")
    return labels[:n_atoms]


def _settle_ties(
    labels: Labels, gain: Floats, rows: sparse.csr_array, bounds: Floats, lower: Floats, choices: Choices | None
) -> Labels:
    """Where no constraint needs it otherwise, set atoms whose labels cost the same to 0, or to the first such class."""
    for atom in np.flatnonzero(labels & (lower == 0)).tolist():
        flips: list[tuple[int, ...]]
        if choices is None or choices.width[atom] == 1:
            flips = [(atom,)] if gain[atom] == 0 else []
        else:
            flips = [(atom, other) for other in choices.members(atom) if other < atom and gain[other] == gain[atom]]
        for flip in flips:
            labels[list(flip)] ^= True
            if not np.any(rows @ labels > bounds):
                break
            labels[list(flip)] ^= True
    return labels


def find_smallest_conflict(
    constraints: Sequence[ZeroOneConstraint], choices: Choices | None = None
) -> list[ZeroOneConstraint]:
    """Return constraints that have no solution together, while they have one when any of them is left out."""
    kept = list(constraints)
    step = max(1, len(kept) // 2)
    while True:
        start = 0
        while start < len(kept):
            fewer = kept[:start] + kept[start + step :]
            if fewer and not _is_satisfiable(fewer, choices):
                kept = fewer
            else:
                start += step
        if step == 1:
            return kept
        step //= 2


def _is_satisfiable(constraints: Sequence[ZeroOneConstraint], choices: Choices | None) -> bool:
    touched = {atom for constraint in constraints for atom in constraint.atoms}
    if choices is not None:
        touched = {member for atom in touched for member in choices.members(atom)}
    atoms = sorted(touched)
    try:
        _find_best(np.zeros(len(atoms)), atoms, constraints, choices, None)
    except InfeasibleError:
        return False
    return True
