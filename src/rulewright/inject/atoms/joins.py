"""Finding the groundings of clauses in a labelling: sparse joins over all rules, and all rows of a batch, at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np

from rulewright.data.index import Ids, expand_ranges, range_bounds
from rulewright.inject.atoms.clauses import AtomClause, ClauseAtom
from rulewright.inject.atoms.layout import AtomChannels, AtomLayout, Labels

MOST_ROWS = 2**20
"""How many rows one atom of a join may give at once; beyond that its input is split."""

LARGEST_TABLE = 2**16
"""How many ranges are looked up in a table even where there are fewer atoms."""

ROW = -1
"""The variable for the row of a batch, which all atoms of a grounding have in common."""

Column: TypeAlias = str | None
"""The type of what a column holds: entities of a type, or None for the rows of a batch."""


@dataclass(frozen=True)
class Groundings:
    """Groundings as columns: the index of the clause, and the value of each of its columns.

    ``bodies`` and ``heads`` hold the labels as positions in the flat labelling, -1 where a clause has fewer: one of
    the heads must be on where all of the body are.
    """

    clauses: Ids
    entities: Ids
    bodies: Ids
    heads: Ids

    def __len__(self) -> int:
        return len(self.clauses)

    def select(self, rows: Labels | Ids | slice) -> Groundings:
        """Return some of the groundings."""
        return Groundings(self.clauses[rows], self.entities[rows], self.bodies[rows], self.heads[rows])

    def is_violated(self, flat: Labels) -> Labels:
        """Return for each grounding whether a flat labelling violates it."""
        body = np.all(flat[self.bodies] | (self.bodies < 0), axis=1)
        return np.asarray(body & ~np.any(flat[self.heads] & (self.heads >= 0), axis=1))


class _AtomView(NamedTuple):
    """Atoms that a join looks for: those of a block with one of some channels, their dimensions as columns.

    ``dims`` has for each dimension, the row first, the column that it is, or ``~entity_index`` for a constant.
    """

    block: int
    dims: tuple[int, ...]
    channels: tuple[int, ...]


@dataclass(frozen=True)
class _OrderedClause:
    """A clause with its columns, variables and row, in the order in which the joins bind them.

    ``steps`` are the atoms that are joined: the view of each and the columns that this view has, in ascending order.
    ``body`` and ``heads`` are labels: block, channel, and for each dimension a column or ``~entity_index``.
    ``constants`` are the entities that it names, by type and index.
    """

    clause: AtomClause
    order: tuple[int, ...]
    types: tuple[Column, ...]
    apart: tuple[tuple[int, int], ...]
    steps: tuple[tuple[_AtomView, tuple[int, ...]], ...]
    body: tuple[tuple[int, int, tuple[int, ...]], ...]
    heads: tuple[tuple[int, int, tuple[int, ...]], ...]
    constants: frozenset[tuple[str, int]]

    @property
    def shape(self) -> object:
        """What clauses that are walked together have in common."""
        return (tuple(columns for _, columns in self.steps), self.types, self.apart, self.constants)


class ClauseJoins:
    """Clauses over the labels of atoms, planned once for all sizes.

    Clauses whose bodies join the same variables are walked together, over a tree of their steps: an atom costs as much
    as it has matches, however many rules there are. ``joined`` are the predicates whose atoms are joined, all where it
    is None; groundings then are those in which the atoms of these hold.
    """

    def __init__(
        self, clauses: Sequence[AtomClause], channels: AtomChannels, *, joined: Collection[str] | None = None
    ) -> None:
        self.channels = channels
        ordered = [_order_clause(clause, channels, joined) for clause in clauses]
        self.clauses = tuple(clause.clause for clause in ordered)
        self._columns = tuple(
            tuple(clause.order.index(variable) for variable in range(ROW, len(clause.order) - 1)) for clause in ordered
        )
        width = max((len(clause.order) for clause in ordered), default=1)
        self.body = _stack_labels([clause.body for clause in ordered], width)
        self.heads = _stack_labels([clause.heads for clause in ordered], width)
        self.views: dict[tuple[Column, ...], dict[_AtomView, int]] = {}  # by the types of their columns
        shapes: dict[object, list[int]] = {}
        for index, clause in enumerate(ordered):
            shapes.setdefault(clause.shape, []).append(index)
            for view, columns in clause.steps:
                known = self.views.setdefault(tuple(clause.types[column] for column in columns), {})
                known.setdefault(view, len(known))
        self.view_groups = {signature: _group_views(views, channels) for signature, views in self.views.items()}
        self.plans = [_JoinPlan(ordered, members, self.views) for members in shapes.values()]

    def read_values(self, clause_index: int, values: Sequence[int]) -> tuple[int, ...]:
        """Return the row of a grounding and the entities of the clause's variables, in the order of these."""
        return tuple(values[column] for column in self._columns[clause_index])

    def read_columns(self, clause_index: int, entities: Ids) -> Ids:
        """Return the same for many groundings of a clause."""
        return entities[:, self._columns[clause_index]]


