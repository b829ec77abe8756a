"""Draws: as probable as attention says, and as they were read one by one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from learn.nlil.small_worlds import graphs, random_attentions

from rulewright.data import KnowledgeBase
from rulewright.learn.nlil.drawing import NONE, RuleDraws, draw_rules, log_probabilities, read_rules
from rulewright.learn.nlil.facts import FactGraph, StatementCodes
from rulewright.learn.nlil.formulas import Alternatives, RuleReader, conjoin, negate
from rulewright.learn.nlil.frontier import EvidenceBuilder
from rulewright.learn.nlil.gains import RuleGains
from rulewright.learn.nlil.generator import Attentions
from rulewright.learn.nlil.questions import LearningTask, TargetQuestions


def small_kb() -> KnowledgeBase:
    return KnowledgeBase.from_facts([("a", "1"), ("b", "2"), ("p", "1", "2"), ("q", "2", "1")])


@pytest.mark.parametrize("arity", [1, 2])
def test_log_probabilities_are_those_of_draws(arity: int) -> None:
    attentions = random_attentions(small_kb(), arity, seed=1, groups=2, levels=2, chains=1, steps=1)
    count = 20_000
    group = torch.arange(2).repeat_interleave(count)
    draws = draw_rules(attentions, group, random=torch.Generator().manual_seed(0))
    _, first, counts = np.unique(draws.keys(), axis=0, return_index=True, return_counts=True)
    chances = log_probabilities(attentions, draws).exp().numpy()[first]
    often = counts > 100
    assert often.sum() > 10
    errors = np.sqrt(chances * (1 - chances) / count)
    assert bool((np.abs(counts / count - chances)[often] < 5 * errors[often]).all())


def every_path(attentions: Attentions, side: int) -> int:
    paths = attentions.second if side else attentions.first
    return 1 if paths is None else paths.shape[2]


@pytest.mark.parametrize("arity", [1, 2])
def test_the_probabilities_of_all_draws_of_one_statement_sum_to_its_own(arity: int) -> None:
    attentions = random_attentions(small_kb(), arity, seed=2, groups=1, levels=0, chains=1, steps=1)
    operators = attentions.operators.shape[3]
    sides = range(every_path(attentions, 0)), range(every_path(attentions, 1))
    for statement in range(attentions.first.shape[1]):
        total = 0.0
        for first, second in product(*sides):
            uses = first > 0 or (arity == 2 and second > 0)
            for operator in range(operators) if uses else (0,):
                draw = RuleDraws(
                    torch.zeros(1, dtype=torch.long),
                    torch.tensor([[[operator]]]),
                    (torch.tensor([[statement]]),),
                    (torch.zeros(1, 1, dtype=torch.bool),),
                    ((torch.tensor([[first]]), torch.tensor([[second if arity == 2 else NONE]])),),
                )
                total += float(log_probabilities(attentions, draw).exp())
        assert total == pytest.approx(float(attentions.output[0, statement]))


@settings(max_examples=30)
@given(kb=graphs(), seed=st.integers(0, 1000), arity=st.integers(1, 2))
def test_the_likeliest_draw_is_the_rule_of_the_highest_attentions(kb: KnowledgeBase, seed: int, arity: int) -> None:
    attentions = random_attentions(kb, arity, seed=seed, groups=3, levels=2)
    task = LearningTask.for_targets(FactGraph(kb), ("a" if arity == 1 else "p",))
    codes = StatementCodes(arity, task.graph.vocabulary)
    reader = RuleReader(codes, task.hidden)
    drawn = read_rules(draw_rules(attentions, torch.arange(3)), reader, len(codes))
    statements, chains = attentions.first.shape[1], attentions.operators.shape[1]

    def walk(group: int, paths: torch.Tensor | None, statement: int) -> tuple[int, ...]:
        position = 0 if paths is None else int(paths[group, statement].argmax())
        if position == 0:
            return ()
        steps, chain = divmod(position - 1, chains)
        return tuple(int(attentions.operators[group, chain, step].argmax()) for step in range(steps + 1))

    def read(group: int, level: int, part: int) -> Alternatives:
        if level < 0:
            ways = (walk(group, paths, part) for paths in (attentions.first, attentions.second))
            return reader.make_literal(part, *ways)
        sides = []
        for attention in attentions.levels[level]:
            is_negated, below = divmod(int(attention[group, part].argmax()), attention.shape[2] // 2)
            formula = read(group, level - 1, below)
            sides.append(negate(formula) if is_negated else formula)
        return conjoin(*sides)

    for group in range(3):
        output = int(attentions.output[group].argmax())
        level, part = divmod(output - statements, attentions.levels[0][0].shape[1])
        assert drawn[group] == (read(group, -1, output) if output < statements else read(group, level, part))


def test_exploring_reaches_what_attention_would_never_choose() -> None:
    attentions = random_attentions(small_kb(), 1, seed=1, groups=1, levels=0)
    sure = torch.zeros_like(attentions.output)
    sure[0, 0], sure[0, 1] = 1 - 1e-9, 1e-9
    sharp = Attentions(attentions.operators, attentions.first, None, (), sure)
    many = torch.zeros(2000, dtype=torch.long)
    plain = draw_rules(sharp, many, random=torch.Generator().manual_seed(0))
    even = draw_rules(sharp, many, random=torch.Generator().manual_seed(0), explore=0.2)
    assert int((plain.nodes[0] == 1).sum()) == 0
    assert 120 < int((even.nodes[0] == 1).sum()) < 280
    assert int((even.nodes[0] > 1).sum()) == 0  # what is impossible stays so


@settings(max_examples=30)
@given(kb=graphs(), seed=st.integers(0, 1000))
def test_gains_are_the_information_of_rules(kb: KnowledgeBase, seed: int) -> None:
    random = np.random.default_rng(seed)
    task = LearningTask.for_targets(FactGraph(kb), ("a",))
    questions = TargetQuestions((np.arange(5),), random.random((5, 1)) < 0.5)
    weights = random.random((5, 1)) + 0.1
    gains = RuleGains(task, questions, weights, EvidenceBuilder(task.graph, steps=1, arity=1), seed=seed)
    holds = [np.flatnonzero(random.random(5) < 0.5) for _ in range(4)]
    gains.explain(0, holds[0])
    value = gains.measure(np.zeros(4, dtype=np.int64), holds)
    alone = gains.measure(np.zeros(4, dtype=np.int64), holds, residual=False)
    for measured, left in ((value, gains.unexplained), (alone, np.ones((5, 1)))):
        for rows, gain in zip(holds, measured.tolist(), strict=True):
            cells = np.zeros((2, 2))
            for row in range(5):
                is_true = bool(gains.questions.truth[row, 0])
                weight = gains.weights[row, 0] * (left[row, 0] if is_true else 1.0)
                cells[int(row in rows), int(is_true)] += weight
            expected = entropy(cells.sum(axis=0)) - entropy(cells[0]) - entropy(cells[1])
            is_for = cells[1, 1] * cells[:, 0].sum() > cells[1, 0] * cells[:, 1].sum()
            assert gain == pytest.approx(max(0.0, expected) if is_for else 0.0, abs=1e-8)


def entropy(cells: np.ndarray) -> float:
    """Return the entropy of shares times their sum."""
    return -sum(float(cell) * np.log(cell / cells.sum()) for cell in cells if cell > 0)
