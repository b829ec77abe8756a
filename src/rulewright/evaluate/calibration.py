"""Probabilities out of scores: curves fitted to which candidates are facts, and how well they hold.

A score says which of two candidates comes first, not how probable either is. A curve says of a score ``s`` how many of
the candidates with such a score are facts. A relation ``r`` with ``n`` facts has one of its own, drawn towards the one
that all relations share: ``p_r(s) = λ own_r(s) + (1 − λ) shared(s)`` with ``λ = n / (n + shrinkage)``. So a relation
with few facts says little against the others, and one with many speaks for itself. Every curve is monotone: a higher
score is never less probable within a relation.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite, isnan, nan
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from rulewright.checks import OneOf, Real, Whole, check_parameter
from rulewright.data.index import Ids
from rulewright.errors import DataError, MissingExtraError, RulewrightError
from rulewright.files import check_output, write_bytes, write_text
from rulewright.io.json_shape import Json, load

Scores = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
CalibrationMethod = Literal["isotonic", "platt"]
CALIBRATION_METHOD = OneOf("isotonic", "platt")
USUAL_SHRINKAGE = 5.0
USUAL_BINS = 10
PLOT_ENDINGS = (".png", ".svg", ".pdf")
_FORMAT = "rulewright calibration 1"
_MOST_STEPS = 200
_SMALL_GRADIENT = 1e-10  # of the mean loss
_SMALL_DECREASE = 1e-14  # of the mean loss that a step promises
_ENOUGH_TO_START = 20_000  # scores, to find where to start from


@dataclass(frozen=True)
class LogisticCurve:
    """``p(s) = 1 / (1 + exp(−(slope · s + intercept)))``, with a slope of at least 0.

    >>> LogisticCurve(2.0, -1.0).probabilities(np.array([0.5])).tolist()
    [0.5]
    """

    slope: float
    intercept: float

    def probabilities(self, scores: Scores) -> Scores:
        """Return the probability at each score."""
        return np.asarray(expit(self.slope * scores + self.intercept), dtype=np.float64)

    def as_dict(self) -> dict[str, object]:
        """Return the parameters, for JSON."""
        return {"slope": self.slope, "intercept": self.intercept}


@dataclass(frozen=True)
class KnotCurve:
    """Straight lines between knots ``(score, value)`` that never fall; beyond the outermost it is level.

    >>> KnotCurve((0.0, 1.0), (0.2, 0.8)).probabilities(np.array([-1.0, 0.5, 2.0])).tolist()
    [0.2, 0.5, 0.8]
    """

    scores: tuple[float, ...]
    values: tuple[float, ...]

    def probabilities(self, scores: Scores) -> Scores:
        """Return the probability at each score."""
        return np.interp(scores, self.scores, self.values)

    def as_dict(self) -> dict[str, object]:
        """Return the knots, for JSON."""
        return {"scores": list(self.scores), "values": list(self.values)}


Curve = LogisticCurve | KnotCurve


class RelationCurve(NamedTuple):
    """The curve of one relation, before it is drawn to the shared one, and how many facts it rests on."""

    curve: Curve
    facts: int


@dataclass(frozen=True)
class Calibration:
    """Curves from scores to probabilities: one that all relations share, and one for each that has facts.

    >>> scores, is_true = np.array([0.1, 0.2, 0.8, 0.9]), np.array([False, False, True, True])
    >>> calibration = Calibration.fit(["likes"], np.zeros(4, dtype=int), scores, is_true, shrinkage=0)
    >>> calibration.probabilities("likes", [0.15, 0.5, 0.85]).round(3).tolist()
    [0.0, 0.5, 1.0]
    """

    method: CalibrationMethod
    shrinkage: float
    shared: Curve
    own: Mapping[str, RelationCurve]

    @classmethod
    def fit(
        cls,
        names: Sequence[str],
        relation: npt.ArrayLike,
        scores: npt.ArrayLike,
        is_true: npt.ArrayLike,
        weights: npt.ArrayLike | None = None,
        *,
        method: CalibrationMethod = "isotonic",
        shrinkage: float = USUAL_SHRINKAGE,
    ) -> Calibration:
        """Fit curves to candidates: the index of the relation in ``names``, the score, and whether it is a fact.

        ``weights`` says how many candidates each stands for, one by default. ``isotonic`` takes the monotone curve of
        least squares, ``platt`` the logistic one of greatest likelihood, with Platt's targets ``(n₊ + 1) / (n₊ + 2)``
        and ``1 / (n₋ + 2)``, which keep it finite where a score tells facts from others without fail. ``shrinkage`` is
        the number of facts at which a relation's own curve counts for a half.
        """
        check_parameter("method", method, CALIBRATION_METHOD)
        check_parameter("shrinkage", shrinkage, Real(0))
        columns = _read_columns(scores, is_true, weights)
        indices = np.asarray(relation, dtype=np.int64)
        if indices.shape != columns[0].shape:
            raise DataError(f"expected a relation for each of {len(columns[0]):,} scores, got {indices.size:,}")
        if len(indices) and not 0 <= indices.min() <= indices.max() < len(names):
            raise DataError(f"relations are indices into {len(names):,} names, got {indices.min()} … {indices.max()}")
        if not columns[1].any():
            raise DataError(f"none of {len(indices):,} candidates is a fact, so there is no curve to fit")
        own: dict[str, RelationCurve] = {}
        order = np.argsort(indices, kind="stable")
        different, starts = np.unique(indices[order], return_index=True)
        for index, rows in zip(different.tolist(), np.split(order, starts[1:]), strict=True):
            facts = int(columns[1][rows].sum())
            if facts:
                curve = _fit_curve(columns[0][rows], columns[1][rows], columns[2][rows], method)
                own[names[index]] = RelationCurve(curve, facts)
        return cls(method, float(shrinkage), _fit_curve(*columns, method), own)

    def probabilities(self, relation: str, scores: npt.ArrayLike) -> Scores:
        """Return the probability at each score of a relation; one without facts has the shared curve."""
        values = np.asarray(scores, dtype=np.float64)
        if np.isnan(values).any():
            raise DataError("a score is NaN, which has no probability")
        shared = self.shared.probabilities(values)
        if relation not in self.own:
            return shared
        curve, facts = self.own[relation]
        share = facts / (facts + self.shrinkage)
        return share * curve.probabilities(values) + (1 - share) * shared

    def probabilities_of(self, names: Sequence[str], relation: Ids, scores: Scores) -> Scores:
        """Return the probabilities of candidates of several relations, by the index of each in ``names``."""
        probabilities = np.empty(len(scores))
        for index in np.unique(relation).tolist():
            is_one = relation == index
            probabilities[is_one] = self.probabilities(names[index], scores[is_one])
        return probabilities

    def as_dict(self) -> dict[str, object]:
        """Return all curves, for JSON."""
        own = {name: {"facts": part.facts, **part.curve.as_dict()} for name, part in self.own.items()}
        return {"method": self.method, "shrinkage": self.shrinkage, "shared": self.shared.as_dict(), "own": own}

    @classmethod
    def from_json(cls, source: Json) -> Calibration:
        """Read what `as_dict` gives; what is not as it must be is an error that names the file and the value."""
        method = source["method"].text()
        if method not in CALIBRATION_METHOD.options:
            raise source["method"].expected("'isotonic' or 'platt'")
        shrinkage = read_finite(source["shrinkage"])
        if shrinkage < 0:
            raise source["shrinkage"].expected("a number of at least 0")
        own: dict[str, RelationCurve] = {}
        for name, part in source["own"].fields():
            if part["facts"].integer() < 1:
                raise part["facts"].expected("a whole number of at least 1")
            own[name] = RelationCurve(_read_curve(part, method), part["facts"].integer())
        return cls("platt" if method == "platt" else "isotonic", shrinkage, _read_curve(source["shared"], method), own)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the curves as JSON, in one step; `read` gives an equal value."""
        write_text(path, json.dumps({"format": _FORMAT, **self.as_dict()}, ensure_ascii=False, indent=1) + "\n")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Calibration:
        """Read what `save` wrote."""
        source = load(path)
        check_format(source, _FORMAT)
        return cls.from_json(source)

    def __repr__(self) -> str:
        return f"Calibration({self.method}, {len(self.own):,} relations, shrinkage {self.shrinkage:g})"


