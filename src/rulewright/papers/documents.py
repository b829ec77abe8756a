"""Documents as a network reads them: pieces of words, mentions, entities, pairs, labels; alone and in batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rulewright.errors import DataError, unknown_name
from rulewright.io.docred import Document, Entity, Mention

NO_ENTITY = 0
UNKNOWN_TYPE = 1
FIRST_TYPE = 2
SENTENCE_ENDS = frozenset(".!?")


NEAR = 100
"""Mentions that are no more characters apart are taken to stand in one sentence, where there is no text."""


def write_names_as_text(document: Document) -> Document:
    """Return a document without text as one whose text is the names of its mentions, in their order.

    A comma parts two mentions, a full stop those that are more than `NEAR` characters apart. What a network learns from
    it is how names, types and facts go together. A document that has a text is returned as it is.

    >>> town = Entity((Mention("Bonn", "LOC", characters=(40, 44)), Mention("Bonn", "LOC", characters=(300, 304))))
    >>> land = Entity((Mention("West Germany", "LOC", characters=(4, 16)),))
    >>> written = write_names_as_text(Document("A", (), (town, land)))
    >>> " ".join(written.sentences[0]), written.entities[0].mentions[1].start
    ('West Germany , Bonn . Bonn', 5)
    """
    if document.sentences:
        return document
    mentions = [
        (mention.characters or (0, 0), entity_index, position)
        for entity_index, entity in enumerate(document.entities)
        for position, mention in enumerate(entity.mentions)
    ]
    words: list[str] = []
    placed: dict[tuple[int, int], Mention] = {}
    last_end = 0
    for (start, end), entity_index, position in sorted(mentions):
        mention = document.entities[entity_index].mentions[position]
        if words:
            words.append("." if start - last_end > NEAR else ",")
        name = mention.name.split() or [mention.type]
        placed[entity_index, position] = replace(mention, sentence=0, start=len(words), end=len(words) + len(name))
        words += name
        last_end = end
    entities = tuple(
        Entity(tuple(placed[entity_index, position] for position in range(len(entity.mentions))))
        for entity_index, entity in enumerate(document.entities)
    )
    return replace(document, sentences=(tuple(words),), entities=entities)


class Tokenizer(Protocol):
    """Cuts words into pieces; ``prefix`` and ``suffix`` frame a text, ``marker`` stands at both ends of a mention."""

    @property
    def prefix(self) -> tuple[int, ...]:
        """The pieces before a text, such as ``[CLS]``."""

    @property
    def suffix(self) -> tuple[int, ...]:
        """The pieces after a text, such as ``[SEP]``."""

    @property
    def marker(self) -> tuple[int, ...]:
        """The pieces put before and after each mention; none where the encoder sees entities otherwise."""

    def pieces(self, words: Sequence[str]) -> list[tuple[int, ...]]:
        """Return the pieces of each word; white space may have none."""


@dataclass(frozen=True, slots=True, eq=False)
class DocumentFeatures:
    """One document in tensors; L pieces, M mentions (of all entities in turn), n entities, F distinct facts.

    A mention covers the pieces ``mention_start … mention_end - 1``, its markers included. Where mentions lie within
    each other, a piece belongs to the shortest. ``coreference`` numbers entities by their first appearance.
    """

    title: str
    pieces: Tensor  # [L]
    piece_type: Tensor  # [L], NO_ENTITY outside mentions, else the type of the entity
    piece_coreference: Tensor  # [L], 0 outside mentions, else 1 + the entity's position in the order of appearance
    mention_start: Tensor  # [M]
    mention_end: Tensor  # [M]
    mention_entity: Tensor  # [M]
    mention_sentence: Tensor  # [M]
    entity_type: Tensor  # [n]
    entity_word: Tensor  # [n], the word at which the entity is first mentioned
    entity_names: tuple[tuple[str, ...], ...]  # of each entity, each name once
    facts: Tensor  # [F, 3] head, tail, relation
    relations: int

    @property
    def entities(self) -> int:
        """The number n of entities."""
        return len(self.entity_type)

    def labels(self) -> Tensor:
        """The gold labels as booleans ``[n, n, R]``."""
        n = self.entities
        labels = torch.zeros(n, n, self.relations, dtype=torch.bool)
        labels[self.facts[:, 0], self.facts[:, 1], self.facts[:, 2]] = True
        return labels

    def distances(self) -> Tensor:
        """How many words the first mention of j stands after that of i, ``[n, n]``."""
        return self.entity_word[None, :] - self.entity_word[:, None]


class Featurizer:
    """Turns documents into features for one tokenizer, one list of relations and one of entity types.

    A document is tokenized once: asking again for the same object gives the same features.
    """

    def __init__(self, tokenizer: Tokenizer, *, relations: Sequence[str], entity_types: Sequence[str]) -> None:
        self.tokenizer = tokenizer
        self.relations = tuple(relations)
        self.entity_types = tuple(entity_types)
        self._relation_index = {name: index for index, name in enumerate(self.relations)}
        self._type_index = {name: FIRST_TYPE + index for index, name in enumerate(self.entity_types)}
        self._known: dict[
            int, tuple[Document, DocumentFeatures]
        ] = {}  # holds the document so that its id stays its own

    def __call__(self, documents: Iterable[Document]) -> list[DocumentFeatures]:
        """Return the features of each document, in order."""
        return [self._recall(document) for document in documents]

    def _recall(self, document: Document) -> DocumentFeatures:
        if id(document) not in self._known:
            self._known[id(document)] = document, self._make_features(document)
        return self._known[id(document)][1]

    def _make_features(self, document: Document) -> DocumentFeatures:
        words = [word for sentence in document.sentences for word in sentence]
        if not words:
            raise DataError(
                f"{document.title!r} has no text; a network reads tokens, which its file must give, or the names of "
                "entities, which write_names_as_text makes a text of"
            )
        spans = [_word_spans(document, entity) for entity in range(len(document.entities))]
        pieces, start_of, end_of = self._lay_out_pieces(words, spans)
        sentence_of = _sentence_indices(document)
        types = [self._type_index.get(entity.type, UNKNOWN_TYPE) for entity in document.entities]
        mentions = [(start, end, entity) for entity, entity_spans in enumerate(spans) for start, end in entity_spans]
        piece_type, piece_coreference = _tags(len(pieces), mentions, spans, types, start_of, end_of)
        return DocumentFeatures(
            title=document.title,
            pieces=torch.tensor(pieces),
            piece_type=piece_type,
            piece_coreference=piece_coreference,
            mention_start=_integers(start_of[start] for start, _, _ in mentions),
            mention_end=_integers(end_of[end] for _, end, _ in mentions),
            mention_entity=_integers(entity for _, _, entity in mentions),
            mention_sentence=_integers(sentence_of[start] for start, _, _ in mentions),
            entity_type=_integers(types),
            entity_word=_integers(min(start for start, _ in entity_spans) for entity_spans in spans),
            entity_names=tuple(
                tuple(dict.fromkeys(mention.name for mention in entity.mentions)) for entity in document.entities
            ),
            facts=self._read_facts(document),
            relations=len(self.relations),
        )

    def _lay_out_pieces(
        self, words: Sequence[str], spans: Sequence[Sequence[tuple[int, int]]]
    ) -> tuple[list[int], dict[int, int], dict[int, int]]:
        """Lay out prefix, marked words and suffix; also where a mention starting (ending) at a word starts (ends)."""
        tokenizer = self.tokenizer
        starts = {start for entity_spans in spans for start, _ in entity_spans}
        ends = {end for entity_spans in spans for _, end in entity_spans}
        pieces = list(tokenizer.prefix)
        start_of: dict[int, int] = {}
        end_of: dict[int, int] = {}
        for word, parts in enumerate(tokenizer.pieces(words)):
            if word in starts:
                start_of[word] = len(pieces)
                pieces += tokenizer.marker
            pieces += parts
            if word + 1 in ends:
                pieces += tokenizer.marker
                end_of[word + 1] = len(pieces)
        return [*pieces, *tokenizer.suffix], start_of, end_of

    def _read_facts(self, document: Document) -> Tensor:
        rows = set()
        for fact in document.facts:
            if fact.relation not in self._relation_index:
                raise DataError(f"{document.title!r}: {unknown_name('relation', fact.relation, self.relations)}")
            rows.add((fact.head, fact.tail, self._relation_index[fact.relation]))
        return torch.tensor(sorted(rows), dtype=torch.long).reshape(-1, 3)


def _integers(values: Iterable[int]) -> Tensor:
    return torch.tensor(list(values), dtype=torch.long)


def _word_spans(document: Document, entity: int) -> list[tuple[int, int]]:
    """Where the entity is mentioned, in words of the whole document."""
    offsets = [0]
    for sentence in document.sentences:
        offsets.append(offsets[-1] + len(sentence))
    mentions: tuple[Mention, ...] = document.entities[entity].mentions
    spans = []
    for mention in mentions:
        if mention.start is None or mention.end is None or mention.sentence is None:
            continue
        if not 0 <= mention.sentence < len(document.sentences):
            raise DataError(f"{document.title!r}: {mention} is in none of the {len(document.sentences)} sentences")
        offset, length = offsets[mention.sentence], len(document.sentences[mention.sentence])
        if not 0 <= mention.start < mention.end <= length:
            raise DataError(f"{document.title!r}: {mention} does not lie within its sentence of {length} tokens")
        spans.append((offset + mention.start, offset + mention.end))
    if not spans:
        name = document.entities[entity].name
        raise DataError(f"{document.title!r}: no mention of entity {entity} ({name!r}) says at which tokens it is")
    return spans


def _sentence_indices(document: Document) -> list[int]:
    """The sentence of each word; a text that comes as one sentence is cut after ``. ! ?``, as DWIE's need it."""
    if len(document.sentences) != 1:
        return [index for index, sentence in enumerate(document.sentences) for _ in sentence]
    indices, current = [], 0
    for word in document.sentences[0]:
        indices.append(current)
        current += word.strip() in SENTENCE_ENDS
    return indices


