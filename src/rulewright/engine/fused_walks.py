"""All rules of a table walked at once for a query, compiled: what `walks.Evidence` runs.

The paths of the rules make a trie, whose nodes stand in the order of a walk down and along it. A query holds one state
for each length: which entities the walkers of the node's path have come to, and in how many ways. A node's state is
made from that of the node above it, edge by edge, without the query's hidden edge; the rules of the node speak, and
the walk goes on. So a step that many paths share is walked once, and nothing is held but the states of one path.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

Column = npt.NDArray[Any]

ONCE, COUNTED, TELLING = 0, 1, 2
MOST_TIED = 10


class GraphColumns(NamedTuple):
    """The edges of a graph by where they begin, then by step, then by end.

    The edges of entity ``e`` by one step are a block: its blocks are ``first_block[e] … first_block[e + 1] − 1``, the
    edges of block ``b`` are ``first_edge[b] … first_edge[b + 1] − 1``. Those of step ``s`` are
    ``blocks[first_of_step[s]] …``.
    """

    first_block: Column
    block_step: Column
    block_entity: Column
    first_of_step: Column
    blocks: Column
    first_edge: Column
    end: Column
    strength: Column


class RuleColumns(NamedTuple):
    """The rules of one query, by the nodes of the trie of their paths; node 0 is the empty path.

    ``past[n]`` is the node after all that follow on from node ``n``. The rules of a node that are closed are
    ``closed_rule[closed[n]] …``; ``is_apart`` says which of them leave out the entity asked about. Rules that name the
    answer are in ``answer_rule``, by the end that their path must reach, −1 for any. ``every_rule`` speaks for all.
    Rules about one entity are in ``asked_rule``, by that entity, each with a body, whose entities stand in ``reached``;
    ``body_step`` is the step of a body that is one step, or −1, ``body_end`` the end it must reach, or −1.
    Rules about the edges of one end alone are in ``lone_rule``: how many of ``lone_step`` leave the candidate, or the
    entity asked about where ``is_lone_asked``. Rules of two paths are ``both_rule[both[n]] …`` at the later of their
    nodes; what the earlier one reached is kept in the slot ``kept_slot`` of its node (−1 for none), the rule's
    ``both_slot``.
    """

    step: Column
    depth: Column
    past: Column
    closed: Column
    closed_rule: Column
    is_apart: Column
    answer: Column
    answer_end: Column
    answer_rule: Column
    every_rule: Column
    asked_entity: Column
    asked_rule: Column
    asked_body: Column
    first_reached: Column
    reached: Column
    body_step: Column
    body_end: Column
    lone_rule: Column
    lone_step: Column
    is_lone_asked: Column
    kept_slot: Column
    both: Column
    both_rule: Column
    both_slot: Column
    constant: Column


class Firings(NamedTuple):
    """Which rule speaks for which candidate, how truly; the first ``count`` rows are in use."""

    candidate: Column
    rule: Column
    value: Column


class States(NamedTuple):
    """For each length of a path, the ways to each entity, and which entities have any, ``many`` of them.

    ``is_spoken_for`` is for candidates that are gone through once; nothing is marked between two walks.
    """

    ways: Column
    reached: Column
    many: Column
    is_spoken_for: Column


@numba.njit(cache=True, nogil=True)
def make_states(depth: int, entities: int) -> States:
    """Return room for the states of one query; all ways are 0 between two walks."""
    return States(
        np.zeros((depth + 1, entities)),
        np.zeros((depth + 1, entities), dtype=np.int32),
        np.zeros(depth + 1, dtype=np.int64),
        np.zeros(entities, dtype=np.bool_),
    )


@numba.njit(cache=True, nogil=True)
def find_block(first_block: Column, block_step: Column, entity: int, step: int) -> int:
    """Return the block of an entity's edges by a step, or −1."""
    low, past = first_block[entity], first_block[entity + 1]
    high = past
    while low < high:
        middle = (low + high) // 2
        if block_step[middle] < step:
            low = middle + 1
        else:
            high = middle
    return low if low < past and block_step[low] == step else -1


