"""Which predicates each rule may use: those that occur near what is true of its target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rulewright.data.index import Ids
from rulewright.learn.nlil.facts import IDENTITY, Mask
from rulewright.learn.nlil.frontier import Evidence, Frontier, Reach, Statements
from rulewright.learn.nlil.generator import Choices, Shape
from rulewright.learn.nlil.questions import Questions, Task

Floats = npt.NDArray[np.float64]
SAMPLE = 500
"""How many true questions the most frequent predicates of a target are counted on."""


@dataclass(frozen=True)
class _Seen:
    """How often each operator occurs on the way from each argument, and each statement, for every group of questions.

    ``operators[sides, groups, K]`` and ``statements[groups, S]``; all ways have ``lengths`` steps from each argument,
    or any number of them where it is None.
    """

    operators: Floats
    statements: Floats
    lengths: tuple[int, int] | None = None


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
    """Return what each rule may choose from, at most ``most`` operators for each argument and ``most`` statements.

    A target's first rule sees the predicates that occur most often near what is true of the target. Every other rule
    starts from ``seeds`` true questions, drawn by weight, and sees what occurs near those, so that rules differ and
    what they see goes together (0 shows all rules the same). Only the first may say that a path leads anywhere at all,
    which is true so often that it would crowd out what tells more; where classes are told apart, some say nothing else,
    by turns. The first may use paths of all lengths; the others have one length each, by turns, for a path that may
    stay behind begins by telling what its neighbours are. Where a rule is one statement that joins two arguments, it
    sees only what is part of some way between them, and has a length that its questions have ways of. Without
    ``recursive`` a target may not explain itself.
    """
    random = np.random.default_rng(seed)
    numbers = Statements.of(task.graph, task.arity)
    sizes = task.graph.vocabulary.operators, len(numbers)
    reach = Reach(task.graph, steps=shape.steps, arity=task.arity, most=max_edges or 200, seed=seed)
    anywhere = [numbers.about(side) for side in range(task.arity)]
    lengths = _lengths(shape, task.arity, len(task.targets))
    joining = task.arity == 2 and shape.levels == 0
    operators: list[list[Ids]] = [[] for _ in range(task.arity)]
    statements: list[Ids] = []
    chosen: list[tuple[int, int] | None] = []
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
            every = [_Seen(np.zeros((task.arity, 1, sizes[0])), np.zeros((1, sizes[1])))]
        else:
            evidence = reach.evidence(questions.part(rows).arguments, task.hidden)
            every = [_near(evidence, group, len(some), sizes)]
            if joining:
                ways = [_between(evidence, group, len(some), sizes, each) for each in lengths]
                found = [np.sum([getattr(each, name) for each in ways], axis=0) for name in ("operators", "statements")]
                every = [_Seen(*found), *ways]
        for each in every:
            each.operators[:, :, forbidden[0]] = 0
            each.statements[:, forbidden[1]] = 0
            each.operators[:, :, IDENTITY] = np.inf
            if seeds:
                each.statements[1:, anywhere] = 0
        for slot in range(slots):
            mine = slot if slot < len(some) else 0
            there = [each for each in every[1:] if each.statements[mine].any()] if slot else []
            seen = there[(slot - 1) % len(there)] if there else every[0]
            for side, row in enumerate(operators):
                steps = _most_frequent(seen.operators[side][mine], most)
                row.append(steps[1:] if slot and len(steps) > 1 else steps)
            turn = (slot - 1) % (len(lengths) + (len(task.targets) > 1))
            if slot and turn == len(lengths):  # what an entity of some class does at all, to whatever
                statements.append(np.array(anywhere))
                chosen.append(lengths[0])
            else:
                statements.append(_most_frequent(seen.statements[mine], most))
                chosen.append((seen.lengths or lengths[turn]) if slot else None)
    both = [np.unique(np.concatenate(each)) for each in zip(*operators, strict=True)]
    sides = [_padded([np.isin(all_, mine) for all_, mine in zip(both, side, strict=True)], 0) > 0 for side in operators]
    return Choices(
        _padded(both),
        torch.stack(sides),
        _padded(statements),
        *sizes,
        _paths(shape, task.arity, chosen),
        frozenset(anywhere),
        task.arity,
        slots,
    )


def _lengths(shape: Shape, arity: int, targets: int) -> list[tuple[int, int]]:
    """Return the numbers of steps, from the first and the second argument, that rules have by turns."""
    if arity == 1:  # of an entity whose class is asked for, no label is known
        return [(steps, steps) for steps in (*range(1, shape.steps + 1), *((0,) if targets == 1 else ()))]
    # a way of n steps from one argument to the other: half of it from each
    return [((n - 1) - (n - 1) // 2, (n - 1) // 2) for n in range(1, 2 * shape.steps + 2)]


def _paths(shape: Shape, arity: int, lengths: Sequence[tuple[int, int] | None]) -> tuple[Tensor, Tensor]:
    """Return the paths that each rule may use, for first and second arguments: all, or those of one length."""
    chains = arity * shape.chains
    sides = []
    for side in range(2):
        own = torch.zeros(chains, dtype=torch.bool)
        first = side * shape.chains if arity == 2 else 0
        own[first : first + shape.chains] = True
        allowed = torch.zeros(len(lengths), 1 + shape.steps * chains, dtype=torch.bool)
        for slot, each in enumerate(lengths):
            if each is None or each[side] == 0:
                allowed[slot, 0] = True
            for steps in range(1, shape.steps + 1) if each is None else (each[side],):
                if steps:
                    allowed[slot, 1 + (steps - 1) * chains : 1 + steps * chains] = own
        sides.append(allowed)
    return sides[0], sides[1]


def _near(evidence: Evidence, group: Ids, groups: int, sizes: tuple[int, int]) -> _Seen:
    """Count in how many questions of each group each operator and each statement occurs."""
    operators = [
        _counted(
            group,
            groups,
            sizes[0],
            [(frontier.rows[step][hop.source], hop.operator) for step, hop in enumerate(frontier.hops)],
        )
        for frontier in evidence.frontiers
    ]
    return _Seen(np.stack(operators), _counted(group, groups, sizes[1], [(evidence.row, evidence.statement)]))


def _between(evidence: Evidence, group: Ids, groups: int, sizes: tuple[int, int], lengths: tuple[int, int]) -> _Seen:
    """Count in how many questions of each group an operator or a statement is part of a way between the arguments.

    A way takes ``lengths`` steps from each argument and one that joins them.
    """
    moved = [_moved(frontier) for frontier in evidence.frontiers]
    needed = [[np.zeros(len(rows), dtype=bool) for rows in frontier.rows] for frontier in evidence.frontiers]
    joined = []
    for term in evidence.terms:
        if term.left is None or term.right is None or (term.left[0], term.right[0]) != lengths:
            continue
        there = moved[0][lengths[0]][term.left[1]] & moved[1][lengths[1]][term.right[1]]
        for side, place in enumerate((term.left, term.right)):
            needed[side][place[0]][place[1][there]] = True
        joined.append((evidence.row[term.pair[there]], term.statement[there]))
    operators = []
    for side, frontier in enumerate(evidence.frontiers):
        steps = []
        for stage in reversed(range(lengths[side])):
            hop = frontier.hops[stage]
            leads = moved[side][stage][hop.source] & needed[side][stage + 1][hop.target]
            needed[side][stage][hop.source[leads]] = True
            steps.append((frontier.rows[stage][hop.source[leads]], hop.operator[leads]))
        operators.append(_counted(group, groups, sizes[0], steps))
    return _Seen(np.stack(operators), _counted(group, groups, sizes[1], joined), lengths)


def _moved(frontier: Frontier) -> list[Mask]:
    """Tell which nodes are reached by as many steps as were taken, none of which stayed."""
    found = [np.ones(len(frontier.rows[0]), dtype=bool)]
    for stage, hop in enumerate(frontier.hops):
        after = np.zeros(len(frontier.rows[stage + 1]), dtype=bool)
        after[hop.target[found[-1][hop.source]]] = True
        found.append(after)
    return found


def _counted(group: Ids, groups: int, size: int, parts: Sequence[tuple[Ids, Ids]]) -> Floats:
    """Count in how many questions of each group a number occurs, given as (question, number) pairs."""
    keys = np.concatenate([np.zeros(0, dtype=np.int64), *(np.unique(row * size + number) for row, number in parts)])
    counts = np.bincount(group[keys // size] * size + keys % size, minlength=groups * size)
    return counts.reshape(groups, size).astype(np.float64)


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


def _padded(rows: Sequence[npt.NDArray[Any]], fill: int = -1) -> Tensor:
    found = torch.full((len(rows), max(1, *map(len, rows))), fill)
    for number, row in enumerate(rows):
        found[number, : len(row)] = torch.from_numpy(row)
    return found
