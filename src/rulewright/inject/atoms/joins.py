"""Finding the groundings of clauses in a labelling: sparse joins over all rules at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from rulewright.data.index import Ids, expand_ranges, range_bounds
from rulewright.inject.atoms.clauses import PairAtom, PairClause
from rulewright.logic.chain import count_steps, encode_step, is_inverse, step_relation

Labels: TypeAlias = npt.NDArray[np.bool_]

MOST_ROWS = 2**20
"""How many rows one atom of a join may give at once; beyond that its input is split."""


@dataclass(frozen=True)
class Groundings:
    """Groundings as columns: the index of the clause, and the entity of each of its variables.

    ``bodies`` and ``heads`` hold the atoms as positions in the flat labelling, -1 where a clause has fewer.
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


class ClauseJoins:
    """The clauses of a decoder, planned once; finds their groundings in any labelling.

    Clauses whose bodies join the same variables are walked together, over a tree of their steps: an atom costs as much
    as it has matches, however many rules there are. In ``clauses`` variables have the order in which they are bound.
    """

    def __init__(self, clauses: Sequence[PairClause]) -> None:
        self.clauses = tuple(_order_body(clause) for clause in clauses)
        shapes: dict[object, list[int]] = {}
        for index, clause in enumerate(self.clauses):
            shapes.setdefault((_pairs(clause), len(clause.variables)), []).append(index)
        self._plans = [_JoinPlan(self.clauses, members) for members in shapes.values()]

    def find_violated(self, labels: Labels, *, limit: int | None = None) -> Iterator[Groundings]:
        """Yield groundings whose body holds and none of whose heads does, at most ``limit`` of them."""
        for groundings in self.find_holding(labels):
            violated = groundings.select(groundings.is_violated(labels.reshape(-1)))
            if limit is not None:
                violated = violated.select(slice(limit))
                limit -= len(violated)
            if len(violated):
                yield violated
            if limit == 0:
                return

    def find_holding(self, labels: Labels) -> Iterator[Groundings]:
        """Yield all groundings whose body holds."""
        atoms = _AtomIndex(labels)
        for plan in self._plans:
            yield from plan.match(atoms)

    def count_violations(self, labels: Labels) -> int:
        """Count the groundings that a labelling violates."""
        return sum(map(len, self.find_violated(labels)))


class _AtomIndex:
    """The true atoms of a labelling, each walked both ways, sorted by step and first entity."""

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.size, _, self.relations = labels.shape
        heads, tails, relations = np.unravel_index(np.flatnonzero(labels), labels.shape)
        steps = np.concatenate([encode_step(relations), encode_step(relations, inverse=True)])
        sources, targets = np.concatenate([heads, tails]), np.concatenate([tails, heads])
        keys = steps * self.size + sources
        order = np.argsort(keys, kind="stable")
        self.sources, self.targets = sources[order], targets[order]
        self.bounds = range_bounds(np.bincount(keys, minlength=count_steps(self.relations) * self.size))

    def holds(self, steps: Ids, first: Ids, second: Ids) -> Labels:
        """Return for each row whether a step leads from one entity to the other."""
        inverse = is_inverse(steps) == 1
        heads, tails = np.where(inverse, second, first), np.where(inverse, first, second)
        return np.asarray(self.labels[heads, tails, step_relation(steps)])


