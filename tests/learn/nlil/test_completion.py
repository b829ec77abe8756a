"""Counting rules about pairs, and completing graphs by extracted rules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learn.nlil.small_worlds import SIZE, graphs, random_attentions
from learn.nlil.test_formulas import engine_says, hide_facts

from rulewright.data import KnowledgeBase, KnowledgeBaseBuilder
from rulewright.errors import DataError, FileError
from rulewright.evaluate.ranking import evaluate_ranking
from rulewright.learn.nlil.completion import NLILCompletion
from rulewright.learn.nlil.facts import FactGraph, StatementCodes
from rulewright.learn.nlil.formulas import RuleReader, RuleWriter, make_sampler
from rulewright.learn.nlil.learner import NLILLearner
from rulewright.learn.nlil.questions import LearningTask, add_wrong_pairs
from rulewright.learn.nlil.selection import PairCounter
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


@pytest.mark.slow
@settings(max_examples=4)
@given(kb=graphs(), seed=st.integers(0, 1000))
def test_pairs_are_counted_as_the_engine_counts_them(kb: KnowledgeBase, seed: int) -> None:
    if not kb.count("p"):
        return
    task = LearningTask.for_targets(FactGraph(kb), ("p",))
    facts = task.target_facts()
    counter = PairCounter(task, facts, most=100, seed=0)
    codes = StatementCodes(2, task.graph.vocabulary)
    writer = RuleWriter("p", codes)
    attentions = random_attentions(kb, 2, seed=seed, groups=4, levels=1, steps=1)
    read = RuleReader(codes, task.hidden).read(attentions, make_sampler(np.random.default_rng(seed)))
    rules = {
        (0, conjunction)
        for formula in read
        for conjunction in formula
        if writer.why_not(conjunction) is None and any(x.is_joining and positive for x, positive in conjunction)
    }
    known = set(zip(*(column.tolist() for column in facts), strict=True))
    for rule in counter.count(rules):
        written = writer.write(rule.conjunction)
        pairs = [(first, second) for first in counter.firsts.tolist() for second in range(SIZE)]
        right = [
            pair for pair in pairs if pair in known and engine_says(written, hide_facts(kb, task.hidden, pair), pair)
        ]
        wrong = [pair for pair in pairs if pair not in known and engine_says(written, kb, pair)]
        assert (rule.support, rule.body_count) == (len(right), len(right) + len(wrong)), str(written)


def test_wrong_pairs_are_no_facts() -> None:
    kb = KnowledgeBase.from_triples((str(i), "next", str((i + 1) % 20)) for i in range(20))
    task = LearningTask.for_targets(FactGraph(kb), ("next",))
    facts = task.target_facts()
    none = tuple(np.zeros(0, dtype=np.int64) for _ in range(2))
    questions = add_wrong_pairs(facts, facts, task.graph, ratio=4, seed=0, false=none)
    known = set(zip(*(column.tolist() for column in facts), strict=True))
    pairs = list(zip(*(column.tolist() for column in questions.arguments), strict=True))
    assert all((pair in known) == bool(true) for pair, true in zip(pairs, questions.truth[:, 0], strict=True))
    assert 20 < len(pairs) <= 100


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
