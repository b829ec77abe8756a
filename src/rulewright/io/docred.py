"""Documents with entities and the relations between them, in the JSON of DocRED, Re-DocRED and DWIE."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rulewright.data import ENTITY_TYPE, KnowledgeBase, KnowledgeBaseBuilder
from rulewright.errors import DataError, ParseError, unknown_name
from rulewright.files import write_text
from rulewright.io.folders import name_unread_files, split_files
from rulewright.io.formats import join_splits
from rulewright.io.json_shape import Json, dump_records, load, show_short
from rulewright.logic import PredicateDeclaration


@dataclass(frozen=True, slots=True)
class Mention:
    """A mention of an entity: the tokens ``start … end - 1`` of a sentence, where known.

    ``characters`` is the span in the running text, which files without tokens give instead.
    """

    name: str
    type: str
    sentence: int | None = None
    start: int | None = None
    end: int | None = None
    characters: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Entity:
    """All mentions of one thing; its name and type are those of the first."""

    mentions: tuple[Mention, ...]

    def __post_init__(self) -> None:
        if not self.mentions:
            raise DataError("an entity needs at least one mention, which gives its name and type")

    @property
    def name(self) -> str:
        """The name in the first mention."""
        return self.mentions[0].name

    @property
    def type(self) -> str:
        """The type in the first mention; annotators disagree on a few."""
        return self.mentions[0].type


@dataclass(frozen=True, slots=True)
class Fact:
    """A relation between two entities, given by their indices; ``evidence`` lists the sentences that show it."""

    head: int
    relation: str
    tail: int
    evidence: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A document; ``sentences`` is empty where the file has no text. Facts stand as in the file, repeated or not."""

    title: str
    sentences: tuple[tuple[str, ...], ...]
    entities: tuple[Entity, ...]
    facts: tuple[Fact, ...] = ()

    def __post_init__(self) -> None:
        for fact in self.facts:
            if not (0 <= fact.head < len(self.entities) and 0 <= fact.tail < len(self.entities)):
                raise DataError(f"{self.title!r}: {fact} joins entities outside 0 … {len(self.entities) - 1}")


@dataclass(frozen=True, slots=True)
class Prediction:
    """A fact that a model predicts for the document with this title."""

    title: str
    head: int
    relation: str
    tail: int


def read_documents(path: str | os.PathLike[str]) -> tuple[Document, ...]:
    """Read a file of documents; the labels and the text may be absent, as in test sets and DWIE's annotations.

    An error counts documents from 1 and, like the file itself, entities and sentences from 0.
    """
    documents: dict[str, Document] = {}
    for number, item in enumerate(load(path).items("documents"), start=1):
        title = item.called(f"document {number}")["title"].text()
        if title in documents:
            first = [*documents].index(title) + 1
            raise ParseError(
                f"documents {first} and {number} are both titled {show_short(title)}; titles must differ",
                file=item.file,
            )
        documents[title] = _read_document(title, item.called(f"document {number} ({show_short(title)})"))
    return tuple(documents.values())


def read_facts(path: str | os.PathLike[str]) -> KnowledgeBase:
    """Read the facts of a file of documents, or of a folder with a file for each split."""
    if not Path(path).is_dir():
        return to_knowledge_base(read_documents(path))
    files = split_files(Path(path), (".json",))
    parts = {split: read_documents(file) for split, file in files.items()}
    kb = to_knowledge_base(parts.pop(""), splits=parts)
    return kb.with_notes(name_unread_files(Path(path), files.values()))


def _read_document(title: str, item: Json) -> Document:
    sentences = tuple(sentence.texts() for sentence in item.optional_items("sents", "sentences"))
    entities = []
    for entity in item["vertexSet"].items("entities"):
        mentions = tuple(_read_mention(mention, sentences) for mention in entity.items("mentions"))
        if not mentions:
            raise entity.fault("is empty; an entity needs at least one mention")
        entities.append(Entity(mentions))
    facts = []
    for label in item.optional_items("labels", "facts"):
        head, tail = (label[end].index(len(entities), "entities") for end in ("h", "t"))
        evidence = [
            _read_sentence_index(index, sentences) for index in label.optional_items("evidence", "sentence numbers")
        ]
        facts.append(Fact(head, label["r"].text(), tail, tuple(evidence)))
    return Document(title, sentences, tuple(entities), tuple(facts))


def _read_mention(item: Json, sentences: tuple[tuple[str, ...], ...]) -> Mention:
    name, type_name = item["name"].text(), item["type"].text()
    characters, tokens = item.get("char_span"), item.get("pos")
    span = None if characters is None else _read_span(characters)
    if tokens is None:
        return Mention(name, type_name, characters=span)
    start, end = _read_span(tokens)
    sentence = _read_sentence_index(item["sent_id"], sentences)
    if sentences and end > len(sentences[sentence]):
        raise tokens.fault(f"ends at {end} but sentence {sentence} has {len(sentences[sentence])} tokens")
    return Mention(name, type_name, sentence, start, end, span)


def _read_sentence_index(item: Json, sentences: tuple[tuple[str, ...], ...]) -> int:
    return item.index(len(sentences), "sentences") if sentences else item.integer()


