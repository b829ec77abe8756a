"""The rule that blocks are transitive, as a layer behind or within a network over forms; messages as sums or means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from rulewright.errors import unknown_name
from rulewright.papers.logicmp.form_network import FormFeatures

Averaging = Literal["sum", "words", "block"]
AVERAGINGS: tuple[Averaging, ...] = ("sum", "words", "block")


class TransitiveLayer(nn.Module):
    """Mean field over pairs of words whose messages are divided by how many words they are summed over.

    Every iteration sets ``logit_ac ← φ_ac + message_ac / size_ac``. A message of transitivity is a sum over the words b
    in between; its ``size`` is 1 (``"sum"``), the number of words of the form (``"words"``: the mean message), or of
    the words that the network puts into a block with a or c, ``½ Σ_b σ(φ_ab) + σ(φ_cb)`` and at least 1 (``"block"``),
    through which no gradient goes. Means are taken in units of ``usual`` words, so that one weight means the same for
    all averagings in a form, or a block, of the usual size.

    ``layer`` sends the messages of one iteration and has the weight. ``share`` is what messages count for, which rises
    from 0 to 1 in training.
    """

    def __init__(self, layer: nn.Module, *, iterations: int, averaging: Averaging = "sum", usual: float = 1.0) -> None:
        super().__init__()
        if averaging not in AVERAGINGS:
            raise unknown_name("averaging", averaging, AVERAGINGS)
        self.layer, self.iterations, self.averaging, self.usual = layer, iterations, averaging, usual
        self.share = 1.0

    def forward(self, logits: Tensor, mask: Tensor) -> Tensor:
        """Return the log-odds ``[B, N, N]`` of all pairs after the messages; ``mask [B, N]`` is true for words."""
        scale = self.share / self._size(logits, mask)
        current = logits
        for _ in range(self.iterations):
            sent: Tensor = self.layer({"coexist": current}, mask={"token": mask})["coexist"]
            current = logits + (sent - current) * scale
        return current

    @torch.no_grad()
    def _size(self, logits: Tensor, mask: Tensor) -> Tensor:
        if self.averaging == "sum":
            return logits.new_ones(1, 1, 1)
        if self.averaging == "words":
            return mask.sum(-1).to(logits.dtype)[:, None, None] / self.usual
        pairs = mask[:, :, None] & mask[:, None, :]
        own = (logits.sigmoid() * pairs).sum(-1)
        return ((own[:, :, None] + own[:, None, :]) / 2).clamp(min=1) / self.usual


def usual_size(forms: Sequence[FormFeatures], averaging: Averaging) -> float:
    """Return the mean number of words of a form (``"words"``) or of a block (``"block"``); 1 for sums."""
    if averaging == "sum":
        return 1.0
    words = sum(form.words for form in forms)
    parts = len(forms) if averaging == "words" else sum(len(torch.unique(form.block)) for form in forms)
    return words / parts
