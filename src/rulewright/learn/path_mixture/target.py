"""One question, ``r(X, ?)``, learned: which rules answer it, and how much each weighs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rulewright.data.index import Ids
from rulewright.engine.evidence import ANY_ENTITY, WAYS, Evidence, RuleForm, RuleTable, Ways
from rulewright.engine.walks import Graph, HiddenEdges
from rulewright.errors import DataError
from rulewright.learn.path_mixture.constant_rules import DOUBT, CountedRules, constant_rules
from rulewright.learn.path_mixture.paths import CELLS, LONGEST, counted_paths, find_paths
from rulewright.learn.path_mixture.weighing import LOSSES, Examples, Loss, Questions, examples, fit_weights
from rulewright.logic import Path

Floats = npt.NDArray[np.float64]

_BINS = np.array([0.02, 0.05, 0.1, 0.2, 0.4, 0.7])
_FAMILIES = 3  # constants as answers whatever the end, as answers with an end, as the entity asked about
_LEAST = -20.0


@dataclass(frozen=True)
class MixtureOptions:
    """How a `PathMixture` learns; see there."""

    max_length: int = 3
    max_paths: int = 500
    min_support: int = 2
    min_confidence: float = 0.0
    sample: int = 200
    max_edges: int | None = 200
    constants: int = 1
    max_constants: int = 20_000
    ways: Ways = "telling"
    negated: int = 1
    questions: int = 500
    candidates: int | None = 300
    loss: Loss = "softmax"
    l1: float = 0.0
    l2: float = 1.0
    prior: float = 0.05
    shared: float = 0.0
    iterations: int = 50
    min_valid: int = 5

    def __post_init__(self) -> None:
        if not 1 <= self.max_length <= LONGEST:
            raise DataError(f"max_length must lie in 1 … {LONGEST}, got {self.max_length}")
        if not 0 <= self.negated <= LONGEST:
            raise DataError(f"negated must lie in 0 … {LONGEST}, got {self.negated}")
        if not 0 <= self.constants <= 2:
            raise DataError(f"constants must be 0 (none), 1 or 2 relations in a body, got {self.constants}")
        if self.loss not in LOSSES:
            raise DataError(f"loss must be one of {', '.join(LOSSES)}, got {self.loss!r}")
        if not 0 <= self.shared <= 1:
            raise DataError(f"shared must lie in 0 … 1, got {self.shared}")
        if self.ways not in WAYS:
            raise DataError(f"ways must be one of {', '.join(WAYS)}, got {self.ways!r}")
        for name in ("max_paths", "min_support", "sample", "questions", "iterations"):
            if getattr(self, name) < 1:
                raise DataError(f"{name} must be >= 1, got {getattr(self, name)}")


@dataclass(frozen=True)
class Target:
    """The rules that answer one question, their weights, and how often each was right and spoke at all."""

    table: RuleTable
    weights: Floats
    support: Floats
    body: Floats
    seconds: float = 0.0
    """The time of one core it took to learn."""


class _Columns:
    """Gives each path rule a column of its own, and rules with constants one for each family and confidence.

    A rule with a constant has few observations, so it gets no free weight: its value is ``−log(1 − confidence)``, times
    the weight of its column. While a question is learned, confidence is counted without the question's own fact.
    """

    def __init__(self, closed: int, constants: CountedRules, *, hide: bool) -> None:
        self.closed, self.constants, self.hide = closed, constants, hide

    @staticmethod
    def width(closed: int) -> int:
        return closed + _FAMILIES * (len(_BINS) + 1)

    def __call__(self, row: Ids, right: npt.NDArray[np.bool_], rule: Ids, truth: Floats) -> tuple[Ids, Floats]:
        column, value = rule.astype(np.int64), truth.copy()
        named = np.flatnonzero(rule >= self.closed)
        if len(named):
            number = rule[named] - self.closed
            confidence = self.constants.confidence[number]
            if self.hide:
                confidence = self.constants.without_own(number, self._own(row[named], right[named], number))
            column[named], value[named] = self.place(number, confidence)
        return column, value

    def place(self, number: Ids, confidence: Floats) -> tuple[Ids, Floats]:
        table = self.constants.table
        family = np.where(table.form[number] == RuleForm.ASKED, 2, np.where(table.end[number] == ANY_ENTITY, 0, 1))
        column = self.closed + family * (len(_BINS) + 1) + np.searchsorted(_BINS, confidence)
        return column, -np.log1p(-np.minimum(confidence, 0.999))

    def _own(self, row: Ids, right: npt.NDArray[np.bool_], number: Ids) -> npt.NDArray[np.bool_]:
        """Tell where the question's fact counts among a rule's successes: always or never for all its candidates,
        where the rule is about the entity asked about."""
        asked = self.constants.table.form[number] == RuleForm.ASKED
        key = row * max(len(self.constants.support), 1) + number
        hit = np.unique(key[right & asked])
        if len(hit) == 0:
            return right
        about = hit[np.minimum(np.searchsorted(hit, key), len(hit) - 1)] == key
        return np.where(asked, about, right)


def learn_target(
    graph: Graph,
    relation: int,
    options: MixtureOptions,
    valid: tuple[Ids, Ids],
    *,
    seed: int = 0,
    paths: Sequence[Path] | None = None,
) -> Target | None:
    """Learn to answer ``r(X, ?)`` from the graph's own facts, each hidden from itself; None where it has none.

    Paths are looked for on the graph where none are given.
    """
    before, after = graph.edges(relation)
    if len(before) == 0:
        return None
    random = np.random.default_rng([seed, relation])
    started = time.process_time()

    def some(facts: tuple[Ids, Ids], count: int) -> tuple[Ids, Ids]:
        chosen = np.sort(random.permutation(len(facts[0]))[:count])
        return facts[0][chosen], facts[1][chosen]

    sample = HiddenEdges(relation, *some((before, after), options.sample))
    if paths is None:
        table, first = _found_rules(graph, sample, options, seed)
    else:
        table, first = _given_rules(graph, sample, options, paths)
    closed = len(table)
    counted = _constant_rules(
        graph, HiddenEdges(relation, *some((before, after), 20 * options.questions)), options, seed
    )
    evidence = Evidence(graph, table.join(counted.table))
    first = np.concatenate([first, -0.3 * np.log1p(-np.minimum(counted.confidence, 0.99))])

    def asked(facts: tuple[Ids, Ids], truth: tuple[Ids, Ids], *, hide: bool) -> Examples:
        return examples(
            evidence,
            Questions.of(relation, *some(facts, options.questions), truth),
            _Columns(closed, counted, hide=hide),
            _Columns.width(closed),
            first,
            hide=hide,
            most=options.candidates if options.candidates and graph.entities > 4 * options.candidates else None,
            block=max(1, min(1000, CELLS // graph.entities)),
        )

    training = asked((before, after), (before, after), hide=True)
    watched = None
    if len(valid[0]) >= options.min_valid:
        every = [np.concatenate(pair) for pair in zip((before, after), valid, strict=True)]
        order = np.argsort(every[0], kind="stable")
        watched = asked(valid, (every[0][order], every[1][order]), hide=False)
    weights, support, body = _fitted(training, watched, table, options)
    column, value = _Columns(closed, counted, hide=False).place(np.arange(len(counted.support)), counted.confidence)
    everything = np.concatenate([weights[:closed], weights[column] * value])
    keep = np.flatnonzero(np.abs(everything) > 1e-6)
    return Target(
        evidence.table.select(keep),
        everything[keep],
        np.concatenate([support[:closed], counted.support])[keep],
        np.concatenate([body[:closed], counted.body])[keep],
        time.process_time() - started,
    )


def _given_rules(
    graph: Graph, hidden: HiddenEdges, options: MixtureOptions, paths: Sequence[Path]
) -> tuple[RuleTable, Floats]:
    """Return ``X = Y`` and the given paths, and what each weighs before training."""
    usable = tuple(dict.fromkeys(path for path in paths if path not in ((), (hidden.step,))))
    counted = counted_paths(graph, hidden, usable)
    weights = np.concatenate([np.zeros(1), -np.log1p(-np.minimum(counted.confidence, 0.99))])
    return RuleTable.of_paths(hidden.step, ((), *usable), options.ways), weights


def _found_rules(graph: Graph, hidden: HiddenEdges, options: MixtureOptions, seed: int) -> tuple[RuleTable, Floats]:
    """Return ``X = Y``, the best paths and all single relations, and what each weighs before training."""
    found = find_paths(graph, hidden, max_length=options.max_length, max_edges=options.max_edges, seed=seed).best(
        options.max_paths, min_support=options.min_support, min_confidence=options.min_confidence
    )
    known = {(), (hidden.step,), *found.paths}
    single = [(int(each),) for each in np.unique(graph.steps) if (int(each),) not in known]
    weights = np.zeros(1 + len(found.paths) + len(single))
    weights[1 : 1 + len(found.paths)] = -np.log1p(-np.minimum(found.confidence, 0.99))
    return RuleTable.of_paths(hidden.step, ((), *found.paths, *single), options.ways), weights


def _constant_rules(graph: Graph, hidden: HiddenEdges, options: MixtureOptions, seed: int) -> CountedRules:
    if options.constants == 0:
        nothing = np.zeros(0)
        return CountedRules(RuleTable.of_paths(hidden.step, ()), nothing, nothing, nothing)
    counted = constant_rules(graph, hidden, steps=options.constants, seed=seed)
    order = np.argsort(-counted.support * counted.confidence, kind="stable")
    return counted.kept(np.sort(order[: options.max_constants]))


def _fitted(
    training: Examples, watched: Examples | None, table: RuleTable, options: MixtureOptions
) -> tuple[Floats, Floats, Floats]:
    """Return the weight of each column, how often it spoke for an answer, and how often at all."""
    closed, width = len(table), training.features.shape[1]
    if training.features.shape[0] == 0:  # no rule ever speaks
        return np.zeros(width), np.zeros(width), np.zeros(width)
    fired = training.features.astype(bool).astype(np.float64)
    support = np.asarray(fired[training.positive[training.positive >= 0]].sum(axis=0)).ravel()
    body = np.asarray(fired.sum(axis=0)).ravel()
    start = np.zeros(width)
    start[1:closed] = -options.prior * np.log1p(-support / (body + DOUBT))[1:closed]
    lower, upper = np.zeros(width), np.full(width, np.inf)
    lower[:closed] = [_LEAST if 0 < options.negated >= len(path) else 0.0 for path in table.paths]
    upper[0] = 0.0  # that X = Y may only speak against
    scale = np.maximum(np.asarray(training.features.max(axis=0).todense()).ravel(), 1.0)
    weights, _ = fit_weights(
        training.scaled(1 / scale),
        start,
        lower=lower,
        upper=upper,
        loss=options.loss,
        l1=options.l1,
        l2=options.l2,
        iterations=options.iterations,
        valid=None if watched is None else watched.scaled(1 / scale),
    )
    return weights / scale, support, body
