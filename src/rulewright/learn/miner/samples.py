"""Counting from a sample of entities: between which bounds the true confidence lies."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from rulewright.engine.sql import Column


def ratio_interval(
    support: npt.ArrayLike, body: npt.ArrayLike, sums: Mapping[str, Column], *, drawn: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return 95 % intervals of the ratio R = support / body that a sample of first entities estimates.

    Entities bring their groundings along, so these are not independent. With s and b for what one entity counts, n
    entities where b > 0 and a share f ``drawn`` of all, the estimate has the variance
    ``v = (1 − f) n / (n − 1) Σ (s − R b)² / (Σ b)²``, that of ``R (1 − R) / v`` independent cases. We take no more than
    ``(Σ b)² / Σ b² / (1 − f)``, as if each entity were one case, since v is too small where only a few entities say
    otherwise than the rest, and fewer where n is small; what an entity not drawn would say alone, as the hub of a
    graph may, no interval knows. The interval is Clopper's and Pearson's for so many cases, as
    Korn and Graubard have it (Survey Methodology 24, 1998).

    >>> ones = {name: np.array([20.0]) for name in ("starts", "support_squares", "body_squares", "products")}
    >>> low, high = ratio_interval([20], [20], ones, drawn=0.1)
    >>> print(f"{low[0]:.2f} … {high[0]:.2f}")
    0.85 … 1.00
    """
    from scipy.stats import beta, norm, t

    supports, bodies = np.asarray(support, dtype=np.float64), np.asarray(body, dtype=np.float64)
    ratio, n = supports / bodies, sums["starts"].astype(np.float64)
    squares = sums["support_squares"] - 2 * ratio * sums["products"] + ratio**2 * sums["body_squares"]
    variance = (1 - drawn) * n / np.maximum(n - 1, 1) * np.maximum(squares, 0) / bodies**2
    entities = bodies**2 / sums["body_squares"]
    with np.errstate(divide="ignore", invalid="ignore"):
        cases = np.where((ratio > 0) & (ratio < 1) & (n > 1), ratio * (1 - ratio) / variance, np.inf)
    cases = cases / (t.ppf(0.975, np.maximum(entities - 1, 1)) / norm.ppf(0.975)) ** 2
    cases = np.minimum(cases, entities / (1 - drawn))
    held = ratio * cases
    low = np.where(ratio > 0, beta.ppf(0.025, held, cases - held + 1), 0.0)
    high = np.where(ratio < 1, beta.ppf(0.975, held + 1, cases - held), 1.0)
    return low, high
