"""Batches of documents: padded texts, and the mentions, entities and pairs of all documents in one list each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rulewright.papers.milr.documents import DocumentFeatures

NOT_A_PAIR = -30.0  # the logit of an entity with itself and of padding: certainly no relation, and finite


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """B documents with, in all, M mentions, E entities and U unordered pairs, hence P = 2U ordered ones.

    Pair ``u`` joins ``head[u]`` to ``tail[u]`` and pair ``U + u`` the same two the other way round, so that what is
    symmetric is computed once. Entities count over the whole batch.
    """

    documents: tuple[DocumentFeatures, ...]
    pieces: Tensor  # [B, L]
    piece_type: Tensor  # [B, L]
    piece_coreference: Tensor  # [B, L]
    mention_document: Tensor  # [M]
    mention_start: Tensor  # [M]
    mention_end: Tensor  # [M]
    mention_entity: Tensor  # [M]
    mention_sentence: Tensor  # [M]
    entity_document: Tensor  # [E]
    entity_mentions: Tensor  # [E]
    head: Tensor  # [P]
    tail: Tensor  # [P]
    pair_document: Tensor  # [P]
    pair_distance: Tensor  # [P] words from the head's first mention to the tail's
    cell: Tensor  # [P] the pair's place in a flattened [B, n, n]
    entity_cell: Tensor  # [E] the entity's place in a flattened [B, n]
    labels: Tensor  # [P, R]
    mask: Tensor  # [B, n]

    @property
    def lengths(self) -> list[int]:
        """The number of pieces of each document."""
        return [len(each.pieces) for each in self.documents]

    @property
    def sizes(self) -> list[int]:
        """The number of entities of each document."""
        return [each.entities for each in self.documents]

    def padded(self, entities: Tensor) -> Tensor:
        """Spread values of entities ``[E, …]`` over ``[B, n, …]``, with 0 in padding."""
        table = entities.new_zeros(self.mask.numel(), *entities.shape[1:])
        return table.index_copy(0, self.entity_cell, entities).view(*self.mask.shape, *entities.shape[1:])

    def pairs(self, table: Tensor) -> Tensor:
        """Pick the values of pairs ``[P, …]`` from a table ``[B, n, n, …]``."""
        return table.flatten(0, 2).index_select(0, self.cell)

    def dense(self, values: Tensor, *, fill: float = NOT_A_PAIR) -> Tensor:
        """Spread values of pairs ``[P, …]`` over ``[B, n, n, …]``, with ``fill`` on the diagonal and in padding."""
        documents, size = self.mask.shape
        table = values.new_full((documents * size * size, *values.shape[1:]), fill)
        return table.index_copy(0, self.cell, values).view(documents, size, size, *values.shape[1:])


def collate(documents: Sequence[DocumentFeatures], *, device: torch.device | None = None) -> Batch:
    """Put documents into one batch."""
    sizes = [each.entities for each in documents]
    size = max(sizes, default=0)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    upper = [torch.triu_indices(n, n, 1) for n in sizes]
    first = [pairs[0] for pairs in upper]
    second = [pairs[1] for pairs in upper]

    def both_ways(parts: Sequence[Tensor], reversed_parts: Sequence[Tensor]) -> Tensor:
        return torch.cat([*parts, *reversed_parts])

    def along(parts: Sequence[Tensor]) -> Tensor:
        return torch.cat([part + offset for part, offset in zip(parts, offsets[:-1], strict=True)])

    numbers = [torch.full((len(each),), number) for number, each in enumerate(first)]
    cells = [number * size * size + i * size + j for number, (i, j) in enumerate(zip(first, second, strict=True))]
    cells_back = [number * size * size + j * size + i for number, (i, j) in enumerate(zip(first, second, strict=True))]
    labels = [each.labels() for each in documents]
    distances = [each.distances() for each in documents]

    def pick(tables: Sequence[Tensor]) -> Tensor:
        there = [table[i, j] for table, i, j in zip(tables, first, second, strict=True)]
        back = [table[j, i] for table, i, j in zip(tables, first, second, strict=True)]
        return both_ways(there, back)

    entity_document = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes, dtype=torch.long))
    mention_entity = along([each.mention_entity for each in documents])
    batch = {
        "pieces": pad_sequence([each.pieces for each in documents], batch_first=True),
        "piece_type": pad_sequence([each.piece_type for each in documents], batch_first=True),
        "piece_coreference": pad_sequence([each.piece_coreference for each in documents], batch_first=True),
        "mention_document": entity_document[mention_entity],
        "mention_start": torch.cat([each.mention_start for each in documents]),
        "mention_end": torch.cat([each.mention_end for each in documents]),
        "mention_entity": mention_entity,
        "mention_sentence": torch.cat([each.mention_sentence for each in documents]),
        "entity_document": entity_document,
        "entity_mentions": torch.bincount(mention_entity, minlength=offsets[-1]),
        "head": torch.cat([along(first), along(second)]),
        "tail": torch.cat([along(second), along(first)]),
        "pair_document": both_ways(numbers, numbers),
        "pair_distance": pick(distances),
        "cell": both_ways(cells, cells_back),
        "entity_cell": torch.cat([number * size + torch.arange(n) for number, n in enumerate(sizes)]),
        "labels": pick(labels),
        "mask": torch.arange(size)[None, :] < torch.tensor(sizes)[:, None],
    }
    return Batch(documents=tuple(documents), **{name: tensor.to(device) for name, tensor in batch.items()})


def passes(documents: Sequence[DocumentFeatures], pieces: int) -> list[list[DocumentFeatures]]:
    """Cut documents into runs that have at most so many pieces with their padding; a long document stands alone."""
    parts: list[list[DocumentFeatures]] = []
    longest = 0
    for document in documents:
        longest = max(longest, len(document.pieces))
        if not parts or longest * (len(parts[-1]) + 1) > pieces:
            parts.append([])
            longest = len(document.pieces)
        parts[-1].append(document)
    return parts
