"""Finding the groundings of clauses in a labelling: sparse joins over all rules at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rulewright.inject.pairs.clauses import PairClause

Labels: TypeAlias = npt.NDArray[np.bool_]
Integers: TypeAlias = npt.NDArray[np.int64]

LARGEST_STEP = 2**20
"""How many rows one step of a join may give; beyond that its input is split."""


@dataclass(frozen=True)
class Groundings:
    """Groundings as columns: the clause's number, and the entity of each of its variables.

    ``bodies`` and ``heads`` hold the atoms as positions in the flat labelling, -1 where a clause has fewer.
    """

    clause: Integers
    entities: Integers
    bodies: Integers
    heads: Integers

    def __len__(self) -> int:
        return len(self.clause)

    def only(self, kept: Labels | slice) -> Groundings:
        """Return the groundings where ``kept`` is true."""
        return Groundings(self.clause[kept], self.entities[kept], self.bodies[kept], self.heads[kept])

    def violated_in(self, flat: Labels) -> Labels:
        """Tell which groundings a flat labelling violates."""
        body = np.all(flat[self.bodies] | (self.bodies < 0), axis=1)
        return np.asarray(body & ~np.any(flat[self.heads] & (self.heads >= 0), axis=1))


class Step(NamedTuple):
    """One step of a join: bind both variables of an atom, its second, none (a check), or a variable to anything."""

    kind: Literal["both", "second", "check", "any"]
    first: int
    second: int


class ClauseJoins:
    """The clauses of a decoder, planned once; finds their groundings in any labelling.

    Clauses whose bodies join the same variables are walked together, over a tree of their relations: a step costs as
    much as it has matches, however many rules there are. ``clauses`` are renumbered: variables are bound in order.
    """

    def __init__(self, clauses: Sequence[PairClause], relations: int) -> None:
        self.relations = relations
        planned = [_planned(clause) for clause in clauses]
        self.clauses = tuple(clause for clause, _ in planned)
        shapes: dict[tuple[Step, ...], list[int]] = {}
        for number, (_, steps) in enumerate(planned):
            shapes.setdefault(steps, []).append(number)
        self._plans = [_Plan(steps, members, self.clauses, relations) for steps, members in shapes.items()]

    def violated(self, labels: Labels, *, limit: int | None = None) -> Iterator[Groundings]:
        """Yield groundings whose body holds and none of whose heads does, at most ``limit`` of them."""
        facts = _Facts(labels)
        for plan in self._plans:
            for groundings in plan.matches(facts):
                found = groundings.only(groundings.violated_in(facts.flat))
                if limit is not None:
                    found = found.only(slice(limit))
                    limit -= len(found)
                if len(found):
                    yield found
                if limit == 0:
                    return

    def holding(self, labels: Labels) -> Iterator[Groundings]:
        """Yield all groundings whose body holds."""
        facts = _Facts(labels)
        for plan in self._plans:
            yield from plan.matches(facts)

    def violations(self, labels: Labels) -> int:
        """Count the groundings that a labelling violates."""
        return sum(len(each) for each in self.violated(labels))


class _Facts:
    """The true atoms of a labelling, sorted by oriented relation and first entity."""

    def __init__(self, labels: Labels) -> None:
        self.labels, self.flat = labels, labels.reshape(-1)
        self.size, _, self.relations = labels.shape
        pair, relation = np.divmod(np.flatnonzero(self.flat), self.relations)
        first, second = np.divmod(pair, self.size)
        oriented = np.concatenate([relation, relation + self.relations])
        sources = np.concatenate([first, second])
        targets = np.concatenate([second, first])
        key = oriented * self.size + sources
        order = np.argsort(key, kind="stable")
        self.sources, self.targets = sources[order], targets[order]
        counts = np.bincount(key, minlength=2 * self.relations * self.size)
        self.starts = np.concatenate([[0], np.cumsum(counts)])

    def holds(self, oriented: Integers, first: Integers, second: Integers) -> npt.NDArray[np.bool_]:
        """Tell for each row whether an oriented relation holds."""
        inverse = oriented >= self.relations
        head, tail = np.where(inverse, second, first), np.where(inverse, first, second)
        return np.asarray(self.labels[head, tail, oriented - self.relations * inverse])


class _Tree:
    """The oriented relations of several bodies as a tree; level by level, the children of each node."""

    def __init__(self, sequences: Sequence[tuple[int, ...]]) -> None:
        self.starts: list[Integers] = []
        self.relations: list[Integers] = []
        nodes: dict[tuple[int, ...], int] = {(): 0}
        for level in range(len(sequences[0])):
            parents = list(nodes)
            nodes = {prefix: place for place, prefix in enumerate(sorted({each[: level + 1] for each in sequences}))}
            # Children are sorted by parent, so a node's number is its place among all children of the level.
            counts = [0] * len(parents)
            number = {prefix: place for place, prefix in enumerate(parents)}
            for prefix in nodes:
                counts[number[prefix[:-1]]] += 1
            self.starts.append(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
            self.relations.append(np.array([prefix[-1] for prefix in nodes], dtype=np.int64))
        self.leaf = [nodes[each] for each in sequences]


class _Plan:
    """The clauses of one shape: the steps they share, and the tree of their relations."""

    def __init__(
        self, steps: tuple[Step, ...], members: Sequence[int], clauses: Sequence[PairClause], relations: int
    ) -> None:
        self._steps = steps
        chosen = [clauses[number] for number in members]
        self._tree = _Tree(
            [tuple(atom.relation + relations * (atom.first > atom.second) for atom in clause.body) for clause in chosen]
        )
        order = np.argsort(self._tree.leaf, kind="stable")
        self._clauses = np.asarray(members, dtype=np.int64)[order]
        leaves = max(self._tree.leaf) + 1
        self._clause_starts = np.concatenate([[0], np.cumsum(np.bincount(self._tree.leaf, minlength=leaves))])
        self._bodies = _padded([chosen[place].body for place in order])
        self._heads = _padded([chosen[place].heads for place in order])

    def matches(self, facts: _Facts) -> Iterator[Groundings]:
        """Yield the groundings of all clauses of the shape whose body holds."""
        start = np.zeros(1, dtype=np.int64)
        for node, entities in self._walk(facts, 0, 0, start, np.empty((1, 0), dtype=np.int64)):
            row, place = _expanded(self._clause_starts[node], self._clause_starts[node + 1])
            entities = entities[row]
            bodies, heads = (
                _positions(atoms[place], entities, facts.size, facts.relations) for atoms in (self._bodies, self._heads)
            )
            yield Groundings(self._clauses[place], entities, bodies, heads)

    def _walk(
        self, facts: _Facts, number: int, level: int, node: Integers, entities: Integers
    ) -> Iterator[tuple[Integers, Integers]]:
        """Extend partial groundings by one step after another; ``level`` counts the atoms among the steps."""
        if not len(node):
            return
        if number == len(self._steps):
            yield node, entities
            return
        step = self._steps[number]
        if step.kind == "any":
            begin = np.zeros(len(node), dtype=np.int64)
            end = begin + facts.size
            for part in _parts(end - begin):
                row, value = _expanded(begin[part], end[part])
                yield from self._bound(facts, number, level, node[part][row], entities[part][row], value[:, None])
            return
        row, child = _expanded(self._tree.starts[level][node], self._tree.starts[level][node + 1])
        entities, relation = entities[row], self._tree.relations[level][child]
        if step.kind == "check":
            kept = facts.holds(relation, entities[:, step.first], entities[:, step.second])
            yield from self._walk(facts, number + 1, level + 1, child[kept], entities[kept])
            return
        if step.kind == "both":
            begin, end = facts.starts[relation * facts.size], facts.starts[(relation + 1) * facts.size]
        else:
            key = relation * facts.size + entities[:, step.first]
            begin, end = facts.starts[key], facts.starts[key + 1]
        for part in _parts(end - begin):
            row, fact = _expanded(begin[part], end[part])
            new = facts.targets[fact][:, None]
            if step.kind == "both":
                new = np.concatenate([facts.sources[fact][:, None], new], axis=1)
            yield from self._bound(facts, number, level + 1, child[part][row], entities[part][row], new)

    def _bound(
        self, facts: _Facts, number: int, level: int, node: Integers, entities: Integers, new: Integers
    ) -> Iterator[tuple[Integers, Integers]]:
        """Go on with newly bound variables where all entities are distinct."""
        distinct = np.ones(len(new), dtype=bool)
        for column in entities.T:
            for other in new.T:
                distinct &= column != other
        yield from self._walk(
            facts, number + 1, level, node[distinct], np.concatenate([entities, new], axis=1)[distinct]
        )


def _planned(clause: PairClause) -> tuple[PairClause, tuple[Step, ...]]:
    """Order a clause's body so that each atom meets the ones before, and number variables as they are bound."""
    left = list(clause.body)
    order: list[int] = []
    body = []
    while left:
        atom = max(left, key=lambda each: (each.first in order) + (each.second in order))
        left.remove(atom)
        body.append(atom)
        order += [variable for variable in atom[1:] if variable not in order]
    own = [variable for variable in range(len(clause.variables)) if variable not in order]
    clause = PairClause(tuple(body), clause.heads, clause.variables, clause.confidence, clause.source)
    clause = clause.renumbered([*order, *own])
    steps = []
    known = 0
    for atom in clause.body:
        first, second = sorted(atom[1:])
        kind: Literal["both", "second", "check"] = "check" if second < known else "second" if first < known else "both"
        steps.append(Step(kind, first, second))
        known = max(known, second + 1)
    steps += [Step("any", variable, variable) for variable in range(known, len(clause.variables))]
    return clause, tuple(steps)