@numba.njit(cache=True, nogil=True)
def give_room(firings: Firings, used: int, more: int) -> Firings:
    """Return firings with room for some more."""
    room = max(2 * len(firings.rule), used + more)
    candidate, rule = np.empty(room, dtype=np.int32), np.empty(room, dtype=np.int32)
    value = np.empty(room)
    candidate[:used], rule[:used], value[:used] = firings.candidate[:used], firings.rule[:used], firings.value[:used]
    return Firings(candidate, rule, value)


@numba.njit(cache=True, nogil=True)
def fire(
    graph: GraphColumns,
    rules: RuleColumns,
    counting: int,
    asked: int,
    hidden_step: int,
    hidden_after: int,
    wanted: Column,
    states: States,
    firings: Firings,
    used: int,
) -> tuple[Firings, int]:
    """Add all firings of a query about the entity ``asked``; ``hidden_step`` is −1 where no edge is hidden.

    ``wanted`` says which candidates to look at; where it is empty, all.
    """
    # columns are held by names of their own: reading them from their tuple in a loop costs more than the loop
    first_block, block_step, block_entity = graph.first_block, graph.block_step, graph.block_entity
    first_of_step, blocks, first_edge, edge_end = graph.first_of_step, graph.blocks, graph.first_edge, graph.end
    strength, ways, reached, many = graph.strength, states.ways, states.reached, states.many
    node_step, node_depth, node_past = rules.step, rules.depth, rules.past
    closed, closed_rule, is_apart = rules.closed, rules.closed_rule, rules.is_apart
    answer, answer_end, answer_rule, constant = rules.answer, rules.answer_end, rules.answer_rule, rules.constant
    candidates, fired, values = firings.candidate, firings.rule, firings.value
    room, earlier = len(fired), used
    telling, all_wanted = counting == TELLING, len(wanted) == 0
    kept_slot, both, both_rule, both_slot = rules.kept_slot, rules.both, rules.both_rule, rules.both_slot
    has_both, n_kept, kept = len(both_rule) > 0, 0, np.empty(256 if len(both_rule) else 0, dtype=np.int32)
    slot_first = np.zeros(kept_slot.max() + 1 if has_both else 0, dtype=np.int64)
    slot_past = np.zeros(len(slot_first), dtype=np.int64)
    ways[0, asked], reached[0, 0], many[0] = 1.0, asked, 1
    node = 0
    while node < len(node_step):
        depth, here = node_depth[node], 1
        if depth:  # make the state of this path from the one it goes on from, without the hidden edge
            step = node_step[node]
            for position in range(many[depth]):
                ways[depth, reached[depth, position]] = 0.0
            here = 0
            before, after, rise = -1, -1, 1.0
            if step == hidden_step:
                before, after = asked, hidden_after
            elif hidden_step >= 0 and step == hidden_step ^ 1:
                before, after = hidden_after, asked
            if telling and after >= 0:  # the edges beside the hidden one tell more without it
                entering = find_block(first_block, block_step, after, step ^ 1)
                count = first_edge[entering + 1] - first_edge[entering] if entering >= 0 else 1
                rise = np.sqrt(count / max(count - 1, 1))
            # of the entities that were reached and those that the step leaves, the fewer are looked through
            first, there = first_of_step[step], many[depth - 1]
            leaving = first_of_step[step + 1] - first
            by_step = leaving < 4 * there
            for position in range(leaving if by_step else there):
                if by_step:
                    block = blocks[first + position]
                    entity = block_entity[block]
                else:
                    entity = reached[depth - 1, position]
                    block = find_block(first_block, block_step, entity, step)
                    if block < 0:
                        continue
                come = ways[depth - 1, entity]
                if come == 0.0:
                    continue
                low, high = first_edge[block], first_edge[block + 1]
                if telling and entity == before:
                    come *= np.sqrt((high - low) / max(high - low - 1, 1))
                for edge in range(low, high):
                    end = edge_end[edge]
                    add = come * strength[edge] if telling else come
                    if end == after:
                        if entity == before:
                            continue
                        add *= rise
                    if ways[depth, end] == 0.0:
                        reached[depth, here] = end
                        here += 1
                    ways[depth, end] += add
            many[depth] = here
        if here == 0:
            node = node_past[node]
            continue
        low, high = answer[node], answer[node + 1]
        needed = used + here * (closed[node + 1] - closed[node]) + high - low
        if needed > room:
            firings = give_room(firings, used, needed - used)
            candidates, fired, values = firings.candidate, firings.rule, firings.value
            room = len(fired)
        for place in range(closed[node], closed[node + 1]):
            rule, leave_out = closed_rule[place], is_apart[place]
            for position in range(here):
                end = reached[depth, position]
                if (all_wanted or wanted[end]) and not (leave_out and end == asked):
                    candidates[used], fired[used], values[used] = end, rule, ways[depth, end]
                    used += 1
        if has_both:
            slot = kept_slot[node]
            if slot >= 0:
                if n_kept + here > len(kept):
                    grown = np.empty(2 * (n_kept + here), dtype=np.int32)
                    grown[:n_kept] = kept[:n_kept]
                    kept = grown
                kept[n_kept : n_kept + here] = reached[depth, :here]
                slot_first[slot], slot_past[slot] = n_kept, n_kept + here
                n_kept += here
            for place in range(both[node], both[node + 1]):
                slot = both_slot[place]
                if used + slot_past[slot] - slot_first[slot] > room:
                    firings = give_room(firings, used, slot_past[slot] - slot_first[slot])
                    candidates, fired, values = firings.candidate, firings.rule, firings.value
                    room = len(fired)
                for position in range(slot_first[slot], slot_past[slot]):
                    end = kept[position]
                    if ways[depth, end] != 0.0 and (all_wanted or wanted[end]):
                        candidates[used], fired[used], values[used] = end, both_rule[place], -1.0
                        used += 1
            needed = used + high - low
            if needed > room:
                firings = give_room(firings, used, high - low)
                candidates, fired, values = firings.candidate, firings.rule, firings.value
                room = len(fired)
        while low < high and answer_end[low] < 0:
            rule = answer_rule[low]
            if all_wanted or wanted[constant[rule]]:
                candidates[used], fired[used], values[used] = constant[rule], rule, -1.0
                used += 1
            low += 1
        by_rule = high - low <= 8 * here
        for position in range(high - low if by_rule else here):
            if by_rule:
                place, past = low + position, low + position + 1
                if ways[depth, answer_end[place]] == 0.0:
                    continue
            else:
                end = reached[depth, position]
                place = low + np.searchsorted(answer_end[low:high], end)
                past = high
            while place < past and (by_rule or answer_end[place] == end):
                rule = answer_rule[place]
                if all_wanted or wanted[constant[rule]]:
                    candidates[used], fired[used], values[used] = constant[rule], rule, -1.0
                    used += 1
                place += 1
        node += 1
    for depth in range(len(many)):
        for position in range(many[depth]):
            ways[depth, reached[depth, position]] = 0.0
        many[depth] = 0
    if len(rules.every_rule) or len(rules.asked_rule):
        firings, used = _fire_further(
            graph, rules, asked, hidden_step, hidden_after, wanted, ways.shape[1], firings, used
        )
    if len(rules.lone_rule):
        firings, used = _fire_lone(
            graph, rules, asked, hidden_step, hidden_after, states.is_spoken_for, firings, earlier, used
        )
    return firings, used


