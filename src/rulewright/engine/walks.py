"""Walks on a graph of relations as products of sparse matrices, and the rules whose bodies they are.

`Graph` walks a step for many walkers at once; each walker may have an edge that it must not use. A `RuleTable` has the
rules for one query, and `Evidence` says which of them speak for which candidates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse

from rulewright.data import KnowledgeBase, signature
from rulewright.data.index import Ids, expand_ranges, match_sorted
from rulewright.errors import DataError
from rulewright.logic import Path, count_steps, encode_step, invert_step, mirror_path, step_relation

Floats = npt.NDArray[np.float64]
Ways = Literal["once", "counted", "telling"]
WAYS = ("once", "counted", "telling")

ANY_ENTITY = -1
"""The end of a path that may lead anywhere."""


def find_relation(kb: KnowledgeBase, name: str) -> int:
    """Return the index of a relation of two entities; another predicate is an error."""
    if signature(kb.predicate(name)) != "ee":
        raise DataError(f"{name} is not a relation of two entities")
    return kb.predicate_index(name)


@dataclass(frozen=True)
class HiddenEdges:
    """For every walker an edge ``before —step→ after`` that it may walk in neither direction."""

    step: int
    before: Ids
    after: Ids

    def part(self, rows: slice) -> HiddenEdges:
        """Return the edges of some walkers."""
        return HiddenEdges(self.step, self.before[rows], self.after[rows])


class Graph:
    """The facts of two entities, each an edge that can be walked both ways; a step (`logic.chain`) says which.

    A state has a row for each walker and counts in column ``y`` the ways in which it came to entity ``y``:
    ``X ← X A_p`` walks step ``p``. A walker with a hidden edge ``(h, r, t)`` walks on the graph without it,
    exactly: where ``p = r``, the ``X[i, h]`` ways that would have used the edge are taken from ``(X A_p)[i, t]``; where
    ``p`` is the inverse of ``r``, the ``X[i, t]`` ways from ``(X A_p)[i, h]``. Where edges weigh what they tell, those
    beside the hidden one weigh what they would without it. ``derived`` has further relations that are no predicates,
    each as pairs of entities; their indices follow those of the predicates.

    >>> kb = KnowledgeBase.from_triples([("ann", "knows", "bob"), ("bob", "knows", "cid"), ("ann", "knows", "cid")])
    >>> graph = Graph(kb)
    >>> graph.walk(np.array([0]), (0, 0)).toarray().tolist()
    [[0.0, 0.0, 1.0]]
    >>> graph.walk(np.array([0]), (0, 0), HiddenEdges(0, np.array([1]), np.array([2]))).nnz
    0
    """

    def __init__(self, kb: KnowledgeBase, derived: Sequence[tuple[Ids, Ids]] = ()) -> None:
        self.entities, self.relations = kb.n_entities, len(kb.predicates) + len(derived)
        self.steps = self.before = self.after = np.zeros(0, dtype=np.int64)
        relations = [np.full(len(heads), len(kb.predicates) + index) for index, (heads, _) in enumerate(derived)]
        heads, tails = [pairs[0] for pairs in derived], [pairs[1] for pairs in derived]
        if "ee" in kb.tables():
            facts = kb.tables()["ee"]
            relations.append(facts.predicate)
            heads.append(facts.columns[0])
            tails.append(facts.columns[1])
        if relations:
            relation, first, second = (np.concatenate(parts).astype(np.int64) for parts in (relations, heads, tails))
            forwards = encode_step(relation)
            steps = np.concatenate([forwards, invert_step(forwards)])
            before, after = np.concatenate([first, second]), np.concatenate([second, first])
            order = np.lexsort((after, before, steps))
            self.steps, self.before, self.after = steps[order], before[order], after[order]
        self._bounds = np.searchsorted(self.steps, np.arange(count_steps(self.relations) + 1))
        self._adjacency: dict[int, sparse.csr_array] = {}
        self._strengths: dict[int, sparse.csr_array] = {}

    def edges(self, step: int) -> tuple[Ids, Ids]:
        """Return where the edges of a step begin and end, sorted."""
        part = slice(self._bounds[step], self._bounds[step + 1])
        return self.before[part], self.after[part]

    def adjacency(self, step: int) -> sparse.csr_array:
        """Return a step as a sparse 0/1 matrix."""
        if step not in self._adjacency:
            before, after = self.edges(step)
            pointers = np.searchsorted(before, np.arange(self.entities + 1)).astype(np.int32)
            self._adjacency[step] = sparse.csr_array(
                (np.ones(len(after)), after.astype(np.int32), pointers), shape=(self.entities, self.entities)
            )
        return self._adjacency[step]

    def degrees(self, step: int) -> Ids:
        """Return how many edges of a step leave each entity."""
        degrees: Ids = np.diff(self.adjacency(step).indptr).astype(np.int64)
        return degrees

    def strengths(self, step: int) -> sparse.csr_array:
        """Return a step with how telling each edge is: ``1 / √(edges that leave x · edges that enter y)``.

        >>> kb = KnowledgeBase.from_triples([("ann", "born_in", "rome"), ("bob", "born_in", "rome")])
        >>> Graph(kb).strengths(0).data.round(3).tolist()
        [0.707, 0.707]
        """
        if step not in self._strengths:
            plain = self.adjacency(step)
            before, after = self.edges(step)
            weights = 1 / np.sqrt(self.degrees(step)[before] * self.degrees(invert_step(step))[after])
            self._strengths[step] = sparse.csr_array((weights, plain.indices, plain.indptr), shape=plain.shape)
        return self._strengths[step]

    @cached_property
    def leaving(self) -> tuple[Ids, Ids, Ids]:
        """All edges by where they begin: for each entity where its edges start, then their steps and ends."""
        order = np.argsort(self.before, kind="stable")
        pointers = np.searchsorted(self.before[order], np.arange(self.entities + 1))
        return pointers, self.steps[order], self.after[order]

    def take_step(
        self, state: sparse.csr_array, step: int, hidden: HiddenEdges | None = None, *, telling: bool = False
    ) -> sparse.csr_array:
        """Walk one step further without the hidden edges; ``telling`` weighs edges by `strengths`."""
        matrix = self.strengths(step) if telling else self.adjacency(step)
        reached = state @ matrix
        if hidden is None or step_relation(step) != step_relation(hidden.step) or reached.nnz == 0:
            return reached
        before, after = hidden.before, hidden.after
        if step != hidden.step:
            before, after = after, before
        rows = np.arange(len(before))
        used, scale = np.asarray(state[rows, before]).ravel(), np.ones(len(rows))
        if telling:
            leave, enter = self.degrees(step)[before], self.degrees(invert_step(step))[after]
            rise, scale = (np.sqrt(degree / np.maximum(degree - 1, 1)) for degree in (leave, enter))
            others = sparse.csr_array((used * (rise - 1), (rows, before)), shape=state.shape)
            reached = reached + others @ matrix  # the other edges that leave `before` tell more
            used = used * rise / np.sqrt(leave * enter)
        total = np.asarray(reached[rows, after]).ravel()
        left = np.where(total - used > 1e-9 * total, (total - used) * scale, 0.0)
        changed = np.flatnonzero(left != total)
        if len(changed) == 0:
            return reached
        difference = ((left - total)[changed], (rows[changed], after[changed]))
        reached = reached + sparse.csr_array(difference, shape=reached.shape)
        reached.eliminate_zeros()
        return reached

    def walk(
        self, entities: Ids, path: Path, hidden: HiddenEdges | None = None, *, telling: bool = False
    ) -> sparse.csr_array:
        """Return the state after a whole path of walkers that start on these entities; an empty path is the start."""
        rows = len(entities)
        state = sparse.csr_array(
            (np.ones(rows), np.asarray(entities, dtype=np.int32), np.arange(rows + 1, dtype=np.int32)),
            shape=(rows, self.entities),
        )
        for step in path:
            state = self.take_step(state, step, hidden, telling=telling)
        return state


class RuleForm(IntEnum):
    """How a rule for the query ``r(X, ?)`` is built from a path ``P``."""

    CLOSED = 0
    """``r(X, Y) ← P(X, Y)``; the empty path says ``X = Y``."""
    ANSWER = 1
    """``r(X, c) ← P(X, d)``, or ``← P(X, Z)`` where the end ``d`` is `ANY_ENTITY`: it names the answer ``c``."""
    ASKED = 2
    """``r(c, Y) ← P(Y, d)``: it speaks only where the query is about ``c``."""
    APART = 3
    """``r(X, Y) ← P(X, Y), X ≠ Y``."""
    EVERY = 4
    """``r(X, Y)``: it speaks for every candidate alike; its path is empty."""


def path_truth(ways: Floats, counting: Ways) -> Floats:
    """Return how true a path is between two entities: 1 if ``once`` is enough, or more for more ways.

    ``counted`` gives ``log₂(1 + ways)``; ``telling`` gives ``log₂(1 + 100 s)``, where each way adds to ``s`` the
    product of what its edges tell (`Graph.strengths`), so that a way through a rare value outweighs one through a hub.

    >>> path_truth(np.array([1.0, 3.0]), "counted").tolist()
    [1.0, 2.0]
    """
    if counting == "once":
        return np.ones(len(ways))
    values: Floats = np.log2(1 + (ways if counting == "counted" else 100 * ways))
    return values


@dataclass(frozen=True)
class RuleTable:
    """Rules for one query, as columns. ``step`` walks the query's relation from what is asked about to the answer.

    Each rule has a path (``path_index`` into ``paths``), a form, and where the form names them a ``constant`` and an
    ``end``, both entity indices; see `RuleForm`.
    """

    step: int
    paths: tuple[Path, ...]
    path_index: Ids
    form: Ids
    constant: Ids
    end: Ids
    ways: Ways = "once"
    """What many ways along a closed path count, see `path_truth`."""

    def __len__(self) -> int:
        return len(self.path_index)

    def select(self, chosen: npt.NDArray[np.bool_] | Ids) -> RuleTable:
        """Return some of the rules."""
        columns = (self.path_index, self.form, self.constant, self.end)
        path_index, form, constant, end = (column[chosen] for column in columns)
        return RuleTable(self.step, self.paths, path_index, form, constant, end, self.ways)

    @classmethod
    def of_paths(cls, step: int, paths: Sequence[Path], ways: Ways = "once") -> RuleTable:
        """Return a table of closed rules."""
        count = len(paths)
        none = np.full(count, ANY_ENTITY, dtype=np.int64)
        return cls(step, tuple(paths), np.arange(count), np.zeros(count, dtype=np.int64), none, none, ways)

    def join(self, other: RuleTable) -> RuleTable:
        """Return the rules of both."""
        paths = tuple(dict.fromkeys((*self.paths, *other.paths)))
        position = {path: index for index, path in enumerate(paths)}
        moved = [
            np.array([position[path] for path in table.paths], dtype=np.int64)[table.path_index]
            for table in (self, other)
        ]
        names = ("form", "constant", "end")
        form, constant, end = (np.concatenate([getattr(self, name), getattr(other, name)]) for name in names)
        return RuleTable(self.step, paths, np.concatenate(moved), form, constant, end, self.ways)


Firings = tuple[Ids, Ids, Ids | int, Floats | float]
"""Rows of queries, candidates, and the rules that speak for them, how truly; one rule or value may be that of all."""


class Evidence:
    """Runs the rules of a table on a graph.

    >>> from rulewright.data import KnowledgeBase
    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob"), ("bob", "parent_of", "cid")])
    >>> table = RuleTable.of_paths(0, [(0, 0), (1,)])
    >>> row, candidate, rule, _ = Evidence(Graph(kb), table).firings(np.array([0, 1]))
    >>> list(zip(row.tolist(), candidate.tolist(), rule.tolist()))  # ann → cid by rule 0, bob → ann by rule 1
    [(0, 2, 0), (1, 0, 1)]
    """

    def __init__(self, graph: Graph, table: RuleTable) -> None:
        self.graph, self.table = graph, table
        order = np.lexsort((table.end, table.form, table.path_index))
        is_asked = table.form[order] == RuleForm.ASKED
        asked, walked = order[is_asked], order[~is_asked]
        self._asked = asked[np.argsort(table.constant[asked], kind="stable")]
        path_indices, starts = np.unique(table.path_index[walked], return_index=True)
        groups = zip(path_indices, np.split(walked, starts[1:]), strict=False)
        self._walked = {table.paths[path_index]: rules for path_index, rules in groups}
        self._next_steps: dict[Path, dict[int, None]] = {}
        for path in sorted(self._walked):
            for length, step in enumerate(path):
                self._next_steps.setdefault(path[:length], {})[step] = None

    def firings(
        self, entities: Ids, hidden: HiddenEdges | None = None, *, wanted: npt.NDArray[np.bool_] | None = None
    ) -> tuple[Ids, Ids, Ids, Floats]:
        """Return (row, candidate, rule, value) for queries about ``entities``, on the graph without its hidden edge.

        Rule ``rule[k]`` speaks for entity ``candidate[k]`` as the answer to query ``row[k]``, as truly as ``value[k]``.
        ``wanted`` (query × entity) says which candidates to look at, where not at all.
        """
        empty = np.zeros(0, dtype=np.int64)
        parts: list[tuple[Ids, Ids, Ids, Floats]] = [(empty, empty, empty, np.zeros(0))]
        for row, candidate, rule, value in self._fire(entities, hidden, wanted):
            keep = slice(None) if wanted is None else np.flatnonzero(wanted[row, candidate])
            rules, values = np.broadcast_to(rule, row.shape), np.broadcast_to(value, row.shape)
            parts.append((row[keep], candidate[keep], rules[keep], values[keep]))
        rows, candidates, all_rules, all_values = map(np.concatenate, zip(*parts, strict=True))
        return rows, candidates, all_rules, all_values

    def scores(self, entities: Ids, weights: Floats, hidden: HiddenEdges | None = None) -> Floats:
        """Return ``Σ w ψ`` over the rules that speak for each candidate: a row for each query."""
        scores = np.zeros((len(entities), self.graph.entities))
        for row, candidate, rule, value in self._fire(entities, hidden):
            position = row * self.graph.entities + candidate
            if isinstance(rule, int):  # one rule names a candidate once
                scores.reshape(-1)[position] += weights[rule] * value
            else:
                np.add.at(scores.reshape(-1), position, weights[rule] * value)
        return scores

    def _fire(
        self, entities: Ids, hidden: HiddenEdges | None, wanted: npt.NDArray[np.bool_] | None = None
    ) -> Iterator[Firings]:
        """Yield the firings of queries about ``entities`` path by path, each path walked on from its first steps."""
        waiting: list[tuple[Path, sparse.csr_array]] = [((), self.graph.walk(entities, ()))] if self._walked else []
        while waiting:
            path, state = waiting.pop()
            if path:
                state = self.graph.take_step(state, path[-1], hidden, telling=self.table.ways == "telling")
                if state.nnz == 0:
                    continue
            if path in self._walked:
                yield from self._fire_walked(self._walked[path], state, np.asarray(entities))
            waiting += [((*path, step), state) for step in reversed(self._next_steps.get(path, {}))]
        if len(self._asked):
            yield self._fire_asked(np.asarray(entities), hidden, wanted)

    def _fire_walked(self, rules: Ids, state: sparse.csr_array, entities: Ids) -> Iterator[Firings]:
        """Let all rules with one path speak, given where the walkers came to from where they started."""
        table = self.table
        rows = np.repeat(np.arange(state.shape[0]), np.diff(state.indptr))
        reached = state.indices.astype(np.int64)
        forms, ends = table.form[rules], table.end[rules]
        for rule in rules[forms == RuleForm.CLOSED]:
            yield rows, reached, int(rule), path_truth(state.data, table.ways)
        for rule in rules[forms == RuleForm.APART]:
            apart = np.flatnonzero(reached != entities[rows])
            yield rows[apart], reached[apart], int(rule), path_truth(state.data[apart], table.ways)
        for rule in rules[forms == RuleForm.EVERY]:
            everyone = np.tile(np.arange(self.graph.entities), len(entities))
            yield np.repeat(np.arange(len(entities)), self.graph.entities), everyone, int(rule), 1.0
        anywhere = rules[(forms == RuleForm.ANSWER) & (ends == ANY_ENTITY)]
        if len(anywhere):
            arrived = np.flatnonzero(np.diff(state.indptr))
            chosen = np.tile(anywhere, len(arrived))
            yield np.repeat(arrived, len(anywhere)), table.constant[chosen], chosen, 1.0
        somewhere = rules[(forms == RuleForm.ANSWER) & (ends != ANY_ENTITY)]
        if len(somewhere):
            positions, chosen = match_sorted(reached, table.end[somewhere])
            chosen = somewhere[chosen]
            yield rows[positions], table.constant[chosen], chosen, 1.0

    @cached_property
    def _reach(self) -> tuple[sparse.csr_array, Ids]:
        """Where the bodies of ``ASKED`` rules hold: a row for each different body, and each rule's row."""
        table, graph = self.table, self.graph
        keys = table.path_index[self._asked] * (graph.entities + 1) + table.end[self._asked] + 1
        bodies, body_of_rule = np.unique(keys, return_inverse=True)
        blocks = []
        path_indices, ends = bodies // (graph.entities + 1), bodies % (graph.entities + 1) - 1
        for path_index in np.unique(path_indices):
            path, path_ends = table.paths[path_index], ends[path_indices == path_index]
            named = path_ends[path_ends != ANY_ENTITY]
            if len(named) < len(path_ends):
                everywhere = graph.walk(np.arange(graph.entities), path)
                holds = np.flatnonzero(np.diff(everywhere.indptr))
                pointers = np.array([0, len(holds)])
                blocks.append(sparse.csr_array((np.ones(len(holds)), holds, pointers), shape=(1, graph.entities)))
            if len(named):
                blocks.append(graph.walk(named, mirror_path(path)))
        return sparse.csr_array(sparse.vstack(blocks)), body_of_rule

    def _fire_asked(self, entities: Ids, hidden: HiddenEdges | None, wanted: npt.NDArray[np.bool_] | None) -> Firings:
        """Let the ``ASKED`` rules speak that are about the entities asked about."""
        table = self.table
        rows, chosen = match_sorted(entities, table.constant[self._asked])
        if len(rows) == 0:
            return rows, rows, rows, 1.0
        reach, body_of_rule = self._reach
        bodies = body_of_rule[chosen]
        counts = np.diff(reach.indptr)[bodies]
        candidates = reach.indices[expand_ranges(reach.indptr[bodies], counts)].astype(np.int64)
        rows, rules = np.repeat(rows, counts), np.repeat(self._asked[chosen], counts)
        if wanted is not None:
            keep = np.flatnonzero(wanted[rows, candidates])
            rows, candidates, rules = rows[keep], candidates[keep], rules[keep]
        if hidden is None:
            return rows, candidates, rules, 1.0
        needs_hidden = np.zeros(len(rows), dtype=bool)  # a body of one step, p(Y, d) or p(Y, Z), may hold by it alone
        for step, before, after in (
            (hidden.step, hidden.before, hidden.after),
            (invert_step(hidden.step), hidden.after, hidden.before),
        ):
            if (step,) in table.paths:
                uses_edge = table.path_index[rules] == table.paths.index((step,))
                uses_edge &= candidates == before[rows]
                only_edge = (table.end[rules] == ANY_ENTITY) & (self.graph.degrees(step)[candidates] == 1)
                needs_hidden |= uses_edge & (only_edge | (table.end[rules] == after[rows]))
        keep = np.flatnonzero(~needs_hidden)
        return rows[keep], candidates[keep], rules[keep], 1.0
