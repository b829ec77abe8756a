from __future__ import annotations

import numpy as np
import pytest

import rulewright as rw
from rulewright.errors import DataError, RulewrightError
from rulewright.evaluate.ranking import evaluate_ranking
from rulewright.learn import PathMixture, RuleMiner
from rulewright.logic import parse_rules
from rulewright.reason import RuleRanker

RULE = "0.9 :: uncle(X, Z) :- parent(X, Y), brother(Y, Z)."


def uncles(count: int = 30) -> rw.KnowledgeBase:
    facts = []
    for n in range(count):
        facts += [(f"child{n}", "parent", f"father{n}"), (f"father{n}", "brother", f"uncle{n}")]
        facts += [(f"child{n}", "uncle", f"uncle{n}"), (f"uncle{n}", "knows", f"father{n}")]
    return rw.KnowledgeBase.from_triples(facts)


def test_a_learner_learns_from_what_is_kept_and_is_asked_for_the_rest():
    kb = uncles()
    learner = RuleMiner(max_length=2, min_confidence=0.5)
    found = rw.evaluate(learner, kb, holdout=0.2, predicates=["uncle"], seed=3)
    assert len(found.scores) == 12 and found.facts == kb.n_facts - 6 and found.mrr == pytest.approx(1.0)
    assert {str(rule.head.predicate) for rule in found.rules.rules} == {"uncle"}
    assert not hasattr(learner, "rules_")
    kept, held_out = kb.hold_out(0.2, seed=3, predicates=["uncle"], keep_names=True)
    by_hand = RuleRanker.of(RuleMiner(max_length=2, min_confidence=0.5, targets=["uncle"]).fit(kept).rules_, kept)
    np.testing.assert_array_equal(found.scores.higher, evaluate_ranking(by_hand, kept, held_out).higher)
    assert found.as_dict()["queries_of"] == "20 % of the facts, held out"
    assert found.to_frame("polars")["relation"].to_list() == ["uncle"] and "uncle" in found._repr_html_()


def test_rules_that_were_counted_elsewhere_are_said_to_flatter():
    kb = uncles()
    counted = parse_rules(RULE + " @{support: 30, body: 30}")
    assert "figures are too good" in rw.evaluate(counted, kb, holdout=0.1).note
    assert rw.evaluate(parse_rules(RULE), kb, holdout=0.1).note == ""
    train, test = kb.hold_out(0.1, keep_names=True)
    assert rw.evaluate(counted, train.with_splits({"test": test})).note == ""


def test_a_split_is_asked_about_where_there_is_one_and_facts_are_held_out_where_there_is_none():
    kb = uncles()
    train, test = kb.hold_out(0.1, keep_names=True)
    split = rw.evaluate(parse_rules(RULE), train.with_splits({"test": test}))
    assert split.queries_of == "test" and len(split.scores) == 2 * test.n_facts
    bare = rw.evaluate(parse_rules(RULE), kb)
    np.testing.assert_array_equal(bare.scores.higher, split.scores.higher)
    with pytest.raises(RulewrightError, match="unknown split 'dev'"):
        rw.evaluate(None, train.with_splits({"test": test}), split="dev")


def test_a_learner_that_ranks_is_asked_itself():
    found = rw.evaluate(PathMixture(max_length=2, constants=0), uncles(), holdout=0.1, predicates=["uncle"])
    assert found.aggregation == "weight" and found.mrr == pytest.approx(1.0) and found.seconds_learning > 0


def test_what_cannot_be_evaluated_is_refused():
    with pytest.raises(DataError, match="none of the 2 facts can be held out"):
        rw.evaluate(None, rw.KnowledgeBase.from_triples([("a", "r", "b"), ("c", "s", "d")]))
    with pytest.raises(DataError, match="no predicate has two entities"):
        rw.evaluate(None, rw.KnowledgeBase.from_facts([("tall", "ann")]))
    kb = rw.KnowledgeBase.from_facts([("tall", "ann"), ("likes", "ann", "bob")])
    with pytest.raises(DataError, match="tall is not a relation"):
        rw.evaluate(None, kb, predicates=["tall"])
    with pytest.raises(DataError, match="holdout must lie in"):
        rw.evaluate(None, kb, holdout=1.5)
