"""MILR's tables: an extractor alone, trained with the rules, decoded with them, and both.

A run trains twice, with and without the consistency loss, keeps what the networks say, and decodes it with every
τ and k of the grid. Threshold, τ and k are chosen on the selection documents; the test documents are scored once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rulewright.evaluate.extraction import compare_extraction, evaluate_extraction
from rulewright.experiments.catalogue import Experiment
from rulewright.experiments.milr_tasks import Task, load_task
from rulewright.inject import ConsistencyLoss, ErrorTypes, RuleDecoder, error_types
from rulewright.io.docred import Document, Prediction
from rulewright.models.build import build_model, default_settings
from rulewright.models.predictions import Predictions, predict
from rulewright.models.thresholds import best_threshold
from rulewright.models.training import Progress, train

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Trained:
    """What a network says of the selection and test documents, with the time it took to train."""

    selection: Predictions
    test: Predictions
    parameters: int
    epochs: int
    seconds_per_epoch: float


@dataclass(frozen=True)
class Choice:
    """What was chosen on the selection documents."""

    threshold: float
    tau: float = 1.0
    k: float = 0.0


def run(experiment: Experiment, *, seed: int, folder: Path, tell: Tell, workers: int = 1) -> dict[str, Any]:
    """Run an experiment, or go on with it where it was stopped, and return its figures."""
    settings: Any = experiment.settings
    task = load_task(settings["set"], min_confidence=settings["min_confidence"])
    tell(f"{len(task.training)} documents to train on, {len(task.rules)} rules")
    rows: dict[str, Any] = {}
    predicted: dict[str, list[Prediction]] = {}
    for with_loss in (False, True):
        trained = _trained(task, settings, seed, folder, with_loss, tell)
        threshold = best_threshold(trained.selection, task.selection).threshold
        plain, decoded = ("loss", "both") if with_loss else ("plain", "decoder")
        predicted[plain] = _thresholded(trained.test, threshold)
        rows[plain] = {"threshold": threshold, **_training_figures(trained)}
        started = time.perf_counter()
        choice = _chosen(task, settings, trained.selection, threshold, workers, tell)
        results = _decode(task, trained.test, choice, workers)
        predicted[decoded] = [each for found in results for each in _facts(found[0], found[1].labels, task.relations)]
        errors = [
            error_types(result, _gold(document, task.relations), task.rules)
            for (_, result), document in zip(results, task.test, strict=True)
        ]
        rows[decoded] = {
            "threshold": threshold,
            "tau": choice.tau,
            "k": choice.k,
            "changes": sum(len(result.changes) for _, result in results),
            "constraints": sum(result.constraints for _, result in results),
            "optimal": all(result.optimal for _, result in results),
            "errors": _errors(errors),
            "decoding_seconds": time.perf_counter() - started,
        }
    for name, found in predicted.items():
        rows[name] |= _scores(task, found)
    differences = {
        name: {
            figure: {"difference": each.difference, "low": each.low, "high": each.high, "p": each.p_value}
            for figure, each in _compared(task, predicted[name], predicted["plain"]).items()
        }
        for name in ("loss", "decoder", "both")
    }
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "seed": seed,
        "documents": [len(task.training), len(task.selection), len(task.test)],
        "rules": len(task.rules),
        "rows": rows,
        "against_plain": differences,
        "paper": settings.get("paper"),
    }


def _trained(task: Task, settings: Mapping[str, Any], seed: int, folder: Path, with_loss: bool, tell: Tell) -> Trained:
    place = folder / ("loss" if with_loss else "plain")
    place.mkdir(parents=True, exist_ok=True)
    model = build_model(settings["backbone"], task.training, relations=task.relations, seed=seed)
    options = replace(
        default_settings(settings["backbone"]),
        epochs=settings["epochs"],
        seed=seed,
        extra_weight=settings["loss_weight"] if with_loss else 0.0,
    )

    def report(progress: Progress) -> None:
        if progress.step == progress.steps:
            losses = ", ".join(f"{name} {value:.4f}" for name, value in progress.losses.items())
            best = "" if progress.best_score is None else f", best F1 {progress.best_score:.4f}"
            left = f"{progress.seconds_left:,.0f} s left"
            tell(f"{place.name}: epoch {progress.epoch} of {progress.epochs}, {losses}{best}, {left}")

    result = train(
        model,
        task.training,
        settings=options,
        score=lambda each: best_threshold(predict(each, task.selection), task.selection).f1,
        extra=ConsistencyLoss(task.rules, relations=task.relations) if with_loss else None,
        folder=place,
        progress=report,
    )
    kept = {}
    for name, documents in (("selection", task.selection), ("test", task.test)):
        file = place / f"{name}.npz"
        if not file.exists():
            predict(model, documents).save(file)
        kept[name] = Predictions.load(file)
    return Trained(
        kept["selection"],
        kept["test"],
        sum(weights.numel() for weights in model.parameters()),
        len(result.history),
        float(np.mean([epoch.seconds for epoch in result.history])),
    )


def _training_figures(trained: Trained) -> dict[str, Any]:
    return {
        "parameters": trained.parameters,
        "epochs": trained.epochs,
        "seconds_per_epoch": round(trained.seconds_per_epoch, 1),
    }


def _thresholded(predictions: Predictions, threshold: float) -> list[Prediction]:
    return [
        fact
        for each in predictions.documents
        for fact in _facts(each.title, _above(each.margins(threshold)), predictions.relations)
    ]


def _above(margins: Any) -> Any:
    return (margins > 0) & ~np.eye(len(margins), dtype=bool)[:, :, None]


def _facts(title: str, labels: Any, relations: Sequence[str]) -> list[Prediction]:
    return [
        Prediction(title, int(head), relations[relation], int(tail)) for head, tail, relation in np.argwhere(labels)
    ]


def _gold(document: Document, relations: Sequence[str]) -> Any:
    number = {name: place for place, name in enumerate(relations)}
    labels = np.zeros((len(document.entities), len(document.entities), len(relations)), dtype=bool)
    for fact in document.facts:
        labels[fact.head, fact.tail, number[fact.relation]] = True
    return labels


def _decoder(task: Task, choice: Choice) -> RuleDecoder:
    frequencies = task.frequencies if choice.k else None
    return RuleDecoder(task.rules, relations=task.relations, tau=choice.tau, k=choice.k, frequencies=frequencies)


def _decode(task: Task, predictions: Predictions, choice: Choice, workers: int) -> list[tuple[str, Any]]:
    results = _decoder(task, choice).decode_batch(
        [each.margins(choice.threshold) for each in predictions.documents], threshold=0.5, workers=workers
    )
    return [(each.title, result) for each, result in zip(predictions.documents, results, strict=True)]


def _chosen(
    task: Task, settings: Mapping[str, Any], predictions: Predictions, threshold: float, workers: int, tell: Tell
) -> Choice:
    """Choose τ and k by F1 on the selection documents; of equals, the first."""
    best, chosen = -1.0, Choice(threshold)
    for tau in settings["taus"]:
        for k in settings["ks"]:
            choice = Choice(threshold, tau, k)
            found = _decode(task, predictions, choice, workers)
            facts = [each for title, result in found for each in _facts(title, result.labels, task.relations)]
            f1 = evaluate_extraction(facts, task.selection, relations=task.relations).f1
            if f1 > best:
                best, chosen = f1, choice
    tell(f"decoder: τ = {chosen.tau}, k = {chosen.k} give F1 {best:.4f} on the selection documents")
    return chosen


def _scores(task: Task, facts: Sequence[Prediction]) -> dict[str, Any]:
    scores = evaluate_extraction(
        facts, task.test, train_facts=task.train_facts, rules=task.gold_rules, relations=task.relations
    )
    logic = scores.logic
    return {
        "predicted": len(facts),
        "precision": scores.precision,
        "recall": scores.recall,
        "f1": scores.f1,
        "ign_f1_docred": scores.ign_f1_docred,
        "ign_f1_logire": scores.ign_f1_logire,
        "logic": None if logic is None else logic.value,
        "fired_groundings": None if logic is None else logic.groundings,
    }


def _compared(task: Task, facts: Sequence[Prediction], plain: Sequence[Prediction]) -> dict[str, Any]:
    return compare_extraction(
        facts, plain, task.test, train_facts=task.train_facts, rules=task.gold_rules, relations=task.relations
    )


def _errors(found: Sequence[ErrorTypes]) -> dict[str, dict[str, int]]:
    heads, bodies = [each.missing_heads for each in found], [each.wrong_bodies for each in found]
    return {
        name: {part: sum(getattr(each, part) for each in parts) for part in ("count", "repaired", "introduced")}
        for name, parts in (("missing_heads", heads), ("wrong_bodies", bodies))
    }
