"""The gridworld as an environment: what is seen from every cell, and what every move earns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase
from rulewright.data.facts import group_by_signature
from rulewright.data.generators import gridworld
from rulewright.data.generators.grids import DIRECTIONS
from rulewright.logic import PredicateDeclaration

TOWARDS, AWAY, BLOCKED = 1.0, -1.0, -2.0

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class GridWorlds:
    """Grids, their facts with ``cell(X, Y)`` for every cell, and the rewards ``[cells, moves]`` in order of DIRECTIONS.

    A move earns +1 towards the target, −1 away from it, −2 onto an obstacle or off the grid; who stays earns 0.

    >>> grids = GridWorlds.made(2, seed=1)
    >>> grids.kb.count("cell"), grids.rewards.shape, float(grids.rewards.max())
    (50, (50, 4), 1.0)
    """

    kb: KnowledgeBase
    size: int
    columns: tuple[Array, Array]

    @classmethod
    def made(cls, grids: int, *, size: int = 5, obstacles: int = 3, seed: int = 0) -> GridWorlds:
        """Draw grids."""
        kb = gridworld(grids, size=size, obstacles=obstacles, seed=seed).kb
        grid, column, row = (each.ravel() for each in np.indices((grids, size, size)))
        columns = (
            (kb.domains["column"].start + grid * size + column).astype(np.int32),
            (kb.domains["row"].start + grid * size + row).astype(np.int32),
        )
        declared = {**kb.predicates, "cell": PredicateDeclaration("cell", ("column", "row"))}
        facts = {name: kb.columns(name) for name in kb.predicates} | {"cell": columns}
        tables = group_by_signature(declared, facts)
        with_cells = KnowledgeBase(kb.domains, declared.values(), tables, closed=kb.closed, worlds=kb.worlds)
        return cls(with_cells, size, columns)

    def holds(self, name: str) -> Array:
        """Tell for every cell whether a predicate holds of it."""
        size = self.kb.domains["row"].start + len(self.kb.domains["row"])
        keys = [column.astype(np.int64) * size + row for column, row in (self.columns, self.kb.columns(name))]
        found: Array = np.isin(keys[0], keys[1])
        return found

    @cached_property
    def rewards(self) -> Array:
        """What each move earns in each cell."""
        earned = []
        for way in DIRECTIONS:
            towards = np.where(self.holds(f"has_target_{way}"), TOWARDS, AWAY)
            earned.append(np.where(self.holds(f"has_obstacle_{way}"), BLOCKED, towards))
        return np.stack(earned, axis=1)

    @property
    def cells_a_grid(self) -> int:
        """The number of cells of one grid; a grid's cells stand one after the other."""
        return self.size**2

    def reward(self, values: Array, *, fires: float = 1e-9) -> float:
        """Return the mean reward over all cells of who makes the truest move, any of equally true ones.

        Who has no move that is at least as true as ``fires`` stays; by default every move that is not false counts.

        >>> grids = GridWorlds.made(3)
        >>> grids.reward(np.zeros((75, 4)))
        0.0
        """
        best = values.max(axis=1, keepdims=True)
        chosen = (values >= best - 1e-9) & (best >= fires)
        return float((np.where(chosen, self.rewards, 0.0).sum(axis=1) / np.maximum(chosen.sum(axis=1), 1)).mean())

    def ideal(self) -> Array:
        """Return the values of the ideal rule: the target lies in a direction, and no obstacle there."""
        found: Array = (self.rewards == TOWARDS).astype(np.float64)
        return found