@numba.njit(cache=True, nogil=True)
def _fire_lone(
    graph: GraphColumns,
    rules: RuleColumns,
    asked: int,
    hidden_step: int,
    hidden_after: int,
    is_spoken_for: Column,
    firings: Firings,
    earlier: int,
    used: int,
) -> tuple[Firings, int]:
    """Add the firings of rules about one end alone, for each candidate that another rule speaks for.

    The value of ``n`` edges is ``−1 − n``, which `find_truths` turns into ``log₂(1 + n)``.
    """
    last = used
    for place in range(earlier, last):
        candidate = firings.candidate[place]
        if is_spoken_for[candidate]:
            continue
        is_spoken_for[candidate] = True
        if used + len(rules.lone_rule) > len(firings.rule):
            firings = give_room(firings, used, len(rules.lone_rule))
        for position in range(len(rules.lone_rule)):
            entity = asked if rules.is_lone_asked[position] else candidate
            step = rules.lone_step[position]
            block = find_block(graph.first_block, graph.block_step, entity, step)
            if block < 0:
                continue
            count = graph.first_edge[block + 1] - graph.first_edge[block]
            if hidden_step >= 0 and (
                (step == hidden_step and entity == asked) or (step == hidden_step ^ 1 and entity == hidden_after)
            ):
                count -= 1
            if count > 0:
                firings.candidate[used], firings.rule[used] = candidate, rules.lone_rule[position]
                firings.value[used] = -1.0 - count
                used += 1
    for place in range(earlier, last):
        is_spoken_for[firings.candidate[place]] = False
    return firings, used