def check_format(source: Json, expected: str) -> None:
    """Refuse a JSON file that does not say it is what is to be read."""
    found = source["format"]
    if found.text() != expected:
        raise found.expected(repr(expected))


def _read_columns(
    values: npt.ArrayLike, is_true: npt.ArrayLike, weights: npt.ArrayLike | None
) -> tuple[Scores, Mask, Scores]:
    """Return scores or probabilities, truths and weights as columns of one length."""
    read = np.asarray(values, dtype=np.float64)
    truth = np.asarray(is_true, dtype=bool)
    counts = np.ones(read.shape) if weights is None else np.asarray(weights, dtype=np.float64)
    if read.ndim != 1 or read.shape != truth.shape or read.shape != counts.shape:
        raise DataError(f"expected columns of one length, got shapes {read.shape}, {truth.shape} and {counts.shape}")
    if not np.isfinite(read).all():
        raise DataError(f"scores must be finite, got {read[~np.isfinite(read)][0]}")
    if not (np.isfinite(counts) & (counts > 0)).all():
        raise DataError("weights must be finite and above 0: a candidate that stands for none is left out")
    return read, truth, counts


def _fit_curve(scores: Scores, is_true: Mask, weights: Scores, method: CalibrationMethod) -> Curve:
    return _fit_isotonic(scores, is_true, weights) if method == "isotonic" else _fit_platt(scores, is_true, weights)


