"""Losses for many labels a pair: cross-entropy by relation, and ATLOP's with a threshold that the model learns."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

RARE = -5.0  # where the log-odds of a relation start: from even odds, a network first unlearns all but the bias


def binary_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over relations of ``−y·log σ(F) − (1−y)·log(1−σ(F))`` for each pair: ``[P, R] -> [P]``."""
    return functional.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="none").mean(-1)


def adaptive_threshold_loss(logits: Tensor, thresholds: Tensor, labels: Tensor) -> Tensor:
    """Return ATLOP's loss of each pair (Zhou et al. 2021, Equations 8–10): ``[P, R], [P], [P, R] -> [P]``.

    With P the relations that hold, N those that do not and TH the threshold class,
    ``L1 = −Σ_{r∈P} log( e^F_r / Σ_{r'∈P∪{TH}} e^F_r' )`` lifts the labels above the threshold and
    ``L2 = −log( e^F_TH / Σ_{r'∈N∪{TH}} e^F_r' )`` presses all others below it; the loss is L1 + L2.

    >>> logits, labels = torch.tensor([[2.0, -1.0]]), torch.tensor([[True, False]])
    >>> adaptive_threshold_loss(logits, torch.tensor([0.0]), labels)
    tensor([0.4402])
    """
    labels = labels.bool()
    below = float("-inf")
    threshold = thresholds[:, None]
    positive = torch.logsumexp(torch.cat([logits.masked_fill(~labels, below), threshold], 1), 1)
    negative = torch.logsumexp(torch.cat([logits.masked_fill(labels, below), threshold], 1), 1)
    lifted = torch.where(labels, positive[:, None] - logits, 0.0).sum(1)
    return lifted + negative - thresholds