@numba.njit(cache=True, nogil=True)
def _fire_further(
    graph: GraphColumns,
    rules: RuleColumns,
    asked: int,
    hidden_step: int,
    hidden_after: int,
    wanted: Column,
    n_entities: int,
    firings: Firings,
    used: int,
) -> tuple[Firings, int]:
    """Add the firings of rules that speak for everything, and of those about the entity ``asked`` alone."""
    all_wanted = len(wanted) == 0
    for rule in rules.every_rule:
        if used + n_entities > len(firings.rule):
            firings = give_room(firings, used, n_entities)
        for candidate in range(n_entities):
            if all_wanted or wanted[candidate]:
                firings.candidate[used], firings.rule[used], firings.value[used] = candidate, rule, -1.0
                used += 1
    place = np.searchsorted(rules.asked_entity, asked)
    while place < len(rules.asked_entity) and rules.asked_entity[place] == asked:
        rule, body = rules.asked_rule[place], rules.asked_body[place]
        low, high = rules.first_reached[body], rules.first_reached[body + 1]
        before, after = -1, -1
        if hidden_step >= 0 and rules.body_step[body] == hidden_step:
            before, after = asked, hidden_after
        elif hidden_step >= 0 and rules.body_step[body] == hidden_step ^ 1:
            before, after = hidden_after, asked
        if used + high - low > len(firings.rule):
            firings = give_room(firings, used, high - low)
        for position in range(low, high):
            candidate = rules.reached[position]
            if candidate == before:  # a body of one step may hold by the hidden edge alone
                if rules.body_end[body] == after:
                    continue
                block = find_block(graph.first_block, graph.block_step, candidate, rules.body_step[body])
                only = block >= 0 and graph.first_edge[block + 1] - graph.first_edge[block] == 1
                if rules.body_end[body] < 0 and only:
                    continue
            if all_wanted or wanted[candidate]:
                firings.candidate[used], firings.rule[used], firings.value[used] = candidate, rule, -1.0
                used += 1
        place += 1
    return firings, used


@numba.njit(cache=True, nogil=True)
def find_truths(values: Column, used: int, counting: int) -> None:
    """Turn the ways of firings into how true they are, see `walks.path_truth`; −1 is of a rule without ways.

    What is below that is of a rule about one end alone, see `_fire_lone`.
    """
    for place in range(used):
        if values[place] < -1:
            values[place] = np.log2(-values[place])
        elif values[place] < 0 or counting == ONCE:
            values[place] = 1.0
        elif counting == COUNTED:
            values[place] = np.log2(1 + values[place])
        else:
            values[place] = np.log2(1 + 100 * values[place])


@numba.njit(cache=True, nogil=True)
def make_firings(room: int) -> Firings:
    """Return room for firings."""
    return Firings(np.empty(room, dtype=np.int32), np.empty(room, dtype=np.int32), np.empty(room))


