"""What every relation extractor has in common: documents in, a logit for each pair and relation out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from rulewright.errors import DataError
from rulewright.io.docred import Document
from rulewright.papers.documents import DocumentBatch, DocumentFeatures, Featurizer
from rulewright.papers.encoders import Encoder
from rulewright.papers.frozen import EntityReader, FrozenEncoder


@dataclass(frozen=True, slots=True, eq=False)
class PairLogits:
    """Logits ``[P, R]`` of the ordered pairs of a batch and, where the model has them, thresholds ``[P]``."""

    batch: DocumentBatch
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
    def forward(self, batch: DocumentBatch) -> PairLogits:
        """Score all ordered pairs of different entities in a batch."""

    @abstractmethod
    def pair_losses(self, output: PairLogits) -> Tensor:
        """Return the classification loss of each pair, ``[P]``."""


PAIRS_AT_ONCE = 256  # keeps the products of a chunk within a processor's cache
PAIRS_TO_KEEP = 8192  # with more pairs the products are computed again in the backward pass instead of being kept
DISTANCE_POWERS = 10  # distances of 2^9 words and more are one class
DISTANCE_CLASSES = 2 * DISTANCE_POWERS + 1


class GroupedBilinear(nn.Module):
    """``F_r = Σ_g x_g^T W_r^g y_g + b_r``: both vectors are cut into groups of ``block`` and only like groups meet.

    This needs ``d·block·R`` weights instead of ``d²·R``.
    """

    def __init__(self, size: int, outputs: int, *, block: int = 64) -> None:
        super().__init__()
        if size % block:
            raise DataError(f"block must divide the size {size}, got {block}")
        self.groups, self.block = size // block, block
        self.linear = nn.Linear(size * block, outputs)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Score rows against rows, ``[P, size], [P, size] -> [P, outputs]``."""
        chunks = list(zip(torch.split(left, PAIRS_AT_ONCE), torch.split(right, PAIRS_AT_ONCE), strict=True))
        if len(left) > PAIRS_TO_KEEP and torch.is_grad_enabled():
            parts = [checkpoint(self._scores, a, b, use_reentrant=False) for a, b in chunks]
        else:
            parts = [self._scores(a, b) for a, b in chunks]
        return torch.cat(parts)

    def _scores(self, left: Tensor, right: Tensor) -> Tensor:
        left, right = (table.view(len(table), self.groups, self.block) for table in (left, right))
        scores: Tensor = self.linear((left[..., :, None] * right[..., None, :]).flatten(1))
        return scores


class DistanceBilinear(nn.Module):
    """``F_r = [e_i; D(d_ij)]^T W_r [e_j; D(d_ji)] + b_r``: entities with an embedding of their distance in words.

    The product is taken apart, so that no vector of a pair is ever made: the entities meet in one product of matrices,
    and since distances fall into few classes, all that they add is looked up in tables of entity and class.
    """

    def __init__(self, size: int, outputs: int, *, distance_size: int = 20) -> None:
        super().__init__()
        self.size = size
        self.distance = nn.Embedding(DISTANCE_CLASSES, distance_size)
        self.weight = nn.Parameter(torch.empty(size + distance_size, outputs, size + distance_size))
        self.bias = nn.Parameter(torch.zeros(outputs))
        bound = (size + distance_size) ** -0.5
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, entities: Tensor, batch: DocumentBatch) -> Tensor:
        """Score all ordered pairs, ``[E, size] -> [P, outputs]``."""
        size, table = self.size, self.distance.weight
        mirrored = table.flip(0)  # the class of d_ji is that of d_ij counted from the other end
        there, back = self.weight[:size], self.weight[size:]
        padded = batch.padded(entities)
        met = torch.einsum("birl,bjl->bijr", torch.einsum("bik,krl->birl", padded, there[:, :, :size]), padded)
        by_head = torch.einsum("ek,krl,dl->edr", entities, there[:, :, size:], mirrored)
        by_tail = torch.einsum("dk,krl,el->edr", table, back[:, :, :size], entities)
        alone = torch.einsum("dk,krl,dl->dr", table, back[:, :, size:], mirrored)
        classes = distance_class(batch.pair_distance)
        return (
            batch.pairs(met)
            + by_head.flatten(0, 1).index_select(0, batch.head * DISTANCE_CLASSES + classes)
            + by_tail.flatten(0, 1).index_select(0, batch.tail * DISTANCE_CLASSES + classes)
            + alone.index_select(0, classes)
            + self.bias
        )


