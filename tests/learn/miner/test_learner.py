from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learn.miner.chain_oracle import all_lengths, merge_twins, triples, walk_all
from real_data import DATA, needs_data
from scipy.stats import beta

from rulewright import explain_counts, read_facts, read_rules
from rulewright.data import KnowledgeBase, KnowledgeBaseBuilder
from rulewright.data.generators import family
from rulewright.errors import DataError, UnknownNameError
from rulewright.learn import RuleMiner
from rulewright.logic import Chain, PredicateDeclaration

pytestmark = pytest.mark.slow

SEEDS = st.integers(0, 2**32)


def random_graph(chance: random.Random) -> KnowledgeBase:
    """A few relations over a few entities, in one world or several, with facts that join an entity to itself."""
    builder = KnowledgeBaseBuilder()
    worlds = chance.choice(([None], ["w1", "w2", "w3"]))
    for _ in range(chance.randint(1, 30)):
        world = chance.choice(worlds)
        names = [f"{world or ''}e{chance.randrange(5)}" for _ in range(2)]
        builder.add(f"r{chance.randrange(3)}", names, world=world)
    return builder.build()


def mined(miner: RuleMiner):
    """The chains found, as (head, steps) → rule."""
    found = {}
    for rule in miner.rules_.rules:
        chain = Chain.of(rule)
        if chain is None or not chain.is_closed:
            continue
        key = (chain.head, tuple((step.relation, step.inverse) for step in chain.steps))
        assert key not in found, "each rule comes once"
        found[key] = rule
    return found


def repeats(kb: KnowledgeBase, head: str, steps) -> bool:
    """Whether a step walks a symmetric relation backwards, which is the same as forwards."""
    facts = triples(kb)
    symmetric = {name for name in kb.predicates if all((z, r, x) in facts for x, r, z in facts if r == name)}
    return steps != ((head, True),) and any(inverse and relation in symmetric for relation, inverse in steps)


def figure(expected, which: str) -> float:
    if which == "groundings":
        return expected["support"] / expected["body"]
    if which == "pairs":
        return expected["support_pairs"] / expected["body_pairs"]
    if which == "pca":
        return expected["support_pairs"] / expected["known_pairs"]
    held, given = expected["support_pairs"], expected["body_pairs"]
    return round(float(beta.ppf(0.05, held + 0.5, given - held + 0.5)), 4)