@numba.njit(cache=True, nogil=True)
def fire_all(
    graph: GraphColumns,
    rules: RuleColumns,
    counting: int,
    entities: Column,
    hidden_step: int,
    hidden_after: Column,
    wanted: Column,
) -> tuple[Column, Column, Column, Column]:
    """Return (row, candidate, rule, value) of queries; ``wanted`` has a row for each query, or none."""
    n_entities = len(graph.first_block) - 1
    states = make_states(rules.depth.max(), n_entities)
    firings = make_firings(1024)
    ends = np.zeros(len(entities), dtype=np.int64)
    none = np.zeros(0, dtype=np.bool_)
    used = 0
    for row in range(len(entities)):
        after = hidden_after[row] if hidden_step >= 0 else -1
        chosen = wanted[row] if len(wanted) else none
        firings, used = fire(graph, rules, counting, entities[row], hidden_step, after, chosen, states, firings, used)
        ends[row] = used
    find_truths(firings.value, used, counting)
    rows = np.empty(used, dtype=np.int64)
    first = 0
    for row in range(len(entities)):
        rows[first : ends[row]] = row
        first = ends[row]
    return rows, firings.candidate[:used].astype(np.int64), firings.rule[:used].astype(np.int64), firings.value[:used]


@numba.njit(cache=True, nogil=True)
def score_all(
    graph: GraphColumns,
    rules: RuleColumns,
    counting: int,
    entities: Column,
    hidden_step: int,
    hidden_after: Column,
    weights: Column,
) -> Column:
    """Return ``Σ w ψ`` for each query and candidate."""
    n_entities = len(graph.first_block) - 1
    states = make_states(rules.depth.max(), n_entities)
    firings = make_firings(1024)
    none = np.zeros(0, dtype=np.bool_)
    scores = np.zeros((len(entities), n_entities))
    for row in range(len(entities)):
        after = hidden_after[row] if hidden_step >= 0 else -1
        firings, used = fire(graph, rules, counting, entities[row], hidden_step, after, none, states, firings, 0)
        find_truths(firings.value, used, counting)
        for place in range(used):
            scores[row, firings.candidate[place]] += weights[firings.rule[place]] * firings.value[place]
    return scores


@numba.njit(cache=True, nogil=True)
def count_rivals(
    graph: GraphColumns,
    rules: RuleColumns,
    counting: int,
    weights: Column,
    entities: Column,
    answers: Column,
    first_known: Column,
    known: Column,
    low: int,
    high: int,
) -> tuple[Column, Column, Column]:
    """Return for each query how many candidates score higher than its answer, how many the same, and its score.

    Candidates are the entities ``low … high − 1`` but for those ``known`` of the query that are not its answer. The
    entities asked about are sorted, so that those of several queries are walked from once.
    """
    n_entities = len(graph.first_block) - 1
    states = make_states(rules.depth.max(), n_entities)
    firings = make_firings(1024)
    none = np.zeros(0, dtype=np.bool_)
    scores = np.zeros(n_entities)
    touched = np.empty(n_entities, dtype=np.int32)
    is_touched = np.zeros(n_entities, dtype=np.bool_)
    is_known = np.zeros(n_entities, dtype=np.bool_)
    many = 0
    higher, equal = np.zeros(len(entities), dtype=np.int64), np.zeros(len(entities), dtype=np.int64)
    own = np.zeros(len(entities))
    for row in range(len(entities)):
        if row == 0 or entities[row] != entities[row - 1]:
            for place in range(many):
                scores[touched[place]] = 0.0
                is_touched[touched[place]] = False
            many = 0
            firings, used = fire(graph, rules, counting, entities[row], -1, -1, none, states, firings, 0)
            find_truths(firings.value, used, counting)
            for place in range(used):
                candidate = firings.candidate[place]
                if not is_touched[candidate]:
                    is_touched[candidate] = True
                    touched[many] = candidate
                    many += 1
                scores[candidate] += weights[firings.rule[place]] * firings.value[place]
        answer = answers[row]
        score = scores[answer]
        own[row] = score
        silent = high - low
        for place in range(first_known[row], first_known[row + 1]):
            is_known[known[place]] = True
        is_known[answer] = False
        for place in range(many):
            candidate = touched[place]
            if low <= candidate < high:
                silent -= 1
                if not is_known[candidate]:
                    higher[row] += scores[candidate] > score
                    equal[row] += scores[candidate] == score
        for place in range(first_known[row], first_known[row + 1]):
            candidate = known[place]
            if is_known[candidate]:
                is_known[candidate] = False
                silent -= low <= candidate < high and not is_touched[candidate]
        # no rule speaks for the rest, whose score is 0
        higher[row] += silent if score < 0 else 0
        equal[row] += silent if score == 0 else 0
    return higher, equal, own


