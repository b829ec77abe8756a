"""Rules to be weighed, found and counted on the facts of a relation: paths that join their ends, rules with constants.

Walkers go from the ends of the facts along all relations at once, each on the graph without its own fact. Paths are
held by their codes, see `engine.joining_walks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rulewright.checks import Whole, check_parameter
from rulewright.data.index import Ids, expand_ranges
from rulewright.engine.joining_walks import EMPTY_CODE, count_walks, find_joining_codes
from rulewright.engine.walks import ANY_ENTITY, Evidence, Floats, Graph, HiddenEdges, RuleForm, RuleTable
from rulewright.logic import Path, count_steps, invert_step

LONGEST = 5
DOUBT = 5.0
"""Added to a body's count, so that few observations give little confidence."""
MAX_JOINED = 20_000_000
"""How many walks between the ends of all facts are looked at."""
MAX_OF_FACT = 60_000
"""How many of them are between the ends of one fact; on dense graphs there are millions, and these say as much."""
CONSIDERED = 20
"""The confidence is counted of so many times the paths that are kept."""
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


@dataclass(frozen=True)
class CountedRules:
    """Rules with how often they answer a query rightly (``support``) and how often they speak at all (``body``).

    A rule is counted only where it has ``min_support``.
    """

    table: RuleTable
    support: Floats
    body: Floats
    min_support: Floats

    @property
    def confidence(self) -> Floats:
        """``support / (body + 5)``."""
        return self.support / (self.body + DOUBT)


@dataclass(frozen=True)
class Walkers:
    """Partial walks: of which fact, by which path (its code), to which entity, how many ways."""

    fact: Ids
    code: Ids
    entity: Ids
    ways: Floats


