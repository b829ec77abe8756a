"""The facts of documents as sorted columns of integers: gold ones, predicted ones, and those that training has seen."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from rulewright.data.index import Ids, positions_within, range_starts
from rulewright.errors import DataError, unknown_name
from rulewright.io.docred import Document, Prediction, read_documents
from rulewright.io.json_shape import load

NamedFact = tuple[str, str, str]
"""The name of a head mention, the name of a tail mention, and their relation."""


def named_facts(documents: Iterable[Document]) -> frozenset[NamedFact]:
    """Return the facts of documents by name: each under every pair of names that mentions of its entities have.

    >>> from rulewright.io.docred import Entity, Fact, Mention
    >>> union, land = Entity((Mention("EU", "ORG"), Mention("the Union", "ORG"))), Entity((Mention("Malta", "LOC"),))
    >>> sorted(named_facts([Document("A", (), (union, land), (Fact(1, "member_of", 0),))]))
    [('Malta', 'EU', 'member_of'), ('Malta', 'the Union', 'member_of')]
    """
    return frozenset(
        (head.name, tail.name, fact.relation)
        for document in documents
        for fact in document.facts
        for head in document.entities[fact.head].mentions
        for tail in document.entities[fact.tail].mentions
    )


def read_named_facts(path: str | os.PathLike[str]) -> frozenset[NamedFact]:
    """Read the facts that training has seen: a ``train_annotated.fact`` file or a file of training documents.

    >>> _ = (folder / "train_annotated.fact").write_text('[["Malta", "EU", "member_of"]]')
    >>> read_named_facts(folder / "train_annotated.fact")
    frozenset({('Malta', 'EU', 'member_of')})
    """
    items = load(path).items("facts or documents")
    if items and isinstance(items[0].value, dict):
        return named_facts(read_documents(path))
    facts = set()
    for item in items:
        texts = item.texts()
        if len(texts) != 3:
            raise item.fault(f"must be [head name, tail name, relation], got {len(texts)} strings")
        facts.add((texts[0], texts[1], texts[2]))
    return frozenset(facts)


def check_predictions(
    predictions: Iterable[Prediction],
    documents: Sequence[Document],
    *,
    train_facts: Iterable[NamedFact] | None = None,
    relations: Iterable[str] | None = None,
) -> None:
    """Raise an error that names the first prediction about a document, entity or relation that is not there.

    Relations are ``relations`` where given, else those of gold and training facts. Gold facts alone say nothing of
    the relations that a model may predict: without either, every relation passes.
    """
    known = known_relations(documents, train_facts=train_facts, relations=relations)
    check_against(predictions, documents, known, called="prediction")


def check_against(
    predictions: Iterable[Prediction], documents: Sequence[Document], known: frozenset[str] | None, *, called: str
) -> None:
    """Do what `check_predictions` does, with the relations known and a name for what is checked."""
    sizes = {document.title: len(document.entities) for document in documents}
    for count, prediction in enumerate(predictions, start=1):
        problem = _find_problem(prediction, sizes, known)
        if problem:
            title, head, relation, tail = prediction.title, prediction.head, prediction.relation, prediction.tail
            shown = f"title {title!r}, head {head!r}, relation {relation!r}, tail {tail!r}"
            raise DataError(f"{called} {count} ({shown}): {problem}")


def _find_problem(prediction: Prediction, sizes: dict[str, int], relations: frozenset[str] | None) -> str:
    if prediction.title not in sizes:
        return str(unknown_name("document", prediction.title, sizes))
    size = sizes[prediction.title]
    for role, entity in (("head", prediction.head), ("tail", prediction.tail)):
        if not isinstance(entity, int | np.integer):
            return f"the {role} must be the index of an entity, a whole number"
        if not 0 <= entity < size:
            known = f"has the entities 0 … {size - 1}" if size else "has no entities"
            return f"the {role} is {entity} but the document {known}"
    if relations is not None and prediction.relation not in relations:
        return str(unknown_name("relation", prediction.relation, relations))
    return ""


def known_relations(
    documents: Sequence[Document], *, train_facts: Iterable[NamedFact] | None, relations: Iterable[str] | None
) -> frozenset[str] | None:
    """Return the relations that may occur; None where any may. Gold facts must keep to ``relations`` too."""
    if relations is None and train_facts is None:
        return None
    if relations is None:
        return gold_relations(documents) | {relation for _, _, relation in train_facts or ()}
    known = frozenset(relations)
    for document in documents:
        for fact in document.facts:
            if fact.relation not in known:
                raise DataError(f"gold document {document.title!r}: {unknown_name('relation', fact.relation, known)}")
    return known


def gold_relations(documents: Iterable[Document]) -> frozenset[str]:
    """Return the relations that gold facts have."""
    return frozenset(fact.relation for document in documents for fact in document.facts)


class FactSpace:
    """An integer key for every fact that could hold in some documents, so that a set of facts is a sorted column.

    Entities of all documents are counted through; the key is ``(relation · n + head) · n + tail``.
    """

    def __init__(self, documents: Sequence[Document], relations: Iterable[str]) -> None:
        self.documents = documents
        self.relations = tuple(sorted(set(relations)))
        self.relation_indices = {name: index for index, name in enumerate(self.relations)}
        self.document_indices = {document.title: index for index, document in enumerate(documents)}
        if len(self.document_indices) < len(documents):
            titles = [document.title for document in documents]
            twice = next(title for title in titles if titles.count(title) > 1)
            raise DataError(f"two gold documents are titled {twice!r}; titles must differ")
        self.sizes = np.array([len(document.entities) for document in documents], dtype=np.int64)
        self.first_entity = range_starts(self.sizes)
        self.document_of_entity = np.repeat(np.arange(len(documents)), self.sizes)
        self.n_entities = int(self.sizes.sum())

    def encode_gold(self) -> Ids:
        """Return the gold facts of the documents, each once."""
        return self.encode_predictions(
            Prediction(document.title, fact.head, fact.relation, fact.tail)
            for document in self.documents
            for fact in document.facts
        )

    def encode_predictions(self, predictions: Iterable[Prediction]) -> Ids:
        """Return predictions that `check_predictions` has passed, each once."""
        rows = [
            (self.document_indices[fact.title], fact.head, self.relation_indices[fact.relation], fact.tail)
            for fact in predictions
        ]
        document, head, relation, tail = np.array(rows, dtype=np.int64).reshape(-1, 4).T
        first = self.first_entity[document]
        return np.unique(self.encode(relation, first + head, first + tail))

    def encode(self, relation: int | Ids, head: Ids, tail: Ids) -> Ids:
        """Return the keys of facts."""
        return (relation * self.n_entities + head) * self.n_entities + tail

    def relation_index(self, facts: Ids) -> Ids:
        """Return the relations of facts."""
        return facts // max(1, self.n_entities**2)

    def entity_pair(self, facts: Ids) -> tuple[Ids, Ids]:
        """Return the heads and tails of facts, counted through all documents."""
        ends = facts % max(1, self.n_entities**2)
        return ends // max(1, self.n_entities), ends % max(1, self.n_entities)

    def document_index(self, facts: Ids) -> Ids:
        """Return the documents of facts."""
        return self.document_of_entity[self.entity_pair(facts)[0]]

    def select_relation(self, facts: Ids, relation: str) -> Ids:
        """Return the facts of one relation: a slice, since facts are sorted by relation first."""
        index = self.relation_indices[relation]
        edges = np.array((index, index + 1), dtype=np.int64) * self.n_entities**2
        start, end = np.searchsorted(facts, edges)
        return facts[start:end]


def seen_in_training(space: FactSpace, facts: Ids, train_facts: Iterable[NamedFact]) -> npt.NDArray[np.bool_]:
    """Return for every fact whether it stands in the training data under any names of its two entities."""
    name_indices: dict[str, int] = {}
    rows = [
        (
            space.relation_indices[relation],
            name_indices.setdefault(head, len(name_indices)),
            name_indices.setdefault(tail, len(name_indices)),
        )
        for head, tail, relation in train_facts
        if relation in space.relation_indices
    ]
    train_relation, train_head, train_tail = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    entity_names = [
        {name_indices[mention.name] for mention in entity.mentions if mention.name in name_indices}
        for document in space.documents
        for entity in document.entities
    ]
    counts = np.array([len(names) for names in entity_names], dtype=np.int64)
    first = range_starts(counts)
    flat = np.array([name for names in entity_names for name in names], dtype=np.int64)
    # every fact is repeated for every pair of a name of its head and a name of its tail
    head, tail = space.entity_pair(facts)
    pairs = counts[head] * counts[tail]
    fact = np.repeat(np.arange(len(facts)), pairs)
    position, tails = positions_within(pairs), counts[tail][fact]
    head_name = flat[first[head][fact] + position // tails]
    tail_name = flat[first[tail][fact] + position % tails]
    n_names = len(name_indices)
    keys = (space.relation_index(facts)[fact] * n_names + head_name) * n_names + tail_name
    is_seen = np.isin(keys, (train_relation * n_names + train_head) * n_names + train_tail)
    return np.bincount(fact[is_seen], minlength=len(facts)).astype(bool)


DistanceUnit = Literal["tokens", "starts", "sentences"]

_USUAL_BOUNDS: dict[str, tuple[int, ...]] = {
    "tokens": (0, 100, 200, 400),
    "starts": (0, 100, 200, 400),
    "sentences": (0, 1, 2, 4),
}


@dataclass(frozen=True)
class DistanceBuckets:
    """Ranges of distance by their lower bounds: each reaches up to the next one, the last without end.

    The distance of two entities is that of their nearest mentions: the number of ``tokens`` between them, 0 where they
    touch or overlap; or of tokens from the first token of one to that of the other (``starts``, which published
    figures count); or of ``sentences`` from one to the other.

    >>> DistanceBuckets(bounds=(0, 20)).ranges()
    [(0, 20), (20, None)]
    >>> DistanceBuckets("sentences").bounds
    (0, 1, 2, 4)
    """

    unit: DistanceUnit = "tokens"
    bounds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.unit not in _USUAL_BOUNDS:
            raise DataError(f"the unit of distance must be one of {', '.join(_USUAL_BOUNDS)}, got {self.unit!r}")
        bounds = tuple(self.bounds) or _USUAL_BOUNDS[self.unit]
        if bounds[0] != 0 or any(low >= high for low, high in pairwise(bounds)):
            raise DataError(f"bounds of distance must start at 0 and increase, got {', '.join(map(str, bounds))}")
        object.__setattr__(self, "bounds", bounds)

    def ranges(self) -> list[tuple[int, int | None]]:
        """Return the ranges from … up to, not including."""
        return list(zip(self.bounds, (*self.bounds[1:], None), strict=True))


def group_by_distance(space: FactSpace, buckets: DistanceBuckets) -> Callable[[Ids], Ids]:
    """Return a function that gives for facts the index of the range of distance that their entities have."""
    first_cell = range_starts(space.sizes**2)
    cells = [entity_distances(document, unit=buckets.unit).ravel() for document in space.documents]
    distances = np.concatenate([np.zeros(0, dtype=np.int64), *cells])
    bucket = np.searchsorted(np.array(buckets.bounds), distances, side="right") - 1

    def bucket_index(facts: Ids) -> Ids:
        head, tail = space.entity_pair(facts)
        document = space.document_of_entity[head]
        first = space.first_entity[document]
        cell = first_cell[document] + (head - first) * space.sizes[document] + (tail - first)
        return np.asarray(bucket[cell])

    return bucket_index


def entity_distances(document: Document, *, unit: DistanceUnit = "tokens") -> Ids:
    """Return the distance between every two entities of a document, as an array ``[entities, entities]``.

    >>> from rulewright.io.docred import Entity, Mention
    >>> text = (("Bonn", "lies", "in", "Germany", "."), ("It", "is", "old", "."))
    >>> bonn = Entity((Mention("Bonn", "LOC", 0, 0, 1), Mention("It", "LOC", 1, 0, 1)))
    >>> land = Entity((Mention("Germany", "LOC", 0, 3, 4),))
    >>> entity_distances(Document("Bonn", text, (bonn, land))).tolist()
    [[0, 1], [1, 0]]
    """
    if not document.entities:
        return np.zeros((0, 0), dtype=np.int64)
    start, end = np.array(_spans(document, unit), dtype=np.int64).T
    first_mention = range_starts([len(entity.mentions) for entity in document.entities])
    gaps = np.maximum(start[:, None] - end[None, :], start[None, :] - end[:, None]).clip(min=0)
    nearest = np.minimum.reduceat(np.minimum.reduceat(gaps, first_mention, axis=0), first_mention, axis=1)
    return np.asarray(nearest, dtype=np.int64)


def _spans(document: Document, unit: DistanceUnit) -> Sequence[tuple[int, int]]:
    if unit != "sentences" and not document.sentences:
        raise DataError(f"document {document.title!r} has no text, so distances in tokens are unknown")
    lengths = [len(sentence) for sentence in document.sentences]
    offsets = range_starts(lengths).tolist()
    spans = []
    for entity_index, entity in enumerate(document.entities):
        for mention in entity.mentions:
            sentence, start, end = mention.sentence, mention.start, mention.end
            if sentence is not None and unit == "sentences":
                spans.append((sentence, sentence))
            elif sentence is not None and start is not None and end is not None and 0 <= sentence < len(lengths):
                last = start if unit == "starts" else end
                spans.append((offsets[sentence] + start, offsets[sentence] + last))
            else:
                raise DataError(
                    f"document {document.title!r}: a mention of entity {entity_index} ({mention.name!r}) has no place "
                    "in the text, so its distance to others is unknown"
                )
    return spans