@settings(max_examples=120, deadline=None)
@given(seed=SEEDS)
def test_every_statistic_equals_brute_force(seed):
    chance = random.Random(seed)
    kb = random_graph(chance)
    loops, inverses, circular = chance.choice(("skip", "against")), chance.random() < 0.8, chance.random() < 0.4
    which = chance.choice(("groundings", "pairs", "pca", "beta"))
    longest = chance.choice((1, 2, 2, 3, 3))
    limits = {
        "min_confidence": chance.choice((0.0, 0.3, 0.7)),
        "min_support": chance.choice((1, 2)),
        "min_coverage": chance.choice((0.0, 0.4)),
        "min_relation_facts": chance.choice((1, 3)),
        "min_middles": chance.choice((1, 2)),
        "min_body": chance.choice((1, 3)),
        "repeated": chance.random() < 0.7,
    }
    miner = RuleMiner(
        max_length=longest, confidence=which, loops=loops, inverses=inverses, circular=circular, **limits
    ).fit(kb)
    sizes = {name: kb.count(name) for name in kb.predicates}
    expected = {}
    for (head, steps), counts in all_lengths(kb, longest, loops=loops, inverses=inverses, circular=circular).items():
        keep = figure(counts, which) >= limits["min_confidence"] - 1e-12
        keep &= counts["support"] >= limits["min_support"]
        keep &= counts["support" if circular else "support_pairs"] >= limits["min_coverage"] * counts["facts"]
        keep &= all(sizes[relation] >= limits["min_relation_facts"] for relation, _ in steps)
        keep &= circular or not repeats(kb, head, steps)
        if len(steps) == 2:
            keep &= counts["middles"] >= limits["min_middles"] and counts["body"] >= limits["min_body"]
        if not limits["repeated"]:
            keep &= len(set(steps)) == len(steps)
        if keep:
            expected[head, steps] = counts
    if not circular:
        expected = merge_twins(kb, expected, loops=loops)
    found = mined(miner)
    assert set(found) == set(expected)
    for key, counts in expected.items():
        rule, told = found[key], found[key].annotations
        assert rule.confidence == pytest.approx(figure(counts, which))
        assert (rule.support, told["body"]) == (counts["support"], counts["body"])
        if loops == "skip" and chance.random() < 5 / len(expected):  # what is printed is what was counted
            shown = explain_counts(rule, kb, limit=0, circular=circular)
            assert shown.coverage == pytest.approx(told["coverage"], abs=1e-6)
            assert (shown.support, shown.body) == (counts["support"], counts["body"])
        assert told["pairs"] == pytest.approx(figure(counts, "pairs"), abs=1e-6)
        assert told["pca"] == pytest.approx(figure(counts, "pca"), abs=1e-6)
        assert told["coverage"] == pytest.approx(counts["support_pairs"] / counts["facts"], abs=1e-6)
    confidences = [rule.confidence for rule in miner.rules_.rules]
    assert confidences == sorted(confidences, reverse=True)


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_length_four_too(seed):
    chance = random.Random(seed)
    kb, loops, circular = random_graph(chance), chance.choice(("skip", "against")), chance.random() < 0.3
    found = mined(RuleMiner(max_length=4, min_confidence=0.0, loops=loops, circular=circular).fit(kb))
    expected = {
        key: counts
        for key, counts in all_lengths(kb, 4, loops=loops, circular=circular).items()
        if counts["support"] > 1 and (circular or not repeats(kb, *key))
    }
    if not circular:
        expected = merge_twins(kb, expected, loops=loops)
    assert {key: rule.support for key, rule in found.items()} == {
        key: each["support"] for key, each in expected.items()
    }
    assert {key: rule.annotations["body"] for key, rule in found.items()} == {
        key: each["body"] for key, each in expected.items()
    }
    for key, counts in expected.items():
        told = found[key].annotations
        assert told["pairs"] == pytest.approx(figure(counts, "pairs"), abs=1e-6)
        assert told["pca"] == pytest.approx(figure(counts, "pca"), abs=1e-6)


def rows(found) -> list[tuple[int, ...]]:
    return sorted(zip(*(column.tolist() for column in found.values()), strict=True))


def test_targets_and_the_mirror():
    kb = KnowledgeBase.from_triples([("a", "p", "b"), ("b", "q", "a"), ("c", "p", "d"), ("d", "q", "c")])
    options = {"confidence": "groundings", "min_confidence": 1.0, "max_length": 1}
    found = mined(RuleMiner(**options).fit(kb))
    assert set(found) == {("p", (("q", True),)), ("q", (("p", True),))}
    assert set(mined(RuleMiner(**options, targets=["q"]).fit(kb))) == {("q", (("p", True),))}


def test_a_family_gives_back_its_rules():
    generated = family(400, seed=3)
    found = mined(RuleMiner(confidence="groundings", max_length=2, min_confidence=1.0).fit(generated.kb))
    truth = [chain for rule in generated.rules.rules if (chain := Chain.of(rule)) is not None]
    assert len(truth) >= 10
    for chain in truth:
        assert (chain.head, tuple((step.relation, step.inverse) for step in chain.steps)) in found


