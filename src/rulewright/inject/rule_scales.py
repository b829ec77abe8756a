"""How much fitted weights should cost a decoder: at several scales, labels of worlds that they were not fitted to.

Weights of one step of mean field say what each rule adds, but how far the best labels of all atoms together should
follow them is another question. `score_scales` decodes every world with the weights that were fitted without its fold,
times each scale, and chooses the simplest scale that is as good as the best: no rules, the weights as they are, the
best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, TypeAlias

import numpy as np
import torch

from rulewright.errors import DataError
from rulewright.evaluate.bootstrap import PairedDifference, paired_bootstrap
from rulewright.inject.atom_space import AtomSpace
from rulewright.inject.atoms.decoder import RuleDecoder
from rulewright.inject.labelled_worlds import LabelledWorld
from rulewright.inject.layer.layer import LogicLayer
from rulewright.inject.rule_messages import Floats, Ids, as_tensors, pick_rows, read_domains
from rulewright.logic import RuleSet

LabelMetric: TypeAlias = Callable[[Any, Any, Any], Any]
"""A figure of labels, the higher the better, from how many are correct, given and wanted; numbers or arrays."""

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

    ``difference`` is to the labels without rules, and ``error`` its standard error, by resampling worlds. The labels
    are those of a decoder, or of a ``"layer"`` of one iteration, which is shown beside them. ``note`` says why there
    are none.
    """

    injector: str
    scale: float
    score: float
    difference: float
    error: float
    is_chosen: bool = False
    note: str = ""

    def __str__(self) -> str:
        mark = "*" if self.is_chosen else " "
        name = "layer" if self.injector == "layer" else "no rules" if self.scale == 0 else f"× {self.scale:g}"
        figures = f"{self.score:.4f}  {self.difference:+.4f} ± {self.error:.4f}" if not self.note else self.note
        return f"{mark} {name:9} {figures}"


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

    def count(scale: float) -> Floats:
        return _count_labels(space, worlds, fold_of, weights, scale, threshold, time_limit)

    alone = count(0.0)
    counted: dict[float, Floats] = {0.0: alone}
    scores = [ScaleScore("decoder", 0.0, float(metric(*alone.sum(0))), 0.0, 0.0)]
    if not any(0 < weight < inf for own in weights for weight in own):
        return (replace(scores[0], is_chosen=True),)
    layer = compare(_count_labels(space, worlds, fold_of, weights, None, threshold, time_limit), alone)
    scores.append(ScaleScore("layer", 1.0, layer.first, layer.difference, (layer.high - layer.low) / 2))
    for scale in sorted({float(scale) for scale in scales} - {0.0}):
        try:
            counted[scale] = count(scale)
        except DataError as error:
            nothing = float("nan")
            scores.append(ScaleScore("decoder", scale, nothing, nothing, nothing, note=f"cannot be: {error}"))
            continue
        found = compare(counted[scale], alone)
        scores.append(ScaleScore("decoder", scale, found.first, found.difference, (found.high - found.low) / 2))
    best = max(counted, key=lambda scale: (float(metric(*counted[scale].sum(0))), -scale))
    chosen = best
    for scale in (1.0, 0.0):
        if scale in counted and scale != best:
            lost = compare(counted[best], counted[scale])
            if lost.difference <= (lost.high - lost.low) / 2:
                chosen = scale
    return tuple(
        replace(score, is_chosen=score.injector == "decoder" and score.scale == chosen and not score.note)
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
            rule_costs=[_multiply(weight, scale or 0.0) for weight in own],
            time_limit=time_limit,
        )
        layer = _make_layer(space, own) if scale is None else None
        start = 0
        for world in worlds:
            numbers = np.arange(start, start + world.rows)
            start += world.rows
            rows = np.flatnonzero(fold_of[numbers] == fold)
            if len(rows):
                logits, evidence, mask = pick_rows(world, rows)
                if layer is not None:
                    logits = _infer(layer, logits, evidence, mask)
                decoded = decode(logits, evidence, mask, threshold=threshold)
                counts[numbers[rows]] = _compare_labels(world, rows, decoded.labels)
    return counts


def _multiply(weight: float, scale: float) -> float:
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
