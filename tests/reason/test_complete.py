from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reason.programs import random_graph, recursive_rules

from rulewright import KnowledgeBase, apply, complete, parse_rules
from rulewright.errors import UnknownNameError
from rulewright.logic import RuleSet


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 10), only=st.sampled_from([None, "p", "q"]))
def test_the_best_of_all_by_the_strongest_rules(seed, count, only):
    chance = random.Random(seed)
    made = recursive_rules(chance, 8)
    rules = RuleSet(
        dict.fromkeys(replace(rule, confidence=chance.choice((0.2, 0.5, 0.9))) for rule in made.rules),
        predicates=made.predicates,
    )
    kb = random_graph(chance)
    best = complete(rules, kb, count=count, predicates=None if only is None else [only])

    def key(fact) -> tuple[float, ...]:
        return (*sorted(-rule.confidence for rule in fact.rules), 0.0)

    everything = [fact for fact in apply(rules, kb) if only in (None, fact.predicate)]
    assert [key(link.fact) for link in best] == sorted(map(key, everything))[:count]
    for link in best:
        assert str(link.reason.fact) == str(link.fact)
        assert link.score == link.reason.score == link.reason.source.confidence
    assert len({str(link.fact) for link in best}) == len(best)


def test_an_unknown_predicate_is_named():
    kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob")])
    with pytest.raises(UnknownNameError, match="did you mean 'parent_of'"):
        complete(parse_rules("parent_of(X, Y) :- parent_of(Y, X)."), kb, predicates=["parent_off"])


def test_a_frame_and_a_table():
    kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob")])
    best = complete(parse_rules("0.5 :: child_of(X, Y) :- parent_of(Y, X)."), kb)
    assert best.to_frame("polars").rows() == [
        ("child_of(bob, ann)", "child_of", 0.5, "0.5 :: child_of(X, Y) :- parent_of(Y, X).", "parent_of(ann, bob)")
    ]
    assert "child_of(bob, ann)" in best._repr_html_()
