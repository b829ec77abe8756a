"""Which predicates each rule may use: those that occur near what is true of its target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rulewright.data.index import Ids
from rulewright.learn.nlil.facts import IDENTITY, Floats, Mask, StatementCodes
from rulewright.learn.nlil.frontier import EvidenceBuilder, Frontier, QuestionEvidence
from rulewright.learn.nlil.questions import LearningTask, TargetQuestions

CONTINUED = 5
"""From how many true questions a rule that goes on from another one chooses."""
SAMPLE = 500
"""How many true questions the most frequent predicates of a target are counted on."""


@dataclass(frozen=True)
class RuleShape:
    """The size of a rule space and of the transformers that search it: see `NLILLearner`."""

    steps: int = 2
    chains: int = 1
    levels: int = 1
    combinations: int = 4
    negation: bool = False
    shared: bool = False
    width: int = 32
    layers: int = 3
    heads: int = 4


@dataclass(frozen=True)
class RuleChoices:
    """What each rule may choose from, as rows of codes padded with −1.

    ``operators[G, k]`` and ``statements[G, s]`` of ``G`` rules, ``slots`` for each target, out of ``n_operators`` and
    ``n_statements``; ``sides[arity, G, k]`` says which operators may lead from which argument, each of which has chains
    of its own. ``needs_step`` are statements that say nothing of an argument itself, such as "is anything". ``paths``
    say which paths each rule may use for first and second arguments, ``[G, paths]``: the empty one, and each beginning
    of each chain.
    """

    operators: Tensor
    sides: Tensor
    statements: Tensor
    n_operators: int
    n_statements: int
    paths: tuple[Tensor, Tensor]
    needs_step: frozenset[int]
    arity: int
    slots: int

    def builder(
        self, task: LearningTask, shape: RuleShape, *, most: int | None = None, seed: int = 0
    ) -> EvidenceBuilder:
        """Return what lays out questions with the operators and statements that some rule may choose."""
        masks = [np.zeros(size, dtype=bool) for size in (self.n_operators, self.n_statements)]
        for mask, codes in zip(masks, (self.operators, self.statements), strict=True):
            mask[codes[codes >= 0].numpy()] = True
        return EvidenceBuilder(
            task.graph,
            steps=shape.steps,
            arity=task.arity,
            operators=masks[0],
            statements=masks[1],
            most=most,
            seed=seed,
        )


@dataclass(frozen=True)
class _Occurrences:
    """How often each operator occurs on paths from each argument, and each statement, for every group of questions.

    ``operators[sides, groups, K]`` and ``statements[groups, S]``; all paths have ``lengths`` steps from each argument,
    or any number of them where it is None.
    """

    operators: Floats
    statements: Floats
    lengths: tuple[int, int] | None = None


def choose_predicates(
    task: LearningTask,
    questions: TargetQuestions,
    weights: Floats,
    shape: RuleShape,
    *,
    slots: int,
    seeds: int,
    most: int,
    max_edges: int | None,
    seed: int,
    recursive: bool = True,
    begun: Mapping[int, Ids] | None = None,
) -> RuleChoices:
    """Return what each rule may choose from, at most ``most`` operators for each argument and ``most`` statements.

    A target's first rule may use the predicates that occur most often near what is true of the target. Every other
    rule starts from ``seeds`` true questions, drawn by weight, and may use what occurs near those, so that rules differ
    and their predicates go together (with 0 all rules choose from the same). Only the first may say that a path leads
    anywhere at all, which is true so often that it would crowd out better statements; for classes, some rules say
    nothing else, by turns. The first may use paths of all lengths; the others have one length each, by turns, for a
    path that may stay begins by learning what its neighbours are. Where a rule is one statement that joins two
    arguments, it chooses only from what is part of some path between them, and has a length that its questions have
    paths of. Where rules may negate, as many false questions stand beside the true ones: what is absent near the true
    is seen there; all may then say that a path leads anywhere, for its absence is telling, and every other one may use
    paths of all lengths, so that it can join a property to the absence of something further off. Without ``recursive``
    a target may not explain itself.

    ``begun`` has for rules that go on from another one (by their position, target · slots + slot) the true questions of
    which that one holds: they choose from what is near some of these.
    """
    random = np.random.default_rng(seed)
    codes = StatementCodes(task.arity, task.graph.vocabulary)
    sizes = task.graph.vocabulary.n_operators, len(codes)
    builder = EvidenceBuilder(task.graph, steps=shape.steps, arity=task.arity, most=max_edges or 200, seed=seed)
    anywhere = [codes.mark_statement(side) for side in range(task.arity)]
    lengths = _path_lengths(shape, task.arity, len(task.targets))
    operators: list[list[Ids]] = [[] for _ in range(task.arity)]
    statements: list[Ids] = []
    chosen_lengths: list[tuple[int, int] | None] = []
    for target_index in range(len(task.targets)):
        true = np.flatnonzero(questions.truth[:, target_index])
        groups = [random.permutation(true)[:SAMPLE]]
        if len(true) and seeds:
            chance = weights[true, target_index] / weights[true, target_index].sum()
            groups += [random.choice(true, seeds, p=chance) for _ in range(slots - 1)]
            for slot in range(1, slots):
                known = (begun or {}).get(target_index * slots + slot)
                if known is not None and len(known):
                    groups[slot] = random.choice(known, max(seeds, CONTINUED))
        if shape.negation:  # what must be absent is seen near what is false
            false = np.flatnonzero(~questions.truth[:, target_index])
            groups = [np.concatenate([group, random.permutation(false)[: len(group)]]) for group in groups]
        rows = np.concatenate(groups)
        group = np.repeat(np.arange(len(groups)), [len(members) for members in groups])
        if len(rows) == 0:
            beside = _Occurrences(np.zeros((task.arity, 1, sizes[0])), np.zeros((1, sizes[1])))
            near = [beside]
        else:
            evidence = builder.build(questions.take(rows).arguments, task.hidden)
            beside = _count_near(evidence, group, len(groups), sizes)
            if task.arity == 2:
                between = [_count_between(evidence, group, len(groups), sizes, pair) for pair in lengths]
                any_length = _Occurrences(
                    np.sum([counts.operators for counts in between], axis=0),
                    np.sum([counts.statements for counts in between], axis=0),
                )
                near = [any_length, *between]
            else:
                near = [beside]
        forbidden_operators, forbidden_statements = _forbid(task, target_index, codes, shape, recursive)
        for counts in (*near, *(() if any(beside is counts for counts in near) else (beside,))):
            counts.operators[:, :, forbidden_operators] = 0
            counts.statements[:, forbidden_statements] = 0
            counts.operators[:, :, IDENTITY] = np.inf
            if seeds and not shape.negation:
                counts.statements[1:, anywhere] = 0
        for slot in range(slots):
            own = slot if slot < len(groups) else 0
            goes_on = target_index * slots + slot in (begun or {})
            of_one_length = [counts for counts in near[1:] if counts.statements[own].any()] if slot else []
            counts = of_one_length[(slot - 1) % len(of_one_length)] if of_one_length else near[0]
            if goes_on and (task.arity == 1 or slot % 2):
                counts = beside
            for side, side_operators in enumerate(operators):
                frequent = _most_frequent(counts.operators[side][own], most)
                side_operators.append(frequent[1:] if slot and len(frequent) > 1 else frequent)
            turn = (slot - 1) % (len(lengths) + (len(task.targets) > 1))
            if slot and turn == len(lengths):  # which relations an entity of some class has at all, with whatever
                statements.append(np.array(anywhere))
                chosen_lengths.append(lengths[0])
            else:
                statements.append(_most_frequent(counts.statements[own], most))
                of_all_lengths = slot == 0 or (shape.negation and slot % 2 == 0)
                chosen_lengths.append(None if of_all_lengths else counts.lengths or lengths[turn])
    both = [np.unique(np.concatenate(sides)) for sides in zip(*operators, strict=True)]
    sides = [[np.isin(every, own) for every, own in zip(both, side, strict=True)] for side in operators]
    return RuleChoices(
        _pad(both),
        torch.stack([_pad(side, 0) > 0 for side in sides]),
        _pad(statements),
        *sizes,
        _allow_paths(shape, task.arity, chosen_lengths),
        frozenset(anywhere),
        task.arity,
        slots,
    )


def _path_lengths(shape: RuleShape, arity: int, targets: int) -> list[tuple[int, int]]:
    """Return the numbers of steps, from the first and the second argument, that rules have by turns."""
    if arity == 1:  # where classes are predicted, no label of the entity itself is known
        return [(steps, steps) for steps in (*range(1, shape.steps + 1), *((0,) if targets == 1 else ()))]
    # a path of n steps from one argument to the other: half of it from each
    return [((n - 1) - (n - 1) // 2, (n - 1) // 2) for n in range(1, 2 * shape.steps + 2)]


def _allow_paths(shape: RuleShape, arity: int, lengths: Sequence[tuple[int, int] | None]) -> tuple[Tensor, Tensor]:
    """Return the paths that each rule may use, for first and second arguments: all, or those of one length."""
    chains = arity * shape.chains
    sides = []
    for side in range(2):
        own = torch.zeros(chains, dtype=torch.bool)
        first = side * shape.chains if arity == 2 else 0
        own[first : first + shape.chains] = True
        allowed = torch.zeros(len(lengths), 1 + shape.steps * chains, dtype=torch.bool)
        for slot, pair in enumerate(lengths):
            for steps in range(shape.steps + 1) if pair is None else (pair[side],):
                if steps:
                    allowed[slot, 1 + (steps - 1) * chains : 1 + steps * chains] = own
                else:
                    allowed[slot, 0] = True
        sides.append(allowed)
    return sides[0], sides[1]


def _count_near(evidence: QuestionEvidence, group: Ids, groups: int, sizes: tuple[int, int]) -> _Occurrences:
    """Count in how many questions of each group each operator and each statement occurs."""
    operators = [
        _count_codes(
            group,
            groups,
            sizes[0],
            [(frontier.rows[stage][hop.source], hop.operator) for stage, hop in enumerate(frontier.hops)],
        )
        for frontier in evidence.frontiers
    ]
    statements = _count_codes(group, groups, sizes[1], [(evidence.row, evidence.statement)])
    return _Occurrences(np.stack(operators), statements)


def _count_between(
    evidence: QuestionEvidence, group: Ids, groups: int, sizes: tuple[int, int], lengths: tuple[int, int]
) -> _Occurrences:
    """Count in how many questions of each group an operator or a statement is part of a path between the arguments.

    Such a path takes ``lengths`` steps from each argument and one that joins them.
    """
    moved = [_find_moved(frontier) for frontier in evidence.frontiers]
    needed = [[np.zeros(len(rows), dtype=bool) for rows in frontier.rows] for frontier in evidence.frontiers]
    joined = []
    for term in evidence.terms:
        if term.left is None or term.right is None or (term.left[0], term.right[0]) != lengths:
            continue
        joins = moved[0][lengths[0]][term.left[1]] & moved[1][lengths[1]][term.right[1]]
        for side, (taken, node) in enumerate((term.left, term.right)):
            needed[side][taken][node[joins]] = True
        joined.append((evidence.row[term.pair[joins]], term.statement[joins]))
    operators = []
    for side, frontier in enumerate(evidence.frontiers):
        used = []
        for stage in reversed(range(lengths[side])):
            hop = frontier.hops[stage]
            leads = moved[side][stage][hop.source] & needed[side][stage + 1][hop.target]
            needed[side][stage][hop.source[leads]] = True
            used.append((frontier.rows[stage][hop.source[leads]], hop.operator[leads]))
        operators.append(_count_codes(group, groups, sizes[0], used))
    return _Occurrences(np.stack(operators), _count_codes(group, groups, sizes[1], joined), lengths)


def _find_moved(frontier: Frontier) -> list[Mask]:
    """Return for each stage which nodes are reached by as many steps, none of which stayed."""
    moved = [np.ones(len(frontier.rows[0]), dtype=bool)]
    for stage, hop in enumerate(frontier.hops):
        after = np.zeros(len(frontier.rows[stage + 1]), dtype=bool)
        after[hop.target[moved[-1][hop.source]]] = True
        moved.append(after)
    return moved


def _count_codes(group: Ids, groups: int, size: int, parts: Sequence[tuple[Ids, Ids]]) -> Floats:
    """Count in how many questions of each group a code occurs, given as (question, code) pairs."""
    keys = np.concatenate([np.zeros(0, dtype=np.int64), *(np.unique(row * size + code) for row, code in parts)])
    counts = np.bincount(group[keys // size] * size + keys % size, minlength=groups * size)
    return counts.reshape(groups, size).astype(np.float64)


def _forbid(
    task: LearningTask, target_index: int, codes: StatementCodes, shape: RuleShape, recursive: bool
) -> tuple[list[int], list[int]]:
    """Return the operators and statements that rules of a target may not use."""
    operators, statements = task.own_codes(target_index) if not recursive else ((), ())
    joining_only = task.arity == 2 and shape.levels == 0  # alone, a mark joins no two arguments
    marks = range(task.graph.vocabulary.n_steps, len(codes)) if joining_only else ()
    return [*operators], [*marks, *statements]


def _most_frequent(counts: Floats, most: int) -> Ids:
    order = np.argsort(-counts, kind="stable")[:most]
    return np.sort(order[counts[order] > 0])


def _pad(rows: Sequence[npt.NDArray[Any]], fill: int = -1) -> Tensor:
    padded = torch.full((len(rows), max(1, *map(len, rows))), fill)
    for position, row in enumerate(rows):
        padded[position, : len(row)] = torch.from_numpy(row)
    return padded
