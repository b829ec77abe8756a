"""Walks on a graph of relations as products of sparse matrices, and the rules whose bodies they are.

`Graph` walks a step for many walkers at once; each walker may have an edge that it must not use. A `RuleTable` has the
rules for one query, and `Evidence` says which of them speak for which candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse

from rulewright.data import KnowledgeBase, signature
from rulewright.data.index import Ids, expand_ranges, range_bounds
from rulewright.engine.fused_walks import (
    COUNTED,
    ONCE,
    TELLING,
    ExampleColumns,
    GraphColumns,
    RuleColumns,
    collect_examples,
    count_rivals,
    fire_all,
    score_all,
)
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

    @cached_property
    def columns(self) -> GraphColumns:
        """All edges by where they begin, in blocks of one step: what compiled walks read."""
        pointers, steps, ends = self.leaving
        before = np.repeat(np.arange(self.entities), np.diff(pointers))
        is_first = np.append(True, (before[1:] != before[:-1]) | (steps[1:] != steps[:-1])) if len(steps) else steps > 0
        starts = np.flatnonzero(is_first)
        leave = np.diff(np.append(starts, len(steps)))[np.cumsum(is_first) - 1] if len(steps) else starts
        # the edge from the other end is of the inverse step: sorted by them, both are the same facts
        order = np.lexsort((before, invert_step(steps), ends))
        enter = np.empty_like(leave)
        enter[order] = leave
        strength = 1 / np.sqrt(leave * enter) if len(steps) else np.zeros(0)
        by_step = np.argsort(steps[starts], kind="stable")
        return GraphColumns(
            np.searchsorted(before[starts], np.arange(self.entities + 1)),
            steps[starts].astype(np.int64),
            before[starts].astype(np.int32),
            np.searchsorted(steps[starts][by_step], np.arange(count_steps(self.relations) + 1)),
            by_step,
            np.append(starts, len(steps)),
            ends.astype(np.int32),
            strength,
        )

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
    ANSWER_EDGES = 5
    """``r(X, Y) ← p(Y, Z)``: what is true of ``Y`` alone, such as how often it was an answer; ``log₂(1 + edges)``.

    Its path is the step ``p``. It makes no candidate: it speaks only for those that some other rule speaks for.
    """
    ASKED_EDGES = 6
    """``r(X, Y) ← p(X, Z)``: likewise of the entity asked about."""
    BOTH = 7
    """``r(X, Y) ← P(X, Y), Q(X, Y)``: it is true where two paths join them, in however many ways."""


LONE = (RuleForm.ANSWER_EDGES, RuleForm.ASKED_EDGES)
"""What is said of one end alone."""
TURNED = {
    RuleForm.ANSWER: RuleForm.ASKED,
    RuleForm.ASKED: RuleForm.ANSWER,
    RuleForm.ANSWER_EDGES: RuleForm.ASKED_EDGES,
    RuleForm.ASKED_EDGES: RuleForm.ANSWER_EDGES,
}
"""What is said of the answer to ``r(X, ?)`` is said of the entity asked about in ``r(?, X)``; others have no turn."""


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
    ``end``, both entity indices; see `RuleForm`. Of a rule of two paths ``second_index`` is the other's, else it is −1.
    """

    step: int
    paths: tuple[Path, ...]
    path_index: Ids
    form: Ids
    constant: Ids
    end: Ids
    ways: Ways = "once"
    """What many ways along a closed path count, see `path_truth`."""
    second_index: Ids = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __post_init__(self) -> None:
        if len(self.second_index) < len(self.path_index):
            object.__setattr__(self, "second_index", np.full(len(self.path_index), -1, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.path_index)

    def select(self, chosen: npt.NDArray[np.bool_] | Ids) -> RuleTable:
        """Return some of the rules."""
        columns = (self.path_index, self.form, self.constant, self.end, self.second_index)
        path_index, form, constant, end, second_index = (column[chosen] for column in columns)
        return RuleTable(self.step, self.paths, path_index, form, constant, end, self.ways, second_index)

    @classmethod
    def of_answer_edges(cls, step: int, counted: int) -> RuleTable:
        """Return a table of one rule: how many edges of the step ``counted`` leave the answer."""
        none = np.array([ANY_ENTITY])
        return cls(step, ((counted,),), np.zeros(1, dtype=np.int64), np.array([RuleForm.ANSWER_EDGES]), none, none)

    @classmethod
    def of_paths(cls, step: int, paths: Sequence[Path], ways: Ways = "once") -> RuleTable:
        """Return a table of closed rules."""
        count = len(paths)
        none = np.full(count, ANY_ENTITY, dtype=np.int64)
        return cls(step, tuple(paths), np.arange(count), np.zeros(count, dtype=np.int64), none, none, ways)

    @classmethod
    def of_both(cls, step: int, pairs: Sequence[tuple[Path, Path]]) -> RuleTable:
        """Return a table of rules of two paths."""
        table = cls.of_paths(step, list(dict.fromkeys(path for pair in pairs for path in pair)))
        position = {path: index for index, path in enumerate(table.paths)}
        first, second = np.array([[position[path] for path in pair] for pair in pairs], dtype=np.int64).reshape(-1, 2).T
        none, form = np.full(len(pairs), ANY_ENTITY), np.full(len(pairs), int(RuleForm.BOTH))
        return cls(step, table.paths, first, form, none, none, second_index=second)

    def join(self, other: RuleTable) -> RuleTable:
        """Return the rules of both."""
        paths = tuple(dict.fromkeys((*self.paths, *other.paths)))
        position = {path: index for index, path in enumerate(paths)}
        moved, seconds = [], []
        for table in (self, other):
            move = np.array([*(position[path] for path in table.paths), -1], dtype=np.int64)  # the last for −1
            moved.append(move[table.path_index])
            seconds.append(move[table.second_index])
        names = ("form", "constant", "end")
        form, constant, end = (np.concatenate([getattr(self, name), getattr(other, name)]) for name in names)
        path_index, second_index = np.concatenate(moved), np.concatenate(seconds)
        return RuleTable(self.step, paths, path_index, form, constant, end, self.ways, second_index)


_COUNTING = {"once": ONCE, "counted": COUNTED, "telling": TELLING}
_ALL_WANTED = np.zeros((0, 0), dtype=bool)


class Evidence:
    """Runs the rules of a table on a graph, all at once for each query: see `fused_walks`.

    >>> from rulewright.data import KnowledgeBase
    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob"), ("bob", "parent_of", "cid")])
    >>> table = RuleTable.of_paths(0, [(0, 0), (1,)])
    >>> row, candidate, rule, _ = Evidence(Graph(kb), table).firings(np.array([0, 1]))
    >>> list(zip(row.tolist(), candidate.tolist(), rule.tolist()))  # ann → cid by rule 0, bob → ann by rule 1
    [(0, 2, 0), (1, 0, 1)]
    """

    def __init__(self, graph: Graph, table: RuleTable) -> None:
        self.graph, self.table = graph, table

    def firings(
        self, entities: Ids, hidden: HiddenEdges | None = None, *, wanted: npt.NDArray[np.bool_] | None = None
    ) -> tuple[Ids, Ids, Ids, Floats]:
        """Return (row, candidate, rule, value) for queries about ``entities``, on the graph without its hidden edge.

        Rule ``rule[k]`` speaks for entity ``candidate[k]`` as the answer to query ``row[k]``, as truly as ``value[k]``.
        ``wanted`` (query × entity) says which candidates to look at, where not at all. A hidden edge begins at the
        entity asked about.
        """
        asked = np.ascontiguousarray(entities, dtype=np.int64)
        if len(asked) == 0 or len(self.table) == 0:
            return asked[:0], asked[:0], asked[:0], np.zeros(0)
        chosen = _ALL_WANTED if wanted is None else np.ascontiguousarray(wanted)
        return fire_all(*self._columns, asked, *self._read_hidden(asked, hidden), chosen)

    def scores(self, entities: Ids, weights: Floats, hidden: HiddenEdges | None = None) -> Floats:
        """Return ``Σ w ψ`` over the rules that speak for each candidate: a row for each query."""
        asked = np.ascontiguousarray(entities, dtype=np.int64)
        if len(asked) == 0 or len(self.table) == 0:
            return np.zeros((len(asked), self.graph.entities))
        return score_all(*self._columns, asked, *self._read_hidden(asked, hidden), _as_floats(weights))

    def count_rivals(
        self,
        entities: Ids,
        weights: Floats,
        answers: Ids,
        known: tuple[Ids, Ids],
        candidates: range,
        *,
        threads: int = 1,
    ) -> tuple[Ids, Ids]:
        """Count for each query the candidates whose ``Σ w ψ`` is higher than that of its answer, and those as high.

        ``known`` has rows of queries, sorted, and right answers to them, which but for the answer are no candidates.
        """
        order = np.argsort(entities, kind="stable")
        higher, equal = np.empty(len(order), dtype=np.int64), np.empty(len(order), dtype=np.int64)
        columns, floats = self._columns, _as_floats(weights)
        asked, answer = np.asarray(entities, dtype=np.int64), np.asarray(answers, dtype=np.int64)

        def count(part: Ids) -> None:
            first, members = _group_rows(*known, part)
            higher[part], equal[part], _ = count_rivals(
                *columns, floats, asked[part], answer[part], first, members, candidates.start, candidates.stop
            )

        parts = [part for part in np.array_split(order, threads if len(order) > threads else 1) if len(part)]
        if len(parts) == 1:
            count(parts[0])
        else:  # the walks hold no lock
            with ThreadPoolExecutor(len(parts)) as pool:
                list(pool.map(count, parts))
        return higher, equal

    def collect_examples(
        self,
        facts: tuple[Ids, Ids],
        first_weights: Floats,
        others: tuple[Ids, Ids],
        *,
        hide: bool,
        max_candidates: int | None,
        max_drawn: int = 0,
        seed: int = 0,
    ) -> ExampleColumns:
        """Pose queries about facts, what is asked about and the answer: see `fused_walks.collect_examples`.

        ``others`` has rows of queries, sorted, and other right answers to them.
        """
        asked, answers = (np.ascontiguousarray(column, dtype=np.int64) for column in facts)
        first, members = _group_rows(*others, np.arange(len(asked)))
        step = self.table.step if hide else -1
        return collect_examples(
            *self._columns,
            _as_floats(first_weights),
            asked,
            answers,
            step,
            first,
            members,
            max_candidates or 0,
            max_drawn,
            seed,
        )

    def _read_hidden(self, entities: Ids, hidden: HiddenEdges | None) -> tuple[int, Ids]:
        if hidden is None:
            return -1, entities[:0]
        assert np.array_equal(hidden.before, entities)
        return hidden.step, np.ascontiguousarray(hidden.after, dtype=np.int64)

    @cached_property
    def _columns(self) -> tuple[GraphColumns, RuleColumns, int]:
        return self.graph.columns, self._find_rule_columns(), _COUNTING[self.table.ways]

    def _find_rule_columns(self) -> RuleColumns:
        """Put the rules at the nodes of the trie of their paths."""
        table = self.table
        is_walked = ~np.isin(table.form, (RuleForm.ASKED, RuleForm.EVERY, *LONE))
        is_both = table.form == RuleForm.BOTH
        used = np.unique([*table.path_index[is_walked], *table.second_index[is_both]]).astype(np.int64).tolist()
        prefixes = sorted(
            {table.paths[index][:length] for index in used for length in range(len(table.paths[index]) + 1)}
        )
        prefixes = prefixes or [()]
        node_of = {prefix: node for node, prefix in enumerate(prefixes)}
        depth = np.array([len(prefix) for prefix in prefixes], dtype=np.int64)
        past = np.full(len(prefixes), len(prefixes), dtype=np.int64)
        open_nodes: list[int] = []
        for node, length in enumerate(depth.tolist()):
            while open_nodes and depth[open_nodes[-1]] >= length:
                past[open_nodes.pop()] = node
            open_nodes.append(node)
        node_of_path = np.array([node_of.get(path, -1) for path in table.paths], dtype=np.int64)
        rule_node = node_of_path[table.path_index]
        closed = np.flatnonzero((table.form == RuleForm.CLOSED) | (table.form == RuleForm.APART))
        closed = closed[np.argsort(rule_node[closed], kind="stable")]
        answer = np.flatnonzero(table.form == RuleForm.ANSWER)
        answer = answer[np.lexsort((table.end[answer], rule_node[answer]))]
        asked = np.flatnonzero(table.form == RuleForm.ASKED)
        asked = asked[np.lexsort((table.end[asked], table.path_index[asked], table.constant[asked]))]
        lone = np.flatnonzero(np.isin(table.form, LONE))
        both = np.flatnonzero(is_both)
        ends = np.sort([rule_node[both], node_of_path[table.second_index[both]]], axis=0)
        by_later = np.argsort(ends[1], kind="stable")
        both, (earlier, later) = both[by_later], ends[:, by_later]
        kept_nodes = np.unique(earlier)
        kept_slot = np.full(len(prefixes), -1, dtype=np.int64)
        kept_slot[kept_nodes] = np.arange(len(kept_nodes))
        nodes = np.arange(len(prefixes) + 1)
        return RuleColumns(
            np.array([prefix[-1] if prefix else -1 for prefix in prefixes], dtype=np.int64),
            depth,
            past,
            np.searchsorted(rule_node[closed], nodes),
            closed,
            table.form[closed] == RuleForm.APART,
            np.searchsorted(rule_node[answer], nodes),
            table.end[answer].astype(np.int64),
            answer,
            np.flatnonzero(table.form == RuleForm.EVERY),
            table.constant[asked].astype(np.int64),
            asked,
            *self._find_asked_bodies(asked),
            lone,
            np.array([table.paths[index][0] for index in table.path_index[lone]], dtype=np.int64),
            table.form[lone] == RuleForm.ASKED_EDGES,
            kept_slot,
            np.searchsorted(later, nodes),
            both,
            kept_slot[earlier],
            table.constant.astype(np.int64),
        )

    def _find_asked_bodies(self, asked: Ids) -> tuple[Ids, Ids, Ids, Ids, Ids]:
        """Return each rule's body, then where the bodies hold: bounds and entities, their single steps, their ends."""
        table, graph = self.table, self.graph
        keys = table.path_index[asked] * (graph.entities + 1) + table.end[asked] + 1
        bodies, body_of_rule = np.unique(keys, return_inverse=True)
        path_indices, ends = bodies // (graph.entities + 1), bodies % (graph.entities + 1) - 1
        counts, members = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        for path_index in np.unique(path_indices):
            path, path_ends = table.paths[path_index], ends[path_indices == path_index]
            named = path_ends[path_ends != ANY_ENTITY]
            if len(named) < len(path_ends):
                everywhere = graph.walk(np.arange(graph.entities), path)
                holds = np.flatnonzero(np.diff(everywhere.indptr))
                counts.append(np.array([len(holds)]))
                members.append(holds)
            if len(named):
                reached = graph.walk(named, mirror_path(path))
                counts.append(np.diff(reached.indptr))
                members.append(reached.indices)
        steps = np.array([path[0] if len(path) == 1 else -1 for path in table.paths] or [-1], dtype=np.int64)
        return (
            body_of_rule.astype(np.int64),
            range_bounds(np.concatenate(counts)),
            np.concatenate(members).astype(np.int64),
            steps[path_indices],
            ends,
        )


def _as_floats(weights: Floats) -> Floats:
    return np.ascontiguousarray(weights, dtype=np.float64)


def _group_rows(rows: Ids, members: Ids, order: Ids) -> tuple[Ids, Ids]:
    """Return bounds and members of each row, the rows taken in an order; ``rows`` are sorted."""
    first, past = np.searchsorted(rows, order), np.searchsorted(rows, order, side="right")
    return range_bounds(past - first), np.asarray(members, dtype=np.int64)[expand_ranges(first, past - first)]
