"""Which rules speak for which candidates: a table of the rules for one query, and its firings by sparse products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse

from rulewright.data.index import Ids, expand_ranges, match_sorted
from rulewright.engine.walks import Graph, HiddenEdges
from rulewright.logic import Path, invert_step, mirror_path

Floats = npt.NDArray[np.float64]
Ways = Literal["once", "counted", "telling"]
WAYS = ("once", "counted", "telling")

ANY_ENTITY = -1
"""The end of a path that may lead anywhere."""


class RuleForm(IntEnum):
    """How a rule for the query ``r(X, ?)`` is built from a path ``P``."""

    CLOSED = 0
    """``r(X, Y) ← P(X, Y)``; the empty path says ``X = Y``."""
    ANSWER = 1
    """``r(X, c) ← P(X, d)``, or ``← P(X, Z)`` where the end ``d`` is `ANY_ENTITY`: it names the answer ``c``."""
    ASKED = 2
    """``r(c, Y) ← P(Y, d)``: it speaks only where the query is about ``c``."""


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


class Firings:
    """Collects that rule ``rule[k]`` speaks for entity ``candidate[k]`` as the answer to query ``row[k]``, how truly.

    Where ``wanted`` (query × entity) is given, only these candidates are looked at.
    """

    def __init__(self, wanted: npt.NDArray[np.bool_] | None = None) -> None:
        self._wanted = wanted
        self._parts: list[tuple[Ids, Ids, Ids, Floats]] = []

    def select(self, row: Ids, candidate: Ids) -> Ids | slice:
        """Return which of these firings are looked at."""
        return slice(None) if self._wanted is None else np.flatnonzero(self._wanted[row, candidate])

    def add(self, row: Ids, candidate: Ids, rule: Ids | int, value: Floats | float = 1.0) -> None:
        """Take in more."""
        keep = self.select(row, candidate)
        rules, values = np.broadcast_to(rule, row.shape), np.broadcast_to(value, row.shape)
        self._parts.append((row[keep], candidate[keep], rules[keep], values[keep]))

    def columns(self) -> tuple[Ids, Ids, Ids, Floats]:
        """Return all as four columns."""
        empty = np.zeros(0, dtype=np.int64)
        row, candidate, rule, value = (
            np.concatenate([empty, *(part[position] for part in self._parts)]) for position in range(4)
        )
        return row, candidate, rule, value.astype(np.float64)


class Totals:
    """Sums the weights of rules as they fire, so that their firings need not be held."""

    def __init__(self, rows: int, entities: int, weights: Floats) -> None:
        self.scores = np.zeros((rows, entities))
        self._weights = weights

    def select(self, row: Ids, candidate: Ids) -> slice:
        """Return that all firings are looked at."""
        return slice(None)

    def add(self, row: Ids, candidate: Ids, rule: Ids | int, value: Floats | float = 1.0) -> None:
        """Take in more."""
        position = row * self.scores.shape[1] + candidate
        if isinstance(rule, (int, np.integer)):  # one rule names a candidate once
            self.scores.reshape(-1)[position] += self._weights[rule] * value
        else:
            np.add.at(self.scores.reshape(-1), position, self._weights[rule] * value)


class Evidence:
    """Runs the rules of a table on a graph.

    >>> from rulewright.data import KnowledgeBase
    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob"), ("bob", "parent_of", "cid")])
    >>> table = RuleTable.of_paths(0, [(0, 0), (1,)])
    >>> row, candidate, rule, _ = Evidence(Graph.of(kb), table).firings(np.array([0, 1]))
    >>> list(zip(row.tolist(), candidate.tolist(), rule.tolist()))  # ann → cid by rule 0, bob → ann by rule 1
    [(0, 2, 0), (1, 0, 1)]
    """

    def __init__(self, graph: Graph, table: RuleTable) -> None:
        self.graph, self.table = graph, table
        order = np.lexsort((table.end, table.form, table.path_index))
        walked = table.form[order] != RuleForm.ASKED
        self._walked = order[walked]
        self._asked = order[~walked][np.argsort(table.constant[order[~walked]], kind="stable")]
        self._bounds = np.searchsorted(table.path_index[self._walked], np.arange(len(table.paths) + 1))
        self._path_index = {path: index for index, path in enumerate(table.paths)}
        self._wanted = {table.paths[index] for index in np.unique(table.path_index[self._walked])}
        self._next_steps: dict[Path, dict[int, None]] = {(): {}} if self._wanted else {}
        for path in sorted(self._wanted):
            for length, step in enumerate(path):
                self._next_steps.setdefault(path[:length], {})[step] = None

    def firings(
        self, entities: Ids, hidden: HiddenEdges | None = None, *, wanted: npt.NDArray[np.bool_] | None = None
    ) -> tuple[Ids, Ids, Ids, Floats]:
        """Return (row, candidate, rule, value) for queries about ``entities``, on the graph without its hidden edge.

        ``wanted`` (query × entity) says which candidates to look at, where not at all.
        """
        firings = Firings(wanted)
        self._fire(entities, firings, hidden)
        return firings.columns()

    def scores(self, entities: Ids, weights: Floats, hidden: HiddenEdges | None = None) -> Floats:
        """Return ``Σ w ψ`` over the rules that speak for each candidate: a row for each query."""
        totals = Totals(len(entities), self.graph.entities, weights)
        self._fire(entities, totals, hidden)
        return totals.scores

    def _fire(self, entities: Ids, collector: Firings | Totals, hidden: HiddenEdges | None) -> None:
        """Hand over the firings of queries about ``entities`` as they are found."""
        if self._next_steps:
            self._descend((), self.graph.start(entities), hidden, collector)
        if len(self._asked):
            self._fire_asked(np.asarray(entities), hidden, collector)

    def _descend(
        self, path: Path, state: sparse.csr_array, hidden: HiddenEdges | None, collector: Firings | Totals
    ) -> None:
        if path in self._wanted:
            self._fire_walked(self._path_index[path], state, collector)
        for step in self._next_steps.get(path, ()):
            after = self.graph.take_step(state, step, hidden, telling=self.table.ways == "telling")
            if after.nnz:
                self._descend((*path, step), after, hidden, collector)

    def _fire_walked(self, path_index: int, state: sparse.csr_array, collector: Firings | Totals) -> None:
        """Let all rules with a path speak, given where the walkers came to."""
        table = self.table
        rules = self._walked[self._bounds[path_index] : self._bounds[path_index + 1]]
        rows = np.repeat(np.arange(state.shape[0]), np.diff(state.indptr))
        reached = state.indices.astype(np.int64)
        forms, ends = table.form[rules], table.end[rules]
        for rule in rules[forms == RuleForm.CLOSED]:
            collector.add(rows, reached, int(rule), path_truth(state.data, table.ways))
        anywhere = rules[(forms == RuleForm.ANSWER) & (ends == ANY_ENTITY)]
        if len(anywhere):
            arrived = np.flatnonzero(np.diff(state.indptr))
            chosen = np.tile(anywhere, len(arrived))
            collector.add(np.repeat(arrived, len(anywhere)), table.constant[chosen], chosen)
        somewhere = rules[(forms == RuleForm.ANSWER) & (ends != ANY_ENTITY)]
        if len(somewhere):
            positions, chosen = match_sorted(reached, table.end[somewhere])
            chosen = somewhere[chosen]
            collector.add(rows[positions], table.constant[chosen], chosen)

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

    def _fire_asked(self, entities: Ids, hidden: HiddenEdges | None, collector: Firings | Totals) -> None:
        rows, chosen = match_sorted(entities, self.table.constant[self._asked])
        if len(rows) == 0:
            return
        reach, body_of_rule = self._reach
        bodies = body_of_rule[chosen]
        counts = np.diff(reach.indptr)[bodies]
        candidates = reach.indices[expand_ranges(reach.indptr[bodies], counts)].astype(np.int64)
        rows, rules = np.repeat(rows, counts), np.repeat(self._asked[chosen], counts)
        keep = collector.select(rows, candidates)
        rows, candidates, rules = rows[keep], candidates[keep], rules[keep]
        if hidden is not None:
            keep = np.flatnonzero(~self._needs_hidden(rows, candidates, rules, hidden))
            rows, candidates, rules = rows[keep], candidates[keep], rules[keep]
        collector.add(rows, candidates, rules)

    def _needs_hidden(self, rows: Ids, candidates: Ids, rules: Ids, hidden: HiddenEdges) -> npt.NDArray[np.bool_]:
        """Return which bodies of one step, ``p(Y, d)`` or ``p(Y, Z)``, hold by the hidden edge alone."""
        table, needs = self.table, np.zeros(len(rows), dtype=bool)
        for step, before, after in (
            (hidden.step, hidden.before, hidden.after),
            (invert_step(hidden.step), hidden.after, hidden.before),
        ):
            path_index = self._path_index.get((step,))
            if path_index is None:
                continue
            uses_edge = (table.path_index[rules] == path_index) & (candidates == before[rows])
            only_edge = (table.end[rules] == ANY_ENTITY) & (self.graph.degrees(step)[candidates] == 1)
            needs |= uses_edge & (only_edge | (table.end[rules] == after[rows]))
        return needs
