"""Tables of facts as columns: finding rows in one another, dropping columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Columns: TypeAlias = tuple[npt.NDArray[Any], ...]
Ids: TypeAlias = npt.NDArray[np.int64]

_COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "=": np.equal,
    "!=": np.not_equal,
}


def codes(columns: Sequence[npt.NDArray[Any]]) -> Ids:
    """Return a number for each row, the same where rows are; numbers follow the order of rows.

    >>> codes([np.array([7, 7, 3]), np.array([1.5, 0.5, 1.5])]).tolist()
    [2, 1, 0]
    """
    found = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, place = np.unique(column, return_inverse=True)
        found = found * max(1, len(values)) + place.reshape(-1)
        found = np.unique(found, return_inverse=True)[1].reshape(-1)  # never wider than the number of rows
    return found


def lookup(table: Sequence[npt.NDArray[Any]], wanted: Sequence[npt.NDArray[Any]]) -> Ids:
    """Return the place in a table of each wanted row; −1 where it is not there.

    >>> lookup([np.array([4, 6])], [np.array([6, 5])]).tolist()
    [1, -1]
    """
    size = len(table[0])
    every = codes([np.concatenate(pair) for pair in zip(table, wanted, strict=True)])
    place = np.full(int(every.max(initial=0)) + 1, -1, dtype=np.int64)
    place[every[:size]] = np.arange(size)
    return place[every[size:]]


def projected(columns: Sequence[npt.NDArray[Any]]) -> tuple[Columns, Ids]:
    """Return the different rows, in order, and for each given row which of them it is."""
    every = codes(columns)
    _, first = np.unique(every, return_index=True)
    return tuple(column[first] for column in columns), every


def sorted_rows(columns: Sequence[npt.NDArray[Any]]) -> Columns:
    """Return the rows in order, so that they do not depend on how a database found them."""
    order = np.lexsort(tuple(reversed(columns)))
    return tuple(column[order] for column in columns)


def compared(operator: str, left: npt.NDArray[Any], right: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Compare row by row; a number and an entity are never equal."""
    if (left.dtype.kind == "f") != (right.dtype.kind == "f"):
        return np.full(len(left), operator == "!=")
    found: npt.NDArray[np.bool_] = _COMPARED[operator](left, right)
    return found
