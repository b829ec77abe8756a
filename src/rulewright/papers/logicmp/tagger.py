"""The sequence tagger of LogicMP's experiment on text: a bidirectional LSTM over words and characters."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rulewright.errors import DataError
from rulewright.io.conll import Sentence
from rulewright.papers.logicmp.sentences import (
    CASES,
    FIRST,
    UNKNOWN,
    SentenceBatch,
    SentenceFeatures,
    SentenceFeaturizer,
)
from rulewright.training.loop import StepPosition, TrainingLoop, TrainingProgress, TrainingResult, TrainingSettings


class Tagger(nn.Module):
    """``logits_t = W·[→h_t; ←h_t] + b``, h the states of an LSTM over ``[E_word; E_case; max conv(E_character)]``.

    In training a rare word is read as unknown with probability ``rare_dropout`` and any other with ``word_dropout``, so
    that the unknown word has a meaning. ``subwords [S, D]`` are pretrained vectors of the featurizer's pieces; they
    stay as they are, and a linear map of the mean over a word's pieces is added to its embedding.
    """

    def __init__(
        self,
        featurizer: SentenceFeaturizer,
        *,
        word_size: int = 100,
        case_size: int = 8,
        character_size: int = 25,
        filters: int = 50,
        hidden_size: int = 150,
        dropout: float = 0.5,
        word_dropout: float = 0.02,
        rare_dropout: float = 0.5,
        subwords: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.featurizer = featurizer
        self.words = nn.Embedding(FIRST + len(featurizer.words), word_size, padding_idx=0)
        nn.init.uniform_(self.words.weight, -((3 / word_size) ** 0.5), (3 / word_size) ** 0.5)
        self.cases = nn.Embedding(len(CASES), case_size, padding_idx=0)
        self.characters = CharacterFeatures(FIRST + len(featurizer.characters), character_size, filters)
        self.subwords = None if subwords is None else SubwordFeatures(subwords, word_size)
        self.lstm = BothWays(word_size + case_size + filters, hidden_size)
        self.scores = nn.Linear(2 * hidden_size, len(featurizer.classes))
        self.dropout = nn.Dropout(dropout)
        unknown = torch.where(featurizer.rare, rare_dropout, word_dropout)
        self.register_buffer("unknown", unknown, persistent=False)

    def forward(self, batch: SentenceBatch) -> Tensor:
        """Return the logits of all words, ``[B, N, K]``; those of padding mean nothing."""
        words = self.words(self._with_unknown(batch.words))
        if self.subwords is not None:
            words = words + self.subwords(batch)[batch.form]
        read = torch.cat([words, self.cases(batch.cases), self.characters(batch.characters)[batch.form]], -1)
        states = self.lstm(self.dropout(read), batch.mask)
        scores: Tensor = self.scores(self.dropout(states))
        return scores

    def _with_unknown(self, words: Tensor) -> Tensor:
        if not self.training:
            return words
        chance = self.get_buffer("unknown")[words]
        return words.masked_fill(torch.rand(words.shape) < chance, UNKNOWN)


class CharacterFeatures(nn.Module):
    """``max_c relu(conv_3(E_character))_c`` over the characters of each form, ``[U, C] → [U, filters]``."""

    def __init__(self, characters: int, size: int, filters: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(characters, size, padding_idx=0)
        self.convolve = nn.Conv1d(size, filters, 3, padding=1)

    def forward(self, characters: Tensor) -> Tensor:
        """Return one vector for each form."""
        windows = torch.relu(self.convolve(self.embed(characters).transpose(1, 2)))
        return windows.masked_fill((characters == 0)[:, None, :], 0.0).amax(-1)  # 0 is the least that relu gives


class SubwordFeatures(nn.Module):
    """A linear map of the mean of the fixed vectors of a form's pieces, ``[U] → [U, size]``."""

    def __init__(self, vectors: Tensor, size: int) -> None:
        super().__init__()
        self.register_buffer("vectors", vectors.detach(), persistent=False)  # never trained, so never saved
        self.project = nn.Linear(vectors.shape[1], size)

    def forward(self, batch: SentenceBatch) -> Tensor:
        """Return one vector for each form of a batch."""
        means = nn.functional.embedding_bag(batch.pieces, self.get_buffer("vectors"), batch.piece_starts, mode="mean")
        projected: Tensor = self.project(means)
        return projected


