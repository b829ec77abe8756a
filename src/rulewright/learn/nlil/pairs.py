"""Counting rules about two arguments: all pairs that their bodies join, from some first arguments."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy import sparse

from rulewright.data import FactTable
from rulewright.engine.walks import Graph
from rulewright.learn.nlil.facts import FactGraph, Hidden, Ids
from rulewright.learn.nlil.formulas import Conjunction, rows_of
from rulewright.learn.nlil.frontier import Reach, Statements
from rulewright.learn.nlil.literals import Literal, Path, rows_where
from rulewright.learn.nlil.questions import Questions, Task
from rulewright.learn.nlil.selection import Counted


class PairCounter:
    """Counts on all facts of some first arguments (all, or ``most`` at random).

    A rule is right of a fact where its body holds without the fact itself. It is wrong of every pair with one of these
    first arguments that its body joins and that is no known fact.
    """

    def __init__(self, task: Task, known: tuple[Ids, Ids], *, most: int, seed: int) -> None:
        self.task = task
        firsts = np.unique(known[0])
        if len(firsts) > most:
            firsts = np.sort(np.random.default_rng(seed).permutation(firsts)[:most])
        self.firsts = firsts
        keep = np.isin(known[0], firsts)
        columns = tuple(column[keep] for column in known)
        self.questions = Questions(columns, np.ones((len(columns[0]), 1), dtype=bool))
        kb = task.graph.kb
        facts: FactTable | None = kb.tables().get("ee")
        self._walks = Graph(facts, task.graph.entities, len(kb.predicates))
        self._relations = [kb.number_of(name) for name in task.graph.vocabulary.binary]
        self._numbers = Statements.of(task.graph, 2)
        row = np.searchsorted(firsts, columns[0])
        self._true = sparse.csr_array((np.ones(len(row)), (row, columns[1])), shape=(len(firsts), task.graph.entities))
        self._states: dict[Path, sparse.csr_array] = {}

    def counted(self, rules: Iterable[tuple[int, Conjunction]], reach: Reach) -> list[Counted]:
        """Count rules, each of which joins its two arguments by a path."""
        wanted = sorted(set(rules), key=lambda each: sorted(map(repr, each[1])))
        literals = dict.fromkeys(literal for _, each in wanted for literal, _ in each)
        holds = rows_where(literals, reach, self.questions.arguments, self.task.hidden, block=1024)
        found = []
        for target, conjunction in wanted:
            right = rows_of(conjunction, holds, len(self.questions))
            found.append(Counted(target, conjunction, right, len(right) + self.wrong(conjunction)))
        self._states.clear()
        return found

    def wrong(self, conjunction: Conjunction) -> int:
        """Return how many pairs a rule joins that are no known facts."""
        state: sparse.csr_array | None = None
        marks: list[tuple[Literal, bool]] = []
        for literal, positive in sorted(conjunction, key=lambda each: not each[1]):
            if literal.left is None or literal.right is None:
                marks.append((literal, positive))
                continue
            path = joined_path(literal, self._numbers)
            joins = self._state(path).sign()
            if not positive:
                assert state is not None
                state = state - state.multiply(joins)
            else:
                state = joins if state is None else state.multiply(joins)
        assert state is not None
        false = sparse.csr_array(state - state.multiply(self._true.sign()))
        false.eliminate_zeros()
        rows = np.repeat(np.arange(len(self.firsts)), np.diff(false.indptr))
        keep = np.ones(len(rows), dtype=bool)
        for literal, positive in marks:
            entity = self.firsts[rows] if literal.right is None else false.indices.astype(np.int64)
            keep &= self._borne(literal, entity) == positive
        return int(keep.sum())

    def _state(self, path: Path) -> sparse.csr_array:
        """Return in how many ways a path leads from the first arguments to every entity."""
        if path not in self._states:
            if not path:
                self._states[path] = self._walks.start(self.firsts)
            else:
                self._states[path] = self._step(self._state(path[:-1]), path[-1])
        return self._states[path]

    def _step(self, state: sparse.csr_array, operator: int) -> sparse.csr_array:
        vocabulary = self.task.graph.vocabulary
        if operator >= vocabulary.filter(1):
            name = vocabulary.unary[operator - vocabulary.filter(1)]
            bears = np.zeros(self.task.graph.entities)
            bears[self.task.graph.kb.columns(name)[0]] = 1
            return sparse.csr_array(state.multiply(bears[None, :]))
        relation, inverse = divmod(operator - 1, 2)
        return self._walks.step(state, 2 * self._relations[relation] + inverse)

    def _borne(self, literal: Literal, entities: Ids) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Tell of which entities a literal about one argument holds, with nothing hidden."""
        path = literal.left if literal.left is not None else literal.right
        assert path is not None
        graph: FactGraph = self.task.graph
        _, mark = self._numbers.kind(literal.statement)
        one = Literal(mark, path, None)
        different, place = np.unique(entities, return_inverse=True)
        holds = np.zeros(len(different), dtype=bool)
        holds[rows_where([one], Reach(graph, steps=len(path), arity=1), [different], Hidden())[one]] = True
        return holds[place]


def joined_path(literal: Literal, numbers: Statements) -> Path:
    """Return the path from the first argument to the second: there, across, and back along the second's own.

    >>> joined_path(Literal(0, (3,), (2, 5)), Statements(2, 4, 2))  # operator 5 is a filter: there are 4 steps
    (3, 1, 5, 1)
    """
    assert literal.left is not None
    assert literal.right is not None
    _, step = numbers.kind(literal.statement)
    back = tuple(each if each > numbers.relations else (each - 1 ^ 1) + 1 for each in reversed(literal.right))
    return (*literal.left, step, *back)