def distance_class(distance: Tensor) -> Tensor:
    """Sort distances by sign and power of two: … -2, -1, 0, 1, 2–3, 4–7, … are neighbouring classes.

    >>> distance_class(torch.tensor([-9999, -3, -1, 0, 1, 2, 3, 4, 9999])).tolist()
    [0, 8, 9, 10, 11, 12, 12, 13, 20]
    """
    size = distance.abs()
    power = torch.bucketize(size, 2 ** torch.arange(DISTANCE_POWERS, device=size.device), right=True)
    return DISTANCE_POWERS + torch.sign(distance) * power


def mention_starts(states: Tensor, batch: DocumentBatch) -> Tensor:
    """The states ``[M, d]`` of the first piece (the marker, where there is one) of each mention."""
    index = batch.mention_document * states.shape[1] + batch.mention_start
    return states.flatten(0, 1).index_select(0, index)


def mention_means(states: Tensor, batch: DocumentBatch) -> Tensor:
    """The mean states ``[M, d]`` over the pieces of each mention, ``[B, L, d] -> [M, d]``."""
    widths = batch.mention_end - batch.mention_start
    mention = torch.repeat_interleave(torch.arange(len(widths), device=widths.device), widths)
    first = (torch.cumsum(widths, 0) - widths).index_select(0, mention)
    within = torch.arange(len(mention), device=widths.device) - first
    index = (batch.mention_document * states.shape[1] + batch.mention_start).index_select(0, mention) + within
    pieces = states.flatten(0, 1).index_select(0, index)
    total = states.new_zeros(len(widths), states.shape[-1]).index_add(0, mention, pieces)
    return total / widths[:, None]


def entity_means(mentions: Tensor, batch: DocumentBatch) -> Tensor:
    """The mean over each entity's mentions, ``[M, …] -> [E, …]``."""
    total = mentions.new_zeros(len(batch.entity_mentions), *mentions.shape[1:])
    total = total.index_add(0, batch.mention_entity, mentions)
    return total / batch.entity_mentions.to(total.dtype).view(-1, *[1] * (mentions.dim() - 1))


def entity_logsumexp(mentions: Tensor, batch: DocumentBatch) -> Tensor:
    """``log Σ_j exp h_j`` over each entity's mentions, a smooth maximum: ``[M, d] -> [E, d]``."""
    index = batch.mention_entity[:, None].expand_as(mentions)
    highest = mentions.new_full((len(batch.entity_mentions), mentions.shape[1]), float("-inf"))
    highest = highest.scatter_reduce(0, index, mentions.detach(), "amax")
    scaled = torch.exp(mentions - highest.index_select(0, batch.mention_entity))
    return highest + torch.log(torch.zeros_like(highest).index_add(0, batch.mention_entity, scaled))


