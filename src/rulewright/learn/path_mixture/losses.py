"""The loss of ranked candidates and how it changes with each weight, compiled: a sparse table is read row by row."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

Column = npt.NDArray[Any]

SOFTMAX, LOGISTIC, MARGIN = 0, 1, 2


@numba.njit(cache=True, nogil=True)
def rank_loss(
    loss: int,
    first_candidate: Column,
    first_value: Column,
    column: Column,
    value: Column,
    stands_for: Column,
    positive: Column,
    silent: Column,
    weights: Column,
    slopes: Column,
) -> float:
    """Return the loss of all queries; ``slopes``, where it is not empty, gets how it changes with each weight.

    A candidate's score is ``Σ w · value`` over its row of the table, and it counts as often as it ``stands_for``
    candidates; see `target.LOSSES`. A query is gone through twice while it is at hand: for its scores, then for the
    slopes.
    """
    total = 0.0
    slopes[:] = 0.0
    most = 0
    for query in range(len(positive)):
        most = max(most, first_candidate[query + 1] - first_candidate[query])
    scores, slope = np.empty(most), np.empty(most)
    for query in range(len(positive)):
        low, high = first_candidate[query], first_candidate[query + 1]
        for row in range(low, high):
            score = 0.0
            for place in range(first_value[row], first_value[row + 1]):
                score += weights[column[place]] * value[place]
            scores[row - low] = score
        answer = positive[query] - low if positive[query] >= 0 else -1
        own = scores[answer] if answer >= 0 else 0.0
        many = high - low
        if loss == SOFTMAX:
            top = 0.0
            for row in range(many):
                top = max(top, scores[row])
            mass = silent[query] * np.exp(-top)
            for row in range(many):
                slope[row] = stands_for[low + row] * np.exp(scores[row] - top)
                mass += slope[row]
            total += np.log(mass) + top - own
            for row in range(many):
                slope[row] /= mass
            if answer >= 0:
                slope[answer] -= 1.0
        else:
            others = max(stands_for[low:high].sum() - (1 if answer >= 0 else 0) + silent[query], 1.0)
            back = 0.0
            for row in range(many + 1):  # the last stands for the silent ones
                if row == answer:
                    continue
                gap, share = -own, silent[query] / others
                if row < many:
                    gap, share = scores[row] - own, stands_for[low + row] / others
                if loss == LOGISTIC:
                    height = max(gap, 0.0) + np.log1p(np.exp(-abs(gap)))
                    rise = 1 / (1 + np.exp(-min(max(gap, -50.0), 50.0)))
                else:
                    height, rise = max(0.0, 1.0 + gap), 1.0 if gap > -1.0 else 0.0
                total += height * share
                back += rise * share
                if row < many:
                    slope[row] = rise * share
            if answer >= 0:
                slope[answer] = -back
        if len(slopes):
            for row in range(low, high):
                change = slope[row - low]
                for place in range(first_value[row], first_value[row + 1]):
                    slopes[column[place]] += change * value[place]
    return total


@numba.njit(cache=True, nogil=True)
def find_column_maxima(column: Column, value: Column, least: Column) -> Column:
    """Return the largest value of each column of a sparse table, at least as given."""
    largest = least.copy()
    for place in range(len(column)):
        largest[column[place]] = max(largest[column[place]], value[place])
    return largest
