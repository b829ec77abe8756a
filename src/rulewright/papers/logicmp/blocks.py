"""How well words are grouped into blocks: F1 over blocks that are found word for word."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import connected_components

from rulewright.errors import DataError
from rulewright.evaluate.bootstrap import PairedDifference, paired_bootstrap

FloatArray = npt.NDArray[np.float64]

LONG = 20
"""A long block has more words than this."""

COUNTS = tuple(
    f"{size}_{count}" for size in ("full", "long") for count in ("wanted", "given", "correct", "correct_labelled")
)
"""What is counted in each form: blocks of the truth, blocks found, those found rightly, and those with their label."""


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """The blocks of one form: ``block[i]`` is the index of word i's block, ``label[i]`` that of its label.

    A block has the label that most of its words have; of equals, the smallest.
    """

    block: npt.NDArray[np.int64]
    label: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.block.shape != self.label.shape or self.block.ndim != 1:
            raise DataError(f"each word has one block and one label, got {self.block.shape} and {self.label.shape}")

    def sets(self) -> dict[frozenset[int], int]:
        """The words of each block, with its label."""
        members: dict[int, list[int]] = {}
        for word, block_index in enumerate(self.block.tolist()):
            members.setdefault(block_index, []).append(word)
        return {frozenset(words): _majority(self.label[words]) for words in members.values()}


def _majority(labels: npt.NDArray[np.int64]) -> int:
    counts: Counter[int] = Counter(labels.tolist())
    return min(counts, key=lambda label: (-counts[label], label))


def components(linked: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Index the connected parts of ``linked | linkedᵀ``: words that a chain of links joins share an index.

    >>> components(np.array([[0, 0, 1], [0, 0, 0], [0, 0, 0]], dtype=bool)).tolist()
    [0, 1, 0]
    """
    return np.asarray(connected_components(linked, directed=True, connection="weak")[1], dtype=np.int64)


def blocks_above(logits: npt.NDArray[Any], label: npt.NDArray[np.int64], threshold: float) -> Blocks:
    """The blocks that log-odds ``[N, N]`` of pairs give at a probability: parts joined by ``σ(logit) > threshold``.

    A pair is joined if either of its orders is.

    >>> blocks_above(np.array([[0.0, 3.0], [-1.0, 0.0]]), np.array([1, 1]), 0.7).block.tolist()
    [0, 0]
    """
    if not 0 < threshold < 1:
        raise DataError(f"threshold must be between 0 and 1, got {threshold}")
    return Blocks(components(logits > math.log(threshold / (1 - threshold))), label)


def count_blocks(grouped: Blocks, truth: Blocks) -> FloatArray:
    """Count one form's blocks in the order of `COUNTS`; a block is correct if the truth has one of the same words.

    >>> truth = Blocks(np.array([0, 0, 1]), np.array([1, 1, 0]))
    >>> count_blocks(Blocks(np.array([0, 0, 1]), np.array([1, 1, 1])), truth)[:4].tolist()
    [2.0, 2.0, 2.0, 1.0]
    """
    if grouped.block.shape != truth.block.shape:
        raise DataError(f"{len(grouped.block)} words were grouped, but the form has {len(truth.block)}")
    wanted, given = truth.sets(), grouped.sets()
    counts: list[int] = []
    for least in (0, LONG):
        correct = [words for words in given if words in wanted and len(words) > least]
        counts += [
            sum(len(words) > least for words in wanted),
            sum(len(words) > least for words in given),
            len(correct),
            sum(given[words] == wanted[words] for words in correct),
        ]
    return np.array(counts, dtype=np.float64)


def block_figures(counts: FloatArray) -> dict[str, FloatArray]:
    """F1 = 2 · correct / (given + wanted) of rows of `COUNTS`: full and long, without and with labels.

    Where a row has no such block at all, its F1 is NaN.

    >>> {name: value.tolist() for name, value in block_figures(np.array([[4.0, 4, 2, 1, 1, 1, 1, 0]])).items()}
    {'full': [0.5], 'full_labelled': [0.25], 'long': [1.0], 'long_labelled': [0.0]}
    """
    figures = {}
    for at, size in ((0, "full"), (4, "long")):
        total = counts[:, at] + counts[:, at + 1]
        total = np.where(total == 0, math.nan, total)
        figures[size] = 2 * counts[:, at + 2] / total
        figures[f"{size}_labelled"] = 2 * counts[:, at + 3] / total
    return figures


def compare_blocks(
    first: FloatArray, second: FloatArray, *, resamples: int = 10_000, confidence: float = 0.95, seed: int = 0
) -> dict[str, PairedDifference]:
    """Compare two systems by their counts on the same forms, ``[forms, COUNTS]``: the paired bootstrap over forms."""
    return paired_bootstrap(first, second, block_figures, resamples=resamples, confidence=confidence, seed=seed)


def block_intervals(
    counts: FloatArray, *, resamples: int = 10_000, confidence: float = 0.95, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """The interval of each figure over forms drawn with repetition; NaN where a figure is undefined.

    >>> block_intervals(np.ones((3, 8)), resamples=10)["full"]
    (1.0, 1.0)
    """
    nothing = np.zeros_like(counts)
    compared = paired_bootstrap(counts, nothing, _or_zero, resamples=resamples, confidence=confidence, seed=seed)
    return {name: (difference.low, difference.high) for name, difference in compared.items()}


def _or_zero(counts: FloatArray) -> dict[str, FloatArray]:
    """The figures, 0 for rows without any count: against these, the difference of a figure is the figure."""
    empty = ~counts.any(axis=1)
    return {name: np.where(empty, 0.0, value) for name, value in block_figures(counts).items()}


def best_threshold(
    logits: Sequence[npt.NDArray[Any]],
    labels: Sequence[npt.NDArray[np.int64]],
    truths: Sequence[Blocks],
    thresholds: Sequence[float],
) -> tuple[float, FloatArray]:
    """Choose of these probabilities the one with the highest full F1, the first of equals; also its counts."""
    best, chosen = -1.0, (thresholds[0], np.zeros((len(truths), len(COUNTS))))
    for threshold in thresholds:
        rows = zip(logits, labels, truths, strict=True)
        counts = np.array(
            [count_blocks(blocks_above(pairs, label, threshold), truth) for pairs, label, truth in rows]
        ).reshape(-1, len(COUNTS))
        score = float(block_figures(counts.sum(axis=0, keepdims=True))["full"][0])
        if score > best:
            best, chosen = score, (threshold, counts)
    return chosen
