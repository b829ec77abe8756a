"""The sequence tagger of LogicMP's experiment on text: a bidirectional LSTM over words and characters."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rulewright.models.sentences import CASES, FIRST, UNKNOWN, SentenceBatch, SentenceFeaturizer


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
        place = reversed_places(mask)
        to_the_left = _picked(self.left(_picked(inputs, place))[0], place)
        return torch.cat([self.right(inputs)[0], to_the_left], -1)


def reversed_places(mask: Tensor) -> Tensor:
    """Return, for each place of a sentence, the place at the same distance from its other end; padding stays.

    >>> reversed_places(torch.tensor([[True, True, True, False]])).tolist()
    [[2, 1, 0, 3]]
    """
    place = torch.arange(mask.shape[1]).expand_as(mask)
    return torch.where(mask, mask.sum(1, keepdim=True) - 1 - place, place)


def _picked(values: Tensor, place: Tensor) -> Tensor:
    return values.gather(1, place[..., None].expand(-1, -1, values.shape[-1]))
