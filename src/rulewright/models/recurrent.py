"""The first baselines of document-level relation extraction: LSTM and BiLSTM (Yao et al. 2019, arXiv:1906.06127)."""

from __future__ import annotations

from torch import Tensor, nn

from rulewright.models.backbone import Backbone, PairLogits
from rulewright.models.batches import Batch
from rulewright.models.bilinear import DistanceBilinear
from rulewright.models.documents import Featurizer
from rulewright.models.encoders.interface import Encoder
from rulewright.models.losses import RARE, binary_cross_entropy
from rulewright.models.pooling import entity_means, mention_means


class Recurrent(Backbone):
    """``P(r|i, j) = σ([e_i; D(d_ij)]^T W_r [e_j; D(d_ji)] + b_r)``, e the mean over mentions of the mean over words.

    Which of the two it is, the encoder decides: a `WordEncoder` in one direction or in both.
    """

    def __init__(self, encoder: Encoder, featurizer: Featurizer, *, dropout: float = 0.2) -> None:
        super().__init__(encoder, featurizer)
        self.dropout = nn.Dropout(dropout)
        self.scores = DistanceBilinear(encoder.hidden_size, len(featurizer.relations))
        nn.init.constant_(self.scores.bias, RARE)

    def forward(self, batch: Batch) -> PairLogits:
        """Score all ordered pairs of different entities in a batch."""
        mentions = mention_means(self.encoder(batch).states, batch)
        entities = self.dropout(entity_means(mentions, batch))
        return PairLogits(batch, self.scores(entities, batch).float())

    def pair_losses(self, output: PairLogits) -> Tensor:
        """Return the mean cross-entropy over relations of each pair, ``[P]``."""
        return binary_cross_entropy(output.logits, output.batch.labels)
