"""Rules to be weighed, found and counted on the facts of a relation: paths that join their ends, rules with constants.

Walkers go from the ends of the facts along all relations at once, each on the graph without its own fact. A path has a
code: a 1 and then its steps, as digits to the base of how many steps there are, so that shorter paths come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rulewright.checks import Whole, check_parameter
from rulewright.data.index import Ids, expand_ranges, match_sorted
from rulewright.engine.walks import ANY_ENTITY, Evidence, Floats, Graph, HiddenEdges, RuleForm, RuleTable
from rulewright.logic import Path, count_steps, invert_step

LONGEST = 5
EMPTY_CODE = 1
"""The code of the empty path."""
DOUBT = 5.0
"""Added to a body's count, so that few observations give little confidence."""
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
    graph: Graph, hidden: HiddenEdges, *, max_length: int = 3, max_edges: int | None = None, seed: int = 0
) -> FoundPaths:
    """Find the paths up to a length that join the ends of facts, given as the edges to be hidden from themselves.

    Walks from both ends meet in the middle. Where ``max_edges`` is given, a walker takes at most so many of the edges
    that leave an entity, drawn at random, so that hubs stay affordable; without it every path is found.

    >>> from rulewright.data import KnowledgeBase
    >>> facts = [("ann", "p", "bob"), ("bob", "p", "cid"), ("ann", "g", "cid")]
    >>> graph = Graph(KnowledgeBase.from_triples(facts))
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
    paths = tuple(read_code(int(code), n_steps) for code in distinct)
    return FoundPaths(paths, support, hit / np.maximum(_count_all_walks(graph, hidden.before, paths), hit))


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
    """Walk all relations at once; return the walkers after 0, 1, … ``length`` steps.

    The walks of one fact and path that stand on one entity are one walker.
    """
    facts = np.arange(len(entities))
    stages = [Walkers(facts, np.full(len(facts), EMPTY_CODE), entities, np.ones(len(facts)))]
    pointers, steps, ends = graph.leaving
    for _ in range(length):
        walkers = stages[-1]
        degree = np.diff(pointers)[walkers.entity]
        edge = expand_ranges(pointers[walkers.entity], degree)
        source = np.repeat(np.arange(len(degree)), degree)
        if max_edges is not None and len(degree) and degree.max() > max_edges:
            drawn = random.random(len(edge)) * degree[source] < max_edges
            edge, source = edge[drawn], source[drawn]
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
    fact, ways = ahead.fact[left], ahead.ways[left] * back.ways[right]
    facts = int(fact.max(initial=0)) + 1
    fits = code.max(initial=0) < 2**62 // facts
    order = np.argsort(code * facts + fact, kind="stable") if fits else np.lexsort((fact, code))
    code, fact, ways = code[order], fact[order], ways[order]
    is_new_code = np.diff(code, prepend=-1) != 0
    is_new_fact = is_new_code | (np.diff(fact, prepend=-1) != 0)
    first = np.flatnonzero(is_new_code)
    return code[first], np.add.reduceat(is_new_fact.astype(np.float64), first), np.add.reduceat(ways, first)


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


def _count_all_walks(graph: Graph, heads: Ids, paths: Sequence[Path]) -> Floats:
    """Count all walks of each path from the heads: ``v_first · u_last``, where the path is cut in two.

    ``v = s A_1 … A_k`` says how many walks have come to each entity, ``u = A_k+1 … A_l 1`` how many lead on from it.
    """
    arrived: dict[Path, Floats] = {(): np.bincount(heads, minlength=graph.entities).astype(np.float64)}
    onward: dict[Path, Floats] = {(): np.ones(graph.entities)}
    halves = [(path[: (len(path) + 1) // 2], path[(len(path) + 1) // 2 :]) for path in paths]
    for first in dict.fromkeys(first for first, _ in halves):
        for stop in range(1, len(first) + 1):
            if first[:stop] not in arrived:
                arrived[first[:stop]] = graph.adjacency(invert_step(first[stop - 1])) @ arrived[first[: stop - 1]]
    for last in dict.fromkeys(last for _, last in halves):
        for start in reversed(range(len(last))):
            if last[start:] not in onward:
                onward[last[start:]] = graph.adjacency(last[start]) @ onward[last[start + 1 :]]
    return np.array([arrived[first] @ onward[last] for first, last in halves])


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
