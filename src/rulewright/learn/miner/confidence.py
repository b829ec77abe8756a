"""What the counts of rules say: their confidence, of the kind that is asked for."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Confidence = Literal["groundings", "pairs", "pca", "beta"]
Floats = npt.NDArray[np.float64]
Counts = dict[str, npt.NDArray[Any]]
"""Columns with a row for each rule.

``support`` and ``body`` count groundings, ``support_pairs`` and ``body_pairs`` different heads, ``known_pairs`` those
of the latter whose first entity has the head's predicate to something; ``facts`` counts the facts of the head.
"""

TRUST = 0.05
"""The Beta bound lies below the true confidence 19 times in 20."""


def measure_confidences(counts: Counts, kind: Confidence) -> Floats:
    """Return the confidence of every rule: its share, or for ``beta`` the lower bound of the share of pairs.

    The groundings of one pair are no independent cases, so pairs are what the bound counts.

    >>> counts = {"support_pairs": np.array([2, 200]), "body_pairs": np.array([2, 200])}
    >>> measure_confidences(counts, "beta").round(3).tolist()
    [0.431, 0.99]
    """
    if kind == "beta":
        return bound_shares(counts["support_pairs"], counts["body_pairs"])
    return measure_shares(counts, kind)


def measure_shares(counts: Counts, kind: Confidence) -> Floats:
    """Return the share of a body's cases in which the head holds: of groundings, or of ``pairs`` or ``pca`` pairs."""
    if kind == "pairs":
        return counts["support_pairs"] / counts["body_pairs"]
    if kind == "pca":
        return counts["support_pairs"] / np.maximum(counts["known_pairs"], 1)
    return counts["support"] / counts["body"]


def bound_shares(supports: npt.NDArray[np.int64], bodies: npt.NDArray[np.int64], *, trust: float = TRUST) -> Floats:
    """Return the lower 5 % bound of Beta(support + ½, body − support + ½), which distrusts little support.

    Four digits are kept: what is written is what is used, and a fifth would be noise.
    Where the best of several rules is looked for, a lower ``trust`` makes up for how often chance was asked.
    """
    from scipy.special import betaincinv

    # Rules are many and their counts few: each pair of counts is looked up once
    bodies = np.maximum(bodies, supports)
    size = int(bodies.max(initial=0)) + 1
    keys, rows = np.unique(supports * size + bodies, return_inverse=True)
    held, cases = keys // size, keys % size
    bounds: Floats = betaincinv(held + 0.5, cases - held + 0.5, trust).round(4)[rows.reshape(-1)]
    return bounds


def annotate_counts(counts: Counts) -> list[dict[str, object]]:
    """Return what is written behind each rule: support, body, and the shares that are counted over different heads."""
    shares = {
        "pairs": counts["support_pairs"] / counts["body_pairs"],
        "pca": counts["support_pairs"] / np.maximum(counts["known_pairs"], 1),
        "coverage": counts["support_pairs"] / counts["facts"],
    }
    columns = {name: counts[name].tolist() for name in ("support", "body", "body_pairs")}
    columns |= {name: share.round(6).tolist() for name, share in shares.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def keep_rows(counts: Counts, keep: npt.NDArray[Any]) -> Counts:
    """Return the counts of some rules."""
    return {name: column[keep] for name, column in counts.items()}