def _read_span(item: Json) -> tuple[int, int]:
    start, end = item.integers(2)
    if not 0 <= start < end:
        raise item.fault(f"must be [start, end] with 0 <= start < end, got {show_short([start, end])}")
    return start, end


def write_documents(documents: Iterable[Document], path: str | os.PathLike[str]) -> None:
    """Write documents, one to a line; `read_documents` gives equal ones back."""
    write_text(path, dump_records([_document_record(document) for document in documents]))


def _document_record(document: Document) -> dict[str, object]:
    record: dict[str, object] = {
        "title": document.title,
        "vertexSet": [[_mention_record(mention) for mention in entity.mentions] for entity in document.entities],
        "labels": [
            {"r": fact.relation, "h": fact.head, "t": fact.tail}
            | ({"evidence": fact.evidence} if fact.evidence else {})
            for fact in document.facts
        ],
    }
    return record | ({"sents": document.sentences} if document.sentences else {})


def _mention_record(mention: Mention) -> dict[str, object]:
    record: dict[str, object] = {"name": mention.name, "type": mention.type}
    if mention.start is not None:
        record |= {"pos": [mention.start, mention.end], "sent_id": mention.sentence}
    return record | ({"char_span": mention.characters} if mention.characters is not None else {})


def read_relation_names(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read a ``rel_info.json``: what each relation's id means, as in ``{"P17": "country"}``."""
    return {relation: name.text() for relation, name in load(path).fields()}


def read_predictions(path: str | os.PathLike[str]) -> tuple[Prediction, ...]:
    """Read a result file, a list of ``{"title": …, "h_idx": …, "t_idx": …, "r": …}``."""
    predictions = []
    for number, item in enumerate(load(path).items("predictions"), start=1):
        record = item.called(f"prediction {number}")
        head, tail = record["h_idx"], record["t_idx"]
        for end in (head, tail):
            if end.integer() < 0:
                raise end.fault(f"is {show_short(end.value)}; entities count from 0")
        predictions.append(Prediction(record["title"].text(), head.integer(), record["r"].text(), tail.integer()))
    return tuple(predictions)


def write_predictions(predictions: Iterable[Prediction], path: str | os.PathLike[str]) -> None:
    """Write a result file, one prediction to a line."""
    records: list[dict[str, object]] = [
        {"title": fact.title, "h_idx": fact.head, "t_idx": fact.tail, "r": fact.relation} for fact in predictions
    ]
    write_text(path, dump_records(records))


def to_knowledge_base(
    documents: Iterable[Document],
    *,
    relations: Sequence[str] | None = None,
    names: Mapping[str, str] | None = None,
    splits: Mapping[str, Iterable[Document]] | None = None,
) -> KnowledgeBase:
    """Turn documents into a knowledge base: a document is a world, a relation a binary predicate.

    An entity is labelled ``title#index name``; within its world it has the position of its index. The predicates
    are ``relations`` in that order, otherwise those that occur, sorted; ``names`` renames them. A fact that occurs
    twice in a document is kept once and counted in ``duplicates``.

    >>> town, land = (Entity((Mention(name, "LOC"),)) for name in ("Bonn", "Germany"))
    >>> documents = [Document("Bonn", (), (town, land), (Fact(0, "P17", 1), Fact(0, "P17", 1)))]
    >>> kb = to_knowledge_base(documents, names={"P17": "country"})
    >>> kb.tuples("country"), kb.worlds, kb.duplicates
    ([('Bonn#0 Bonn', 'Bonn#1 Germany')], ('Bonn',), 1)
    """
    parts = join_splits(documents, splits, "documents")
    predicates = _predicate_names(parts.values(), relations, names or {})
    builder = KnowledgeBaseBuilder(
        PredicateDeclaration(name, (ENTITY_TYPE, ENTITY_TYPE)) for name in predicates.values()
    )
    titles: set[str] = set()
    for split, members in parts.items():
        builder.split(split)  # a split of unlabelled documents has no facts and is still one
        for document in members:
            if document.title in titles:
                raise DataError(f"two documents are titled {document.title!r}; titles name worlds and must differ")
            titles.add(document.title)
            _add(builder, document, predicates, split)
    return builder.build()


def _predicate_names(
    parts: Iterable[tuple[Document, ...]], relations: Sequence[str] | None, names: Mapping[str, str]
) -> dict[str, str]:
    occurring = sorted({fact.relation for part in parts for document in part for fact in document.facts})
    predicates: dict[str, str] = {}
    for relation in occurring if relations is None else relations:
        name = names.get(relation, relation)
        if name in predicates.values() and relation not in predicates:
            other = next(other for other in predicates if predicates[other] == name)
            raise DataError(f"relations {other!r} and {relation!r} are both named {name!r}; give each its own name")
        predicates[relation] = name
    return predicates


def _add(builder: KnowledgeBaseBuilder, document: Document, predicates: Mapping[str, str], split: str) -> None:
    title = document.title
    builder.world(title)
    labels = [f"{title}#{index} {entity.name}" for index, entity in enumerate(document.entities)]
    for label in labels:
        builder.entity(label, world=title)
    for fact in document.facts:
        if fact.relation not in predicates:
            raise DataError(f"{title!r}: {unknown_name('relation', fact.relation, predicates)}")
        builder.add(predicates[fact.relation], [labels[fact.head], labels[fact.tail]], world=title, split=split)
