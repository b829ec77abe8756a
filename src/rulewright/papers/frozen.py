"""Encoders whose weights stay as they are: each document and each name is encoded once, and small networks read that.

A step of training then costs what the small network costs, some hundredth of a second for a document on one core.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rulewright.data.index import range_bounds
from rulewright.io.docred import Document
from rulewright.papers.documents import FIRST_TYPE, DocumentBatch, DocumentFeatures, collate
from rulewright.papers.encoders import Encoded, Encoder, PretrainedEncoder

NAMES_AT_ONCE = 64


class FrozenEncoder(Encoder):
    """The states of a pretrained encoder that is not trained, kept in half precision.

    With a ``folder`` they are kept there too, for later runs, under a digest of the encoder's weights and the text. The
    encoder is no part of the module: its weights are not saved with the network's.
    """

    pretrained = False
    has_attention = True
    sees_entities = False

    def __init__(self, encoder: PretrainedEncoder, *, folder: str | os.PathLike[str] | None = None) -> None:
        super().__init__()
        self.tokenizer = encoder.tokenizer
        self.hidden_size = encoder.hidden_size
        self._source = (encoder.eval().requires_grad_(False),)
        self._documents: dict[int, tuple[DocumentFeatures, Encoded]] = {}  # holds the features so that their id stays
        self._contexts: dict[int, Tensor] = {}
        self._names: dict[str, Tensor] = {}
        self._folder = None if folder is None else Path(folder) / _digest_weights(encoder)

    def forward(self, batch: DocumentBatch, *, with_attention: bool = False) -> Encoded:
        """Put together what is known of the documents of a batch."""
        encoded = [self._recall(document) for document in batch.documents]
        length, device = batch.pieces.shape[1], batch.pieces.device
        states = torch.zeros(len(encoded), length, self.hidden_size)
        for row, document in enumerate(encoded):
            states[row, : len(document.states)] = document.states
        if not with_attention:
            return Encoded(states.to(device))
        parts = [nn.functional.pad(_attention(part), (0, length - _attention(part).shape[-1])) for part in encoded]
        return Encoded(states.to(device), torch.cat(parts).float().to(device))

    def contexts(self, batch: DocumentBatch, pool: Callable[[Tensor, Tensor, DocumentBatch], Tensor]) -> Tensor:
        """Return what ``pool`` makes of states, attention and each document alone, which is done once for each."""
        for features in batch.documents:
            if id(features) not in self._contexts:
                encoded, alone = self._recall(features), collate([features])
                with torch.no_grad():
                    pooled = pool(encoded.states.float()[None], _attention(encoded).float(), alone)
                self._contexts[id(features)] = pooled.half()
        return torch.cat([self._contexts[id(features)] for features in batch.documents]).float()

    def name_states(self, batch: DocumentBatch) -> Tensor:
        """Return ``[E, d]``: of each entity the mean over its names, each read alone, of the mean over the pieces."""
        entities = [names for document in batch.documents for names in document.entity_names]
        self._encode_names(sorted({name for names in entities for name in names} - self._names.keys()))
        means = [torch.stack([self._names[name] for name in names]).float().mean(0) for names in entities]
        return torch.stack(means).to(batch.pieces.device)

    def _recall(self, features: DocumentFeatures) -> Encoded:
        if id(features) not in self._documents:
            file = None if self._folder is None else self._folder / f"{_digest_text(features)}.safetensors"
            if file is not None and file.exists():
                kept = load_file(file)
                encoded = Encoded(kept["states"], kept["attention"])
            else:
                with torch.no_grad():
                    found = self._source[0](collate([features]), with_attention=True)
                encoded = Encoded(found.states[0].half().clone(), _attention(found).half().clone())
                if file is not None:
                    file.parent.mkdir(parents=True, exist_ok=True)
                    unfinished = file.with_suffix(f".{os.getpid()}")
                    save_file({"states": encoded.states, "attention": _attention(encoded)}, unfinished)
                    unfinished.replace(file)
            self._documents[id(features)] = features, encoded
        return self._documents[id(features)][1]

    def _encode_names(self, names: Sequence[str]) -> None:
        source = self._source[0]
        tokenizer = source.tokenizer
        for start in range(0, len(names), NAMES_AT_ONCE):
            part = names[start : start + NAMES_AT_ONCE]
            texts = [[piece for word in tokenizer.pieces(name.split() or [name]) for piece in word] for name in part]
            room = source.window - len(tokenizer.prefix) - len(tokenizer.suffix)
            rows = [torch.tensor([*tokenizer.prefix, *text[:room], *tokenizer.suffix]) for text in texts]
            pieces = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=tokenizer.padding)
            real = torch.arange(pieces.shape[1]) < torch.tensor([len(row) for row in rows])[:, None]
            with torch.no_grad():
                output = source.model(input_ids=pieces, attention_mask=real.long())
            means = (output.last_hidden_state * real[..., None]).sum(1) / real.sum(1, keepdim=True)
            self._names.update(zip(part, means.half().clone(), strict=True))


def _attention(encoded: Encoded) -> Tensor:
    assert encoded.attention is not None
    return encoded.attention


def _digest_weights(encoder: PretrainedEncoder) -> str:
    digest = hashlib.sha256(str(encoder.overlap).encode())
    for name, weights in encoder.model.state_dict().items():
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(weights.detach().cpu().float().numpy()).tobytes())
    return digest.hexdigest()[:16]


def _digest_text(features: DocumentFeatures) -> str:
    digest = hashlib.sha256(features.pieces.numpy().tobytes())
    digest.update(features.mention_start.numpy().tobytes())
    return digest.hexdigest()[:24]


MENTIONS = 8
"""Entities with so many mentions or more share what says how many there are."""

SMALL = 0.02
"""The deviation of new vectors of words: a rare one says little until it has learned."""


class EntityReader(nn.Module):
    """``e' = relu(LayerNorm(W e + V n + Σ_w u_w + t_type + m))``: an entity by its states, names, type and mentions.

    e is what the network makes of the text, n the states of the names read alone, u a vector for each of ``words`` that
    is in a name, and for each of them that is one, t a vector for each type, and m one for the number of mentions. In
    training, words are dropped like anything else, so that the network does not live on names that it knows.
    """

    def __init__(
        self,
        encoder: FrozenEncoder,
        entity_size: int,
        size: int,
        *,
        types: int,
        words: Sequence[str] = (),
        dropout: float = 0.3,
    ) -> None:
        super().__init__()
        self._encoder = (encoder,)
        self._word_index = {word: index for index, word in enumerate(words)}
        self.states = nn.Linear(entity_size, size)
        self.names = nn.Linear(encoder.hidden_size, size, bias=False)
        self.words = nn.EmbeddingBag(max(1, len(words)), size, mode="sum")
        nn.init.normal_(self.words.weight, std=SMALL)
        self.types = nn.Embedding(FIRST_TYPE + types, size)
        self.mentions = nn.Embedding(MENTIONS + 1, size)
        self.normalize = nn.LayerNorm(size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, entities: Tensor, batch: DocumentBatch) -> Tensor:
        """Read the entities of a batch, ``[E, entity_size] -> [E, size]``."""
        names = self._encoder[0].name_states(batch)
        types = torch.cat([document.entity_type for document in batch.documents]).to(entities.device)
        summed = (
            self.states(self.dropout(entities))
            + self.names(self.dropout(names))
            + self._read_words(batch)
            + self.types(types)
            + self.mentions(batch.entity_mentions.clamp(max=MENTIONS))
        )
        read: Tensor = self.dropout(torch.relu(self.normalize(summed)))
        return read

    def _read_words(self, batch: DocumentBatch) -> Tensor:
        index = self._word_index
        bags = [
            [index[word] for word in words_of(names) if word in index]
            for document in batch.documents
            for names in document.entity_names
        ]
        flat = torch.tensor([word for bag in bags for word in bag], dtype=torch.long)
        starts = torch.tensor(range_bounds([len(bag) for bag in bags])[:-1], dtype=torch.long)
        device = self.words.weight.device
        kept: Tensor = self.dropout(torch.ones(len(flat), device=device))
        read: Tensor = self.words(flat.to(device), starts.to(device), per_sample_weights=kept)
        return read


def words_of(names: Iterable[str]) -> set[str]:
    """Return the words of an entity's names and the names themselves, in lower case.

    >>> sorted(words_of(["West Germany", "Germany"]))
    ['=germany', '=west germany', 'germany', 'west']
    """
    lowered = [name.lower() for name in names]
    return {word for name in lowered for word in name.split()} | {f"={name}" for name in lowered}


def frequent_words(documents: Iterable[Document], *, least: int = 2) -> list[str]:
    """Return the words of names that occur in so many documents, sorted."""
    counts: Counter[str] = Counter()
    for document in documents:
        counts.update(words_of(mention.name for entity in document.entities for mention in entity.mentions))
    return sorted(word for word, count in counts.items() if count >= least)
