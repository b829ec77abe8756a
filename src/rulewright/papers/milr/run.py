"""MILR's tables: an extractor alone, trained with the rules, decoded with them, and both.

A run trains twice, with and without the consistency loss, keeps what the networks say, and decodes it with every
τ and k of the grid. Threshold, τ and k are chosen on the selection documents, τ and k by the mean F1 of both networks:
the selection documents are few, and one network alone would choose by chance. The test documents are scored once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rulewright.evaluate.extraction import evaluate_extraction
from rulewright.inject import ConsistencyLoss
from rulewright.io.docred import Prediction
from rulewright.papers.catalogue import Experiment
from rulewright.papers.milr.decoding import (
    DecodingChoice,
    against,
    by_distance,
    cases,
    compare_methods,
    decode,
    errors,
    labelled,
    scores,
    sizes,
    thresholded,
)
from rulewright.papers.milr.predictions import Predictions, best_threshold, predict
from rulewright.papers.milr.tasks import MilrTask, load_task
from rulewright.papers.milr.training import build_model, default_settings, train_extractor
from rulewright.training.loop import TrainingProgress

Tell = Callable[[str], None]


@dataclass(frozen=True)
class TrainedExtractor:
    """What a network says of the selection and test documents, with the time it took to train."""

    selection: Predictions
    test: Predictions
    parameters: int
    epochs: int
    seconds_per_epoch: float


def run(experiment: Experiment, *, seed: int, folder: Path, tell: Tell, workers: int = 1) -> dict[str, Any]:
    """Run an experiment, or go on with it where it was stopped, and return its figures."""
    settings: Any = experiment.settings
    task = load_task(settings["set"], min_confidence=settings["min_confidence"])
    tell(f"{len(task.training)} documents to train on, {len(task.rules)} rules")
    found: dict[str, Any] = {
        "experiment": experiment.name,
        "title": experiment.title,
        "seed": seed,
        "documents": [len(task.training), len(task.selection), len(task.test)],
        "sizes": {name: sizes(getattr(task, name)) for name in ("training", "selection", "test")},
        "rules": len(task.rules),
    }
    rows: dict[str, Any] = {}
    predicted: dict[str, list[Prediction]] = {}
    networks = [_trained(task, settings, seed, folder, with_loss, tell) for with_loss in (False, True)]
    thresholds = [best_threshold(each.selection, task.selection) for each in networks]
    grids = [
        _selection_scores(task, settings, each.selection, chosen.threshold, workers)
        for each, chosen in zip(networks, thresholds, strict=True)
    ]
    place = int(np.argmax(np.mean([[f1 for _, f1 in grid] for grid in grids], axis=0)))  # of equals, the first
    found["grid"] = [
        {"tau": choice.tau, "k": choice.k, "decoder": f1, "both": other}
        for (choice, f1), (_, other) in zip(*grids, strict=True)
    ]
    for with_loss, trained, chosen, grid in zip((False, True), networks, thresholds, grids, strict=True):
        plain, decoded = ("loss", "both") if with_loss else ("plain", "decoder")
        predicted[plain] = thresholded(trained.test, chosen.threshold)
        rows[plain] = {
            "threshold": chosen.threshold,
            "selection_f1": chosen.f1,
            "parameters": trained.parameters,
            "epochs": trained.epochs,
            "seconds_per_epoch": round(trained.seconds_per_epoch, 1),
        }
        choice, selection_f1 = grid[place]
        tell(f"{decoded}: τ = {choice.tau}, k = {choice.k} give F1 {selection_f1:.4f} on the selection documents")
        started = time.perf_counter()
        results = decode(task, trained.test.documents, choice, workers=workers)
        seconds = time.perf_counter() - started
        documents = trained.test.documents
        predicted[decoded] = labelled(documents, [each.labels for each in results], task.relations)
        rows[decoded] = {
            "threshold": choice.threshold,
            "tau": choice.tau,
            "k": choice.k,
            "selection_f1": selection_f1,
            "changes": sum(len(each.changes) for each in results),
            "constraints": sum(each.constraints for each in results),
            "optimal": all(each.optimal for each in results),
            "errors": errors(task, results),
            "decoding_seconds": seconds,
            # τ and k move labels too: this is what they do alone
            "without_rules": scores(task, labelled(documents, [each.before for each in results], task.relations)),
        }
        if with_loss:
            tell("the ways to decode, side by side")
            found |= {"methods": compare_methods(task, trained.test, choice), "cases": cases(task, results)}
    for name, facts in predicted.items():
        rows[name] |= scores(task, facts) | {"by_distance": by_distance(task, facts)}
    return found | {
        "rows": rows,
        "against_plain": {
            name: against(task, predicted[name], predicted["plain"]) for name in ("loss", "decoder", "both")
        },
        "paper": settings.get("paper"),
    }


def _trained(
    task: MilrTask, settings: Mapping[str, Any], seed: int, folder: Path, with_loss: bool, tell: Tell
) -> TrainedExtractor:
    place = folder / ("loss" if with_loss else "plain")
    place.mkdir(parents=True, exist_ok=True)
    model = build_model(settings["backbone"], task.training, relations=task.relations, seed=seed)
    options = replace(
        default_settings(settings["backbone"]),
        epochs=settings["epochs"],
        seed=seed,
        extra_weight=settings["loss_weight"] if with_loss else 0.0,
    )

    def report(progress: TrainingProgress) -> None:
        if progress.record is not None:
            losses = ", ".join(f"{name} {value:.4f}" for name, value in progress.losses.items())
            best = "" if progress.best_score is None else f", best F1 {progress.best_score:.4f}"
            left = f"{progress.seconds_left:,.0f} s left"
            tell(f"{place.name}: epoch {progress.epoch} of {progress.epochs}, {losses}{best}, {left}")

    result = train_extractor(
        model,
        task.training,
        settings=options,
        score=lambda each: best_threshold(predict(each, task.selection), task.selection).f1,
        extra=_consistency_loss(task, settings) if with_loss else None,
        folder=place,
        progress=report,
    )
    kept = {}
    for name, documents in (("selection", task.selection), ("test", task.test)):
        file = place / f"{name}.npz"
        if not file.exists():
            predict(model, documents).save(file)
        kept[name] = Predictions.load(file)
    return TrainedExtractor(
        kept["selection"],
        kept["test"],
        sum(weights.numel() for weights in model.parameters()),
        len(result.history),
        float(np.mean([epoch.seconds for epoch in result.history])),
    )


def _consistency_loss(task: MilrTask, settings: Mapping[str, Any]) -> ConsistencyLoss:
    eta = {int(length): slack for length, slack in settings["loss_eta"].items()}
    return ConsistencyLoss(task.rules, relations=task.relations, form=settings["loss_form"], eta=eta)


def _selection_scores(
    task: MilrTask, settings: Mapping[str, Any], predictions: Predictions, threshold: float, workers: int
) -> list[tuple[DecodingChoice, float]]:
    """Return F1 on the selection documents for every τ and k of the grid."""
    found = []
    documents = predictions.documents
    for tau in settings["taus"]:
        for k in settings["ks"]:
            choice = DecodingChoice(threshold, tau, k)
            results = decode(task, documents, choice, workers=workers)
            facts = labelled(documents, [each.labels for each in results], task.relations)
            found.append((choice, evaluate_extraction(facts, task.selection, relations=task.relations).f1))
    return found
