"""What a learner learns from: facts of the target, and facts beside each that are known not to be true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rulewright.errors import DataError
from rulewright.learn.lnn.tables import Columns, lookup

_ROUNDS = 30  # how often a negative that turns out true is drawn anew


@dataclass(frozen=True)
class Examples:
    """Facts as columns, the positive ones first, and for each positive one the places of its negatives.

    ``negatives`` has −1 where none was found. ``without`` counts the positive facts that have no negative.
    """

    columns: Columns
    positives: int
    negatives: npt.NDArray[np.int64]

    @property
    def without(self) -> int:
        """The number of positive facts that no negative was found for."""
        return int((self.negatives < 0).all(axis=1).sum())


def examples_of(
    target: str,
    positives: Columns,
    known: Sequence[Columns],
    ranges: Sequence[npt.NDArray[np.generic]],
    *,
    false: Columns | None = None,
    count: int,
    places: Sequence[int],
    seed: int,
) -> Examples:
    """Put beside each positive fact ``count`` facts in which one argument is another one of its range.

    Negatives are checked: none is among ``known``. Facts observed to be ``false`` are drawn first, in turn.
    """
    size = len(positives[0])
    if size == 0:
        raise DataError(f"{target} has no positive example to learn from")
    random = np.random.default_rng(seed)
    true = tuple(np.concatenate(parts) for parts in zip(positives, *known, strict=True))
    drawn = [np.repeat(column, count).astype(column.dtype) for column in positives]
    found = np.zeros(size * count, dtype=bool)
    if false is not None and len(false[0]):
        share = (np.arange(size * count) % count) < max(1, count // 2)
        chosen = random.integers(len(false[0]), size=int(share.sum()))
        for column, values in zip(drawn, false, strict=True):
            column[share] = values[chosen]
        found |= share
    which = np.array(places)[random.integers(len(places), size=size * count)]
    for _ in range(_ROUNDS):
        left = np.flatnonzero(~found)
        if not len(left):
            break
        for place in places:
            rows = left[which[left] == place]
            fresh = [column[rows // count] for column in positives]
            fresh[place] = random.choice(ranges[place], size=len(rows)).astype(positives[place].dtype)
            good = lookup(true, fresh) < 0
            for column, values in zip(drawn, fresh, strict=True):
                column[rows[good]] = values[good]
            found[rows[good]] = True
        which[left] = np.array(places)[random.integers(len(places), size=len(left))]
    numbers = np.where(found, size + np.cumsum(found) - 1, -1).reshape(size, count)
    columns = tuple(np.concatenate([one, other[found]]) for one, other in zip(positives, drawn, strict=True))
    return Examples(columns, size, numbers)


def argument_ranges(*facts: Columns | None) -> list[npt.NDArray[np.generic]]:
    """Return for each argument the values it has in any of the facts.

    >>> argument_ranges((np.array([1, 2]), np.array([5, 5])), None)
    [array([1, 2]), array([5])]
    """
    given = [each for each in facts if each is not None]
    return [np.unique(np.concatenate(parts)) for parts in zip(*given, strict=True)]
