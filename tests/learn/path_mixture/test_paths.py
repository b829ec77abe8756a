from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright import KnowledgeBase
from rulewright.engine.walks import ANY_ENTITY, Evidence, Graph, HiddenEdges, RuleForm
from rulewright.errors import DataError
from rulewright.learn.path_mixture.paths import count_constant_rules, count_paths, find_paths
from rulewright.logic import mirror_path

graphs = st.sets(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 4)), min_size=1, max_size=14)


def graph_of(facts):
    # Every entity and relation is named, so that numbers are places
    kb = KnowledgeBase.from_triples([(f"e{i}", "q", f"e{i}") for i in range(5)])
    columns = {f"r{r}": [[], []] for r in range(3)}
    for h, r, t in sorted(facts):
        columns[f"r{r}"][0].append(h)
        columns[f"r{r}"][1].append(t)
    from rulewright.logic import PredicateDeclaration

    domains = dict(kb.domains)
    kind = next(iter(domains))
    declared = [PredicateDeclaration(name, (kind, kind)) for name in columns]
    arrays = {name: [np.array(each, dtype=np.int32) for each in pair] for name, pair in columns.items()}
    return KnowledgeBase.from_columns(domains, declared, arrays)


def directed(facts):
    return {(2 * r, h, t) for h, r, t in facts} | {(2 * r + 1, t, h) for h, r, t in facts}


def walks(facts, start, path):
    """All ends of a path, with repetition, by nested loops."""
    ends, edges = [start], directed(facts)
    for step in path:
        ends = [after for place in ends for p, before, after in edges if p == step and before == place]
    return ends


