"""ATLOP: localized context pooling and a threshold for each pair (Zhou et al. 2021, arXiv:2010.11304)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rulewright.errors import DataError
from rulewright.models.backbone import Backbone, PairLogits
from rulewright.models.batches import Batch
from rulewright.models.bilinear import GroupedBilinear
from rulewright.models.documents import Featurizer
from rulewright.models.encoders.interface import Encoder
from rulewright.models.losses import RARE, adaptive_threshold_loss
from rulewright.models.pooling import entity_logsumexp, localized_context, mention_starts


class Atlop(Backbone):
    """``z_h = tanh(W_h e_h + V_h c)``, ``z_t = tanh(W_t e_t + V_t c)`` and a grouped bilinear score of both.

    e is the logsumexp over the markers of an entity's mentions and c the context that both entities attend to. The
    first output is the threshold class TH: a relation holds where ``F_r > F_TH``.
    """

    def __init__(self, encoder: Encoder, featurizer: Featurizer, *, size: int | None = None, block: int = 64) -> None:
        super().__init__(encoder, featurizer)
        if not encoder.has_attention:
            raise DataError("ATLOP pools by attention, which an LSTM has not; choose a transformer as encoder")
        hidden, size = encoder.hidden_size, size or encoder.hidden_size
        self.head_entity = nn.Linear(hidden, size)
        self.tail_entity = nn.Linear(hidden, size)
        self.head_context = nn.Linear(hidden, size, bias=False)
        self.tail_context = nn.Linear(hidden, size, bias=False)
        self.scores = GroupedBilinear(size, 1 + len(featurizer.relations), block=block)
        with torch.no_grad():
            self.scores.linear.bias[0] = -RARE

    def forward(self, batch: Batch) -> PairLogits:
        """Score all ordered pairs of different entities in a batch."""
        encoded = self.encoder(batch, with_attention=True)
        entities = entity_logsumexp(mention_starts(encoded.states, batch).float(), batch)
        context = localized_context(encoded.states, encoded.attention, batch)
        # the context of (i, j) is that of (j, i): its two projections are computed once for both
        head = self.head_entity(entities).index_select(0, batch.head) + self.head_context(context).repeat(2, 1)
        tail = self.tail_entity(entities).index_select(0, batch.tail) + self.tail_context(context).repeat(2, 1)
        scores = self.scores(torch.tanh(head), torch.tanh(tail)).float()
        return PairLogits(batch, scores[:, 1:], scores[:, 0])

    def pair_losses(self, output: PairLogits) -> Tensor:
        """Return the adaptive-threshold loss of each pair, ``[P]``."""
        assert output.thresholds is not None
        return adaptive_threshold_loss(output.logits, output.thresholds, output.batch.labels)
