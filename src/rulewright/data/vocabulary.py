"""Labels outside, integers inside: the entities of one type and their indices."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from rulewright.errors import DataError, UnknownNameError, unknown_name

EntityColumn = npt.NDArray[np.int32]

MOST_COMPARED = 20_000
"""The most labels among which an unknown one is compared with all, to suggest the nearest."""


def format_count(count: int, one: str, many: str) -> str:
    """Write a count with its noun.

    >>> format_count(1, "fact", "facts"), format_count(2000, "fact", "facts")
    ('1 fact', '2,000 facts')
    """
    return f"{count:,} {one if count == 1 else many}"


class Domain:
    """The entities of one type. Their indices are ``start … start + len − 1``; no two types share one.

    >>> people = Domain("person", ["ann", "bob"], start=10)
    >>> people.index_of("bob"), people.labels_of(np.array([10, 11])).tolist()
    (11, ['ann', 'bob'])
    """

    def __init__(
        self, name: str, labels: Sequence[str] | npt.NDArray[Any], *, start: int = 0, worlds: EntityColumn | None = None
    ) -> None:
        self.name = name
        self.labels: npt.NDArray[Any] = np.empty(len(labels), dtype=object)
        self.labels[:] = labels
        self.start = start
        self.worlds = worlds
        if worlds is not None and len(worlds) != len(self.labels):
            raise DataError(f"type {name} has {len(self.labels)} entities but {len(worlds)} worlds")

    def __len__(self) -> int:
        return len(self.labels)

    def __contains__(self, label: str) -> bool:
        return label in self._positions

    def __repr__(self) -> str:
        return f"Domain({self.name!r}, {format_count(len(self), 'entity', 'entities')})"

    @cached_property
    def _positions(self) -> dict[str, int]:
        positions = {label: position for position, label in enumerate(self.labels)}
        if len(positions) != len(self.labels):
            raise DataError(f"type {self.name} has the same label twice")
        return positions

    def index_of(self, label: str) -> int:
        """Return the index of an entity; an unknown label is an error with the nearest ones."""
        try:
            return self.start + self._positions[label]
        except KeyError:
            if len(self) <= MOST_COMPARED:
                raise unknown_name(self.name, label, self._positions) from None
            # too many to be compared with all: those that begin alike
            start = label[:3].casefold()
            alike = [str(known) for known in self.labels if str(known)[: len(start)].casefold() == start]
            near = difflib.get_close_matches(label, alike[:MOST_COMPARED], n=3, cutoff=0.6)
            hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
            raise UnknownNameError(f"unknown {self.name} {label!r} among {len(self):,}{hint}") from None

    def find(self, label: str) -> int | None:
        """Return the index of an entity, or None where there is no such entity."""
        position = self._positions.get(label)
        return None if position is None else self.start + position

    def find_all(self, labels: Iterable[str]) -> npt.NDArray[np.int64]:
        """Return the index of each of several entities, −1 where there is no such entity."""
        positions = np.array([self._positions.get(label, -1) for label in labels], dtype=np.int64)
        return np.where(positions < 0, -1, positions + self.start)

    def labels_of(self, entities: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return the labels of entities, given by index."""
        labels: npt.NDArray[Any] = self.labels[np.asarray(entities) - self.start]
        return labels

    def members(self, world: int | None = None) -> EntityColumn:
        """Return the indices of all entities, or of those in one world, in order."""
        if world is None or self.worlds is None:
            return np.arange(self.start, self.start + len(self), dtype=np.int32)
        return (np.flatnonzero(self.worlds == world) + self.start).astype(np.int32)


def lay_out_domains(
    domains: Iterable[tuple[str, Sequence[str] | npt.NDArray[Any], EntityColumn | None]],
) -> dict[str, Domain]:
    """Give each type its own range of indices, one after the other."""
    laid_out: dict[str, Domain] = {}
    start = 0
    for name, labels, worlds in domains:
        laid_out[name] = Domain(name, labels, start=start, worlds=worlds)
        start += len(labels)
    if start > np.iinfo(np.int32).max:
        raise DataError(f"{start:,} entities are more than the 2,147,483,647 that indices can count")
    return laid_out