def _tags(
    length: int,
    mentions: Sequence[tuple[int, int, int]],
    spans: Sequence[Sequence[tuple[int, int]]],
    types: Sequence[int],
    start_of: dict[int, int],
    end_of: dict[int, int],
) -> tuple[Tensor, Tensor]:
    """Type and coreference of each piece, independent of the order in which the document lists its entities."""
    appearance = sorted(range(len(spans)), key=lambda entity: (sorted(spans[entity]), types[entity]))
    rank = {entity: position for position, entity in enumerate(appearance)}
    piece_type = torch.full((length,), NO_ENTITY)
    piece_coreference = torch.zeros(length, dtype=torch.long)
    for start, end, entity in sorted(mentions, key=lambda mention: (mention[0] - mention[1], -rank[mention[2]])):
        piece_type[start_of[start] : end_of[end]] = types[entity]
        piece_coreference[start_of[start] : end_of[end]] = 1 + rank[entity]
    return piece_type, piece_coreference


NOT_A_PAIR = -30.0  # the logit of an entity with itself and of padding: certainly no relation, and finite


@dataclass(frozen=True, slots=True, eq=False)
class DocumentBatch:
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
    cell: Tensor  # [P] the pair's position in a flattened [B, n, n]
    entity_cell: Tensor  # [E] the entity's position in a flattened [B, n]
    labels: Tensor  # [P, R]
    mask: Tensor  # [B, n]

    @property
    def lengths(self) -> list[int]:
        """The number of pieces of each document."""
        return [len(document.pieces) for document in self.documents]

    @property
    def sizes(self) -> list[int]:
        """The number of entities of each document."""
        return [document.entities for document in self.documents]

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