def _fit_isotonic(scores: Scores, is_true: Mask, weights: Scores) -> KnotCurve:
    from sklearn.isotonic import IsotonicRegression

    fitted = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(scores, is_true, sample_weight=weights)
    # the mean of equal values can be a last digit above its neighbour
    values = np.maximum.accumulate(np.clip(fitted.y_thresholds_.astype(np.float64), 0, 1))
    return KnotCurve(tuple(fitted.X_thresholds_.astype(np.float64).tolist()), tuple(values.tolist()))


def _fit_platt(scores: Scores, is_true: Mask, weights: Scores) -> LogisticCurve:
    """Minimise the convex loss by Newton's method, on scores of mean 0 and spread 1."""
    count, facts = float(weights.sum()), float(weights[is_true].sum())
    targets = np.where(is_true, (facts + 1) / (facts + 2), 1 / (count - facts + 2))
    share = float(weights @ targets) / count
    base = float(np.log(share / (1 - share)))
    mean = float(weights @ scores) / count
    spread = float(np.sqrt(weights @ (scores - mean) ** 2 / count))
    if spread == 0 or scores.min() == scores.max():
        return LogisticCurve(0.0, base)
    standard = (scores - mean) / spread

    slope, intercept = 0.0, base
    step = len(scores) // _ENOUGH_TO_START
    if step > 3:  # steps over all scores are few from where a part of them ends
        slope, intercept = _take_newton_steps(standard[::step], targets[::step], weights[::step], slope, intercept)
    slope, intercept = _take_newton_steps(standard, targets, weights, slope, intercept)
    if slope <= 0:  # of the curves that do not fall the level one is best
        return LogisticCurve(0.0, base)
    return LogisticCurve(slope / spread, intercept - slope * mean / spread)


def _take_newton_steps(
    scores: Scores, targets: Scores, weights: Scores, slope: float, intercept: float
) -> tuple[float, float]:
    """Minimise the mean of ``log(1 + exp(u)) − target · u`` with ``u = slope · score + intercept``."""
    count = float(weights.sum())

    def measure(slope: float, intercept: float) -> tuple[float, Scores]:
        log_odds = slope * scores + intercept
        return float(weights @ (np.logaddexp(0, log_odds) - targets * log_odds)) / count, log_odds

    loss, log_odds = measure(slope, intercept)
    for _ in range(_MOST_STEPS):
        probabilities = expit(log_odds)
        rest = weights * (probabilities - targets)
        by_slope, by_intercept = float(rest @ scores) / count, float(rest.sum()) / count
        if max(abs(by_slope), abs(by_intercept)) < _SMALL_GRADIENT:
            return slope, intercept
        bend = weights * probabilities * (1 - probabilities)
        bent = bend * scores
        both, once, twice = (float(part) / count for part in (bent.sum(), bend.sum(), bent @ scores))
        area = once * twice - both * both
        if area <= 0:
            return slope, intercept
        moves = (once * by_slope - both * by_intercept) / area, (twice * by_intercept - both * by_slope) / area
        if by_slope * moves[0] + by_intercept * moves[1] < _SMALL_DECREASE:
            return slope - moves[0], intercept - moves[1]  # where losses no longer differ, steps still near the end
        part = 1.0
        while True:
            new, new_log_odds = measure(slope - part * moves[0], intercept - part * moves[1])
            if new < loss or part < 1e-9:
                break
            part /= 2
        if new >= loss:
            return slope, intercept
        slope, intercept = slope - part * moves[0], intercept - part * moves[1]
        loss, log_odds = new, new_log_odds
    raise RulewrightError("the logistic curve did not converge; method='isotonic' needs no steps")


