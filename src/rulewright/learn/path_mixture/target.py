"""One query, ``r(X, ?)``, learned: which rules answer it, and how much each weighs by a convex ranking loss."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
from scipy import optimize, sparse

from rulewright.data.index import Ids, match_sorted, range_starts
from rulewright.engine.walks import ANY_ENTITY, Evidence, Floats, Graph, HiddenEdges, RuleForm, RuleTable
from rulewright.learn.path_mixture.paths import (
    DOUBT,
    MAX_CELLS,
    CountedRules,
    count_constant_rules,
    count_paths,
    find_paths,
)
from rulewright.learn.path_mixture.questions import FactSampler
from rulewright.logic import Path

if TYPE_CHECKING:
    from rulewright.learn.path_mixture.learner import PathMixture

Loss = Literal["softmax", "logistic", "margin"]

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


def learn_target(
    mixture: PathMixture, sampler: FactSampler, relation: int, valid: Graph | None, given: Sequence[Path] | None = None
) -> Target | None:
    """Learn to answer ``r(X, ?)`` from the graph's own facts, each hidden from itself; None where it has none.

    ``mixture`` has the parameters, and ``sampler`` the graph and which of its facts are asked about; ``relation`` is a
    step: r or its inverse. Paths are looked for on the graph where none are given.
    """
    graph = sampler.graph
    facts = graph.edges(relation)
    if len(facts[0]) == 0:
        return None
    random = np.random.default_rng([mixture.seed, relation])
    started = time.process_time()

    def draw(columns: tuple[Ids, Ids], count: int) -> tuple[Ids, Ids]:
        chosen = np.sort(random.permutation(len(columns[0]))[:count])
        return columns[0][chosen], columns[1][chosen]

    sample = sampler.draw(facts, mixture.sample, random)
    table, first_weights = _find_path_rules(mixture, graph, HiddenEdges(relation, *sample), given)
    counted = count_constant_rules(
        graph,
        HiddenEdges(relation, *draw(facts, 20 * mixture.queries)),
        max_length=mixture.constants,
        max_rules=mixture.max_constants,
        seed=mixture.seed,
    )
    evidence = Evidence(graph, table.join(counted.table))
    first_weights = np.concatenate([first_weights, -0.3 * np.log1p(-np.minimum(counted.confidence, 0.99))])

    def ask(facts: tuple[Ids, Ids], truth: tuple[Ids, Ids], *, hide: bool) -> RankingExamples:
        is_large = mixture.candidates and graph.entities > 4 * mixture.candidates
        return build_examples(
            evidence,
            counted,
            facts,
            truth,
            first_weights,
            hide=hide,
            max_candidates=mixture.candidates if is_large else None,
            block=max(1, min(1000, MAX_CELLS // graph.entities)),
        )

    train, held_out = ask(sampler.draw(facts, mixture.queries, random), facts, hide=True), None
    if valid is not None and len(valid.edges(relation)[0]) >= mixture.min_valid:
        every = [np.concatenate(pair) for pair in zip(facts, valid.edges(relation), strict=True)]
        order = np.argsort(every[0], kind="stable")
        asked = draw(valid.edges(relation), mixture.queries)
        held_out = ask(asked, (every[0][order], every[1][order]), hide=False)
    weights, support, body = _fit_columns(mixture, train, held_out, table.paths)
    n_paths = len(table.paths)
    column, value = _place_constants(counted, np.arange(len(counted.support)), counted.confidence, n_paths)
    rule_weights = np.concatenate([weights[:n_paths], weights[column] * value])
    keep = np.flatnonzero(np.abs(rule_weights) > 1e-6)
    return Target(
        evidence.table.select(keep),
        rule_weights[keep],
        np.concatenate([support[:n_paths], counted.support])[keep],
        np.concatenate([body[:n_paths], counted.body])[keep],
        time.process_time() - started,
    )


def _find_path_rules(
    mixture: PathMixture, graph: Graph, hidden: HiddenEdges, given: Sequence[Path] | None
) -> tuple[RuleTable, Floats]:
    """Return ``X = Y``, the best paths, given or found, and all others of one relation, with first weights.

    Of given paths no others are returned.
    """
    own = ((), (hidden.step,))
    if given is not None:
        found = count_paths(graph, hidden, tuple(dict.fromkeys(path for path in given if path not in own)))
        single = [path for path in found.paths if len(path) == 1]
    else:
        found = find_paths(graph, hidden, max_length=mixture.max_length, max_edges=mixture.max_edges, seed=mixture.seed)
        single = [(step,) for step in np.unique(graph.steps).tolist()]
    fit = np.flatnonzero((found.support >= mixture.min_support) & (found.confidence >= mixture.min_confidence))
    strength = (found.support * found.confidence)[fit]
    best = fit[np.argsort(-strength, kind="stable")][: mixture.max_paths]
    paths = tuple(found.paths[row] for row in best)
    known = {*own, *paths}
    single = [path for path in single if path not in known]
    weights = np.zeros(1 + len(paths) + len(single))
    weights[1 : 1 + len(paths)] = -np.log1p(-np.minimum(found.confidence[best], 0.99))
    return RuleTable.of_paths(hidden.step, ((), *paths, *single), mixture.ways), weights


@dataclass(frozen=True)
class RankingExamples:
    """Candidates, query by query: ``features`` (candidate × column) says which rules speak for each.

    ``start`` is where each query's candidates begin (one more at the end), ``positive`` the row of its right answer
    (−1 where no rule speaks for it) and ``silent`` how many further candidates no rule speaks for.
    """

    features: sparse.csr_array
    start: Ids
    positive: Ids
    silent: Floats

    @cached_property
    def query(self) -> Ids:
        """The query of each candidate."""
        return np.repeat(np.arange(len(self.positive)), np.diff(self.start))


def build_examples(
    evidence: Evidence,
    counted: CountedRules,
    facts: tuple[Ids, Ids],
    truth: tuple[Ids, Ids],
    first_weights: Floats,
    *,
    hide: bool,
    max_candidates: int | None = None,
    block: int = 64,
) -> RankingExamples:
    """Pose queries about facts, given as what is asked about and the answer; ``hide`` hides its fact from each.

    The rules are paths, then those that are ``counted``. Right answers beside the one asked for, by all true facts
    ``truth``, sorted, are left out. Where ``max_candidates`` is given, a query keeps its answer and so many other
    candidates, those that score highest by ``first_weights``; the others then count neither as candidates nor as
    silent ones.
    """
    (entity, answer), entities, count = facts, evidence.graph.entities, len(facts[0])
    n_paths = len(first_weights) - len(counted.support)
    width = n_paths + _FAMILIES * (len(_BINS) + 1)
    other_row, known = match_sorted(entity, truth[0])
    others = truth[1][known]
    is_other = others != answer[other_row]
    other_row, others = other_row[is_other], others[is_other]
    weighty = np.flatnonzero(first_weights)
    guide = None if max_candidates is None else Evidence(evidence.graph, evidence.table.select(weighty))
    tables, keys, spoken_for = [], [], np.zeros(count)
    for low in range(0, count, block):
        rows = slice(low, min(low + block, count))
        asked, answers = entity[rows], answer[rows]
        hidden = HiddenEdges(evidence.table.step, asked, answers) if hide else None
        wanted = np.ones((len(asked), entities), dtype=bool)
        in_block = (other_row >= rows.start) & (other_row < rows.stop)
        left_out = other_row[in_block] - low, others[in_block]
        if guide is not None and max_candidates is not None:
            scores = guide.scores(asked, first_weights[weighty], hidden)
            scores[left_out] = 0.0
            spoken_for[rows] = (scores > 0).sum(axis=1)
            wanted = find_highest(scores, max_candidates)
        wanted[left_out] = False
        wanted[np.arange(len(asked)), answers] = True
        row, candidate, rule, truths = evidence.firings(asked, hidden, wanted=wanted)
        column, value = _place_firings(counted, n_paths, row, candidate == answers[row], rule, truths, hide=hide)
        key = row * entities + candidate
        is_present = np.zeros(len(asked) * entities, dtype=bool)
        is_present[key] = True
        if guide is None:
            spoken_for[rows] = is_present.reshape(-1, entities).sum(axis=1)
        table_row, present = np.cumsum(is_present) - 1, np.flatnonzero(is_present)
        table = sparse.csr_array((value, (table_row[key], column)), shape=(len(present), width))
        table.sum_duplicates()
        tables.append(table)
        keys.append(present + low * entities)
    every_key = np.concatenate(keys)
    answer_key = np.arange(count) * entities + answer
    position = np.minimum(np.searchsorted(every_key, answer_key), max(len(every_key) - 1, 0))
    is_answered = every_key[position] == answer_key if len(every_key) else np.zeros(count, dtype=bool)
    return RankingExamples(
        sparse.csr_array(sparse.vstack(tables)),
        np.searchsorted(every_key // entities, np.arange(count + 1)),
        np.where(is_answered, position, -1),
        np.maximum(entities - np.bincount(other_row, minlength=count) - spoken_for, 0),
    )


def _place_firings(
    counted: CountedRules,
    n_paths: int,
    row: Ids,
    is_answer: npt.NDArray[np.bool_],
    rule: Ids,
    truth: Floats,
    *,
    hide: bool,
) -> tuple[Ids, Floats]:
    """Return the column and the value of each firing; each path rule has a column of its own.

    Where ``hide``, the confidence of rules with constants is counted without the query's own fact: as it would be, or 0
    where the rule would have too little support. For rules about the entity asked about, that fact counts for all
    candidates of the query if it is among the rule's successes.
    """
    column, value = rule.copy(), truth.copy()
    firing = np.flatnonzero(rule >= n_paths)
    if len(firing) == 0:
        return column, value
    chosen = rule[firing] - n_paths
    confidence = counted.confidence[chosen]
    if hide:
        form, own = counted.table.form[chosen], is_answer[firing]
        key = row[firing] * len(counted.support) + chosen
        own[match_sorted(key, np.unique(key[own & (form == RuleForm.ASKED)]))[0]] = True
        support, body = counted.support[chosen] - own, counted.body[chosen] - (form == RuleForm.ANSWER)
        support = np.where(support >= counted.min_support[chosen], support, 0.0)
        confidence = support / (np.maximum(body, 0.0) + DOUBT)
    column[firing], value[firing] = _place_constants(counted, chosen, confidence, n_paths)
    return column, value


def _place_constants(counted: CountedRules, chosen: Ids, confidence: Floats, n_paths: int) -> tuple[Ids, Floats]:
    """Return the columns and values of rules with constants: those of one family and a like confidence share a column.

    Such a rule has few observations, so it gets no free weight: its value is ``−log(1 − confidence)``, times the weight
    of its column.
    """
    has_any_end = counted.table.end[chosen] == ANY_ENTITY
    family = np.where(counted.table.form[chosen] == RuleForm.ASKED, 2, np.where(has_any_end, 0, 1))
    column = n_paths + family * (len(_BINS) + 1) + np.searchsorted(_BINS, confidence)
    return column, -np.log1p(-np.minimum(confidence, 0.999))


def find_highest(scores: Floats, count: int) -> npt.NDArray[np.bool_]:
    """Tell which candidates are among the ``count`` highest of their query, and score above nothing."""
    is_high: npt.NDArray[np.bool_] = scores > 0
    row, candidate = np.nonzero(is_high)
    value = scores[row, candidate]
    order = np.lexsort((-value, row))
    counts = np.bincount(row, minlength=len(scores))
    crowded = np.flatnonzero(counts > count)
    bound = np.zeros(len(scores))
    bound[crowded] = value[order[range_starts(counts)[crowded] + count - 1]]
    is_low = value < bound[row]
    is_high[row[is_low], candidate[is_low]] = False
    return is_high


def _softmax_loss(examples: RankingExamples, scores: Floats) -> tuple[float, Floats]:
    """``Σ_queries log(Σ_c exp s_c) − s_answer`` over all candidates; silent ones score 0."""
    count, start = len(examples.positive), examples.start[:-1]
    full = np.diff(examples.start) > 0
    top = np.zeros(count)
    top[full] = np.maximum(np.maximum.reduceat(scores, start[full]), 0.0)
    powers = np.exp(scores - top[examples.query])
    total = np.bincount(examples.query, powers, count) + examples.silent * np.exp(-top)
    answered = examples.positive >= 0
    own = np.where(answered, scores[examples.positive], 0.0) if len(scores) else np.zeros(count)
    slope = powers / total[examples.query]
    slope[examples.positive[answered]] -= 1.0
    return float((np.log(total) + top - own).sum()), slope


def _logistic_loss(examples: RankingExamples, scores: Floats) -> tuple[float, Floats]:
    """``Σ log(1 + exp(s_c − s_answer))`` over a query's candidates, each query weighing the same."""
    return _pair_loss(examples, scores, lambda gap: (np.logaddexp(0.0, gap), 1 / (1 + np.exp(-np.clip(gap, -50, 50)))))


