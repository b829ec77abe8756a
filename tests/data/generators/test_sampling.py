import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rulewright.data.generators.generated import draw_keys
from rulewright.data.index import decode_rows, encode_rows, match_pairs
from rulewright.errors import DataError


@given(st.integers(0, 300), st.data())
def test_keys_are_distinct_and_allowed(space: int, data: st.DataObject) -> None:
    excluded = data.draw(st.sets(st.integers(0, max(space - 1, 0)), max_size=space))
    count = data.draw(st.integers(0, space - len(excluded)))
    keys = draw_keys(np.random.default_rng(0), space=space, count=count, excluded=sorted(excluded))
    assert len(set(keys.tolist())) == len(keys) == count
    assert set(keys.tolist()) <= set(range(space)) - excluded


def test_more_keys_than_there_are() -> None:
    with pytest.raises(DataError, match="only 3 rows are free, got a wish for 4"):
        draw_keys(np.random.default_rng(0), space=5, count=4, excluded=[0, 1])


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.data())
def test_keys_and_rows_are_inverse(sizes: list[int], data: st.DataObject) -> None:
    keys = np.array(data.draw(st.lists(st.integers(0, math.prod(sizes) - 1))), dtype=np.int64)
    rows = decode_rows(keys, sizes)
    assert all(((column >= 0) & (column < size)).all() for column, size in zip(rows, sizes, strict=True))
    assert encode_rows(rows, sizes).tolist() == keys.tolist()


@given(st.lists(st.integers(0, 4), max_size=8), st.lists(st.integers(0, 4), max_size=8))
def test_matching_pairs_are_all_pairs_that_match(left: list[int], right: list[int]) -> None:
    one, other = match_pairs(np.array(left, dtype=np.int64), np.array(right, dtype=np.int64))
    expected = [(i, j) for i, a in enumerate(left) for j, b in enumerate(right) if a == b]
    assert list(zip(one.tolist(), other.tolist(), strict=True)) == expected
