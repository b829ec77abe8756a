"""Facts as integer columns, all predicates of one signature together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rulewright.data.index import encode_rows
from rulewright.data.vocabulary import Domain
from rulewright.errors import DataError, unknown_name
from rulewright.logic import NUMBER_TYPE, PredicateDeclaration, quote

Column = npt.NDArray[Any]


def signature(declaration: PredicateDeclaration) -> str:
    """Return how a predicate's facts are stored: ``e`` an entity, ``n`` a number, a last ``c`` the class.

    >>> signature(PredicateDeclaration("age", ("person", "number")))
    'en'
    >>> signature(PredicateDeclaration("label", ("token",), ("b", "o")))
    'ec'
    """
    letters = "".join("n" if type_name == NUMBER_TYPE else "e" for type_name in declaration.types)
    return letters if declaration.classes is None else letters + "c"


def check_arguments(declaration: PredicateDeclaration) -> None:
    """Refuse a predicate without arguments: facts are about entities.

    >>> check_arguments(PredicateDeclaration("rain"))
    Traceback (most recent call last):
    ...
    rulewright.errors.DataError: rain has no argument, and facts are about entities: write rain(day1), or use rules \
with it in a LogicLayer, ConsistencyLoss or RuleDecoder
    """
    if not declaration.types:
        name = quote(declaration.name)
        raise DataError(
            f"{name} has no argument, and facts are about entities: write {name}(day1), or use rules with it in a "
            "LogicLayer, ConsistencyLoss or RuleDecoder"
        )


def empty_columns(letters: str) -> tuple[Column, ...]:
    """Return columns of length zero for a signature."""
    return tuple(np.empty(0, dtype=np.float64 if letter == "n" else np.int32) for letter in letters)


@dataclass(frozen=True)
class FactTable:
    """The facts of all predicates with one signature, sorted by predicate; a predicate's facts are a slice."""

    signature: str
    predicate: npt.NDArray[np.int32]
    columns: tuple[Column, ...]

    @classmethod
    def stack(cls, letters: str, parts: Mapping[int, Sequence[Column]]) -> FactTable:
        """Put the columns of several predicates, given under their indices, one below the other."""
        ordered = sorted(parts)
        sizes = [len(parts[index][0]) for index in ordered]
        columns = tuple(
            np.concatenate([empty, *(parts[index][position] for index in ordered)]).astype(empty.dtype, copy=False)
            for position, empty in enumerate(empty_columns(letters))
        )
        return cls(letters, np.repeat(np.array(ordered, dtype=np.int32), sizes), columns)

    def __len__(self) -> int:
        return len(self.predicate)

    def columns_of(self, predicate_index: int) -> tuple[Column, ...]:
        """Return the columns of one predicate, as views."""
        # The needles have the type of the haystack, which would otherwise be converted as a whole at every call
        start, stop = np.searchsorted(self.predicate, np.array([predicate_index, predicate_index + 1], dtype=np.int32))
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
    keys = _encode(columns)
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


def _encode(columns: Sequence[Column]) -> npt.NDArray[np.int64] | None:
    """Return one integer for each row, equal where rows are; None where they are not all integers or too wide."""
    if any(column.dtype.kind != "i" for column in columns):
        return None
    lows = [int(column.min()) for column in columns]
    widths = [int(column.max()) - low + 1 for column, low in zip(columns, lows, strict=True)]
    if math.prod(widths) > np.iinfo(np.int64).max:
        return None
    return encode_rows([column.astype(np.int64) - low for column, low in zip(columns, lows, strict=True)], widths)


def _check_signature(declarations: Mapping[str, PredicateDeclaration], name: str, columns: Sequence[Column]) -> str:
    """Return a predicate's signature; columns that do not fit it are an error."""
    if name not in declarations:
        raise unknown_name("predicate", name, declarations)
    letters = signature(declarations[name])
    if len(columns) != len(letters) or len({len(column) for column in columns}) != 1:
        raise DataError(f"{name} needs {len(letters)} columns of one length, got {[len(column) for column in columns]}")
    return letters


def group_by_signature(
    declarations: Mapping[str, PredicateDeclaration], columns: Mapping[str, Sequence[Column]]
) -> dict[str, FactTable]:
    """Build one table per signature from each predicate's columns."""
    indices = {name: index for index, name in enumerate(declarations)}
    groups: dict[str, dict[int, Sequence[Column]]] = {}
    for name, parts in columns.items():
        letters = _check_signature(declarations, name, parts)
        groups.setdefault(letters, {})[indices[name]] = parts
    return {letters: FactTable.stack(letters, parts) for letters, parts in groups.items()}


def check_columns(
    declarations: Mapping[str, PredicateDeclaration],
    domains: Mapping[str, Domain],
    name: str,
    columns: Sequence[Column],
) -> None:
    """Refuse columns that are not indices of the declared types, finite numbers and classes, or that cross worlds."""
    _check_signature(declarations, name, columns)
    if len(columns[0]) == 0:
        return
    declaration, fact_worlds = declarations[name], None
    for position, column in enumerate(columns):
        type_name = declaration.types[position] if position < declaration.arity else None
        if type_name == NUMBER_TYPE:
            if not np.isfinite(column).all():
                raise DataError(f"argument {position + 1} of {name} must be finite numbers")
            continue
        domain = None if type_name is None else domains[type_name]
        first = 0 if domain is None else domain.start
        size = len(declaration.classes or ()) if domain is None else len(domain)
        low, high = int(column.min()), int(column.max())
        if low < first or high >= first + size:
            what = f"classes of {name}" if type_name is None else f"ids of type {type_name}"
            raise DataError(f"{what} are {first} … {first + size - 1}, got {low if low < first else high} in {name}")
        if domain is not None and domain.worlds is not None:
            worlds = domain.worlds[column - first]
            if fact_worlds is not None and (worlds != fact_worlds).any():
                raise DataError(f"a fact of {name} has arguments of two worlds; no fact crosses worlds")
            fact_worlds = worlds


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
