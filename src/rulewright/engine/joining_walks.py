"""Which paths join two entities, compiled: walks along all relations at once, from both ends.

A path has a code: a 1 and then its steps, as digits to the base of how many steps there are, so that shorter paths come
first. Walks from the far end are held by the entity they have come to; walks from the near end are taken one by one,
and where one comes to such an entity, the two make a path.
"""

from __future__ import annotations

import numba
import numpy as np

from rulewright.engine.fused_walks import Column, GraphColumns

EMPTY_CODE = 1
"""The code of the empty path."""


@numba.njit(cache=True, nogil=True)
def _is_drawn(seed: int, fact: int, walk: int, edge: int, degree: int, max_edges: int) -> bool:
    """Draw about ``max_edges`` of the edges that leave an entity, by a hash of where they are."""
    if degree <= max_edges:
        return True
    mixed = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(fact) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = mixed + np.uint64(walk) * np.uint64(0x94D049BB133111EB) + np.uint64(edge) * np.uint64(0xD6E8FEB86659FD93)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    mixed = mixed ^ (mixed >> np.uint64(32))
    return float(mixed >> np.uint64(11)) / 2.0**53 * degree < max_edges


@numba.njit(cache=True, nogil=True)
def find_joining_codes(
    graph: GraphColumns,
    n_steps: int,
    step: int,
    before: Column,
    after: Column,
    max_length: int,
    max_edges: int,
    max_walks: int,
    seed: int,
) -> tuple[Column, Column, Column]:
    """Return (code, fact, ways) of the paths that join the ends of facts, each on the graph without its own fact.

    ``ways`` are the walks of the path between the two ends. A walk takes about ``max_edges`` of the edges that leave an
    entity; where more than ``max_walks`` join the ends of a fact, it is done again with half as many edges.
    """
    n_entities = len(graph.first_block) - 1
    room, total = 1024, 0
    codes, facts, ways = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64), np.empty(room)
    head = np.full(n_entities, -1, dtype=np.int64)  # the latest walk from the far end that came to each entity
    found = np.empty(max_walks + 1, dtype=np.int64)
    for fact in range(len(before)):
        edges = max_edges
        many = _join_ends(
            graph, n_steps, step, before[fact], after[fact], max_length, edges, max_walks, seed, fact, head, found
        )
        while many > max_walks and edges > 1:
            edges = (min(edges, n_entities * n_steps) + 1) // 2
            many = _join_ends(
                graph, n_steps, step, before[fact], after[fact], max_length, edges, max_walks, seed, fact, head, found
            )
        ordered = np.sort(found[: min(many, max_walks)])
        if total + len(ordered) > room:
            room = max(2 * room, total + len(ordered))
            new_codes, new_facts, new_ways = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)
            new_codes[:total], new_facts[:total], new_ways[:total] = codes[:total], facts[:total], ways[:total]
            codes, facts, ways = new_codes, new_facts, new_ways
        for place in range(len(ordered)):
            if place and ordered[place] == ordered[place - 1]:
                ways[total - 1] += 1.0
            else:
                codes[total], facts[total], ways[total] = ordered[place], fact, 1.0
                total += 1
    return codes[:total], facts[:total], ways[:total]