def localized_context(states: Tensor, attention: Tensor, batch: DocumentBatch) -> Tensor:
    """Pool the context that both entities of a pair attend to: ``[U, d]``, one row for each unordered pair.

    With ``A_i`` the attention ``[heads, L]`` of entity i (the mean over its mentions), the weight of piece l is
    ``q_l = Σ_k A_i[k, l]·A_j[k, l]``, scaled to sum 1, and the context ``c = Σ_l q_l·h_l`` (Zhou et al. 2021).
    """
    entities = entity_means(attention, batch)
    contexts, start = [], 0
    for document_index, (size, length) in enumerate(zip(batch.sizes, batch.lengths, strict=True)):
        rows = entities[start : start + size, :, :length].permute(2, 0, 1)  # [length, n, heads]
        start += size
        upper = torch.triu_indices(size, size, 1, device=rows.device)
        # a product for each piece: all pairs at once without the [pairs, heads, length] array
        shared = torch.bmm(rows, rows.transpose(1, 2)).flatten(1).index_select(1, upper[0] * size + upper[1])
        weights = shared / shared.sum(0).clamp(min=torch.finfo(shared.dtype).tiny)
        contexts.append(weights.T @ states[document_index, :length])
    return torch.cat(contexts)


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


class Recurrent(Backbone):
    """``P(r|i, j) = σ([e_i; D(d_ij)]^T W_r [e_j; D(d_ji)] + b_r)``, e the mean over mentions of the mean over words.

    Which of the two it is, the encoder decides: a `WordEncoder` in one direction or in both.
    """

    def __init__(self, encoder: Encoder, featurizer: Featurizer, *, dropout: float = 0.2) -> None:
        super().__init__(encoder, featurizer)
        self.dropout = nn.Dropout(dropout)
        self.scores = DistanceBilinear(encoder.hidden_size, len(featurizer.relations))
        nn.init.constant_(self.scores.bias, RARE)

    def forward(self, batch: DocumentBatch) -> PairLogits:
        """Score all ordered pairs of different entities in a batch."""
        mentions = mention_means(self.encoder(batch).states, batch)
        entities = self.dropout(entity_means(mentions, batch))
        return PairLogits(batch, self.scores(entities, batch).float())

    def pair_losses(self, output: PairLogits) -> Tensor:
        """Return the mean cross-entropy over relations of each pair, ``[P]``."""
        return binary_cross_entropy(output.logits, output.batch.labels)


class Atlop(Backbone):
    """``z_h = tanh(W_h e_h + V_h c)``, ``z_t = tanh(W_t e_t + V_t c)`` and a grouped bilinear score of both.

    e is the logsumexp over the markers of an entity's mentions and c the context that both entities attend to. The
    first output is the threshold class TH: a relation holds where ``F_r > F_TH``. Over a `FrozenEncoder` e goes through
    an `EntityReader` first, which knows ``words`` of names.
    """

    def __init__(
        self,
        encoder: Encoder,
        featurizer: Featurizer,
        *,
        size: int | None = None,
        block: int = 64,
        words: Sequence[str] = (),
        dropout: float = 0.3,
    ) -> None:
        super().__init__(encoder, featurizer)
        if not encoder.has_attention:
            raise DataError("ATLOP pools by attention, which an LSTM has not; choose a transformer as encoder")
        hidden, size = encoder.hidden_size, size or encoder.hidden_size
        self.reader, entity_size = None, hidden
        if isinstance(encoder, FrozenEncoder):
            types, entity_size = len(featurizer.entity_types), size
            self.reader = EntityReader(encoder, hidden, size, types=types, words=words, dropout=dropout)
        self.head_entity = nn.Linear(entity_size, size)
        self.tail_entity = nn.Linear(entity_size, size)
        self.head_context = nn.Linear(hidden, size, bias=False)
        self.tail_context = nn.Linear(hidden, size, bias=False)
        self.scores = GroupedBilinear(size, 1 + len(featurizer.relations), block=block)
        with torch.no_grad():
            self.scores.linear.bias[0] = -RARE

    def forward(self, batch: DocumentBatch) -> PairLogits:
        """Score all ordered pairs of different entities in a batch."""
        if isinstance(self.encoder, FrozenEncoder):
            assert self.reader is not None
            states = self.encoder(batch).states
            entities = self.reader(entity_logsumexp(mention_starts(states, batch), batch), batch)
            context = self.encoder.contexts(batch, localized_context)
        else:
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
