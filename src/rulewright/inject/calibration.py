"""Honest scores to start from: how probable a network's labels are, and from which probability on they are taken.

`calibrate` fits to gold labels, for every predicate without classes, a curve from logits to probabilities, drawn to one
that all share (`rulewright.evaluate.calibration`), and thresholds at which a metric of the labels is highest
(`rulewright.evaluate.thresholds`); for every predicate with classes a temperature and biases. Rules then weigh what the
network knows, not how loudly it says so: ``decoder(calibration.margins(logits))``, ``layer(calibration.logits(x))``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isnan, log
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import expit, log_expit, log_softmax, softmax

from rulewright.checks import OneOf, Real, Whole, check_parameter
from rulewright.errors import DataError, unknown_name
from rulewright.evaluate.calibration import (
    CALIBRATION_METHOD,
    USUAL_SHRINKAGE,
    Calibration,
    CalibrationMethod,
    Judgement,
    KnotCurve,
    LogisticCurve,
    Reliability,
    check_format,
    measure_reliability,
    plot_reliability,
    read_finite,
)
from rulewright.evaluate.thresholds import CountMetric, choose_own_cuts, choose_shared_cut, f1_of_counts, list_cuts
from rulewright.files import write_text
from rulewright.inject.atom_space import AtomSpace
from rulewright.inject.atoms.decoder_inputs import detach_values
from rulewright.inject.atoms.layout import Floats, Labels
from rulewright.inject.labelled_worlds import LabelledWorld, read_labelled_worlds
from rulewright.io.json_shape import Json, load
from rulewright.logic import RuleSet, RuleSource
from rulewright.tables import html_table

Thresholds = Literal["shared", "own"]
MOST_LOG_ODDS = 30.0
"""Of a threshold, either way: it stays a probability between 0 and 1."""
_FORMAT = "rulewright label calibration 1"
_SLOPES = (0.0, 1000.0)  # of class curves; where classes are told apart without fail, the likeliest slope has no end


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


class LabelCounts(NamedTuple):
    """How many atoms of a predicate count, and how many of them are facts (with classes: not of the first one)."""

    facts: int
    atoms: int


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
        return _read_log_odds(self.curves, self.counts, names, given, bounds)

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
        space = _read_space(rules, self.relations, distinct)
        columns = _read_columns(read_labelled_worlds(predictions, gold, space=space, evidence=evidence, mask=mask))
        for name in (*columns.truths, *columns.classes):
            if name not in self.counts:
                raise unknown_name("predicate", name, self.counts)
        log_odds = {
            name: self._log_odds((name,), part.scores[:, None], None)[:, 0] for name, part in columns.truths.items()
        }
        scores = {name: self.classes[name].scores(part.scores) for name, part in columns.classes.items()}
        return _judge(columns, log_odds, scores)[1]

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


def _read_log_odds(
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


class _LabelColumn(NamedTuple):
    """What counts of a predicate: logits (of classes ``[atoms, K]``), truths or class indices, and folds."""

    scores: Floats
    gold: npt.NDArray[Any]
    fold: npt.NDArray[np.int64]

    def take(self, rows: Labels) -> _LabelColumn:
        return _LabelColumn(self.scores[rows], self.gold[rows], self.fold[rows])


class _LabelColumns(NamedTuple):
    """All predicates, without and with classes."""

    truths: Mapping[str, _LabelColumn]
    classes: Mapping[str, _LabelColumn]

    def leave(self, fold: int) -> _LabelColumns:
        return _LabelColumns(
            *({name: column.take(column.fold != fold) for name, column in part.items()} for part in self)
        )

    def has_facts(self) -> bool:
        return not self.truths or any(column.gold.any() for column in self.truths.values())

    def count_facts(self) -> dict[str, LabelCounts]:
        return {
            name: LabelCounts(int((column.gold != 0).sum()), len(column.gold))
            for part in self
            for name, column in part.items()
        }


def _read_columns(worlds: Sequence[LabelledWorld], folds: int = 1, seed: int = 0) -> _LabelColumns:
    """Collect the atoms that count, predicate by predicate, world by world; rows are in one fold as a whole.

    Where there are fewer rows than folds, atoms are divided by their first argument instead.
    """
    rows = sum(world.rows for world in worlds)
    random = np.random.default_rng(seed)
    fold_of_row = random.permutation(max(rows, folds)) % folds
    truths: dict[str, _LabelColumn] = {}
    classes: dict[str, _LabelColumn] = {}
    for name in worlds[0].logits:
        parts: list[_LabelColumn] = []
        start = 0
        for world in worlds:
            counted, gold = world.counted[name], world.gold[name]
            fold = fold_of_row[start : start + world.rows]
            start += world.rows
            fold = fold.reshape(-1, *(1,) * (counted.ndim - 1))
            if rows < folds and counted.ndim > 1:
                order = np.random.default_rng([seed, start]).permutation(counted.shape[1]) % folds
                fold = order.reshape(1, -1, *(1,) * (counted.ndim - 2))
            fold = np.broadcast_to(fold, counted.shape)
            parts.append(_LabelColumn(world.logits[name][counted], gold[counted], fold[counted]))
        column = _LabelColumn(*(np.concatenate(part) for part in zip(*parts, strict=True)))
        (classes if worlds[0].has_classes(name) else truths)[name] = column
    return _LabelColumns(truths, classes)


class _FittedLabels(NamedTuple):
    curves: Calibration | None
    classes: Mapping[str, ClassCurve]
    thresholds: Mapping[str, float]
    """Log-odds."""


@dataclass(frozen=True)
class _LabelFitter:
    method: CalibrationMethod
    shrinkage: float
    thresholds: Thresholds | None
    metric: CountMetric

    def fit(self, columns: _LabelColumns, left: Collection[str] = ()) -> _FittedLabels:
        """Fit curves, biases and thresholds; those of predicates that are ``left`` keep labels as they were."""
        classes = {
            name: _fit_classes(column, self.shrinkage, with_biases=name not in left)
            for name, column in columns.classes.items()
        }
        if not columns.truths:
            return _FittedLabels(None, classes, {})
        names = list(columns.truths)
        sizes = [len(column.gold) for column in columns.truths.values()]
        curves = Calibration.fit(
            names,
            np.repeat(np.arange(len(names)), sizes),
            np.concatenate([column.scores for column in columns.truths.values()]),
            np.concatenate([column.gold for column in columns.truths.values()]),
            method=self.method,
            shrinkage=self.shrinkage,
        )
        fitted = _FittedLabels(curves, classes, {})
        counts = columns.count_facts()
        if names[0] in left:
            return fitted._replace(
                thresholds={name: float(_apply_curves(curves, counts, name, np.zeros(1))[0]) for name in names}
            )
        log_odds = {name: _apply_curves(curves, counts, name, part.scores) for name, part in columns.truths.items()}
        return fitted._replace(thresholds=self._choose_thresholds(columns, log_odds))

    def _choose_thresholds(self, columns: _LabelColumns, log_odds: Mapping[str, Floats]) -> dict[str, float]:
        names = list(log_odds)
        if self.thresholds is None:
            return dict.fromkeys(names, 0.0)
        gold = [columns.truths[name].gold for name in names]
        shared = choose_shared_cut(np.concatenate(list(log_odds.values())), np.concatenate(gold), self.metric)
        bounds = [shared] * len(names)
        if self.thresholds == "own":
            cuts = [list_cuts(log_odds[name], truth) for name, truth in zip(names, gold, strict=True)]
            own = choose_own_cuts(cuts, bounds, self.metric)
            shares = [cut.wanted / (cut.wanted + self.shrinkage) if self.shrinkage else 1.0 for cut in cuts]
            bounds = [share * cut + (1 - share) * shared for share, cut in zip(shares, own, strict=True)]
        return {name: min(max(bound, -MOST_LOG_ODDS), MOST_LOG_ODDS) for name, bound in zip(names, bounds, strict=True)}


def _apply_curves(curves: Calibration, counts: Mapping[str, LabelCounts], name: str, scores: Floats) -> Floats:
    return np.asarray(_read_log_odds(curves, counts, (name,), scores[:, None], np.zeros(1))[:, 0])


def _fit_classes(column: _LabelColumn, shrinkage: float, *, with_biases: bool) -> ClassCurve:
    """Minimise ``−Σ log softmax(slope · logits + biases)[gold] + shrinkage / 2 · ((slope − 1)² + Σ biases²)``."""
    atoms, classes = column.scores.shape
    start = np.append(1.0, np.zeros(classes))
    if not atoms:
        return ClassCurve(1.0, (0.0,) * classes)
    wanted = np.bincount(column.gold, minlength=classes)
    chosen = column.scores[np.arange(atoms), column.gold].sum()

    def loss(parameters: Floats) -> tuple[float, Floats]:
        scores = log_softmax(parameters[0] * column.scores + parameters[1:], axis=1)
        given = np.exp(scores)
        moved = parameters - start
        value = -scores[np.arange(atoms), column.gold].sum() + shrinkage / 2 * (moved**2).sum()
        by_slope = (given * column.scores).sum() - chosen
        gradient = np.append(by_slope, given.sum(0) - wanted) + shrinkage * moved
        return float(value / atoms), gradient / atoms

    free = (None, None) if with_biases else (0.0, 0.0)
    fitted = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[_SLOPES, *[free] * classes])
    biases = fitted.x[1:] - fitted.x[1:].mean()
    return ClassCurve(float(fitted.x[0]), tuple(biases.tolist()))


def _judge(
    columns: _LabelColumns, log_odds: Mapping[str, Floats], scores: Mapping[str, Floats]
) -> tuple[dict[str, Judgement], Judgement]:
    """Return how well probabilities hold before and after, by predicate and of all; of classes, the likeliest one."""
    before: dict[str, tuple[Floats, Labels]] = {}
    after: dict[str, tuple[Floats, Labels]] = {}
    for name, column in columns.truths.items():
        before[name], after[name] = ((expit(part), column.gold) for part in (column.scores, log_odds[name]))
    for name, column in columns.classes.items():
        before[name], after[name] = (
            (softmax(part, axis=1).max(1), part.argmax(1) == column.gold) for part in (column.scores, scores[name])
        )
    judged = {
        name: Judgement(measure_reliability(*before[name]), measure_reliability(*after[name]))
        for name in before
        if len(before[name][0])
    }
    return judged, Judgement(
        *(
            measure_reliability(*(np.concatenate(part) for part in zip(*parts.values(), strict=True)))
            for parts in (before, after)
        )
    )


def _read_space(rules: RuleSource | None, relations: Sequence[str] | None, distinct: bool | None) -> AtomSpace | None:
    if rules is None and relations is None:
        return None
    return AtomSpace(RuleSet() if rules is None else rules, relations=relations, distinct=distinct)


class _OthersSay(NamedTuple):
    """What the curves of the other folds say of each atom that counts."""

    log_odds: dict[str, Floats]
    thresholds: dict[str, Floats]
    scores: dict[str, Floats]


def _hold_out(columns: _LabelColumns, fitter: _LabelFitter, folds: int, left: Collection[str] = ()) -> _OthersSay:
    log_odds = {name: np.empty(len(column.gold)) for name, column in columns.truths.items()}
    thresholds = {name: np.empty(len(column.gold)) for name, column in columns.truths.items()}
    scores = {name: np.empty(column.scores.shape) for name, column in columns.classes.items()}
    for fold in range(folds):
        others = columns.leave(fold)
        fitted, counts = fitter.fit(others, left), others.count_facts()
        for name, column in columns.truths.items():
            rows = column.fold == fold
            assert fitted.curves is not None
            log_odds[name][rows] = _apply_curves(fitted.curves, counts, name, column.scores[rows])
            thresholds[name][rows] = fitted.thresholds[name]
        for name, column in columns.classes.items():
            rows = column.fold == fold
            scores[name][rows] = fitted.classes[name].scores(column.scores[rows])
    return _OthersSay(log_odds, thresholds, scores)


def _compare_labels(columns: _LabelColumns, held: _OthersSay, metric: CountMetric) -> dict[str, BeforeAfter]:
    """Return the metric of all labels without classes, and the accuracy of each predicate with classes."""
    compared: dict[str, BeforeAfter] = {}
    if columns.truths:
        gold = [column.gold for column in columns.truths.values()]
        labels = (
            [column.scores > 0 for column in columns.truths.values()],
            [held.log_odds[name] > held.thresholds[name] for name in columns.truths],
        )
        values = []
        for part in labels:
            correct = sum(int((given & truth).sum()) for given, truth in zip(part, gold, strict=True))
            counts = correct, sum(int(given.sum()) for given in part), sum(int(truth.sum()) for truth in gold)
            values.append(float(np.asarray(metric(*(np.array([count]) for count in counts)))[0]))
        name = "F1" if metric is f1_of_counts else getattr(metric, "__name__", "metric")
        compared[name] = BeforeAfter(*values)
    for name, column in columns.classes.items():
        if len(column.gold):
            compared[_accuracy_of(name)] = BeforeAfter(
                *(float((part.argmax(1) == column.gold).mean()) for part in (column.scores, held.scores[name]))
            )
    return compared


def _accuracy_of(name: str) -> str:
    return f"accuracy of {name}"


def _shape_margins(
    calibration: LabelCalibration, worlds: Sequence[LabelledWorld], held: _OthersSay, *, is_list: bool
) -> Any:
    """Return out-of-fold margins in the structure of the predictions."""
    found: dict[str, Floats] = {name: part - held.thresholds[name] for name, part in held.log_odds.items()}
    found.update(held.scores)
    starts = dict.fromkeys(found, 0)
    shaped: list[Any] = []
    for world in worlds:
        margins = calibration.margins(detach_values(world.given))
        parts = margins if isinstance(margins, Mapping) else world.space.split_relations(margins)
        for name, part in parts.items():
            counted = world.counted[name]
            count = int(counted.sum())
            part.reshape(world.logits[name].shape)[counted] = found[name][starts[name] : starts[name] + count]
            starts[name] += count
        shaped.append(margins)
    return shaped if is_list else shaped[0]


def calibrate(
    predictions: Any,
    gold: Any,
    *,
    relations: Sequence[str] | None = None,
    rules: RuleSource | None = None,
    evidence: Any = None,
    mask: Any = None,
    distinct: bool | None = None,
    method: CalibrationMethod = "platt",
    shrinkage: float = USUAL_SHRINKAGE,
    thresholds: Thresholds | None = "shared",
    metric: Literal["f1"] | CountMetric = "f1",
    folds: int | None = 5,
    seed: int = 0,
) -> LabelCalibration:
    """Fit curves and thresholds to what a network says of worlds with gold labels that it was not trained on.

    Where probabilities are right, micro F1 is highest with one threshold for all, half the F1 that is reached; those of
    each relation follow chance where facts are few. Defaults are those that did best on worlds that are not seen, or
    nearly as well as the best, with few facts and many (``benchmarks/label_calibration.py``).

    Args:
        predictions: logits as an injector takes them (`rulewright.inject.atom_space`), or a list of such calls.
        gold: labels of the same structure: truth values, or class indices where a predicate has classes.
        relations: the names of the R relations of logits ``[*batch, n, n, R]``; an entity has no label with itself.
        rules: rules or declarations that say types and classes (``"predicate tag(token) in {b, i, o}."``), which a
            batch and masks need; else every dimension of gold labels is an argument.
        evidence, mask: as an injector takes them, one or one for each call; what is observed or padding is not counted.
        distinct: whether an atom of an entity with itself is left out; by default with ``relations``.
        method: ``"platt"``, logistic curves, or ``"isotonic"``, monotone ones with straight lines between knots.
        shrinkage: the number of facts at which a relation's own curve (or threshold) counts for a half.
        thresholds: ``"shared"``, one probability for all, ``"own"``, one for each relation, drawn to the shared one, or
            None for a half.
        metric: what thresholds make highest: micro F1 of all relations, or a function of the arrays ``(correct, given,
            wanted)``, such as ``lambda correct, given, wanted: 5 * correct / (given + 4 * wanted)``.
        folds: curves and thresholds are judged on so many parts of the worlds, each by those fitted to the others;
            worlds and rows of a batch stay whole, or, where they are fewer, all atoms of a first argument. None for no
            judgement.

    >>> random = np.random.default_rng(0)
    >>> log_odds = random.normal(-2, 2, (40, 5, 5, 2))
    >>> gold = random.random(log_odds.shape) < 1 / (1 + np.exp(-log_odds))
    >>> calibration = calibrate(3 * log_odds - 1, gold, relations=["likes", "knows"])
    >>> calibration.kept, calibration.overall.after.error < calibration.overall.before.error / 2
    (True, True)
    >>> margins = calibration.margins(np.full((5, 5, 2), -1.0))  # 0 log-odds, and F1 asks for less
    >>> bool((margins > 0).all())
    True
    """
    check_parameter("method", method, CALIBRATION_METHOD)
    check_parameter("shrinkage", shrinkage, Real(0))
    check_parameter("thresholds", thresholds, OneOf("shared", "own", None))
    check_parameter("folds", folds, Whole(2, optional=True))
    check_parameter("seed", seed, Whole(0))
    if metric != "f1" and not callable(metric):
        raise DataError(f"metric must be 'f1' or a function of (correct, given, wanted), got {metric!r}")
    chosen: CountMetric = f1_of_counts if metric == "f1" else metric
    worlds = read_labelled_worlds(
        predictions, gold, space=_read_space(rules, relations, distinct), evidence=evidence, mask=mask
    )
    columns = _read_columns(worlds, folds or 1, seed)
    if not any(len(column.gold) for part in columns for column in part.values()):
        raise DataError("no atom counts: all are observed, padding or of an entity with itself")
    if not columns.has_facts():
        raise DataError("none of the gold labels is true, so there is no curve to fit")
    fitter = _LabelFitter(method, float(shrinkage), thresholds, chosen)
    notes: list[str] = []
    held: _OthersSay | None = None
    compared: dict[str, BeforeAfter] = {}
    left: list[str] = []
    if folds is not None and not all(columns.leave(fold).has_facts() for fold in range(folds)):
        notes.append(f"too few facts for {folds} folds, so nothing is judged out of fold")
    elif folds is not None:
        held = _hold_out(columns, fitter, folds)
        compared = _compare_labels(columns, held, chosen)
        for figure, part in compared.items():
            if part.after < part.before:
                names = [name for name in columns.classes if figure == _accuracy_of(name)] or list(columns.truths)
                is_asked = names[0] in columns.truths and thresholds is None
                left += [] if is_asked else names
                end = "; choose thresholds" if is_asked else ", so labels stay as they were"
                notes.append(
                    f"calibrated labels are worse out of fold ({figure} {part.before:.4f} → {part.after:.4f}){end}"
                )
        if left:
            held = _hold_out(columns, fitter, folds, left)
    fitted = fitter.fit(columns, left)
    counts = columns.count_facts()
    if held is None:
        log_odds = {
            name: _apply_curves(fitted.curves, counts, name, column.scores)
            for name, column in columns.truths.items()
            if fitted.curves is not None
        }
        scores = {name: fitted.classes[name].scores(column.scores) for name, column in columns.classes.items()}
        judged, overall = _judge(columns, log_odds, scores)
    else:
        judged, overall = _judge(columns, held.log_odds, held.scores)
    calibration = LabelCalibration(
        None if relations is None or not set(relations) <= counts.keys() else tuple(relations),
        fitted.curves,
        fitted.classes,
        {name: float(expit(bound)) for name, bound in fitted.thresholds.items()},
        counts,
        judged,
        overall,
        None,
        not left,
        "; ".join(notes),
    )
    if held is None or folds is None:
        return calibration
    margins = _shape_margins(calibration, worlds, held, is_list=isinstance(predictions, Sequence))
    return replace(calibration, out_of_fold=OutOfFold(folds, compared, margins))


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
