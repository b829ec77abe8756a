"""Networks by folds: every labelled document is predicted by those that did not learn from it, test ones by all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file, save_file
from torch import nn

from rulewright.datasets import locate
from rulewright.datasets.download import cache_folder
from rulewright.io import docred
from rulewright.io.docred import Document
from rulewright.papers.milr.networks import Backbone
from rulewright.papers.milr.predictions import DocumentPrediction, Predictions, predict
from rulewright.papers.milr.training import ExtractorSettings, build_model, default_settings, train_extractor
from rulewright.papers.rules_that_pay.documents import PayTask
from rulewright.training.loop import TrainingProgress

Tell = Callable[[str], None]


@dataclass(frozen=True)
class CrossPredictions:
    """Margins of documents: ``held_out`` by networks that did not learn from them, ``test`` by the mean of all.

    Unlabelled documents are predicted by the network of each fold, so that what is made of these predictions for a fold
    knows nothing of the documents that it leaves out.
    """

    held_out: Predictions
    test: Predictions
    unlabelled: tuple[Predictions, ...]
    seconds: float


@dataclass(frozen=True)
class Crossing:
    """Trains the networks of an experiment, into a folder from which it goes on."""

    task: PayTask
    settings: Mapping[str, Any]
    seed: int
    folder: Path
    tell: Tell

    def build(self) -> Backbone:
        """Return a new network."""
        frozen = bool(self.settings["frozen"])
        return build_model(
            self.settings["backbone"],
            [*self.task.labelled, *self.task.textless],
            relations=self.task.relations,
            frozen=frozen,
            states=cache_folder() / "states" if frozen else None,
            seed=self.seed,
        )

    def pretrain(self) -> Path | None:
        """Train on the documents without text, once for all folds; return the weights."""
        file = self.folder / "pretrained.safetensors"
        if not self.task.textless or not self.settings["pretraining_epochs"]:
            return None
        if not file.exists():
            model = self.build()
            options = self._options(self.settings["pretraining_epochs"], self.settings["pretraining_rate"])
            self._train(model, self.task.textless, options, "without text", None)
            save_file(model.state_dict(), file)
        return file

    def train(
        self,
        name: str,
        *,
        extra: nn.Module | None = None,
        weight: float = 0.0,
        warmup: float = 0.0,
        added: Sequence[Sequence[Document]] = (),
        epochs: int | None = None,
    ) -> CrossPredictions:
        """Train a network for each fold, with another loss or more documents where they are given, and predict."""
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        start = self.pretrain()
        labelled, folds = self.task.labelled, int(self.settings["folds"])
        fold_of = np.full(len(labelled), -1)
        if folds > 1:
            fold_of[np.random.default_rng(self.seed).permutation(len(labelled))] = np.arange(len(labelled)) % folds
        held: dict[str, DocumentPrediction] = {}
        parts: dict[str, list[Predictions]] = {"test": [], "unlabelled": []}
        seconds = 0.0
        for fold in range(folds):
            own = self.folder / name / str(fold)
            own.mkdir(exist_ok=True)
            out = [document for document, number in zip(labelled, fold_of, strict=True) if number == fold]
            asked = {
                "held_out": out if folds > 1 else self.task.held_out,
                "test": self.task.test,
                "unlabelled": self.task.unlabelled,
            }
            files = {part: own / f"{part}.npz" for part in asked}
            if not all(file.exists() for file in files.values()):
                model = self.build()
                if start is not None:
                    model.load_state_dict(load_file(start))
                options = replace(
                    self._options(epochs or self.settings["epochs"], self.settings["rate"]),
                    extra_weight=weight if extra is not None else 0.0,
                    extra_warmup=warmup,
                )
                chosen = [document for document, number in zip(labelled, fold_of, strict=True) if number != fold]
                chosen += added[fold] if added else ()
                result = self._train(model, chosen, options, f"{name}, fold {fold + 1} of {folds}", extra, own)
                seconds += result
                for part, documents in asked.items():
                    predict(model, documents).save(files[part])
            for document in Predictions.load(files["held_out"]).documents:
                held[document.title] = document
            for part, found in parts.items():
                found.append(Predictions.load(files[part]))
        order = [document.title for document in self.task.held_out]
        return CrossPredictions(
            _margins([held[title] for title in order], self.task.relations),
            _mean_margins(parts["test"]),
            tuple(_margins(part.documents, self.task.relations) for part in parts["unlabelled"]),
            seconds,
        )

    def _options(self, epochs: int, rate: float) -> ExtractorSettings:
        return replace(
            default_settings(self.settings["backbone"]),
            epochs=epochs,
            rate=rate,
            patience=None,
            epsilon=1e-8,
            batch_size=self.settings["batch"],
            weight_decay=self.settings["weight_decay"],
            pieces_at_once=1_000_000,
            precision="float32",
            seed=self.seed,
        )

    def _train(
        self,
        model: Backbone,
        documents: Sequence[Document],
        options: ExtractorSettings,
        label: str,
        extra: nn.Module | None,
        folder: Path | None = None,
    ) -> float:
        def report(progress: TrainingProgress) -> None:
            if progress.record is not None:
                losses = ", ".join(f"{name} {value:.4f}" for name, value in progress.losses.items())
                left = f"{progress.seconds_left:,.0f} s left"
                self.tell(f"{label}: epoch {progress.epoch} of {progress.epochs}, {losses}, {left}")

        checkpoints = (folder or self.folder / "pretraining") / "checkpoints"
        result = train_extractor(model, documents, settings=options, extra=extra, folder=checkpoints, progress=report)
        return result.seconds


def read_published(task: PayTask) -> CrossPredictions:
    """Return the published labels of ATLOP on DWIE (Fan et al. 2022) as log-odds of 1 and −1, of dev and of test."""
    folder = locate("dwie") / "reference_predictions"

    def read(part: str, documents: Sequence[Document]) -> Predictions:
        sizes = {document.title: len(document.entities) for document in documents}
        logits = {title: np.full((n, n, len(task.relations)), -1.0, np.float32) for title, n in sizes.items()}
        for fact in docred.read_predictions(folder / f"result_ATLOP_{part}.json"):
            logits[fact.title][fact.head, fact.tail, task.relations.index(fact.relation)] = 1.0
        return Predictions(task.relations, tuple(DocumentPrediction(title, table) for title, table in logits.items()))

    nothing = Predictions(task.relations, ())
    return CrossPredictions(read("dev", task.held_out), read("test", task.test), (nothing,), 0.0)


def _margins(documents: Sequence[DocumentPrediction], relations: Sequence[str]) -> Predictions:
    """Return predictions whose logits are margins over the network's own threshold."""
    return Predictions(
        tuple(relations), tuple(DocumentPrediction(document.title, document.margins()) for document in documents)
    )


def _mean_margins(parts: Sequence[Predictions]) -> Predictions:
    """Return the mean margins of several networks."""
    documents = [
        DocumentPrediction(rows[0].title, np.mean([row.margins() for row in rows], axis=0, dtype=np.float32))
        for rows in zip(*(part.documents for part in parts), strict=True)
    ]
    return Predictions(parts[0].relations, tuple(documents))