@settings(max_examples=60, deadline=None)
@given(graphs, st.lists(st.integers(0, 5), min_size=1, max_size=4), st.data())
def test_hiding_an_edge_is_walking_on_the_graph_without_it(facts, path, data):
    edges = sorted(directed(facts))
    relation = data.draw(st.sampled_from(edges))[0]
    mine = [(h, t) for p, h, t in edges if p == relation]
    before, after = (np.array(each) for each in zip(*mine, strict=True))
    starts = np.array([data.draw(st.integers(0, 4)) for _ in mine])
    found = Graph(graph_of(facts)).walk(starts, tuple(path), HiddenEdges(relation, before, after)).toarray()
    for row, (h, t) in enumerate(mine):
        fact = (t, relation // 2, h) if relation % 2 else (h, relation // 2, t)
        ends = walks(facts - {fact}, starts[row], path)
        assert found[row].tolist() == [ends.count(each) for each in range(5)]


def plain_strength(facts, start, end, path):
    """How strongly a path joins two entities: over all ways, the product of what their edges tell."""
    if not path:
        return float(start == end)
    edges = directed(facts)
    total = 0.0
    for p, before, after in edges:
        if p == path[0] and before == start:
            leave = sum(1 for q, h, _ in edges if q == p and h == before)
            enter = sum(1 for q, _, t in edges if q == p and t == after)
            total += plain_strength(facts, after, end, path[1:]) / (leave * enter) ** 0.5
    return total


@settings(max_examples=40, deadline=None)
@given(graphs, st.data())
def test_given_paths_are_counted_as_found_ones(facts, data):
    edges = sorted(directed(facts))
    relation = data.draw(st.sampled_from(edges))[0]
    before, after = (np.array(each) for each in zip(*((h, t) for p, h, t in edges if p == relation), strict=True))
    graph, hidden = Graph(graph_of(facts)), HiddenEdges(relation, before, after)
    found = find_paths(graph, hidden, max_length=3)
    never = [path for path in product(range(6), repeat=2) if path not in found.paths]
    again = count_paths(graph, hidden, (*found.paths, *never))
    count = len(found.paths)
    assert again.support.tolist() == [*found.support.tolist(), *(0 for _ in never)]
    np.testing.assert_allclose(again.confidence[:count], found.confidence)
    assert not again.confidence[count:].any()


@settings(max_examples=60, deadline=None)
@given(graphs, st.lists(st.integers(0, 5), min_size=1, max_size=3), st.data())
def test_what_edges_tell_is_that_of_the_graph_without_the_hidden_one(facts, path, data):
    edges = sorted(directed(facts))
    relation = data.draw(st.sampled_from(edges))[0]
    mine = [(h, t) for p, h, t in edges if p == relation]
    before, after = (np.array(each) for each in zip(*mine, strict=True))
    starts = np.array([data.draw(st.integers(0, 4)) for _ in mine])
    hidden = HiddenEdges(relation, before, after)
    found = Graph(graph_of(facts)).walk(starts, tuple(path), hidden, telling=True).toarray()
    for row, (h, t) in enumerate(mine):
        fact = (t, relation // 2, h) if relation % 2 else (h, relation // 2, t)
        expected = [plain_strength(facts - {fact}, starts[row], each, path) for each in range(5)]
        assert found[row].tolist() == pytest.approx(expected)
        assert (found[row] > 0).tolist() == [each > 0 for each in expected]


@settings(max_examples=30, deadline=None)
@given(graphs, st.integers(1, 3))
def test_paths_are_those_of_nested_loops(facts, max_length):
    edges = sorted(directed(facts))
    relation = edges[0][0]
    mine = [(h, t) for p, h, t in edges if p == relation]
    before, after = (np.array(each) for each in zip(*mine, strict=True))
    found = find_paths(Graph(graph_of(facts)), HiddenEdges(relation, before, after), max_length=max_length)
    expected = {}
    for length in range(1, max_length + 1):
        for path in product(range(6), repeat=length):
            joined = total = support = 0
            for h, t in mine:
                fact = (t, relation // 2, h) if relation % 2 else (h, relation // 2, t)
                ways = walks(facts - {fact}, h, path).count(t)
                joined, support = joined + ways, support + (ways > 0)
                total += len(walks(facts, h, path))
            if support:
                expected[path] = (support, joined / total)
    assert dict(zip(found.paths, found.support.tolist(), strict=True)) == {p: n for p, (n, _) in expected.items()}
    shares = dict(zip(found.paths, found.confidence.tolist(), strict=True))
    assert shares == pytest.approx({path: share for path, (_, share) in expected.items()})


@settings(max_examples=40, deadline=None)
@given(graphs, st.integers(0, 5))
def test_constant_rules_speak_where_their_bodies_hold(facts, relation):
    graph = Graph(graph_of(facts))
    before, after = graph.edges(relation)
    if len(before) == 0:
        return
    hidden = HiddenEdges(relation, before, after)
    counted = count_constant_rules(graph, hidden, min_support=1, min_confidence=0.0, gain=0.0)
    table = counted.table
    row, candidate, rule, _ = Evidence(graph, table).firings(before, hidden)
    found = set(zip(row.tolist(), candidate.tolist(), rule.tolist(), strict=True))
    assert len(found) == len(row)
    expected = set()
    for place, (h, t) in enumerate(zip(before.tolist(), after.tolist(), strict=True)):
        fact = (t, relation // 2, h) if relation % 2 else (h, relation // 2, t)
        rest = facts - {fact}
        for number in range(len(table)):
            path, constant, end = table.paths[table.path_index[number]], table.constant[number], table.end[number]
            if table.form[number] == RuleForm.ANSWER:
                ends = walks(rest, h, path)
                if ends and (end == ANY_ENTITY or end in ends):
                    expected.add((place, int(constant), number))
            elif constant == h:
                assert table.form[number] == RuleForm.ASKED
                expected |= {(place, y, number) for y in range(5) if end in walks(rest, y, path)}
    assert found == expected
    right = candidate == after[row]
    spoken = np.bincount(rule[right], minlength=len(table))
    assert spoken.tolist() == counted.support.tolist()


def test_walks_turn_round_and_lengths_are_checked():
    assert mirror_path((0, 3, 4)) == (5, 2, 1)
    graph = Graph(graph_of({(0, 0, 1)}))
    with pytest.raises(DataError, match="max_length must lie in"):
        find_paths(graph, HiddenEdges(0, np.array([0]), np.array([1])), max_length=6)


def test_a_sample_of_edges_finds_some_of_the_paths():
    facts = {(0, 0, i) for i in range(1, 5)} | {(i, 1, j) for i in range(5) for j in range(5)}
    graph = Graph(graph_of(facts))
    hidden = HiddenEdges(0, *graph.edges(0))
    every = set(find_paths(graph, hidden, max_length=3).paths)
    some = set(find_paths(graph, hidden, max_length=3, max_edges=2, seed=1).paths)
    assert some < every
