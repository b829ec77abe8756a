"""The sum of products of some tables, and its messages to each of them, along an ear decomposition, up and down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from rulewright.inject.layer.relations import KeyIndex, Rows, Table, find_ears
from rulewright.logic import Variable

if TYPE_CHECKING:
    from rulewright.inject.layer.terms import TermBuilder


@dataclass(frozen=True, slots=True)
class TermEdge:
    """A table with the variables of its columns, and its values: ``scale`` times a node, None for 1."""

    table: Table
    variables: tuple[Variable, ...]
    node: int | None
    scale: float
    head: tuple[str, frozenset[int]] | None = None


class SumProduct:
    """The sum of products of some tables, and its messages to each of them."""

    def __init__(self, builder: TermBuilder, edges: Sequence[TermEdge], variables: tuple[tuple[int, ...], ...]) -> None:
        self._builder, self._edges, self._variables = builder, edges, variables
        self._parents, self._core = find_ears([frozenset(names) for names in variables]) if edges else ({}, [])

    def message(self, edge: int) -> tuple[Table, int | None]:
        """Return the product of all but a table's own values, for those of its rows where it is not 0."""
        return self._collect(edge, own=False)

    def total(self) -> int | None:
        """Return the node of the whole sum; None where it is the number of rows of the first table."""
        table, node = self._collect(self._core[0], own=True)
        if node is None and table is self._edges[0].table:
            return None
        total, _ = self._builder.group(table, node, ())
        return total

    def _shared(self, edge: int, other: int) -> tuple[int, ...]:
        """Return the variables that two tables share and that are summed into one of them, in order."""
        if self._parents.get(edge) != other:
            edge, other = other, edge
        return tuple(sorted(set(self._variables[edge]) & set(self._variables[other])))

    def _send(self, edge: int, other: int) -> tuple[int | None, KeyIndex, tuple[int, ...]]:
        """Return the sums that a table sends to its neighbour: of all that does not come from there."""
        shared = self._shared(edge, other)
        table, node = self._collect(edge, own=True, without=other)
        positions = tuple(self._variables[edge].index(variable) for variable in shared)
        sums, index = self._builder.group(table, node, positions)
        return sums, index, tuple(self._variables[other].index(variable) for variable in shared)

    def _collect(
        self, edge: int, *, own: bool, without: int | None = None, with_core: bool = True
    ) -> tuple[Table, int | None]:
        """Return the product of what arrives at a table, with its own values or without."""
        builder, table = self._builder, self._edges[edge].table
        neighbours = [child for child, parent in self._parents.items() if parent == edge and child != without]
        if edge in self._parents and self._parents[edge] != without:
            neighbours.append(self._parents[edge])
        arriving = [self._send(neighbour, edge) for neighbour in neighbours]
        if with_core and edge in self._core and len(self._core) > 1:  # the join has all its ears
            reducing = [self._send(child, edge) for child, parent in self._parents.items() if parent == edge]
        else:
            reducing = arriving
        reduced, keep = self._reduce(table, reducing)
        parts: list[tuple[int, Tensor | None]] = []
        if own and self._edges[edge].node is not None:
            node = self._edges[edge].node
            assert node is not None
            parts.append((node, None if keep is None else builder.column(keep)))
        for sums, index, positions in arriving:
            if sums is not None:
                groups = builder.find(reduced, positions, index)
                parts.append((sums, builder.column(groups) if positions else None))
        if with_core and edge in self._core and len(self._core) > 1:
            parts.append((builder.role(self._join(), self._core.index(edge)), None))
        if not parts:
            return reduced, None
        if len(parts) == 1 and parts[0][1] is None and builder.plan.nodes[parts[0][0]].length == len(reduced):
            return reduced, parts[0][0]
        sources, columns = tuple(source for source, _ in parts), tuple(column for _, column in parts)
        return reduced, builder.node("product", sources, columns, len(reduced))

    def _reduce(
        self, table: Table, arriving: Sequence[tuple[int | None, KeyIndex, tuple[int, ...]]]
    ) -> tuple[Table, Rows | None]:
        """Leave out the rows that something arriving has nothing for."""
        found = [self._builder.find(table, positions, index) for _, index, positions in arriving]
        is_there = np.ones(len(table), dtype=bool)
        for groups in found:
            is_there &= groups >= 0
        if is_there.all():
            return table, None
        key = tuple((id(index), positions) for _, index, positions in arriving)
        return self._builder.take(table, np.flatnonzero(is_there).astype(np.int32), key)

    def _join(self) -> int:
        inner = [self._collect(edge, own=True, with_core=False) for edge in self._core]
        tables, nodes = [table for table, _ in inner], [node for _, node in inner]
        return self._builder.join(tables, nodes, [self._variables[edge] for edge in self._core])
