from __future__ import annotations

import random
import re
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright import KnowledgeBase, PathMixture, apply, complete, explain, parse_rules
from rulewright.data import KnowledgeBaseBuilder
from rulewright.errors import DataError
from rulewright.logic import RuleSet
from rulewright.reason import weighted
from rulewright.reason.ranking import RuleRanker
from rulewright.reason.rule_rows import find_conclusions

NAMES = [f"e{i}" for i in range(7)]
CLOSED = [
    "{c} :: r(X, Y) :- p(X, Y). @{{weight: {w}, weight_inverse: {v}, ways: telling}}",
    "{c} :: r(X, Y) :- q(Y, X). @{{weight: {w}, ways: telling}}",
    "{c} :: r(X, Y) :- p(X, Z), q(Z, Y). @{{weight: {w}, weight_inverse: {v}, ways: telling}}",
    "{c} :: r(X, Y) :- r(Z, X), p(Z, Y). @{{weight_inverse: {v}, ways: telling}}",
    "{c} p(X, Z) & p(Z, Y) => !r(X, Y). @{{weight: -{w}, weight_inverse: -{v}, ways: telling}}",
]
NAMED = [
    "{c} :: r(X, e1) :- p(X, e2). @{{weight: {w}, weight_inverse: {v}}}",
    "{c} :: r(e3, X) :- q(X, Z). @{{weight: {w}}}",
    "{c} :: s(X, e1) :- q(Z, X). @{{weight_inverse: {v}}}",
    "{w} r(X, e2).",
    "{v} s(e2, X).",
    "{w} X = Y => !r(X, Y).",
    "{v} q(X, Y) => !s(X, Y).",
    "{c} :: s(X, Y) :- r(X, Y). @{{weight: {w}, weight_inverse: {v}}}",
]


def random_case(seed: int) -> tuple[RuleSet, KnowledgeBase]:
    chance = random.Random(seed)
    builder = KnowledgeBaseBuilder()
    for name in NAMES:
        builder.entity(name)
    for relation in "pqrs":
        for pair in {(chance.choice(NAMES), chance.choice(NAMES)): None for _ in range(chance.randint(1, 9))}:
            builder.add(relation, list(pair), truth=chance.random() > 0.1)
    texts = [
        text.format(c=0.5, w=round(chance.uniform(0.1, 3), 2), v=round(chance.uniform(0.1, 3), 2))
        for text in (*CLOSED, *NAMED)
        if chance.random() < 0.6
    ]
    return parse_rules(
        "0.5 :: r(X, Y) :- q(X, Y). @{weight: 1, weight_inverse: 0.5, ways: telling} " + " ".join(texts)
    ), builder.build()


def mean_scores(rules: RuleSet, kb: KnowledgeBase, relation: str):
    ranker, everyone = RuleRanker.of(rules, kb, aggregation="weight"), np.arange(len(NAMES))
    return (ranker.scores(relation, everyone) + ranker.scores(relation, everyone, inverse=True).T) / 2


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), max_facts=st.integers(1, 60), firings=st.sampled_from([1, 50, 10**6]))
def test_scores_are_the_mean_of_both_questions(seed, max_facts, firings):
    rules, kb = random_case(seed)
    with mock.patch.object(weighted, "_FIRINGS", firings):
        inferred = apply(rules, kb)
    labels = next(iter(kb.domains.values())).labels
    expected = {}
    for relation in ("r", "s"):
        scores = mean_scores(rules, kb, relation)
        decided = set(kb.tuples(relation)) | set(kb.tuples(relation, truth=False))
        for head, tail in np.ndindex(*scores.shape):
            pair = (str(labels[head]), str(labels[tail]))
            if scores[head, tail] > 0 and pair not in decided:
                expected[relation, *pair] = scores[head, tail]
    found = {(fact.predicate, *fact.args): fact.score for fact in inferred}
    assert all(score == pytest.approx(expected[key], abs=1e-9) for key, score in found.items())
    reader = weighted.WeightedRules(rules, kb)
    for key, score in expected.items():  # a common answer alone is no fact
        told = reader.explain(key)
        assert told.score == pytest.approx(score, abs=1e-9)
        assert sum(proof.weight * proof.truth for proof in told.proofs) == pytest.approx(score, abs=1e-9)
        assert (key in found) == (told.status == "inferred")
    few = apply(rules, kb, max_facts=max_facts)
    assert [fact.score for fact in few] == pytest.approx([fact.score for fact in inferred][:max_facts])
    assert ("max_facts" in few.note) == (len(inferred) > max_facts)
    best = complete(rules, kb, count=max_facts)
    assert [link.score for link in best] == pytest.approx([fact.score for fact in few])
    assert all(link.reason.weight > 0 for link in best)
    reader.close()


