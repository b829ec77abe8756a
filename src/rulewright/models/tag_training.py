"""Training a tagger, and what it says of sentences."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rulewright.errors import DataError
from rulewright.io.conll import Sentence
from rulewright.models.fitting import fit
from rulewright.models.sentences import SentenceFeatures
from rulewright.models.settings import TrainingSettings
from rulewright.models.tag_heads import Head
from rulewright.models.tagger import Tagger
from rulewright.models.training import EpochRecord, TrainingResult

DECODED_AT_ONCE = 128

Tags = tuple[tuple[str, ...], ...]


class TaggingModel(nn.Module):
    """A tagger and the head on it.

    ``steps_taken`` in training is part of the state that is saved, since what a head minimises may depend on it.
    """

    steps_taken: Tensor

    def __init__(self, tagger: Tagger, head: Head) -> None:
        super().__init__()
        self.tagger, self.head = tagger, head
        self.register_buffer("steps_taken", torch.tensor(0))

    def loss(self, sentences: Sequence[SentenceFeatures], *, epoch: int) -> Tensor:
        """Return what is minimised for a batch of sentences in an epoch, counted from 0."""
        batch = self.tagger.featurizer.collate(sentences)
        return self.head.loss(self.tagger(batch), batch, epoch=epoch)

    def predict(self, sentences: Sequence[Sentence]) -> dict[str, Tags]:
        """Return the tags of sentences by the name of the way the head found them."""
        featurizer = self.tagger.featurizer
        features = featurizer.features(sentences)
        order = sorted(range(len(features)), key=lambda number: len(features[number].words))
        found: dict[str, list[tuple[str, ...]]] = {}
        was_training = self.training
        self.eval()
        with torch.no_grad():
            for start in range(0, len(order), DECODED_AT_ONCE):
                numbers = order[start : start + DECODED_AT_ONCE]
                batch = featurizer.collate([features[number] for number in numbers])
                for way, labels in self.head.decode(self.tagger(batch), batch).items():
                    tags = found.setdefault(way, [()] * len(features))
                    for number, row in zip(numbers, labels.tolist(), strict=True):
                        tags[number] = tuple(featurizer.classes[label] for label in row[: len(features[number].words)])
        self.train(was_training)
        return {way: tuple(tags) for way, tags in found.items()}


def train_tagger(
    model: TaggingModel,
    sentences: Sequence[Sentence],
    *,
    settings: TrainingSettings,
    score: Callable[[TaggingModel], float],
    folder: str | os.PathLike[str] | None = None,
    identity: Mapping[str, Any] | None = None,
    progress: Callable[[EpochRecord], None] | None = None,
) -> TrainingResult:
    """Train a tagger on tagged sentences and leave in it the weights of the epoch with the best score.

    Steps take ``batch_size`` sentences of similar length. With a ``folder`` every epoch is saved there, and calling
    again goes on after the last one, bit for bit; Ctrl-C stops after the running step. ``identity`` is whatever else
    must be equal for a folder to belong to this run, as values of JSON.
    """
    if not sentences:
        raise DataError("there are no sentences to train on")
    if any(not each.tags for each in sentences):
        raise DataError("a sentence to train on has no tags")
    features = model.tagger.featurizer.features(sentences)
    steps = -(-len(features) // settings.batch_size)

    def loss(batch: Sequence[SentenceFeatures]) -> tuple[Tensor, Mapping[str, Tensor]]:
        value = model.loss(batch, epoch=int(model.steps_taken) // steps)
        model.steps_taken += 1
        return value, {"loss": value}

    return fit(
        model,
        features,
        loss,
        lengths=[len(each.words) for each in features],
        settings=settings,
        identity={**_identity(model, sentences), **(identity or {})},
        score=lambda: score(model),
        folder=folder,
        progress=None if progress is None else lambda record, _: progress(record),
    )


def _identity(model: TaggingModel, sentences: Sequence[Sentence]) -> dict[str, Any]:
    """What must be equal for a saved state to belong to this run."""
    text = "\n".join(" ".join((*each.tokens, *each.tags)) for each in sentences)
    return {
        "head": type(model.head).__name__,
        "parameters": sum(each.numel() for each in model.parameters()),
        "sentences": hashlib.sha256(text.encode()).hexdigest()[:16],
    }
