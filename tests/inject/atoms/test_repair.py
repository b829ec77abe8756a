from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inject.atoms.plain_pairs import FORMULAS, RELATIONS, any_rules, plain_violations

from rulewright.inject.atom_space import AtomSpace
from rulewright.inject.atoms.clauses import read_clauses
from rulewright.inject.atoms.inference import LabelProblem, repair_labels, solve_exact
from rulewright.inject.atoms.joins import ClauseJoins, GroundingFinder
from rulewright.inject.atoms.layout import AtomChannels, AtomLayout
from rulewright.logic import parse_rules


def problem_for(rules, seed, size=5, limit=None):
    gain = np.random.default_rng(seed).normal(size=(size, size, 3))
    free = np.broadcast_to(~np.eye(size, dtype=bool)[:, :, None], gain.shape)
    space = AtomSpace(rules, relations=RELATIONS)
    layout = AtomLayout(AtomChannels(space, RELATIONS), 1, {"entity": size})
    finder = GroundingFinder(ClauseJoins(read_clauses(space, reader="RuleDecoder"), layout.channels), layout)
    return LabelProblem(finder, gain.reshape(-1), free.reshape(-1).copy(), np.zeros(gain.size, dtype=bool), limit, None)


def shaped(problem, labels):
    return labels.reshape(problem.layout.shapes[0][1:])


@pytest.mark.parametrize("patience", [0.0, 10.0])
@given(
    rules=any_rules(4, FORMULAS[:-2]), seed=st.integers(0, 999), limit=st.sampled_from([None, 1]), flip=st.booleans()
)
@settings(max_examples=30, deadline=None)
def test_nothing_is_violated_afterwards(patience, rules, seed, limit, flip):
    problem = problem_for(rules, seed, limit=limit)
    start = problem.free.copy() if flip else problem.start_program().labels
    labels, reasons = repair_labels(problem, start, patience=patience)
    found = shaped(problem, labels)
    assert plain_violations(found, rules, RELATIONS) == 0
    assert not found[range(5), range(5)].any()
    assert limit is None or found.sum(2).max() <= limit
    if limit is None:
        assert set(np.flatnonzero(labels != start)) <= set(reasons)


def test_the_cheapest_flip_is_taken():
    rules = parse_rules("b(X, Y) :- a(X, Y).")
    problem = problem_for(rules, 0, size=2)
    gain = shaped(problem, problem.gain)
    gain[:] = 9.0
    gain[0, 1] = [-5.0, 2.0, 9.0]
    gain[1, 0] = [-2.0, 5.0, 9.0]
    labels, reasons = repair_labels(problem, problem.start_program().labels, patience=10.0)
    assert shaped(problem, labels)[0, 1].tolist() == [True, True, False]
    assert shaped(problem, labels)[1, 0].tolist() == [False, False, False]
    assert len(reasons) == 2


def test_unconditional_clauses_have_a_last_resort():
    rules = parse_rules("hard a(X, Y) | b(X, Y). hard !(a(X, Y) & a(Y, X)). hard !(b(X, Y) & b(Y, X)).")
    problem = problem_for(rules, 3, size=4)
    no_cost = replace(problem, gain=np.zeros_like(problem.gain))
    for labels in (
        solve_exact(no_cost).labels,
        repair_labels(problem, problem.start_program().labels, patience=0.0)[0],
    ):
        assert plain_violations(shaped(problem, labels), rules, RELATIONS) == 0