def _padded(atoms: Sequence[Sequence[tuple[int, int, int]]]) -> Integers:
    """Return atoms as [clause, place, (relation, first, second)], -1 where a clause has fewer than the longest."""
    width = max((len(each) for each in atoms), default=0)
    table = np.full((len(atoms), width, 3), -1, dtype=np.int64)
    for row, each in enumerate(atoms):
        if each:
            table[row, : len(each)] = each
    return table


def _positions(atoms: Integers, entities: Integers, size: int, relations: int) -> Integers:
    """Return where ground atoms stand in the flat labelling; -1 for padding."""
    relation, first, second = (atoms[:, :, part] for part in range(3))
    head, tail = (np.take_along_axis(entities, np.maximum(each, 0), axis=1) for each in (first, second))
    return np.where(relation < 0, -1, (head * size + tail) * relations + relation)


def _expanded(begin: Integers, end: Integers) -> tuple[Integers, Integers]:
    """Return for ranges [begin, end) every member, with the row of the range it came from."""
    counts = end - begin
    row = np.repeat(np.arange(len(counts)), counts)
    before = np.cumsum(counts) - counts
    return row, np.arange(len(row)) + (begin - before)[row]


def _parts(counts: Integers) -> Iterator[slice]:
    """Split rows so that together they expand to at most LARGEST_STEP (or are one row)."""
    ends = np.cumsum(counts)
    if not len(ends) or ends[-1] <= LARGEST_STEP:
        yield slice(None)
        return
    start, done = 0, 0
    while start < len(counts):
        stop = max(start + 1, int(np.searchsorted(ends, done + LARGEST_STEP, side="right")))
        yield slice(start, stop)
        start, done = stop, int(ends[stop - 1])
