"""What each label of an entity pair costs: the objective of global inference, with its compensation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rulewright.errors import DataError, unknown_name

Floats: TypeAlias = npt.NDArray[np.float64]
Labels: TypeAlias = npt.NDArray[np.bool_]


class LabelCosts:
    """The cost of label 0 for every atom of a document, and what label 1 costs more.

    With margin m, ``g = σ(m)`` and weight w of the relation, label 1 costs ``−log g`` and label 0
    ``−w · log(1 − g + epsilon)``.
    """

    def __init__(self, margins: Floats, weights: Floats, epsilon: float) -> None:
        softplus = np.maximum(margins, 0.0) + np.log1p(np.exp(-np.abs(margins)))
        if epsilon == 0:
            self.off = weights * softplus
            self.gain = (1 - weights) * softplus - margins  # exactly -margins where the weight is 1
        else:
            self.off = -weights * np.log(np.exp(-softplus) + epsilon)
            self.gain = softplus - margins - self.off
        diagonal = np.arange(len(margins))
        self.off[diagonal, diagonal] = 0.0  # an entity with itself is no pair, and never labelled

    def objective(self, labels: Labels) -> float:
        """Return the cost of a labelling, over all pairs of different entities."""
        return float(self.off.sum() + self.gain[labels].sum())


def relation_weights(
    relations: Sequence[str], *, tau: float, k: float, frequencies: Mapping[str, int] | Sequence[int] | None
) -> Floats:
    """Return ``τ · (−log p_r)^k`` for every relation, where ``p_r = (1 + count_r) / (R + facts)``.

    >>> relation_weights(["a", "b"], tau=0.5, k=1.0, frequencies={"a": 7, "b": 1}).round(3).tolist()
    [0.112, 0.805]
    """
    if not 0 < tau < math.inf:
        raise DataError(f"tau must be > 0 and finite, got {tau}")
    if not 0 <= k < math.inf:
        raise DataError(f"k must be >= 0 and finite, got {k}")
    if frequencies is None:
        if k != 0:
            raise DataError(f"k = {k} weighs relations by how frequent they are; give frequencies, the facts of each")
        return np.full(len(relations), float(tau))
    if isinstance(frequencies, Mapping):
        for name in frequencies:
            if name not in relations:
                raise unknown_name("relation", name, relations)
        counts = np.array([frequencies.get(name, 0) for name in relations], dtype=np.float64)
    else:
        counts = np.asarray(frequencies, dtype=np.float64)
        if counts.shape != (len(relations),):
            raise DataError(f"frequencies must have {len(relations)} counts, got shape {list(counts.shape)}")
    if not np.all((counts >= 0) & np.isfinite(counts)):
        raise DataError("frequencies must be >= 0 and finite")
    share = (1 + counts) / (len(relations) + counts.sum())
    return np.asarray(tau * (-np.log(share)) ** k)


def as_array(values: Any, name: str) -> Floats:
    """Return a NumPy array or a torch tensor, of any precision and device, as float64."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().double().numpy()
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{name} must be an array of numbers, got {type(values).__name__}") from None
    return array


def margins_of(logits: Any, relations: Sequence[str], threshold: Any = 0.5, threshold_logits: Any = None) -> Floats:
    """Return logits minus thresholds as [n, n, R], with zeros on the diagonal."""
    margins = given = as_array(logits, "logits")
    if margins.ndim != 3 or margins.shape[0] != margins.shape[1] or margins.shape[2] != len(relations):
        raise DataError(f"logits must have shape [n, n, {len(relations)}], got {list(margins.shape)}")
    if threshold_logits is None:
        bounds = _threshold_logits(threshold, relations)
    else:
        if not (np.ndim(threshold) == 0 and threshold == 0.5):
            raise DataError("give threshold or threshold_logits, not both")
        bounds = as_array(threshold_logits, "threshold_logits")
        if bounds.shape != margins.shape[:2]:
            raise DataError(f"threshold_logits must have shape {list(margins.shape[:2])}, got {list(bounds.shape)}")
        bounds = bounds[:, :, None]
    with np.errstate(invalid="ignore"):
        margins = margins - bounds
    diagonal = np.arange(len(margins))
    margins[diagonal, diagonal] = 0.0
    if not np.isfinite(margins).all():
        head, tail, relation = place = tuple(np.argwhere(~np.isfinite(margins))[0].tolist())
        where = f"for relation {relations[relation]!r} between entities {head} and {tail}"
        if not np.isfinite(given[place]):
            raise DataError(f"logits must be finite, got {given[place]} {where}")
        raise DataError(f"threshold_logits must be finite, got {as_array(threshold_logits, '')[head, tail]} {where}")
    return margins


def _threshold_logits(threshold: Any, relations: Sequence[str]) -> Floats:
    bounds = as_array(threshold, "threshold")
    if bounds.shape not in ((), (len(relations),)):
        raise DataError(f"threshold must be one number or {len(relations)}, got shape {list(bounds.shape)}")
    if not np.all((bounds > 0) & (bounds < 1)):
        wrong = float(bounds[()] if bounds.ndim == 0 else bounds[~((bounds > 0) & (bounds < 1))][0])
        raise DataError(f"threshold must be a probability between 0 and 1, got {wrong}")
    return np.asarray(np.log(bounds) - np.log1p(-bounds))