def _margin_loss(examples: RankingExamples, scores: Floats) -> tuple[float, Floats]:
    """``Σ max(0, 1 − s_answer + s_c)`` over a query's candidates, each query weighing the same."""
    return _pair_loss(examples, scores, lambda gap: (np.maximum(0.0, 1.0 + gap), (gap > -1.0).astype(np.float64)))


def _pair_loss(
    examples: RankingExamples, scores: Floats, shape: Callable[[Floats], tuple[Floats, Floats]]
) -> tuple[float, Floats]:
    count = len(examples.positive)
    answered = examples.positive >= 0
    own = np.where(answered, scores[examples.positive], 0.0)
    others = np.maximum(np.diff(examples.start) - answered + examples.silent, 1.0)
    height, slope = shape(scores - own[examples.query])
    height[examples.positive[answered]] = slope[examples.positive[answered]] = 0.0
    silent_height, silent_slope = shape(-own)
    height, slope = height / others[examples.query], slope / others[examples.query]
    silent_share = examples.silent / others
    back = np.bincount(examples.query, slope, count) + silent_slope * silent_share
    slope[examples.positive[answered]] = -back[answered]
    return float(height.sum() + (silent_height * silent_share).sum()), slope


LOSSES: Mapping[str, Callable[[RankingExamples, Floats], tuple[float, Floats]]] = {
    "softmax": _softmax_loss,
    "logistic": _logistic_loss,
    "margin": _margin_loss,
}
"""Each returns a loss, summed over the queries, and how it changes with each candidate's score."""


