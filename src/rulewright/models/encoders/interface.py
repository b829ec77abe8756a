"""What every encoder offers: pieces for words, and states (with attention, where it has any) for pieces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor, nn

from rulewright.models.batches import Batch
from rulewright.models.documents import Tokenizer


@dataclass(frozen=True, slots=True)
class Encoded:
    """States ``[B, L, d]`` of the pieces and, if asked for, ``[M, heads, L]``: what each mention's start attends to."""

    states: Tensor
    attention: Tensor | None = None


class Encoder(nn.Module, ABC):
    """Pieces to contextual states."""

    tokenizer: Tokenizer
    hidden_size: int
    pretrained: bool  # pretrained weights get the encoder's learning rate, new ones that of the rest
    has_attention: bool
    sees_entities: bool  # whether types and coreference are part of the input already

    @abstractmethod
    def forward(self, batch: Batch, *, with_attention: bool = False) -> Encoded:
        """Encode the pieces of a batch."""
