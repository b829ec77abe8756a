"""Index arithmetic on integer columns: what joins, walks and counts are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
"""A column of indices."""


def range_starts(counts: npt.ArrayLike) -> Ids:
    """Return where each of several ranges begins that stand one after the other.

    >>> range_starts([2, 0, 3]).tolist()
    [0, 2, 2]
    """
    many = np.asarray(counts, dtype=np.int64)
    starts: Ids = np.cumsum(many) - many
    return starts


def range_bounds(counts: npt.ArrayLike) -> Ids:
    """Return where each of several ranges begins that stand one after the other, and last where they all end.

    >>> range_bounds([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    many = np.asarray(counts, dtype=np.int64)
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(many)])


def positions_within(counts: npt.ArrayLike) -> Ids:
    """Return ``0 … counts[i] − 1`` for each range, one after the other.

    >>> positions_within([2, 0, 3]).tolist()
    [0, 1, 0, 1, 2]
    """
    many = np.asarray(counts, dtype=np.int64)
    positions: Ids = np.arange(int(many.sum())) - np.repeat(range_starts(many), many)
    return positions


def expand_ranges(starts: npt.ArrayLike, counts: npt.ArrayLike) -> Ids:
    """Return ``starts[i] … starts[i] + counts[i] − 1``, one after the other.

    >>> expand_ranges([10, 0, 5], [2, 0, 3]).tolist()
    [10, 11, 5, 6, 7]
    """
    first, many = np.asarray(starts, dtype=np.int64), np.asarray(counts, dtype=np.int64)
    members: Ids = np.arange(int(many.sum())) + np.repeat(first - range_starts(many), many)
    return members


def match_sorted(left: Ids, ordered: Ids) -> tuple[Ids, Ids]:
    """Return all positions (i, k) where ``left[i] == ordered[k]``; ``ordered`` is sorted.

    >>> [column.tolist() for column in match_sorted(np.array([5, 7, 5]), np.array([4, 5, 5, 7]))]
    [[0, 0, 1, 2, 2], [1, 2, 3, 1, 2]]
    """
    first = np.searchsorted(ordered, left, side="left")
    counts = np.searchsorted(ordered, left, side="right") - first
    return np.repeat(np.arange(len(left)), counts), expand_ranges(first, counts)


