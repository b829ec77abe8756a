"""Paths of relations that join the ends of facts: every one where there are few, a sample where there are many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from rulewright.checks import Whole, check_parameter
from rulewright.data.index import Ids, expand_ranges, match_sorted
from rulewright.engine.evidence import Evidence, RuleTable
from rulewright.engine.walks import Graph, HiddenEdges
from rulewright.logic import Path, count_steps, invert_step

Floats = npt.NDArray[np.float64]

LONGEST = 5
MAX_WALKERS = 4_000_000
"""How many partial walks are held at once; facts are taken in blocks that stay below."""
MAX_CELLS = 8_000_000
"""How many pairs of a fact and an entity are held at once where a table has all of them."""


@dataclass(frozen=True)
class FoundPaths:
    """Paths, how many of the facts each joins, and its share of walks: those that end in the answer, of all.

    ``support`` counts facts ``(h, r, t)`` with a walk from ``h`` to ``t`` that does not use the fact itself;
    ``confidence`` is the number of such walks divided by that of all walks of the path from the same heads.
    """

    paths: tuple[Path, ...]
    support: Ids
    confidence: Floats

    def select_best(self, count: int, *, min_support: int, min_confidence: float) -> FoundPaths:
        """Return at most ``count`` paths, those with the most weight of evidence, support × confidence, first."""
        fit = np.flatnonzero((self.support >= min_support) & (self.confidence >= min_confidence))
        chosen = fit[np.argsort(-(self.support * self.confidence)[fit], kind="stable")][:count]
        return FoundPaths(tuple(self.paths[row] for row in chosen), self.support[chosen], self.confidence[chosen])


@dataclass(frozen=True)
class Walkers:
    """Partial walks: of which fact, by which path (``code``: its steps as digits), to which entity, how many ways."""

    fact: Ids
    code: Ids
    entity: Ids
    ways: Floats

    def __len__(self) -> int:
        return len(self.fact)


def find_paths(
    graph: Graph, hidden: HiddenEdges, *, max_length: int = 3, max_edges: int | None = None, seed: int = 0
) -> FoundPaths:
    """Find the paths up to a length that join the ends of facts, given as the edges to be hidden from themselves.

    Walks from both ends meet in the middle. Where ``max_edges`` is given, a walker takes at most so many of the edges
    that leave an entity, drawn at random, so that hubs stay affordable; without it every path is found.

    >>> from rulewright.data import KnowledgeBase
    >>> facts = [("ann", "p", "bob"), ("bob", "p", "cid"), ("ann", "g", "cid")]
    >>> graph = Graph.of(KnowledgeBase.from_triples(facts))
    >>> find_paths(graph, HiddenEdges(2, np.array([0]), np.array([2])), max_length=2).paths
    ((0, 0),)
    """
    check_parameter("max_length", max_length, Whole(1, LONGEST))
    random = np.random.default_rng(seed)
    n_steps = count_steps(graph.relations)
    joined: list[tuple[Ids, Floats, Floats]] = []
    for rows in _split_facts(graph, hidden, max_length, max_edges):
        part = hidden.part(rows)
        ahead = spread_walkers(graph, part, part.before, (max_length + 1) // 2, max_edges, random)
        back = spread_walkers(graph, part, part.after, max_length // 2, max_edges, random)
        for length in range(1, max_length + 1):
            joined.append(_join_halves(graph, ahead[(length + 1) // 2], back[length // 2], length))
    codes, supports, ways = (np.concatenate(column) for column in zip(*joined, strict=True))
    distinct, position = np.unique(codes, return_inverse=True)
    support = np.bincount(position, supports, len(distinct)).astype(np.int64)
    hit = np.bincount(position, ways, len(distinct))
    paths = tuple(_read_tagged_code(int(code), n_steps) for code in distinct)
    return FoundPaths(paths, support, hit / np.maximum(_count_all_walks(graph, hidden.before, paths), hit))


def count_paths(graph: Graph, hidden: HiddenEdges, paths: Sequence[Path]) -> FoundPaths:
    """Count given paths as `find_paths` does, over all edges.

    >>> from rulewright.data import KnowledgeBase
    >>> facts = [("ann", "p", "bob"), ("bob", "p", "cid"), ("ann", "g", "cid")]
    >>> graph = Graph.of(KnowledgeBase.from_triples(facts))
    >>> count_paths(graph, HiddenEdges(2, np.array([0]), np.array([2])), [(0, 0), (0, 1)]).support.tolist()
    [1, 0]
    """
    evidence = Evidence(graph, RuleTable.of_paths(hidden.step, paths, "counted"))
    support, hit = np.zeros(len(paths), dtype=np.int64), np.zeros(len(paths))
    block = max(1, MAX_CELLS // graph.entities)
    for low in range(0, len(hidden.before), block):
        part = hidden.part(slice(low, low + block))
        wanted = np.zeros((len(part.before), graph.entities), dtype=bool)
        wanted[np.arange(len(part.before)), part.after] = True
        _, _, rule, value = evidence.firings(part.before, part, wanted=wanted)
        support += np.bincount(rule, minlength=len(paths))
        hit += np.bincount(rule, 2**value - 1, len(paths))
    walks = _count_all_walks(graph, hidden.before, tuple(paths))
    return FoundPaths(tuple(paths), support, hit / np.maximum(np.maximum(walks, hit), 1))


def _split_facts(graph: Graph, hidden: HiddenEdges, max_length: int, max_edges: int | None) -> list[slice]:
    """Cut the facts into blocks whose partial walks fit."""
    pointers, _, after = graph.leaving
    out_degree = np.diff(pointers)
    degree = out_degree if max_edges is None else np.minimum(out_degree, max_edges)
    reach = np.ones(graph.entities)
    starts = np.repeat(np.arange(graph.entities), out_degree)
    for _ in range(1, (max_length + 1) // 2):
        total = np.bincount(starts, reach[after] * degree[after], graph.entities)
        reach = total * (degree / np.maximum(out_degree, 1)) / np.maximum(degree, 1)
    cost = np.cumsum(degree[hidden.before] * np.maximum(reach[hidden.before], 1) + 1)
    first_rows = np.unique((cost // MAX_WALKERS).astype(np.int64), return_index=True)[1]
    return [slice(low, high) for low, high in pairwise([*first_rows.tolist(), len(cost)])]


def spread_walkers(
    graph: Graph, hidden: HiddenEdges, entities: Ids, length: int, max_edges: int | None, random: np.random.Generator
) -> list[Walkers]:
    """Walk all relations at once; return the walkers after 0, 1, … ``length`` steps."""
    facts = np.arange(len(entities))
    stages = [Walkers(facts, np.zeros(len(facts), dtype=np.int64), entities, np.ones(len(facts)))]
    pointers, steps, ends = graph.leaving
    for _ in range(length):
        walkers = stages[-1]
        degree = np.diff(pointers)[walkers.entity]
        edge = expand_ranges(pointers[walkers.entity], degree)
        source = np.repeat(np.arange(len(walkers)), degree)
        if max_edges is not None and len(degree) and degree.max() > max_edges:
            drawn = random.random(len(edge)) * degree[source] < max_edges
            edge, source = edge[drawn], source[drawn]
        step, end, fact, start = steps[edge], ends[edge], walkers.fact[source], walkers.entity[source]
        before, after = hidden.before[fact], hidden.after[fact]
        uses = (step == hidden.step) & (start == before) & (end == after)
        uses |= (step == invert_step(hidden.step)) & (start == after) & (end == before)
        keep = ~uses
        code = walkers.code[source] * count_steps(graph.relations) + step
        stages.append(_merge_walkers(graph, fact[keep], code[keep], end[keep], walkers.ways[source][keep]))
    return stages


def _merge_walkers(graph: Graph, fact: Ids, code: Ids, entity: Ids, ways: Floats) -> Walkers:
    """Bring together the walks of one fact and path that stand on one entity."""
    key = (fact * (code.max(initial=0) + 1) + code) * graph.entities + entity
    order = np.argsort(key, kind="stable")
    if len(key) == 0:
        return Walkers(fact, code, entity, ways)
    first = np.flatnonzero(_is_new(key[order]))
    chosen = order[first]
    return Walkers(fact[chosen], code[chosen], entity[chosen], np.add.reduceat(ways[order], first))


def _is_new(ordered: Ids) -> npt.NDArray[np.bool_]:
    """Tell where a sorted column has another value than the row before."""
    return np.concatenate([[True], ordered[1:] != ordered[:-1]])


def _join_halves(graph: Graph, ahead: Walkers, back: Walkers, length: int) -> tuple[Ids, Floats, Floats]:
    """Join walks from both ends where they meet: the code of each path, how many facts it joins, in how many ways."""
    n_steps = count_steps(graph.relations)
    meeting = back.fact * graph.entities + back.entity
    order = np.argsort(meeting, kind="stable")
    left, right = match_sorted(ahead.fact * graph.entities + ahead.entity, meeting[order])
    right = order[right]
    mirrored, rest = np.zeros_like(back.code), back.code
    for _ in range(length // 2):
        mirrored, rest = mirrored * n_steps + invert_step(rest % n_steps), rest // n_steps
    code = ahead.code[left] * n_steps ** (length // 2) + mirrored[right]
    code = code + sum(n_steps**shorter for shorter in range(1, length))  # codes of shorter paths come before all longer
    fact = ahead.fact[left]
    ways = ahead.ways[left] * back.ways[right]
    facts = int(fact.max(initial=0)) + 1
    order = (
        np.argsort(code * facts + fact, kind="stable")
        if code.max(initial=0) < 2**62 // facts
        else np.lexsort((fact, code))
    )
    code, fact, ways = code[order], fact[order], ways[order]
    if len(code) == 0:
        return code, ways, ways
    new_code = _is_new(code)
    new_fact = new_code | _is_new(fact)
    first = np.flatnonzero(new_code)
    return code[first], np.add.reduceat(new_fact.astype(np.float64), first), np.add.reduceat(ways, first)


def read_code(code: int, length: int, n_steps: int) -> Path:
    """Return the path of a code: its digits to the base ``n_steps``.

    >>> read_code(13, 2, 4)
    (3, 1)
    """
    return tuple(code // n_steps**position % n_steps for position in reversed(range(length)))


def _read_tagged_code(code: int, n_steps: int) -> Path:
    length = 1
    while code >= n_steps**length:
        code -= n_steps**length
        length += 1
    return read_code(code, length, n_steps)


def _count_all_walks(graph: Graph, heads: Ids, paths: tuple[Path, ...]) -> Floats:
    """Count all walks of each path from the heads: ``v_first · u_last``, where the path is cut in two.

    ``v = s A_1 … A_k`` says how many walks have come to each entity, ``u = A_k+1 … A_l 1`` how many lead on from it.
    """
    arrived: dict[Path, Floats] = {(): np.bincount(heads, minlength=graph.entities).astype(np.float64)}
    onward: dict[Path, Floats] = {(): np.ones(graph.entities)}

    def count_arrived(path: Path) -> Floats:
        if path not in arrived:
            arrived[path] = graph.adjacency(invert_step(path[-1])) @ count_arrived(path[:-1])
        return arrived[path]

    def count_onward(path: Path) -> Floats:
        if path not in onward:
            onward[path] = graph.adjacency(path[0]) @ count_onward(path[1:])
        return onward[path]

    halves = [(len(path) + 1) // 2 for path in paths]
    return np.array(
        [count_arrived(path[:half]) @ count_onward(path[half:]) for path, half in zip(paths, halves, strict=True)]
    )