def read_finite(source: Json) -> float:
    """Return a finite number out of JSON."""
    try:
        value = float(source.number())
    except OverflowError:
        value = nan
    if not isfinite(value):
        raise source.expected("a finite number")
    return value


def _read_curve(source: Json, method: str) -> Curve:
    if method == "platt":
        if read_finite(source["slope"]) < 0:
            raise source["slope"].expected("a number of at least 0, for a curve never falls")
        return LogisticCurve(read_finite(source["slope"]), read_finite(source["intercept"]))
    scores, values = (
        tuple(read_finite(part) for part in source[name].items("numbers")) for name in ("scores", "values")
    )
    if not scores or len(scores) != len(values):
        raise source.fault(f"must have as many scores as values, and one at least; got {len(scores)} and {len(values)}")
    if any(right <= left for left, right in pairwise(scores)):
        raise source["scores"].fault("must rise from knot to knot")
    if not 0 <= values[0] <= values[-1] <= 1 or any(right < left for left, right in pairwise(values)):
        raise source["values"].fault("must lie in 0 … 1 and never fall")
    return KnotCurve(scores, values)


@dataclass(frozen=True)
class Reliability:
    """Candidates in bins by their probability: how many, their mean probability, and the share that are facts.

    ``bounds`` are one more than bins; a bin has its lower bound in it, the last one both. A bin without candidates has
    NaN for both shares.
    """

    bounds: tuple[float, ...]
    candidates: tuple[float, ...]
    predicted: tuple[float, ...]
    observed: tuple[float, ...]

    @property
    def error(self) -> float:
        """The expected calibration error, ``Σ_b (n_b / n) |observed_b − predicted_b|``; NaN without candidates."""
        return self.error_from(0.0)

    def error_from(self, low: float) -> float:
        """Return the error of the bins from a probability on: most candidates are improbable, and hide the others."""
        gaps = [
            (count, abs(observed - predicted))
            for bound, count, predicted, observed in zip(
                self.bounds, self.candidates, self.predicted, self.observed, strict=False
            )
            if count and bound >= low
        ]
        total = sum(count for count, _ in gaps)
        return sum(count * gap for count, gap in gaps) / total if total else nan

    def rows(self) -> list[tuple[str, float, float, float]]:
        """Return range, candidates, mean probability and share of facts of each bin that has candidates."""
        ranges = (f"{low:.2f} – {high:.2f}" for low, high in pairwise(self.bounds))
        columns = zip(ranges, self.candidates, self.predicted, self.observed, strict=True)
        return [row for row in columns if row[1]]

    def as_dict(self) -> dict[str, object]:
        """Return the error and all bins, for JSON; null where a bin has no candidates."""
        return {
            "error": None if isnan(self.error) else self.error,
            "bounds": list(self.bounds),
            "candidates": list(self.candidates),
            "predicted": [None if isnan(value) else value for value in self.predicted],
            "observed": [None if isnan(value) else value for value in self.observed],
        }

    @classmethod
    def from_json(cls, source: Json) -> Reliability:
        """Read what `as_dict` gives."""

        def read_numbers(name: str, count: int | None) -> tuple[float, ...]:
            parts = source[name].items("numbers")
            if count is not None and len(parts) != count:
                raise source[name].fault(f"must hold {count} numbers, got {len(parts)}")
            return tuple(nan if part.value is None else float(part.number()) for part in parts)

        bounds = read_numbers("bounds", None)
        bins = max(0, len(bounds) - 1)
        return cls(bounds, *(read_numbers(name, bins) for name in ("candidates", "predicted", "observed")))


