"""Labels of MILR's experiments: above a threshold, or decoded with rules, and what the ways to decode cost."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rulewright.evaluate.extraction import evaluate_extraction
from rulewright.experiments.milr_tasks import Task
from rulewright.inject import Decoded, RuleDecoder
from rulewright.io.docred import Document, Prediction
from rulewright.models.predictions import DocumentPrediction, Predictions

Method = Literal["exact", "simplified", "full"]

SMALL_ENTITIES = 10
SMALL_DOCUMENTS = 10
"""Every constraint is written out for so many documents of so many entities at most: it grows with their cube."""


@dataclass(frozen=True)
class Choice:
    """What was chosen on the selection documents."""

    threshold: float
    tau: float = 1.0
    k: float = 0.0


def thresholded(predictions: Predictions, threshold: float) -> list[Prediction]:
    """Return the facts whose logits are above the threshold."""
    margins = [each.margins(threshold) for each in predictions.documents]
    labels = [(each > 0) & ~np.eye(len(each), dtype=bool)[:, :, None] for each in margins]
    return labelled(predictions.documents, labels, predictions.relations)


def labelled(
    documents: Sequence[DocumentPrediction], labels: Iterable[Any], relations: Sequence[str]
) -> list[Prediction]:
    """Return the labels of documents as facts."""
    return [
        fact
        for document, each in zip(documents, labels, strict=True)
        for fact in facts_of(document.title, each, relations)
    ]


def facts_of(title: str, labels: Any, relations: Sequence[str]) -> list[Prediction]:
    """Return labels ``[n, n, R]`` as facts of a document.

    >>> labels = np.zeros((2, 2, 1), dtype=bool)
    >>> labels[0, 1, 0] = True
    >>> facts_of("A", labels, ["knows"])
    [Prediction(title='A', head=0, relation='knows', tail=1)]
    """
    return [
        Prediction(title, int(head), relations[relation], int(tail)) for head, tail, relation in np.argwhere(labels)
    ]


def gold_labels(document: Document, relations: Sequence[str]) -> Any:
    """Return the gold facts of a document as labels ``[n, n, R]``."""
    number = {name: place for place, name in enumerate(relations)}
    labels = np.zeros((len(document.entities), len(document.entities), len(relations)), dtype=bool)
    for fact in document.facts:
        labels[fact.head, fact.tail, number[fact.relation]] = True
    return labels


def decode(
    task: Task,
    documents: Sequence[DocumentPrediction],
    choice: Choice,
    *,
    method: Method = "exact",
    workers: int = 1,
) -> list[Decoded]:
    """Decode documents with the rules of a task."""
    decoder = RuleDecoder(
        task.rules,
        relations=task.relations,
        method=method,
        tau=choice.tau,
        k=choice.k,
        frequencies=task.frequencies if choice.k else None,
    )
    margins = [each.margins(choice.threshold) for each in documents]
    return decoder.decode_batch(margins, threshold=0.5, workers=workers)


def compare_methods(task: Task, predictions: Predictions, choice: Choice) -> dict[str, Any]:
    """Decode the test documents with each method, in one process: constraints, seconds and scores.

    All of them exactly and simplified; a few small ones also with every constraint written out. ``agrees`` tells
    whether that costs the same as the exact answer.
    """
    every = predictions.documents
    small = [each for each in every if 2 < len(each.logits) <= SMALL_ENTITIES][:SMALL_DOCUMENTS]
    found: dict[str, Any] = {
        "all": {method: _measured(task, every, choice, method)[0] for method in ("exact", "simplified")}
    }
    if small:
        rows, objectives = {}, {}
        for method in ("exact", "simplified", "full"):
            rows[method], objectives[method] = _measured(task, small, choice, method)
        agrees = bool(np.allclose(objectives["exact"], objectives["full"]))
        found |= {"small": rows, "small_entities": SMALL_ENTITIES, "agrees": agrees}
    return found


def _measured(
    task: Task, documents: Sequence[DocumentPrediction], choice: Choice, method: Any
) -> tuple[dict[str, Any], list[float]]:
    titles = {each.title for each in documents}
    started = time.perf_counter()
    results = decode(task, documents, choice, method=method)
    seconds = time.perf_counter() - started
    scores = evaluate_extraction(
        labelled(documents, [each.labels for each in results], task.relations),
        [each for each in task.test if each.title in titles],
        train_facts=task.train_facts,
        relations=task.relations,
    )
    figures = {
        "documents": len(documents),
        "constraints": float(np.mean([each.constraints for each in results])),
        "violations": sum(each.violations for each in results),
        "seconds": seconds / len(documents),
        "f1": scores.f1,
        "ign_f1_docred": scores.ign_f1_docred,
    }
    return figures, [each.objective for each in results]
