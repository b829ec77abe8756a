"""Facts as integer columns, all predicates of one signature together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rulewright.errors import DataError
from rulewright.logic import NUMBER_TYPE, PredicateDeclaration

Column = npt.NDArray[Any]


def signature(declaration: PredicateDeclaration) -> str:
    """Return how a predicate's facts are stored: ``e`` an entity, ``n`` a number, a last ``c`` the class.

    >>> signature(PredicateDeclaration("age", ("person", "number")))
    'en'
    >>> signature(PredicateDeclaration("label", ("token",), ("b", "o")))
    'ec'
    """
    places = "".join("n" if each == NUMBER_TYPE else "e" for each in declaration.types)
    return places if declaration.classes is None else places + "c"


def empty_columns(kind: str) -> tuple[Column, ...]:
    """Return columns of length zero for a signature."""
    return tuple(np.empty(0, dtype=np.float64 if place == "n" else np.int32) for place in kind)


@dataclass(frozen=True)
class FactTable:
    """The facts of all predicates with one signature, sorted by predicate; a predicate's facts are a slice."""

    signature: str
    predicate: npt.NDArray[np.int32]
    columns: tuple[Column, ...]

    @classmethod
    def stacked(cls, kind: str, parts: Iterable[tuple[int, Sequence[Column]]]) -> FactTable:
        """Put the columns of several predicates, given with their numbers, one below the other."""
        ordered = sorted(parts, key=lambda part: part[0])
        sizes = [len(columns[0]) for _, columns in ordered]
        predicate = np.repeat(np.array([number for number, _ in ordered], dtype=np.int32), sizes)
        columns = tuple(
            np.concatenate([empty, *(columns[place] for _, columns in ordered)]).astype(empty.dtype, copy=False)
            for place, empty in enumerate(empty_columns(kind))
        )
        return cls(kind, predicate, columns)

    def __len__(self) -> int:
        return len(self.predicate)

    def of(self, number: int) -> tuple[Column, ...]:
        """Return the columns of one predicate, as views."""
        start, stop = np.searchsorted(self.predicate, [number, number + 1])
        return tuple(column[start:stop] for column in self.columns)

    def kept(self, keep: npt.NDArray[np.bool_]) -> FactTable:
        """Return the rows where ``keep`` is true."""
        return FactTable(self.signature, self.predicate[keep], tuple(column[keep] for column in self.columns))


def distinct_rows(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Drop repeated rows, keeping the first of each in order."""
    if len(columns[0]) == 0:
        return tuple(columns)
    order = np.lexsort(tuple(reversed(columns)))
    different = np.ones(len(order), dtype=bool)
    changed = np.zeros(len(order) - 1, dtype=bool)
    for column in columns:
        ordered = column[order]
        changed |= ordered[1:] != ordered[:-1]
    different[1:] = changed
    if different.all():
        return tuple(columns)
    first = np.sort(order[different])  # lexsort is stable: the first of equal rows is the earliest
    return tuple(column[first] for column in columns)


def group_by_signature(
    declarations: Mapping[str, PredicateDeclaration], columns: Mapping[str, Sequence[Column]]
) -> dict[str, FactTable]:
    """Build one table per signature from each predicate's columns."""
    numbers = {name: number for number, name in enumerate(declarations)}
    groups: dict[str, list[tuple[int, Sequence[Column]]]] = {}
    for name, parts in columns.items():
        kind = signature(declarations[name])
        if len(parts) != len(kind) or len({len(part) for part in parts}) != 1:
            raise DataError(f"{name} needs {len(kind)} columns of one length, got {[len(part) for part in parts]}")
        groups.setdefault(kind, []).append((numbers[name], parts))
    return {kind: FactTable.stacked(kind, parts) for kind, parts in groups.items()}
