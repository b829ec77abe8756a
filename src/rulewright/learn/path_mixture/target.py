"""One query, ``r(X, ?)``, learned: which rules answer it, and how much each weighs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rulewright.data.index import Ids
from rulewright.engine.evidence import ANY_ENTITY, Evidence, RuleForm, RuleTable
from rulewright.engine.walks import Graph, HiddenEdges
from rulewright.learn.path_mixture.constant_rules import DOUBT, CountedRules, count_constant_rules
from rulewright.learn.path_mixture.paths import MAX_CELLS, Floats, count_paths, find_paths
from rulewright.learn.path_mixture.weighing import Queries, RankingExamples, build_examples, fit_weights
from rulewright.logic import Path

if TYPE_CHECKING:
    from rulewright.learn.path_mixture.learner import PathMixture

_BINS = np.array([0.02, 0.05, 0.1, 0.2, 0.4, 0.7])
_FAMILIES = 3  # constants as answers whatever the end, as answers with an end, as the entity asked about
_LOWEST_WEIGHT = -20.0


@dataclass(frozen=True)
class Target:
    """The rules that answer one query, their weights, and how often each was right and spoke at all."""

    table: RuleTable
    weights: Floats
    support: Floats
    body: Floats
    seconds: float = 0.0
    """The time of one core it took to learn."""


class FeatureColumns:
    """Gives each path rule a column of its own, and rules with constants one for each family and confidence.

    A rule with a constant has few observations, so it gets no free weight: its value is ``−log(1 − confidence)``, times
    the weight of its column. While a query is learned, confidence is counted without the query's own fact.
    """

    def __init__(self, n_paths: int, constants: CountedRules, *, hide: bool) -> None:
        self.n_paths, self.constants, self.hide = n_paths, constants, hide

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.n_paths + _FAMILIES * (len(_BINS) + 1)

    def __call__(self, row: Ids, right: npt.NDArray[np.bool_], rule: Ids, truth: Floats) -> tuple[Ids, Floats]:
        """Return the column and the value of each firing."""
        column, value = rule.astype(np.int64), truth.copy()
        has_constant = np.flatnonzero(rule >= self.n_paths)
        if len(has_constant):
            constant_rule = rule[has_constant] - self.n_paths
            confidence = self.constants.confidence[constant_rule]
            if self.hide:
                own = self._has_own_fact(row[has_constant], right[has_constant], constant_rule)
                confidence = self.constants.confidence_without_own(constant_rule, own)
            column[has_constant], value[has_constant] = self.place_rules(constant_rule, confidence)
        return column, value

    def place_rules(self, constant_rule: Ids, confidence: Floats) -> tuple[Ids, Floats]:
        """Return the columns and values of rules with constants."""
        table = self.constants.table
        has_any_end = table.end[constant_rule] == ANY_ENTITY
        family = np.where(table.form[constant_rule] == RuleForm.ASKED, 2, np.where(has_any_end, 0, 1))
        column = self.n_paths + family * (len(_BINS) + 1) + np.searchsorted(_BINS, confidence)
        return column, -np.log1p(-np.minimum(confidence, 0.999))

    def _has_own_fact(self, row: Ids, right: npt.NDArray[np.bool_], constant_rule: Ids) -> npt.NDArray[np.bool_]:
        """Tell where the query's fact counts among a rule's successes: always or never for all its candidates,
        where the rule is about the entity asked about."""
        is_asked = self.constants.table.form[constant_rule] == RuleForm.ASKED
        key = row * max(len(self.constants.support), 1) + constant_rule
        hit = np.unique(key[right & is_asked])
        if len(hit) == 0:
            return right
        is_hit = hit[np.minimum(np.searchsorted(hit, key), len(hit) - 1)] == key
        return np.where(is_asked, is_hit, right)


def learn_target(
    mixture: PathMixture,
    graph: Graph,
    relation: int,
    valid: tuple[Ids, Ids],
    *,
    paths: Sequence[Path] | None = None,
) -> Target | None:
    """Learn to answer ``r(X, ?)`` from the graph's own facts, each hidden from itself; None where it has none.

    ``mixture`` has the parameters; ``relation`` is a step: r or its inverse. Paths are looked for on the graph where
    none are given.
    """
    before, after = graph.edges(relation)
    if len(before) == 0:
        return None
    random = np.random.default_rng([mixture.seed, relation])
    started = time.process_time()

    def draw(facts: tuple[Ids, Ids], count: int) -> tuple[Ids, Ids]:
        chosen = np.sort(random.permutation(len(facts[0]))[:count])
        return facts[0][chosen], facts[1][chosen]

    sample = HiddenEdges(relation, *draw((before, after), mixture.sample))
    if paths is None:
        table, first_weights = _find_path_rules(mixture, graph, sample)
    else:
        table, first_weights = _weigh_given_paths(mixture, graph, sample, paths)
    n_paths = len(table)
    counted = _find_constant_rules(mixture, graph, HiddenEdges(relation, *draw((before, after), 20 * mixture.queries)))
    evidence = Evidence(graph, table.join(counted.table))
    first_weights = np.concatenate([first_weights, -0.3 * np.log1p(-np.minimum(counted.confidence, 0.99))])

    def ask(facts: tuple[Ids, Ids], truth: tuple[Ids, Ids], *, hide: bool) -> RankingExamples:
        columns = FeatureColumns(n_paths, counted, hide=hide)
        is_large = mixture.candidates and graph.entities > 4 * mixture.candidates
        return build_examples(
            evidence,
            Queries.of(relation, *draw(facts, mixture.queries), truth),
            columns,
            columns.width,
            first_weights,
            hide=hide,
            max_candidates=mixture.candidates if is_large else None,
            block=max(1, min(1000, MAX_CELLS // graph.entities)),
        )

    train = ask((before, after), (before, after), hide=True)
    held_out = None
    if len(valid[0]) >= mixture.min_valid:
        every = [np.concatenate(pair) for pair in zip((before, after), valid, strict=True)]
        order = np.argsort(every[0], kind="stable")
        held_out = ask(valid, (every[0][order], every[1][order]), hide=False)
    weights, support, body = _fit_columns(mixture, train, held_out, table)
    columns = FeatureColumns(n_paths, counted, hide=False)
    column, value = columns.place_rules(np.arange(len(counted.support)), counted.confidence)
    rule_weights = np.concatenate([weights[:n_paths], weights[column] * value])
    keep = np.flatnonzero(np.abs(rule_weights) > 1e-6)
    return Target(
        evidence.table.select(keep),
        rule_weights[keep],
        np.concatenate([support[:n_paths], counted.support])[keep],
        np.concatenate([body[:n_paths], counted.body])[keep],
        time.process_time() - started,
    )


def _weigh_given_paths(
    mixture: PathMixture, graph: Graph, hidden: HiddenEdges, paths: Sequence[Path]
) -> tuple[RuleTable, Floats]:
    """Return ``X = Y`` and the given paths, and what each weighs before training."""
    usable = tuple(dict.fromkeys(path for path in paths if path not in ((), (hidden.step,))))
    confidence = count_paths(graph, hidden, usable).confidence
    weights = np.concatenate([np.zeros(1), -np.log1p(-np.minimum(confidence, 0.99))])
    return RuleTable.of_paths(hidden.step, ((), *usable), mixture.ways), weights


def _find_path_rules(mixture: PathMixture, graph: Graph, hidden: HiddenEdges) -> tuple[RuleTable, Floats]:
    """Return ``X = Y``, the best paths and all single relations, and what each weighs before training."""
    best = find_paths(
        graph, hidden, max_length=mixture.max_length, max_edges=mixture.max_edges, seed=mixture.seed
    ).select_best(mixture.max_paths, min_support=mixture.min_support, min_confidence=mixture.min_confidence)
    known = {(), (hidden.step,), *best.paths}
    single = [(int(step),) for step in np.unique(graph.steps) if (int(step),) not in known]
    weights = np.zeros(1 + len(best.paths) + len(single))
    weights[1 : 1 + len(best.paths)] = -np.log1p(-np.minimum(best.confidence, 0.99))
    return RuleTable.of_paths(hidden.step, ((), *best.paths, *single), mixture.ways), weights


def _find_constant_rules(mixture: PathMixture, graph: Graph, hidden: HiddenEdges) -> CountedRules:
    if mixture.constants == 0:
        nothing = np.zeros(0)
        return CountedRules(RuleTable.of_paths(hidden.step, ()), nothing, nothing, nothing)
    counted = count_constant_rules(graph, hidden, max_length=mixture.constants, seed=mixture.seed)
    order = np.argsort(-counted.support * counted.confidence, kind="stable")
    return counted.select(np.sort(order[: mixture.max_constants]))


def _fit_columns(
    mixture: PathMixture, train: RankingExamples, held_out: RankingExamples | None, table: RuleTable
) -> tuple[Floats, Floats, Floats]:
    """Return the weight of each column, how often it spoke for an answer, and how often at all."""
    n_paths, width = len(table), train.features.shape[1]
    if train.features.shape[0] == 0:  # no rule ever speaks
        return np.zeros(width), np.zeros(width), np.zeros(width)
    fired = train.features.astype(bool).astype(np.float64)
    support = np.asarray(fired[train.positive[train.positive >= 0]].sum(axis=0)).ravel()
    body = np.asarray(fired.sum(axis=0)).ravel()
    start = np.zeros(width)
    start[1:n_paths] = -mixture.prior * np.log1p(-support / (body + DOUBT))[1:n_paths]
    lower, upper = np.zeros(width), np.full(width, np.inf)
    lower[:n_paths] = [_LOWEST_WEIGHT if 0 < mixture.negated >= len(path) else 0.0 for path in table.paths]
    upper[0] = 0.0  # that X = Y may only speak against
    scale = np.maximum(np.asarray(train.features.max(axis=0).todense()).ravel(), 1.0)
    weights = fit_weights(
        train.scale_columns(1 / scale),
        start,
        lower=lower,
        upper=upper,
        loss=mixture.loss,
        l1=mixture.l1,
        l2=mixture.l2,
        iterations=mixture.iterations,
        valid=None if held_out is None else held_out.scale_columns(1 / scale),
    )
    return weights / scale, support, body
