"""The labels of worlds that count, predicate by predicate, with the fold of each; how well probabilities hold there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit, softmax

from rulewright.evaluate.calibration import (
    Judgement,
    measure_reliability,
)
from rulewright.inject.atom_space import AtomSpace
from rulewright.inject.atoms.layout import Floats, Labels
from rulewright.inject.labelled_worlds import LabelledWorld
from rulewright.logic import RuleSet, RuleSource


class LabelCounts(NamedTuple):
    """How many atoms of a predicate count, and how many of them are facts (with classes: not of the first one)."""

    facts: int
    atoms: int


class LabelColumn(NamedTuple):
    """What counts of a predicate: logits (of classes ``[atoms, K]``), truths or class indices, and folds."""

    scores: Floats
    gold: npt.NDArray[Any]
    fold: npt.NDArray[np.int64]

    def take(self, rows: Labels) -> LabelColumn:
        """Return some of the atoms."""
        return LabelColumn(self.scores[rows], self.gold[rows], self.fold[rows])


class LabelColumns(NamedTuple):
    """All predicates, without and with classes."""

    truths: Mapping[str, LabelColumn]
    classes: Mapping[str, LabelColumn]

    def leave(self, fold: int) -> LabelColumns:
        """Return all that is not in a fold."""
        return LabelColumns(
            *({name: column.take(column.fold != fold) for name, column in part.items()} for part in self)
        )

    def has_facts(self) -> bool:
        """Tell whether some label without classes is true, where there are such labels."""
        return not self.truths or any(column.gold.any() for column in self.truths.values())

    def count_facts(self) -> dict[str, LabelCounts]:
        """Return how many facts and atoms each predicate has."""
        return {
            name: LabelCounts(int((column.gold != 0).sum()), len(column.gold))
            for part in self
            for name, column in part.items()
        }


def read_columns(worlds: Sequence[LabelledWorld], folds: int = 1, seed: int = 0) -> LabelColumns:
    """Collect the atoms that count, predicate by predicate, world by world; rows are in one fold as a whole.

    Where there are fewer rows than folds, atoms are divided by their first argument instead.
    """
    rows = sum(world.rows for world in worlds)
    random = np.random.default_rng(seed)
    fold_of_row = random.permutation(max(rows, folds)) % folds
    truths: dict[str, LabelColumn] = {}
    classes: dict[str, LabelColumn] = {}
    for name in worlds[0].logits:
        parts: list[LabelColumn] = []
        start = 0
        for world in worlds:
            counted, gold = world.counted[name], world.gold[name]
            fold = fold_of_row[start : start + world.rows]
            start += world.rows
            fold = fold.reshape(-1, *(1,) * (counted.ndim - 1))
            if rows < folds and counted.ndim > 1:
                order = np.random.default_rng([seed, start]).permutation(counted.shape[1]) % folds
                fold = order.reshape(1, -1, *(1,) * (counted.ndim - 2))
            fold = np.broadcast_to(fold, counted.shape)
            parts.append(LabelColumn(world.logits[name][counted], gold[counted], fold[counted]))
        column = LabelColumn(*(np.concatenate(part) for part in zip(*parts, strict=True)))
        (classes if worlds[0].has_classes(name) else truths)[name] = column
    return LabelColumns(truths, classes)


def judge_columns(
    columns: LabelColumns, log_odds: Mapping[str, Floats], scores: Mapping[str, Floats]
) -> tuple[dict[str, Judgement], Judgement]:
    """Return how well probabilities hold before and after, by predicate and of all; of classes, the likeliest one."""
    before: dict[str, tuple[Floats, Labels]] = {}
    after: dict[str, tuple[Floats, Labels]] = {}
    for name, column in columns.truths.items():
        before[name], after[name] = ((expit(part), column.gold) for part in (column.scores, log_odds[name]))
    for name, column in columns.classes.items():
        before[name], after[name] = (
            (softmax(part, axis=1).max(1), part.argmax(1) == column.gold) for part in (column.scores, scores[name])
        )
    judged = {
        name: Judgement(measure_reliability(*before[name]), measure_reliability(*after[name]))
        for name in before
        if len(before[name][0])
    }
    return judged, Judgement(
        *(
            measure_reliability(*(np.concatenate(part) for part in zip(*parts.values(), strict=True)))
            for parts in (before, after)
        )
    )


def read_label_space(
    rules: RuleSource | None, relations: Sequence[str] | None, distinct: bool | None
) -> AtomSpace | None:
    """Return the space that rules or relations declare; None without both."""
    if rules is None and relations is None:
        return None
    return AtomSpace(RuleSet() if rules is None else rules, relations=relations, distinct=distinct)