class GroundingFinder:
    """Finds groundings in the labellings of one batch.

    ``exists[type]``, ``[rows, N]``, says which entities are no padding; without it all are.
    """

    def __init__(self, joins: ClauseJoins, layout: AtomLayout, exists: Mapping[str, Labels] | None = None) -> None:
        self.joins, self.layout, self.exists = joins, layout, exists or {}
        self.body, self.heads = (_place_labels(side, layout) for side in (joins.body, joins.heads))

    def find_violated(
        self, labels: Labels, *, limit: int | None = None, among: Labels | None = None
    ) -> Iterator[Groundings]:
        """Yield groundings that a flat labelling violates, at most ``limit``, of all clauses or ``among`` some."""
        for groundings in self.find_holding(labels):
            is_violated = groundings.is_violated(labels)
            violated = groundings.select(is_violated if among is None else is_violated & among[groundings.clauses])
            if limit is not None:
                violated = violated.select(slice(limit))
                limit -= len(violated)
            if len(violated):
                yield violated
            if limit == 0:
                return

    def find_holding(self, labels: Labels) -> Iterator[Groundings]:
        """Yield all groundings in which the atoms that are joined hold."""
        atoms = _AtomIndex(self.joins, self.layout, labels)
        for plan in self.joins.plans:
            yield from plan.match(atoms, self)

    def count_violations(self, labels: Labels) -> int:
        """Count the groundings that a labelling violates."""
        return sum(map(len, self.find_violated(labels)))


class _LabelTable(NamedTuple):
    """The labels of clauses, [clause, label]: their block and channel, -1 where a clause has fewer.

    ``constants[c, l, d]`` is the entity index at dimension d where that is one, and ``columns[c, l, d, v]`` is 1 where
    the dimension is column v.
    """

    block: Ids
    channel: Ids
    constants: Ids
    columns: Ids


class _PlacedLabels(NamedTuple):
    """Where the labels of clauses stand: ``base[c, l] + Σ_v factor[c, l, v] · value of column v``."""

    base: Ids
    factor: Ids
    is_missing: Labels

    def locate(self, clauses: Ids, entities: Ids, width: int) -> Ids:
        """Return where the labels of groundings stand in the flat labelling; -1 for padding."""
        factor = self.factor[clauses, :width, : entities.shape[1]]
        positions: Ids = np.einsum("glv,gv->gl", factor, entities)
        positions += self.base[clauses, :width]
        positions[self.is_missing[clauses, :width]] = -1
        return positions