def match_pairs(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> tuple[Ids, Ids]:
    """Return all positions (i, j) where ``left[i] == right[j]``, in order.

    >>> [column.tolist() for column in match_pairs(np.array([7, 8, 9]), np.array([9, 7, 9]))]
    [[0, 2, 2], [1, 0, 2]]
    """
    order = np.argsort(right, kind="stable")
    left_position, ordered_position = match_sorted(left, right[order])
    return left_position, order[ordered_position]


def encode_rows(columns: Sequence[npt.NDArray[Any]], sizes: Sequence[int]) -> Ids:
    """Return one key for each row, in mixed radix: the values of a column are below its size.

    >>> encode_rows([np.array([0, 2]), np.array([1, 3])], [3, 4]).tolist()
    [1, 11]
    """
    keys = np.zeros(len(columns[0]), dtype=np.int64)
    for column, size in zip(columns, sizes, strict=True):
        keys = keys * size + column.astype(np.int64)
    return keys


def decode_rows(keys: Ids, sizes: Sequence[Ids | int]) -> list[Ids]:
    """Turn the keys of `encode_rows` back into columns; a size may differ from row to row.

    >>> [column.tolist() for column in decode_rows(np.array([1, 11]), [3, 4])]
    [[0, 2], [1, 3]]
    """
    columns: list[Ids] = []
    for size in reversed(sizes):
        keys, digit = np.divmod(keys, size)
        columns.append(digit)
    return columns[::-1]


def look_up(wanted: Ids, keys: Ids, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the value of each wanted key, 0 where there is none; keys are distinct and in any order.

    >>> look_up(np.array([7, 3, 9]), np.array([9, 7]), np.array([1, 2])).tolist()
    [2, 0, 1]
    """
    if len(keys) == 0:
        return np.zeros(len(wanted), dtype=values.dtype)
    order = np.argsort(keys)
    position = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
    return np.where(keys[position] == wanted, values[position], 0)


class SortedRows:
    """Distinct rows of whole numbers from 0, sorted, to be found by their first columns or by the first and another.

    ``order`` says which of the given rows stands where. A row is found column by column: the groups of rows that agree
    in the columns so far are numbered, and a group and a value make the key of the next, so that no key is too large;
    where whole rows make keys that are not, by these.

    >>> rows = SortedRows([np.array([1, 0, 1]), np.array([5, 7, 2])])
    >>> rows.order.tolist(), rows.find([np.array([1, 0, 3]), np.array([5, 7, 5])]).tolist()
    ([1, 2, 0], [2, 0, -1])
    >>> [bounds.tolist() for bounds in rows.ranges([np.array([1, 0, 9])])]
    [[1, 0, 0], [3, 1, 0]]
    """

    def __init__(self, columns: Sequence[npt.NDArray[Any]]) -> None:
        whole = [np.asarray(column, dtype=np.int64) for column in columns]
        self.order: Ids = np.arange(len(whole[0]))
        if not are_sorted(whole):
            self.order = np.lexsort(tuple(reversed(whole)))
            whole = [column[self.order] for column in whole]
        self.columns = tuple(whole)
        self._sizes = [int(column.max(initial=-1)) + 1 for column in whole]
        self._by_column: dict[int, tuple[int, Ids, Ids]] = {}

    @cached_property
    def _levels(self) -> list[tuple[int, Ids, Ids]]:
        """For each column its size, the keys of its groups, and their bounds."""
        levels = []
        groups = np.zeros(len(self), dtype=np.int64)
        for column, size in zip(self.columns, self._sizes, strict=True):
            keys = groups * size + column
            is_first = np.append(True, keys[1:] != keys[:-1]) if len(keys) else np.empty(0, dtype=bool)
            starts = np.flatnonzero(is_first)
            groups = np.cumsum(is_first) - 1
            levels.append((size, keys[starts], np.append(starts, len(keys))))
        return levels

    def __len__(self) -> int:
        return len(self.columns[0])

    def ranges(self, prefix: Sequence[npt.NDArray[Any]]) -> tuple[Ids, Ids]:
        """Return where the rows begin and end whose first columns have these values."""
        if len(prefix) == len(self.columns) and self._keys is not None:
            is_there, wanted = self._encode(prefix)
            starts = np.searchsorted(self._keys, wanted)
            return starts, np.where(is_there, np.searchsorted(self._keys, wanted, side="right"), starts)
        groups = np.zeros(len(prefix[0]), dtype=np.int64)
        is_there = np.ones(len(groups), dtype=bool)
        bounds = np.array([0])
        for (size, keys, bounds), values in zip(self._levels, prefix, strict=False):  # noqa: B007 (the last is used)
            is_there &= (values >= 0) & (values < size)
            if len(keys) == 0:
                return groups * 0, groups * 0
            wanted = groups * size + np.where(is_there, values, 0)
            groups = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            is_there &= keys[groups] == wanted
        return np.where(is_there, bounds[groups], 0), np.where(is_there, bounds[groups + 1], 0)

    def find(self, columns: Sequence[npt.NDArray[Any]]) -> Ids:
        """Return where each of these rows stands in the order, −1 where it is not there."""
        if self._keys is None or len(self) == 0:
            starts, ends = self.ranges(columns)
            return np.where(ends > starts, starts, -1)
        is_there, wanted = self._encode(columns)
        positions = np.minimum(np.searchsorted(self._keys, wanted), len(self) - 1)
        return np.where(is_there & (self._keys[positions] == wanted), positions, -1)

    def _encode(self, columns: Sequence[npt.NDArray[Any]]) -> tuple[npt.NDArray[np.bool_], Ids]:
        """Return which rows have no value beyond the sizes, and all as numbers."""
        is_there = np.ones(len(columns[0]), dtype=bool)
        for column, size in zip(columns, self._sizes, strict=True):
            is_there &= (column >= 0) & (column < size)
        return is_there, encode_rows(columns, self._sizes)

    @cached_property
    def _keys(self) -> Ids | None:
        """Every row as one number, where these are not too large."""
        fits = math.prod(self._sizes) <= np.iinfo(np.int64).max
        return encode_rows(self.columns, self._sizes) if fits else None

    def ranges_by(self, position: int, first: npt.NDArray[Any], values: npt.NDArray[Any]) -> tuple[Ids, Ids]:
        """Return ranges of `rows_by` with these values in the first column and in that at ``position``."""
        size, keys, _ = self._sort_by(position)
        is_there = (values >= 0) & (values < size) & (first >= 0)
        wanted = np.where(is_there, first.astype(np.int64) * size + values, -1)
        return np.searchsorted(keys, wanted, side="left"), np.searchsorted(keys, wanted, side="right")

    def rows_by(self, position: int) -> Ids:
        """Return the rows in the order of the first column and that at ``position``."""
        return self._sort_by(position)[2]

    def _sort_by(self, position: int) -> tuple[int, Ids, Ids]:
        if position not in self._by_column:
            size = int(self.columns[position].max(initial=-1)) + 1
            keys = self.columns[0] * size + self.columns[position]
            rows = np.argsort(keys, kind="stable")
            self._by_column[position] = size, keys[rows], rows
        return self._by_column[position]


def are_sorted(columns: Sequence[Ids]) -> bool:
    """Return whether rows stand in lexicographic order."""
    is_tied = np.ones(max(0, len(columns[0]) - 1), dtype=bool)
    for column in columns:
        if (column[1:] < column[:-1])[is_tied].any():
            return False
        is_tied &= column[1:] == column[:-1]
    return True