def collate(documents: Sequence[DocumentFeatures], *, device: torch.device | None = None) -> DocumentBatch:
    """Put documents into one batch."""
    sizes = [document.entities for document in documents]
    size = max(sizes, default=0)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    upper = [torch.triu_indices(n, n, 1) for n in sizes]
    first = [pairs[0] for pairs in upper]
    second = [pairs[1] for pairs in upper]

    def both_ways(parts: Sequence[Tensor], reversed_parts: Sequence[Tensor]) -> Tensor:
        return torch.cat([*parts, *reversed_parts])

    def along(parts: Sequence[Tensor]) -> Tensor:
        return torch.cat([part + offset for part, offset in zip(parts, offsets[:-1], strict=True)])

    document_index = [torch.full((len(pairs),), row) for row, pairs in enumerate(first)]
    cells = [row * size * size + i * size + j for row, (i, j) in enumerate(zip(first, second, strict=True))]
    cells_back = [row * size * size + j * size + i for row, (i, j) in enumerate(zip(first, second, strict=True))]
    labels = [document.labels() for document in documents]
    distances = [document.distances() for document in documents]

    def pick(tables: Sequence[Tensor]) -> Tensor:
        there = [table[i, j] for table, i, j in zip(tables, first, second, strict=True)]
        back = [table[j, i] for table, i, j in zip(tables, first, second, strict=True)]
        return both_ways(there, back)

    entity_document = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes, dtype=torch.long))
    mention_entity = along([document.mention_entity for document in documents])
    batch = {
        "pieces": pad_sequence([document.pieces for document in documents], batch_first=True),
        "piece_type": pad_sequence([document.piece_type for document in documents], batch_first=True),
        "piece_coreference": pad_sequence([document.piece_coreference for document in documents], batch_first=True),
        "mention_document": entity_document[mention_entity],
        "mention_start": torch.cat([document.mention_start for document in documents]),
        "mention_end": torch.cat([document.mention_end for document in documents]),
        "mention_entity": mention_entity,
        "mention_sentence": torch.cat([document.mention_sentence for document in documents]),
        "entity_document": entity_document,
        "entity_mentions": torch.bincount(mention_entity, minlength=offsets[-1]),
        "head": torch.cat([along(first), along(second)]),
        "tail": torch.cat([along(second), along(first)]),
        "pair_document": both_ways(document_index, document_index),
        "pair_distance": pick(distances),
        "cell": both_ways(cells, cells_back),
        "entity_cell": torch.cat([row * size + torch.arange(n) for row, n in enumerate(sizes)]),
        "labels": pick(labels),
        "mask": torch.arange(size)[None, :] < torch.tensor(sizes)[:, None],
    }
    return DocumentBatch(documents=tuple(documents), **{name: tensor.to(device) for name, tensor in batch.items()})


def split_passes(documents: Sequence[DocumentFeatures], pieces: int) -> list[list[DocumentFeatures]]:
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
