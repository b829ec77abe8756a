"""How good predicted tags are: the F1 of entities, as conlleval and seqeval count, and how many rules they break."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from rulewright.evaluate.bootstrap import paired_bootstrap
from rulewright.evaluate.extraction_counts import FloatArray
from rulewright.experiments.logicmp_tag_rules import broken_adjacent
from rulewright.io.conll import Sentence, bioes_classes, spans
from rulewright.models.lists import find_lists

Tags = Sequence[Sequence[str]]


def entity_counts(predicted: Tags, sentences: Sequence[Sentence]) -> FloatArray:
    """Return, for each sentence, the entities that are found rightly, that are predicted and that there are.

    An entity is found if its first and last token and its category are right.

    >>> entity_counts([["B-PER", "E-PER", "S-LOC"]], [Sentence(("a", "b", "c"), tags=("I-PER", "I-PER", "O"))])
    array([[1., 2., 1.]])
    """
    rows = []
    for tags, sentence in zip(predicted, sentences, strict=True):
        found, gold = set(spans(tags)), set(spans(sentence.tags))
        rows.append((len(found & gold), len(found), len(gold)))
    return np.array(rows, dtype=float).reshape(-1, 3)


def scores(predicted: Tags, sentences: Sequence[Sentence], *, min_items: int) -> dict[str, Any]:
    """Score tags on all sentences, and on those with a list; count pairs of adjacent labels that BIOES has not."""
    counts = entity_counts(predicted, sentences)
    listed = np.array([bool(find_lists(each.tokens, min_items=min_items)) for each in sentences], dtype=bool)
    (right, found, there), whole = counts.sum(0), _figures(counts.sum(0, keepdims=True))
    return {
        "f1": float(whole["f1"][0]),
        "precision": float(right / found) if found else 0.0,
        "recall": float(right / there) if there else 0.0,
        "f1_lists": float(_figures(counts[listed].sum(0, keepdims=True))["f1"][0]),
        "list_sentences": int(listed.sum()),
        "broken_pairs": broken_pairs(predicted),
    }


def compared(first: Tags, second: Tags, sentences: Sequence[Sentence]) -> dict[str, Any]:
    """Compare the F1 of two predictions by a paired bootstrap over documents."""
    documents = np.array([each.document for each in sentences])

    def by_document(tags: Tags) -> FloatArray:
        total = np.zeros((documents.max() + 1, 3))
        np.add.at(total, documents, entity_counts(tags, sentences))
        return total

    return paired_bootstrap(by_document(first), by_document(second), _figures)["f1"].as_dict()


def broken_pairs(predicted: Tags) -> int:
    """Return how many pairs of adjacent labels break an adjacent rule.

    >>> broken_pairs([["B-PER", "O", "S-LOC"], ["B-PER", "E-PER", "E-PER"]])
    2
    """
    classes = bioes_classes({tag[2:] for tags in predicted for tag in tags} - {""})
    number = {name: place for place, name in enumerate(classes)}
    broken = (broken_adjacent(classes) > 0).tolist()
    return sum(broken[number[before]][number[after]] for tags in predicted for before, after in pairwise(tags))


def _figures(sums: FloatArray) -> dict[str, FloatArray]:
    return {"f1": 2 * sums[:, 0] / np.maximum(sums[:, 1] + sums[:, 2], 1)}