def _fit_columns(
    mixture: PathMixture, train: RankingExamples, held_out: RankingExamples | None, paths: Sequence[Path]
) -> tuple[Floats, Floats, Floats]:
    """Return the weight of each column, how often it spoke for an answer, and how often at all."""
    n_paths, width = len(paths), train.features.shape[1]
    if train.features.shape[0] == 0:  # no rule ever speaks
        return np.zeros(width), np.zeros(width), np.zeros(width)
    fired = train.features.astype(bool).astype(np.float64)
    support = np.asarray(fired[train.positive[train.positive >= 0]].sum(axis=0)).ravel()
    body = np.asarray(fired.sum(axis=0)).ravel()
    start = np.zeros(width)
    start[1:n_paths] = -mixture.prior * np.log1p(-support / (body + DOUBT))[1:n_paths]
    lower, upper = np.zeros(width), np.full(width, np.inf)
    lower[:n_paths] = [_LOWEST_WEIGHT if 0 < mixture.negated >= len(path) else 0.0 for path in paths]
    upper[0] = 0.0  # that X = Y may only speak against
    scale = np.maximum(np.asarray(train.features.max(axis=0).todense()).ravel(), 1.0)
    for examples in (train, held_out):
        if examples is not None:
            examples.features.data *= (1 / scale)[examples.features.indices]
    weights = fit_weights(
        train,
        start,
        lower=lower,
        upper=upper,
        loss=mixture.loss,
        l1=mixture.l1,
        l2=mixture.l2,
        iterations=mixture.iterations,
        valid=held_out,
    )
    return weights / scale, support, body


