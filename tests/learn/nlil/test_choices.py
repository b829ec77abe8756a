"""What rules may choose from: predicates that are part of ways between the two arguments."""

from __future__ import annotations

from itertools import product

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from learn.nlil.small_worlds import graphs

from rulewright.data import KnowledgeBase
from rulewright.learn.nlil.choices import _between, choices_of
from rulewright.learn.nlil.facts import IDENTITY, FactGraph
from rulewright.learn.nlil.frontier import Reach, Statements
from rulewright.learn.nlil.generator import Shape
from rulewright.learn.nlil.questions import Questions, Task


def moves(kb: KnowledgeBase, hidden: tuple[int, int]) -> set[tuple[int, int, int]]:
    """Return all (operator, before, after) but those of the hidden fact of p, by plain loops."""
    vocabulary = FactGraph(kb).vocabulary
    found = set()
    for name in vocabulary.binary:
        for one, other in zip(*(column.tolist() for column in kb.columns(name)), strict=True):
            if (name, one, other) != ("p", *hidden):
                found |= {(vocabulary.step(name), one, other), (vocabulary.step(name) + 1, other, one)}
    for name in vocabulary.unary:
        found |= {(vocabulary.filter(vocabulary.mark(name)), one, one) for one in kb.columns(name)[0].tolist()}
    return found


def ways(edges: set[tuple[int, int, int]], start: int, steps: int) -> list[tuple[tuple[int, ...], int]]:
    """Return every sequence of operators from an entity, with where it leads."""
    found: list[tuple[tuple[int, ...], int]] = [((), start)]
    for _ in range(steps):
        found = [((*path, op), after) for path, at in found for op, before, after in edges if before == at]
    return found


@settings(max_examples=30)
@given(kb=graphs(), first=st.integers(0, 2), second=st.integers(0, 2))
def test_only_what_lies_on_a_way_between_the_arguments_is_seen(kb: KnowledgeBase, first: int, second: int) -> None:
    if not kb.count("p"):
        return
    graph = FactGraph(kb)
    task = Task.of(graph, ("p",))
    columns = task.facts(kb)
    numbers = Statements.of(graph, 2)
    evidence = Reach(graph, steps=2, arity=2).evidence(columns, task.hidden)
    count = len(columns[0])
    sizes = graph.vocabulary.operators, len(numbers)
    seen = _between(evidence, np.arange(count), count, sizes, (first, second))
    for row, (x, y) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        edges = moves(kb, (x, y))
        operators: list[set[int]] = [set(), set()]
        statements = set()
        for (left, at), (right, there) in product(ways(edges, x, first), ways(edges, y, second)):
            joins = {op for op, before, after in edges if op <= numbers.relations and (before, after) == (at, there)}
            if joins:
                operators[0] |= set(left)
                operators[1] |= set(right)
                statements |= {op - 1 for op in joins}
        for side in range(2):
            assert set(np.flatnonzero(seen.operators[side][row]).tolist()) == operators[side]
        assert set(np.flatnonzero(seen.statements[row]).tolist()) == statements


def test_each_argument_has_its_own_operators_and_a_length_that_occurs() -> None:
    # every city of a person's employer's country is one where somebody of the same employer lives
    facts = [(f"p{i}", "works_at", f"e{i % 4}") for i in range(12)] + [
        (f"p{i}", "lives_in", f"c{i % 4}") for i in range(12)
    ]
    task = Task.of(FactGraph(KnowledgeBase.from_triples(facts)), ("lives_in",))
    known = task.facts(task.graph.kb)
    questions = Questions(known, np.ones((len(known[0]), 1), dtype=bool))
    shape = Shape(steps=1, levels=0)
    weights = np.ones((len(known[0]), 1))
    found = choices_of(task, questions, weights, shape, slots=4, seeds=1, most=10, max_edges=None, seed=0)
    step = task.graph.vocabulary.step
    for slot in range(1, 4):  # lives_in(X, Y) ← works_at(X, Z1), works_at(Z2, Z1), lives_in(Z2, Y), and nothing shorter
        left, right = (found.operators[slot][side[slot]].tolist() for side in found.sides)
        assert (left, right) == ([step("works_at")], [step("lives_in") + 1])
        assert found.statements[slot][found.statements[slot] >= 0].tolist() == [step("works_at")]
        assert [torch.nonzero(each[slot]).ravel().tolist() for each in found.paths] == [[1], [2]]
    assert IDENTITY in found.operators[0]
