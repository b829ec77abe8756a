"""The rules of the tagging experiment: how BIOES labels may follow each other, and that items of a list are alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

import torch
from torch import Tensor

from rulewright.io.conll import bioes_classes
from rulewright.models.tag_heads import LABEL, NEXT, SAME_LIST, TOKEN

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
