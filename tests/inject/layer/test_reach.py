"""Candidates that formulas reach, and the pull on what rests, beside all groundings."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright.errors import MemoryLimitError, RulewrightError
from rulewright.inject.layer.grounding import Grounding
from rulewright.inject.layer.reach import measure_pull, reach_candidates

RULES = """
    predicate r(t, t). predicate s(t, t). predicate p(t). closed s.
    1.5 r(A, B) & r(B, C) => r(A, C).
    0.5 s(A, B) & p(A) => p(B).
    -0.7 p(A) & r(A, B).
    2.0 s(A, A) => r(A, b).
"""
SIZE = 4
NAMES = ("a", "b", "c", "d")
IMPLICATIONS = [  # premises, conclusion, weight
    ([("r", "AB"), ("r", "BC")], ("r", "AC"), 1.5),
    ([("s", "AB"), ("p", "A")], ("p", "B"), 0.5),
    ([("r", "AB")], ("p", "A"), 0.7),  # a negative conjunction raises what is false beside what is true: never
    ([("s", "AA")], ("r", "A1"), 2.0),
]


def instances(true):
    """Each grounding of a conclusion whose premises are all among the true atoms; coinciding atoms send nothing."""
    for number, (premises, conclusion, weight) in enumerate(IMPLICATIONS):
        if number == 2:
            continue
        variables = sorted({name for _, args in [*premises, conclusion] for name in args if not name.isdigit()})
        for values in product(range(SIZE), repeat=len(variables)):
            binding = {**dict(zip(variables, values, strict=True)), "1": 1}
            ground = [(name, tuple(binding[term] for term in args)) for name, args in premises]
            head = (conclusion[0], tuple(binding[term] for term in conclusion[1]))
            if head not in ground and all(atom in true for atom in ground):
                yield head, weight, ground


def as_rows(atoms):
    arities = {"r": 2, "s": 2, "p": 1}
    return {
        name: np.array([args for other, args in sorted(atoms) if other == name]).reshape(-1, arity)
        for name, arity in arities.items()
    }


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), hops=st.integers(0, 3))
def test_what_is_reached(seed, hops):
    chance = random.Random(seed)
    every = [("r", pair) for pair in product(range(SIZE), repeat=2)] + [("p", (x,)) for x in range(SIZE)]
    facts = {atom for atom in every if chance.random() < 0.25}
    closed = {("s", pair) for pair in product(range(SIZE), repeat=2) if chance.random() < 0.3}
    false = {atom for atom in every if atom not in facts and chance.random() < 0.2}
    asked = {atom for atom in every if atom not in facts | false and chance.random() < 0.1}
    grounding = Grounding(RULES, domains={"t": NAMES})
    reach = reach_candidates(
        grounding, true=as_rows(facts | closed), false=as_rows(false), asked=as_rows(asked), hops=hops
    )
    candidates = facts | false | asked
    counts = []
    for _ in range(hops):
        new = {head for head, _, _ in instances((candidates - false) | closed)} - candidates
        counts.append(len(new))
        candidates |= new
        if not new:
            break
    assert list(reach.reached) == counts
    for name in ("r", "p"):
        assert {(name, tuple(row)) for row in reach.candidates[name].tolist()} == {
            a for a in candidates if a[0] == name
        }


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), with_probabilities=st.booleans())
def test_the_pull_on_what_rests(seed, with_probabilities):
    chance = random.Random(seed)
    every = [("r", pair) for pair in product(range(SIZE), repeat=2)] + [("p", (x,)) for x in range(SIZE)]
    candidates = sorted(atom for atom in every if chance.random() < 0.3)
    closed = {("s", pair) for pair in product(range(SIZE), repeat=2) if chance.random() < 0.3}
    marginals = {atom: chance.random() if with_probabilities else 1.0 for atom in candidates}
    wanted = {}
    for head, weight, ground in instances({*candidates, *closed}):
        if head not in marginals:
            message = weight * np.prod([marginals.get(atom, 1.0) for atom in ground])
            wanted[head] = wanted.get(head, 0.0) + message
    grounding = Grounding(RULES, domains={"t": NAMES})
    given_marginals = {
        name: np.array([marginals[atom] for atom in candidates if atom[0] == name]) for name in ("r", "p")
    }
    rows = as_rows(candidates)
    pulls = measure_pull(
        grounding,
        true={"s": as_rows(closed)["s"]},
        candidates={name: rows[name] for name in ("r", "p")},
        probabilities=given_marginals if with_probabilities else None,
    )
    found = {pull.predicate: pull for pull in pulls}
    for name in ("r", "p"):
        messages = [message for (other, _), message in wanted.items() if other == name]
        if not messages:
            assert name not in found
            continue
        assert found[name].atoms == len(messages)
        assert found[name].mean == pytest.approx(np.mean(messages))
        assert found[name].largest == pytest.approx(max(messages))
        assert wanted[name, found[name].largest_atom] == pytest.approx(max(messages))
        assert found[name].is_bound == (not with_probabilities)


def test_what_reaches_any_entity_is_said():
    grounding = Grounding("1.0 p(A) => r(A, B). 2.0 start => p(c). predicate r(t, t).", domains={"t": ("c", "d")})
    reach = reach_candidates(grounding, true={"start": np.empty((1, 0), dtype=np.int64)}, hops=3)
    assert reach.candidates["p"].tolist() == [[0]]
    assert reach.unbounded == ("r(A, B) of !p(A) | r(A, B)",)
    assert "reaches any entity" in str(reach)


def test_too_many_are_refused():
    grounding = Grounding("1.0 r(A, B) & r(B, C) => r(A, C).", domains={"entity": 30})
    path = np.stack([np.arange(29), np.arange(1, 30)], 1)
    with pytest.raises(MemoryLimitError, match="more than 10 candidates of r"):
        reach_candidates(grounding, true={"r": path}, most=10)
    with pytest.raises(RulewrightError, match="hops"):
        reach_candidates(grounding, true={"r": path}, hops=-1)
