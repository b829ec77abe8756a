"""Telling classes apart by their rules: every class scored for every entity, its own label hidden."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase
from rulewright.errors import DataError
from rulewright.learn.nlil.classifier import Speaking
from rulewright.learn.nlil.jobs import Learned
from rulewright.learn.nlil.scores import rows_of_rules, task_on

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ClassScores:
    """The log-odds of every class ``[entities, classes]``, and the class that each entity has."""

    classes: tuple[str, ...]
    entities: Ids
    scores: Floats
    truth: Ids
    speaking: Speaking

    def recall(self, k: int) -> float:
        """Return R@k: how often the right class is among the ``k`` highest; of equals the first counts as higher."""
        best = np.argsort(-self.scores, axis=1, kind="stable")[:, :k]
        return float((best == self.truth[:, None]).any(axis=1).mean())

    def of(self, names: tuple[str, ...]) -> ClassScores:
        """Return the entities of some classes, ranked among these alone."""
        numbers = np.array([self.classes.index(name) for name in names])
        keep = np.isin(self.truth, numbers)
        truth = np.argsort(numbers)[np.searchsorted(np.sort(numbers), self.truth[keep])]
        return ClassScores(names, self.entities[keep], self.scores[keep][:, numbers], truth, self.speaking)


def class_scores(learned: Learned, kb: KnowledgeBase) -> ClassScores:
    """Return the scores of classes by their weighted rules."""
    if learned.weights is None:
        raise DataError("these rules are not of classes")
    task = task_on(learned, kb)
    questions = task.asked_of_all()
    if len(questions) == 0:
        raise DataError("no entity here has one of the classes")
    rows = rows_of_rules([each for _, each in learned.conjunctions], task, questions.arguments)
    speaking = Speaking.of(rows, len(questions))
    return ClassScores(
        learned.targets,
        questions.arguments[0],
        learned.weights.scores(speaking),
        questions.truth.argmax(axis=1),
        speaking,
    )
