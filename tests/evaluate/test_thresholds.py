"""Thresholds against all ways to cut."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rulewright.evaluate.thresholds import choose_own_cuts, choose_shared_cut, f1_of_counts, list_cuts

Rows = st.lists(st.tuples(st.integers(-4, 4).map(lambda n: n / 2), st.booleans()), max_size=6)


def columns(rows):
    return np.array([row[0] for row in rows], dtype=float), np.array([row[1] for row in rows], dtype=bool)


def plain_metric(relations, bounds, beta=1.0):
    correct = given_count = wanted = 0
    for rows, bound in zip(relations, bounds, strict=True):
        for score, is_true in rows:
            correct += score > bound and is_true
            given_count += score > bound
            wanted += is_true
    both = given_count + beta * wanted
    return (1 + beta) * correct / both if both else 0.0


def plain_bounds(rows):
    return [-10.0, *sorted({row[0] for row in rows})]


@given(Rows)
def test_cuts_are_all_cuts(rows):
    cuts = list_cuts(*columns(rows))
    assert len(cuts.given) == len({row[0] for row in rows}) + 1
    for position, (correct, count) in enumerate(zip(cuts.correct, cuts.given, strict=True)):
        bound = cuts.bound(position)
        assert count == sum(row[0] > bound for row in rows)
        assert correct == sum(row[0] > bound and row[1] for row in rows)


@given(st.lists(Rows, min_size=1, max_size=3))
def test_a_shared_cut_is_the_best(relations):
    rows = [row for part in relations for row in part]
    bound = choose_shared_cut(*columns(rows))
    assert plain_metric([rows], [bound]) == pytest.approx(max(plain_metric([rows], [b]) for b in plain_bounds(rows)))


@given(st.lists(Rows, min_size=1, max_size=3))
def test_own_cuts_are_the_best_of_all_combinations(relations):
    cuts = [list_cuts(*columns(rows)) for rows in relations]
    found = plain_metric(relations, choose_own_cuts(cuts, [0.0] * len(cuts)))
    assert found == pytest.approx(max(plain_metric(relations, b) for b in product(*map(plain_bounds, relations))))


@given(st.lists(Rows, min_size=1, max_size=3), st.floats(-3, 3))
def test_no_single_relation_can_do_better_by_another_metric(relations, start):
    def prefer_recall(correct, given_count, wanted):
        both = np.asarray(given_count + 4.0 * wanted)
        return np.divide(5.0 * correct, both, out=np.zeros_like(both), where=both > 0)

    cuts = [list_cuts(*columns(rows)) for rows in relations]
    bounds = choose_own_cuts(cuts, [start] * len(cuts), prefer_recall)
    found = plain_metric(relations, bounds, 4.0)
    assert found >= plain_metric(relations, [start] * len(cuts), 4.0)
    for index, rows in enumerate(relations):
        for bound in plain_bounds(rows):
            assert plain_metric(relations, [*bounds[:index], bound, *bounds[index + 1 :]], 4.0) <= found + 1e-12


def test_nothing_to_cut():
    cuts = list_cuts(np.zeros(0), np.zeros(0, dtype=bool))
    assert choose_own_cuts([cuts], [0.0]) == [0.0] and f1_of_counts(0, 0, 0) == 0
