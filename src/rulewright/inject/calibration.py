"""A network's labels as probabilities: the curves and thresholds of a calibration, how they are applied and kept.

Rules then weigh what the network knows, not how loudly it says so: ``decoder(calibration.margins(logits))``,
``layer(calibration.logits(x))``. `rulewright.inject.calibration_fit` fits them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan, log
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, log_expit, softmax

from rulewright.errors import DataError, unknown_name
from rulewright.evaluate.calibration import (
    Calibration,
    Judgement,
    KnotCurve,
    LogisticCurve,
    Reliability,
    check_format,
    plot_reliability,
    read_finite,
)
from rulewright.files import write_text
from rulewright.inject.atoms.layout import Floats
from rulewright.inject.label_columns import LabelCounts, judge_columns, read_columns, read_label_space
from rulewright.inject.labelled_worlds import read_labelled_worlds
from rulewright.io.json_shape import Json, load
from rulewright.logic import RuleSource
from rulewright.tables import html_table

_FORMAT = "rulewright label calibration 1"


@dataclass(frozen=True)
class ClassCurve:
    """``softmax(slope · logits + biases)``; a slope is 1 / temperature.

    >>> ClassCurve(2.0, (0.0, 1.0)).scores(np.array([[0.5, 0.0]])).tolist()
    [[1.0, 1.0]]
    """

    slope: float
    biases: tuple[float, ...]

    def scores(self, logits: Any) -> Any:
        """Return calibrated logits ``[…, K]`` of an array or a tensor."""
        if logits.shape[-1:] != (len(self.biases),):
            raise DataError(f"expected logits of {len(self.biases)} classes, got the shape {list(logits.shape)}")
        if not hasattr(logits, "detach"):
            return (self.slope * logits + np.array(self.biases)).astype(logits.dtype)
        return self.slope * logits + logits.new_tensor(self.biases)


class BeforeAfter(NamedTuple):
    """A figure of merit of the labels as they were, and with calibration and thresholds."""

    before: float
    after: float


@dataclass(frozen=True)
class OutOfFold:
    """What curves and thresholds give worlds that they were not fitted to.

    ``scores`` has the metric of the labels of all predicates without classes, and the accuracy of each with classes.
    ``margins`` has the structure of the predictions; what does not count is as `LabelCalibration.margins` gives it.
    They are not saved.
    """

    folds: int
    scores: Mapping[str, BeforeAfter]
    margins: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class LabelCalibration:
    """Curves and thresholds for the labels of a network; see `calibrate`.

    ``thresholds`` are probabilities by predicate, as ``RuleDecoder`` takes them for ``threshold``; ``judged`` says by
    predicate how well probabilities hold before and after, ``overall`` of all together: out of fold, where there are
    folds, else on what they are fitted to. ``kept`` is False where calibrated labels are worse out of fold than the
    network's own: then thresholds are such that labels stay as they were, and ``note_`` says so.
    """

    relations: tuple[str, ...] | None
    curves: Calibration | None
    classes: Mapping[str, ClassCurve]
    thresholds: Mapping[str, float]
    counts: Mapping[str, LabelCounts]
    judged: Mapping[str, Judgement]
    overall: Judgement
    out_of_fold: OutOfFold | None = None
    kept: bool = True
    note_: str = ""

    def logits(self, given: Any) -> Any:
        """Return the log-odds of calibrated probabilities (with classes, calibrated logits), structured as given."""
        return self._transform(given, None)

    def margins(self, given: Any) -> Any:
        """Return by how much log-odds exceed those of the threshold: labels are true above 0.

        Of arrays come arrays, of tensors tensors that have a gradient, of predicates by name the same names. What has
        classes has no threshold: its logits are calibrated.
        """
        return self._transform(given, self.thresholds)

    def probabilities(self, given: Any) -> Any:
        """Return calibrated probabilities, structured as given."""
        return self._map(self.logits(given), _to_probabilities, _to_distributions)

    def labels(self, given: Any) -> Any:
        """Return labels, structured as given: true where the margin is above 0, or the index of the likeliest class."""
        return self._map(self.margins(given), lambda margins: margins > 0, lambda scores: scores.argmax(-1))

    def _map(self, given: Any, truths: Any, classes: Any) -> Any:
        if not isinstance(given, Mapping):
            return truths(given)
        return {name: (classes if name in self.classes else truths)(part) for name, part in given.items()}

    def _transform(self, given: Any, thresholds: Mapping[str, float] | None) -> Any:
        if isinstance(given, Mapping):
            for name in given:
                if name not in self.counts:
                    raise unknown_name("predicate", name, self.counts)
            return {
                name: self.classes[name].scores(_as_array(part))
                if name in self.classes
                else self._log_odds((name,), _as_array(part)[..., None], thresholds)[..., 0]
                for name, part in given.items()
            }
        if self.relations is None:
            raise DataError("logits are given by predicate, {predicate: logits}, as those it was calibrated with")
        array = _as_array(given)
        if array.shape[-1:] != (len(self.relations),):
            raise DataError(f"logits must have shape [B, n, n, {len(self.relations)}], got {list(array.shape)}")
        return self._log_odds(self.relations, array, thresholds)

    def _log_odds(self, names: Sequence[str], given: Any, thresholds: Mapping[str, float] | None) -> Any:
        """Return calibrated log-odds of logits ``[…, predicates]``, less those of the thresholds."""
        assert self.curves is not None
        bounds = np.zeros(len(names))
        if thresholds is not None:
            bounds = np.array([log(thresholds[name]) - np.log1p(-thresholds[name]) for name in names])
        return read_log_odds(self.curves, self.counts, names, given, bounds)

    def reliability(
        self,
        predictions: Any,
        gold: Any,
        *,
        rules: RuleSource | None = None,
        evidence: Any = None,
        mask: Any = None,
        distinct: bool | None = None,
    ) -> Judgement:
        """Compare probabilities with gold labels, before and after; worlds are given as to `calibrate`.

        Of atoms with classes, the likeliest class counts. ``error`` of each is the expected calibration error.
        """
        space = read_label_space(rules, self.relations, distinct)
        columns = read_columns(read_labelled_worlds(predictions, gold, space=space, evidence=evidence, mask=mask))
        for name in (*columns.truths, *columns.classes):
            if name not in self.counts:
                raise unknown_name("predicate", name, self.counts)
        log_odds = {
            name: self._log_odds((name,), part.scores[:, None], None)[:, 0] for name, part in columns.truths.items()
        }
        scores = {name: self.classes[name].scores(part.scores) for name, part in columns.classes.items()}
        return judge_columns(columns, log_odds, scores)[1]

    def plot(self, path: str | os.PathLike[str], *, title: str = "") -> None:
        """Draw how probable labels were said to be, before and after, against how many are right."""
        plot_reliability(self.overall._asdict(), path, title=title)

    def as_dict(self) -> dict[str, object]:
        """Return everything but out-of-fold margins, for JSON."""
        folds = self.out_of_fold
        return {
            "relations": self.relations if self.relations is None else list(self.relations),
            "curves": None if self.curves is None else self.curves.as_dict(),
            "classes": {
                name: {"slope": curve.slope, "biases": list(curve.biases)} for name, curve in self.classes.items()
            },
            "thresholds": dict(self.thresholds),
            "counts": {name: counts._asdict() for name, counts in self.counts.items()},
            "judged": {name: part.as_dict() for name, part in self.judged.items()},
            "overall": self.overall.as_dict(),
            "out_of_fold": None
            if folds is None
            else {"folds": folds.folds, "scores": {name: part._asdict() for name, part in folds.scores.items()}},
            "kept": self.kept,
            "note": self.note_,
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything but out-of-fold margins as JSON, in one step; `read` gives an equal value."""
        write_text(path, json.dumps({"format": _FORMAT, **self.as_dict()}, ensure_ascii=False, indent=1) + "\n")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> LabelCalibration:
        """Read what `save` wrote; what is not as it must be is an error that names the file and the value."""
        source = load(path)
        check_format(source, _FORMAT)
        relations, curves, folds = (source.get(name) for name in ("relations", "curves", "out_of_fold"))
        counts = {name: _read_counts(part) for name, part in source["counts"].fields()}
        classes: dict[str, ClassCurve] = {}
        for name, part in source["classes"].fields():
            biases = tuple(read_finite(bias) for bias in part["biases"].items("numbers"))
            if len(biases) < 2 or read_finite(part["slope"]) < 0:
                raise part.fault("must have a slope of at least 0 and two biases at least")
            classes[name] = ClassCurve(read_finite(part["slope"]), biases)
        thresholds = {name: _read_probability(part) for name, part in source["thresholds"].fields()}
        plain = {name for name in counts if name not in classes}
        if thresholds.keys() != plain or not classes.keys() <= counts.keys():
            raise source["thresholds"].fault(
                f"must be of {', '.join(sorted(plain)) or 'nothing'}, as counts and classes say"
            )
        if plain and curves is None:
            raise source.fault("has no 'curves', for predicates without classes")
        if relations is not None and not set(relations.texts()) <= plain:
            raise relations.fault("must be among the predicates without classes")
        kept = source["kept"]
        if not isinstance(kept.value, bool):
            raise kept.expected("true or false")
        return cls(
            None if relations is None else relations.texts(),
            None if curves is None else Calibration.from_json(curves),
            classes,
            thresholds,
            counts,
            {name: Judgement.from_json(part) for name, part in source["judged"].fields()},
            Judgement.from_json(source["overall"]),
            None if folds is None else _read_folds(folds),
            kept.value,
            source["note"].text(),
        )

    def rows(self) -> list[tuple[str, int, float | None, float | None, float | None]]:
        """Return predicate, facts, threshold, and calibration error before and after, of each predicate."""
        rows = []
        for name, counts in self.counts.items():
            judged = self.judged.get(name)
            before, after = (None, None) if judged is None else map(_error_of, judged)
            rows.append((name, counts.facts, self.thresholds.get(name), before, after))
        return rows

    def __repr__(self) -> str:
        scores = [] if self.out_of_fold is None else list(self.out_of_fold.scores.items())
        figures = [f"out-of-fold {name} {part.before:.3f} → {part.after:.3f}" for name, part in scores]
        if not isnan(self.overall.before.error):
            figures.append(f"calibration error {self.overall.before.error:.4f} → {self.overall.after.error:.4f}")
        if not self.kept:
            figures.append("labels as they were")
        return f"LabelCalibration({', '.join([f'{len(self.counts):,} predicates', *figures])})"

    def _repr_html_(self) -> str:
        columns = ("relation", "facts", "threshold", "calibration error before", "after")
        return html_table(columns, self.rows(), caption=self.note_)


