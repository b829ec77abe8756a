"""Small zero-one programs that grow by constraints, solved exactly one connected part at a time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from rulewright.errors import RulewrightError

Floats: TypeAlias = npt.NDArray[np.float64]
Labels: TypeAlias = npt.NDArray[np.bool_]

ENUMERATED = 14
"""Up to how many atoms all labellings are tried at once, which beats the start of a solver."""

LARGEST_COST = 1e4
"""Costs are scaled to this size: the solver stops within an absolute gap of 1e-6, which is then next to nothing."""


class Constraint(NamedTuple):
    """``Σ plus − Σ minus ≤ bound`` over atoms; ``clause`` and ``entities`` say which grounding asks for it.

    A clause number of -1 is the limit of labels of the pair ``entities``.
    """

    plus: tuple[int, ...]
    minus: tuple[int, ...]
    bound: int
    clause: int
    entities: tuple[int, ...]

    def excess(self, labels: Labels) -> int:
        """Return by how much a labelling breaks the constraint; 0 where it is tight."""
        on = sum(bool(labels[atom]) for atom in self.plus) - sum(bool(labels[atom]) for atom in self.minus)
        return on - self.bound


class InfeasibleError(Exception):
    """No labelling satisfies these constraints together."""

    def __init__(self, constraints: list[Constraint]) -> None:
        super().__init__(f"{len(constraints)} constraints have no solution")
        self.constraints = constraints


class OutOfTimeError(Exception):
    """The deadline has passed; ``labels`` is the best labelling of the atoms so far, where the solver had one."""

    def __init__(self, labels: Labels | None = None) -> None:
        super().__init__("out of time")
        self.labels = labels


class GrowingProgram:
    """Minimises ``Σ gain · label`` over 0/1 labels under constraints that are added as they are found to be broken.

    An atom in no constraint keeps its best label, which is where ``labels`` starts; atoms outside ``free`` stay 0.
    """

    def __init__(self, gain: Floats, free: Labels, deadline: float | None) -> None:
        self._gain, self._free, self._deadline = gain, free, deadline
        self.labels: Labels = (gain < 0) & free
        self.constraints: list[Constraint] = []
        self._seen: set[tuple[frozenset[int], frozenset[int]]] = set()
        self._parent: dict[int, int] = {}
        self._members: dict[int, tuple[list[int], list[Constraint]]] = {}
        self._changed: set[int] = set()

    def add(self, constraints: Iterable[Constraint]) -> int:
        """Take up constraints that are new, and return how many were."""
        before = len(self.constraints)
        for each in constraints:
            plus = tuple(atom for atom in each.plus if self._free[atom])
            if each.clause >= 0 and len(plus) < len(each.plus):
                continue  # an atom of the body is fixed at 0
            minus = tuple(atom for atom in each.minus if self._free[atom])
            key = (frozenset(plus), frozenset(minus))
            if key not in self._seen:
                self._seen.add(key)
                self._take(Constraint(plus, minus, each.bound, each.clause, each.entities))
        return len(self.constraints) - before

    def _take(self, constraint: Constraint) -> None:
        self.constraints.append(constraint)
        atoms = [*constraint.plus, *constraint.minus]
        if not atoms:  # every atom that could help is fixed at 0
            raise InfeasibleError([constraint])
        roots = list(dict.fromkeys(self._root(atom) for atom in atoms))
        largest = max(roots, key=lambda root: len(self._members[root][0]))
        atoms_here, constraints_here = self._members[largest]
        constraints_here.append(constraint)
        for root in roots:
            if root != largest:
                self._parent[root] = largest
                other_atoms, other_constraints = self._members.pop(root)
                atoms_here += other_atoms
                constraints_here += other_constraints
                self._changed.discard(root)
        self._changed.add(largest)

    def _root(self, atom: int) -> int:
        if atom not in self._parent:
            self._parent[atom] = atom
            self._members[atom] = ([atom], [])
            return atom
        while self._parent[atom] != atom:
            self._parent[atom] = self._parent[self._parent[atom]]
            atom = self._parent[atom]
        return atom

    def solve(self) -> None:
        """Bring the labels to the optimum under all constraints so far; only parts with new ones are solved again."""
        for root in sorted(self._changed):
            if self._deadline is not None and time.monotonic() >= self._deadline:
                raise OutOfTimeError
            atoms, constraints = self._members[root]
            atoms = sorted(atoms)
            try:
                self.labels[atoms] = _best(self._gain[atoms], atoms, constraints, self._deadline)
            except OutOfTimeError as error:
                if error.labels is not None:
                    self.labels[atoms] = error.labels
                raise
            except InfeasibleError:
                raise InfeasibleError(smallest_conflict(constraints)) from None
            self._changed.discard(root)


def _best(gain: Floats, atoms: Sequence[int], constraints: Sequence[Constraint], deadline: float | None) -> Labels:
    """Return the best labels of atoms under constraints; of equally good ones of few atoms, the fewest labels."""
    place = {atom: number for number, atom in enumerate(atoms)}
    bounds = np.array([each.bound for each in constraints], dtype=np.float64)
    if len(atoms) <= ENUMERATED:
        matrix = np.zeros((len(constraints), len(atoms)))
        for row, each in zip(matrix, constraints, strict=True):
            row[[place[atom] for atom in each.plus]] = 1.0
            row[[place[atom] for atom in each.minus]] = -1.0
        return _enumerated(gain, matrix, bounds)
    columns = [place[atom] for each in constraints for atom in (*each.plus, *each.minus)]
    values = [sign for each in constraints for sign in [1.0] * len(each.plus) + [-1.0] * len(each.minus)]
    ends = np.cumsum([0, *(len(each.plus) + len(each.minus) for each in constraints)])
    rows = sparse.csr_array((values, columns, ends), shape=(len(constraints), len(atoms)))
    return solved(gain, rows, bounds, deadline)


@cache
def _patterns(atoms: int) -> Floats:
    """Return all labellings of a few atoms, those with fewer labels first."""
    bits = (np.arange(2**atoms)[:, None] >> np.arange(atoms)) & 1
    return bits[np.argsort(bits.sum(1), kind="stable")].astype(np.float64)


def _enumerated(gain: Floats, matrix: Floats, bounds: Floats) -> Labels:
    patterns = _patterns(len(gain))
    patterns = patterns[np.all(patterns @ matrix.T <= bounds, axis=1)]
    if not len(patterns):
        raise InfeasibleError([])
    return np.asarray(patterns[np.argmin(patterns @ gain)] > 0.5)


def solved(
    gain: Floats, rows: sparse.csr_array, bounds: Floats, deadline: float | None, upper: Floats | float = 1.0
) -> Labels:
    """Return labels of least ``Σ gain · label`` with ``rows @ labels <= bounds``, by HiGHS."""
    scale = float(np.abs(gain).max(initial=0.0)) or 1.0
    options: dict[str, float] = {"mip_rel_gap": 0.0}
    if deadline is not None:
        options["time_limit"] = max(0.0, deadline - time.monotonic())
    result = milp(
        gain * (LARGEST_COST / scale),
        integrality=np.ones(len(gain)),
        bounds=Bounds(0, upper),
        constraints=LinearConstraint(rows, -np.inf, bounds),
        options=options,
    )
    if result.status == 2:
        raise InfeasibleError([])
    labels = None if result.x is None else _cleared(np.asarray(result.x) > 0.5, gain, rows, bounds)
    if result.status == 1:
        raise OutOfTimeError(labels)
    if labels is None or np.any(rows @ labels > bounds):
        raise RulewrightError(f"the solver failed on {len(gain):,} atoms: {result.message}")
    return labels


def _cleared(labels: Labels, gain: Floats, rows: sparse.csr_array, bounds: Floats) -> Labels:
    """Set atoms for which both labels cost the same to 0 where no constraint needs them."""
    for atom in np.flatnonzero(labels & (gain == 0)):
        labels[atom] = False
        if np.any(rows @ labels > bounds):
            labels[atom] = True
    return labels


def smallest_conflict(constraints: Sequence[Constraint]) -> list[Constraint]:
    """Return constraints that have no solution together, while they have one when any of them is left out."""
    kept = list(constraints)
    step = max(1, len(kept) // 2)
    while True:
        start = 0
        while start < len(kept):
            fewer = kept[:start] + kept[start + step :]
            if fewer and not _satisfiable(fewer):
                kept = fewer
            else:
                start += step
        if step == 1:
            return kept
        step //= 2


def _satisfiable(constraints: Sequence[Constraint]) -> bool:
    atoms = sorted({atom for each in constraints for atom in (*each.plus, *each.minus)})
    try:
        _best(np.zeros(len(atoms)), atoms, constraints, None)
    except InfeasibleError:
        return False
    return True
