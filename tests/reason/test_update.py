"""An update equals a fresh application: facts, scores and rules, whatever came and went."""

from __future__ import annotations

import random

import pytest
from engine.oracle import PREDICATES, random_kb
from hypothesis import given, settings
from hypothesis import strategies as st
from reason.naive import stratified
from reason.programs import random_graph, recursive_rules
from reason.test_apply import random_rules

from rulewright import apply, update
from rulewright.data import KnowledgeBase
from rulewright.errors import DataError
from rulewright.logic import RuleSet, parse_rules
from rulewright.reason import Inferred, Update


def results(inferred: Inferred) -> dict[tuple, tuple[float, tuple[int, ...]]]:
    """What must be equal: scores to the last bit, and rules in their order."""
    return {
        (fact.predicate, *fact.args): (fact.score, tuple(inferred.sources.index(rule) for rule in fact.rules))
        for fact in inferred
    }


def check_update(old: Inferred, kb: KnowledgeBase, **options) -> Update:
    """Compare an update with a fresh application."""
    changed = update(old, kb)
    fresh = apply(old.application.rules, kb, **options)
    assert results(changed.inferred) == results(fresh)
    assert [str(fact) for fact in changed.inferred] == [str(fact) for fact in fresh]
    assert changed.inferred.violations == fresh.violations
    assert changed.inferred.completed.n_facts == fresh.completed.n_facts
    before, after = set(results(old)), set(results(fresh))
    known = {(name, *values) for name, values in kb.facts()}
    assert set(results(changed.added)) == after - before
    assert set(results(changed.removed)) == before - after - known
    assert set(results(changed.confirmed)) == (before - after) & known
    return changed


def random_change(chance: random.Random, kb: KnowledgeBase, other: KnowledgeBase) -> KnowledgeBase:
    """Remove some facts and take some of another knowledge base over the same predicates."""
    if chance.random() < 0.3:
        return other
    for truth in (True, False):
        gone = [(name, *values) for name, values in kb.facts(truth=truth) if chance.random() < chance.choice((0, 0.2))]
        kb = kb.remove(gone, truth=truth)
    for truth in (True, False):
        for name, values in other.facts(truth=truth):
            if chance.random() < 0.3:
                try:
                    kb = kb.add([(name, *values)], truth=truth)
                except DataError:  # it contradicts one that is there
                    continue
    return kb


def check_random(chance: random.Random, kb: KnowledgeBase, other: KnowledgeBase, rules: RuleSet) -> None:
    how, min_score = chance.choice(("max", "max", "max-plus", "noisy-or")), chance.choice((0.0, 0.0, 0.4))
    max_rounds = chance.choice((1, None, None))
    if max_rounds is None and (stratified(rules.rules) is None or how == "noisy-or"):
        max_rounds = 1
    options = {"aggregation": how, "min_score": min_score, "max_rounds": max_rounds}
    inferred = apply(rules, kb, **options)
    for _ in range(2):
        kb = random_change(chance, kb, other)
        inferred = check_update(inferred, kb, **options).inferred


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_recursion_and_negation(seed):
    chance = random.Random(seed)
    check_random(chance, random_graph(chance), random_graph(chance), recursive_rules(chance))


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_classes_and_numbers(seed):
    chance = random.Random(seed)
    rules = RuleSet(random_rules(chance, negation=0.5), predicates=PREDICATES)
    check_random(chance, random_kb(chance), random_kb(chance), rules)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_many_programs(seed):
    chance = random.Random(seed)
    if chance.random() < 0.6:
        check_random(chance, random_graph(chance), random_graph(chance), recursive_rules(chance, 6))
    else:
        rules = RuleSet(random_rules(chance, negation=0.4), predicates=PREDICATES)
        check_random(chance, random_kb(chance), random_kb(chance), rules)


RULES = """
0.9 :: p(X, Y) :- e(X, Y), !u(X).
p(X, Z) :- p(X, Y), p(Y, Z).
0.5 :: near(X, a) :- e(X, Y).
alone(X) :- u(X), !near(X, a).
hard !(near(X, Y) & u(X)).
"""


