"""Index arithmetic on integer columns: what joins, walks and counts are made of."""

from __future__ import annotations

from collections.abc import Sequence
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
