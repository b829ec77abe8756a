"""Which predicates each rule may use: those that occur near what is true of its target."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rulewright.learn.nlil.facts import IDENTITY, Ids
from rulewright.learn.nlil.frontier import Evidence, Reach, Statements
from rulewright.learn.nlil.generator import Choices, Shape
from rulewright.learn.nlil.questions import Questions, Task

Floats = npt.NDArray[np.float64]
SAMPLE = 500
"""How many true questions the most frequent predicates of a target are counted on."""


def choices_of(
    task: Task,
    questions: Questions,
    weights: Floats,
    shape: Shape,
    *,
    slots: int,
    seeds: int,
    most: int,
    max_edges: int | None,
    seed: int,
    recursive: bool = True,
) -> Choices:
    """Return what each rule may choose from, at most ``most`` operators and ``most`` statements.

    A target's first rule sees the predicates that occur most often near what is true of the target. Every other rule
    starts from ``seeds`` true questions, drawn by weight, and sees what occurs near those, so that rules differ and
    what they see goes together (0 shows all rules the same). Only the first may say that a path leads anywhere at all,
    which is true so often that it would crowd out what tells more. The first may use paths of all lengths; the others
    have one length each, by turns, for a path that may stay behind begins by telling what its neighbours are. Without
    ``recursive`` a target may not explain itself.
    """
    random = np.random.default_rng(seed)
    numbers = Statements.of(task.graph, task.arity)
    reach = Reach(task.graph, steps=shape.steps, arity=task.arity, most=max_edges or 200, seed=seed)
    anywhere = [numbers.about(side) for side in range(task.arity)]
    operators, statements = [], []
    for target in range(len(task.targets)):
        true = np.flatnonzero(questions.truth[:, target])
        forbidden = _forbidden(task, target, numbers, shape, recursive)
        some = [random.permutation(true)[:SAMPLE]]
        if len(true) and seeds:
            chance = weights[true, target] / weights[true, target].sum()
            some += [random.choice(true, seeds, p=chance) for _ in range(slots - 1)]
        rows = np.concatenate(some)
        group = np.repeat(np.arange(len(some)), [len(each) for each in some])
        if len(rows) == 0:
            seen = [np.zeros((1, task.graph.vocabulary.operators)), np.zeros((1, len(numbers)))]
        else:
            evidence = reach.evidence(questions.part(rows).arguments, task.hidden)
            seen = _counts(evidence, group, len(some), task.graph.vocabulary.operators, len(numbers))
        for counts, left_out in zip(seen, forbidden, strict=True):
            counts[:, left_out] = 0
        seen[0][:, IDENTITY] = np.inf
        if seeds:
            seen[1][1:, anywhere] = 0
        for slot in range(slots):
            mine = slot if slot < len(some) else 0
            steps = _most_frequent(seen[0][mine], most)
            operators.append(steps[1:] if slot and len(steps) > 1 else steps)
            statements.append(_most_frequent(seen[1][mine], most))
    return Choices(
        _padded(operators),
        _padded(statements),
        task.graph.vocabulary.operators,
        len(numbers),
        _paths(shape, task.arity, slots, len(task.targets)),
        frozenset(anywhere),
        task.arity,
        slots,
    )


def _paths(shape: Shape, arity: int, slots: int, targets: int) -> tuple[Tensor, Tensor]:
    """Return the paths that each rule may use, for first and second arguments."""
    if arity == 1:  # of an entity whose class is asked for, no label is known
        lengths = [(steps, steps) for steps in (*range(1, shape.steps + 1), *((0,) if targets == 1 else ()))]
    else:  # a way of n steps from one argument to the other: half of it from each
        lengths = [((n - 1) - (n - 1) // 2, (n - 1) // 2) for n in range(1, 2 * shape.steps + 2)]
    sides = []
    for side in range(2):
        allowed = torch.zeros(slots, shape.paths, dtype=torch.bool)
        allowed[0] = True
        for slot in range(1, slots):
            steps = lengths[(slot - 1) % len(lengths)][side]
            first = 1 + (steps - 1) * shape.chains if steps else 0
            allowed[slot, first : first + (shape.chains if steps else 1)] = True
        sides.append(allowed.repeat(targets, 1))
    return sides[0], sides[1]


def _counts(evidence: Evidence, group: Ids, groups: int, operators: int, statements: int) -> list[Floats]:
    """Count in how many questions of each group each operator and each statement occurs."""
    steps = [
        np.unique(frontier.rows[step][hop.source] * operators + hop.operator)
        for frontier in evidence.frontiers
        for step, hop in enumerate(frontier.hops)
    ]
    keys = np.concatenate([np.zeros(0, dtype=np.int64), *steps])
    found = []
    for row, number, size in (
        (keys // operators, keys % operators, operators),
        (evidence.row, evidence.statement, statements),
    ):
        counts = np.bincount(group[row] * size + number, minlength=groups * size)
        found.append(counts.reshape(groups, size).astype(np.float64))
    return found


def _forbidden(
    task: Task, target: int, numbers: Statements, shape: Shape, recursive: bool
) -> tuple[list[int], list[int]]:
    """Return the operators and statements that rules of a target may not use."""
    vocabulary, name = task.graph.vocabulary, task.targets[target]
    operators: list[int] = []
    statements: list[int] = []
    if task.arity == 2 and shape.levels == 0:  # alone, a mark joins no two arguments
        statements += range(numbers.relations, len(numbers))
    if not recursive and task.arity == 1:
        operators.append(vocabulary.filter(vocabulary.mark(name)))
        statements.append(vocabulary.mark(name))
    elif not recursive:
        step = vocabulary.step(name)
        operators += [step, step + 1]
        statements += [step - 1, step]
    return operators, statements


def _most_frequent(counts: Floats, most: int) -> Ids:
    order = np.argsort(-counts, kind="stable")[:most]
    found: Ids = np.sort(order[counts[order] > 0])
    return found


def _padded(rows: Sequence[Ids]) -> Tensor:
    found = torch.full((len(rows), max(1, *map(len, rows))), -1)
    for number, row in enumerate(rows):
        found[number, : len(row)] = torch.from_numpy(row)
    return found
