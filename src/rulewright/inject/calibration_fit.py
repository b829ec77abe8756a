"""How probable a network's labels are, and from which probability on they are taken: `calibrate`.

It fits to gold labels, for every predicate without classes, a curve from logits to probabilities, drawn to one that all
share (`rulewright.evaluate.calibration`), and thresholds at which a metric of the labels is highest
(`rulewright.evaluate.thresholds`); for every predicate with classes a temperature and biases.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax

from rulewright.checks import OneOf, Real, Whole, check_parameter
from rulewright.errors import DataError
from rulewright.evaluate.calibration import (
    CALIBRATION_METHOD,
    USUAL_SHRINKAGE,
    Calibration,
    CalibrationMethod,
)
from rulewright.evaluate.thresholds import CountMetric, choose_own_cuts, choose_shared_cut, f1_of_counts, list_cuts
from rulewright.inject.atoms.decoder_inputs import detach_values
from rulewright.inject.atoms.layout import Floats
from rulewright.inject.calibration import (
    BeforeAfter,
    ClassCurve,
    LabelCalibration,
    OutOfFold,
    read_log_odds,
)
from rulewright.inject.label_columns import (
    LabelColumn,
    LabelColumns,
    LabelCounts,
    judge_columns,
    read_columns,
    read_label_space,
)
from rulewright.inject.labelled_worlds import LabelledWorld, read_labelled_worlds
from rulewright.logic import RuleSource

Thresholds = Literal["shared", "own"]
MOST_LOG_ODDS = 30.0
"""Of a threshold, either way: it stays a probability between 0 and 1."""
_SLOPES = (0.0, 1000.0)  # of class curves; where classes are told apart without fail, the likeliest slope has no end


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

    def fit(self, columns: LabelColumns, left: Collection[str] = ()) -> _FittedLabels:
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

    def _choose_thresholds(self, columns: LabelColumns, log_odds: Mapping[str, Floats]) -> dict[str, float]:
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
    return np.asarray(read_log_odds(curves, counts, (name,), scores[:, None], np.zeros(1))[:, 0])


def _fit_classes(column: LabelColumn, shrinkage: float, *, with_biases: bool) -> ClassCurve:
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


class _OthersSay(NamedTuple):
    """What the curves of the other folds say of each atom that counts."""

    log_odds: dict[str, Floats]
    thresholds: dict[str, Floats]
    scores: dict[str, Floats]


def _hold_out(columns: LabelColumns, fitter: _LabelFitter, folds: int, left: Collection[str] = ()) -> _OthersSay:
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


def _compare_labels(columns: LabelColumns, held: _OthersSay, metric: CountMetric) -> dict[str, BeforeAfter]:
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
        predictions, gold, space=read_label_space(rules, relations, distinct), evidence=evidence, mask=mask
    )
    columns = read_columns(worlds, folds or 1, seed)
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
        judged, overall = judge_columns(columns, log_odds, scores)
    else:
        judged, overall = judge_columns(columns, held.log_odds, held.scores)
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
