"""How true a target is of questions: by its extracted rules, and by the relaxed ones they were read from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from rulewright.data import KnowledgeBase
from rulewright.data.index import Ids
from rulewright.learn.nlil.facts import FactGraph, Vocabulary
from rulewright.learn.nlil.formulas import Conjunction, rows_of, rows_where
from rulewright.learn.nlil.frontier import Reach, Statements, evaluate
from rulewright.learn.nlil.generator import Shape
from rulewright.learn.nlil.jobs import Learned
from rulewright.learn.nlil.questions import Task
from rulewright.learn.nlil.training import reach_of

Floats = npt.NDArray[np.float64]
BLOCK = 2048


def task_on(learned: Learned, kb: KnowledgeBase) -> Task:
    """Return the task that was learned, over other facts of the same predicates."""
    return Task.of(FactGraph(kb, Vocabulary.of(kb)), learned.targets)


def rows_of_rules(
    conjunctions: Sequence[Conjunction], task: Task, arguments: Sequence[Ids]
) -> list[npt.NDArray[np.int64]]:
    """Return for each rule the questions of which it holds."""
    literals = dict.fromkeys(literal for each in conjunctions for literal, _ in each)
    longest = max([0, *(len(path or ()) for x in literals for path in (x.left, x.right))])
    operators = np.zeros(task.graph.vocabulary.operators, dtype=bool)
    statements = np.zeros(len(Statements.of(task.graph, task.arity)), dtype=bool)
    for literal in literals:
        statements[literal.statement] = True
        operators[[*(literal.left or ()), *(literal.right or ())]] = True
    reach = Reach(task.graph, steps=longest, arity=task.arity, operators=operators, statements=statements)
    holds = rows_where(literals, reach, arguments, task.hidden)
    found = {each: rows_of(each, holds, len(arguments[0])) for each in dict.fromkeys(conjunctions)}
    return [found[each] for each in conjunctions]


def hard_scores(learned: Learned, target: str, arguments: Sequence[Ids], kb: KnowledgeBase) -> Floats:
    """Return ``1 − Π (1 − confidence)`` over the target's rules that hold of each question."""
    number = learned.targets.index(target)
    mine = [(each, rule) for (of, each), rule in zip(learned.conjunctions, learned.rules, strict=True) if of == number]
    left = np.ones(len(arguments[0]))
    if mine:
        rows = rows_of_rules([each for each, _ in mine], task_on(learned, kb), arguments)
        for where, rule in zip(rows, (rule for _, rule in mine), strict=True):
            left[where] *= 1 - rule.confidence
    found: Floats = 1 - left
    return found


def soft_scores(learned: Learned, target: str, arguments: Sequence[Ids], kb: KnowledgeBase, shape: Shape) -> Floats:
    """Return the highest ``σ(a + b · score)`` of the target's slots in all generators."""
    task, number = task_on(learned, kb), learned.targets.index(target)
    best = np.zeros(len(arguments[0]))
    for trained in learned.trained:
        generator, slots = trained.generator, trained.choices.slots
        reach = reach_of(task, trained.choices, shape, None, 0)
        with torch.no_grad():
            attentions = generator(trained.sharpest)
            for low in range(0, len(best), BLOCK):
                part = slice(low, low + BLOCK)
                evidence = reach.evidence([column[part] for column in arguments], task.hidden)
                odds = generator.log_odds(evaluate(attentions, evidence))
                mine = odds[:, number * slots : (number + 1) * slots].sigmoid().max(dim=1).values
                best[part] = np.maximum(best[part], mine.double().numpy())
    return best
