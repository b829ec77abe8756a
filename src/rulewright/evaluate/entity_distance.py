"""How far apart a document names two entities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from rulewright.errors import DataError
from rulewright.evaluate.extraction_facts import FactSpace, IntArray
from rulewright.io.docred import Document

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


class BucketOfFact:
    """Looks up the range of distance that the two entities of a fact have."""

    def __init__(self, space: FactSpace, buckets: DistanceBuckets) -> None:
        self._space = space
        self._first_cell = np.cumsum(space.sizes**2) - space.sizes**2
        cells = [entity_distances(document, unit=buckets.unit).ravel() for document in space.documents]
        distances = np.concatenate([np.zeros(0, dtype=np.int64), *cells])
        self._bucket = np.searchsorted(np.array(buckets.bounds), distances, side="right") - 1

    def __call__(self, facts: IntArray) -> IntArray:
        """Return the number of the range for every fact."""
        head, tail = self._space.pair(facts)
        document = self._space.document_of_entity[head]
        first = self._space.first_entity[document]
        cell = self._first_cell[document] + (head - first) * self._space.sizes[document] + (tail - first)
        bucket: IntArray = self._bucket[cell]
        return bucket


def entity_distances(document: Document, *, unit: DistanceUnit = "tokens") -> IntArray:
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
    sizes = np.array([len(entity.mentions) for entity in document.entities])
    first_mention = np.cumsum(sizes) - sizes
    gaps = np.maximum(start[:, None] - end[None, :], start[None, :] - end[:, None]).clip(min=0)
    nearest = np.minimum.reduceat(np.minimum.reduceat(gaps, first_mention, axis=0), first_mention, axis=1)
    return np.asarray(nearest, dtype=np.int64)


def _spans(document: Document, unit: DistanceUnit) -> Sequence[tuple[int, int]]:
    if unit != "sentences" and not document.sentences:
        raise DataError(f"document {document.title!r} has no text, so distances in tokens are unknown")
    lengths = [len(sentence) for sentence in document.sentences]
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).tolist()
    spans = []
    for number, entity in enumerate(document.entities):
        for mention in entity.mentions:
            sentence, start, end = mention.sentence, mention.start, mention.end
            if sentence is not None and unit == "sentences":
                spans.append((sentence, sentence))
            elif sentence is not None and start is not None and end is not None and 0 <= sentence < len(lengths):
                last = start if unit == "starts" else end
                spans.append((offsets[sentence] + start, offsets[sentence] + last))
            else:
                raise DataError(
                    f"document {document.title!r}: a mention of entity {number} ({mention.name!r}) has no place in the "
                    "text, so its distance to others is unknown"
                )
    return spans
