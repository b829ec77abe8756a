"""F1 of predictions, and the global threshold that is best on a development set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rulewright.errors import DataError
from rulewright.io.docred import Document
from rulewright.models.predictions import Predictions

ADAPTIVE = 0.5  # σ(F − F_TH) at the adaptive threshold


@dataclass(frozen=True, slots=True)
class Thresholded:
    """The F1 over all facts of documents and the probability above which a relation counts as predicted."""

    f1: float
    threshold: float


def best_threshold(predictions: Predictions, documents: Sequence[Document]) -> Thresholded:
    """Choose the global threshold with the highest F1; a model with thresholds of its own keeps them.

    F1 = 2·TP / (predicted + gold), micro over (head, relation, tail), each gold fact once.
    """
    margins, gold = _margins_and_gold(predictions, documents)
    total = int(gold.sum())
    if any(each.thresholds is not None for each in predictions.documents):
        predicted = margins > 0
        correct = int((predicted & gold).sum())
        return Thresholded(_f1(correct, int(predicted.sum()), total), ADAPTIVE)
    order = np.argsort(-margins, kind="stable")
    scores = margins[order]
    correct_above = np.cumsum(gold[order])
    cuts = np.flatnonzero(np.append(scores[1:] != scores[:-1], True)) if len(scores) else np.zeros(0, int)
    f1 = 2 * correct_above[cuts] / np.maximum(1, cuts + 1 + total)
    if not len(cuts) or f1.max() == 0:
        return Thresholded(0.0, ADAPTIVE)
    at = cuts[int(np.argmax(f1))]
    lower = scores[at + 1] if at + 1 < len(scores) else scores[at] - 1
    middle = (float(scores[at]) + float(lower)) / 2
    return Thresholded(float(f1.max()), float(1 / (1 + np.exp(-middle))))


def _f1(correct: int, predicted: int, gold: int) -> float:
    return 2 * correct / (predicted + gold) if predicted + gold else 0.0


def _margins_and_gold(
    predictions: Predictions, documents: Sequence[Document]
) -> tuple[np.ndarray[tuple[int], np.dtype[np.float32]], np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    if [each.title for each in predictions.documents] != [each.title for each in documents]:
        raise DataError("predictions and documents have different titles; give the documents that were predicted")
    index = {name: number for number, name in enumerate(predictions.relations)}
    margins, gold = [np.zeros(0, np.float32)], [np.zeros(0, bool)]
    for prediction, document in zip(predictions.documents, documents, strict=True):
        labels = np.zeros(prediction.logits.shape, bool)
        for fact in document.facts:
            labels[fact.head, fact.tail, index[fact.relation]] = True
        pairs = ~np.eye(len(labels), dtype=bool)
        margins.append(prediction.margins()[pairs].ravel())
        gold.append(labels[pairs].ravel())
    return np.concatenate(margins), np.concatenate(gold)
