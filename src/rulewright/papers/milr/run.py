"""MILR's tables: an extractor alone, trained with the rules, decoded with them, and both.

A run trains twice, with and without the consistency loss, keeps what the networks say, and decodes it with every
τ and k of the grid. Threshold, τ and k are chosen on the selection documents, τ and k by the mean F1 of both networks:
the selection documents are few, and one network alone would choose by chance. The test documents are scored once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from rulewright.evaluate.extraction import evaluate_extraction
from rulewright.inject import ConsistencyLoss, calibrate
from rulewright.io.docred import Prediction
from rulewright.papers.catalogue import Experiment
from rulewright.papers.milr.decoding import (
    DecodingChoice,
    choose_cases,
    compare_facts,
    compare_methods,
    count_documents,
    count_errors,
    decode,
    gold_labels,
    labels_to_facts,
    score_by_distance,
    score_facts,
    threshold_facts,
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


def run(experiment: Experiment, *, seed: int, folder: Path, tell: Tell) -> dict[str, Any]:
    """Run an experiment, or go on with it where it was stopped, and return its figures."""
    settings: Any = experiment.settings
    task = load_task(settings["set"], min_confidence=settings["min_confidence"])
    tell(f"{len(task.training)} documents to train on, {len(task.rules)} rules")
    figures: dict[str, Any] = {
        "experiment": experiment.name,
        "title": experiment.title,
        "seed": seed,
        "documents": [len(task.training), len(task.selection), len(task.test)],
        "sizes": {name: count_documents(getattr(task, name)) for name in ("training", "selection", "test")},
        "rules": len(task.rules),
    }
    rows: dict[str, Any] = {}
    predicted: dict[str, list[Prediction]] = {}
    networks = [_train(task, settings, seed, folder, with_loss, tell) for with_loss in (False, True)]
    thresholds = [best_threshold(network.selection, task.selection) for network in networks]
    grids = [
        _score_grid(task, settings, network.selection, chosen.threshold, tell)
        for network, chosen in zip(networks, thresholds, strict=True)
    ]
    best = int(np.argmax(np.mean([[f1 for _, f1 in grid] for grid in grids], axis=0)))  # of equals, the first
    figures["grid"] = [
        {"tau": choice.tau, "k": choice.k, "decoder": f1, "both": other}
        for (choice, f1), (_, other) in zip(*grids, strict=True)
    ]
    for with_loss, trained, chosen, grid in zip((False, True), networks, thresholds, grids, strict=True):
        plain, decoded = ("loss", "both") if with_loss else ("plain", "decoder")
        predicted[plain] = threshold_facts(trained.test, chosen.threshold)
        rows[plain] = {
            "threshold": chosen.threshold,
            "selection_f1": chosen.f1,
            "parameters": trained.parameters,
            "epochs": trained.epochs,
            "seconds_per_epoch": round(trained.seconds_per_epoch, 1),
            # what a better threshold does alone must not be credited to rules
            "calibrated": _score_calibrated(task, trained),
        }
        choice, selection_f1 = grid[best]
        tell(f"{decoded}: τ = {choice.tau}, k = {choice.k} give F1 {selection_f1:.4f} on the selection documents")
        started = time.perf_counter()
        results = decode(task, trained.test.documents, choice)
        seconds = time.perf_counter() - started
        documents = trained.test.documents
        predicted[decoded] = labels_to_facts(documents, [result.labels for result in results], task.relations)
        rows[decoded] = {
            "threshold": choice.threshold,
            "tau": choice.tau,
            "k": choice.k,
            "selection_f1": selection_f1,
            "changes": sum(len(result.changes) for result in results),
            "constraints": sum(result.constraints for result in results),
            "optimal": all(result.optimal for result in results),
            "errors": count_errors(task, results),
            "decoding_seconds": seconds,
            # τ and k move labels too: this is what they do alone
            "without_rules": score_facts(
                task, labels_to_facts(documents, [result.before for result in results], task.relations)
            ),
        }
        if with_loss:
            tell("the ways to decode, side by side")
            figures |= {"methods": compare_methods(task, trained.test, choice), "cases": choose_cases(task, results)}
    for name, facts in predicted.items():
        rows[name] |= score_facts(task, facts) | {"by_distance": score_by_distance(task, facts)}
    return figures | {
        "rows": rows,
        "against_plain": {
            name: compare_facts(task, predicted[name], predicted["plain"]) for name in ("loss", "decoder", "both")
        },
        "paper": settings.get("paper"),
    }


def _train(
    task: MilrTask, settings: Mapping[str, Any], seed: int, folder: Path, with_loss: bool, tell: Tell
) -> TrainedExtractor:
    subfolder = folder / ("loss" if with_loss else "plain")
    subfolder.mkdir(parents=True, exist_ok=True)
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
            tell(f"{subfolder.name}: epoch {progress.epoch} of {progress.epochs}, {losses}{best}, {left}")

    result = train_extractor(
        model,
        task.training,
        settings=options,
        score=lambda model: best_threshold(predict(model, task.selection), task.selection).f1,
        extra=_consistency_loss(task, settings) if with_loss else None,
        folder=subfolder,
        progress=report,
    )
    kept = {}
    for name, documents in (("selection", task.selection), ("test", task.test)):
        file = subfolder / f"{name}.npz"
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


def _score_grid(
    task: MilrTask, settings: Mapping[str, Any], predictions: Predictions, threshold: float, tell: Tell
) -> list[tuple[DecodingChoice, float]]:
    """Return F1 on the selection documents for every τ and k of the grid."""
    grid = []
    documents = predictions.documents
    pairs = list(product(settings["taus"], settings["ks"]))
    started = time.perf_counter()
    for done, (tau, k) in enumerate(pairs, start=1):
        choice = DecodingChoice(threshold, tau, k)
        results = decode(task, documents, choice)
        facts = labels_to_facts(documents, [result.labels for result in results], task.relations)
        grid.append((choice, evaluate_extraction(facts, task.selection, relations=task.relations).f1))
        left = (time.perf_counter() - started) / done * (len(pairs) - done)
        tell(f"{done} of {len(pairs)} values of τ and k: F1 {grid[-1][1]:.4f} at {tau:g}, {k:g}; {left:,.0f} s left")
    return grid


def _score_calibrated(task: MilrTask, trained: TrainedExtractor) -> dict[str, Any]:
    """Score the network's own labels where its margins are calibrated and the threshold is chosen, by selection."""
    gold = [gold_labels(document, task.relations) for document in task.selection]
    margins = [document.margins() for document in trained.selection.documents]
    calibration = calibrate(margins, gold, relations=task.relations)
    labels = [calibration.margins(document.margins()) > 0 for document in trained.test.documents]
    apart = [table & ~np.eye(len(table), dtype=bool)[:, :, None] for table in labels]
    return score_facts(task, labels_to_facts(trained.test.documents, apart, task.relations))
