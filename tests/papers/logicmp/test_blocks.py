"""F1 of blocks against a brute-force twin."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from rulewright.errors import DataError
from rulewright.papers.logicmp import blocks as module
from rulewright.papers.logicmp.blocks import (
    COUNTS,
    Blocks,
    best_threshold,
    block_figures,
    block_intervals,
    blocks_above,
    compare_blocks,
    components,
    count_blocks,
)

pytestmark = pytest.mark.slow


def matrices(size: int = 7):
    return st.integers(1, size).flatmap(
        lambda n: arrays.arrays(bool, (n, n), elements=st.sampled_from([False] * 5 + [True]))
    )


@given(matrices())
def test_components_are_what_chains_of_links_join(linked):
    n = len(linked)
    reach = linked | linked.T | np.eye(n, dtype=bool)
    for middle in range(n):  # Warshall
        reach |= reach[:, [middle]] & reach[[middle], :]
    found = components(linked)
    assert np.array_equal(found[:, None] == found[None, :], reach)


def plain_counts(found, truth, least):
    """Blocks as sorted lists, compared one by one."""

    def listed(blocks):
        result = []
        for number in sorted(set(blocks.block.tolist())):
            words = [word for word in range(len(blocks.block)) if blocks.block[word] == number]
            labels = [int(blocks.label[word]) for word in words]
            result.append((words, max(sorted(set(labels)), key=labels.count)))
        return [each for each in result if len(each[0]) > least]

    given_blocks, wanted = listed(found), listed(truth)
    same = sum(any(words == other for other, _ in wanted) for words, _ in given_blocks)
    return [len(wanted), len(given_blocks), same, sum(each in wanted for each in given_blocks)]


@st.composite
def two_groupings(draw):
    n = draw(st.integers(1, 9))
    numbers = arrays.arrays(np.int64, n, elements=st.integers(0, 3))
    truth = draw(numbers)
    found = np.where(draw(arrays.arrays(bool, n)), truth, draw(numbers))
    return Blocks(found, draw(numbers)), Blocks(truth, draw(numbers))


@given(two_groupings(), st.integers(0, 3))
def test_counts_against_the_twin(pair, least):
    found, truth = pair
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LONG", least)
        counts = count_blocks(found, truth)
    assert counts.tolist() == plain_counts(found, truth, 0) + plain_counts(found, truth, least)


@given(two_groupings())
def test_the_truth_is_perfect_and_names_of_blocks_do_not_matter(pair):
    _, truth = pair
    renamed = Blocks((7 - truth.block) * 3, truth.label)
    figures = block_figures(count_blocks(renamed, truth)[None])
    assert figures["full"][0] == figures["full_labelled"][0] == 1
    assert math.isnan(figures["long"][0])


def test_long_blocks_have_more_than_twenty_words():
    for size, long in ((20, 0), (21, 1)):
        blocks = Blocks(np.zeros(size, np.int64), np.zeros(size, np.int64))
        assert dict(zip(COUNTS, count_blocks(blocks, blocks), strict=True))["long_correct"] == long


def test_a_threshold_cuts_and_the_best_is_chosen():
    logits = np.array([[9.0, 2.0, -9.0], [2.0, 9.0, 0.5], [-9.0, 0.5, 9.0]])
    label = np.zeros(3, np.int64)
    assert blocks_above(logits, label, 0.5).block.tolist() == [0, 0, 0]
    assert blocks_above(logits, label, 0.7).block.tolist() == [0, 0, 1]
    truth = Blocks(np.array([0, 0, 1]), label)
    threshold, counts = best_threshold([logits], [label], [truth], [0.5, 0.7, 0.8, 0.95])
    assert (threshold, counts[0, :3].tolist()) == (0.7, [2, 2, 2])
    with pytest.raises(DataError, match="threshold must be between 0 and 1"):
        blocks_above(logits, label, 1.0)


def test_wrong_sizes_are_refused():
    three, two = (Blocks(np.zeros(n, np.int64), np.zeros(n, np.int64)) for n in (3, 2))
    with pytest.raises(DataError, match="2 words were grouped, but the form has 3"):
        count_blocks(two, three)
    with pytest.raises(DataError, match="one block and one label"):
        Blocks(three.block, two.label)


def test_intervals_over_forms():
    chance = np.random.default_rng(0)
    wanted = chance.integers(5, 20, size=(30, 1))
    correct = np.floor(wanted * chance.uniform(0.4, 0.8, size=(30, 1)))
    counts = np.hstack([wanted, wanted, correct, correct - 1, np.zeros((30, 4))]).astype(float)
    f1 = float(block_figures(counts.sum(axis=0, keepdims=True))["full"][0])
    low, high = block_intervals(counts, resamples=500)["full"]
    assert low < f1 < high
    draws = chance.integers(0, 30, size=(2000, 30))
    plain = [block_figures(counts[rows].sum(axis=0, keepdims=True))["full"][0] for rows in draws]
    assert (low, high) == pytest.approx(tuple(np.quantile(plain, [0.025, 0.975])), abs=0.02)
    assert math.isnan(block_intervals(counts, resamples=10)["long"][0])
    better = counts + np.array([0, 0, 1, 1, 0, 0, 0, 0])
    compared = compare_blocks(better, counts, resamples=200)["full"]
    assert compared.difference > 0
    assert compared.low > 0
