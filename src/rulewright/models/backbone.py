"""What every relation extractor has in common: documents in, a logit for each pair and relation out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rulewright.io.docred import Document
from rulewright.models.batches import Batch
from rulewright.models.documents import DocumentFeatures, Featurizer
from rulewright.models.encoders.interface import Encoder


@dataclass(frozen=True, slots=True, eq=False)
class PairLogits:
    """Logits ``[P, R]`` of the ordered pairs of a batch and, where the model has them, thresholds ``[P]``."""

    batch: Batch
    logits: Tensor
    thresholds: Tensor | None = None

    def margins(self) -> Tensor:
        """How far each logit is above its threshold, ``F − F_TH``; the logit itself where there is no threshold."""
        return self.logits if self.thresholds is None else self.logits - self.thresholds[:, None]

    def dense_logits(self) -> Tensor:
        """The logits as ``[B, n, n, R]``; diagonal and padding are strongly negative."""
        return self.batch.dense(self.logits)

    def dense_margins(self) -> Tensor:
        """The margins as ``[B, n, n, R]``; diagonal and padding are strongly negative."""
        return self.batch.dense(self.margins())

    def dense_thresholds(self) -> Tensor | None:
        """The thresholds as ``[B, n, n]``, 0 where there is no pair."""
        return None if self.thresholds is None else self.batch.dense(self.thresholds, fill=0.0)


class Backbone(nn.Module, ABC):
    """A relation extractor over an encoder.

    >>> # model(batch).dense_logits() has the shape [B, n, n, R]; see `build_model` for how to make one
    """

    def __init__(self, encoder: Encoder, featurizer: Featurizer) -> None:
        super().__init__()
        self.encoder = encoder
        self.featurizer = featurizer

    @property
    def relations(self) -> tuple[str, ...]:
        """The relations in the order of the logits."""
        return self.featurizer.relations

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def features(self, documents: Iterable[Document]) -> list[DocumentFeatures]:
        """Return the features of documents; each document is tokenized once."""
        return self.featurizer(documents)

    @abstractmethod
    def forward(self, batch: Batch) -> PairLogits:
        """Score all ordered pairs of different entities in a batch."""

    @abstractmethod
    def pair_losses(self, output: PairLogits) -> Tensor:
        """Return the classification loss of each pair, ``[P]``."""