def test_rules_that_join_the_same_pairs_are_one():
    """Friendship goes both ways, so that four orientations of its transitivity say the same."""
    pairs = [(x, z) for group in ("abc", "defg") for x in group for z in group if x != z and {x, z} != {"d", "e"}]
    facts = [(x, "friends", z) for x, z in pairs]
    found = mined(RuleMiner(max_length=2, constants=False, unary=False).fit(KnowledgeBase.from_triples(facts)))
    assert set(found) == {("friends", (("friends", True),)), ("friends", (("friends", False), ("friends", False)))}
    both = [*facts, *((x, "knows", z) for x, z in pairs), ("a", "knows", "a")]
    found = mined(RuleMiner(max_length=2, targets=["friends"], unary=False).fit(KnowledgeBase.from_triples(both)))
    assert [steps for _, steps in found if len(steps) == 1 and steps[0][0] == "knows"] == [(("knows", False),)]
    assert not any(inverse for _, steps in found if len(steps) == 2 for _, inverse in steps)
    counted = RuleMiner(max_length=2, circular=True, constants=False, unary=False)
    assert len(mined(counted.fit(KnowledgeBase.from_triples(facts)))) == 5  # papers count each orientation


def test_only_orientations_of_one_body_are_one():
    """Rules over other relations that happen to join the same pairs part ways where facts are missing."""
    facts = [(f"a{i}", "p", f"b{i}") for i in range(5)] + [(f"b{i}", "q", f"c{i}") for i in range(5)]
    facts += [(f"b{i}", "s", f"a{i}") for i in range(5)] + [(f"a{i}", "h", f"c{i}") for i in range(5)]
    found = mined(RuleMiner(max_length=2, targets=["h"]).fit(KnowledgeBase.from_triples(facts)))
    assert set(found) == {("h", (("p", False), ("q", False))), ("h", (("s", True), ("q", False)))}


def test_pruning_leaves_out_what_shorter_rules_say():
    triple = [(f"a{i}", "p", f"b{i}") for i in range(5)] + [(f"b{i}", "q", f"c{i}") for i in range(5)]
    triple += [("d0", "p", "e0"), ("e0", "q", "f0"), ("d0", "r", "f0"), ("d1", "r", "f1"), ("d1", "h", "f1")]
    triple.append(("d0", "h", "f0"))
    kb = KnowledgeBase.from_triples([*triple, *((f"a{i}", r, f"c{i}") for i in range(5) for r in ("r", "h"))])
    options = {"confidence": "groundings", "min_confidence": 1.0}
    full, pruned = (mined(RuleMiner(**options, prune=each).fit(kb)) for each in (False, True))
    long = (("p", False), ("q", False))
    assert ("h", long) in full and ("r", long) in full and ("h", (("r", False),)) in full
    assert not {("h", long), ("r", long)} <= set(pruned)
    assert ("h", (("r", False),)) in pruned


@pytest.mark.parametrize("loops", ["skip", "against"])
def test_the_intervals_of_samples_cover(loops):
    kb = hub_graph(150, 700)
    options = {"max_length": 3, "min_confidence": 0.0, "confidence": "groundings", "loops": loops}
    options["targets"] = ["r0"]
    exact = mined(RuleMiner(**options, min_support=1).fit(kb))
    shares = []
    for seed in range(25):
        sampled = mined(RuleMiner(**options, sample=60, seed=seed, min_support=2).fit(kb))
        inside = []
        for key, rule in sampled.items():
            told = rule.annotations
            if len(key[1]) < 3:
                assert "confidence_low" not in told
                continue
            assert 0 < told["support"] <= told["body"] and 0 < told["pairs"] <= 1 and 0 < told["coverage"] <= 1
            assert told["confidence_low"] <= rule.confidence <= told["confidence_high"]
            inside.append(told["confidence_low"] - 1e-6 <= exact[key].confidence <= told["confidence_high"] + 1e-6)
        shares.append(np.mean(inside))
    assert np.mean(shares) >= 0.95


def hub_graph(entities: int, facts: int, seed: int = 0) -> KnowledgeBase:
    """Entities of which a few are in most facts, some of them joined to themselves or by several relations."""
    chance = np.random.default_rng(seed)
    ends = np.minimum(chance.exponential(entities / 5, (2, facts)).astype(int), entities - 1)
    names = zip(*ends.tolist(), chance.integers(0, 3, facts).tolist(), strict=True)
    return KnowledgeBase.from_triples((f"e{x}", f"r{relation}", f"e{z}") for x, z, relation in names)