class _RangeIndex:
    """Sorted keys of the atoms of views with the same types of columns; a key has the view and the columns as digits.

    Matches of a view's first columns are a range of keys, whatever their number.
    """

    def __init__(self, keys: Ids, n_views: int, radices: tuple[int, ...]) -> None:
        self._keys, self._n_views, self._radices = np.sort(keys), n_views, radices
        self._tables: dict[int, Ids] = {}

    def find_ranges(self, views: Ids, bound: Sequence[Ids]) -> tuple[Ids, Ids]:
        """Return where the atoms begin and end whose first columns are bound to given values."""
        prefix = views
        for radix, values in zip(self._radices, bound, strict=False):
            prefix = prefix * radix + values
        rest = prod(self._radices[len(bound) :])
        table = self._tables.get(len(bound))
        if table is None:
            count = self._n_views * prod(self._radices[: len(bound)])
            if count > max(LARGEST_TABLE, 4 * len(self._keys)):
                starts, ends = np.searchsorted(self._keys, [prefix * rest, (prefix + 1) * rest])
                return starts, ends
            table = self._tables[len(bound)] = range_bounds(np.bincount(self._keys // rest, minlength=count))
        return table[prefix], table[prefix + 1]

    def read_columns(self, matches: Ids, bound: int) -> Ids:
        """Return the columns of matches after the ones that are bound, as [match, column]."""
        keys = self._keys[matches]
        columns = np.empty((len(keys), len(self._radices) - bound), dtype=np.int64)
        for position in range(columns.shape[1] - 1, -1, -1):
            keys, columns[:, position] = np.divmod(keys, self._radices[bound + position])
        return columns


class _AtomIndex:
    """The atoms that hold in a labelling, for each view by the values of its columns."""

    def __init__(self, joins: ClauseJoins, layout: AtomLayout, labels: Labels) -> None:
        atoms: dict[int, tuple[Ids, ...]] = {}
        self.ranges: dict[tuple[Column, ...], _RangeIndex] = {}
        for signature, groups in joins.view_groups.items():
            radices = tuple(layout.rows if column is None else layout.sizes[column] for column in signature)
            keys = []
            for group in groups:
                if group.block not in atoms:
                    inside = np.flatnonzero(layout.block_of(labels, group.block))
                    atoms[group.block] = np.unravel_index(inside, layout.shapes[group.block])
                keys.append(group.encode(atoms[group.block], radices, layout.channels.blocks[group.block].batched))
            self.ranges[signature] = _RangeIndex(np.concatenate(keys), len(joins.views[signature]), radices)


@dataclass(frozen=True)
class _ViewGroup:
    """The views of a block with the same columns; ``bounds`` and ``views`` say which views have which channel."""

    block: int
    dims: tuple[int, ...]
    bounds: Ids
    views: Ids

    def encode(self, atoms: tuple[Ids, ...], radices: tuple[int, ...], batched: bool) -> Ids:
        """Return the keys of atoms, which are given as row, arguments and channel."""
        *dims, channels = atoms if batched else atoms[1:]
        columns: list[Ids | None] = [None] * len(radices)
        kept: Labels | None = None
        for values, target in zip(dims, self.dims, strict=True):
            if target < 0 or columns[target] is not None:
                same = values == (~target if target < 0 else columns[target])
                kept = same if kept is None else kept & same
            else:
                columns[target] = values
        if kept is not None:
            channels = channels[kept]
            columns = [None if values is None else values[kept] for values in columns]
        rows, members = _expand_rows(self.bounds[channels], self.bounds[channels + 1])
        keys = self.views[members]
        for radix, column in zip(radices, columns, strict=True):
            assert column is not None
            keys = keys * radix + column[rows]
        return keys


class _JoinPlan:
    """The clauses of one shape: the columns that their bodies join, and the tree of their steps.

    A node of the tree is a prefix of bodies, by its index among those of the same length; ``_child_bounds[p]`` says
    where the children of the nodes of length p begin, ``_child_views[p]`` which view each child adds.
    """

    def __init__(
        self,
        ordered: Sequence[_OrderedClause],
        members: Sequence[int],
        views: Mapping[tuple[Column, ...], Mapping[_AtomView, int]],
    ) -> None:
        chosen = [ordered[index] for index in members]
        self._types, self._apart, self._constants = chosen[0].types, chosen[0].apart, chosen[0].constants
        self._columns = tuple(columns for _, columns in chosen[0].steps)
        self._signatures = [tuple(self._types[column] for column in columns) for columns in self._columns]
        paths = [
            tuple(views[signature][view] for (view, _), signature in zip(clause.steps, self._signatures, strict=True))
            for clause in chosen
        ]
        self._child_bounds: list[Ids] = []
        self._child_views: list[Ids] = []
        nodes: dict[tuple[int, ...], int] = {(): 0}
        for length in range(1, len(self._columns) + 1):
            prefixes = sorted({path[:length] for path in paths})  # and so by parent
            counts = Counter(prefix[:-1] for prefix in prefixes)
            self._child_bounds.append(range_bounds([counts[parent] for parent in nodes]))
            self._child_views.append(np.array([prefix[-1] for prefix in prefixes], dtype=np.int64))
            nodes = {prefix: index for index, prefix in enumerate(prefixes)}
        leaves = [nodes[path] for path in paths]
        order = np.argsort(leaves, kind="stable")
        self._clauses = np.asarray(members, dtype=np.int64)[order]
        self._clause_bounds = range_bounds(np.bincount(leaves))
        self._body_width = max(len(clause.body) for clause in chosen)
        self._head_width = max(len(clause.heads) for clause in chosen)
        self._orders = {index: clause for index, clause in zip(members, chosen, strict=True) if clause.clause.orders}

    def match(self, atoms: _AtomIndex, finder: GroundingFinder) -> Iterator[Groundings]:
        """Yield the groundings of all clauses of the shape in which the atoms that are joined hold."""
        root = np.zeros(1, dtype=np.int64)
        for leaves, entities in self._walk(atoms, finder, 0, root, np.empty((1, 0), dtype=np.int64)):
            kept = self._exist(entities, finder)
            if kept is not None:
                leaves, entities = leaves[kept], entities[kept]
            rows, clauses = _expand_rows(self._clause_bounds[leaves], self._clause_bounds[leaves + 1])
            clauses, entities = self._clauses[clauses], entities[rows]
            if self._orders:
                kept = self._are_asked(clauses, entities)
                clauses, entities = clauses[kept], entities[kept]
            bodies = finder.body.locate(clauses, entities, self._body_width)
            heads = finder.heads.locate(clauses, entities, self._head_width)
            yield Groundings(clauses, entities, bodies, heads)

    def _exist(self, entities: Ids, finder: GroundingFinder) -> Labels | None:
        """Return which groundings have no padding among their entities; None where there is none."""
        if not finder.exists:
            return None
        kept: Labels | None = None
        rows = entities[:, self._types.index(None)]
        named = [(type_name, entities[:, column]) for column, type_name in enumerate(self._types) if type_name]
        for type_name, indices in (*named, *self._constants):
            if type_name in finder.exists:
                exists = finder.exists[type_name][rows, np.asarray(indices)]
                kept = exists if kept is None else kept & exists
        return kept

    def _are_asked(self, clauses: Ids, entities: Ids) -> Labels:
        """Return which groundings fulfil the comparisons of their clauses."""
        asked = np.ones(len(clauses), dtype=bool)
        for index, ordered in self._orders.items():
            chosen = np.flatnonzero(clauses == index)
            by_variable = {variable: entities[chosen, column] for column, variable in enumerate(ordered.order)}
            values = [by_variable[variable] for variable in range(len(ordered.order) - 1)]
            for comparison in ordered.clause.orders:
                asked[chosen] &= comparison.holds(values)
        return asked

    def _walk(
        self, atoms: _AtomIndex, finder: GroundingFinder, position: int, nodes: Ids, entities: Ids
    ) -> Iterator[tuple[Ids, Ids]]:
        """Extend partial groundings, a node and the values so far, by atoms and then by columns that none binds."""
        if not len(nodes):
            return
        n_bound = entities.shape[1]
        if position == len(self._columns):
            if n_bound == len(self._types):
                yield nodes, entities
                return
            type_name = self._types[n_bound]
            size = finder.layout.rows if type_name is None else finder.layout.sizes[type_name]
            starts = np.zeros(len(nodes), dtype=np.int64)
            for part in _split_rows(starts + size):
                rows, values = _expand_rows(starts[part], starts[part] + size)
                yield from self._bind(atoms, finder, position, nodes[part][rows], entities[part][rows], values[:, None])
            return
        ranges, columns = atoms.ranges[self._signatures[position]], self._columns[position]
        bound = [column for column in columns if column < n_bound]
        child_bounds = self._child_bounds[position]
        rows, children = _expand_rows(child_bounds[nodes], child_bounds[nodes + 1])
        entities = entities[rows]
        starts, ends = ranges.find_ranges(
            self._child_views[position][children], [entities[:, column] for column in bound]
        )
        if len(bound) == len(columns):
            kept = ends > starts
            yield from self._walk(atoms, finder, position + 1, children[kept], entities[kept])
            return
        for part in _split_rows(ends - starts):
            rows, matches = _expand_rows(starts[part], ends[part])
            new = ranges.read_columns(matches, len(bound))
            yield from self._bind(atoms, finder, position + 1, children[part][rows], entities[part][rows], new)

    def _bind(
        self, atoms: _AtomIndex, finder: GroundingFinder, position: int, nodes: Ids, entities: Ids, new: Ids
    ) -> Iterator[tuple[Ids, Ids]]:
        """Go on with newly bound columns where all that must differ do."""
        n_before = entities.shape[1]
        entities = np.concatenate([entities, new], axis=1)
        differ: Labels | None = None
        for one, other in self._apart:
            if n_before <= max(one, other) < entities.shape[1]:
                kept = entities[:, one] != (~other if other < 0 else entities[:, other])
                differ = kept if differ is None else differ & kept
        if differ is not None:
            nodes, entities = nodes[differ], entities[differ]
        yield from self._walk(atoms, finder, position, nodes, entities)


def _order_clause(clause: AtomClause, channels: AtomChannels, joined: Collection[str] | None) -> _OrderedClause:
    """Order the joined atoms of a body so that each meets the ones before, and the columns as they are bound."""

    def variables_of(atom: ClauseAtom) -> list[int]:
        batched = channels.blocks[channels[atom.predicate].block].batched
        return [*([ROW] if batched else []), *(argument for argument in atom.args if argument >= 0)]

    left = [atom for atom in clause.body if joined is None or atom.predicate in joined]
    order: list[int] = []
    steps: list[ClauseAtom] = []
    while left:
        atom = max(left, key=lambda atom: sum(variable in order for variable in variables_of(atom)))
        left.remove(atom)
        steps.append(atom)
        order += [variable for variable in dict.fromkeys(variables_of(atom)) if variable not in order]
    order += [variable for variable in (ROW, *range(len(clause.variables))) if variable not in order]
    column_of = {variable: column for column, variable in enumerate(order)}

    def view(atom: ClauseAtom) -> tuple[_AtomView, tuple[int, ...]]:
        placed = channels[atom.predicate]
        columns = tuple(sorted({column_of[variable] for variable in variables_of(atom)}))
        row = [ROW] if channels.blocks[placed.block].batched else []
        dims = [columns.index(column_of[variable]) for variable in row]
        dims += [argument if argument < 0 else columns.index(column_of[argument]) for argument in atom.args]
        return _AtomView(placed.block, tuple(dims), tuple(_channels_of(atom.classes, atom, channels))), columns

    def place(classes: Iterable[int], atom: ClauseAtom) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        args = (column_of[ROW], *(argument if argument < 0 else column_of[argument] for argument in atom.args))
        for channel in _channels_of(classes, atom, channels):
            yield channels[atom.predicate].block, channel, args

    body: list[tuple[int, int, tuple[int, ...]]] = []
    heads: list[tuple[int, int, tuple[int, ...]]] = []
    for atom in clause.body:
        if len(atom.classes) == 1:
            body += place(atom.classes, atom)
        else:  # not of one of several classes is of one of the others
            heads += place(set(range(channels[atom.predicate].width)) - atom.classes, atom)
    for atom in clause.heads:
        heads += place(atom.classes, atom)
    apart = tuple((column_of[one], other if other < 0 else column_of[other]) for one, other in clause.apart)
    types = tuple(None if variable == ROW else clause.types[variable] for variable in order)
    constants = frozenset(clause.constants).union(
        (type_name, ~argument)
        for atom in clause.atoms
        for type_name, argument in zip(channels.types_of(atom.predicate), atom.args, strict=True)
        if argument < 0
    )
    views = tuple(map(view, steps))
    return _OrderedClause(clause, tuple(order), types, apart, views, tuple(body), tuple(heads), constants)


def _channels_of(classes: Iterable[int], atom: ClauseAtom, channels: AtomChannels) -> list[int]:
    placed = channels[atom.predicate]
    return [placed.first + class_index for class_index in sorted(classes)] if placed.has_classes else [placed.first]


def _group_views(views: Mapping[_AtomView, int], channels: AtomChannels) -> list[_ViewGroup]:
    """Group views of the same block and columns, and say for each channel which of them have it."""
    groups: dict[tuple[int, tuple[int, ...]], list[tuple[int, int]]] = {}
    for view, index in views.items():
        groups.setdefault((view.block, view.dims), []).extend((channel, index) for channel in view.channels)
    found = []
    for (block, dims), members in groups.items():
        members.sort()
        of_channel, indices = (np.array(part, dtype=np.int64) for part in zip(*members, strict=True))
        counts = np.bincount(of_channel, minlength=channels.blocks[block].width)
        found.append(_ViewGroup(block, dims, range_bounds(counts), indices))
    return found


def _stack_labels(sides: Sequence[Sequence[tuple[int, int, tuple[int, ...]]]], n_columns: int) -> _LabelTable:
    """Return the labels of clauses as arrays."""
    width = max((len(labels) for labels in sides), default=0)
    dims = max((len(args) for labels in sides for _, _, args in labels), default=1)
    block = np.zeros((len(sides), width), dtype=np.int64)
    channel = np.full((len(sides), width), -1, dtype=np.int64)
    constants = np.zeros((len(sides), width, dims), dtype=np.int64)
    columns = np.zeros((len(sides), width, dims, n_columns), dtype=np.int64)
    for clause_index, labels in enumerate(sides):
        for position, (block_index, channel_index, arguments) in enumerate(labels):
            block[clause_index, position] = block_index
            channel[clause_index, position] = channel_index
            for dim, argument in enumerate(arguments):
                if argument < 0:
                    constants[clause_index, position, dim] = ~argument
                else:
                    columns[clause_index, position, dim, argument] = 1
    return _LabelTable(block, channel, constants, columns)


def _place_labels(table: _LabelTable, layout: AtomLayout) -> _PlacedLabels:
    """Return where the labels of clauses stand in a layout."""
    strides = layout.strides[table.block, : table.constants.shape[2]]
    base = layout.offsets[table.block] + table.channel + np.einsum("cld,cld->cl", table.constants, strides)
    return _PlacedLabels(base, np.einsum("cldv,cld->clv", table.columns, strides), table.channel < 0)


def _expand_rows(starts: Ids, ends: Ids) -> tuple[Ids, Ids]:
    """Return every member of the ranges from ``starts`` to ``ends``, behind the row of the range it came from."""
    counts = ends - starts
    return np.repeat(np.arange(len(counts)), counts), expand_ranges(starts, counts)


def _split_rows(counts: Ids) -> Iterator[slice]:
    """Split rows so that together they expand to at most MOST_ROWS (or are one row)."""
    ends = np.cumsum(counts)
    if not len(ends) or ends[-1] <= MOST_ROWS:
        yield slice(None)
        return
    start, done = 0, 0
    while start < len(counts):
        stop = max(start + 1, int(np.searchsorted(ends, done + MOST_ROWS, side="right")))
        yield slice(start, stop)
        start, done = stop, int(ends[stop - 1])
