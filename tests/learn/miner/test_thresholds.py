"""Thresholds, against every cut tried and every rule counted one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import rulewright as rw
from rulewright.data import KnowledgeBase
from rulewright.learn import RuleMiner
from rulewright.learn.miner.thresholds import CutSearch, measure_gain, place_cut
from rulewright.logic import Comparison, Rule, parse_rule

from .rule_oracle import count_rule


def make_people(seed: int, people: int = 120) -> KnowledgeBase:
    """People whose age says who is retired, works or is a minor, and whose height says nothing."""
    random = np.random.default_rng(seed)
    facts: list[tuple[str | float, ...]] = []
    for index, age in enumerate(random.integers(1, 95, size=people).tolist()):
        name = f"p{index}"
        facts += [("age", name, age), ("height", name, round(random.normal(170, 10), 1))]
        facts += [("retired", name)] if age > 64 and random.random() < 0.95 else []
        facts += [("works", name)] if 17 < age < 65 and random.random() < 0.95 else []
        facts += [("lucky", name)] if random.random() < 0.5 else []
        facts += [("lives_in", name, "home" if age > 79 else "town")]
    return KnowledgeBase.from_facts(facts)


def compares(rule: Rule) -> bool:
    return any(isinstance(part, Comparison) and part.operator in "<>" for part in rule.body)


def test_thresholds_of_ages_are_found_and_heights_say_nothing():
    kb = make_people(0)
    rules = RuleMiner(min_confidence=0.5, min_support=2, confidence="beta").fit(kb).rules_
    found = {str(rule).partition(" :: ")[2].partition(" @")[0] for rule in rules if compares(rule)}
    assert any(text.startswith("retired(V0) :- age(V0, A), A > ") for text in found)
    assert any(text.startswith("works(V0) :- age(V0, A), A > ") and ", A < " in text for text in found)
    assert any(text.startswith("lives_in(V0, home) :- age(V0, A), A > ") for text in found)
    assert not any("height" in text or "lucky" in text for text in found)
    for rule in rules:
        if compares(rule):
            counts = count_rule(rule, kb)
            shown = rw.explain_counts(rule, kb)
            assert (rule.annotations["support"], rule.annotations["body"]) == (counts["support"], counts["body"])
            assert (shown.support, shown.body) == (counts["support"], counts["body"])
            assert parse_rule(str(rule)) == rule
    assert not any(compares(rule) for rule in RuleMiner(min_confidence=0.5, thresholds=False).fit(kb).rules_)


def test_noise_gives_hardly_a_rule():
    found = 0
    for seed in range(20):
        random = np.random.default_rng(seed)
        facts: list[tuple[str | float, ...]] = []
        for index in range(100):
            facts += [(name, f"p{index}", random.normal()) for name in ("one", "two")]
            facts += [(name, f"p{index}") for name in ("red", "round", "rare") if random.random() < 0.3]
        miner = RuleMiner(min_confidence=0.01, min_support=2, confidence="beta").fit(KnowledgeBase.from_facts(facts))
        found += any(compares(rule) for rule in miner.rules_)
    assert found <= 3  # one seed in twenty may be fooled


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 14), st.integers(0, 6)), min_size=20, max_size=40, unique=True),
    st.sets(st.integers(0, 14), min_size=2),
    st.sampled_from(["beta", "groundings", "pairs", "pca"]),
)
def test_counts_where_entities_have_several_values(ages, marked, confidence):
    facts = [("age", f"e{entity}", value) for entity, value in ages]
    facts += [("likes", f"e{entity}", "tea" if entity in marked else "milk") for entity in range(15)]
    facts += [("big", f"e{entity}") for entity, value in ages if value > 3]
    kb = KnowledgeBase.from_facts(facts)
    miner = RuleMiner(max_length=1, min_confidence=0.01, min_support=2, confidence=confidence).fit(kb)
    for rule in miner.rules_:
        if compares(rule):
            counts = count_rule(rule, kb)
            assert (rule.annotations["support"], rule.annotations["body"]) == (counts["support"], counts["body"])
            assert rule.annotations["pairs"] == pytest.approx(counts["support_pairs"] / counts["body_pairs"], abs=1e-6)
            assert rule.annotations["pca"] == pytest.approx(counts["support_pairs"] / counts["known_pairs"], abs=1e-6)


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans(), st.booleans()), min_size=1, max_size=25))
def test_the_best_cut_is_that_of_all_cuts(rows):
    rows = sorted(rows)
    values = np.array([float(value) for value, *_ in rows])
    holds = np.array([marks for _, *marks in rows], dtype=np.int64)
    search = CutSearch(values, sparse.csc_array(holds))
    everything = search.everything()
    places = [0, *(np.flatnonzero(values[1:] != values[:-1]) + 1).tolist(), len(values)]
    for cuts, regions in (
        (search.move_low(everything), [(place, len(values)) for place in places[:-1]]),
        (search.move_high(everything), [(0, place) for place in places[1:]]),
    ):
        for head in range(2):
            gains = [gain_of(holds[:, head], low, high) for low, high in regions]
            assert cuts.gain[head] == pytest.approx(max(gains))
            if cuts.gain[head] > 0:
                assert gain_of(holds[:, head], cuts.low[head], cuts.high[head]) == pytest.approx(cuts.gain[head])


def gain_of(marks: np.ndarray, low: int, high: int) -> float:
    inside = np.array([marks[low:high].sum()])
    return float(measure_gain(inside, np.array([high - low]), np.array([marks.sum()]), len(marks))[0])


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.booleans())
def test_a_cut_lies_between_its_values(one, other, upward):
    low, high = sorted((one, other))
    if low < high:
        cut = place_cut(low, high, upward=upward)
        assert low <= cut < high if upward else low < cut <= high
