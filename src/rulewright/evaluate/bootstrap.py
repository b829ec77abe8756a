"""Whether one system is better than another, or only luckier with the documents: the paired bootstrap."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from rulewright.checks import Real, Whole, check_parameter
from rulewright.errors import DataError

_CHUNK = 1000  # resamples drawn at a time, to bound memory
_DIGITS = 12  # so that a tie of two systems stays one after rounding errors

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PairedDifference:
    """A figure of two systems on the same documents: ``difference = first − second``, its interval and p-value.

    ``resamples`` counts those on which the figure is defined for both systems. NaN where it is undefined.
    """

    first: float
    second: float
    difference: float
    low: float
    high: float
    p_value: float
    confidence: float
    resamples: int

    def as_dict(self) -> dict[str, object]:
        """Return the fields, for JSON; None instead of NaN."""
        return {name: None if math.isnan(value) else value for name, value in asdict(self).items()}


def paired_bootstrap(
    first: FloatArray,
    second: FloatArray,
    figures: Callable[[FloatArray], Mapping[str, FloatArray]],
    *,
    resamples: int = 10_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, PairedDifference]:
    """Compare two systems on figures that follow from counts added up over documents.

    ``first`` and ``second`` are ``[documents, counts]``; ``figures`` turns rows of sums into named figures. A
    resample draws as many documents as there are, with repetition, the same ones for both systems; ``d*`` is the
    difference on it. The interval holds the middle ``confidence`` of all ``d*``, and
    ``p = 2 · (1 + min(#{d* ≤ 0}, #{d* ≥ 0})) / (1 + resamples)``, at most 1.

    >>> better, worse = np.array([[3.0, 4], [4, 4], [2, 4], [4, 4]]), np.array([[1.0, 4], [2, 4], [1, 4], [3, 4]])
    >>> accuracy = paired_bootstrap(better, worse, lambda sums: {"": sums[:, 0] / sums[:, 1]}, resamples=999)[""]
    >>> accuracy.difference, accuracy.low, accuracy.p_value
    (0.375, 0.25, 0.002)
    """
    if len(first) != len(second) or len(first) == 0:
        raise DataError(f"a paired comparison needs the same documents twice, got {len(first)} and {len(second)}")
    check_parameter("resamples", resamples, Whole(1))
    check_parameter("confidence", confidence, Real(0, 1, above=True, below=True))
    generator = np.random.default_rng(seed)
    documents = len(first)
    chances = np.full(documents, 1 / documents)
    differences: dict[str, list[FloatArray]] = {}
    for start in range(0, resamples, _CHUNK):
        times = generator.multinomial(documents, chances, size=min(_CHUNK, resamples - start)).astype(float)
        firsts, seconds = figures(times @ first), figures(times @ second)
        for name in firsts:
            differences.setdefault(name, []).append((firsts[name] - seconds[name]).round(_DIGITS))
    firsts, seconds = (figures(system.sum(axis=0, keepdims=True)) for system in (first, second))
    return {
        name: _compare(float(firsts[name][0]), float(seconds[name][0]), np.concatenate(parts), confidence)
        for name, parts in differences.items()
    }


def _compare(first: float, second: float, resampled: FloatArray, confidence: float) -> PairedDifference:
    defined = resampled[~np.isnan(resampled)]
    count = len(defined)
    difference = first - second
    if math.isnan(difference) or not count:
        return PairedDifference(first, second, difference, math.nan, math.nan, math.nan, confidence, count)
    low, high = np.quantile(defined, [(1 - confidence) / 2, (1 + confidence) / 2])
    against = min(int((defined <= 0).sum()), int((defined >= 0).sum()))
    p_value = min(1.0, 2 * (1 + against) / (1 + count))
    return PairedDifference(first, second, difference, float(low), float(high), p_value, confidence, count)