class BothWays(nn.Module):
    """An LSTM from the left and one from the right, ``[B, N, D] → [B, N, 2H]``, each sentence to its own end.

    The second reads every sentence reversed within its length, so that neither meets padding before words; on a CPU,
    two plain LSTMs have a faster kernel than packed sequences.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.right = nn.LSTM(input_size, hidden_size, batch_first=True)
        self.left = nn.LSTM(input_size, hidden_size, batch_first=True)

    def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
        """Return the states of both directions, side by side."""
        positions = reversed_positions(mask)
        to_the_left = _gather_words(self.left(_gather_words(inputs, positions))[0], positions)
        return torch.cat([self.right(inputs)[0], to_the_left], -1)


def reversed_positions(mask: Tensor) -> Tensor:
    """Return, for each position in a sentence, the one at the same distance from its other end; padding stays.

    >>> reversed_positions(torch.tensor([[True, True, True, False]])).tolist()
    [[2, 1, 0, 3]]
    """
    positions = torch.arange(mask.shape[1]).expand_as(mask)
    return torch.where(mask, mask.sum(1, keepdim=True) - 1 - positions, positions)


def _gather_words(values: Tensor, positions: Tensor) -> Tensor:
    return values.gather(1, positions[..., None].expand(-1, -1, values.shape[-1]))


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
        for position in range(1, logits.shape[1]):
            step = torch.logsumexp(forward[:, :, None] + self.transitions, 1) + logits[:, position]
            forward = torch.where(mask[:, position, None], step, forward)
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
            (marginals,) = torch.autograd.grad(self.log_partition(unary, mask).sum(), unary)
        return marginals

    def decode(self, logits: Tensor, mask: Tensor) -> Tensor:
        """Return the most probable labelling (Viterbi), ``[B, N]``, 0 in padding; of equals, the smaller label."""
        with torch.no_grad():
            best = self.first + logits[:, 0]
            stay = torch.arange(logits.shape[2]).expand_as(best)
            came_from = []
            for position in range(1, logits.shape[1]):
                step, before = (best[:, :, None] + self.transitions).max(1)
                real = mask[:, position, None]
                best = torch.where(real, step + logits[:, position], best)
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


LABEL, NEXT, SAME_LIST, TOKEN = "label", "next", "samelist", "token"
"""The names that the rules use: the labels of tokens, and the two relations between tokens that are given."""


class TaggingHead(nn.Module):
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


class ChainHead(TaggingHead):
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


class MeanFieldHead(TaggingHead):
    """A chain by mean field, trained end to end."""

    def __init__(self, classes: int, *, iterations: int) -> None:
        super().__init__()
        self.field = MeanFieldCRF(classes, iterations=iterations)

    def refined(self, logits: Tensor, batch: SentenceBatch) -> Tensor:
        """Return the logits of the last step of the field."""
        refined: Tensor = self.field(logits, batch.mask)
        return refined


class DistilledHead(TaggingHead):
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


class PenalisedHead(TaggingHead):
    """A penalty for broken rules is added in training, ``L + λ·penalty``; at the end the rules are not looked at."""

    def __init__(self, penalty: Callable[..., Tensor], *, weight: float, evidence: tuple[str, ...] = (NEXT,)) -> None:
        super().__init__()
        self.penalty, self.weight, self.evidence = penalty, weight, evidence

    def loss(self, logits: Tensor, batch: SentenceBatch, *, epoch: int) -> Tensor:
        """Return cross-entropy and penalty."""
        given = {name: evidence_of(batch)[name] for name in self.evidence}
        penalty = self.penalty({LABEL: logits}, evidence=given, mask={TOKEN: batch.mask})
        return cross_entropy(logits, batch) + self.weight * penalty


class LogicHead(TaggingHead):
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


DECODED_AT_ONCE = 128

Tags = tuple[tuple[str, ...], ...]


class TaggingModel(nn.Module):
    """A tagger and the head on it."""

    def __init__(self, tagger: Tagger, head: TaggingHead) -> None:
        super().__init__()
        self.tagger, self.head = tagger, head

    def loss(self, sentences: Sequence[SentenceFeatures], *, epoch: int) -> Tensor:
        """Return what is minimised for a batch of sentences in an epoch, counted from 0."""
        batch = self.tagger.featurizer.collate(sentences)
        return self.head.loss(self.tagger(batch), batch, epoch=epoch)

    def predict(self, sentences: Sequence[Sentence]) -> dict[str, Tags]:
        """Return the tags of sentences by the name of the way the head found them."""
        featurizer = self.tagger.featurizer
        features = featurizer.features(sentences)
        order = sorted(range(len(features)), key=lambda index: len(features[index].words))
        by_way: dict[str, list[tuple[str, ...]]] = {}
        was_training = self.training
        self.eval()
        with torch.no_grad():
            for start in range(0, len(order), DECODED_AT_ONCE):
                indices = order[start : start + DECODED_AT_ONCE]
                batch = featurizer.collate([features[index] for index in indices])
                for way, labels in self.head.decode(self.tagger(batch), batch).items():
                    tags = by_way.setdefault(way, [()] * len(features))
                    for index, row in zip(indices, labels.tolist(), strict=True):
                        tags[index] = tuple(featurizer.classes[label] for label in row[: len(features[index].words)])
        self.train(was_training)
        return {way: tuple(tags) for way, tags in by_way.items()}


def train_tagger(
    model: TaggingModel,
    sentences: Sequence[Sentence],
    *,
    settings: TrainingSettings,
    score: Callable[[TaggingModel], float],
    folder: str | os.PathLike[str] | None = None,
    identity: Mapping[str, Any] | None = None,
    progress: Callable[[TrainingProgress], None] | None = None,
) -> TrainingResult:
    """Train a tagger on tagged sentences and leave in it the weights of the epoch with the best score.

    Steps take ``batch_size`` sentences of similar length. With a ``folder`` every epoch is saved there, and calling
    again goes on where it stopped, bit for bit; Ctrl-C stops after the running step. ``identity`` is whatever else
    must be equal for a folder to belong to this run, as values of JSON.
    """
    if not sentences:
        raise DataError("there are no sentences to train on")
    if any(not sentence.tags for sentence in sentences):
        raise DataError("a sentence to train on has no tags")
    features = model.tagger.featurizer.features(sentences)

    def losses(
        batch: Sequence[SentenceFeatures], position: StepPosition
    ) -> Iterator[tuple[Tensor, Mapping[str, Tensor]]]:
        loss = model.loss(batch, epoch=position.epoch)
        yield loss, {"loss": loss}

    return TrainingLoop(
        model,
        features,
        losses,
        lengths=[len(sentence.words) for sentence in features],
        settings=settings,
        identity={**_identity(model, sentences), **(identity or {})},
        score=lambda: score(model),
        folder=folder,
        progress=progress,
    ).run()


def _identity(model: TaggingModel, sentences: Sequence[Sentence]) -> dict[str, Any]:
    """What must be equal for a saved state to belong to this run."""
    text = "\n".join(" ".join((*sentence.tokens, *sentence.tags)) for sentence in sentences)
    return {
        "head": type(model.head).__name__,
        "parameters": sum(weights.numel() for weights in model.parameters()),
        "sentences": hashlib.sha256(text.encode()).hexdigest()[:16],
    }
