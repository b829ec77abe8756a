"""Paths of relations that join the ends of facts: every one where there are few, a sample where there are many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from rulewright.data.index import Ids, expand_ranges, match_sorted
from rulewright.engine.evidence import Evidence, RuleTable
from rulewright.engine.walks import Graph, HiddenEdges
from rulewright.errors import DataError
from rulewright.logic import Path

LONGEST = 5
MOST_STATES = 4_000_000
"""How many partial walks are held at once; facts are taken in blocks that stay below."""
CELLS = 8_000_000
"""How many pairs of a fact and an entity are held at once where that is asked of all of them."""


@dataclass(frozen=True)
class FoundPaths:
    """Paths, how many of the facts each joins, and its share of walks: those that end in the answer, of all.

    ``support`` counts facts ``(h, r, t)`` with a walk from ``h`` to ``t`` that does not use the fact itself;
    ``confidence`` is the number of such walks divided by that of all walks of the path from the same heads.
    """

    paths: tuple[Path, ...]
    support: Ids
    confidence: npt.NDArray[np.float64]

    def best(self, count: int, *, min_support: int = 1, min_confidence: float = 0.0) -> FoundPaths:
        """Return at most ``count`` paths, those with the most weight of evidence, support × confidence, first."""
        fit = np.flatnonzero((self.support >= min_support) & (self.confidence >= min_confidence))
        chosen = fit[np.argsort(-(self.support * self.confidence)[fit], kind="stable")][:count]
        return FoundPaths(tuple(self.paths[each] for each in chosen), self.support[chosen], self.confidence[chosen])


@dataclass(frozen=True)
class Walkers:
    """Partial walks: of which fact, by which path (as a number), at which entity, and in how many ways."""

    fact: Ids
    code: Ids
    place: Ids
    ways: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.fact)


def find_paths(
    graph: Graph,
    hidden: HiddenEdges,
    *,
    max_length: int = 3,
    max_edges: int | None = None,
    seed: int = 0,
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
    if not 1 <= max_length <= LONGEST:
        raise DataError(f"max_length must lie in 1 … {LONGEST}, got {max_length}")
    random = np.random.default_rng(seed)
    base = 2 * graph.relations
    joined: list[tuple[Ids, npt.NDArray[np.float64], npt.NDArray[np.float64]]] = []
    for rows in _blocks(graph, hidden, max_length, max_edges):
        part = hidden.part(rows)
        ahead = spread(graph, part, part.before, (max_length + 1) // 2, max_edges, random)
        back = spread(graph, part, part.after, max_length // 2, max_edges, random)
        for length in range(1, max_length + 1):
            first, last = ahead[(length + 1) // 2], back[length // 2]
            joined.append(_meet(graph, first, last, length))
    keys, place = np.unique(np.concatenate([key for key, _, _ in joined]), return_inverse=True)
    support = np.bincount(place, np.concatenate([each for _, each, _ in joined]), len(keys)).astype(np.int64)
    hit = np.bincount(place, np.concatenate([each for _, _, each in joined]), len(keys))
    paths = tuple(_decoded(int(key), base) for key in keys)
    walks = _all_walks(graph, hidden.before, paths)
    return FoundPaths(paths, support, hit / np.maximum(walks, hit))


def counted_paths(graph: Graph, hidden: HiddenEdges, paths: Sequence[Path]) -> FoundPaths:
    """Count given paths as `find_paths` does, over all edges.

    >>> from rulewright.data import KnowledgeBase
    >>> facts = [("ann", "p", "bob"), ("bob", "p", "cid"), ("ann", "g", "cid")]
    >>> graph = Graph.of(KnowledgeBase.from_triples(facts))
    >>> counted_paths(graph, HiddenEdges(2, np.array([0]), np.array([2])), [(0, 0), (0, 1)]).support.tolist()
    [1, 0]
    """
    evidence = Evidence(graph, RuleTable.of_paths(hidden.step, paths, "counted"))
    support, hit = np.zeros(len(paths), dtype=np.int64), np.zeros(len(paths))
    block = max(1, CELLS // graph.entities)
    for low in range(0, len(hidden.before), block):
        part = hidden.part(slice(low, low + block))
        wanted = np.zeros((len(part.before), graph.entities), dtype=bool)
        wanted[np.arange(len(part.before)), part.after] = True
        _, _, rule, value = evidence.firings(part.before, part, wanted=wanted)
        support += np.bincount(rule, minlength=len(paths))
        hit += np.bincount(rule, 2**value - 1, len(paths))
    walks = _all_walks(graph, hidden.before, tuple(paths))
    return FoundPaths(tuple(paths), support, hit / np.maximum(np.maximum(walks, hit), 1))


def _blocks(graph: Graph, hidden: HiddenEdges, max_length: int, max_edges: int | None) -> list[slice]:
    """Cut the facts into blocks whose partial walks fit."""
    degree = np.diff(graph.leaving[0])
    if max_edges is not None:
        degree = np.minimum(degree, max_edges)
    far = np.ones(graph.entities)
    pointers, _, after = graph.leaving
    starts = np.repeat(np.arange(graph.entities), np.diff(pointers))
    for _ in range(1, (max_length + 1) // 2):
        total = np.bincount(starts, far[after] * degree[after], graph.entities)
        far = total * (degree / np.maximum(np.diff(pointers), 1)) / np.maximum(degree, 1)
    cost = np.cumsum(degree[hidden.before] * np.maximum(far[hidden.before], 1) + 1)
    block = np.unique((cost // MOST_STATES).astype(np.int64), return_index=True)[1]
    bounds = [*block.tolist(), len(cost)]
    return [slice(low, high) for low, high in pairwise(bounds)]


def spread(
    graph: Graph, hidden: HiddenEdges, entities: Ids, steps: int, max_edges: int | None, random: np.random.Generator
) -> list[Walkers]:
    """Walk all relations at once, up to a number of steps."""
    facts = np.arange(len(entities))
    found = [Walkers(facts, np.zeros(len(facts), dtype=np.int64), entities, np.ones(len(facts)))]
    pointers, relations, ends = graph.leaving
    for _ in range(steps):
        now = found[-1]
        degree = np.diff(pointers)[now.place]
        edge = expand_ranges(pointers[now.place], degree)
        source = np.repeat(np.arange(len(now)), degree)
        if max_edges is not None and len(degree) and degree.max() > max_edges:
            keep = random.random(len(edge)) * degree[source] < max_edges
            edge, source = edge[keep], source[keep]
        relation, end, fact = relations[edge], ends[edge], now.fact[source]
        place = now.place[source]
        uses = (relation == hidden.step) & (place == hidden.before[fact]) & (end == hidden.after[fact])
        uses |= (relation == hidden.step ^ 1) & (place == hidden.after[fact]) & (end == hidden.before[fact])
        keep = ~uses
        code = now.code[source] * (2 * graph.relations) + relation
        found.append(_gathered(graph, fact[keep], code[keep], end[keep], now.ways[source][keep]))
    return found


def _gathered(graph: Graph, fact: Ids, code: Ids, place: Ids, ways: npt.NDArray[np.float64]) -> Walkers:
    """Bring together the walks of one fact and path that stand on one entity."""
    key = (fact * (code.max(initial=0) + 1) + code) * graph.entities + place
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]])) if len(key) else np.zeros(0, dtype=np.int64)
    total = np.add.reduceat(ways[order], first) if len(key) else ways
    chosen = order[first]
    return Walkers(fact[chosen], code[chosen], place[chosen], total)


def _meet(
    graph: Graph, ahead: Walkers, back: Walkers, length: int
) -> tuple[Ids, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Join walks from both ends where they meet: the path's number, how many facts it joins, in how many ways."""
    base = 2 * graph.relations
    order = np.argsort(back.fact * graph.entities + back.place, kind="stable")
    left, right = match_sorted(
        ahead.fact * graph.entities + ahead.place, (back.fact * graph.entities + back.place)[order]
    )
    right = order[right]
    forward = _turned(back.code, length // 2, base)
    code = ahead.code[left] * base ** (length // 2) + forward[right]
    code = _tagged(code, length, base)
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
    new_code = np.concatenate([[True], code[1:] != code[:-1]])
    new = new_code | np.concatenate([[True], fact[1:] != fact[:-1]])
    first = np.flatnonzero(new_code)
    return code[first], np.add.reduceat(new.astype(np.float64), first), np.add.reduceat(ways, first)


def _turned(code: Ids, length: int, base: int) -> Ids:
    """Turn the number of a path walked from the other end: its steps reversed, each inverted."""
    turned, rest = np.zeros_like(code), code
    for _ in range(length):
        turned, rest = turned * base + (rest % base ^ 1), rest // base
    return turned


def _tagged(code: Ids, length: int, base: int) -> Ids:
    """Tell paths of different lengths apart: shorter ones come before all longer ones."""
    shifted: Ids = code + sum(base**each for each in range(1, length))
    return shifted


def _decoded(key: int, base: int) -> Path:
    length = 1
    while key >= base**length:
        key -= base**length
        length += 1
    steps = []
    for _ in range(length):
        steps.append(key % base)
        key //= base
    return tuple(reversed(steps))


def _all_walks(graph: Graph, heads: Ids, paths: tuple[Path, ...]) -> npt.NDArray[np.float64]:
    """Count all walks of each path from the heads: ``v_first · u_last``, where the path is cut in two.

    ``v = s A_1 … A_k`` says how many walks have come to each entity, ``u = A_k+1 … A_l 1`` how many lead on from it.
    """
    start = np.bincount(heads, minlength=graph.entities).astype(np.float64)
    ahead: dict[Path, npt.NDArray[np.float64]] = {(): start}
    onward: dict[Path, npt.NDArray[np.float64]] = {(): np.ones(graph.entities)}

    def came(path: Path) -> npt.NDArray[np.float64]:
        if path not in ahead:
            ahead[path] = graph.adjacency(path[-1] ^ 1) @ came(path[:-1])
        return ahead[path]

    def leads(path: Path) -> npt.NDArray[np.float64]:
        if path not in onward:
            onward[path] = graph.adjacency(path[0]) @ leads(path[1:])
        return onward[path]

    return np.array([came(path[: (len(path) + 1) // 2]) @ leads(path[(len(path) + 1) // 2 :]) for path in paths])
