"""What rules may choose from: predicates that are part of ways between the two arguments."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from learn.nlil.small_worlds import graphs

from rulewright.data import KnowledgeBase
from rulewright.learn.nlil.choices import RuleShape, _count_between, choose_predicates
from rulewright.learn.nlil.facts import IDENTITY, FactGraph, StatementCodes, step_of_operator
from rulewright.learn.nlil.frontier import EvidenceBuilder
from rulewright.learn.nlil.questions import LearningTask, TargetQuestions

pytestmark = pytest.mark.slow


def moves(kb: KnowledgeBase, hidden: tuple[int, int]) -> set[tuple[int, int, int]]:
    """Return all (operator, before, after) but those of the hidden fact of p, by plain loops."""
    vocabulary = FactGraph(kb).vocabulary
    edges = set()
    for name in vocabulary.binary:
        for one, other in zip(*(column.tolist() for column in kb.columns(name)), strict=True):
            if (name, one, other) != ("p", *hidden):
                edges.add((vocabulary.step_operator(name), one, other))
                edges.add((vocabulary.step_operator(name, inverse=True), other, one))
    for name in vocabulary.unary:
        operator = vocabulary.filter_operator(vocabulary.mark(name))
        edges |= {(operator, one, one) for one in kb.columns(name)[0].tolist()}
    return edges


def ways(edges: set[tuple[int, int, int]], start: int, steps: int) -> list[tuple[tuple[int, ...], int]]:
    """Return every sequence of operators from an entity, with where it leads."""
    walks: list[tuple[tuple[int, ...], int]] = [((), start)]
    for _ in range(steps):
        walks = [((*path, op), after) for path, at in walks for op, before, after in edges if before == at]
    return walks


@settings(max_examples=30)
@given(kb=graphs(), first=st.integers(0, 2), second=st.integers(0, 2))
def test_only_what_lies_on_a_way_between_the_arguments_is_seen(kb: KnowledgeBase, first: int, second: int) -> None:
    if not kb.count("p"):
        return
    graph = FactGraph(kb)
    task = LearningTask.for_targets(graph, ("p",))
    columns = task.target_facts()
    codes = StatementCodes(2, graph.vocabulary)
    evidence = EvidenceBuilder(graph, steps=2, arity=2).build(columns, task.hidden)
    count = len(columns[0])
    sizes = graph.vocabulary.n_operators, len(codes)
    seen = _count_between(evidence, np.arange(count), count, sizes, (first, second))
    for row, (x, y) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        edges = moves(kb, (x, y))
        operators: list[set[int]] = [set(), set()]
        statements = set()
        for (left, at), (right, there) in product(ways(edges, x, first), ways(edges, y, second)):
            joins = {
                op
                for op, before, after in edges
                if 0 < op <= graph.vocabulary.n_steps and (before, after) == (at, there)
            }
            if joins:
                operators[0] |= set(left)
                operators[1] |= set(right)
                statements |= set(map(step_of_operator, joins))
        for side in range(2):
            assert set(np.flatnonzero(seen.operators[side][row]).tolist()) == operators[side]
        assert set(np.flatnonzero(seen.statements[row]).tolist()) == statements


def test_each_argument_has_its_own_operators_and_a_length_that_occurs() -> None:
    # every city of a person's employer's country is one where somebody of the same employer lives
    facts = [(f"p{i}", "works_at", f"e{i % 4}") for i in range(12)] + [
        (f"p{i}", "lives_in", f"c{i % 4}") for i in range(12)
    ]
    task = LearningTask.for_targets(FactGraph(KnowledgeBase.from_triples(facts)), ("lives_in",))
    known = task.target_facts()
    questions = TargetQuestions(known, np.ones((len(known[0]), 1), dtype=bool))
    shape = RuleShape(steps=1, levels=0)
    weights = np.ones((len(known[0]), 1))
    choices = choose_predicates(task, questions, weights, shape, slots=4, seeds=1, most=10, max_edges=None, seed=0)
    operator = task.graph.vocabulary.step_operator
    for slot in range(1, 4):  # lives_in(X, Y) ← works_at(X, Z1), works_at(Z2, Z1), lives_in(Z2, Y), and nothing shorter
        left, right = (choices.operators[slot][side[slot]].tolist() for side in choices.sides)
        assert (left, right) == ([operator("works_at")], [operator("lives_in", inverse=True)])
        assert choices.statements[slot][choices.statements[slot] >= 0].tolist() == [
            step_of_operator(operator("works_at", inverse=True))
        ]
        assert [torch.nonzero(paths[slot]).ravel().tolist() for paths in choices.paths] == [[1], [2]]
    assert IDENTITY in choices.operators[0]
