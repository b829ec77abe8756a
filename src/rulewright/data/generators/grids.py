"""Gridworld: small grids with obstacles, a target, and what an agent sees from each cell."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rulewright.checks import Whole, check_parameter
from rulewright.data.facts import Column
from rulewright.data.generators.generated import Generated, build, parse_once
from rulewright.data.vocabulary import Domain, lay_out_domains
from rulewright.errors import DataError

DIRECTIONS = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}
"""How a step changes (column, row)."""

Cells = npt.NDArray[np.bool_]


def _write_rules() -> str:
    seen = ["target", "obstacle", *(f"has_{what}_{way}" for what in ("target", "obstacle") for way in DIRECTIONS)]
    moves = [f"move_{way}" for way in DIRECTIONS]
    lines = [f"predicate {name}(column, row)." for name in seen + moves]
    lines += [f"closed {name}." for name in seen]
    lines += [f"move_{way}(X, Y) :- has_target_{way}(X, Y), !has_obstacle_{way}(X, Y)." for way in DIRECTIONS]
    return "\n".join(lines)


def gridworld(grids: int, *, size: int = 5, obstacles: int = 3, seed: int = 0) -> Generated:
    """Return square grids, one world each, and what is seen from every cell; the moves to learn are hidden.

    Columns count from west to east and rows from south to north, each grid with its own. ``has_target_north(X, Y)``
    says that the target lies further north than (X, Y), in whatever column; ``has_obstacle_north(X, Y)`` that one
    step north leads onto an obstacle or off the grid, for both are punished alike. Each grid has one target and
    ``obstacles`` other cells that are blocked. ``hidden`` has the moves that come nearer to the target and are free,
    exactly those the rules derive.

    >>> generated = gridworld(10, seed=1)
    >>> generated.kb.domains["row"], len(generated.kb.worlds), generated.kb.count("obstacle")
    (Domain('row', 50 entities), 10, 30)
    >>> generated.kb.tuples("target")[:2]
    [('grid0_x1', 'grid0_y4'), ('grid1_x2', 'grid1_y1')]
    >>> print(generated.rules.rules[0])
    move_north(X, Y) :- has_target_north(X, Y), !has_obstacle_north(X, Y).
    """
    check_parameter("grids", grids, Whole(1))
    check_parameter("size", size, Whole(1))
    check_parameter("obstacles", obstacles, Whole(0))
    if obstacles >= size**2:
        raise DataError(f"obstacles must be <= {size**2 - 1}, the cells beside the target, got {obstacles}")
    random = np.random.default_rng(seed)
    chosen = np.argsort(random.random((grids, size**2)), axis=1)[:, : obstacles + 1]
    target, blocked = (_mark(cells, grids, size) for cells in (chosen[:, :1], chosen[:, 1:]))
    facts = {"target": target, "obstacle": blocked}
    moves = {}
    for way in DIRECTIONS:
        ahead = facts[f"has_target_{way}"] = _mark_ahead(target, way)
        barred = facts[f"has_obstacle_{way}"] = _mark_beside(blocked, way)
        moves[f"move_{way}"] = ahead & ~barred

    worlds = np.repeat(np.arange(grids, dtype=np.int32), size)
    axes = {
        type_name: [f"grid{grid}_{letter}{position}" for grid in range(grids) for position in range(size)]
        for type_name, letter in (("column", "x"), ("row", "y"))
    }
    domains = lay_out_domains((type_name, labels, worlds) for type_name, labels in axes.items())
    return build(
        parse_once(_write_rules()),
        domains,
        {name: _list_cells(cells, domains) for name, cells in facts.items()},
        hidden={name: _list_cells(cells, domains) for name, cells in moves.items()},
        worlds=[f"grid{grid}" for grid in range(grids)],
    )


def _mark(chosen: npt.NDArray[np.int64], grids: int, size: int) -> Cells:
    """Return cells [grid, column, row] with the chosen ones marked."""
    cells = np.zeros((grids, size**2), dtype=bool)
    np.put_along_axis(cells, chosen, True, axis=1)
    return cells.reshape(grids, size, size)


def _mark_beside(blocked: Cells, way: str) -> Cells:
    """Mark the cells from which one step leads onto a blocked cell or off the grid."""
    right, up = DIRECTIONS[way]
    size = blocked.shape[1]
    walled = np.pad(blocked, ((0, 0), (1, 1), (1, 1)), constant_values=True)
    return walled[:, 1 + right : 1 + right + size, 1 + up : 1 + up + size]


def _mark_ahead(target: Cells, way: str) -> Cells:
    """Mark the cells from which a step goes nearer to the target, were there no obstacles."""
    right, up = DIRECTIONS[way]
    _, column, row = np.nonzero(target)
    positions = np.arange(target.shape[1])
    to_column = column[:, None, None] - positions[:, None]
    to_row = row[:, None, None] - positions
    return to_column * right + to_row * up > 0


def _list_cells(cells: Cells, domains: dict[str, Domain]) -> list[Column]:
    grid, column, row = np.nonzero(cells)
    size = cells.shape[1]
    return [domains["column"].start + grid * size + column, domains["row"].start + grid * size + row]