def fit_weights(
    train: RankingExamples,
    start: Floats,
    *,
    lower: Floats,
    upper: Floats,
    loss: Loss = "softmax",
    l1: float = 0.0,
    l2: float = 0.0,
    iterations: int = 50,
    valid: RankingExamples | None = None,
    patience: int = 8,
) -> Floats:
    """Return the weights that make answers score above other candidates.

    The objective is convex, ``loss + l1 Σ|w| + l2 Σ(w − w_start)²``, each weight within its bounds. Training stops
    early where the loss on ``valid`` has not fallen for ``patience`` steps; the best weights are returned.
    """
    loss_of, by_column = LOSSES[loss], sparse.csr_array(train.features.T)
    sign = np.where(upper > 0, 1.0, -1.0)
    best, best_loss, waited = start, np.inf, 0
    if valid is not None:
        best_loss = loss_of(valid, valid.features @ start)[0] / len(valid.positive)

    def objective(weights: Floats) -> tuple[float, Floats]:
        height, slope = loss_of(train, train.features @ weights)
        apart = weights - start
        height += l1 * float((sign * weights).sum()) + l2 * float(apart @ apart)
        return height, by_column @ slope + l1 * sign + 2 * l2 * apart

    def watch(weights: Floats) -> None:
        nonlocal best, best_loss, waited
        assert valid is not None
        now = loss_of(valid, valid.features @ weights)[0] / len(valid.positive)
        waited += 1
        if now < best_loss - 1e-6:
            best, best_loss, waited = weights.copy(), now, 0
        if waited >= patience:
            raise StopIteration

    result = optimize.minimize(
        objective,
        np.clip(start, lower, upper),
        jac=True,
        method="L-BFGS-B",
        bounds=np.stack([lower, upper], axis=1),
        callback=None if valid is None else watch,
        options={"maxiter": iterations, "maxcor": 10},
    )
    final: Floats = result.x
    return final if valid is None else best
