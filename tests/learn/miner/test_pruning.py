from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learn.miner.rule_oracle import ground, name_fact

from rulewright.data import KnowledgeBase, KnowledgeBaseBuilder
from rulewright.engine import Engine
from rulewright.learn import RuleMiner
from rulewright.learn.miner import pruning
from rulewright.learn.miner.pruning import cover_facts, drop_redundant
from rulewright.logic import Chain, PredicateDeclaration

pytestmark = pytest.mark.slow

SEEDS = st.integers(0, 2**32)


def random_kb(chance: random.Random) -> KnowledgeBase:
    """Relations, unary facts, classes and numbers of a few entities, some joined to themselves."""
    builder = KnowledgeBaseBuilder()
    builder.declare(PredicateDeclaration("age", ("entity", "number")))
    builder.declare(PredicateDeclaration("colour", ("entity",), ("red", "blue")))
    entities = [f"e{index}" for index in range(chance.randint(2, 9))]
    for _ in range(chance.randint(1, 40)):
        builder.add(f"r{chance.randrange(3)}", chance.choices(entities, k=2))
    for entity in entities:
        if chance.random() < 0.6:
            builder.add("male", [entity])
        if chance.random() < 0.6:
            builder.add("colour", [entity], value=chance.choice(("red", "blue")))
        if chance.random() < 0.6:
            builder.add("age", [entity, float(chance.randrange(5))])
    return builder.build()


def explained(rule, kb: KnowledgeBase, *, circular: bool) -> set[tuple]:
    """The facts that a rule gives, found by trying every grounding."""
    name = str(rule.head.predicate)
    known = {(name, *fact) for fact in kb.tuples(name)}
    facts = set()
    for grounding in ground(rule.body, kb):
        fact = name_fact(rule.head, grounding)
        if fact in known and (circular or fact not in [name_fact(part, grounding) for part in rule.body]):
            facts.add(fact)
    return facts


def cover_slowly(rules, kb: KnowledgeBase, min_new: int, *, circular: bool) -> list:
    kept, covered = [], set()
    for rule in rules:
        new = explained(rule, kb, circular=circular) - covered
        if len(new) >= min_new:
            kept.append(rule)
            covered |= new
    return kept


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS)
def test_pruned_rules_equal_brute_force(seed):
    chance = random.Random(seed)
    kb, circular, least = random_kb(chance), chance.random() < 0.3, chance.choice((1, 2, 3))
    options = {"min_support": least, "circular": circular, "max_length": chance.choice((1, 2, 2, 3))}
    options |= {"min_confidence": chance.choice((0.0, 0.2)), "loops": chance.choice(("skip", "against"))}
    full, pruned = (RuleMiner(**options, prune=prune).fit(kb).rules_.rules for prune in (False, True))
    is_chain = [(chain := Chain.of(rule)) is not None and chain.is_closed for rule in full]
    chains = set(map(str, drop_redundant([rule for rule, chained in zip(full, is_chain, strict=True) if chained])))
    left = [rule for rule, chained in zip(full, is_chain, strict=True) if not chained or str(rule) in chains]
    assert list(map(str, pruned)) == list(map(str, cover_slowly(left, kb, least, circular=circular)))


def test_heads_in_parts_give_the_same(monkeypatch):
    kb = random_kb(random.Random(5))
    rules = RuleMiner(max_length=2, min_support=1).fit(kb).rules_.rules
    with Engine(kb) as engine:
        whole = cover_facts(engine, rules, min_new=1)
        monkeypatch.setattr(pruning, "EXPLAINED_AT_ONCE", 3)
        assert cover_facts(engine, rules, min_new=1) == whole
        assert 0 < len(whole) < len(rules)
        assert cover_facts(engine, [], min_new=1) == []


def test_every_fact_that_rules_explain_stays_explained():
    kb = random_kb(random.Random(8))
    full, pruned = (RuleMiner(max_length=2, min_support=1, prune=prune).fit(kb).rules_.rules for prune in (False, True))
    before, after = (set().union(*(explained(rule, kb, circular=False) for rule in rules)) for rules in (full, pruned))
    assert before == after and len(pruned) < len(full)
