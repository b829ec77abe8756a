from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright import KnowledgeBase
from rulewright.errors import DataError
from rulewright.evaluate.classification import average_precision
from rulewright.evaluate.ranking import count_rivals, evaluate_ranking, hits, reciprocal_ranks


def plain_places(scores, answer, others):
    """All ranks the answer may have, by looking at each candidate."""
    higher, equal = 0, 1
    for candidate, score in enumerate(scores):
        if candidate == answer or candidate in others:
            continue
        higher += score > scores[answer]
        equal += score == scores[answer]
    return list(range(higher + 1, higher + equal + 1))


questions = st.integers(1, 8).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, 3).map(float), min_size=n, max_size=n),
        st.integers(0, n - 1),
        st.sets(st.integers(0, n - 1)),
    )
)


@given(questions)
def test_rivals_and_figures_are_those_of_a_plain_count(question):
    scores, answer, known = question
    ranks = plain_places(scores, answer, known - {answer})
    row = np.zeros(len(known), dtype=np.int64)
    higher, equal = count_rivals(np.array([scores]), np.array([answer]), row, np.array(sorted(known), dtype=np.int64))
    assert (higher[0], equal[0]) == (ranks[0] - 1, len(ranks))
    mean = float(sum(Fraction(1, rank) for rank in ranks) / len(ranks))
    assert reciprocal_ranks(higher, equal)[0] == pytest.approx(mean, abs=1e-12)
    assert reciprocal_ranks(higher, equal, "optimistic")[0] == 1 / ranks[0]
    assert reciprocal_ranks(higher, equal, "pessimistic")[0] == 1 / ranks[-1]
    for k in (1, 3, 10):
        assert hits(higher, equal, k)[0] == pytest.approx(sum(rank <= k for rank in ranks) / len(ranks))
        assert hits(higher, equal, k, "optimistic")[0] == (ranks[0] <= k)
        assert hits(higher, equal, k, "pessimistic")[0] == (ranks[-1] <= k)


class Table:
    """Scores drawn once for every question."""

    def __init__(self, kb, seed):
        random = np.random.default_rng(seed)
        shape = (kb.n_entities, kb.n_entities)
        self.table = {
            (name, inverse): random.integers(0, 4, shape).astype(float)
            for name in kb.predicates
            for inverse in (False, True)
        }

    def scores(self, relation, entities, *, inverse=False):
        return self.table[relation, inverse][entities]


facts = st.sets(st.tuples(st.integers(0, 5), st.integers(0, 1), st.integers(0, 5)), min_size=3, max_size=20)


@settings(max_examples=40, deadline=None)
@given(facts, st.integers(0, 99), st.sampled_from([1, 2**20]))
def test_evaluation_is_that_of_nested_loops(drawn, seed, memory):
    triples = [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in sorted(drawn)]
    whole = KnowledgeBase.from_triples(triples)
    train, test = whole.hold_out(0.4, seed=seed)
    if test.n_facts == 0:
        return
    kb = train.with_splits({"test": test})
    scorer = Table(kb, seed)
    found = evaluate_ranking(scorer, kb, memory_limit=memory, auc_pr=True)
    reciprocal, pooled, truth = [], [], []
    for name in whole.predicates:
        true = list(zip(*(column.tolist() for column in whole.columns(name)), strict=True))
        for h, t in zip(*(column.tolist() for column in test.columns(name)), strict=True):
            for inverse, query, answer in ((False, h, t), (True, t, h)):
                others = {(a if inverse else b) for a, b in true if (b if inverse else a) == query} - {answer}
                row = scorer.table[name, inverse][query]
                ranks = plain_places(row, answer, others)
                reciprocal.append(sum(1 / rank for rank in ranks) / len(ranks))
                for candidate, score in enumerate(row):
                    if candidate not in others:
                        pooled.append(score)
                        truth.append(candidate == answer)
    assert len(found) == len(reciprocal)
    assert found.mrr == pytest.approx(np.mean(reciprocal))
    assert found.auc_pr == pytest.approx(average_precision(pooled, truth))
    parts = found.by_relation()
    assert sum(len(part) * part.mrr for part in parts.values()) == pytest.approx(len(found) * found.mrr)


def test_unseen_entities_are_counted_and_ranked():
    train = KnowledgeBase.from_triples([("a", "r", "b"), ("x", "s", "y")])
    test = train.with_facts({})
    whole = KnowledgeBase.from_triples([("a", "r", "b"), ("x", "r", "a")])
    train, test = whole.hold_out(0.5, seed=1)
    kb = train.with_splits({"test": test})
    found = evaluate_ranking(Table(kb, 0), kb)
    assert found.unseen.sum() == 2
    assert found.as_dict()["unseen"] == 2
    assert set(found.figures()) == {"mrr", "hits@1", "hits@3", "hits@10"}


def test_bad_input_is_refused():
    kb = KnowledgeBase.from_triples([("a", "r", "b")])
    with pytest.raises(DataError, match="ties must be 'mean', 'optimistic' or 'pessimistic', got 'some'"):
        evaluate_ranking(Table(kb, 0), kb, kb, ties="some")
    with pytest.raises(DataError, match="no queries"):
        evaluate_ranking(Table(kb, 0), kb, kb.with_facts({}))
    with pytest.raises(DataError, match="NaN"):
        count_rivals(np.array([[np.nan, 1.0]]), np.array([1]), np.zeros(0, int), np.zeros(0, int))