class ExampleColumns(NamedTuple):
    """The candidates of queries, and for each what speaks for it: a sparse table by rows.

    Those of query ``q`` are rows ``first_candidate[q] … first_candidate[q + 1] − 1``, the firings of row ``c`` are
    ``first_firing[c] … first_firing[c + 1] − 1``; ``stands_for`` says how many candidates a row stands for, and
    ``spoken_for`` counts a query's candidates that any rule speaks for.
    """

    first_candidate: Column
    candidate: Column
    stands_for: Column
    first_firing: Column
    rule: Column
    value: Column
    spoken_for: Column


@numba.njit(cache=True, nogil=True)
def draw_number(seed: int, first: int, second: int) -> float:
    """Return a number in [0, 1) that looks drawn, always the same for the same three."""
    mixed = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(first) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = mixed + np.uint64(second) * np.uint64(0x94D049BB133111EB)
    for _ in range(2):
        mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    mixed = mixed ^ (mixed >> np.uint64(32))
    return float(mixed >> np.uint64(11)) / 2.0**53


@numba.njit(cache=True, nogil=True)
def is_best(scores: Column, is_out: Column, candidate: int, answer: int, max_candidates: int, bound: float) -> bool:
    """Tell whether a candidate is kept for its score, or as the answer."""
    if candidate == answer or is_out[candidate]:
        return bool(candidate == answer)
    return bool(max_candidates == 0 or (scores[candidate] > 0 and scores[candidate] >= bound))


