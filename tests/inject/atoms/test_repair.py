from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inject.atoms.plain_pairs import FORMULAS, RELATIONS, any_rules, plain_violations

from rulewright.inject.atoms.clauses import read_pair_clauses
from rulewright.inject.atoms.inference import LabelProblem, repair_labels, solve_exact
from rulewright.inject.atoms.joins import ClauseJoins
from rulewright.logic import parse_rules


def problem_for(rules, seed, size=5, limit=None):
    gain = np.random.default_rng(seed).normal(size=(size, size, 3))
    free = np.broadcast_to(~np.eye(size, dtype=bool)[:, :, None], gain.shape)
    joins = ClauseJoins(read_pair_clauses(rules, RELATIONS, reader="RuleDecoder"))
    return LabelProblem(joins, gain, np.array(free), limit, None)


@pytest.mark.parametrize("patience", [0.0, 10.0])
@given(
    rules=any_rules(4, FORMULAS[:-2]), seed=st.integers(0, 999), limit=st.sampled_from([None, 1]), flip=st.booleans()
)
@settings(max_examples=30, deadline=None)
def test_nothing_is_violated_afterwards(patience, rules, seed, limit, flip):
    problem = problem_for(rules, seed, limit=limit)
    start = problem.free.reshape(-1).copy() if flip else problem.start_program().labels
    labels, reasons = repair_labels(problem, start, patience=patience)
    shaped = problem.shape_labels(labels)
    assert plain_violations(shaped, rules, RELATIONS) == 0
    assert not shaped[range(5), range(5)].any()
    assert limit is None or shaped.sum(2).max() <= limit
    if limit is None:
        assert set(np.flatnonzero(labels != start)) <= set(reasons)


def test_the_cheapest_flip_is_taken():
    rules = parse_rules("b(X, Y) :- a(X, Y).")
    problem = problem_for(rules, 0, size=2)
    problem.gain[:] = 9.0
    problem.gain[0, 1] = [-5.0, 2.0, 9.0]
    problem.gain[1, 0] = [-2.0, 5.0, 9.0]
    labels, reasons = repair_labels(problem, problem.start_program().labels, patience=10.0)
    assert problem.shape_labels(labels)[0, 1].tolist() == [True, True, False]
    assert problem.shape_labels(labels)[1, 0].tolist() == [False, False, False]
    assert len(reasons) == 2


def test_unconditional_clauses_have_a_last_resort():
    rules = parse_rules("hard a(X, Y) | b(X, Y). hard !(a(X, Y) & a(Y, X)). hard !(b(X, Y) & b(Y, X)).")
    problem = problem_for(rules, 3, size=4)
    no_cost = replace(problem, gain=np.zeros_like(problem.gain))
    for labels in (
        solve_exact(no_cost).labels,
        repair_labels(problem, problem.start_program().labels, patience=0.0)[0],
    ):
        assert plain_violations(problem.shape_labels(labels), rules, RELATIONS) == 0
