"""What stands on the logits of a tagger: how it is trained and how it decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from rulewright.models.crf import LinearChainCRF, MeanFieldCRF
from rulewright.models.distillation import ChainTeacher, imitation_share
from rulewright.models.sentences import SentenceBatch

LABEL, NEXT, SAME_LIST, TOKEN = "label", "next", "samelist", "token"
"""The names that the rules use: the labels of tokens, and the two relations between tokens that are given."""


class Head(nn.Module):
    """The plain head: cross-entropy in training, the best label of each word at the end."""

    def loss(self, logits: Tensor, batch: SentenceBatch, *, epoch: int) -> Tensor:
        """Return what is minimised, a mean over the words of the batch; epochs count from 0."""
        return cross_entropy(self.refined(logits, batch), batch)

    def decode(self, logits: Tensor, batch: SentenceBatch) -> Mapping[str, Tensor]:
        """Return the labels ``[B, N]`` by the name of the way they were found; the first is the one to judge by."""
        return {"": self.refined(logits, batch).argmax(-1)}

    def refined(self, logits: Tensor, batch: SentenceBatch) -> Tensor:
        """Return the logits that both of these look at."""
        return logits


class ChainHead(Head):
    """A linear-chain CRF: its likelihood in training, Viterbi at the end."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.chain = LinearChainCRF(classes)

    def loss(self, logits: Tensor, batch: SentenceBatch, *, epoch: int) -> Tensor:
        """Return the negative log-likelihood for each word."""
        return self.chain.negative_log_likelihood(logits, batch.labels, batch.mask).sum() / batch.mask.sum()

    def decode(self, logits: Tensor, batch: SentenceBatch) -> Mapping[str, Tensor]:
        """Return the most probable sequences."""
        return {"": self.chain.decode(logits, batch.mask)}


class MeanFieldHead(Head):
    """A chain by mean field, trained end to end."""

    def __init__(self, classes: int, *, iterations: int) -> None:
        super().__init__()
        self.field = MeanFieldCRF(classes, iterations=iterations)

    def refined(self, logits: Tensor, batch: SentenceBatch) -> Tensor:
        """Return the logits of the last step of the field."""
        refined: Tensor = self.field(logits, batch.mask)
        return refined


class DistilledHead(Head):
    """A student p that imitates a teacher q; π grows with the epochs."""

    def __init__(self, teacher: ChainTeacher, *, decay: float, limit: float) -> None:
        super().__init__()
        self.teacher, self.decay, self.limit = teacher, decay, limit

    def loss(self, logits: Tensor, batch: SentenceBatch, *, epoch: int) -> Tensor:
        """Return the mixture of both cross-entropies."""
        share = imitation_share(epoch, decay=self.decay, limit=self.limit)
        return self.teacher.student_losses(logits, batch.labels, batch.mask, imitation=share).sum() / batch.mask.sum()

    def decode(self, logits: Tensor, batch: SentenceBatch) -> Mapping[str, Tensor]:
        """Return what the teacher and what the student say."""
        return {"q": self.teacher.decode(logits, batch.mask), "p": logits.argmax(-1)}


class PenalisedHead(Head):
    """A penalty for broken rules is added in training, ``L + λ·penalty``; at the end the rules are not looked at."""

    def __init__(self, penalty: Callable[..., Tensor], *, weight: float, evidence: tuple[str, ...] = (NEXT,)) -> None:
        super().__init__()
        self.penalty, self.weight, self.evidence = penalty, weight, evidence

    def loss(self, logits: Tensor, batch: SentenceBatch, *, epoch: int) -> Tensor:
        """Return cross-entropy and penalty."""
        given = {name: evidence_of(batch)[name] for name in self.evidence}
        penalty = self.penalty({LABEL: logits}, evidence=given, mask={TOKEN: batch.mask})
        return cross_entropy(logits, batch) + self.weight * penalty


class LogicHead(Head):
    """A layer of rules on the logits, trained end to end."""

    def __init__(self, layer: Callable[..., Mapping[str, Tensor]], *, evidence: tuple[str, ...] = (NEXT,)) -> None:
        super().__init__()
        self.layer, self.evidence = layer, evidence

    def refined(self, logits: Tensor, batch: SentenceBatch) -> Tensor:
        """Return the logits of the layer."""
        given = {name: evidence_of(batch)[name] for name in self.evidence}
        return self.layer({LABEL: logits}, evidence=given, mask={TOKEN: batch.mask})[LABEL]


def evidence_of(batch: SentenceBatch) -> dict[str, Tensor]:
    """Return the relations between tokens that are given, ``[B, N, N]`` each."""
    return {NEXT: batch.next, SAME_LIST: batch.same_list}


def cross_entropy(logits: Tensor, batch: SentenceBatch) -> Tensor:
    """Return the mean cross-entropy of the words of a batch."""
    return torch.nn.functional.cross_entropy(logits[batch.mask], batch.labels[batch.mask])
