from typing import get_args

import numpy as np
import pytest
from data.generators.plain_rules import derived, facts_of
from hypothesis import given, settings
from hypothesis import strategies as st

import rulewright as rw
from rulewright.data import KnowledgeBase
from rulewright.data.generators import planted
from rulewright.data.generators.planted import TARGET, Degrees, Shape
from rulewright.errors import DataError
from rulewright.logic import Atom, Rule, RuleSet

SHAPES = get_args(Shape)


def without_target(kb: KnowledgeBase) -> KnowledgeBase:
    return KnowledgeBase.from_columns(
        kb.domains,
        kb.predicates.values(),
        {name: kb.columns(name) for name in kb.predicates if name != TARGET},
    )


@settings(max_examples=60, deadline=None)
@given(
    shape=st.sampled_from(SHAPES),
    degrees=st.sampled_from(get_args(Degrees)),
    entities=st.integers(8, 30),
    degree=st.sampled_from([0.0, 0.3, 1.0, 4.0]),
    marked=st.sampled_from([0.0, 0.3, 1.0]),
    groundings=st.integers(0, 6),
    length=st.integers(1, 6),
    seed=st.integers(0, 1000),
    graph=st.integers(0, 2),
)
def test_the_target_is_what_the_rules_give(
    shape: Shape,
    degrees: Degrees,
    entities: int,
    degree: float,
    marked: float,
    groundings: int,
    length: int,
    seed: int,
    graph: int,
) -> None:
    generated = planted(
        shape,
        entities=entities,
        relations=7,
        marks=3,
        degree=degree,
        degrees=degrees,
        marked=marked,
        groundings=groundings,
        length=length,
        missing=0,
        noise=0,
        seed=seed,
        graph=graph,
    )
    facts = facts_of(generated.kb)
    expected = facts[TARGET]
    facts[TARGET] = set()
    for rule in generated.rules.rules:
        facts.setdefault(str(rule.head.predicate), set()).update(derived(rule, facts))
    assert facts[TARGET] == expected
    assert not generated.hidden.n_facts and not generated.noise.n_facts
    # an entity is related to itself only where a way of the rules is left to chance
    for index in range(7):
        pairs = generated.kb.tuples(f"relation_{index}")
        assert len(pairs) >= round(degree * entities)
        assert shape == "absence" or all(head != tail for head, tail in pairs)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("degrees", get_args(Degrees))
def test_apply_gives_the_target(shape: Shape, degrees: Degrees) -> None:
    generated = planted(shape, degrees=degrees, missing=0, noise=0, seed=2)
    inferred = rw.apply(generated.rules, without_target(generated.kb), max_rounds=None)
    given = {fact.args for fact in inferred if fact.predicate == TARGET}
    assert given == set(generated.kb.tuples(TARGET))
    assert 50 <= len(given) <= 1500


@pytest.mark.parametrize("shape", SHAPES)
def test_a_tenth_of_the_target_is_wrong_and_nothing_else(shape: Shape) -> None:
    truth, generated = planted(shape, missing=0, noise=0, seed=4), planted(shape, seed=4)
    expected, facts = facts_of(truth.kb), facts_of(generated.kb)
    hidden, wrong = facts_of(generated.hidden), facts_of(generated.noise)
    assert facts[TARGET] == (expected[TARGET] - hidden[TARGET]) | wrong[TARGET]
    assert not wrong[TARGET] & expected[TARGET]
    assert len(hidden[TARGET]) == len(wrong[TARGET]) == round(0.1 * len(expected[TARGET]))
    assert {name: rows for name, rows in facts.items() if name != TARGET} == {
        name: rows for name, rows in expected.items() if name != TARGET
    }
    assert generated.kb.n_false_facts == 0


@pytest.mark.parametrize("shape", SHAPES)
def test_graphs_share_their_rules_and_seeds_do_not(shape: Shape) -> None:
    first, second = planted(shape, seed=1, graph=0), planted(shape, seed=1, graph=1)
    assert first.rules == second.rules and facts_of(first.kb) != facts_of(second.kb)
    assert facts_of(first.kb) == facts_of(planted(shape, seed=1).kb)
    assert len({str(planted(shape, seed=seed).rules) for seed in range(5)}) > 2


@pytest.mark.parametrize("shape", SHAPES)
def test_no_literal_can_be_left_out(shape: Shape) -> None:
    """Of what a rule gives without one of its literals, a good part is wrong."""
    generated = planted(shape, missing=0, noise=0, seed=3)
    kb = without_target(generated.kb)
    true = set(generated.kb.tuples(TARGET))
    *definitions, last = generated.rules.rules
    for position in range(len(last.body)):
        body = tuple(part for place, part in enumerate(last.body) if place != position)
        bound = {term for part in body if isinstance(part, Atom) for term in part.args}
        if not bound >= set(last.head.args):
            continue
        shorter = RuleSet([*definitions, Rule(last.head, body)])
        given = {fact.args for fact in rw.apply(shorter, kb, max_rounds=None) if fact.predicate == TARGET}
        assert len(given & true) < 0.92 * len(given), body


def test_power_law_degrees_have_hubs_of_their_own() -> None:
    kb = planted("tree", degrees="power", degree=3, seed=0).kb
    hubs = []
    for index in range(12):
        head, tail = kb.columns(f"relation_{index}")
        assert len(head) == 3000
        hubs.append(np.bincount(head).argmax())
        assert np.bincount(head).max() > 15 * 3 and np.bincount(tail).max() > 15 * 3
    assert len(set(hubs)) > 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": "ring"}, "shape must be 'tree'"),
        ({"shape": "tree", "relations": 2}, "relations must be >= 3, got 2"),
        ({"shape": "negation", "marks": 1}, "marks must be >= 2, got 1"),
        ({"shape": "long_chain", "length": 7}, "length must lie in 1 … 6, got 7"),
        ({"shape": "tree", "entities": 5}, "entities must be >= 8, got 5"),
        ({"shape": "tree", "noise": 2.0}, r"noise must lie in \[0, 1\], got 2"),
    ],
)
def test_impossible_wishes(options: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        planted(**options)  # type: ignore[arg-type]
