"""What plans over candidate atoms state, and how the way is chosen."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright.errors import DataError
from rulewright.inject import LogicLayer
from rulewright.inject.layer.choice import choose_grounding
from rulewright.inject.layer.rates import measure_join_rate, measure_rates
from rulewright.inject.layer.relations import Joiner, KeyIndex, Table, estimate_join

TRANSITIVE = "1.5 r(A, B) & r(B, C) => r(A, C)."
TRIANGLE = [(0, 1), (1, 2), (0, 2)]


def random_edges(size: int, count: int, seed: int = 0) -> torch.Tensor:
    keys = np.random.default_rng(seed).choice(size * size, count, replace=False)
    return torch.from_numpy(np.stack(np.divmod(keys, size), 1))


def as_table(index: torch.Tensor, size: int, known: np.ndarray | None = None) -> Table:
    columns = tuple(index.numpy()[:, position].astype(np.int64) for position in range(2))
    return Table(columns, (size, size), np.zeros(len(index), dtype=bool) if known is None else known)


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), all_known=st.booleans())
def test_joined_rows_are_those_of_all_combinations(seed, all_known):
    chance = np.random.default_rng(seed)
    tables = [
        as_table(random_edges(5, 9, seed + i), 5, chance.random(9) < chance.choice([0, 0.6, 1])) for i in range(3)
    ]
    wanted = set()
    for rows in np.ndindex(9, 9, 9):
        bindings = {
            (variable, int(table.columns[position][row]))
            for table, names, row in zip(tables, TRIANGLE, rows, strict=True)
            for position, variable in enumerate(names)
        }
        are_known = all(table.known[row] for table, row in zip(tables, rows, strict=True))
        if len(bindings) == 3 and (all_known or not are_known):
            wanted.add(rows)
    with Joiner() as joiner:
        found = list(zip(*(c.tolist() for c in joiner.join(tables, TRIANGLE, all_known=all_known)), strict=True))
        counts = joiner.count(tables, TRIANGLE, all_known=all_known)
        parts = [joiner.join(tables, TRIANGLE, all_known=all_known, bounds=bounds)[0] for bounds in ((0, 4), (4, 9))]
    assert len(found) == len(set(found))
    assert set(found) == wanted
    assert counts.tolist() == np.bincount([rows[0] for rows in wanted], minlength=9).tolist()
    assert sum(map(len, parts)) == len(found)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), max_size=12), st.booleans())
def test_groups_are_those_of_equal_rows(rows, are_large):
    sizes = [2**40, 2**40, 2**40] if are_large else [4, 4, 4]
    columns = list(np.array(rows, dtype=np.int64).reshape(-1, 3).T)
    index = KeyIndex(columns, sizes, len(rows))
    assert [[a == b for b in rows] for a in rows] == (index.groups[:, None] == index.groups[None, :]).tolist()
    every = list(np.ndindex(4, 4, 4))
    found = index.find(list(np.array(every).T), len(every))
    assert [group >= 0 for group in found] == [row in rows for row in every]
    last = index.find_rows(list(np.array(every).T), len(every))
    assert all(position < 0 or rows[position] == row for position, row in zip(last, every, strict=True))


@pytest.mark.parametrize("variables", [TRIANGLE, [(0, 1), (1, 2), (2, 3), (0, 3)], [(0, 1), (2, 3), (0, 3)]])
def test_the_estimate_of_a_join(variables):
    tables = [as_table(random_edges(100, 600, seed), 100) for seed in range(len(variables))]
    with Joiner() as joiner:
        exact = len(joiner.join(tables, variables)[0])
    estimate = estimate_join(tables, variables)
    assert estimate.rows == pytest.approx(exact, rel=0.1)
    assert estimate.most >= estimate.rows


def test_a_plan_over_candidates_before_anything_runs():
    layer = LogicLayer(TRANSITIVE)
    index = random_edges(300, 5_000)
    estimate = layer.plan({"entity": 300}, candidates={"r": index}, rest=-3.0)
    assert estimate.is_estimate
    run = LogicLayer(TRANSITIVE, {"entity": 300})
    run({"r": (index, torch.zeros(len(index)))}, rest=-3.0)
    (plan,) = run.sparse_planner.kept
    assert estimate.ground_clauses == pytest.approx(plan.ground_clauses, rel=0.1)
    assert estimate.memory() == pytest.approx(plan.memory(), rel=0.3)
    assert [row.terms for row in estimate.rows] == [row.terms for row in plan.rows]
    text = str(estimate)
    assert "r: 5,000 candidates, others rest at false 0.953, true 0.0474" in text
    assert "of grounding and" in text.splitlines()[-1]
    assert "ground clauses" in str(plan)
    with pytest.raises(DataError, match=r"domains=\{'entity': …\}"):
        layer.plan(candidates={"r": index}, rest=-3.0)


def test_seconds_grow_with_what_is_done():
    layer = LogicLayer(TRANSITIVE)
    small, large = layer.plan({"entity": 100}), layer.plan({"entity": 1000})
    assert (
        0 < small.seconds() < large.seconds() < large.seconds(iterations=2) < large.seconds(iterations=2, training=True)
    )
    assert "an iteration" in str(small)
    rates = measure_rates()
    assert rates is measure_rates()
    assert min(rates.products, rates.elements, rates.positions, measure_join_rate()) > 0


def test_the_way_is_chosen_by_cost():
    layer = LogicLayer(TRANSITIVE)
    index = random_edges(2_000, 10_000)
    dense = layer.plan({"entity": 2_000})
    sparse = layer.plan({"entity": 2_000}, candidates={"r": index}, rest=float("-inf"))
    assert choose_grounding(dense, sparse).grounding == "dense"
    quick = choose_grounding(dense, sparse, time_limit=1e-9)
    assert quick.grounding == "sparse"
    assert quick.is_over
    assert "all atoms need" in str(quick) and "the limit is" in str(quick)
    small = choose_grounding(dense, sparse, memory_limit=10 * 2**20)
    assert small.grounding == "sparse"
    tiny = choose_grounding(dense, sparse, memory_limit=1000)
    assert tiny.grounding == "blockwise"
    assert "each iteration joins them anew" in tiny.reason
