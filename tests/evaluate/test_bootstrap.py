from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright.errors import DataError
from rulewright.evaluate.bootstrap import paired_bootstrap


def accuracy(sums):
    return {"accuracy": sums[:, 0] / np.where(sums[:, 1], sums[:, 1], np.nan)}


@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=6),
    resamples=st.sampled_from([1, 7, 1000, 2300]),
)
def test_interval_and_p_value_equal_their_definitions(rows, resamples):
    # all is drawn at once here: the result must not depend on the pieces in which it is drawn
    table = np.array(rows, dtype=float)
    first, second = table[:, [0, 2]], table[:, [1, 2]]
    found = paired_bootstrap(first, second, accuracy, resamples=resamples, confidence=0.9, seed=5)["accuracy"]
    count = len(rows)
    times = np.random.default_rng(5).multinomial(count, [1 / count] * count, size=resamples)
    differences = []
    for row in times:
        ours, theirs, all_of = (sum(n * each[column] for n, each in zip(row, rows, strict=True)) for column in range(3))
        if all_of:
            differences.append((ours - theirs) / all_of)
    if not table[:, 2].any():
        assert math.isnan(found.difference) and math.isnan(found.p_value)
        assert found.as_dict()["difference"] is None
        return
    assert found.resamples == len(differences)
    assert found.difference == pytest.approx((table[:, 0].sum() - table[:, 1].sum()) / table[:, 2].sum())
    if differences:
        assert (found.low, found.high) == pytest.approx(tuple(np.quantile(differences, [0.05, 0.95])), abs=1e-12)
        not_above, not_below = (sum(sign * each <= 0 for each in differences) for sign in (1, -1))
        p_value = min(1, 2 * (1 + min(not_above, not_below)) / (1 + len(differences)))
        assert found.p_value == pytest.approx(p_value)


def test_equal_systems_do_not_differ():
    table = np.array([[1.0, 2], [2, 2], [0, 2]])
    found = paired_bootstrap(table, table, accuracy)["accuracy"]
    assert (found.difference, found.low, found.high, found.p_value) == (0, 0, 0, 1)


def test_exchanged_systems_give_the_mirrored_result():
    chance = np.random.default_rng(0)
    first, second = (np.stack([chance.integers(0, 5, 40), np.full(40, 5)], axis=1).astype(float) for _ in range(2))
    one, other = (paired_bootstrap(*pair, accuracy)["accuracy"] for pair in ((first, second), (second, first)))
    assert (one.difference, one.p_value) == (pytest.approx(-other.difference), other.p_value)
    assert (one.low, one.high) == (pytest.approx(-other.high), pytest.approx(-other.low))


def test_the_seed_decides():
    chance = np.random.default_rng(0)
    first, second = (np.stack([chance.integers(0, 5, 40), np.full(40, 5)], axis=1).astype(float) for _ in range(2))
    one, same, other = (paired_bootstrap(first, second, accuracy, seed=seed)["accuracy"] for seed in (1, 1, 2))
    assert one == same != other


def test_luck_is_called_significant_about_as_often_as_it_should():
    chance = np.random.default_rng(1)
    small = 0
    for seed in range(200):
        first, second = (np.stack([chance.binomial(5, 0.6, 60), np.full(60, 5)], axis=1).astype(float) for _ in "ab")
        small += paired_bootstrap(first, second, accuracy, resamples=400, seed=seed)["accuracy"].p_value < 0.1
    assert 8 <= small <= 36


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resamples": 0}, "resamples must be >= 1, got 0"),
        ({"confidence": 1.0}, "confidence must lie in \\(0, 1\\), got 1.0"),
    ],
)
def test_options_out_of_range(options, message):
    table = np.ones((2, 2))
    with pytest.raises(DataError, match=message):
        paired_bootstrap(table, table, accuracy, **options)


def test_the_documents_must_be_the_same():
    with pytest.raises(DataError, match="the same documents twice, got 2 and 3"):
        paired_bootstrap(np.ones((2, 2)), np.ones((3, 2)), accuracy)
