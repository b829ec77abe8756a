"""A task to be learned, what was learned of it, and honest figures on what was held out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rulewright.data import KnowledgeBase
from rulewright.learn.nlil.classifier import RuleWeights
from rulewright.learn.nlil.formulas import Conjunction
from rulewright.learn.nlil.generator import Shape
from rulewright.learn.nlil.questions import Questions
from rulewright.learn.nlil.rounds import Search, SearchOptions, Trained
from rulewright.learn.nlil.selection import Counted
from rulewright.learn.nlil.training import RoundOptions
from rulewright.logic import Rule

FEW = 10
"""With fewer true questions than this nothing is held out, and rules are measured on what they were learned from."""


@dataclass(frozen=True)
class Job:
    """All that learning one task takes, to be sent to another process."""

    kb: KnowledgeBase
    targets: tuple[str, ...]
    shape: Shape
    training: RoundOptions
    search: SearchOptions
    held_out: float
    negatives: int
    l2: float
    refit: bool
    seed: int
    folder: str | None = None


@dataclass(frozen=True)
class Learned:
    """What was learned of a task: rules with their figures, one list for each target, and how it went.

    ``weights`` are those of the rules of classes, in order; ``measured_on`` says what the figures are about, and
    ``held`` has the questions that were held out. ``grounded`` tells whether rules that rest on the target have a
    beginning, see `_grounded`.
    """

    targets: tuple[str, ...]
    conjunctions: tuple[tuple[int, Conjunction], ...]
    rules: tuple[Rule, ...]
    weights: RuleWeights | None
    trained: tuple[Trained, ...]
    measured_on: str
    questions: int
    positives: int
    recall: float
    read: int
    refused: Mapping[str, int]
    grounded: bool | None
    held: Questions


def split(questions: Questions, kb: KnowledgeBase, job: Job) -> tuple[Questions, Questions, str]:
    """Hold questions out, by whole worlds where there are several; where there are few, measure on all."""
    random = np.random.default_rng(job.seed)
    if not job.held_out or questions.truth.any(axis=1).sum() < FEW:
        return questions, questions, "train"
    worlds = kb.entity_worlds
    group = np.arange(len(questions)) if worlds is None else worlds[questions.arguments[0]].astype(np.int64)
    different = np.unique(group)
    chosen = random.permutation(different)[: max(1, round(job.held_out * len(different)))]
    out = np.isin(group, chosen)
    if not questions.truth[~out].any() or not questions.truth[out].any():
        return questions, questions, "train"
    return questions.part(~out), questions.part(out), "held out"


def written(search: Search, rule: Counted, measured: Counted, positives: int, measured_on: str, **more: object) -> Rule:
    """Write a rule with what it was measured to be: confidence is its precision, where it was true at all."""
    there = measured if measured.fired else rule
    return search.writers[rule.target].rule(
        rule.conjunction,
        min(1.0, round(there.precision, 4)),
        support=measured.support,
        body=int(measured.fired),
        recall=round(measured.support / max(1, positives), 4),
        measured=measured_on if measured.fired else "train",
        train_support=rule.support,
        train_precision=round(rule.precision, 4),
        **more,
    )
