"""Which rules of a completion are worth reading."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from rulewright.data import KnowledgeBase
from rulewright.engine.walks import Graph
from rulewright.logic import Chain, parse_rule, parse_rules
from rulewright.papers.completion_runs import choose_readable, measure_shares

RULES = """
0.4 :: r(X, Y) :- q(X, Y). @{weight: 1.5, weight_inverse: 0.5, ways: counted}
0.3 :: r(X, Y) :- r(Y, X). @{weight: 0.7, ways: counted}
0.2 :: r(X, Y) :- p(X, V), q(V, Y). @{weight: 2, weight_inverse: 1, ways: counted}
0.2 :: r(X, Y) :- r(X, V), p(Y, V). @{weight: 1, weight_inverse: 3, ways: counted}
0.1 :: r(X, Y) :- r(X, U), r(V, U), r(V, Y). @{weight: 0.4, weight_inverse: 0.1, ways: counted}
"""


def count_ways(chain, facts, entities, start, end):
    """How many walks along a path there are, each in a loop."""
    total = 0
    for between in product(entities, repeat=len(chain.steps) - 1):
        stops = [start, *between, end]
        total += all(
            ((after, step.relation, before) if step.inverse else (before, step.relation, after)) in facts
            for step, before, after in zip(chain.steps, stops, stops[1:], strict=False)
        )
    return total


@pytest.mark.parametrize("seed", range(5))
def test_shares_are_those_of_walks_counted_one_by_one(seed):
    random = np.random.default_rng(seed)
    names = [f"e{i}" for i in range(6)]
    facts = {(names[h], "pqr"[r], names[t]) for h, r, t in random.integers((6, 3, 6), size=(30, 3)).tolist()}
    kb = KnowledgeBase.from_triples(sorted(facts))
    rules = parse_rules(RULES).rules
    chains = [Chain.of(rule) for rule in rules]
    coverage, share = measure_shares(rules, chains, kb, Graph(kb), seed=0)
    asked = [fact for fact in facts if fact[1] == "r"]
    plain_coverage, plain_share = np.zeros(len(rules)), np.zeros(len(rules))
    for fact in asked:
        ways = [count_ways(chain, facts - {fact}, names, fact[0], fact[2]) for chain in chains]
        plain_coverage += np.array(ways) > 0
        for key in ("weight", "weight_inverse"):
            weights = [rule.annotations.number(key) or 0.0 for rule in rules]
            added = np.array([weight * math.log2(1 + count) for weight, count in zip(weights, ways, strict=True)])
            plain_share += added / added.sum() / 2 if added.sum() else 0.0
    np.testing.assert_allclose(coverage, plain_coverage / len(asked))
    np.testing.assert_allclose(share, plain_share / len(asked))
    assert share.sum() <= 1 + 1e-9 and coverage.max() <= 1


def test_what_speaks_for_everyone_is_not_read_however_heavy():
    facts = [(f"p{i}", "gender", f"g{i % 2}") for i in range(12)]
    facts += [(f"p{i}", "plays", f"i{i % 6}") for i in range(12)] + [(f"p{i}", "job", f"j{i % 6}") for i in range(12)]
    facts += [(f"i{i}", "makes", f"j{i}") for i in range(6)]
    kb = KnowledgeBase.from_triples(facts)
    vague = "0.0007 :: job(X, Y) :- gender(X, U), gender(V, U), job(V, Y). @{weight: 6.5, weight_inverse: 4}"
    right = "0.9 :: job(X, Y) :- plays(X, V), makes(V, Y). @{weight: 1, weight_inverse: 1}"
    slight = "0.95 :: job(X, Y) :- plays(X, U), plays(V, U), job(V, Y). @{weight: 0.01, weight_inverse: 0.01}"
    named = "0.9 :: job(X, j1) :- plays(X, i1). @{weight: 9}"
    readable = choose_readable([parse_rule(text) for text in (vague, named, slight, right)], kb, count=3)
    (text,) = readable["job"]
    rule = parse_rule(text)
    assert rule.body == parse_rule(right).body and rule.annotations.number("coverage") == 1
    assert 0 < rule.annotations.number("share") < 1, "what the others add counts too"
    assert choose_readable([parse_rule(vague)], kb, count=3) == {}