class _JoinPlan:
    """The clauses of one shape: the pairs of variables that their bodies join, and the tree of their steps.

    A node of the tree is a prefix of bodies, by its index among those of the same length; ``_child_bounds[p]`` says
    where the children of the nodes of length p begin, ``_child_steps[p]`` which step each child adds.
    """

    def __init__(self, clauses: Sequence[PairClause], members: Sequence[int]) -> None:
        chosen = [clauses[index] for index in members]
        self._pairs, self._variables = _pairs(chosen[0]), len(chosen[0].variables)
        paths = [tuple(encode_step(a.relation, a.first > a.second) for a in clause.body) for clause in chosen]
        self._child_bounds: list[Ids] = []
        self._child_steps: list[Ids] = []
        nodes: dict[tuple[int, ...], int] = {(): 0}
        for length in range(1, len(self._pairs) + 1):
            prefixes = sorted({path[:length] for path in paths})  # and so by parent
            counts = Counter(prefix[:-1] for prefix in prefixes)
            self._child_bounds.append(range_bounds([counts[parent] for parent in nodes]))
            self._child_steps.append(np.array([prefix[-1] for prefix in prefixes], dtype=np.int64))
            nodes = {prefix: index for index, prefix in enumerate(prefixes)}
        leaves = [nodes[path] for path in paths]
        order = np.argsort(leaves, kind="stable")
        self._clauses = np.asarray(members, dtype=np.int64)[order]
        self._clause_bounds = range_bounds(np.bincount(leaves))
        self._bodies = _stack_atoms([chosen[position].body for position in order])
        self._heads = _stack_atoms([chosen[position].heads for position in order])

    def match(self, atoms: _AtomIndex) -> Iterator[Groundings]:
        """Yield the groundings of all clauses of the shape whose body holds."""
        root = np.zeros(1, dtype=np.int64)
        for leaves, entities in self._walk(atoms, 0, root, np.empty((1, 0), dtype=np.int64)):
            rows, clauses = _expand_rows(self._clause_bounds[leaves], self._clause_bounds[leaves + 1])
            entities = entities[rows]
            bodies, heads = (_locate(side[clauses], entities, atoms) for side in (self._bodies, self._heads))
            yield Groundings(self._clauses[clauses], entities, bodies, heads)

    def _walk(self, atoms: _AtomIndex, position: int, nodes: Ids, entities: Ids) -> Iterator[tuple[Ids, Ids]]:
        """Extend partial groundings, a node and the entities so far, by body atoms and then by unbound variables."""
        if not len(nodes):
            return
        bound = entities.shape[1]
        if position == len(self._pairs):
            if bound == self._variables:
                yield nodes, entities
                return
            starts = np.zeros(len(nodes), dtype=np.int64)
            for part in _split_rows(starts + atoms.size):
                rows, values = _expand_rows(starts[part], starts[part] + atoms.size)
                yield from self._bind(atoms, position, nodes[part][rows], entities[part][rows], values[:, None])
            return
        first, second = self._pairs[position]
        child_bounds = self._child_bounds[position]
        rows, children = _expand_rows(child_bounds[nodes], child_bounds[nodes + 1])
        entities, steps = entities[rows], self._child_steps[position][children]
        if second < bound:
            kept = atoms.holds(steps, entities[:, first], entities[:, second])
            yield from self._walk(atoms, position + 1, children[kept], entities[kept])
            return
        binds_first = first >= bound
        keys = steps * atoms.size + (0 if binds_first else entities[:, first])
        starts, ends = atoms.bounds[keys], atoms.bounds[keys + (atoms.size if binds_first else 1)]
        for part in _split_rows(ends - starts):
            rows, matches = _expand_rows(starts[part], ends[part])
            new = atoms.targets[matches][:, None]
            if binds_first:
                new = np.concatenate([atoms.sources[matches][:, None], new], axis=1)
            yield from self._bind(atoms, position + 1, children[part][rows], entities[part][rows], new)

    def _bind(self, atoms: _AtomIndex, position: int, nodes: Ids, entities: Ids, new: Ids) -> Iterator[tuple[Ids, Ids]]:
        """Go on with newly bound variables where all entities are distinct."""
        distinct = np.ones(len(new), dtype=bool)
        for old_column in entities.T:
            for new_column in new.T:
                distinct &= old_column != new_column
        yield from self._walk(atoms, position, nodes[distinct], np.concatenate([entities, new], axis=1)[distinct])


def _order_body(clause: PairClause) -> PairClause:
    """Order a clause's body so that each atom meets the ones before, and its variables as they are bound."""
    left = list(clause.body)
    order: list[int] = []
    body = []
    while left:
        atom = max(left, key=lambda atom: (atom.first in order) + (atom.second in order))
        left.remove(atom)
        body.append(atom)
        order += [variable for variable in atom[1:] if variable not in order]
    unbound = [variable for variable in range(len(clause.variables)) if variable not in order]
    return replace(clause, body=tuple(body)).reorder_variables([*order, *unbound])


def _pairs(clause: PairClause) -> tuple[tuple[int, int], ...]:
    """Return the variables that each body atom joins, the one that is bound first in front."""
    return tuple((min(atom[1:]), max(atom[1:])) for atom in clause.body)


def _stack_atoms(sides: Sequence[Sequence[PairAtom]]) -> Ids:
    """Return atoms as [clause, position, (relation, first, second)], -1 where a clause has fewer than the longest."""
    width = max((len(atoms) for atoms in sides), default=0)
    table = np.full((len(sides), width, 3), -1, dtype=np.int64)
    for row, atoms in enumerate(sides):
        if atoms:
            table[row, : len(atoms)] = atoms
    return table


def _locate(side: Ids, entities: Ids, atoms: _AtomIndex) -> Ids:
    """Return where ground atoms stand in the flat labelling; -1 for padding."""
    relation, first, second = (side[:, :, part] for part in range(3))
    heads, tails = (np.take_along_axis(entities, np.maximum(variable, 0), axis=1) for variable in (first, second))
    return np.where(relation < 0, -1, (heads * atoms.size + tails) * atoms.relations + relation)


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
