"""Thresholds: from which score on candidates are taken for facts, so that a metric of the counts is highest.

A metric is a function of three counts over all relations, how many predictions are ``correct``, how many are ``given``
and how many facts are ``wanted``; it takes arrays. `f1_of_counts` is micro F1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
CountMetric: TypeAlias = Callable[[Any, Any, Any], Any]
"""``metric(correct, given, wanted)``: a value for each element of the arrays of counts."""

_MOST_SWEEPS = 100


def f1_of_counts(correct: Any, given: Any, wanted: Any) -> Any:
    """Return ``2 · correct / (given + wanted)``, 0 where nothing is given or wanted.

    >>> f1_of_counts(np.array([6, 0]), np.array([8, 0]), np.array([10, 0])).round(4).tolist()
    [0.6667, 0.0]
    """
    both = np.asarray(given + wanted, dtype=np.float64)
    return np.divide(2.0 * correct, both, out=np.zeros_like(both), where=both > 0)


class ScoreCuts(NamedTuple):
    """All ways to cut scores in two, with counts of what is above: nothing, then one of the ``scores`` more each time.

    ``scores`` are the different ones, the highest first.
    """

    scores: Scores
    correct: npt.NDArray[np.int64]
    given: npt.NDArray[np.int64]
    wanted: int

    def bound(self, position: int) -> float:
        """Return a cut: half-way between two scores, or by 1 above or below all of them."""
        if not len(self.scores):
            return 0.0
        if position == 0:
            return float(self.scores[0]) + 1
        if position == len(self.scores):
            return float(self.scores[-1]) - 1
        return float(self.scores[position - 1] + self.scores[position]) / 2


def list_cuts(scores: Scores, is_true: Mask) -> ScoreCuts:
    """Return all cuts of scores.

    >>> cuts = list_cuts(np.array([0.5, 3.0, 0.5, 2.0]), np.array([False, True, True, False]))
    >>> [cuts.bound(position) for position in range(4)], cuts.correct.tolist(), cuts.given.tolist(), cuts.wanted
    ([4.0, 2.5, 1.25, -0.5], [0, 1, 1, 2], [0, 1, 2, 4], 2)
    """
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    ends = np.flatnonzero(np.append(ordered[1:] < ordered[:-1], [True] * bool(len(scores))))
    correct = np.append(0, np.cumsum(is_true[order])[ends])
    return ScoreCuts(ordered[ends], correct.astype(np.int64), np.append(0, ends + 1), int(is_true.sum()))


def choose_shared_cut(scores: Scores, is_true: Mask, metric: CountMetric = f1_of_counts) -> float:
    """Return the cut of all scores with the highest metric; of several that are as good, the highest."""
    cuts = list_cuts(scores, is_true)
    values = np.asarray(metric(cuts.correct, cuts.given, np.full(len(cuts.given), cuts.wanted)), dtype=np.float64)
    return cuts.bound(int(np.argmax(values)))


def choose_own_cuts(
    relations: Sequence[ScoreCuts], start: Sequence[float], metric: CountMetric = f1_of_counts
) -> list[float]:
    """Return a cut for each relation, so that the metric of all relations together is highest.

    Of F1 they are the best there are, by Dinkelbach's method: that it can be F or more means that
    ``2 · correct − F · (given + wanted)`` can be 0 or more, and every relation adds to that by itself; F rises until it
    cannot. Of another metric they are such that no single relation can do better, from the cuts ``start`` on.
    """
    if metric is not f1_of_counts:
        return _climb(relations, start, metric)
    wanted = sum(cuts.wanted for cuts in relations)
    best, chosen = -1.0, [0] * len(relations)
    for _ in range(_MOST_SWEEPS):
        found = [int(np.argmax(2 * cuts.correct - max(best, 0.0) * cuts.given)) for cuts in relations]
        correct = sum(int(cuts.correct[position]) for cuts, position in zip(relations, found, strict=True))
        given = sum(int(cuts.given[position]) for cuts, position in zip(relations, found, strict=True))
        value = float(f1_of_counts(correct, given, wanted))
        if value <= best:
            break
        best, chosen = value, found
    return [cuts.bound(position) for cuts, position in zip(relations, chosen, strict=True)]


def _climb(relations: Sequence[ScoreCuts], start: Sequence[float], metric: CountMetric) -> list[float]:
    wanted = sum(cuts.wanted for cuts in relations)
    chosen = [int(np.searchsorted(-cuts.scores, -bound)) for cuts, bound in zip(relations, start, strict=True)]
    correct = sum(int(cuts.correct[position]) for cuts, position in zip(relations, chosen, strict=True))
    given = sum(int(cuts.given[position]) for cuts, position in zip(relations, chosen, strict=True))
    best = float(metric(np.array([correct]), np.array([given]), np.array([wanted]))[0])
    for _ in range(_MOST_SWEEPS):
        before = best
        for index, cuts in enumerate(relations):
            others = correct - int(cuts.correct[chosen[index]]), given - int(cuts.given[chosen[index]])
            counts = others[0] + cuts.correct, others[1] + cuts.given
            values = np.asarray(metric(*counts, np.full(len(cuts.given), wanted)), dtype=np.float64)
            position = int(np.argmax(values))
            if values[position] > best:
                best, chosen[index] = float(values[position]), position
                correct, given = int(counts[0][position]), int(counts[1][position])
        if best <= before:
            break
    return [cuts.bound(position) for cuts, position in zip(relations, chosen, strict=True)]