def _error_of(part: Reliability) -> float | None:
    return None if isnan(part.error) else part.error


def _as_array(given: Any) -> Any:
    """Return a tensor as it is, and anything else as an array of floating-point numbers."""
    if hasattr(given, "detach"):
        return given if given.is_floating_point() else given.double()
    array = np.asarray(given)
    return array if np.issubdtype(array.dtype, np.floating) else array.astype(np.float64)


def _to_probabilities(log_odds: Any) -> Any:
    return log_odds.sigmoid() if hasattr(log_odds, "detach") else expit(log_odds)


def _to_distributions(logits: Any) -> Any:
    return logits.softmax(-1) if hasattr(logits, "detach") else softmax(logits, axis=-1)


def read_log_odds(
    curves: Calibration, counts: Mapping[str, LabelCounts], names: Sequence[str], given: Any, bounds: Floats
) -> Any:
    """Return log-odds ``[…, predicates]`` of calibrated probabilities, less bounds; arrays and tensors alike."""
    own = [curves.own.get(name) for name in names]
    shares = np.array([0.0 if part is None else part.facts / (part.facts + curves.shrinkage) for part in own])
    parts = [curves.shared if part is None else part.curve for part in own]
    if isinstance(curves.shared, LogisticCurve):
        return _mix_logistic(curves.shared, [p for p in parts if isinstance(p, LogisticCurve)], shares, given, bounds)
    knots = [part for part in parts if isinstance(part, KnotCurve)]
    facts, atoms = (sum(part[position] for part in counts.values()) for position in (0, 1))
    # what no fact speaks against is not certain: bounds as Platt's targets are, for so many facts
    least = [
        (
            share / (counts[name].atoms - counts[name].facts + 2) + (1 - share) / (atoms - facts + 2),
            share / (counts[name].facts + 2) + (1 - share) / (facts + 2),
        )
        for name, share in zip(names, shares.tolist(), strict=True)
    ]
    return _mix_knots(curves.shared, knots, shares, given, bounds, least)


