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

from rulewright.data.index import range_bounds
from rulewright.errors import RulewrightError
from rulewright.inject.atoms.joins import Labels

Floats: TypeAlias = npt.NDArray[np.float64]

ENUMERATED = 14
"""Up to how many atoms all labellings are tried at once, which beats the start of a solver."""

LARGEST_COST = 1e4
"""Costs are scaled to this size: the solver stops within an absolute gap of 1e-6, which is then next to nothing."""


class ZeroOneConstraint(NamedTuple):
    """``Σ plus − Σ minus ≤ bound`` over atoms; ``clause_index`` and ``entities`` say which grounding needs it.

    A clause index of -1 is the limit of labels of the pair ``entities``.
    """

    plus: tuple[int, ...]
    minus: tuple[int, ...]
    bound: int
    clause_index: int
    entities: tuple[int, ...]

    @property
    def atoms(self) -> tuple[int, ...]:
        """All atoms of the constraint."""
        return self.plus + self.minus

    def excess(self, labels: Labels) -> int:
        """Return by how much a labelling breaks the constraint; 0 where it is tight."""
        on = sum(bool(labels[atom]) for atom in self.plus) - sum(bool(labels[atom]) for atom in self.minus)
        return on - self.bound


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

    An atom in no constraint keeps its best label, which is where ``labels`` starts; atoms outside ``free`` stay 0.
    """

    def __init__(self, gain: Floats, free: Labels, deadline: float | None) -> None:
        self._gain, self._free, self._deadline = gain, free, deadline
        self.labels: Labels = (gain < 0) & free
        self.constraints: list[ZeroOneConstraint] = []
        self._seen: set[tuple[frozenset[int], frozenset[int]]] = set()
        self._parent: dict[int, int] = {}
        self._parts: dict[int, tuple[list[int], list[ZeroOneConstraint]]] = {}
        self._changed: set[int] = set()

    def add(self, constraints: Iterable[ZeroOneConstraint]) -> int:
        """Take up constraints that are new, and return how many were."""
        before = len(self.constraints)
        for constraint in constraints:
            plus = tuple(atom for atom in constraint.plus if self._free[atom])
            if constraint.clause_index >= 0 and len(plus) < len(constraint.plus):
                continue  # an atom of the body is fixed at 0
            minus = tuple(atom for atom in constraint.minus if self._free[atom])
            key = (frozenset(plus), frozenset(minus))
            if key not in self._seen:
                self._seen.add(key)
                self._connect(constraint._replace(plus=plus, minus=minus))
        return len(self.constraints) - before

    def _connect(self, constraint: ZeroOneConstraint) -> None:
        """Keep a constraint, and join the parts that its atoms belong to."""
        self.constraints.append(constraint)
        if not constraint.atoms:  # every atom that could help is fixed at 0
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
            self._parent[atom] = atom
            self._parts[atom] = ([atom], [])
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
            atoms, constraints = sorted(self._parts[root][0]), self._parts[root][1]
            try:
                self.labels[atoms] = _find_best(self._gain[atoms], atoms, constraints, self._deadline)
            except OutOfTimeError as error:
                if error.labels is not None:
                    self.labels[atoms] = error.labels
                raise
            except InfeasibleError:
                raise InfeasibleError(find_smallest_conflict(constraints)) from None
            self._changed.discard(root)


def _find_best(
    gain: Floats, atoms: Sequence[int], constraints: Sequence[ZeroOneConstraint], deadline: float | None
) -> Labels:
    """Return the best labels of atoms under constraints; of equally good ones of few atoms, the fewest labels."""
    column = {atom: index for index, atom in enumerate(atoms)}
    columns = [column[atom] for constraint in constraints for atom in constraint.atoms]
    signs = [sign for c in constraints for sign in [1.0] * len(c.plus) + [-1.0] * len(c.minus)]
    counts = [len(constraint.atoms) for constraint in constraints]
    bounds = np.array([constraint.bound for constraint in constraints], dtype=np.float64)
    shape = (len(constraints), len(atoms))
    if len(atoms) > ENUMERATED:
        return solve_program(gain, sparse.csr_array((signs, columns, range_bounds(counts)), shape), bounds, deadline)
    matrix = np.zeros(shape)
    matrix[np.repeat(np.arange(len(counts)), counts), columns] = signs
    labellings = _list_labellings(len(atoms))
    labellings = labellings[np.all(labellings @ matrix.T <= bounds, axis=1)]
    if not len(labellings):
        raise InfeasibleError([])
    return np.asarray(labellings[np.argmin(labellings @ gain)] > 0.5)


@cache
def _list_labellings(atoms: int) -> Floats:
    """Return all labellings of a few atoms, those with fewer labels first."""
    bits = (np.arange(2**atoms)[:, None] >> np.arange(atoms)) & 1
    return bits[np.argsort(bits.sum(1), kind="stable")].astype(np.float64)


def solve_program(
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
    labels = None if result.x is None else _clear_costless(np.asarray(result.x) > 0.5, gain, rows, bounds)
    if result.status == 1:
        raise OutOfTimeError(labels)
    if labels is None or np.any(rows @ labels > bounds):
        raise RulewrightError(f"the solver failed on {len(gain):,} atoms: {result.message}")
    return labels


def _clear_costless(labels: Labels, gain: Floats, rows: sparse.csr_array, bounds: Floats) -> Labels:
    """Set atoms for which both labels cost the same to 0 where no constraint needs them."""
    for atom in np.flatnonzero(labels & (gain == 0)):
        labels[atom] = False
        if np.any(rows @ labels > bounds):
            labels[atom] = True
    return labels


def find_smallest_conflict(constraints: Sequence[ZeroOneConstraint]) -> list[ZeroOneConstraint]:
    """Return constraints that have no solution together, while they have one when any of them is left out."""
    kept = list(constraints)
    step = max(1, len(kept) // 2)
    while True:
        start = 0
        while start < len(kept):
            fewer = kept[:start] + kept[start + step :]
            if fewer and not _is_satisfiable(fewer):
                kept = fewer
            else:
                start += step
        if step == 1:
            return kept
        step //= 2


def _is_satisfiable(constraints: Sequence[ZeroOneConstraint]) -> bool:
    atoms = sorted({atom for constraint in constraints for atom in constraint.atoms})
    try:
        _find_best(np.zeros(len(atoms)), atoms, constraints, None)
    except InfeasibleError:
        return False
    return True
