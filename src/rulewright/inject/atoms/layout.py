"""Where the labels of all atoms of a batch stand in one flat vector: a truth value each, or one for each class."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rulewright.data.index import Ids, range_starts
from rulewright.inject.atom_space import AtomSpace

Labels: TypeAlias = npt.NDArray[np.bool_]
Floats: TypeAlias = npt.NDArray[np.float64]


class AtomBlock(NamedTuple):
    """Predicates with arguments of the same types: their labels stand side by side, as the channels of one array.

    The array is ``[rows, *arguments, width]``; where the block is not ``batched``, all rows share what is in it.
    """

    types: tuple[str, ...]
    batched: bool
    names: tuple[str, ...]
    width: int


class Channels(NamedTuple):
    """Where a predicate stands in its block: one channel, or one for each of its classes."""

    block: int
    first: int
    width: int
    has_classes: bool


class AtomChannels:
    """The blocks of some predicates of a space, whatever the sizes of the types.

    Relations that are given in one tensor are one block in their order. Predicates that are ``shared`` have the same
    values in all rows of a batch.

    >>> space = AtomSpace("predicate tag(token) in {b, i, o}. predicate long(token). closed next. "
    ...                   "hard tag(X) in {i} & next(Y, X) => !tag(Y) in {o}.")
    >>> channels = AtomChannels(space, ["tag", "next", "long"], shared=["next"])
    >>> [(block.names, block.width) for block in channels.blocks], channels["long"].first
    ([(('tag', 'long'), 4), (('next',), 1)], 3)
    """

    def __init__(self, space: AtomSpace, names: Iterable[str], shared: Collection[str] = ()) -> None:
        groups: dict[tuple[object, ...], list[str]] = {}
        stacked = space.relations or ()
        for name in names:
            key = (space.predicates[name].types, name not in shared, name in stacked)
            groups.setdefault(key, []).append(name)
        blocks: list[AtomBlock] = []
        self._channels: dict[str, Channels] = {}
        for members in groups.values():
            width = 0
            for name in members:
                classes = space.predicates[name].classes
                n_labels = 1 if classes is None else len(classes)
                self._channels[name] = Channels(len(blocks), width, n_labels, classes is not None)
                width += n_labels
            types, batched = space.predicates[members[0]].types, members[0] not in shared
            blocks.append(AtomBlock(types, batched, tuple(members), width))
        self.blocks = tuple(blocks)
        self.has_classes = any(channels.has_classes for channels in self._channels.values())

    def __getitem__(self, name: str) -> Channels:
        return self._channels[name]

    def __contains__(self, name: object) -> bool:
        return name in self._channels

    def types_of(self, name: str) -> tuple[str, ...]:
        """Return the types of a predicate's arguments."""
        return self.blocks[self[name].block].types


class GroundAtom(NamedTuple):
    """An atom of one row of a batch, by entity indices."""

    predicate: str
    row: int
    args: tuple[int, ...]


class AtomLayout:
    """The blocks of predicates for given sizes, one after the other in a flat vector of ``size`` labels.

    ``strides[b, d]`` is how far apart neighbours are along dimension d of block b, the first of which is the row.
    """

    def __init__(self, channels: AtomChannels, rows: int, sizes: Mapping[str, int]) -> None:
        self.channels, self.rows, self.sizes = channels, rows, sizes
        self.shapes = [
            (rows if block.batched else 1, *(sizes[type_name] for type_name in block.types), block.width)
            for block in channels.blocks
        ]
        counts = [prod(shape) for shape in self.shapes]
        self.offsets: Ids = range_starts(counts)
        self.size = sum(counts)
        arity = max((len(block.types) for block in channels.blocks), default=0)
        self.strides: Ids = np.zeros((len(counts), arity + 1), dtype=np.int64)
        for index, (block, shape) in enumerate(zip(channels.blocks, self.shapes, strict=True)):
            for dim in range(0 if block.batched else 1, len(shape) - 1):
                self.strides[index, dim] = prod(shape[dim + 1 :])

    def block_of(self, flat: npt.NDArray[Any], block_index: int) -> npt.NDArray[Any]:
        """Return a view of a flat vector: the labels of one block, ``[rows, *arguments, width]``."""
        start, shape = int(self.offsets[block_index]), self.shapes[block_index]
        return flat[start : start + prod(shape)].reshape(shape)

    def predicate_of(self, flat: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
        """Return a view of a flat vector: what one predicate has, ``[rows, *arguments, classes or 1]``."""
        channels = self.channels[name]
        return self.block_of(flat, channels.block)[..., channels.first : channels.first + channels.width]

    def read_atoms(self, positions: Ids) -> list[GroundAtom]:
        """Return the atoms of labels."""
        atoms: list[GroundAtom | None] = [None] * len(positions)
        for index, (block, shape) in enumerate(zip(self.channels.blocks, self.shapes, strict=True)):
            inside = positions - self.offsets[index]
            chosen = np.flatnonzero((inside >= 0) & (inside < prod(shape)))
            if not len(chosen):
                continue
            names = [name for name in block.names for _ in range(self.channels[name].width)]
            columns = [column.tolist() for column in np.unravel_index(inside[chosen], shape)]
            for position, row, *args, channel in zip(chosen.tolist(), *columns, strict=True):
                atoms[position] = GroundAtom(names[channel], row, tuple(args))
        return [atom for atom in atoms if atom is not None]

    def find_choices(self) -> Choices | None:
        """Return which labels are classes of one atom; None where no predicate has classes."""
        if not self.channels.has_classes:
            return None
        first, width = np.arange(self.size), np.ones(self.size, dtype=np.int64)
        for block in self.channels.blocks:
            for name in block.names:
                channels = self.channels[name]
                if channels.has_classes:
                    labels = self.predicate_of(first, name)
                    labels[...] = labels[..., :1].copy()
                    self.predicate_of(width, name)[...] = channels.width
        return Choices(first, width)


class Choices:
    """Which labels exclude each other because they are the classes of one atom, exactly one of which is its own.

    ``first`` has for each label the first class of its atom and ``width`` how many classes that has; a label that is a
    truth value stands for itself, with a width of 1.
    """

    def __init__(self, first: Ids, width: Ids) -> None:
        self.first, self.width = first, width

    def members(self, position: int) -> range:
        """Return the labels of an atom."""
        start = int(self.first[position])
        return range(start, start + int(self.width[position]))

    def starts(self) -> Ids:
        """Return the first label of every atom."""
        return np.flatnonzero(self.first == np.arange(len(self.first)))

    def select(self, positions: Sequence[int] | Ids) -> Choices:
        """Return the choices among some labels, in ascending order, that have all classes of the atoms they have."""
        return Choices(np.searchsorted(positions, self.first[positions]), self.width[positions])

    def append(self, count: int) -> Choices:
        """Return the same with so many truth values behind."""
        first = np.arange(len(self.first), len(self.first) + count)
        return Choices(np.concatenate([self.first, first]), np.concatenate([self.width, np.ones_like(first)]))
