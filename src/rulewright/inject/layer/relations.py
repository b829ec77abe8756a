"""Sums of products over sparse tables, as integer columns found once: join trees, groups of rows, and joins.

A sum of products over tables is an ear decomposition (GYO): a table of which all variables that others have stand in
one other table is an *ear*, and is summed into that one; what no ear is left of is a cyclic *core*, whose joined rows
are enumerated by the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import prod
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from rulewright.data.index import Ids
from rulewright.engine.duckdb import Engine

Flags: TypeAlias = npt.NDArray[np.bool_]

Rows: TypeAlias = npt.NDArray[np.int32]
"""Numbers of rows and of groups, of which many are held at once."""

SAMPLED_ROWS = 20_000
"""From how many rows the size of a join is estimated."""

SMALL_SPAN = 2**16
"""Up to so many numbers, rows are looked up in an array of them all."""

LARGEST_KEY = 2**62
"""Below it rows are numbers of 64 bits."""


class Table:
    """Rows of entity indices. ``rows`` is where each stands among the candidates that it is taken from (None: all of
    them, in order), ``known`` are those whose value no iteration changes."""

    def __init__(self, columns: Sequence[Ids], sizes: tuple[int, ...], known: Flags, rows: Rows | None = None) -> None:
        self._columns, self._known = tuple(columns), known
        self._positions: Rows | None = None  # those taken of the columns, which are looked up when they are needed
        self.sizes, self.rows, self._length = sizes, rows, len(known)

    def __len__(self) -> int:
        return self._length

    @cached_property
    def columns(self) -> tuple[Ids, ...]:
        """The entity indices of all rows, a column for each argument."""
        positions = self._positions
        return self._columns if positions is None else tuple(column[positions] for column in self._columns)

    @cached_property
    def known(self) -> Flags:
        """Which rows have a value that no iteration changes."""
        known: Flags = self._known if self._positions is None else self._known[self._positions]
        return known

    def take(self, positions: Rows) -> Table:
        """Return some of the rows."""
        table = Table(self.columns, self.sizes, self.known, positions if self.rows is None else self.rows[positions])
        table._positions, table._length = positions, len(positions)
        return table

    @cached_property
    def has_unknown(self) -> bool:
        """Whether the value of any row may change."""
        return not bool(self.known.all())


class KeyIndex:
    """Rows numbered by their values: equal rows have one group. Where values are few, some groups may be empty.

    Columns are taken together as far as their numbers fit, and groups then count as a column.

    >>> index = KeyIndex([np.array([5, 5, 2]), np.array([1, 1, 0])], [900, 900], 3)
    >>> index.groups.tolist(), index.count, index.find([np.array([2, 5]), np.array([0, 0])], 2).tolist()
    ([1, 1, 0], 2, [0, -1])
    """

    def __init__(self, columns: Sequence[Ids], sizes: Sequence[int], length: int) -> None:
        self.length = length
        self._steps: list[tuple[list[int], list[int], Ids | None]] = []  # columns, their sizes, and keys in order
        groups: Ids = np.zeros(length, dtype=np.int64)
        self.count = 1
        position = 0
        while position < len(columns):
            taken, last = [position], position + 1
            while last < len(columns) and self.count * prod(sizes[position : last + 1]) < LARGEST_KEY:
                taken.append(last)
                last += 1
            lengths = [sizes[index] for index in taken]
            before = [] if self.count == 1 else [groups]
            keys = encode_whole([*before, *(columns[index] for index in taken)], [self.count][: len(before)] + lengths)
            span = self.count * prod(lengths)
            if span <= max(4 * length, SMALL_SPAN):  # the keys themselves number the groups, some of which may be empty
                groups, self.count = keys, span
                self._steps.append((taken, lengths, None))
            else:
                different, inverse = np.unique(keys, return_inverse=True)
                groups, self.count = inverse.reshape(-1), len(different)
                self._steps.append((taken, lengths, different))
            position = last
        self.groups: Rows = groups.astype(np.int32)

    @cached_property
    def counts(self) -> Ids:
        """How many rows each group has."""
        return np.bincount(self.groups, minlength=self.count)

    @cached_property
    def members(self) -> tuple[Ids, Ids]:
        """Where the rows of each group start in a list of all rows, and that list."""
        return np.cumsum(self.counts) - self.counts, np.argsort(self.groups, kind="stable")

    def find_rows(self, columns: Sequence[Ids], length: int) -> Ids:
        """Return which of the rows each of others is equal to, the last of several; −1 where there is none."""
        rows = np.full(self.count + 1, -1, dtype=np.int64)
        rows[self.groups] = np.arange(self.length)
        return rows[self.find(columns, length)]  # group −1 is the last, which no row has

    def find(self, columns: Sequence[Ids], length: int) -> Rows:
        """Return the group of each row, −1 where there is none."""
        groups = np.zeros(length, dtype=np.int64)
        found = np.ones(length, dtype=bool)
        for step, (taken, lengths, keys) in enumerate(self._steps):
            before = [groups] if step else []
            wanted = encode_whole([*before, *(columns[index] for index in taken)], [1][:step] + lengths)
            if keys is None:
                groups = wanted
                continue
            if not len(keys):
                return np.full(length, -1, dtype=np.int32)
            groups = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            found &= keys[groups] == wanted
            groups[~found] = 0
        if not self.length:
            return np.full(length, -1, dtype=np.int32)
        found &= self.counts[groups] > 0
        return np.where(found, groups, -1).astype(np.int32)


def encode_whole(columns: Sequence[Ids], sizes: Sequence[int]) -> Ids:
    """Return one key for each row, in mixed radix, with no copy of a single column.

    >>> encode_whole([np.array([0, 2]), np.array([1, 3])], [3, 4]).tolist()
    [1, 11]
    """
    keys = columns[0]
    for column, size in zip(columns[1:], sizes[1:], strict=True):
        keys = keys * size + column
    return keys


def find_ears(edges: Sequence[frozenset[int]]) -> tuple[dict[int, int], list[int]]:
    """Return for each ear the edge that it is summed into, and the edges that are left: one, or a cyclic core.

    >>> find_ears([frozenset({0, 1}), frozenset({1, 2}), frozenset({2})])
    ({0: 1, 1: 2}, [2])
    >>> find_ears([frozenset({0, 1}), frozenset({1, 2}), frozenset({0, 2}), frozenset({2, 3})])
    ({3: 1}, [0, 1, 2])
    """
    remaining = list(range(len(edges)))
    parents: dict[int, int] = {}
    while len(remaining) > 1:
        for edge in remaining:
            others = [other for other in remaining if other != edge]
            shared = edges[edge] & frozenset().union(*(edges[other] for other in others))
            parent = next((other for other in others if shared <= edges[other]), None)
            if parent is not None:
                parents[edge] = parent
                remaining.remove(edge)
                break
        else:
            break
    return parents, remaining


def bound_join(tables: Sequence[Table], variables: Sequence[Sequence[int]]) -> float:
    """Return a number that joined rows do not exceed, infinite where none is found cheaply.

    It is the number of pairs of rows of two tables that share one variable and have all variables together.

    >>> edge = Table((np.array([0, 1, 0]), np.array([1, 2, 2])), (3, 3), np.zeros(3, dtype=bool))
    >>> bound_join([edge, edge, edge], [(0, 1), (1, 2), (0, 2)])
    1
    """
    every = {variable for names in variables for variable in names}
    bound = float("inf")
    for one, other in combinations(range(len(tables)), 2):
        shared = set(variables[one]) & set(variables[other])
        if len(shared) != 1 or {*variables[one], *variables[other]} < every:
            continue
        (variable,) = shared
        columns = [tables[index].columns[variables[index].index(variable)] for index in (one, other)]
        size = 1 + max(int(column.max(initial=0)) for column in columns)
        counts = [np.bincount(column, minlength=size) for column in columns]
        bound = min(bound, int(counts[0] @ counts[1]))
    return bound


@dataclass(frozen=True, slots=True)
class JoinEstimate:
    """About how many ``rows`` a join has, and the ``most`` after any of its steps."""

    most: float
    rows: float


def index_table(table: Table, positions: tuple[int, ...]) -> KeyIndex:
    """Return the groups of a table by some of its columns."""
    columns = [table.columns[position] for position in positions]
    return KeyIndex(columns, [table.sizes[position] for position in positions], len(table))


def estimate_join(
    tables: Sequence[Table],
    variables: Sequence[Sequence[int]],
    index_by: Callable[[Table, tuple[int, ...]], KeyIndex] = index_table,
) -> JoinEstimate:
    """Estimate how many rows a join has without joining; ``index_by`` may keep what it makes.

    From rows of the first table drawn at random, each step goes on with a random one of the rows of the next table that
    match, and counts for as many as there were: the mean of these products is that of the joined rows of a row.

    >>> edge = Table((np.array([0, 1, 0]), np.array([1, 2, 2])), (3, 3), np.zeros(3, dtype=bool))
    >>> round(estimate_join([edge, edge, edge], [(0, 1), (1, 2), (0, 2)]).rows)
    1
    """
    chance = np.random.default_rng(0)
    first = min(range(len(tables)), key=lambda index: len(tables[index]))
    if not len(tables[first]):
        return JoinEstimate(0.0, 0.0)
    chosen = chance.integers(0, len(tables[first]), SAMPLED_ROWS)
    values = {name: tables[first].columns[position][chosen] for position, name in enumerate(variables[first])}
    weights = np.full(SAMPLED_ROWS, float(len(tables[first])))
    remaining = [index for index in range(len(tables)) if index != first]
    sizes = [float(len(tables[first]))]
    while remaining:
        # Those with the fewest new variables first
        index = min(remaining, key=lambda other: (len(set(variables[other]) - set(values)), len(tables[other])))
        remaining.remove(index)
        table, names = tables[index], variables[index]
        shared = tuple(position for position, name in enumerate(names) if name in values)
        key = index_by(table, shared)
        groups = key.find([values[names[position]] for position in shared], len(weights))
        counts = np.where(groups >= 0, key.counts[groups], 0)
        weights = weights * counts
        sizes.append(float(weights.sum()) / SAMPLED_ROWS)
        if len(shared) < len(names):
            there = np.flatnonzero(counts)
            starts, order = key.members
            drawn = (chance.random(len(there)) * counts[there]).astype(np.int64)
            rows = order[starts[groups[there]] + drawn]
            values = {name: column[there] for name, column in values.items()}
            weights = weights[there]
            values |= {name: table.columns[position][rows] for position, name in enumerate(names)}
    return JoinEstimate(max(sizes), sizes[-1])


class Joiner:
    """Joins tables by the engine; the result says for each joined row where its parts stand.

    >>> edge = Table((np.array([0, 1, 0]), np.array([1, 2, 2])), (3, 3), np.zeros(3, dtype=bool))
    >>> with Joiner() as joiner:
    ...     [column.tolist() for column in joiner.join([edge, edge, edge], [(0, 1), (1, 2), (0, 2)])]
    [[0], [1], [2]]
    """

    def __init__(self, memory_limit: int | None = None) -> None:
        self._memory_limit = memory_limit
        self._engine: Engine | None = None
        self._names: dict[int, str] = {}
        self._tables: list[Table] = []  # held, so that their ids stay theirs

    def __enter__(self) -> Joiner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the engine and its tables."""
        if self._engine is not None:
            self._engine.close()
        self._engine, self._names, self._tables = None, {}, []

    def join(
        self,
        tables: Sequence[Table],
        edges: Sequence[Sequence[int]],
        *,
        wanted: Sequence[bool] | None = None,
        bounds: tuple[int, int] | None = None,
        all_known: bool = False,
    ) -> list[npt.NDArray[np.int32] | None]:
        """Return the joined rows in which not all parts are ``known``, as positions in each table that is wanted.

        ``edges`` are the variables of each table's columns. ``bounds`` leave only those positions of the first table;
        ``all_known`` keeps the rows whose parts are all known too.
        """
        wanted = [True] * len(tables) if wanted is None else wanted
        if not all(map(len, tables)) or not (all_known or any(table.has_unknown for table in tables)):
            return [np.empty(0, dtype=np.int32) if is_wanted else None for is_wanted in wanted]
        found = self._open().run(self.write(tables, edges, wanted=wanted, bounds=bounds, all_known=all_known))
        return [
            np.asarray(found[f"p{index}"]).astype(np.int32, copy=False) if is_wanted else None
            for index, is_wanted in enumerate(wanted)
        ]

    def count(self, tables: Sequence[Table], edges: Sequence[Sequence[int]], *, all_known: bool = False) -> Ids:
        """Return how many joined rows each row of the first table is in."""
        counts = np.zeros(len(tables[0]), dtype=np.int64)
        if all(map(len, tables)) and (all_known or any(table.has_unknown for table in tables)):
            wanted = [index == 0 for index in range(len(tables))]
            inner = self.write(tables, edges, wanted=wanted, all_known=all_known)
            found = self._open().run(f"SELECT p0, COUNT(*) AS n FROM ({inner}) AS joined GROUP BY p0")
            counts[np.asarray(found["p0"])] = np.asarray(found["n"])
        return counts

    def write(
        self,
        tables: Sequence[Table],
        edges: Sequence[Sequence[int]],
        *,
        wanted: Sequence[bool],
        bounds: tuple[int, int] | None = None,
        all_known: bool = False,
    ) -> str:
        """Return the statement of a join."""
        names = [self._put(table) for table in tables]
        first: dict[int, str] = {}
        conditions: list[str] = []
        for index, variables in enumerate(edges):
            for position, variable in enumerate(variables):
                column = f"t{index}.c{position}"
                if variable in first:
                    conditions.append(f"{first[variable]} = {column}")
                first.setdefault(variable, column)
        if bounds is not None:
            conditions.append(f"t0.p >= {bounds[0]} AND t0.p < {bounds[1]}")
        selected = ", ".join(f"t{index}.p AS p{index}" for index, is_wanted in enumerate(wanted) if is_wanted)
        sources = ", ".join(f"{name} AS t{index}" for index, name in enumerate(names))
        return " UNION ALL ".join(
            f"SELECT {selected} FROM {sources} WHERE {' AND '.join([*conditions, *branch]) or '1 = 1'}"
            for branch in _branches(tables, all_known=all_known)
        )

    def _open(self) -> Engine:
        if self._engine is None:
            self._engine = Engine(memory_limit=self._memory_limit)
        return self._engine

    def _put(self, table: Table) -> str:
        """Hold a table in the engine: its columns, the position p of each row, and k, 1 where it is known."""
        if id(table) not in self._names:
            name = self._names[id(table)] = f"candidates_{len(self._names)}"
            self._tables.append(table)
            columns: dict[str, npt.NDArray[np.integer]] = {
                f"c{position}": column.astype(np.int32) for position, column in enumerate(table.columns)
            }
            columns["p"] = np.arange(len(table), dtype=np.int32)
            if table.known.any() and table.has_unknown:
                columns["k"] = table.known.astype(np.int8)
            self._open().put(name, columns)
        return self._names[id(table)]


def _branches(tables: Sequence[Table], *, all_known: bool) -> Iterator[list[str]]:
    """Return conditions that are each true of other rows, together of those in which not all parts are known.

    The first part that is not known stands in another table in each.
    """
    if all_known or not all(table.known.any() for table in tables):
        yield []
        return
    before: list[str] = []
    for index, table in enumerate(tables):
        if table.has_unknown:
            yield [*before, f"t{index}.k = 0"]
            before.append(f"t{index}.k = 1")