def _mix_logistic(
    shared: LogisticCurve, own: Sequence[LogisticCurve], shares: Floats, given: Any, bounds: Floats
) -> Any:
    """Return ``log P(true) − log P(false)`` of mixed logistic curves, without a probability that rounds to 1."""
    with np.errstate(divide="ignore"):
        columns = [
            np.array([curve.slope for curve in own]),
            np.array([curve.intercept for curve in own]),
            np.log(shares),
            np.log1p(-shares),
            bounds,
        ]
    if not hasattr(given, "detach"):
        margins = _add_logistic(given.astype(np.float64, copy=False), shared, columns, log_expit, np.logaddexp)
        return margins.astype(given.dtype, copy=False)
    import torch

    dtype = torch.promote_types(given.dtype, torch.float32)
    moved = [torch.as_tensor(column, dtype=dtype, device=given.device) for column in columns]
    margins = _add_logistic(given.to(dtype), shared, moved, torch.nn.functional.logsigmoid, torch.logaddexp)
    return margins.to(given.dtype)


def _add_logistic(logits: Any, shared: LogisticCurve, columns: Sequence[Any], log_sigmoid: Any, log_add: Any) -> Any:
    slope, intercept, share, rest, bound = columns
    own, other = slope * logits + intercept, shared.slope * logits + shared.intercept
    true = log_add(share + log_sigmoid(own), rest + log_sigmoid(other))
    false = log_add(share + log_sigmoid(-own), rest + log_sigmoid(-other))
    return true - false - bound