def test_what_a_learner_has_learned_is_what_apply_gives(tmp_path):
    triples = [(f"a{i}", "p", f"b{i % 5}") for i in range(15)] + [(f"b{i % 5}", "q", f"a{i}") for i in range(12)]
    kb = KnowledgeBase.from_triples(triples)
    mixture = PathMixture(max_length=2).fit(kb)
    mixture.rules_.save(tmp_path / "mixture.rules")
    from rulewright import read_rules

    rules = read_rules(tmp_path / "mixture.rules")
    inferred = apply(rules, kb, max_facts=1000)
    domain = next(iter(kb.domains.values()))
    assert len(inferred)
    for fact in inferred:
        head, tail = map(domain.index_of, fact.args)
        forward = mixture.scores(fact.predicate, np.array([head]))[0, tail]
        backward = mixture.scores(fact.predicate, np.array([tail]), inverse=True)[0, head]
        assert fact.score == pytest.approx((forward + backward) / 2, abs=1e-9)


def test_the_sum_is_shown_with_what_speaks_against_it():
    kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob"), ("bob", "knows", "ann")])
    rules = parse_rules(
        "0.9 :: child_of(X, Y) :- parent_of(Y, X). @{weight: 2, weight_inverse: 1}\n"
        "0.5 knows(X, Y) => !child_of(X, Y). @{weight: -0.5, weight_inverse: -0.5}"
    )
    assert str(explain(rules, kb, "child_of(bob, ann)", k=2)) == (
        "child_of(bob, ann)  1, the sum of\n"
        "├─ +1.5 by 0.9 :: child_of(X, Y) :- parent_of(Y, X).\n"
        "│  └─ parent_of(ann, bob)  known\n"
        "└─ -0.5 by 0.5 knows(X, Y) => !child_of(X, Y).\n"
        "   └─ knows(bob, ann)  known"
    )
    assert explain(rules, kb, "child_of(bob, ann)").svg().startswith("<svg ")
    told = explain(rules, kb, "child_of(ann, ann)")
    assert told.status == "unknown" and "no rule speaks for it" in str(told)
    assert explain(rules, kb, "child_of(bob, ann)").as_dict()["proofs"][0]["weight"] == 1.5


def test_weights_are_of_one_round_and_of_completion_rules():
    kb = KnowledgeBase.from_triples([("ann", "p", "bob")])
    rules = parse_rules("0.9 :: q(X, Y) :- p(X, Y). @{weight: 2, weight_inverse: 0}")
    assert apply(rules, kb)[0].score == 1.0
    assert apply(rules, kb, max_rounds=None)[0].score == 0.9
    with pytest.raises(DataError, match="one round"):
        apply(rules, kb, aggregation="weight", max_rounds=2)
    with pytest.raises(DataError, match="a weight is no score"):
        apply(parse_rules("2 p(X, Y) => q(X, Y)."), kb)
    assert apply(parse_rules("2 p(X, Y) => p(Y, X)."), kb, aggregation="weight")[0].score == 2
    mixed = apply(parse_rules("0.9 :: u(X) :- p(X, Y). hard !p(X, X)."), kb, aggregation="weight")
    assert mixed.note == "2 statements conclude no relation of two entities; weights passed them over"


def test_files_of_completion_rules_are_grouped_and_short():
    triples = [(f"a{i}", "p", f"b{i % 5}") for i in range(15)] + [(f"b{i % 5}", "q", f"a{i}") for i in range(12)]
    rules = PathMixture(max_length=2).fit(KnowledgeBase.from_triples(triples)).rules_
    text = str(rules)
    assert [line for line in text.splitlines() if line.startswith("%")] == [
        f"% {head}: {sum(head == str(find_conclusions(statement).pop()) for statement in rules)} statements"
        for head in ("p", "q")
    ]
    assert parse_rules(text) == rules
    weights = re.findall(r"weight\w*: ([-.\d]+)\S*?[,}]", text)
    digits = [len(weight.replace(".", "").lstrip("-0")) for weight in weights]
    assert max(digits) <= 3
