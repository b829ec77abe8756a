"""Counting the rules that generators have written, and choosing those that together explain a target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from rulewright.data.index import Ids
from rulewright.engine.walks import Graph
from rulewright.evaluate import share_interval
from rulewright.learn.nlil.facts import ANYTHING, Floats, Mask, StatementCodes
from rulewright.learn.nlil.formulas import (
    Conjunction,
    OperatorPath,
    RuleWriter,
    count_atoms,
    match_conjunctions,
    uses_target,
)
from rulewright.learn.nlil.questions import LearningTask, TargetQuestions
from rulewright.logic import Rule

BLOCK = 1000
"""How many first arguments are walked from at a time."""
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


@dataclass(frozen=True)
class RuleFigures:
    """What was counted of a kept rule: on what it was learned from, and on what was held out, if anything was.

    ``facts`` counts those of its target. Counts that are not exact, but stand for more than was looked at, are
    ``estimated``.
    """

    train: CountedRule
    held_out: CountedRule | None
    facts: int
    estimated: bool = False

    @property
    def support(self) -> int:
        """How often it is right of all."""
        return self.train.support + (self.held_out.support if self.held_out else 0)

    @property
    def body_count(self) -> float:
        """How often its body is true of all."""
        return self.train.body_count + (self.held_out.body_count if self.held_out else 0)

    @property
    def precision(self) -> float:
        """How often it is right, of all the times that its body is true."""
        return self.support / self.body_count if self.body_count else 0.0

    def annotations(self) -> dict[str, object]:
        """Return what is written behind the rule."""
        figures: dict[str, object] = {
            "support": self.support,
            "body": round(self.body_count),
            "coverage": round(self.support / max(1, self.facts), 4),
        }
        if self.estimated:
            figures["estimated"] = True
        if self.held_out is not None:
            support, body = self.held_out.support, self.held_out.body_count
            figures |= {"held_out_support": support, "held_out_body": round(body)}
            if body:
                low, high = share_interval(support, body)
                figures |= {"held_out_low": round(float(low), 3), "held_out_high": round(float(high), 3)}
        return figures

    def write(self, writer: RuleWriter, weight: float | None = None) -> Rule:
        """Write the rule with its figures: confidence is precision, over all that was counted."""
        figures = self.annotations() | ({} if weight is None else {"weight": round(weight, 4)})
        return writer.write(self.train.conjunction, round(self.precision, 4), **figures)


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
    """Return rules that together explain what all of them do: the surest first, none superfluous.

    A rule comes the earlier the higher the lower bound of its precision is (`share_interval`), so that of two that are
    never wrong the one that is right more often does, and 92 of 93 before 28 of 28; of equals, the shorter. It must be
    right of ``min_support`` questions of which those before it are not. Before a rule that uses the target itself come
    those that do not, are as precise and are right of some of its questions: a recursion needs a start. What others
    make superfluous is left out, recursive rules first.
    """
    fit = [
        (rule, recursive)
        for rule, recursive in zip(rules, is_recursive, strict=True)
        if rule.support >= min_support and rule.precision >= min_precision
    ]
    lows, _ = share_interval([rule.support for rule, _ in fit], [rule.body_count for rule, _ in fit])
    keys = [
        (-low, recursive, -rule.support, count_atoms(rule.conjunction))
        for low, (rule, recursive) in zip(lows.round(3).tolist(), fit, strict=True)
    ]
    ordered = [fit[position] for position in sorted(range(len(fit)), key=keys.__getitem__)]
    starts = [rule for rule, recursive in ordered if not recursive]
    chosen: list[tuple[CountedRule, bool]] = []
    covered: set[int] = set()

    def add(rule: CountedRule, recursive: bool) -> None:
        if len(chosen) < max_rules and len(set(rule.right.tolist()) - covered) >= min_support:
            chosen.append((rule, recursive))
            covered.update(rule.right.tolist())

    for rule, recursive in ordered:
        own = set(rule.right.tolist())
        if recursive and len(chosen) < max_rules and len(own - covered) >= min_support:
            for start in starts:
                if start.precision >= rule.precision and not own.isdisjoint(start.right.tolist()):
                    add(start, False)
        add(rule, recursive)
    for pair in sorted(chosen, key=lambda pair: (not pair[1], pair[0].support)):
        others = [other for other in chosen if other is not pair]
        if covered <= set(right_rows(rule for rule, _ in others).tolist()):
            chosen = others
    return [rule for rule, _ in chosen]


class BodyWalks:
    """Finds the pairs that bodies of rules join, as products of sparse matrices; nothing is hidden."""

    def __init__(self, task: LearningTask) -> None:
        self.task = task
        self._walks = Graph(task.graph.kb)
        self.codes = StatementCodes(2, task.graph.vocabulary)
        self._masks: dict[tuple[OperatorPath, int], Mask] = {}

    def join(
        self, conjunction: Conjunction, firsts: Ids, states: dict[OperatorPath, sparse.csr_array]
    ) -> sparse.csr_array:
        """Return which second arguments a body joins to each first argument; ``states`` keeps what was walked."""
        joined: sparse.csr_array | None = None
        left, right = (np.ones(self.task.graph.n_entities, dtype=bool) for _ in range(2))
        for literal, positive in sorted(conjunction, key=lambda signed: not signed[1]):
            if not literal.is_joining:
                _, mark = self.codes.decode(literal.statement)
                mask = left if literal.right is None else right
                mask &= self._reaches(literal.operators, mark) == positive
                continue
            other = self._walk(literal.joined_path(self.codes), firsts, states)
            if joined is None:
                assert positive
                joined = other
            else:
                joined = joined.multiply(other) if positive else joined - joined.multiply(other)
        assert joined is not None
        joined = sparse.csr_array(joined)
        row = np.repeat(np.arange(len(firsts)), np.diff(joined.indptr))
        keep = (joined.data > 0) & left[firsts][row] & right[joined.indices]
        if keep.all():
            return joined
        entries = joined.data[keep], (row[keep], joined.indices[keep])
        return sparse.csr_array(entries, shape=joined.shape)

    def _walk(self, path: OperatorPath, firsts: Ids, states: dict[OperatorPath, sparse.csr_array]) -> sparse.csr_array:
        """Return which entities a path leads to from each first argument."""
        if path not in states:
            state = self._walks.walk(firsts, ())
            if path:
                before = self._walk(path[:-1], firsts, states)
                vocabulary, operator = self.task.graph.vocabulary, path[-1]
                if vocabulary.is_filter(operator):
                    has_mark = self._reaches((), vocabulary.filter_mark(operator))
                    state = sparse.csr_array(before.multiply(has_mark[None, :]))
                    state.eliminate_zeros()
                else:
                    state = self._walks.take_step(before, self.task.graph.fact_step(operator))
                    state.data[:] = 1.0  # that there is a way counts, not how many there are
            states[path] = state
        return states[path]

    def _reaches(self, path: OperatorPath, mark: int) -> Mask:
        """Return from which entities a path leads to one with a mark."""
        if (path, mark) not in self._masks:
            graph = self.task.graph
            vocabulary, size = graph.vocabulary, graph.n_entities
            mask: Mask
            if not path:
                mask = np.full(size, mark == ANYTHING)
                if mark != ANYTHING:
                    mask[graph.kb.columns(vocabulary.mark_name(mark))[0]] = True
            elif vocabulary.is_filter(path[0]):
                mask = self._reaches((), vocabulary.filter_mark(path[0])) & self._reaches(path[1:], mark)
            else:
                step = self._walks.adjacency(graph.fact_step(path[0]))
                mask = np.asarray(step @ self._reaches(path[1:], mark).astype(np.float64)) > 0
            self._masks[path, mark] = mask
        return self._masks[path, mark]


class PairCounter:
    """Counts rules on facts, ``known``, and on all pairs of their first arguments and of ``others`` that have none.

    A rule is right of a fact where its body holds without the fact itself. It is wrong of every pair that its body
    joins and that is no fact. Of more than ``most`` first arguments with facts, and of as many without, so many are
    drawn (``is_sampled``); pairs of those without then weigh as many as they stand for, so that precision is an
    estimate of that on all. With None nothing is drawn, and counts are those of the engine: different heads of
    groundings that are not circular.
    """

    def __init__(
        self, walks: BodyWalks, known: tuple[Ids, ...], others: Ids, *, most: int | None, seed: int = 0
    ) -> None:
        random = np.random.default_rng(seed)
        self.walks, self.task = walks, walks.task
        every = np.unique(known[0]), others
        drawn = [
            part if most is None or len(part) <= most else np.sort(random.permutation(part)[:most]) for part in every
        ]
        self.is_sampled = any(len(some) < len(part) for some, part in zip(drawn, every, strict=True))
        shares = [len(some) / len(part) if len(part) else 1.0 for some, part in zip(drawn, every, strict=True)]
        self.firsts = np.concatenate(drawn)
        self._weight = np.repeat([1.0, shares[0] / shares[1]], [len(some) for some in drawn])
        keep = np.isin(known[0], drawn[0])
        first, second = (column[keep] for column in known)
        self.questions = TargetQuestions((first, second), np.ones((len(first), 1), dtype=bool))
        # a fact of these first arguments is found by its number from 1, since 0 is no fact
        number = np.arange(1, len(first) + 1, dtype=np.float64)
        shape = len(self.firsts), self.task.graph.n_entities
        self._number = sparse.csr_array((number, (np.searchsorted(drawn[0], first), second)), shape=shape)

    def count(self, rules: Iterable[WrittenRule]) -> list[CountedRule]:
        """Count rules, each of which joins its two arguments by a path."""
        ordered = sorted(set(rules), key=lambda rule: sorted(map(repr, rule[1])))
        right: dict[Conjunction, list[Ids]] = {body: [] for _, body in ordered}
        wrong: dict[Conjunction, float] = dict.fromkeys(right, 0.0)
        for low in range(0, len(self.firsts), BLOCK):
            block = slice(low, low + BLOCK)
            firsts, numbers, weight = self.firsts[block], self._number[block], self._weight[block]
            states: dict[OperatorPath, sparse.csr_array] = {}
            for body in right:
                joined = self.walks.join(body, firsts, states)
                number = sparse.csr_array(joined.multiply(numbers))
                number.eliminate_zeros()
                right[body].append(number.data.astype(np.int64) - 1)
                wrong[body] += float((np.diff(joined.indptr) - np.diff(number.indptr)) @ weight)
        rows = {body: np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *parts])) for body, parts in right.items()}
        self._hide_own_facts(rows)
        return [
            CountedRule(target_index, body, rows[body], len(rows[body]) + wrong[body]) for target_index, body in ordered
        ]

    def _hide_own_facts(self, rows: dict[Conjunction, Ids]) -> None:
        """Leave out the facts that rules which use their own target are right of by these facts alone."""
        target, codes = self.task.targets[0], self.walks.codes
        recursive = [
            body
            for body, own in rows.items()
            if len(own) and any(uses_target(literal, target, codes) for literal, _ in body)
        ]
        if not recursive:
            return
        asked = np.unique(np.concatenate([rows[body] for body in recursive]))
        matched = match_conjunctions(recursive, self.task, self.questions.take(asked).arguments, block=1024)
        rows.update({body: np.intersect1d(rows[body], asked[matched[body]]) for body in recursive})
