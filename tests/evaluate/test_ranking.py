from __future__ import annotations

import csv
import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright import KnowledgeBase
from rulewright.errors import DataError
from rulewright.evaluate.classification import average_precision
from rulewright.evaluate.ranking import (
    count_rivals,
    evaluate_ranking,
    expect_ranks,
    find_cardinalities,
    hits,
    pick_top,
    reciprocal_ranks,
)


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
    assert expect_ranks(higher, equal)[0] == sum(ranks) / len(ranks)
    assert expect_ranks(higher, equal, "optimistic")[0] == ranks[0]
    assert expect_ranks(higher, equal, "pessimistic")[0] == ranks[-1]
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


@settings(max_examples=60, deadline=None)
@given(facts, st.integers(0, 99), st.sampled_from([1, 2**20]), st.integers(1, 8))
def test_kept_queries_are_those_of_nested_loops(drawn, seed, memory, top):
    whole = KnowledgeBase.from_triples([(f"e{h}", f"r{r}", f"e{t}") for h, r, t in sorted(drawn)])
    train, test = whole.hold_out(0.4, seed=seed)
    if test.n_facts == 0:
        return
    kb = train.with_splits({"test": test})
    scorer = Table(kb, seed)
    found = evaluate_ranking(scorer, kb, memory_limit=memory, top=top)
    plain = evaluate_ranking(scorer, kb, memory_limit=memory)
    assert (found.higher == plain.higher).all() and (found.equal == plain.equal).all()
    labels = kb.domains["entity"].labels
    expected = []
    for name in whole.predicates:
        true = list(zip(*(column.tolist() for column in whole.columns(name)), strict=True))
        for h, t in zip(*(column.tolist() for column in test.columns(name)), strict=True):
            for inverse, query, answer in ((False, h, t), (True, t, h)):
                others = {(a if inverse else b) for a, b in true if (b if inverse else a) == query} - {answer}
                row = scorer.table[name, inverse][query]
                ranks = plain_places(row, answer, others)
                candidates = [candidate for candidate in range(len(row)) if candidate not in others]
                best = sorted(candidates, key=lambda candidate: (-row[candidate], candidate))[:top]
                expected.append(
                    {
                        "relation": name,
                        "direction": "backward" if inverse else "forward",
                        "asked": labels[query],
                        "answer": labels[answer],
                        "rank": sum(ranks) / len(ranks),
                        "higher": ranks[0] - 1,
                        "equal": len(ranks),
                        "score": row[answer],
                        "top": [(labels[candidate], row[candidate]) for candidate in best if row[candidate] > 0],
                    }
                )

    def place(row):
        return row["relation"], row["direction"], row["asked"], row["answer"]

    assert sorted(found.rows(), key=place) == sorted(expected, key=place)
    is_filled = found.queries.top >= 0
    assert (is_filled == ~np.isnan(found.queries.top_scores)).all() and found.queries.top.shape[1] == top


@given(st.integers(0, 5), st.integers(1, 9), st.integers(1, 9), st.integers(0, 10**6))
def test_the_best_of_every_row_are_those_of_a_sort(rows, width, count, seed):
    scores = np.random.default_rng(seed).integers(-1, 3, (rows, width)).astype(float)
    scores[scores < 0] = -np.inf
    expected = [sorted(range(width), key=lambda column: (-row[column], column))[:count] for row in scores]
    assert pick_top(scores, count).tolist() == expected


def test_predictions_are_written(tmp_path):
    kb = KnowledgeBase.from_triples([("a,1", "r", "b"), ("b", "r", "é"), ("é", "r", "b")])
    found = evaluate_ranking(Table(kb, 0), kb, kb, top=2)
    for name in ("ranks.tsv", "ranks.csv", "ranks.jsonl", "ranks.csv.gz"):
        found.write_predictions(tmp_path / name)
    rows = list(found.rows())
    read = [json.loads(line) for line in (tmp_path / "ranks.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [[(best["entity"], best["score"]) for best in row.pop("top")] for row in read] == [
        row["top"] for row in rows
    ]
    assert read == [{name: value for name, value in row.items() if name != "top"} for row in rows]
    for name, delimiter in (("ranks.tsv", "\t"), ("ranks.csv", ",")):
        table = list(csv.DictReader((tmp_path / name).read_text(encoding="utf-8").splitlines(), delimiter=delimiter))
        assert [(line["asked"], float(line["rank"]), int(line["higher"])) for line in table] == [
            (row["asked"], row["rank"], row["higher"]) for row in rows
        ]
        assert [line["top_1"] for line in table] == [row["top"][0][0] if row["top"] else "" for row in rows]
        assert set(table[0]) >= {"relation", "direction", "answer", "equal", "score", "score_1", "top_2", "score_2"}
    with pytest.raises(DataError, match=r"predictions are written as \.tsv, \.csv or \.jsonl"):
        found.write_predictions(tmp_path / "ranks.txt")
    with pytest.raises(DataError, match="was not kept"):
        next(evaluate_ranking(Table(kb, 0), kb, kb).rows())
    tabbed = KnowledgeBase.from_triples([("a\tb", "r", "c")])
    with pytest.raises(DataError, match=r"cannot stand in a TSV file; write a \.csv"):
        evaluate_ranking(Table(tabbed, 0), tabbed, tabbed, top=1).write_predictions(tmp_path / "other.tsv")
    assert not (tmp_path / "other.tsv").exists()


@settings(max_examples=60, deadline=None)
@given(facts, st.integers(0, 99))
def test_cardinalities_are_those_of_plain_means(drawn, seed):
    kb = KnowledgeBase.from_triples([(f"e{h}", f"r{r}", f"e{t}") for h, r, t in sorted(drawn)])
    expected = []
    for name in kb.predicates:
        tails, heads = {}, {}
        for head, tail in kb.tuples(name):
            tails.setdefault(head, set()).add(tail)
            heads.setdefault(tail, set()).add(head)
        per_head, per_tail = (Fraction(sum(map(len, sets.values())), len(sets)) for sets in (tails, heads))
        limit = Fraction(3, 2)
        expected.append(f"{'n' if per_tail >= limit else 1}-{'n' if per_head >= limit else 1}")
    assert find_cardinalities(kb) == tuple(expected)
    found = evaluate_ranking(Table(kb, seed), kb, kb)
    parts = found.by_cardinality()
    assert sum(map(len, parts.values())) == len(found)
    for word, part in parts.items():
        assert {expected[index] for index in part.relation.tolist()} == {word}
        assert found.as_dict()["by_cardinality"][word]["mrr"] == part.mrr


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
