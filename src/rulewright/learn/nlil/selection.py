"""Counting the rules that generators have written, and choosing among them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse

from rulewright.data import FactTable
from rulewright.data.index import Ids
from rulewright.engine.walks import Graph
from rulewright.learn.nlil.facts import FactGraph, Hidden
from rulewright.learn.nlil.formulas import Conjunction, Literal, Path, length, rows_of, rows_where
from rulewright.learn.nlil.frontier import Reach, Statements
from rulewright.learn.nlil.questions import Questions, Task

Floats = npt.NDArray[np.float64]
AGAINST = 5.0
"""How often a class must be expected for its absence to tell something."""


@dataclass(frozen=True)
class Counted:
    """A rule for one of the targets, with the questions of which it is rightly true and how often it is true at all."""

    target: int
    conjunction: Conjunction
    right: Ids
    fired: float

    @property
    def support(self) -> int:
        """How often it is right."""
        return len(self.right)

    @property
    def precision(self) -> float:
        """How often it is right, of all the times that it is true."""
        return self.support / self.fired if self.fired else 0.0

    def uses(self, statements: frozenset[int], operators: frozenset[int]) -> bool:
        """Tell whether some statement or operator occurs in it."""
        return any(
            literal.statement in statements or not operators.isdisjoint((*(literal.left or ()), *(literal.right or ())))
            for literal, _ in self.conjunction
        )


def counted(rules: Iterable[tuple[int, Conjunction]], task: Task, reach: Reach, questions: Questions) -> list[Counted]:
    """Count rules about one argument on questions, each without what is hidden of it."""
    wanted = sorted(set(rules), key=lambda each: (each[0], length(each[1]), sorted(map(repr, each[1]))))
    bodies = dict.fromkeys(conjunction for _, conjunction in wanted)
    literals = dict.fromkeys(literal for each in bodies for literal, _ in each)
    holds = rows_where(literals, reach, questions.arguments, task.hidden)
    rows = {each: rows_of(each, holds, len(questions)) for each in bodies}
    found = []
    for target, conjunction in wanted:
        fired = rows[conjunction]
        found.append(Counted(target, conjunction, fired[questions.truth[fired, target]], len(fired)))
    return found


def counted_for_all(
    bodies: Iterable[Conjunction], task: Task, reach: Reach, questions: Questions, priors: Floats, min_support: int
) -> list[Counted]:
    """Count each body for every class that it speaks for or against, whichever class it was written for.

    It speaks for a class that it raises above its prior, with ``min_support`` at least; against one that should be
    there `AGAINST` times by its prior, and is not half so often.
    """
    wanted = sorted(set(bodies), key=lambda each: (length(each), sorted(map(repr, each))))
    literals = dict.fromkeys(literal for each in wanted for literal, _ in each)
    holds = rows_where(literals, reach, questions.arguments, task.hidden)
    classes = questions.truth.argmax(axis=1)
    found = []
    for body in wanted:
        fired = rows_of(body, holds, len(questions))
        mine = classes[fired]
        counts = np.bincount(mine, minlength=len(priors))
        expected = priors * len(fired)
        speaks = (counts >= min_support) & (counts > expected)
        speaks |= (expected >= AGAINST) & (counts < expected / 2)
        for target in np.flatnonzero(speaks).tolist():
            found.append(Counted(target, body, fired[mine == target], len(fired)))
    return found


def covering(
    rules: Sequence[Counted], recursive: Sequence[bool], *, min_support: int, min_precision: float, max_rules: int
) -> list[Counted]:
    """Return rules that together are right as often as all of them are: the most precise first, none superfluous.

    Of equally precise rules those that do not rest on the target itself come first, then those that are right more
    often, then the shorter ones. What others make superfluous is left out, rules that rest on the target first.
    """
    fit = [
        (rule, rests)
        for rule, rests in zip(rules, recursive, strict=True)
        if rule.support >= min_support and rule.precision >= min_precision
    ]
    fit.sort(key=lambda each: (-round(each[0].precision, 3), each[1], -each[0].support, length(each[0].conjunction)))
    chosen: list[tuple[Counted, bool]] = []
    covered: set[int] = set()
    for rule, rests in fit:
        new = set(rule.right.tolist()) - covered
        if new and len(chosen) < max_rules:
            chosen.append((rule, rests))
            covered |= new
    for each in sorted(chosen, key=lambda each: (not each[1], each[0].support)):
        others = [other for other in chosen if other is not each]
        if covered <= set().union(*(other[0].right.tolist() for other in others)):
            chosen = others
    return [rule for rule, _ in chosen]


def most_telling(rules: Sequence[Counted], priors: Floats, *, most: int) -> list[Counted]:
    """Return for each target the ``most`` rules that tell most: ``s log(s/e) + (b − s) log((b − s)/(b − e))``.

    A rule is right ``s`` of the ``b`` times that it is true, where the prior lets expect ``e``. Of rules that are right
    of the same questions and true as often, the shortest are kept: all of them, for they may differ elsewhere.
    """
    found = []
    for target, prior in enumerate(priors.tolist()):
        shortest: dict[tuple[bytes, float], int] = {}
        mine = [each for each in rules if each.target == target]
        mine.sort(key=lambda each: (length(each.conjunction), sorted(map(repr, each.conjunction))))
        kept = []
        for each in mine:
            least = shortest.setdefault((each.right.tobytes(), each.fired), length(each.conjunction))
            if length(each.conjunction) == least or not each.support:
                kept.append(each)
        kept.sort(key=lambda each: -_told(each, prior))
        found += kept[:most]
    return found


def _told(rule: Counted, prior: float) -> float:
    parts = ((rule.support, prior * rule.fired), (rule.fired - rule.support, (1 - prior) * rule.fired))
    return sum(seen * math.log(seen / expected) for seen, expected in parts if seen)


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
        self._relations = [kb.predicate_index(name) for name in task.graph.vocabulary.binary]
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
        return self._walks.take_step(state, 2 * self._relations[relation] + inverse)

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
