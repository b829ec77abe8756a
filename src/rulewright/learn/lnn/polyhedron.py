"""The parameters a logical neuron may have: a polyhedron, and the vertex and rays that generate it in closed form."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rulewright.errors import DataError

Matrix = npt.NDArray[np.float64]


class Cone(NamedTuple):
    """All ``vertex + Σ_j μ_j rays[j]`` with ``μ ≥ 0``; the first coordinate is β, the others are w."""

    vertex: Matrix
    rays: Matrix


def smallest_alpha(arity: int) -> float:
    """Return the bound that α must exceed for a conjunction of so many inputs, ``n / (n + 1)``.

    >>> smallest_alpha(2)
    0.6666666666666666
    """
    return arity / (arity + 1)


def check_alpha(alpha: float) -> None:
    """Refuse an α outside (½, 1]."""
    if not 0.5 < alpha <= 1:
        raise DataError(f"alpha must lie in (0.5, 1], got {alpha}")


def is_feasible(arity: int, alpha: float) -> bool:
    """Tell whether any parameters make a conjunction for α.

    >>> is_feasible(2, 0.7), is_feasible(2, 0.65)
    (True, False)
    """
    return alpha > smallest_alpha(arity)


def constraints(arity: int, alpha: float) -> tuple[Matrix, Matrix]:
    """Return A and b of ``A (β, w) ≤ b``, the shape of a conjunction.

    ``β − α w_i ≤ 1 − α`` (one low input makes it low), ``(1 − α) Σ w − β ≤ −α`` (high inputs make it high), ``−w ≤ 0``.
    """
    low = np.hstack([np.ones((arity, 1)), -alpha * np.eye(arity)])
    high = np.concatenate([[-1.0], np.full(arity, 1 - alpha)])
    positive = np.hstack([np.zeros((arity, 1)), -np.eye(arity)])
    limits = np.concatenate([np.full(arity, 1 - alpha), [-alpha], np.zeros(arity)])
    return np.vstack([low, high, positive]), limits


def conjunctive_cone(arity: int, alpha: float) -> Cone:
    """Return the cone of all (β, w) that satisfy the `constraints`.

    ``w* = (2α − 1) / (α − n (1 − α))``, ``β* = 1 − α + α w*``; the rays are ``(α, 1, …, 1)`` and, for each j, the same
    with ``α / (1 − α) − (n − 1)`` at w_j; for α = 1 ``(1, 1, …, 1)`` and the unit vectors of w.

    >>> conjunctive_cone(2, 0.8).vertex.round(6).tolist()
    [1.4, 1.5, 1.5]
    """
    check_alpha(alpha)
    if not is_feasible(arity, alpha):
        least = smallest_alpha(arity)
        raise DataError(
            f"no conjunction of {arity} inputs has alpha {alpha}; "
            f"alpha must be > {least:.6g} (n / (n + 1)), or give slack to relax the constraints"
        )
    weight = (2 * alpha - 1) / (alpha - arity * (1 - alpha))
    vertex = np.array([1 - alpha + alpha * weight, *[weight] * arity])
    if alpha == 1:
        rays = np.vstack([np.ones(arity + 1), np.eye(arity + 1)[1:]])
    else:
        rays = np.ones((arity + 1, arity + 1))
        rays[:, 0] = alpha
        rays[np.arange(1, arity + 1), np.arange(1, arity + 1)] = alpha / (1 - alpha) - (arity - 1)
    return Cone(vertex, rays)
