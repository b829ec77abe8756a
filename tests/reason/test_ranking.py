from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright import KnowledgeBase, apply, rank
from rulewright.errors import DataError, RulewrightError
from rulewright.learn.path_mixture.learner import PathMixture
from rulewright.logic import parse_rules
from rulewright.reason.ranking import RuleRanker

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


@pytest.mark.slow
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


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(graphs, st.sampled_from(["max", "noisy-or"]), st.booleans(), st.booleans(), st.integers(0, 4))
def test_answers_are_those_of_apply_with_their_rules(facts, aggregation, inverse, known, number):
    kb, entity = kb_of(facts), f"e{number}"
    rules = parse_rules(RULES)
    query = f"g(X, {entity})" if inverse else f"g({entity}, X)"
    answers = rank(rules, kb, query, aggregation=aggregation, known=known)
    asked, wanted = (1, 0) if inverse else (0, 1)
    others = KnowledgeBase.from_triples((h, r, t) for r, (h, t) in kb.facts() if r != "g")  # so that all of g is new
    expected = {
        fact.args[wanted]: fact
        for fact in apply(rules, others, aggregation=aggregation, max_rounds=1)
        if fact.args[asked] == entity and (known or not kb.contains("g", *fact.args))
    }
    assert {answer.entity: pytest.approx(answer.score) for answer in answers} == {
        label: fact.score for label, fact in expected.items()
    }
    for answer in answers:
        assert sorted(map(str, answer.reasons)) == sorted(map(str, expected[answer.entity].rules))
        confidences = [reason.confidence for reason in answer.reasons]
        assert confidences == sorted(confidences, reverse=True)
    scores = [answer.score for answer in answers]
    assert scores == sorted(scores, reverse=True)


@pytest.fixture
def family() -> KnowledgeBase:
    return KnowledgeBase.from_triples(
        [("ann", "parent_of", "bob"), ("bob", "parent_of", "cid"), ("bob", "parent_of", "<b>")]
    )


GRANDPARENTS = """
0.9 :: grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).
0.5 :: parent_of(X, Y) :- parent_of(Y, X).
"""


def test_answers_are_read_as_text_frame_and_table(family):
    answers = rank(parse_rules(GRANDPARENTS), family, "grandparent_of(ann, X)")
    assert [answer.entity for answer in answers] == ["cid", "<b>"]
    assert repr(answers) == "Answers(grandparent_of(ann, X): cid  0.9, <b>  0.9)"
    assert str(answers).splitlines()[:2] == ["grandparent_of(ann, X): 2 answers", "cid  0.9"]
    assert answers[:1][0] is answers[0] and len(rank(parse_rules(GRANDPARENTS), family, answers.query, count=1)) == 1
    frame = answers.to_frame("polars")
    assert frame.columns == ["entity", "score", "reasons"] and frame["reasons"][0].startswith("0.9 :: grandparent_of")
    assert "&lt;b&gt;" in answers._repr_html_() and "<b>" not in answers._repr_html_()
    nobody = rank(parse_rules(GRANDPARENTS), family, "grandparent_of(cid, X)")
    assert not nobody and str(nobody) == "grandparent_of(cid, X) has no answer"


def test_known_answers_are_left_out_unless_wanted(family):
    rule = parse_rules(GRANDPARENTS).rules[1]
    assert [answer.entity for answer in rank(rule, family, "parent_of(bob, X)")] == ["ann"]
    both = KnowledgeBase.from_triples([("ann", "spouse_of", "al"), ("al", "spouse_of", "ann")])
    symmetric = parse_rules("0.5 :: spouse_of(X, Y) :- spouse_of(Y, X).").rules
    assert not rank(symmetric, both, "spouse_of(ann, X)")
    assert rank(symmetric, both, "spouse_of(ann, X)", known=True)[0].entity == "al"


def test_a_learner_that_ranks_answers_by_its_weights():
    facts = [(f"a{n}", "p", f"b{n}") for n in range(9)] + [(f"b{n}", "q", f"a{n}") for n in range(8)]
    kb = KnowledgeBase.from_triples(facts)
    mixture = PathMixture(max_length=1, constants=0).fit(kb)
    answers = rank(mixture, kb, "q(b8, X)")
    assert answers[0].entity == "a8" and "p(" in str(answers[0].reasons[0])
    assert [(answer.entity, pytest.approx(answer.score)) for answer in answers] == mixture.ranker_.answers("q", "b8")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("parent_off(ann, X)", "did you mean 'parent_of'"),
        ("parent_of(anne, X)", "did you mean 'ann'"),
        ("parent_of(X, anne)", "did you mean 'ann'"),
        ("parent_of(ann, bob)", "a query has an entity and a variable"),
        ("parent_of(X, Y)", "a query has an entity and a variable"),
        ("parent_of(ann, 3)", "a query has an entity and a variable"),
        ("parent_of(ann)", "expected a query such as"),
        ("!parent_of(ann, X)", "expected a query such as"),
    ],
)
def test_what_is_no_query_is_refused(family, query, message):
    with pytest.raises(RulewrightError, match=message):
        rank(parse_rules(GRANDPARENTS), family, query)


def test_bad_options_of_rank_are_refused(family):
    with pytest.raises(DataError, match="count must be >= 1, got 0"):
        rank(parse_rules(GRANDPARENTS), family, "parent_of(ann, X)", count=0)
    with pytest.raises(DataError, match="aggregation must be"):
        rank(parse_rules(GRANDPARENTS), family, "parent_of(ann, X)", aggregation="sum")
