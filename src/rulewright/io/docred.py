"""Documents with entities and the relations between them, in the JSON of DocRED, Re-DocRED and DWIE."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rulewright.data import ENTITY_TYPE, KnowledgeBase, KnowledgeBaseBuilder
from rulewright.errors import DataError, ParseError, unknown_name
from rulewright.files import write_text
from rulewright.io.formats import split_files
from rulewright.io.json_shape import Json, dumped, load, shortened
from rulewright.logic import PredicateDeclaration


@dataclass(frozen=True, slots=True)
class Mention:
    """One place where a document names an entity: the tokens ``start … end - 1`` of a sentence, where known.

    ``characters`` is the place in the running text, which files without tokens give instead.
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
                f"documents {first} and {number} are both titled {shortened(title)}; titles must differ",
                file=item.file,
            )
        documents[title] = _document(title, item.called(f"document {number} ({shortened(title)})"))
    return tuple(documents.values())


def read_facts(path: str | os.PathLike[str]) -> KnowledgeBase:
    """Read the facts of a file of documents, or of a folder with a file for each split."""
    if not Path(path).is_dir():
        return to_knowledge_base(read_documents(path))
    parts = {split: read_documents(file) for split, file in split_files(Path(path), (".json",)).items()}
    return to_knowledge_base(parts.pop(""), splits=parts)


def _document(title: str, item: Json) -> Document:
    text = item.get("sents")
    sentences = () if text is None else tuple(sentence.texts() for sentence in text.items("sentences"))
    entities = tuple(_entity(each, sentences) for each in item["vertexSet"].items("entities"))
    labels = item.get("labels")
    facts = () if labels is None else tuple(_fact(each, entities, sentences) for each in labels.items("facts"))
    return Document(title, sentences, entities, facts)


def _entity(item: Json, sentences: tuple[tuple[str, ...], ...]) -> Entity:
    mentions = tuple(_mention(each, sentences) for each in item.items("mentions"))
    if not mentions:
        raise item.fault("is empty; an entity needs at least one mention")
    return Entity(mentions)


def _mention(item: Json, sentences: tuple[tuple[str, ...], ...]) -> Mention:
    name, kind = item["name"].text(), item["type"].text()
    span = item.get("char_span")
    characters = None if span is None else _span(span)
    place = item.get("pos")
    if place is None:
        return Mention(name, kind, characters=characters)
    start, end = _span(place)
    number = item["sent_id"]
    sentence = number.index(len(sentences), "sentences") if sentences else number.integer()
    if sentences and end > len(sentences[sentence]):
        raise place.fault(f"ends at {end} but sentence {sentence} has {len(sentences[sentence])} tokens")
    return Mention(name, kind, sentence, start, end, characters)


def _span(item: Json) -> tuple[int, int]:
    start, end = item.integers(2)
    if not 0 <= start < end:
        raise item.fault(f"must be [start, end] with 0 <= start < end, got {shortened([start, end])}")
    return start, end


def _fact(item: Json, entities: tuple[Entity, ...], sentences: tuple[tuple[str, ...], ...]) -> Fact:
    head, tail = (item[end].index(len(entities), "entities") for end in ("h", "t"))
    shown = item.get("evidence")
    numbers = [] if shown is None else shown.items("sentence numbers")
    evidence = (each.index(len(sentences), "sentences") if sentences else each.integer() for each in numbers)
    return Fact(head, item["r"].text(), tail, tuple(evidence))


def write_documents(documents: Iterable[Document], path: str | os.PathLike[str]) -> None:
    """Write documents, one to a line; `read_documents` gives equal ones back."""
    write_text(path, dumped([_as_record(each) for each in documents]))


def _as_record(document: Document) -> dict[str, object]:
    record: dict[str, object] = {
        "title": document.title,
        "vertexSet": [[_as_mention(each) for each in entity.mentions] for entity in document.entities],
        "labels": [
            {"r": fact.relation, "h": fact.head, "t": fact.tail}
            | ({"evidence": fact.evidence} if fact.evidence else {})
            for fact in document.facts
        ],
    }
    return record | ({"sents": document.sentences} if document.sentences else {})


def _as_mention(mention: Mention) -> dict[str, object]:
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
                raise end.fault(f"is {shortened(end.value)}; entities count from 0")
        predictions.append(Prediction(record["title"].text(), head.integer(), record["r"].text(), tail.integer()))
    return tuple(predictions)


def write_predictions(predictions: Iterable[Prediction], path: str | os.PathLike[str]) -> None:
    """Write a result file, one prediction to a line."""
    records: list[dict[str, object]] = [
        {"title": each.title, "h_idx": each.head, "t_idx": each.tail, "r": each.relation} for each in predictions
    ]
    write_text(path, dumped(records))


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
    parts = {"": tuple(documents)}
    for split, members in (splits or {}).items():
        if not split:
            raise DataError("a split needs a name; facts outside every split are given as documents")
        parts[split] = tuple(members)
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
            other = next(each for each in predicates if predicates[each] == name)
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