def graph(*facts: tuple[str, ...]) -> KnowledgeBase:
    return KnowledgeBase.from_facts([("u", "a"), ("u", "z"), *facts])


def test_entities_that_come_and_vanish_predicates_that_move_and_constraints():
    rules = parse_rules(RULES)
    old, new = graph(("e", "b", "c"), ("e", "gone", "b"), ("e", "c", "d")), graph(("e", "z", "b"), ("e", "b", "c"))
    for max_rounds in (1, None):
        inferred = apply(rules, old, max_rounds=max_rounds)
        changed = check_update(inferred, new.add([("first", "b")]), max_rounds=max_rounds)
        assert "near(gone, a)" in map(str, changed.removed) and len(changed.inferred.violations) == 1
        assert repr(changed).startswith("Update(")
        back = check_update(changed.inferred, old.add([("first", "b")]), max_rounds=max_rounds)
        assert results(back.inferred) == results(inferred)


def test_a_fact_that_is_known_now_is_confirmed():
    rules = parse_rules("0.5 :: near(X, Y) :- e(X, Y). 0.5 :: near(X, Y) :- near(Y, X).")
    kb = graph(("e", "a", "b"))
    inferred = apply(rules, kb, max_rounds=None)
    changed = check_update(inferred, kb.add([("near", "a", "b")]), max_rounds=None)
    assert [str(fact) for fact in changed.confirmed] == ["near(a, b)"] and not len(changed.removed)
    assert [(str(fact), fact.score) for fact in changed.inferred] == [("near(b, a)", 0.5)]


def test_what_cannot_be_updated_is_refused():
    kb, chain = graph(("e", "a", "b"), ("e", "b", "c")), parse_rules("0.5 :: p(X, Y) :- e(X, Y). p(X, Y) :- p(Y, X).")
    with pytest.raises(
        DataError, match=r"noisy-or over several rounds depends on .*; apply the rules anew, or use max"
    ):
        update(apply(chain, kb, max_rounds=None, aggregation="noisy-or"), kb)
    with pytest.raises(DataError, match=r"cut at max_facts=1, .*; apply the rules anew, with a higher max_facts"):
        update(apply(chain, kb, max_facts=1), kb)
    with pytest.raises(DataError, match="takes one round or the fixed point, got max_rounds=2"):
        update(apply(chain, kb, max_rounds=2), kb)
    with pytest.raises(
        DataError, match=r"p was declared as .*p\(entity, entity\)\. and is .*p\(entity, number\)\. now"
    ):
        update(
            apply(parse_rules("q(X) :- e(X, Y)."), graph(("e", "a", "b"), ("p", "a", "b"))),
            graph(("e", "a", "b"), ("p", "a", 1)),
        )


def test_rules_that_do_not_chain_are_updated_with_noisy_or_at_the_fixed_point():
    rules = parse_rules("0.5 :: p(X) :- e(X, Y). 0.5 :: p(X) :- e(Y, X).")
    kb = graph(("e", "a", "b"))
    inferred = apply(rules, kb, max_rounds=None, aggregation="noisy-or", min_score=0.6)
    assert not len(inferred)
    changed = check_update(inferred, kb.add([("e", "b", "a")]), max_rounds=None, aggregation="noisy-or", min_score=0.6)
    assert [fact.score for fact in changed.added] == [0.75, 0.75]


def test_a_result_that_grows_too_large_is_cut_and_says_so():
    kb = graph(("e", "a", "b"))
    inferred = apply(parse_rules("p(X, Y) :- e(X, Y)."), kb, max_facts=1)
    changed = update(inferred, kb.add([("e", "b", "c")]))
    assert len(changed.inferred) == 1 and "max_facts=1" in changed.inferred.note
    with pytest.raises(DataError, match="was cut"):
        update(changed.inferred, kb)
