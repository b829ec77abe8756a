"""Logic rules taught to a network by a teacher that obeys them (Hu et al. 2016, arXiv:1603.06318)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rulewright.models.crf import LinearChainCRF


class ChainTeacher(nn.Module):
    """``q(y|x) ∝ p(y|x)·exp(−C·Σ_l λ_l·(1 − r_l(x, y)))`` for rules on adjacent labels, exactly.

    ``violated [K, K]`` is ``Σ_l λ_l·(1 − r_l)`` of two adjacent labels and C the ``strength``. Since p is a product
    over words, q is a chain with the transitions ``−C·violated``, and its marginals are those of that chain.
    """

    def __init__(self, violated: Tensor, *, strength: float) -> None:
        super().__init__()
        self.chain = LinearChainCRF(len(violated), transitions=-strength * violated)

    def marginals(self, logits: Tensor, mask: Tensor) -> Tensor:
        """Return ``q(y_t = k|x)``, ``[B, N, K]``; no gradient flows through, the teacher is not taught."""
        return self.chain.marginals(torch.log_softmax(logits, -1), mask)

    def decode(self, logits: Tensor, mask: Tensor) -> Tensor:
        """Return the most probable labelling under q, ``[B, N]``."""
        return self.chain.decode(torch.log_softmax(logits, -1), mask)

    def student_losses(self, logits: Tensor, labels: Tensor, mask: Tensor, *, imitation: float) -> Tensor:
        """Return ``(1 − π)·H(gold, p) + π·H(q, p)`` of each word, ``[B, N]``, π the ``imitation``; 0 in padding."""
        log_p = torch.log_softmax(logits, -1)
        gold = -log_p.gather(2, labels[..., None])[..., 0].masked_fill(~mask, 0.0)
        soft = -(self.marginals(logits, mask) * log_p).sum(-1)
        return (1 - imitation) * gold + imitation * soft


def imitation_share(epoch: int, *, decay: float, limit: float) -> float:
    """Return π in epoch 0, 1, …: ``min(limit, 1 − decay^epoch)``, from the gold labels towards the teacher.

    >>> [round(imitation_share(epoch, decay=0.9, limit=0.25), 2) for epoch in range(4)]
    [0.0, 0.1, 0.19, 0.25]
    """
    return min(limit, 1 - decay**epoch)
