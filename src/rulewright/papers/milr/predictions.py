"""What a network says of documents, kept so that thresholds and decoders can be tried without it."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from rulewright.errors import DataError, ParseError
from rulewright.files import read_bytes, write_bytes
from rulewright.io.docred import Document
from rulewright.papers.documents import NOT_A_PAIR, collate, split_passes
from rulewright.papers.milr.networks import Backbone
from rulewright.papers.milr.training import Precision, autocast

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class DocumentPrediction:
    """Logits ``[n, n, R]`` of one document and, where the model has them, thresholds ``[n, n]``."""

    title: str
    logits: Array
    thresholds: Array | None = None

    def margins(self, threshold: float = 0.5) -> Array:
        """How far each logit is above its threshold: ``F − F_TH``, or ``F − σ⁻¹(threshold)`` without thresholds."""
        if self.thresholds is not None:
            return self.logits - self.thresholds[:, :, None]
        if not 0 < threshold < 1:
            raise DataError(f"threshold must be > 0 and < 1, got {threshold}")
        return self.logits - np.float32(np.log(threshold / (1 - threshold)))


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """The predictions for some documents, in order; relations name the last axis of the logits."""

    relations: tuple[str, ...]
    documents: tuple[DocumentPrediction, ...]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an ``.npz``: all pairs of different entities, document after document, and a header in JSON."""
        header = {
            "relations": self.relations,
            "titles": [document.title for document in self.documents],
            "sizes": [len(document.logits) for document in self.documents],
        }
        pairs = [~np.eye(len(document.logits), dtype=bool) for document in self.documents]
        none = np.zeros((0, len(self.relations)), np.float32)
        arrays = {
            "header": np.frombuffer(json.dumps(header).encode(), np.uint8),
            "logits": np.concatenate(
                [none, *(document.logits[pair] for document, pair in zip(self.documents, pairs, strict=True))]
            ),
        }
        thresholds = [
            document.thresholds[p]
            for document, p in zip(self.documents, pairs, strict=True)
            if document.thresholds is not None
        ]
        if thresholds:
            if len(thresholds) < len(self.documents):
                raise DataError("some documents have thresholds and some have none; one model gives all or none")
            arrays["thresholds"] = np.concatenate(thresholds)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]  # the stubs take only their own options by name
        write_bytes(path, buffer.getvalue())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Predictions:
        """Read what `save` wrote."""
        name = os.fspath(path)
        try:
            with np.load(io.BytesIO(read_bytes(name)), allow_pickle=False) as file:
                header = json.loads(file["header"].tobytes())
                logits = file["logits"]
                thresholds = file.get("thresholds")
            relations, titles, sizes = (tuple(header[key]) for key in ("relations", "titles", "sizes"))
            expected = (sum(n * (n - 1) for n in sizes), len(relations))
            if logits.shape != expected or (thresholds is not None and thresholds.shape != expected[:1]):
                raise ValueError(f"logits have the shape {logits.shape}, the header says {expected}")
        except (KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
            raise ParseError(f"not saved predictions: {error}", file=name) from None
        documents, start = [], 0
        for title, n in zip(titles, sizes, strict=True):
            rows = slice(start, start + n * (n - 1))
            start = rows.stop
            documents.append(
                DocumentPrediction(
                    title,
                    _spread(logits[rows], n, NOT_A_PAIR),
                    None if thresholds is None else _spread(thresholds[rows], n, 0.0),
                )
            )
        return cls(relations, tuple(documents))


def _spread(values: Array, n: int, fill: float) -> Array:
    table = np.full((n, n, *values.shape[1:]), fill, np.float32)
    table[~np.eye(n, dtype=bool)] = values
    return table


def predict(
    model: Backbone,
    documents: Sequence[Document],
    *,
    pieces_at_once: int = 1024,
    precision: Precision = "float32",
) -> Predictions:
    """Run a network over documents.

    bfloat16 is nearly twice as fast but keeps three digits of a logit only, so that ties appear.
    """
    features = model.features(documents)
    order = sorted(range(len(features)), key=lambda index: len(features[index].pieces))
    predicted: dict[int, DocumentPrediction] = {}
    was_training = model.training
    model.eval()
    try:
        for part in split_passes([features[index] for index in order], pieces_at_once):
            indices = order[len(predicted) : len(predicted) + len(part)]
            with torch.inference_mode(), autocast(precision, model.device):
                output = model(collate(part, device=model.device))
            logits, thresholds = output.dense_logits(), output.dense_thresholds()
            for row, index in enumerate(indices):
                n = features[index].entities
                predicted[index] = DocumentPrediction(
                    features[index].title,
                    logits[row, :n, :n].float().cpu().numpy().copy(),
                    None if thresholds is None else thresholds[row, :n, :n].float().cpu().numpy().copy(),
                )
    finally:
        model.train(was_training)
    return Predictions(model.relations, tuple(predicted[index] for index in range(len(features))))


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
    if any(document.thresholds is not None for document in predictions.documents):
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
    if [document.title for document in predictions.documents] != [document.title for document in documents]:
        raise DataError("predictions and documents have different titles; give the documents that were predicted")
    index = {name: relation_index for relation_index, name in enumerate(predictions.relations)}
    margins, gold = [np.zeros(0, np.float32)], [np.zeros(0, bool)]
    for prediction, document in zip(predictions.documents, documents, strict=True):
        labels = np.zeros(prediction.logits.shape, bool)
        for fact in document.facts:
            labels[fact.head, fact.tail, index[fact.relation]] = True
        pairs = ~np.eye(len(labels), dtype=bool)
        margins.append(prediction.margins()[pairs].ravel())
        gold.append(labels[pairs].ravel())
    return np.concatenate(margins), np.concatenate(gold)