def test_samples_of_a_large_graph_are_possible():
    kb = hub_graph(60_000, 60_000, seed=1)
    assert kb.n_facts > 50_000
    options = {"max_length": 3, "min_confidence": 0.0, "targets": ["r1"]}
    exact, sampled = (RuleMiner(**options, sample=sample).fit(kb) for sample in (None, 4000))
    assert "sample" not in exact.note_
    for rule in [*exact.rules_.rules, *sampled.rules_.rules]:
        told = rule.annotations
        assert 0 < told["support"] <= told["body"] and told["pairs"] <= 1 and told["pca"] <= 1 and told["coverage"] <= 1


def test_nothing_is_sampled_unless_asked():
    kb = family(300, seed=1).kb
    options = {"max_length": 3, "min_confidence": 0.5, "targets": ["uncle_of"]}
    exact = RuleMiner(**options).fit(kb)
    assert exact.note_ == "" and "confidence_low" not in exact.rules_.rules[0].annotations
    larger = RuleMiner(**options, sample=kb.n_entities).fit(kb)
    assert larger.note_ == "" and larger.rules_ == exact.rules_
    sampled = RuleMiner(**options, sample=60).fit(kb)
    assert "counted from a sample of 60 of" in sampled.note_ and "95 %" in sampled.note_
    assert any("confidence_low" in rule.annotations for rule in sampled.rules_.rules)


def test_lengths_by_what_the_size_affords(monkeypatch):
    kb = hub_graph(200, 300)
    counted = RuleMiner(unary=False, constants=False).fit(kb)
    assert counted.note_ == "" and max(len(steps) for _, steps in mined(counted)) == 3
    walks = sum(map(len, walk_all(triples(kb), 3).values()))
    monkeypatch.setattr("rulewright.learn.miner.chains.MOST_WALKS", {2: 10**9, 3: walks - 1})
    shorter = RuleMiner(unary=False, constants=False).fit(kb)
    assert max(len(steps) for _, steps in mined(shorter)) == 2
    assert f"rules of length 3 were left out: {walks:,} walks" in shorter.note_ and "--max-length 3" in shorter.note_


def test_a_symmetric_relation_is_walked_one_way():
    groups = ("abcd", "efgh", "hp", "pq")  # the last two make a path, along which each length joins other pairs
    pairs = [(x, z) for group in groups for x in group for z in group if x != z]
    kb = KnowledgeBase.from_triples((x, "peer", z) for x, z in pairs)
    found = mined(RuleMiner(max_length=3, unary=False, constants=False).fit(kb))
    assert sorted(len(steps) for _, steps in found) == [1, 2, 3]
    assert ("peer", (("peer", False), ("peer", False))) in found
    published = mined(RuleMiner(max_length=3, unary=False, constants=False, circular=True).fit(kb))
    assert len(published) == 1 + 4 + 8


def test_time_that_is_up_keeps_what_was_counted():
    kb = hub_graph(400, 20_000)
    miner = RuleMiner(max_length=4, time_limit=0.7, unary=False, constants=False).fit(kb)
    assert "stopped after 0.7 s: rules of length" in miner.note_ and "--time" in miner.note_
    assert RuleMiner(max_length=1, time_limit=600, unary=False, constants=False).fit(kb).note_ == ""


def test_no_rules_and_the_best_that_was_left_out():
    kb = KnowledgeBase.from_triples([("a", "p", "b"), ("a", "q", "b"), ("c", "q", "d"), ("e", "q", "f")])
    miner = RuleMiner(unary=False, constants=False).fit(kb)
    assert len(miner.rules_) == 0
    assert "no rule was found; the best that was left out, q(V0, V1) :- p(V0, V1), holds in 1 of 1 cases" in miner.note_
    assert "min_support=1 (--min-support 1) admits it" in miner.note_
    assert len(RuleMiner(unary=False, constants=False, min_support=1, max_length=1).fit(kb).rules_) == 2


