"""Counting the rules that generators have written, and choosing those that together explain a target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from rulewright.data.index import Ids
from rulewright.engine.walks import Graph
from rulewright.learn.nlil.facts import Floats, Mask, StatementCodes
from rulewright.learn.nlil.formulas import (
    Conjunction,
    OperatorPath,
    PathLiteral,
    count_atoms,
    match_conjunctions,
    match_literals,
)
from rulewright.learn.nlil.frontier import NOTHING_HIDDEN, EvidenceBuilder
from rulewright.learn.nlil.questions import LearningTask, TargetQuestions

WrittenRule = tuple[int, Conjunction]
"""A rule as a generator wrote it: the index of its target among those of the task, and its body."""


@dataclass(frozen=True)
class CountedRule:
    """A rule with the questions of which body and head are true, and how often the body is true at all."""

    target_index: int
    conjunction: Conjunction
    right: Ids
    body_count: float

    @property
    def written(self) -> WrittenRule:
        """The rule without its counts."""
        return self.target_index, self.conjunction

    @property
    def support(self) -> int:
        """How often it is right."""
        return len(self.right)

    @property
    def precision(self) -> float:
        """How often it is right, of all the times that its body is true."""
        return self.support / self.body_count if self.body_count else 0.0


def count_rules(
    rules: Iterable[WrittenRule],
    task: LearningTask,
    questions: TargetQuestions,
    *,
    most: int | None = None,
    seed: int = 0,
) -> list[CountedRule]:
    """Count rules on questions, each without what is hidden from it; ``most`` and ``seed`` as in matching."""
    ordered = sorted(set(rules), key=lambda rule: (rule[0], count_atoms(rule[1]), sorted(map(repr, rule[1]))))
    bodies = (conjunction for _, conjunction in ordered)
    rows = match_conjunctions(bodies, task, questions.arguments, most=most, seed=seed)
    return [
        CountedRule(
            target_index,
            conjunction,
            rows[conjunction][questions.truth[rows[conjunction], target_index]],
            len(rows[conjunction]),
        )
        for target_index, conjunction in ordered
    ]


def right_rows(rules: Iterable[CountedRule]) -> Ids:
    """Return the questions of which some rule is right."""
    return np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *(rule.right for rule in rules)]))


def unexplained_shares(rules: Iterable[CountedRule], shape: tuple[int, int]) -> Floats:
    """Return for each question and target 1 less the precision of the most precise rule that is right of it."""
    shares = np.ones(shape)
    for rule in rules:
        own = shares[rule.right, rule.target_index]
        shares[rule.right, rule.target_index] = np.minimum(own, 1 - rule.precision)
    return shares


def choose_cover(
    rules: Sequence[CountedRule],
    is_recursive: Sequence[bool],
    *,
    min_support: int,
    min_precision: float,
    max_rules: int,
) -> list[CountedRule]:
    """Return rules that together are right as often as all of them are: the most precise first, none superfluous.

    Of equally precise rules those that do not use the target itself come first, then those that are right more often,
    then the shorter ones. What others make superfluous is left out, recursive rules first.
    """
    fit = [
        (rule, recursive)
        for rule, recursive in zip(rules, is_recursive, strict=True)
        if rule.support >= min_support and rule.precision >= min_precision
    ]
    fit.sort(
        key=lambda pair: (-round(pair[0].precision, 3), pair[1], -pair[0].support, count_atoms(pair[0].conjunction))
    )
    chosen: list[tuple[CountedRule, bool]] = []
    covered: set[int] = set()
    for rule, recursive in fit:
        new = set(rule.right.tolist()) - covered
        if new and len(chosen) < max_rules:
            chosen.append((rule, recursive))
            covered |= new
    for pair in sorted(chosen, key=lambda pair: (not pair[1], pair[0].support)):
        others = [other for other in chosen if other is not pair]
        if covered <= set(right_rows(rule for rule, _ in others).tolist()):
            chosen = others
    return [rule for rule, _ in chosen]


class PairCounter:
    """Counts on all facts of some first arguments (all, or ``most`` at random).

    A rule is right of a fact where its body holds without the fact itself. It is wrong of every pair with one of these
    first arguments that its body joins and that is no known fact.
    """

    def __init__(self, task: LearningTask, known: tuple[Ids, ...], *, most: int, seed: int) -> None:
        self.task, self.firsts = task, np.unique(known[0])
        if len(self.firsts) > most:
            self.firsts = np.sort(np.random.default_rng(seed).permutation(self.firsts)[:most])
        keep = np.isin(known[0], self.firsts)
        first, second = (column[keep] for column in known)
        self.questions = TargetQuestions((first, second), np.ones((len(first), 1), dtype=bool))
        kb = task.graph.kb
        self._walks = Graph(kb)
        self._codes = StatementCodes(2, task.graph.vocabulary)
        row = np.searchsorted(self.firsts, first)
        self._true = sparse.csr_array((np.ones(len(row)), (row, second)), shape=(len(self.firsts), kb.n_entities))
        self._states: dict[OperatorPath, sparse.csr_array] = {}

    def count(self, rules: Iterable[WrittenRule]) -> list[CountedRule]:
        """Count rules, each of which joins its two arguments by a path."""
        ordered = sorted(set(rules), key=lambda rule: sorted(map(repr, rule[1])))
        bodies = (conjunction for _, conjunction in ordered)
        rows = match_conjunctions(bodies, self.task, self.questions.arguments, block=1024)
        counted = [
            CountedRule(target_index, body, rows[body], len(rows[body]) + self._count_wrong(body))
            for target_index, body in ordered
        ]
        self._states.clear()
        return counted

    def _count_wrong(self, conjunction: Conjunction) -> int:
        """Return how many pairs a rule joins that are no known facts."""
        state: sparse.csr_array | None = None
        about_one: list[tuple[PathLiteral, bool]] = []
        for literal, positive in sorted(conjunction, key=lambda signed: not signed[1]):
            if not literal.is_joining:
                about_one.append((literal, positive))
                continue
            joins = self._walk(literal.joined_path(self._codes)).sign()
            if positive:
                state = joins if state is None else state.multiply(joins)
            else:
                assert state is not None
                state = state - state.multiply(joins)
        assert state is not None
        wrong = sparse.csr_array(state - state.multiply(self._true.sign()))
        wrong.eliminate_zeros()
        rows = np.repeat(np.arange(len(self.firsts)), np.diff(wrong.indptr))
        keep = np.ones(len(rows), dtype=bool)
        for literal, positive in about_one:
            entities = self.firsts[rows] if literal.right is None else wrong.indices.astype(np.int64)
            keep &= self._match_entities(literal, entities) == positive
        return int(keep.sum())

    def _walk(self, path: OperatorPath) -> sparse.csr_array:
        """Return in how many ways a path leads from the first arguments to every entity."""
        if path not in self._states:
            if not path:
                self._states[path] = self._walks.walk(self.firsts, ())
            else:
                self._states[path] = self._apply(self._walk(path[:-1]), path[-1])
        return self._states[path]

    def _apply(self, state: sparse.csr_array, operator: int) -> sparse.csr_array:
        kb, vocabulary = self.task.graph.kb, self.task.graph.vocabulary
        if vocabulary.is_filter(operator):
            has_mark = np.zeros(kb.n_entities)
            has_mark[kb.columns(vocabulary.mark_name(vocabulary.filter_mark(operator)))[0]] = 1
            return sparse.csr_array(state.multiply(has_mark[None, :]))
        return self._walks.take_step(state, self.task.graph.fact_step(operator))

    def _match_entities(self, literal: PathLiteral, entities: Ids) -> Mask:
        """Return of which entities a literal about one argument is true, with nothing hidden."""
        path = literal.left if literal.left is not None else literal.right
        assert path is not None
        _, mark = self._codes.decode(literal.statement)
        about_one = PathLiteral(mark, path, None)
        different, position = np.unique(entities, return_inverse=True)
        builder = EvidenceBuilder(self.task.graph, steps=len(path), arity=1)
        is_true = np.zeros(len(different), dtype=bool)
        is_true[match_literals([about_one], builder, [different], NOTHING_HIDDEN)[about_one]] = True
        return is_true[position]
