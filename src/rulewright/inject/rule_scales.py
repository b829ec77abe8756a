"""What breaking rules should cost a decoder: at several scales, labels of worlds that weights were not fitted to.

Weights of one step of mean field say what each rule adds to the log-odds of an atom, but how far the best labels of all
atoms together should follow rules is another question: a decoder weighs body against head by itself, so that a rule may
be worth keeping though it makes no atom more likely. `score_scales` decodes every world with the weights that were
fitted without its fold, and with the log-odds of the confidences that rules came with, times each scale; it chooses the
simplest that is as good as the best: no rules, the fitted weights as they are, the best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf, log
from typing import Any, Literal, TypeAlias

import numpy as np
import torch

from rulewright.errors import DataError
from rulewright.evaluate.bootstrap import PairedDifference, paired_bootstrap
from rulewright.inject.atom_space import AtomSpace
from rulewright.inject.atoms.decoder import RuleDecoder
from rulewright.inject.labelled_worlds import LabelledWorld
from rulewright.inject.layer.layer import LogicLayer
from rulewright.inject.rule_messages import Floats, Ids, as_tensors, pick_rows, read_domains
from rulewright.logic import Rule, RuleSet, Statement, WeightedFormula

Weighting: TypeAlias = Literal["fitted", "confidence"]
LabelMetric: TypeAlias = Callable[[Any, Any, Any], Any]
"""A figure of labels, the higher the better, from how many are correct, given and wanted; numbers or arrays."""

LEAST_DOUBT = 0.01
"""A confidence counts for no more than one minus this: 1 is said of rules that met no exception yet."""

RESAMPLES = 1000
ONE_ERROR = 0.6827
"""The share of resampled differences within one standard error."""


def f1_of_labels(correct: Any, given: Any, wanted: Any) -> Any:
    """Return ``2 · correct / (given + wanted)``, 0 where there are none.

    >>> float(f1_of_labels(2, 3, 5))
    0.5
    """
    return 2 * np.asarray(correct) / np.maximum(np.asarray(given) + np.asarray(wanted), 1)


@dataclass(frozen=True)
class ScaleScore:
    """What labels score out of fold where breaking a rule costs ``scale`` times its weight.

    The ``weighting`` says which weight: the one ``"fitted"``, or the log-odds of the ``"confidence"`` that the rule
    came with. ``difference`` is to the labels without rules, and ``error`` its standard error, by resampling worlds.
    The labels are those of a decoder, or of a ``"layer"`` of one iteration, which is shown beside them. ``note`` says
    why there are none.
    """

    injector: str
    scale: float
    score: float
    difference: float
    error: float
    is_chosen: bool = False
    note: str = ""
    weighting: Weighting = "fitted"

    def __str__(self) -> str:
        mark = "*" if self.is_chosen else " "
        name = "layer" if self.injector == "layer" else "no rules" if self.scale == 0 else f"× {self.scale:g}"
        name += " confidence" if self.weighting == "confidence" else ""
        figures = f"{self.score:.4f}  {self.difference:+.4f} ± {self.error:.4f}" if not self.note else self.note
        return f"{mark} {name:17} {figures}"


def weigh_confidence(statement: Statement) -> float:
    """Return the log-odds of a rule's confidence, 0 below ½; of a formula its weight, 0 of one that is to be learned.

    >>> from rulewright.logic import parse_rules
    >>> [round(weigh_confidence(rule), 2) for rule in parse_rules("0.9 :: b(X) :- a(X). b(X) :- c(X). hard !(a(X)).")]
    [2.2, 4.6, inf]
    """
    if isinstance(statement, Rule):
        confidence = min(max(statement.confidence, 0.5), 1 - LEAST_DOUBT)
        return log(confidence / (1 - confidence))
    if isinstance(statement, WeightedFormula) and statement.kind == "hard":
        return inf
    return max(0.0, getattr(statement, "weight", None) or 0.0)


def score_scales(
    space: AtomSpace,
    worlds: Sequence[LabelledWorld],
    fold_of: Ids,
    weights: Sequence[Sequence[float]],
    scales: Sequence[float],
    *,
    threshold: Any = 0.5,
    metric: LabelMetric = f1_of_labels,
    time_limit: float | None = None,
    seed: int = 0,
) -> tuple[ScaleScore, ...]:
    """Return what labels score at every scale, with the one that is chosen.

    ``weights`` are for each fold those of all statements, fitted without its worlds; those of hard formulas are
    infinite. A scale of 0 is always among the choices.
    """

    def compute(sums: Floats) -> dict[str, Floats]:
        return {"score": np.asarray(metric(*sums.T), dtype=np.float64)}

    def compare(counts: Floats, other: Floats) -> PairedDifference:
        return paired_bootstrap(
            counts, other, compute, resamples=RESAMPLES, confidence=ONE_ERROR, seed=seed
        )["score"]  # fmt: skip

    def count(key: tuple[Weighting, float]) -> Floats:
        return _count_labels(space, worlds, fold_of, by_weighting[key[0]], key[1], threshold, time_limit)

    by_weighting: dict[Weighting, Sequence[Sequence[float]]] = {
        "fitted": weights,
        "confidence": [[*map(weigh_confidence, space.rules)]] * len(weights),
    }
    nothing: tuple[Weighting, float] = ("fitted", 0.0)
    alone = count(nothing)
    counted = {nothing: alone}
    scores = [ScaleScore("decoder", 0.0, float(metric(*alone.sum(0))), 0.0, 0.0)]
    for weighting, of_folds in by_weighting.items():
        if not any(0 < weight < inf for own in of_folds for weight in own):
            continue
        if weighting == "fitted":
            layer = compare(_count_labels(space, worlds, fold_of, weights, None, threshold, time_limit), alone)
            scores.append(ScaleScore("layer", 1.0, layer.first, layer.difference, (layer.high - layer.low) / 2))
        for scale in sorted({float(scale) for scale in scales} - {0.0}):
            try:
                own = counted[weighting, scale] = count((weighting, scale))
            except DataError as error:
                none = float("nan")
                note = f"cannot be: {error}"
                scores.append(ScaleScore("decoder", scale, none, none, none, note=note, weighting=weighting))
                continue
            found = compare(own, alone)
            width = (found.high - found.low) / 2
            scores.append(ScaleScore("decoder", scale, found.first, found.difference, width, weighting=weighting))
    best = max(counted, key=lambda key: (float(metric(*counted[key].sum(0))), -key[1]))
    chosen = best
    simpler: list[tuple[Weighting, float]] = [("fitted", 1.0), nothing]
    for key in simpler:
        if key in counted and key != best:
            lost = compare(counted[best], counted[key])
            if lost.difference <= (lost.high - lost.low) / 2:
                chosen = key
    return tuple(
        replace(score, is_chosen=score.injector == "decoder" and (score.weighting, score.scale) == chosen)
        for score in scores
    )


def _count_labels(
    space: AtomSpace,
    worlds: Sequence[LabelledWorld],
    fold_of: Ids,
    weights: Sequence[Sequence[float]],
    scale: float | None,
    threshold: Any,
    time_limit: float | None,
) -> Floats:
    """Return how many labels are correct, given and wanted in each world, ``[worlds, 3]``.

    Without a scale, they are those of a layer, of which a decoder only takes what hard formulas allow.
    """
    counts = np.zeros((len(fold_of), 3))
    for fold, own in enumerate(weights):
        decode = RuleDecoder(
            space.rules,
            relations=space.relations,
            domains=read_domains(space),
            distinct=space.distinct,
            rule_costs=[scale_cost(weight, scale or 0.0) for weight in own],
            time_limit=time_limit,
        )
        layer = _make_layer(space, own) if scale is None else None
        known: dict[int, Any] = {}  # what was decoded: parts of a graph share what was given
        start = 0
        for world in worlds:
            numbers = np.arange(start, start + world.rows)
            start += world.rows
            rows = np.flatnonzero(fold_of[numbers] == fold)
            if len(rows):
                logits, evidence, mask = pick_rows(world, rows)
                if layer is not None:
                    logits = _infer(layer, logits, evidence, mask)
                key = id(world.given)
                if len(rows) < world.rows or key not in known:
                    labels = decode(logits, evidence, mask, threshold=threshold).labels
                    known |= {key: labels} if len(rows) == world.rows else {}
                else:
                    labels = known[key]
                counts[numbers[rows]] = _compare_labels(world, rows, labels)
    return counts


def scale_cost(weight: float, scale: float) -> float:
    """Return ``weight · scale``: 0 of weight 0 at any scale, and infinite of a statement that must hold.

    >>> scale_cost(2.0, 0.5), scale_cost(0.0, inf), scale_cost(inf, 0.0)
    (1.0, 0.0, inf)
    """
    return weight * scale if weight and (scale or weight < inf) else weight


def _make_layer(space: AtomSpace, weights: Sequence[float]) -> LogicLayer | None:
    """Return a layer with the statements that have a weight, but hard ones."""
    kept = [index for index, weight in enumerate(weights) if 0 < weight < inf]
    rules = RuleSet([space.rules[index] for index in kept], predicates=space.predicates.values())
    return LogicLayer(
        rules.with_weights([weights[index] for index in kept]),
        read_domains(space),
        1,
        relations=space.relations,
        distinct=space.distinct,
        weights="annotated",
    ) if kept else None  # fmt: skip


def _infer(layer: LogicLayer, logits: Any, evidence: Any, mask: Any) -> Any:
    """Return what a layer makes of arrays, as arrays."""
    with torch.no_grad():
        inferred = layer(as_tensors(logits), as_tensors(evidence), as_tensors(mask))
    return {name: part.numpy() for name, part in inferred.items()} if isinstance(inferred, dict) else inferred.numpy()


def _compare_labels(world: LabelledWorld, rows: Ids, labels: Any) -> Floats:
    """Return how many labels of some rows are correct, given and wanted; of atoms with classes each has one."""
    totals = np.zeros((len(rows), 3))
    for position, name in enumerate(world.logits):
        found = labels[..., position] if world.space.relations is not None else labels[name]
        gold, counted = world.gold[name][rows], world.counted[name][rows]
        over = tuple(range(1, counted.ndim))
        if world.has_classes(name):
            parts = ((found == gold) & counted, counted, counted)
        else:
            parts = (found & gold & counted, found & counted, gold & counted)
        totals += np.stack([part.sum(over) for part in parts], 1)
    return totals
