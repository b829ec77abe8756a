"""Drawing without repetition and joining, on whole arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rulewright.data.facts import Column
from rulewright.errors import DataError

Keys = npt.NDArray[np.int64]

LARGEST_SPACE = 2**62
"""Rows are drawn as 64-bit keys; a space may have no more of them than this."""


def sorted_distinct(keys: Keys) -> Keys:
    """Return the distinct keys in order; on large arrays many times faster than the hashing of ``numpy.unique``.

    >>> sorted_distinct(np.array([5, 1, 5])).tolist()
    [1, 5]
    """
    ordered = np.sort(keys)
    first = np.ones(len(keys), dtype=bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


def distinct_keys(random: np.random.Generator, *, space: int, count: int, excluded: npt.ArrayLike = ()) -> Keys:
    """Draw ``count`` distinct keys below ``space`` that are not among the (distinct) ``excluded``, in random order.

    >>> distinct_keys(np.random.default_rng(0), space=5, count=2, excluded=[0, 1, 4]).tolist()
    [2, 3]
    """
    taken = np.sort(np.asarray(excluded, dtype=np.int64))
    used = count + len(taken)
    if used > space:
        raise DataError(f"only {space - len(taken):,} rows are free, got a wish for {count:,}")
    if 4 * used > space:
        free = np.ones(space, dtype=bool)
        free[taken] = False
        return random.permutation(np.flatnonzero(free))[:count]
    found = np.empty(0, dtype=np.int64)
    while len(found) < count:
        # The surplus makes up for repetitions and excluded keys, so that one round almost always does
        wish = int((count - len(found)) * (1 + 2 * used / space)) + 16
        found = sorted_distinct(np.concatenate([found, random.integers(space, size=wish)]))
        if len(taken):
            place = np.minimum(np.searchsorted(taken, found), len(taken) - 1)
            found = found[taken[place] != found]
    return random.permutation(found)[:count]


def keys_of(columns: Sequence[Column], sizes: Sequence[int]) -> Keys:
    """Number rows of positions in mixed radix: the inverse of `rows_of`.

    >>> keys_of([np.array([0, 2]), np.array([1, 3])], [3, 4]).tolist()
    [1, 11]
    """
    keys = np.zeros(len(columns[0]), dtype=np.int64)
    for column, size in zip(columns, sizes, strict=True):
        keys = keys * size + column.astype(np.int64)
    return keys


def rows_of(keys: Keys, sizes: Sequence[Keys | int]) -> list[Keys]:
    """Turn keys back into columns of positions; a size may differ from row to row.

    >>> [column.tolist() for column in rows_of(np.array([1, 11]), [3, 4])]
    [[0, 2], [1, 3]]
    """
    columns: list[Keys] = []
    for size in reversed(sizes):
        keys, digit = np.divmod(keys, size)
        columns.append(digit)
    return columns[::-1]


def matching_pairs(left: Column, right: Column) -> tuple[Keys, Keys]:
    """Return all positions (i, j) with ``left[i] == right[j]``.

    >>> [part.tolist() for part in matching_pairs(np.array([7, 8, 9]), np.array([9, 7, 9]))]
    [[0, 2, 2], [1, 0, 2]]
    """
    order = np.argsort(right, kind="stable")
    ordered = right[order]
    first = np.searchsorted(ordered, left, side="left")
    counts = np.searchsorted(ordered, left, side="right") - first
    left_positions = np.repeat(np.arange(len(left)), counts)
    rank = np.arange(len(left_positions)) - np.repeat(np.cumsum(counts) - counts, counts)
    return left_positions, order[np.repeat(first, counts) + rank]
