from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright import KnowledgeBase, apply
from rulewright.errors import DataError
from rulewright.logic import parse_rules
from rulewright.reason.rank import RuleRanker

RULES = """
0.9 :: g(X, Z) :- p(X, Y), p(Y, Z).
0.5 :: g(X, Y) :- q(Y, X).
0.3 :: g(X, Z) :- q(Y, X), p(Y, W), q(W, Z).
0.4 :: g(X, e1) :- p(X, e2).
0.2 :: g(X, e0) :- p(X, Y).
0.6 :: g(e3, Y) :- q(Y, e0).
0.1 :: g(e3, Y) :- q(Y, V), p(V, e1).
"""
graphs = st.sets(st.tuples(st.integers(0, 4), st.sampled_from("pqg"), st.integers(0, 4)), min_size=2, max_size=14)


def kb_of(facts):
    anchors = [(f"e{i}", "other", f"e{i}") for i in range(5)] + [("e4", name, "e4") for name in "pqg"]
    return KnowledgeBase.from_triples(anchors + [(f"e{h}", r, f"e{t}") for h, r, t in sorted(facts)])


@settings(max_examples=40, deadline=None)
@given(graphs, st.sampled_from(["max", "noisy-or"]), st.integers(1, 20))
def test_scores_are_those_of_apply(facts, aggregation, memory):
    kb = kb_of(facts)
    rules = parse_rules(RULES)
    ranker = RuleRanker.of(rules, kb, aggregation=aggregation)
    ranker.max_cells = memory
    forward = ranker.scores("g", np.arange(5))
    backward = ranker.scores("g", np.arange(5), inverse=True)
    np.testing.assert_allclose(forward, backward.T)
    labels = next(iter(kb.domains.values())).labels
    new = {fact.args: fact.score for fact in apply(rules, kb, aggregation=aggregation)}
    known = set(kb.tuples("g"))
    for h in range(5):
        for t in range(5):
            pair = (labels[h], labels[t])
            if pair not in known:
                assert forward[h, t] == pytest.approx(new.get(pair, 0.0))


def test_weights_are_summed_in_each_direction():
    kb = KnowledgeBase.from_triples([("a", "p", "b"), ("a", "q", "b"), ("c", "g", "d")])
    rules = parse_rules(
        "0.5 :: g(X, Y) :- p(X, Y). @{weight: 2.0, weight_inverse: 0.5}\n1.5 q(X, Y) => !g(X, Y).\n0.25 g(X, d).\n"
    )
    ranker = RuleRanker.of(rules, kb, aggregation="weight")
    ids = {label: place for place, label in enumerate(next(iter(kb.domains.values())).labels)}
    forward = ranker.scores("g", np.array([ids["a"]]))[0]
    assert forward[ids["b"]] == pytest.approx(0.5)
    assert forward[ids["d"]] == pytest.approx(0.25)
    backward = ranker.scores("g", np.array([ids["b"]]), inverse=True)[0]
    assert backward[ids["a"]] == pytest.approx(-1.0)


@pytest.mark.parametrize(
    "text",
    [
        "g(X, Y) :- p(X, Y), q(X, Y).",
        "g(X, Y) :- p(X, Z), q(Y, W).",
        "g(X, Y) :- p(X, V), q(V, Y), p(Y, W).",
        "2.0 p(X, Y) => g(X, Y).",
    ],
)
def test_what_is_no_chain_is_refused(text):
    kb = kb_of({(0, "p", 1)})
    with pytest.raises(DataError, match="ranking takes chain rules"):
        RuleRanker.of(parse_rules(text), kb)


def test_ways_are_counted_where_rules_say_so():
    kb = KnowledgeBase.from_triples(
        [("a", "p", "b"), ("a", "p", "c"), ("b", "q", "d"), ("c", "q", "d"), ("x", "g", "d")]
    )
    rule = "0.5 :: g(X, Z) :- p(X, Y), q(Y, Z). @{weight: 1.0, weight_inverse: 1.0, ways: %s}\n"
    ids = {label: place for place, label in enumerate(next(iter(kb.domains.values())).labels)}
    for ways, expected in (("once", 1.0), ("counted", np.log2(3)), ("telling", np.log2(1 + 100 * 2 * 0.5))):
        ranker = RuleRanker.of(parse_rules(rule % ways), kb, aggregation="weight")
        assert ranker.scores("g", np.array([ids["a"]]))[0, ids["d"]] == pytest.approx(expected)
        assert ranker.scores("g", np.array([ids["d"]]), inverse=True)[0, ids["a"]] == pytest.approx(expected)
    with pytest.raises(DataError, match="must agree"):
        RuleRanker.of(parse_rules(rule % "once" + rule.replace("p(X", "q(X") % "telling"), kb, aggregation="weight")
    with pytest.raises(DataError, match="ways must be one of"):
        RuleRanker.of(parse_rules(rule % "often"), kb, aggregation="weight")


def test_bad_options_are_refused():
    with pytest.raises(DataError, match="aggregation must be"):
        RuleRanker.of(parse_rules(RULES), kb_of({(0, "p", 1)}), aggregation="sum")