@numba.njit(cache=True, nogil=True)
def _join_ends(
    graph: GraphColumns,
    n_steps: int,
    hidden: int,
    before: int,
    after: int,
    max_length: int,
    max_edges: int,
    max_walks: int,
    seed: int,
    fact: int,
    head: Column,
    found: Column,
) -> int:
    """Find the codes of all walks from ``before`` to ``after``; return how many, or more than ``max_walks``."""
    first_block, block_step = graph.first_block, graph.block_step
    first_edge, edge_end = graph.first_edge, graph.end
    # walks from the far end: where they are, their code read towards the end, their length, the one before them there
    room = 1024
    entity, code, length = np.empty(room, dtype=np.int32), np.empty(room, np.int64), np.empty(room, np.int64)
    earlier = np.empty(room, np.int64)
    entity[0], code[0], length[0], earlier[0] = after, 0, 0, -1
    head[after] = 0
    low, used, power = 0, 1, 1
    too_many = False
    for stage in range(max_length // 2):
        high = used
        for walk in range(low, high):
            here = entity[walk]
            degree = first_edge[first_block[here + 1]] - first_edge[first_block[here]]
            for block in range(first_block[here], first_block[here + 1]):
                step = block_step[block]
                for edge in range(first_edge[block], first_edge[block + 1]):
                    end = edge_end[edge]
                    if step == hidden and here == before and end == after:
                        continue
                    if step == hidden ^ 1 and here == after and end == before:
                        continue
                    if not _is_drawn(seed, fact, -1 - walk, edge, degree, max_edges):
                        continue
                    if used == room:
                        room *= 2
                        entity, code = np.append(entity, entity), np.append(code, code)
                        length, earlier = np.append(length, length), np.append(earlier, earlier)
                    entity[used], code[used] = end, (step ^ 1) * power + code[walk]
                    length[used], earlier[used] = stage + 1, head[end]
                    head[end] = used
                    used += 1
            if used > max_walks:
                too_many = True
                break
        if too_many:
            break
        low = high
        power *= n_steps
    many = max_walks + 1
    if not too_many:
        many = _go_ahead(
            graph, n_steps, hidden, before, after, max_length, max_edges, max_walks, seed, fact,
            head, code, length, earlier, found,
        )  # fmt: skip
    for walk in range(used):
        head[entity[walk]] = -1
    return many


@numba.njit(cache=True, nogil=True)
def _go_ahead(
    graph: GraphColumns,
    n_steps: int,
    hidden: int,
    before: int,
    after: int,
    max_length: int,
    max_edges: int,
    max_walks: int,
    seed: int,
    fact: int,
    head: Column,
    code: Column,
    length: Column,
    earlier: Column,
    found: Column,
) -> int:
    """Walk from the near end, and note the code of every walk that meets one from the far end."""
    first_block, block_step = graph.first_block, graph.block_step
    first_edge, edge_end = graph.first_edge, graph.end
    powers = np.ones(max_length + 1, dtype=np.int64)
    for power in range(max_length):
        powers[power + 1] = powers[power] * n_steps
    room = 1024
    entity, ahead = np.empty(room, dtype=np.int32), np.empty(room, np.int64)
    entity[0], ahead[0] = before, EMPTY_CODE
    low, used, many = 0, 1, 0
    stages = (max_length + 1) // 2
    for stage in range(1, stages + 1):
        high = used
        for walk in range(low, high):
            here = entity[walk]
            degree = first_edge[first_block[here + 1]] - first_edge[first_block[here]]
            for block in range(first_block[here], first_block[here + 1]):
                step = block_step[block]
                for edge in range(first_edge[block], first_edge[block + 1]):
                    end = edge_end[edge]
                    met = head[end]
                    if met < 0 and stage == stages:
                        continue
                    if step == hidden and here == before and end == after:
                        continue
                    if step == hidden ^ 1 and here == after and end == before:
                        continue
                    if not _is_drawn(seed, fact, walk, edge, degree, max_edges):
                        continue
                    own = ahead[walk] * n_steps + step
                    while met >= 0:
                        # a path is cut in the middle, the longer half first, so that each walk is found once
                        if length[met] == stage or length[met] == stage - 1:
                            if many == max_walks:
                                return max_walks + 1
                            found[many] = own * powers[length[met]] + code[met]
                            many += 1
                        met = earlier[met]
                    if stage < stages:
                        if used == room:
                            room *= 2
                            entity, ahead = np.append(entity, entity), np.append(ahead, ahead)
                        entity[used], ahead[used] = end, own
                        used += 1
            if used > max_walks:
                return max_walks + 1
        low = high
    return many


@numba.njit(cache=True, nogil=True)
def count_walks(graph: GraphColumns, n_steps: int, heads: Column, codes: Column, length: int) -> Column:
    """Count all walks of each path of one length from the heads; codes are sorted.

    A path's walks are those of the path before its last step, times the edges of that step that lead on from where
    they have come to.
    """
    n_entities = len(graph.first_block) - 1
    counts = np.zeros(len(codes))
    ways = np.zeros((length, n_entities))
    reached, many = np.zeros((length, n_entities), dtype=np.int32), np.zeros(length, dtype=np.int64)
    for head in heads:
        if ways[0, head] == 0.0:
            reached[0, many[0]] = head
            many[0] += 1
        ways[0, head] += 1.0
    steps, latest = np.zeros(length, dtype=np.int64), np.full(length, -1, dtype=np.int64)
    for path in range(len(codes)):
        rest = codes[path]
        for place in range(length - 1, -1, -1):
            steps[place], rest = rest % n_steps, rest // n_steps
        depth = 0
        while depth < length - 1 and steps[depth] == latest[depth]:
            depth += 1
        for place in range(depth, length):
            step = steps[place]
            first, there = graph.first_of_step[step], many[place]
            leaving = graph.first_of_step[step + 1] - first
            by_step = leaving < 4 * there
            if place + 1 < length:
                for position in range(many[place + 1]):
                    ways[place + 1, reached[place + 1, position]] = 0.0
                many[place + 1] = 0
            for position in range(leaving if by_step else there):
                if by_step:
                    block = graph.blocks[first + position]
                    entity = graph.block_entity[block]
                else:
                    entity = reached[place, position]
                    low, high = graph.first_block[entity], graph.first_block[entity + 1]
                    block = low + np.searchsorted(graph.block_step[low:high], step)
                    if block == high or graph.block_step[block] != step:
                        continue
                come = ways[place, entity]
                if come == 0.0:
                    continue
                if place + 1 == length:
                    counts[path] += come * (graph.first_edge[block + 1] - graph.first_edge[block])
                    continue
                for edge in range(graph.first_edge[block], graph.first_edge[block + 1]):
                    end = graph.end[edge]
                    if ways[place + 1, end] == 0.0:
                        reached[place + 1, many[place + 1]] = end
                        many[place + 1] += 1
                    ways[place + 1, end] += come
        latest[:] = steps
    return counts
