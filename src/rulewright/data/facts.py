"""Facts as integer columns, all predicates of one signature together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rulewright.data.vocabulary import Domain
from rulewright.errors import DataError, unknown_name
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
    def stack(cls, kind: str, parts: Iterable[tuple[int, Sequence[Column]]]) -> FactTable:
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

    def columns_of(self, number: int) -> tuple[Column, ...]:
        """Return the columns of one predicate, as views."""
        # The needles have the type of the haystack, which would otherwise be converted as a whole at every call
        start, stop = np.searchsorted(self.predicate, np.array([number, number + 1], dtype=np.int32))
        return tuple(column[start:stop] for column in self.columns)

    def keep_rows(self, keep: npt.NDArray[np.bool_]) -> FactTable:
        """Return the rows where ``keep`` is true."""
        return FactTable(self.signature, self.predicate[keep], tuple(column[keep] for column in self.columns))


def distinct_rows(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Drop repeated rows, keeping the first of each in order.

    >>> [column.tolist() for column in distinct_rows([np.array([2, 1, 2]), np.array([5, 5, 5])])]
    [[2, 1], [5, 5]]
    """
    if len(columns[0]) == 0:
        return tuple(columns)
    keys = _packed(columns)
    if keys is None:
        order = np.lexsort(tuple(reversed(columns)))
        changed = np.zeros(len(order) - 1, dtype=bool)
        for column in columns:
            ordered = column[order]
            changed |= ordered[1:] != ordered[:-1]
    else:
        # Most tables repeat nothing, and sorting the keys alone shows it in half the time
        ordered = np.sort(keys)
        changed = ordered[1:] != ordered[:-1]
        order = np.empty(0, dtype=np.int64) if changed.all() else np.argsort(keys, kind="stable")
    if changed.all():
        return tuple(columns)
    keep = np.zeros(len(order), dtype=bool)
    keep[order[np.concatenate([[True], changed])]] = True  # both sorts are stable: of equal rows the earliest is first
    return tuple(column[keep] for column in columns)


def _packed(columns: Sequence[Column]) -> npt.NDArray[np.int64] | None:
    """Return one integer for each row, equal where rows are; None where they are not all integers or too wide."""
    if any(column.dtype.kind != "i" for column in columns):
        return None
    lows = [int(column.min()) for column in columns]
    widths = [int(column.max()) - low + 1 for column, low in zip(columns, lows, strict=True)]
    if math.prod(widths) > np.iinfo(np.int64).max:
        return None
    keys = np.zeros(len(columns[0]), dtype=np.int64)
    for column, low, width in zip(columns, lows, widths, strict=True):
        keys = keys * width + (column.astype(np.int64) - low)
    return keys


def checked_signature(declarations: Mapping[str, PredicateDeclaration], name: str, columns: Sequence[Column]) -> str:
    """Return a predicate's signature; columns that do not fit it are an error."""
    if name not in declarations:
        raise unknown_name("predicate", name, declarations)
    kind = signature(declarations[name])
    if len(columns) != len(kind) or len({len(column) for column in columns}) != 1:
        raise DataError(f"{name} needs {len(kind)} columns of one length, got {[len(column) for column in columns]}")
    return kind


def group_by_signature(
    declarations: Mapping[str, PredicateDeclaration], columns: Mapping[str, Sequence[Column]]
) -> dict[str, FactTable]:
    """Build one table per signature from each predicate's columns."""
    numbers = {name: number for number, name in enumerate(declarations)}
    groups: dict[str, list[tuple[int, Sequence[Column]]]] = {}
    for name, parts in columns.items():
        kind = checked_signature(declarations, name, parts)
        groups.setdefault(kind, []).append((numbers[name], parts))
    return {kind: FactTable.stack(kind, parts) for kind, parts in groups.items()}


def check_columns(
    declarations: Mapping[str, PredicateDeclaration],
    domains: Mapping[str, Domain],
    name: str,
    columns: Sequence[Column],
) -> None:
    """Refuse columns that are not ids of the declared types, finite numbers and class numbers, or cross worlds."""
    checked_signature(declarations, name, columns)
    if len(columns[0]) == 0:
        return
    declaration = declarations[name]
    worlds = None
    for place, column in enumerate(columns):
        kind = declaration.types[place] if place < declaration.arity else None
        if kind == NUMBER_TYPE:
            if not np.isfinite(column).all():
                raise DataError(f"argument {place + 1} of {name} must be finite numbers")
            continue
        domain = None if kind is None else domains[kind]
        first = 0 if domain is None else domain.start
        size = len(declaration.classes or ()) if domain is None else len(domain)
        low, high = int(column.min()), int(column.max())
        if low < first or high >= first + size:
            what = f"classes of {name}" if kind is None else f"ids of type {kind}"
            raise DataError(f"{what} are {first} … {first + size - 1}, got {low if low < first else high} in {name}")
        if domain is not None and domain.worlds is not None:
            here = domain.worlds[column - first]
            if worlds is not None and (here != worlds).any():
                raise DataError(f"a fact of {name} has arguments of two worlds; no fact crosses worlds")
            worlds = here


def check_agreement(
    declaration: PredicateDeclaration, true: Sequence[Column] | None, false: Sequence[Column] | None
) -> None:
    """Refuse distinct facts that contradict each other: two classes, or both true and false."""
    if declaration.classes is not None and false is not None and len(false[0]):
        raise DataError(f"{declaration.name} is multi-class: a fact of it names one class and is never false")
    if true is None:
        return
    if declaration.classes is not None:
        if len(distinct_rows(true[:-1])[0]) != len(true[0]):
            raise DataError(f"contradictory facts: {declaration.name} has two classes for the same arguments")
    elif false is not None:
        both = [np.concatenate(pair) for pair in zip(true, false, strict=True)]
        if len(distinct_rows(both)[0]) != len(both[0]):
            raise DataError(f"contradictory facts: {declaration.name} is both true and false for the same arguments")
