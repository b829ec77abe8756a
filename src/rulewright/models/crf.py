"""Fields over a chain of labels: exact (Lafferty et al. 2001) and by mean field (Wang et al. 2020)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LinearChainCRF(nn.Module):
    """``p(y|x) ∝ exp(Σ_t u_t(y_t) + Σ_t W[y_t, y_(t+1)] + s[y_1] + e[y_N])``, W, s and e learned.

    ``logits [B, N, K]`` are u; ``mask [B, N]`` is True for the words of each sentence, which begin at 0. With
    ``transitions [K, K]`` W is given and fixed, and s = e = 0.
    """

    transitions: Tensor
    first: Tensor
    last: Tensor

    def __init__(self, classes: int, *, transitions: Tensor | None = None) -> None:
        super().__init__()
        for name, size in (("transitions", (classes, classes)), ("first", (classes,)), ("last", (classes,))):
            if transitions is None:
                self.register_parameter(name, nn.Parameter(torch.zeros(size)))
            else:
                given = transitions if name == "transitions" else torch.zeros(size)
                self.register_buffer(name, given, persistent=False)

    def log_partition(self, logits: Tensor, mask: Tensor) -> Tensor:
        """Return ``log Σ_y exp(score(y))`` of each sentence, ``[B]``, by the forward algorithm.

        >>> LinearChainCRF(2).log_partition(torch.zeros(1, 3, 2), torch.tensor([[True, True, False]])).exp().tolist()
        [4.0]
        """
        forward = self.first + logits[:, 0]
        for place in range(1, logits.shape[1]):
            step = torch.logsumexp(forward[:, :, None] + self.transitions, 1) + logits[:, place]
            forward = torch.where(mask[:, place, None], step, forward)
        return torch.logsumexp(forward + self.last, 1)

    def score(self, logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """Return the score of one labelling of each sentence, ``[B]``."""
        unary = logits.gather(2, labels[..., None])[..., 0].masked_fill(~mask, 0.0).sum(1)
        pairs = self.transitions[labels[:, :-1], labels[:, 1:]].masked_fill(~mask[:, 1:], 0.0).sum(1)
        ends = labels.gather(1, mask.sum(1, keepdim=True) - 1)[:, 0]
        return unary + pairs + self.first[labels[:, 0]] + self.last[ends]

    def negative_log_likelihood(self, logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """Return ``−log p(y|x)`` of each sentence, ``[B]``."""
        return self.log_partition(logits, mask) - self.score(logits, labels, mask)

    def marginals(self, logits: Tensor, mask: Tensor) -> Tensor:
        """Return ``p(y_t = k|x)``, ``[B, N, K]``, 0 in padding: the gradient of log Z. No gradient flows through."""
        with torch.enable_grad():
            unary = logits.detach().requires_grad_()
            (found,) = torch.autograd.grad(self.log_partition(unary, mask).sum(), unary)
        return found

    def decode(self, logits: Tensor, mask: Tensor) -> Tensor:
        """Return the most probable labelling (Viterbi), ``[B, N]``, 0 in padding; of equals, the smaller label."""
        with torch.no_grad():
            best = self.first + logits[:, 0]
            stay = torch.arange(logits.shape[2]).expand_as(best)
            came_from = []
            for place in range(1, logits.shape[1]):
                step, before = (best[:, :, None] + self.transitions).max(1)
                real = mask[:, place, None]
                best = torch.where(real, step + logits[:, place], best)
                came_from.append(torch.where(real, before, stay))
            label = (best + self.last).argmax(1)
            labels = [label]
            for before in reversed(came_from):
                label = before.gather(1, label[:, None])[:, 0]
                labels.append(label)
            return torch.stack(labels[::-1], 1).masked_fill(~mask, 0)


class MeanFieldCRF(nn.Module):
    """T parallel mean-field steps of a chain, ``logits [B, N, K] → [B, N, K]``, trained end to end.

    ``Q ← softmax(u)``, then T times ``Q_t ← softmax(u_t + Wᵀ·Q_(t-1) + W·Q_(t+1))``; what is returned are the logits of
    the last step. W is learned and starts at 0, where the layer changes nothing.
    """

    def __init__(self, classes: int, *, iterations: int = 5) -> None:
        super().__init__()
        self.iterations = iterations
        self.transitions = nn.Parameter(torch.zeros(classes, classes))

    def forward(self, logits: Tensor, mask: Tensor) -> Tensor:
        """Return the logits after the last step."""
        result = logits
        for _ in range(self.iterations):
            beliefs = torch.softmax(result, -1).masked_fill(~mask[..., None], 0.0)
            from_left = nn.functional.pad(beliefs[:, :-1] @ self.transitions, (0, 0, 1, 0))
            from_right = nn.functional.pad(beliefs[:, 1:] @ self.transitions.T, (0, 0, 0, 1))
            result = logits + from_left + from_right
        return result
