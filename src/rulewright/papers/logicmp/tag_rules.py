"""The rules of the tagging experiment: how BIOES labels may follow each other, and that items of a list are alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rulewright.evaluate.bootstrap import FloatArray, paired_bootstrap
from rulewright.io.conll import Sentence, bioes_classes, spans
from rulewright.papers.logicmp.sentences import find_lists
from rulewright.papers.logicmp.tagger import LABEL, NEXT, SAME_LIST, TOKEN

LEARN = "learn"


def adjacent_classes(category: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the labels with which a name of a category goes on, and those that go on with one.

    ``label(T) in first <=> label(U) in second`` for ``next(T, U)``: of all pairs of labels it allows just those that
    BIOES has.

    >>> adjacent_classes("PER")
    (('B-PER', 'I-PER'), ('I-PER', 'E-PER'))
    """
    return (f"B-{category}", f"I-{category}"), (f"I-{category}", f"E-{category}")


def tag_rules(categories: Iterable[str], *, weight: float | str = LEARN, lists: bool = False) -> str:
    """Return the rules in the rule language, each with a weight, or ``"learn"`` for one to be learned.

    The adjacent rule of each category and, with ``lists``, its list rule: one of two tokens in a list is part of a name
    of this category if and only if the other is.

    >>> print(tag_rules(["PER"], weight=2.5, lists=True))
    predicate label(token) in {'O', 'B-PER', 'I-PER', 'E-PER', 'S-PER'}.
    predicate next(token, token).
    closed next.
    2.5 next(T, U) => (label(T) in {'B-PER', 'I-PER'} <=> label(U) in {'I-PER', 'E-PER'}).
    predicate samelist(token, token).
    closed samelist.
    2.5 samelist(T, U) => (label(T) in {'B-PER', 'I-PER', 'E-PER', 'S-PER'} <=>
        label(U) in {'B-PER', 'I-PER', 'E-PER', 'S-PER'}).
    """
    names = sorted(set(categories))
    lines = [f"predicate {LABEL}({TOKEN}) in {_set(bioes_classes(names))}.", *_given(NEXT)]
    for before, after in map(adjacent_classes, names):
        lines.append(f"{weight} {NEXT}(T, U) => ({LABEL}(T) in {_set(before)} <=> {LABEL}(U) in {_set(after)}).")
    if lists:
        lines += _given(SAME_LIST)
        for name in names:
            part = _set([f"{prefix}-{name}" for prefix in "BIES"])
            lines.append(f"{weight} {SAME_LIST}(T, U) => ({LABEL}(T) in {part} <=>\n    {LABEL}(U) in {part}).")
    return "\n".join(lines)


def broken_adjacent(classes: Sequence[str]) -> Tensor:
    """Return ``[K, K]``: how many adjacent rules a label and the next one break.

    >>> broken_adjacent(["O", "B-PER", "E-PER"])
    tensor([[0., 0., 1.],
            [1., 1., 0.],
            [0., 0., 1.]])
    """
    sets = [adjacent_classes(name) for name in sorted({each[2:] for each in classes} - {""})]
    counts = [
        sum((first in before) != (second in after) for before, after in sets)
        for first, second in product(classes, repeat=2)
    ]
    return torch.tensor(counts, dtype=torch.float).view(len(classes), len(classes))


def _set(classes: Iterable[str]) -> str:
    return "{" + ", ".join(f"'{name}'" for name in classes) + "}"


def _given(name: str) -> list[str]:
    return [f"predicate {name}({TOKEN}, {TOKEN}).", f"closed {name}."]


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