@numba.njit(cache=True, nogil=True)
def collect_examples(
    graph: GraphColumns,
    rules: RuleColumns,
    counting: int,
    first_weights: Column,
    entities: Column,
    answers: Column,
    hidden_step: int,
    first_other: Column,
    other: Column,
    max_candidates: int,
    max_drawn: int,
    seed: int,
) -> ExampleColumns:
    """Pose queries and return the candidates that rules speak for, with what speaks for each.

    Of candidates whose score by ``first_weights`` is above 0, the ``max_candidates`` best are kept, and all that tie
    with the last of them, or none of these where that makes `MOST_TIED` times as many. Of all ``n`` others that have a
    rule, each is kept with the chance ``p = max_drawn / n``, to stand for ``1 / p`` of them. With 0 ``max_candidates``
    all that rules speak for are kept. The answer is always kept, ``other`` right answers never.
    """
    n_entities, count = len(graph.first_block) - 1, len(entities)
    states = make_states(rules.depth.max(), n_entities)
    firings = make_firings(1024)
    none = np.zeros(0, dtype=np.bool_)
    scores, touched = np.zeros(n_entities), np.empty(n_entities, dtype=np.int32)
    room, total, rows = 1024, 0, 0
    rule, value = np.empty(room, dtype=np.int32), np.empty(room)
    room_rows = 1024
    candidates, first_firing = np.empty(room_rows, dtype=np.int32), np.zeros(room_rows + 1, dtype=np.int64)
    stands_for = np.empty(room_rows)
    first_candidate, spoken_for = np.zeros(count + 1, dtype=np.int64), np.zeros(count)
    size = np.zeros(n_entities, dtype=np.int64)  # of firings of a candidate, then where its next one goes
    is_out = np.zeros(n_entities, dtype=np.bool_)
    for row in range(count):
        answer = answers[row]
        firings, used = fire(graph, rules, counting, entities[row], hidden_step, answer, none, states, firings, 0)
        find_truths(firings.value, used, counting)
        fired_for, fired, truths = firings.candidate, firings.rule, firings.value
        many = 0
        for place in range(used):
            candidate = fired_for[place]
            if size[candidate] == 0:
                touched[many] = candidate
                many += 1
            size[candidate] += 1
            scores[candidate] += first_weights[fired[place]] * truths[place]
        for place in range(first_other[row], first_other[row + 1]):
            if other[place] != answer:
                is_out[other[place]] = True
        spoken, promising, bound = 0, 0, 0.0
        high = np.empty(many)
        for place in range(many):
            candidate = touched[place]
            if not is_out[candidate]:
                spoken += 1
                if scores[candidate] > 0:
                    high[promising] = scores[candidate]
                    promising += 1
        if 0 < max_candidates < promising:
            bound = np.partition(high[:promising], promising - max_candidates)[promising - max_candidates]
            if (high[:promising] >= bound).sum() > MOST_TIED * max_candidates:
                bound = np.nextafter(bound, np.inf)
        spoken_for[row] = spoken
        best = 0
        for place in range(many):
            best += is_best(scores, is_out, touched[place], answer, max_candidates, bound)
        chance = min(1.0, max_drawn / max(spoken - best, 1))
        kept, needed = 0, 0
        for place in range(many):
            candidate = touched[place]
            if is_best(scores, is_out, candidate, answer, max_candidates, bound) or (
                not is_out[candidate] and draw_number(seed, row, candidate) < chance
            ):
                touched[kept], touched[place] = candidate, touched[kept]
                kept += 1
                needed += size[candidate]
        for place in range(kept, many):
            size[touched[place]] = 0
            scores[touched[place]] = 0.0
        if rows + kept > room_rows:
            room_rows = max(2 * room_rows, rows + kept)
            grown, grown_first = np.empty(room_rows, dtype=np.int32), np.zeros(room_rows + 1, dtype=np.int64)
            grown_stands = np.empty(room_rows)
            grown[:rows], grown_first[: rows + 1] = candidates[:rows], first_firing[: rows + 1]
            grown_stands[:rows] = stands_for[:rows]
            candidates, first_firing, stands_for = grown, grown_first, grown_stands
        if total + needed > room:
            room = max(2 * room, total + needed)
            grown_rule, grown_value = np.empty(room, dtype=np.int32), np.empty(room)
            grown_rule[:total], grown_value[:total] = rule[:total], value[:total]
            rule, value = grown_rule, grown_value
        chosen = np.sort(touched[:kept])
        for candidate in chosen:
            candidates[rows] = candidate
            is_sure = is_best(scores, is_out, candidate, answer, max_candidates, bound)
            stands_for[rows] = 1.0 if is_sure else 1.0 / chance
            next_one = first_firing[rows] + size[candidate]
            size[candidate] = first_firing[rows] + 1  # one more than where its first firing goes: 0 is for none
            rows += 1
            first_firing[rows] = next_one
        for place in range(used):
            candidate = fired_for[place]
            if size[candidate]:
                rule[size[candidate] - 1] = fired[place]
                value[size[candidate] - 1] = truths[place]
                size[candidate] += 1
        total += needed
        for candidate in chosen:
            size[candidate] = 0
            scores[candidate] = 0.0
        for place in range(first_other[row], first_other[row + 1]):
            is_out[other[place]] = False
        first_candidate[row + 1] = rows
    return ExampleColumns(
        first_candidate,
        candidates[:rows],
        stands_for[:rows],
        first_firing[: rows + 1],
        rule[:total],
        value[:total],
        spoken_for,
    )