def find_paths(
    graph: Graph,
    hidden: HiddenEdges,
    *,
    max_length: int = 3,
    max_edges: int | None = None,
    min_support: int = 1,
    min_confidence: float = 0.0,
    max_paths: int | None = None,
    seed: int = 0,
) -> FoundPaths:
    """Find the paths up to a length that join the ends of facts, given as the edges to be hidden from themselves.

    Walks from both ends meet in the middle. Where ``max_edges`` is given, a walker takes about so many of the edges
    that leave an entity, drawn at random, so that hubs stay affordable; without it every path is found, unless more
    than `MAX_JOINED` walks join the ends of all facts, or `MAX_OF_FACT` those of one: then those with many take fewer
    edges. ``max_paths`` keeps the
    paths with the most support × confidence, the best first, out of `CONSIDERED` times as many with the most support.

    >>> from rulewright.data import KnowledgeBase
    >>> facts = [("ann", "p", "bob"), ("bob", "p", "cid"), ("ann", "g", "cid")]
    >>> graph = Graph(KnowledgeBase.from_triples(facts))
    >>> find_paths(graph, HiddenEdges(2, np.array([0]), np.array([2])), max_length=2).paths
    ((0, 0),)
    """
    check_parameter("max_length", max_length, Whole(1, LONGEST))
    n_steps, facts = count_steps(graph.relations), len(hidden.before)
    codes, _, ways = find_joining_codes(
        graph.columns,
        n_steps,
        hidden.step,
        np.ascontiguousarray(hidden.before, dtype=np.int64),
        np.ascontiguousarray(hidden.after, dtype=np.int64),
        max_length,
        2**62 if max_edges is None else max_edges,
        max(1000, min(MAX_JOINED // max(facts, 1), MAX_OF_FACT)),
        seed,
    )
    order = np.argsort(codes, kind="stable")
    codes, first = np.unique(codes[order], return_index=True)
    support = np.diff(np.append(first, len(order)))
    hits = np.add.reduceat(ways[order], first) if len(order) else ways
    considered = np.flatnonzero(support >= min_support)
    if max_paths is not None and len(considered) > CONSIDERED * max_paths:
        most = np.argsort(-support[considered], kind="stable")[: CONSIDERED * max_paths]
        considered = np.sort(considered[most])
    codes, support, hits = codes[considered], support[considered], hits[considered]
    confidence = hits / np.maximum(_count_all_walks(graph, hidden.before, codes), hits)
    chosen = np.flatnonzero(confidence >= min_confidence)
    if max_paths is not None:
        chosen = chosen[np.argsort(-(support * confidence)[chosen], kind="stable")][:max_paths]
    paths = tuple(read_code(code, n_steps) for code in codes[chosen].tolist())
    return FoundPaths(paths, support[chosen], confidence[chosen])


def _count_all_walks(graph: Graph, heads: Ids, codes: Ids) -> Floats:
    """Count all walks of each path from the heads; codes are sorted, so shorter ones come first."""
    n_steps = count_steps(graph.relations)
    counts = [np.zeros(0)]
    starts = np.ascontiguousarray(heads, dtype=np.int64)
    bounds = np.searchsorted(codes, [n_steps**length for length in range(LONGEST + 2)])
    for length, (low, high) in enumerate(pairwise(bounds.tolist())):
        if low < high:
            counts.append(count_walks(graph.columns, n_steps, starts, codes[low:high], length))
    return np.concatenate(counts)


def count_paths(graph: Graph, hidden: HiddenEdges, paths: Sequence[Path]) -> FoundPaths:
    """Count given paths as `find_paths` does, over all edges.

    >>> from rulewright.data import KnowledgeBase
    >>> facts = [("ann", "p", "bob"), ("bob", "p", "cid"), ("ann", "g", "cid")]
    >>> graph = Graph(KnowledgeBase.from_triples(facts))
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
    codes = np.array([write_code(path, count_steps(graph.relations)) for path in paths], dtype=np.int64)
    order = np.argsort(codes)
    walks = np.zeros(len(codes))
    walks[order] = _count_all_walks(graph, hidden.before, codes[order])
    return FoundPaths(tuple(paths), support, hit / np.maximum(np.maximum(walks, hit), 1))


def spread_walkers(
    graph: Graph, hidden: HiddenEdges, entities: Ids, length: int, max_edges: int | None, random: np.random.Generator
) -> list[Walkers]:
    """Walk all relations at once; return the walkers after 0, 1, … ``length`` steps.

    The walks of one fact and path that stand on one entity are one walker.
    """
    facts = np.arange(len(entities))
    stages = [Walkers(facts, np.full(len(facts), EMPTY_CODE), entities, np.ones(len(facts)))]
    pointers, steps, ends = graph.leaving
    for _ in range(length):
        walkers = stages[-1]
        degree = np.diff(pointers)[walkers.entity]
        first, taken = pointers[walkers.entity], degree
        if max_edges is not None:
            taken = np.minimum(degree, max_edges)
        source, edge = np.repeat(np.arange(len(degree)), taken), expand_ranges(first, taken)
        is_drawn = (taken < degree)[source]
        if is_drawn.any():  # about so many of the edges: those drawn twice are taken once
            drawn = source[is_drawn]
            edge[is_drawn] = first[drawn] + (random.random(len(drawn)) * degree[drawn]).astype(np.int64)
            distinct = np.unique(source * len(steps) + edge)
            source, edge = distinct // len(steps), distinct % len(steps)
        step, end, fact, start = steps[edge], ends[edge], walkers.fact[source], walkers.entity[source]
        before, after = hidden.before[fact], hidden.after[fact]
        uses = (step == hidden.step) & (start == before) & (end == after)
        uses |= (step == invert_step(hidden.step)) & (start == after) & (end == before)
        keep = ~uses
        code = (walkers.code[source] * count_steps(graph.relations) + step)[keep]
        fact, end, ways = fact[keep], end[keep], walkers.ways[source][keep]
        key = (fact * (code.max(initial=0) + 1) + code) * graph.entities + end
        order = np.argsort(key, kind="stable")
        first = np.flatnonzero(np.diff(key[order], prepend=-1))
        chosen = order[first]
        stages.append(Walkers(fact[chosen], code[chosen], end[chosen], np.add.reduceat(ways[order], first)))
    return stages


def read_code(code: int, n_steps: int) -> Path:
    """Return the path of a code: its digits to the base ``n_steps`` after the first, which is 1.

    >>> read_code(4**2 + 13, 4)
    (3, 1)
    """
    path: Path = ()
    while code > EMPTY_CODE:
        code, step = divmod(code, n_steps)
        path = (step, *path)
    return path


def write_code(path: Path, n_steps: int) -> int:
    """Return the code of a path.

    >>> read_code(write_code((3, 1), 4), 4)
    (3, 1)
    """
    code = EMPTY_CODE
    for step in path:
        code = code * n_steps + step
    return code


def count_constant_rules(
    graph: Graph,
    hidden: HiddenEdges,
    *,
    max_length: int = 1,
    max_rules: int | None = None,
    min_support: int = 2,
    min_confidence: float = 0.02,
    gain: float = 1.25,
    max_edges: int | None = 300,
    seed: int = 0,
) -> CountedRules:
    """Count the rules with constants that answer queries about the facts of a relation, each hidden from itself.

    - ``r(X, c)``: how often ``c`` is the answer, whatever the query (an empty path).
    - ``r(X, c) ← P(X, Z)`` and ``r(X, c) ← P(X, d)`` for paths ``P`` of up to ``max_length`` relations. Such a rule
      must be more confident than the one it specialises, by the factor ``gain``.
    - ``r(c, Y) ← p(Y, d)``: what the answers to queries about ``c`` have in common.

    ``max_rules`` keeps those with the most support × confidence. A ``max_length`` of 0 counts no rules at all.
    """
    if max_length == 0:
        return CountedRules(RuleTable.of_paths(hidden.step, ()), np.zeros(0), np.zeros(0), np.zeros(0))
    random = np.random.default_rng(seed)
    n_steps, entities, answers = count_steps(graph.relations), graph.entities, hidden.after
    distinct, counts = np.unique(answers, return_counts=True)
    parts: list[tuple[Ids | int, ...]] = [
        (EMPTY_CODE, RuleForm.ANSWER, distinct, ANY_ENTITY, counts, len(answers), 1)  # the columns of rules
    ]
    prior = np.bincount(answers, minlength=entities) / max(len(answers), 1)
    stages = spread_walkers(graph, hidden, hidden.before, max_length, max_edges, random)[1:]
    for walkers in stages:
        first = np.unique(walkers.fact * (walkers.code.max(initial=0) + 1) + walkers.code, return_index=True)[1]
        to_anywhere = walkers.fact[first], walkers.code[first], np.full(len(first), ANY_ENTITY)
        for fact, code, end in (to_anywhere, (walkers.fact, walkers.code, walkers.entity)):
            bodies, row_body, body_counts = np.unique(
                code * (entities + 1) + end + 1, return_inverse=True, return_counts=True
            )
            often = np.flatnonzero(body_counts[row_body] >= min_support)
            key, support = np.unique(row_body[often] * entities + answers[fact[often]], return_counts=True)
            body, answer, body_count = bodies[key // entities], key % entities, body_counts[key // entities]
            keep = (support >= min_support) & (support / (body_count + DOUBT) >= min_confidence)
            keep &= support / body_count >= gain * prior[answer]
            keep &= body != (n_steps + hidden.step) * (entities + 1) + answer + 1  # r(X, c) ← r(X, c)
            code, end = body[keep] // (entities + 1), body[keep] % (entities + 1) - 1
            figures = support[keep], body_count[keep], min_support
            parts.append((code, RuleForm.ANSWER, answer[keep], end, *figures))
    parts.append(_count_asked(graph, hidden, min_support, max_edges, min_confidence, random))
    code, form, constant, end, supports, body_totals, least = (
        np.concatenate([np.broadcast_to(part[position], np.shape(part[2])) for part in parts]) for position in range(7)
    )
    strength = supports * (supports / (body_totals + DOUBT))
    chosen = np.sort(np.argsort(-strength, kind="stable")[:max_rules])
    codes = [EMPTY_CODE, *(code for walkers in stages for code in np.unique(walkers.code)), *np.unique(parts[-1][0])]
    position = {int(code): index for index, code in enumerate(dict.fromkeys(codes))}
    path_index = np.array([position[code] for code in code[chosen].tolist()], dtype=np.int64)
    paths = tuple(read_code(code, n_steps) for code in position)
    return CountedRules(
        RuleTable(hidden.step, paths, path_index, form[chosen], constant[chosen], end[chosen]),
        *(column[chosen].astype(np.float64) for column in (supports, body_totals, least)),
    )


def _count_asked(
    graph: Graph,
    hidden: HiddenEdges,
    min_support: int,
    max_edges: int | None,
    min_confidence: float,
    random: np.random.Generator,
) -> tuple[Ids | int, ...]:
    """Count ``r(c, Y) ← p(Y, d)``; return the columns of rules."""
    _, asked_index, counts = np.unique(hidden.before, return_inverse=True, return_counts=True)
    rows = np.flatnonzero(counts[asked_index] >= min_support)
    part = HiddenEdges(hidden.step, hidden.before[rows], hidden.after[rows])
    near = spread_walkers(graph, part, part.after, 1, max_edges, random)[1]
    features, feature_index = np.unique(near.code * graph.entities + near.entity, return_inverse=True)
    key, support = np.unique(feature_index * graph.entities + part.before[near.fact], return_counts=True)
    key, support = key[support >= min_support], support[support >= min_support]
    feature, constant = features[key // graph.entities], key % graph.entities
    code, end = feature // graph.entities, feature % graph.entities
    step = code - count_steps(graph.relations)
    body = np.zeros(len(step), dtype=np.int64)
    for one in np.unique(step):
        body[step == one] = graph.degrees(invert_step(int(one)))[end[step == one]]
    keep = support / (body + DOUBT) >= min_confidence
    keep &= ~((step == invert_step(hidden.step)) & (end == constant))
    return code[keep], RuleForm.ASKED, constant[keep], end[keep], support[keep], body[keep], min_support
