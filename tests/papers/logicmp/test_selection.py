"""Choosing options by hidden facts."""

from __future__ import annotations

import random

import pytest

import rulewright as rw
from rulewright.papers.logicmp.selection import first_within_error, hidden_score, split_predicate, telling_predicates

pytestmark = pytest.mark.slow


def test_the_first_that_is_not_told_apart_from_the_best_is_chosen():
    draw = random.Random(0)
    for _ in range(50):
        scores = [[draw.random() for _ in range(3)] for _ in range(6)]
        top = max(scores, key=sum)
        told_apart = []
        for candidate in scores:
            short = [one - other for one, other in zip(top, candidate, strict=True)]
            middle = sum(short) / 3
            told_apart.append(middle > (sum((one - middle) ** 2 for one in short) / 2 / 3) ** 0.5)
        assert first_within_error(scores) == told_apart.index(False)
    assert first_within_error([[1.0, 1.0], [1.0, 1.0]]) == 0


def test_selection_hides_a_predicate():
    facts = [("parent", f"a{n}", f"b{n}") for n in range(8)] + [("child", f"b{n}", f"a{n}") for n in range(8)]
    kb = rw.KnowledgeBase.from_facts(facts)
    rules = rw.parse_rules("1.0 parent(X, Y) => child(Y, X). 1.0 child(X, Y) => parent(Y, X).")
    kept, hidden = split_predicate(kb, "child", share=0.25)
    assert [part.count("child") for part in (kept, hidden)] == [6, 2]
    assert kept.count("parent") == 8
    assert hidden_score(rules, kb, "child", {"closed": "listed"}) == 1
    assert telling_predicates(rules, kb) == ["parent", "child"]
    same = rw.KnowledgeBase.from_facts([*facts, ("same", "a0", "a0"), ("same", "a1", "a1")])
    named = rw.parse_rules("1.0 parent(X, Y) => !same(X, Y).")
    assert telling_predicates(named, same) == ["parent"]
