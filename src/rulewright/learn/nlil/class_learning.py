"""Learning to tell classes apart: rounds, each trained on what the rules so far, weighed together, get wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rulewright.learn.nlil.classifier import RuleWeights, Speaking, fit_weights
from rulewright.learn.nlil.formulas import Conjunction, rows_of
from rulewright.learn.nlil.jobs import Job, Learned, split, written
from rulewright.learn.nlil.literals import rows_where
from rulewright.learn.nlil.questions import Questions, Task
from rulewright.learn.nlil.rounds import Search, rows_right
from rulewright.learn.nlil.selection import Counted, counted, counted_for_all, most_telling

Floats = npt.NDArray[np.float64]


def learn_classes(job: Job, task: Task, search: Search) -> Learned:
    """Tell classes apart: every round is trained on what the rules so far, weighed together, get wrong."""
    options = job.search
    train, held, measured_on = split(task.asked_of_all(), task.graph.kb, job)
    number = train.truth.argmax(axis=1)
    prior = (train.truth.sum(axis=0) + 0.5) / (len(train) + 0.5 * len(task.targets))
    chances = np.tile(prior, (len(train), 1))
    pool: list[Counted] = []
    bodies: set[Conjunction] = set()
    kept: list[Counted] = []
    weights = RuleWeights(np.zeros(0, dtype=np.int64), np.zeros(0), np.log(prior))
    for _ in range(options.rounds):
        wrong = np.abs(train.truth - chances)
        read = search.round(train, wrong / np.maximum(wrong.mean(axis=0), 1e-9))
        new = {each for _, each in read} - bodies
        bodies |= new
        pool += counted_for_all(new, task, search.reach(new), train, prior, options.min_support)
        kept = most_telling(pool, prior, most=options.max_rules)
        speaking = speaking_of([(each.target, each.conjunction) for each in kept], task, search, train)
        weights = fit_weights(
            speaking, np.array([each.target for each in kept], dtype=np.int64), number, prior, l2=job.l2, iterations=60
        )
        chances = softmax(weights.scores(speaking))
    if job.refit:
        both = Questions(
            tuple(np.concatenate(each) for each in zip(train.arguments, held.arguments, strict=True)),
            np.concatenate([train.truth, held.truth]),
        )
        last = train if measured_on == "train" else both
    else:
        last = train
    speaking = speaking_of([(each.target, each.conjunction) for each in kept], task, search, last)
    classes = last.truth.argmax(axis=1)
    weights = fit_weights(speaking, weights.target, classes, prior, l2=job.l2, iterations=100)
    pairs = [(each.target, each.conjunction) for each in kept]
    measured = counted(pairs, task, search.reach(each for _, each in pairs), held)
    there = {(each.target, each.conjunction): each for each in measured}
    rules = [
        written(
            search,
            each,
            there[each.target, each.conjunction],
            int(held.truth[:, each.target].sum()),
            measured_on,
            weight=round(float(weight), 4),
        )
        for each, weight in zip(kept, weights.weight, strict=True)
    ]
    right = [rows_right([each for each in kept if each.target == target]) for target in range(len(task.targets))]
    return Learned(
        job.targets,
        tuple((each.target, each.conjunction) for each in kept),
        tuple(rules),
        weights,
        tuple(search.trained),
        measured_on,
        len(train),
        int(train.truth.sum()),
        sum(map(len, right)) / max(1, int(train.truth.sum())),
        len(bodies),
        dict(search.refused),
        None,
        held,
    )


def speaking_of(rules: Sequence[tuple[int, Conjunction]], task: Task, search: Search, questions: Questions) -> Speaking:
    """Return which rules hold of which questions."""
    bodies = dict.fromkeys(each for _, each in rules)
    literals = dict.fromkeys(literal for each in bodies for literal, _ in each)
    holds = rows_where(literals, search.reach(bodies), questions.arguments, task.hidden)
    rows = {each: rows_of(each, holds, len(questions)) for each in bodies}
    return Speaking.of([rows[each] for _, each in rules], len(questions))


def softmax(scores: Floats) -> Floats:
    """Return chances that sum to 1 in every row."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    found: Floats = powers / powers.sum(axis=1, keepdims=True)
    return found
