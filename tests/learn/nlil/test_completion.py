"""Counting rules about pairs, and completing graphs by extracted rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from rulewright.data import KnowledgeBase, KnowledgeBaseBuilder
from rulewright.errors import DataError, FileError
from rulewright.evaluate.ranking import evaluate_ranking
from rulewright.learn.nlil.completion import NLILCompletion
from rulewright.learn.nlil.learner import NLILLearner
from rulewright.reason.ranking import RuleRanker

QUICK = {
    "steps": 1,
    "levels": 0,
    "max_facts": 500,
    "slots": 5,
    "layers": 1,
    "width": 16,
    "epochs": 4,
    "rounds": 1,
    "rate": 0.005,
    "samples": 5,
}


def chained(count: int = 40) -> KnowledgeBase:
    """Return pairs p, their reverse q, and their composition g; some of g and q are to be found."""
    facts = [(f"a{i}", "p", f"b{i}") for i in range(count)] + [(f"b{i}", "p", f"c{i % 7}x{i}") for i in range(count)]
    facts += [(f"b{i}", "q", f"a{i}") for i in range(count)]
    facts += [(f"a{i}", "g", f"c{i % 7}x{i}") for i in range(count)]
    kb = KnowledgeBase.from_triples(facts)
    kept, hidden = kb.hold_out(0.2, seed=0, predicates=["q", "g"])
    return kept.with_splits({"test": hidden})


@pytest.mark.slow
def test_a_graph_is_completed_by_the_rules_that_were_written(tmp_path: Path) -> None:
    kb = chained()
    completion = NLILCompletion(targets=["q", "g"], folder=tmp_path, learner=NLILLearner(**QUICK)).fit(kb)
    scores = evaluate_ranking(completion, kb, "test")
    assert scores.mrr > 0.95
    assert "q(X, Y) :- p(Y, X)." in [
        str(rule).partition(" :: ")[2].partition(" @")[0] for rule in completion.rules_.rules
    ]
    again = RuleRanker.of(completion.rules_, kb, aggregation="weight")
    assert evaluate_ranking(again, kb, "test").mrr == pytest.approx(scores.mrr)  # what is printed is what ranks
    resumed = NLILCompletion(targets=["q", "g"], folder=tmp_path, learner=NLILLearner(**QUICK)).fit(kb)
    assert resumed.paths_ == completion.paths_
    with pytest.raises(FileError, match="other facts or parameters"):
        NLILCompletion(targets=["q"], folder=tmp_path, learner=NLILLearner(**{**QUICK, "slots": 4})).fit(kb)


def test_marks_take_no_part_in_chains() -> None:
    builder = KnowledgeBaseBuilder()
    for i in range(20):
        builder.add("p", [f"a{i}", f"b{i}"])
        builder.add("big", [f"a{i}"])
        if i:
            builder.add("q", [f"b{i}", f"a{i}"])
    completion = NLILCompletion(targets=["q"], learner=NLILLearner(**QUICK)).fit(builder.build())
    assert completion.ranker_.answers("q", "b0", 1)[0][0] == "a0"


def test_wrong_options_are_named() -> None:
    with pytest.raises(DataError, match="levels of the learner must be 0, got 1"):
        NLILCompletion(learner=NLILLearner(levels=1))
    with pytest.raises(DataError, match="processes must be >= 1, got 0"):
        NLILCompletion(processes=0)


@pytest.mark.slow
def test_relations_in_processes_of_their_own_are_learned_alike(tmp_path: Path) -> None:
    kb, learner = chained(12), NLILLearner(**{**QUICK, "epochs": 1})
    told: list[tuple[str, int, int]] = []
    one = NLILCompletion(targets=["q", "g"], learner=learner).fit(kb)
    two = NLILCompletion(
        targets=["q", "g"], learner=learner, processes=2, folder=tmp_path, progress=lambda *each: told.append(each)
    ).fit(kb)
    assert two.paths_ == one.paths_ and list(two.paths_) == ["q", "g"]
    assert str(two.rules_) == str(one.rules_)
    assert {("relations", 1, 2), ("relations", 2, 2)} <= set(told)
    (tmp_path / "q.json").unlink()
    resumed = NLILCompletion(targets=["q", "g"], learner=learner, folder=tmp_path).fit(kb)
    assert str(resumed.rules_) == str(one.rules_)
