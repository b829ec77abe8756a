from __future__ import annotations

import random

import pytest
from engine.oracle import Oracle, head_for, random_body, random_kb, uses_head
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright import explain_counts, parse_rule
from rulewright.errors import DataError
from rulewright.logic import Literal, Rule

pytestmark = pytest.mark.slow


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_counts_and_cases_equal_the_oracle(seed):
    chance = random.Random(seed)
    kb, body, circular = random_kb(chance), random_body(chance, atoms=3), chance.random() < 0.5
    head = head_for(chance, body)
    if head is None:
        return
    rule = Rule(head, tuple(each.formula() for each in body))
    oracle = Oracle(kb)
    found = explain_counts(rule, kb, limit=4, circular=circular)
    groundings, supporting = (
        sum(circular or not uses_head(oracle, head, body, each) for each in oracle.groundings(parts))
        for parts in (body, [*body, Literal(head)])
    )
    assert (found.body, found.support) == (groundings, supporting)
    assert len(found.examples) == min(4, supporting)
    assert len(found.counterexamples) == min(4, groundings - supporting)
    for cases, held in ((found.examples, True), (found.counterexamples, False)):
        for case in cases:
            assert oracle.count(case.body) == 1
            assert (oracle.count([case.head]) == 1) == held
    assert explain_counts(rule, kb, limit=4, circular=circular) == found
    assert 0 <= found.coverage <= 1


def test_alternatives_are_refused_and_a_limit_of_nothing_is_fine():
    kb = random_kb(random.Random(1))
    with pytest.raises(DataError, match="count each by itself"):
        explain_counts(parse_rule("u(X) :- p(X, Y) ; p(Y, X)."), kb)
    assert explain_counts(parse_rule("u(X) :- p(X, Y)."), kb, limit=0).examples == ()