def test_parameters_beside_a_preset_win():
    kb = family(60, seed=1).kb
    preset = RuleMiner(preset="milr", min_confidence=0.1).fit(kb).rules_
    same = {"min_relation_facts": 4, "min_middles": 4, "min_body": 4, "min_coverage": 0.008}
    same |= {"circular": True, "unary": False, "constants": False}
    same["confidence"] = "groundings"
    assert preset == RuleMiner(**same, repeated=False, loops="against", min_confidence=0.1).fit(kb).rules_
    given = {"min_relation_facts": 1, "min_middles": 1, "min_body": 1, "min_coverage": 0.0, "repeated": True}
    given |= {"circular": False, "unary": True, "constants": True, "confidence": "beta"}
    everything = RuleMiner(preset="milr", **given, loops="skip", min_confidence=0.1).fit(kb).rules_
    assert everything == RuleMiner(min_confidence=0.1).fit(kb).rules_ != preset


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 0}, "max_length must lie in 1 … 4 or None, got 0"),
        ({"min_confidence": 2}, r"min_confidence must lie in \[0, 1\], got 2"),
        ({"confidence": "high"}, "confidence must be 'groundings'"),
        ({"loops": "maybe"}, "loops must be 'skip', 'against' or None"),
        ({"preset": "amie"}, "preset must be 'milr' or None, got 'amie'"),
        ({"min_support": "3"}, "min_support must be a whole number or None, got '3'"),
        ({"sample": 0}, "sample must be >= 1 or None, got 0"),
        ({"targets": b"uncle_of"}, "targets must be a name, a list of names or None"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(DataError, match=message):
        RuleMiner(**options)


def test_graphs_without_chains():
    with pytest.raises(DataError, match="no rules to mine"):
        RuleMiner().fit(KnowledgeBase.from_facts([("gives", "ann", "bob", "book")]))
    kb = KnowledgeBase.from_facts([("tall", "ann"), ("r", "ann", "bob"), ("gives", "ann", "bob", "book")])
    with pytest.raises(UnknownNameError, match="unknown predicate 'q'"):
        RuleMiner(targets=["q"]).fit(kb)
    with pytest.raises(DataError, match="cannot be a target"):
        RuleMiner(targets=["gives"]).fit(kb)
    assert len(RuleMiner(min_support=2).fit(kb).rules_) == 0
    assert triples(KnowledgeBase.from_triples([("a", "r", "b")])) == {("a", "r", "b")}


@needs_data
def test_the_published_rules_of_dwie():
    kb = read_facts(DATA / "dwie" / "train_annotations_notext.json")
    published = {r.canonical(): r.confidence for r in read_rules(DATA / "dwie" / "milr_mined_rules_dwie.txt").rules}
    found = RuleMiner(preset="milr", min_confidence=0.98).fit(kb).rules_.rules
    assert {rule.canonical(): rule.confidence for rule in found} == published
    assert [len(rule.body) for rule in found].count(1) == 23
    assert len(published) == 90
    gold = {rule.canonical() for rule in read_rules(DATA / "dwie" / "dwie.grules.txt").rules}
    assert len(gold & set(published)) == 34
    counting = {"confidence": "groundings", "circular": True, "unary": False, "constants": False}
    for loops, expected in (("against", 209), ("skip", 215)):
        miner = RuleMiner(min_confidence=0.98, min_support=1, max_length=2, loops=loops, **counting)
        assert len(miner.fit(kb).rules_) == expected


def test_relations_without_facts_give_no_rules():
    builder = KnowledgeBaseBuilder([PredicateDeclaration("likes", ("person", "person"))])
    builder.add("tall", ["ann"])
    assert len(RuleMiner().fit(builder.build()).rules_) == 0
