"""Chains refined by unary facts and comparisons, against rules that are written out and counted one by one."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright.data import Domain, KnowledgeBase
from rulewright.data.generators import family
from rulewright.learn import RuleMiner
from rulewright.learn.miner import refinements
from rulewright.learn.miner.confidence import TRUST, bound_shares
from rulewright.learn.miner.refinements import RefinementCounter
from rulewright.logic import Atom, Comparison, PredicateDeclaration, Rule, Variable, parse_rule
from rulewright.reason import apply

from .rule_oracle import count_rule
from .test_properties import choose_filters

ENTITIES = ["a", "b", "c", "d"]


@st.composite
def knowledge_bases(draw) -> KnowledgeBase:
    """Small graphs with self-loops, unary facts and an attribute of which an entity may have several values."""
    entity = st.integers(0, len(ENTITIES) - 1)
    pairs = st.sets(st.tuples(entity, entity), min_size=1, max_size=9)
    declarations = [
        PredicateDeclaration("p", ("thing", "thing")),
        PredicateDeclaration("q", ("thing", "thing")),
        PredicateDeclaration("u", ("thing",)),
        PredicateDeclaration("age", ("thing", "number")),
    ]
    columns = {name: [np.array(column, dtype=np.int32) for column in zip(*draw(pairs), strict=True)] for name in "pq"}
    columns["u"] = [np.array(sorted(draw(st.sets(entity, min_size=1))), dtype=np.int32)]
    ages = draw(st.sets(st.tuples(entity, st.integers(0, 3)), min_size=1, max_size=6))
    owners, values = zip(*ages, strict=True)
    columns["age"] = [np.array(owners, dtype=np.int32), np.array(values, dtype=np.float64)]
    return KnowledgeBase.from_columns({"thing": Domain("thing", ENTITIES)}, declarations, columns)


def write_paths(length: int) -> list[tuple[Atom, ...]]:
    stops = [Variable(f"V{position}") for position in range(length + 1)]
    steps = [
        [Atom(name, args) for name in "pq" for args in ((before, after), (after, before))]
        for before, after in pairwise(stops)
    ]
    return list(product(*steps))


def list_rules(kb: KnowledgeBase, *, min_support: int, circular: bool) -> dict:
    """Count every rule of the form, and return those that should be found, by head and body without ``!=``."""
    found = {}
    for name, length in product("pq", (1, 2)):
        ends = Variable("V0"), Variable(f"V{length}")
        head, apart = Atom(name, ends), Comparison("!=", *ends)
        numbers = Variable("A"), Variable("B")
        ages = tuple(Atom("age", pair) for pair in zip(ends, numbers, strict=True))
        for path in write_paths(length):
            if path == (head,):
                continue
            refined = [((*path, Atom("u", (end,))), path) for end in ends]
            if length == 1:
                refined += [((*path, *ages, Comparison(sign, *numbers)), (*path, *ages)) for sign in "<>"]
            for body, general in refined:
                counts, less = (
                    count_rule(Rule(head, (*part, apart)), kb, circular=circular) for part in (body, general)
                )
                if counts["support_pairs"] < min_support:
                    continue
                cases = [np.array([counts[name]]) for name in ("support_pairs", "body_pairs")]
                confidence = bound_shares(*cases)[0]
                bound = bound_shares(*cases, trust=TRUST / 4)[0]  # u of either end, and two comparisons
                if confidence >= 0.05 and bound > less["support_pairs"] / less["body_pairs"]:
                    found[head, frozenset(body)] = counts | {"confidence": confidence}
    return found


@settings(max_examples=15, deadline=None)
@given(knowledge_bases(), st.integers(1, 2), st.booleans())
def test_rules_and_counts_equal_those_of_all_rules_written_out(kb, min_support, circular):
    filters = choose_filters(min_support=min_support, circular=circular)
    mined = {}
    for rule in RefinementCounter(kb, filters, thresholds=True, two_steps=True).mine():
        apart = Comparison("!=", *rule.head.args)
        mined[rule.head, frozenset(part for part in rule.body if part != apart)] = rule
        with_loops = count_rule(Rule(rule.head, tuple(part for part in rule.body if part != apart)), kb, circular=True)
        without = count_rule(Rule(rule.head, (*rule.body, apart)), kb, circular=True)
        assert (with_loops["body"] > without["body"]) == (apart in rule.body)
    wanted = list_rules(kb, min_support=min_support, circular=circular)
    assert set(mined) == set(wanted)
    for key, counts in wanted.items():
        rule = mined[key]
        assert rule.confidence == pytest.approx(counts["confidence"])
        assert (rule.annotations["support"], rule.annotations["body"]) == (counts["support"], counts["body"])
        assert rule.annotations["pairs"] == pytest.approx(counts["support_pairs"] / counts["body_pairs"], abs=1e-6)
        assert rule.annotations["pca"] == pytest.approx(counts["support_pairs"] / counts["known_pairs"], abs=1e-6)
        assert rule.annotations["coverage"] == pytest.approx(counts["support_pairs"] / counts["facts"], abs=1e-6)


def test_a_family_with_ages():
    made = family(80, ages=True, missing=0.1, seed=1)
    miner = RuleMiner(max_length=2, min_confidence=0.5, min_support=3, constants=False).fit(made.kb)
    found = {rule.canonical() for rule in miner.rules_.rules}
    for text in (
        "father_of(X, Y) :- parent_of(X, Y), male(X).",
        "mother_of(X, Y) :- child_of(Y, X), female(X).",
        "uncle_of(X, Z) :- sibling_of(X, Y), parent_of(Y, Z), male(X).",
        "elder_sibling_of(X, Y) :- sibling_of(X, Y), age(X, A), age(Y, B), A > B.",
    ):
        assert parse_rule(text).canonical() in found
    assert all(parse_rule(str(rule)) == rule for rule in miner.rules_.rules)
    hidden = {("elder_sibling_of", *pair) for pair in made.hidden.tuples("elder_sibling_of")}
    given = {(fact.predicate, *fact.args) for fact in apply(miner.rules_, made.kb, min_score=0.5)}
    assert hidden & given


def test_too_many_groundings_are_left_out_and_it_is_said(monkeypatch):
    monkeypatch.setattr(refinements, "MAX_GROUNDINGS", 10)
    miner = RuleMiner(max_length=2, min_confidence=0.5, min_support=3, constants=False).fit(family(40, seed=1).kb)
    assert "were not refined by unary predicates" in miner.note_