def _mix_knots(
    shared: KnotCurve,
    own: Sequence[KnotCurve],
    shares: Floats,
    given: Any,
    bounds: Floats,
    least: Sequence[tuple[float, float]],
) -> Any:
    is_tensor = hasattr(given, "detach")
    logits = given.double() if is_tensor else given.astype(np.float64, copy=False)
    mixed = []
    for position, (curve, share, bound, (low, high)) in enumerate(
        zip(own, shares.tolist(), bounds.tolist(), least, strict=True)
    ):
        column = logits[..., position]
        read = _interpolate if is_tensor else KnotCurve.probabilities
        value = (share * read(curve, column) + (1 - share) * read(shared, column)).clip(low, 1 - high)
        mixed.append((value.log() - (-value).log1p() if is_tensor else np.log(value) - np.log1p(-value)) - bound)
    if not is_tensor:
        return np.stack(mixed, -1).astype(given.dtype, copy=False)
    import torch

    return torch.stack(mixed, -1).to(given.dtype)


def _interpolate(curve: KnotCurve, scores: Any) -> Any:
    """Return the probability at each score of a tensor; its gradient is the slope of the line that a score is on."""
    if len(curve.scores) == 1:
        return scores * 0 + curve.values[0]
    import torch

    knots, values = scores.new_tensor(curve.scores), scores.new_tensor(curve.values)
    right = torch.searchsorted(knots, scores.detach().contiguous(), right=True).clip(1, len(curve.scores) - 1)
    part = ((scores - knots[right - 1]) / (knots[right] - knots[right - 1])).clip(0, 1)
    return values[right - 1] + part * (values[right] - values[right - 1])


def _read_counts(source: Json) -> LabelCounts:
    facts, atoms = source["facts"].integer(), source["atoms"].integer()
    if not 0 <= facts <= atoms:
        raise source.fault(f"must have 0 … atoms facts, got {facts} of {atoms}")
    return LabelCounts(facts, atoms)


def _read_probability(source: Json) -> float:
    value = read_finite(source)
    if not 0 < value < 1:
        raise source.expected("a probability between 0 and 1")
    return value


def _read_folds(source: Json) -> OutOfFold:
    scores = {
        name: BeforeAfter(read_finite(part["before"]), read_finite(part["after"]))
        for name, part in source["scores"].fields()
    }
    if source["folds"].integer() < 2:
        raise source["folds"].expected("a whole number of at least 2")
    return OutOfFold(source["folds"].integer(), scores)
