"""Which rules speak for which answers: a table of the rules for one question, and its firings by sparse products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse

from rulewright.data.index import Ids, expand_ranges, match_sorted
from rulewright.engine.walks import Graph, Hidden
from rulewright.logic import Path, mirror_path

Floats = npt.NDArray[np.float64]
Ways = Literal["once", "counted", "telling"]
WAYS = ("once", "counted", "telling")
CLOSED, ANSWER, ASKED = 0, 1, 2
ANY = -1


def truth(ways: Floats, kind: Ways) -> Floats:
    """Return how true a path is between two entities: 1 if ``once`` is enough, or more for more ways.

    ``counted`` gives ``log₂(1 + ways)``; ``telling`` gives ``log₂(1 + 100 s)``, where each way adds to ``s`` the
    product of what its edges tell (`Graph.strengths`), so that a way through a rare value outweighs one through a hub.

    >>> truth(np.array([1.0, 3.0]), "counted").tolist()
    [1.0, 2.0]
    """
    if kind == "once":
        return np.ones(len(ways))
    found: Floats = np.log2(1 + (ways if kind == "counted" else 100 * ways))
    return found


@dataclass(frozen=True)
class RuleTable:
    """Rules for the question ``r(X, ?)``, as columns; ``relation`` is ``2r``, or ``2r + 1`` for ``r(?, X)``.

    Each rule has a path ``P`` (a row of ``paths``) and one of three kinds:

    - ``CLOSED``: ``r(X, Y) ← P(X, Y)``; the empty path says ``X = Y``.
    - ``ANSWER``: ``r(X, c) ← P(X, d)``, or ``← P(X, Z)`` where the end ``d`` is ``ANY``; ``constant`` is ``c``.
    - ``ASKED``: ``r(c, Y) ← P(Y, d)``: it speaks only where the question is about ``c``.
    """

    relation: int
    paths: tuple[Path, ...]
    path: Ids
    kind: Ids
    constant: Ids
    end: Ids
    ways: Ways = "once"
    """What many ways along a closed path count, see `truth`."""

    def __len__(self) -> int:
        return len(self.path)

    def kept(self, keep: npt.NDArray[np.bool_] | Ids) -> RuleTable:
        """Return some of the rules."""
        return RuleTable(
            self.relation, self.paths, self.path[keep], self.kind[keep], self.constant[keep], self.end[keep], self.ways
        )

    @classmethod
    def of_paths(cls, relation: int, paths: Sequence[Path], ways: Ways = "once") -> RuleTable:
        """Return a table of closed rules."""
        count = len(paths)
        none = np.full(count, ANY, dtype=np.int64)
        return cls(relation, tuple(paths), np.arange(count), np.zeros(count, dtype=np.int64), none, none, ways)

    def joined(self, other: RuleTable) -> RuleTable:
        """Return the rules of both."""
        paths = dict.fromkeys((*self.paths, *other.paths))
        place = {path: number for number, path in enumerate(paths)}
        moved = [np.array([place[path] for path in each.paths], dtype=np.int64)[each.path] for each in (self, other)]
        columns = (np.concatenate([getattr(self, n), getattr(other, n)]) for n in ("kind", "constant", "end"))
        kind, constant, end = columns
        return RuleTable(self.relation, tuple(paths), np.concatenate(moved), kind, constant, end, self.ways)


class Firings:
    """That rule ``rule[k]`` speaks for entity ``candidate[k]`` as the answer to question ``row[k]``, and its truth.

    Where ``wanted`` (question × entity) is given, only these candidates are looked at.
    """

    def __init__(self, wanted: npt.NDArray[np.bool_] | None = None) -> None:
        self._wanted = wanted
        self._parts: list[tuple[Ids, Ids, Ids, Floats]] = []

    def kept(self, row: Ids, candidate: Ids) -> Ids | slice:
        """Return which firings are looked at."""
        return slice(None) if self._wanted is None else np.flatnonzero(self._wanted[row, candidate])

    def add(self, row: Ids, candidate: Ids, rule: Ids | int, value: Floats | float = 1.0) -> None:
        """Take in more."""
        keep = self.kept(row, candidate)
        rules, values = np.broadcast_to(rule, row.shape), np.broadcast_to(value, row.shape)
        self._parts.append((row[keep], candidate[keep], rules[keep], values[keep]))

    def columns(self) -> tuple[Ids, Ids, Ids, Floats]:
        """Return all as four columns."""
        empty = np.zeros(0, dtype=np.int64)
        row, candidate, rule, value = (
            np.concatenate([empty, *(part[place] for part in self._parts)]) for place in range(4)
        )
        return row, candidate, rule, value.astype(np.float64)


class Totals:
    """Sums the weights of rules as they speak, so that their firings need not be held."""

    def __init__(self, rows: int, entities: int, weights: Floats) -> None:
        self.scores = np.zeros((rows, entities))
        self._weights = weights

    def kept(self, row: Ids, candidate: Ids) -> slice:
        """Return that all are looked at."""
        return slice(None)

    def add(self, row: Ids, candidate: Ids, rule: Ids | int, value: Floats | float = 1.0) -> None:
        """Take in more."""
        place = row * self.scores.shape[1] + candidate
        if isinstance(rule, (int, np.integer)):  # one rule names a candidate once
            self.scores.reshape(-1)[place] += self._weights[rule] * value
        else:
            np.add.at(self.scores.reshape(-1), place, self._weights[rule] * value)


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
        order = np.lexsort((table.end, table.kind, table.path))
        walked = table.kind[order] != ASKED
        self._order = order[walked]
        self._asked = order[~walked][np.argsort(table.constant[order[~walked]], kind="stable")]
        self._wanted = {table.paths[number] for number in np.unique(table.path[self._order])}
        self._trie = _prefixes(self._wanted)
        self._number = {path: number for number, path in enumerate(table.paths)}

    def firings(
        self, entities: Ids, hidden: Hidden | None = None, *, wanted: npt.NDArray[np.bool_] | None = None
    ) -> tuple[Ids, Ids, Ids, Floats]:
        """Return (row, candidate, rule, value) for questions about ``entities``, on the graph without its hidden edge.

        ``wanted`` (question × entity) says which candidates to look at, where not at all.
        """
        found = Firings(wanted)
        self.tell(entities, found, hidden)
        return found.columns()

    def scores(self, entities: Ids, weights: Floats, hidden: Hidden | None = None) -> Floats:
        """Return ``Σ w ψ`` over the rules that speak for each candidate: a row for each question."""
        totals = Totals(len(entities), self.graph.entities, weights)
        self.tell(entities, totals, hidden)
        return totals.scores

    def tell(self, entities: Ids, found: Firings | Totals, hidden: Hidden | None = None) -> None:
        """Hand over the firings of questions about ``entities`` as they are found."""
        if self._trie:
            self._descend((), self.graph.start(entities), hidden, found)
        self._ask(np.asarray(entities), hidden, found)

    def _descend(self, path: Path, state: sparse.csr_array, hidden: Hidden | None, found: Firings | Totals) -> None:
        if path in self._wanted:
            self._emit(self._number[path], state, found)
        for step in self._trie.get(path, ()):
            after = self.graph.step(state, step, hidden, telling=self.table.ways == "telling")
            if after.nnz:
                self._descend((*path, step), after, hidden, found)

    @cached_property
    def _bounds(self) -> Ids:
        return np.searchsorted(self.table.path[self._order], np.arange(len(self.table.paths) + 1))

    def _emit(self, number: int, state: sparse.csr_array, found: Firings | Totals) -> None:
        """Let all rules with a path speak, given where the walkers came to."""
        table = self.table
        rules = self._order[self._bounds[number] : self._bounds[number + 1]]
        rows = np.repeat(np.arange(state.shape[0]), np.diff(state.indptr))
        places = state.indices.astype(np.int64)
        kinds, ends = table.kind[rules], table.end[rules]
        for rule in rules[kinds == CLOSED]:
            found.add(rows, places, int(rule), truth(state.data, table.ways))
        anywhere = rules[(kinds == ANSWER) & (ends == ANY)]
        if len(anywhere):
            reached = np.flatnonzero(np.diff(state.indptr))
            chosen = np.tile(anywhere, len(reached))
            found.add(np.repeat(reached, len(anywhere)), table.constant[chosen], chosen)
        there = rules[(kinds == ANSWER) & (ends != ANY)]
        if len(there):
            at, chosen = match_sorted(places, table.end[there])
            chosen = there[chosen]
            found.add(rows[at], table.constant[chosen], chosen)

    @cached_property
    def _reach(self) -> tuple[sparse.csr_array, Ids]:
        """Where the bodies of ``ASKED`` rules hold: a row for each different body, and each rule's row."""
        table, graph = self.table, self.graph
        keys = table.path[self._asked] * (graph.entities + 1) + table.end[self._asked] + 1
        bodies, place = np.unique(keys, return_inverse=True)
        blocks = []
        paths, ends = bodies // (graph.entities + 1), bodies % (graph.entities + 1) - 1
        for number in np.unique(paths):
            of_path = ends[paths == number]
            back = mirror_path(table.paths[number])
            named = of_path[of_path != ANY]
            if len(named) < len(of_path):
                everywhere = graph.walk(np.arange(graph.entities), table.paths[number])
                holds = np.flatnonzero(np.diff(everywhere.indptr))
                pointers = np.array([0, len(holds)])
                blocks.append(sparse.csr_array((np.ones(len(holds)), holds, pointers), shape=(1, graph.entities)))
            if len(named):
                blocks.append(graph.walk(named, back))
        return sparse.csr_array(sparse.vstack(blocks)), place

    def _ask(self, entities: Ids, hidden: Hidden | None, found: Firings | Totals) -> None:
        if len(self._asked) == 0:
            return
        table = self.table
        rows, chosen = match_sorted(entities, table.constant[self._asked])
        if len(rows) == 0:
            return
        reach, body = self._reach
        bodies = body[chosen]
        counts = np.diff(reach.indptr)[bodies]
        candidates = reach.indices[expand_ranges(reach.indptr[bodies], counts)].astype(np.int64)
        rows, rules = np.repeat(rows, counts), np.repeat(self._asked[chosen], counts)
        keep = found.kept(rows, candidates)
        rows, candidates, rules = rows[keep], candidates[keep], rules[keep]
        if hidden is not None:
            keep = np.flatnonzero(~self._needs_hidden(rows, candidates, rules, hidden))
            rows, candidates, rules = rows[keep], candidates[keep], rules[keep]
        found.add(rows, candidates, rules)

    def _needs_hidden(self, rows: Ids, candidates: Ids, rules: Ids, hidden: Hidden) -> npt.NDArray[np.bool_]:
        """Tell which bodies of one relation, ``p(Y, d)`` or ``p(Y, Z)``, hold by the hidden edge alone."""
        table, needs = self.table, np.zeros(len(rows), dtype=bool)
        for relation, before, after in (
            (hidden.relation, hidden.before, hidden.after),
            (hidden.relation ^ 1, hidden.after, hidden.before),
        ):
            number = self._number.get((relation,))
            if number is None:
                continue
            mine = (table.path[rules] == number) & (candidates == before[rows])
            degree = np.diff(self.graph.adjacency(relation).indptr)
            alone = (table.end[rules] == ANY) & (degree[candidates] == 1)
            needs |= mine & (alone | (table.end[rules] == after[rows]))
        return needs


def _prefixes(paths: set[Path]) -> dict[Path, list[int]]:
    """Return for each beginning of a path the steps that lead on."""
    found: dict[Path, dict[int, None]] = {(): {}} if paths else {}
    for path in sorted(paths):
        for place, step in enumerate(path):
            found.setdefault(path[:place], {})[step] = None
    return {path: list(steps) for path, steps in found.items()}
