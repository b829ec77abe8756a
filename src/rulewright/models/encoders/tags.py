"""Embeddings that tell a network which pieces belong to which entity, and of what type it is (Yao et al. 2019)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rulewright.models.batches import Batch
from rulewright.models.documents import FIRST_TYPE

ENTITIES = 512  # later entities of a document share the last embedding


class EntityTags(nn.Module):
    """``[E_type(piece); E_coreference(piece)]``, ``[B, L, size]``; there is one of each for "in no mention"."""

    def __init__(self, types: int, *, type_size: int = 20, coreference_size: int = 20) -> None:
        super().__init__()
        self.types = nn.Embedding(FIRST_TYPE + types, type_size)
        self.coreferences = nn.Embedding(1 + ENTITIES, coreference_size)
        self.size = type_size + coreference_size

    def forward(self, batch: Batch) -> Tensor:
        """Embed the tags of all pieces."""
        return torch.cat(
            [self.types(batch.piece_type), self.coreferences(batch.piece_coreference.clamp(max=ENTITIES))], -1
        )