def measure_reliability(
    probabilities: npt.ArrayLike,
    is_true: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
    *,
    bins: int = USUAL_BINS,
) -> Reliability:
    """Compare probabilities with how many candidates are facts, in bins of equal width.

    >>> reliability = measure_reliability([0.1, 0.1, 0.9, 0.9], [False, False, True, False], bins=2)
    >>> reliability.observed, round(reliability.error, 3)
    ((0.0, 0.5), 0.25)
    """
    check_parameter("bins", bins, Whole(1))
    values, truth, counts = _read_columns(probabilities, is_true, weights)
    if len(values) and not 0 <= values.min() <= values.max() <= 1:
        raise DataError(f"probabilities must lie in 0 … 1, got {values.min():g} … {values.max():g}")
    bounds = np.linspace(0, 1, bins + 1)
    position = np.clip(np.searchsorted(bounds, values, side="right") - 1, 0, bins - 1)
    totals = np.bincount(position, counts, minlength=bins).tolist()
    predicted, observed = (
        # one and the same NaN, so that what is read again is equal
        tuple(part / total if total else nan for part, total in zip(sums, totals, strict=True))
        for sums in (np.bincount(position, counts * part, minlength=bins).tolist() for part in (values, truth))
    )
    return Reliability(tuple(bounds.tolist()), tuple(totals), predicted, observed)


class Judgement(NamedTuple):
    """How well scores hold that are taken for probabilities, and how well probabilities do."""

    before: Reliability
    after: Reliability

    def as_dict(self) -> dict[str, object]:
        """Return both, for JSON."""
        return {"before": self.before.as_dict(), "after": self.after.as_dict()}

    @classmethod
    def from_json(cls, source: Json) -> Judgement:
        """Read what `as_dict` gives."""
        return cls(*(Reliability.from_json(source[name]) for name in ("before", "after")))


def check_plot_file(path: str | os.PathLike[str]) -> str:
    """Return the ending of a plot's file; another one than `PLOT_ENDINGS` is an error.

    >>> check_plot_file("plot.SVG")
    '.svg'
    """
    ending = Path(path).suffix.lower()
    if ending not in PLOT_ENDINGS:
        raise DataError(f"a plot is a {', '.join(PLOT_ENDINGS[:-1])} or {PLOT_ENDINGS[-1]} file, got {os.fspath(path)}")
    return ending


def plot_reliability(parts: Mapping[str, Reliability], path: str | os.PathLike[str], *, title: str = "") -> None:
    """Draw how probable candidates were said to be against how many are facts, a line for each part, and their number.

    A line on the diagonal is perfect; below it, too much was promised. It needs matplotlib (extra ``viz``); the ending
    of ``path`` says the format: .png, .svg or .pdf.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("plots need matplotlib: pip install -c constraints.txt 'rulewright[viz]'") from None
    check_output(path)
    ending = check_plot_file(path)
    if not parts:
        raise DataError("there is no reliability to draw")
    figure = Figure(figsize=(5.5, 6.5), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    upper.plot([0, 1], [0, 1], color="0.6", linestyle="--", linewidth=1, label="perfect")
    for position, (name, part) in enumerate(parts.items()):
        used: Any = np.array(part.candidates) > 0
        error = "no candidates" if isnan(part.error) else f"error {part.error:.3f}"
        upper.plot(
            np.array(part.predicted)[used],
            np.array(part.observed)[used],
            marker="os^Dv"[position % 5],
            color=f"C{position}",
            label=f"{name} ({error})",
        )
        lower.stairs(part.candidates, part.bounds, color=f"C{position}", linewidth=1.5)
    upper.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), ylabel="share that are facts", title=title)
    upper.legend(loc="upper left", frameon=False)
    lower.set(xlabel="probability, mean of a bin", ylabel="candidates", yscale="symlog", ylim=(0, None))
    for axes in (upper, lower):
        axes.grid(color="0.9")
        axes.spines[["top", "right"]].set_visible(False)
    content = io.BytesIO()
    figure.savefig(content, dpi=110, format=ending.removeprefix("."))
    write_bytes(path, content.getvalue())
