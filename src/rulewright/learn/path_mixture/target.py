"""One query, ``r(X, ?)``, learned: which rules answer it, and how much each weighs by a convex ranking loss."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import optimize, sparse

from rulewright.data.index import Ids, expand_ranges, match_sorted, range_bounds
from rulewright.engine.walks import ANY_ENTITY, LONE, Evidence, Floats, Graph, HiddenEdges, RuleForm, RuleTable
from rulewright.learn.path_mixture.losses import LOGISTIC, MARGIN, SOFTMAX, find_column_maxima, rank_loss
from rulewright.learn.path_mixture.paths import (
    DOUBT,
    CountedRules,
    count_constant_rules,
    count_paths,
    find_paths,
)
from rulewright.learn.path_mixture.questions import FactSampler
from rulewright.logic import Path, invert_step

if TYPE_CHECKING:
    from rulewright.learn.path_mixture.learner import PathMixture

Loss = Literal["softmax", "logistic", "margin"]

_BINS = np.array([0.02, 0.05, 0.1, 0.2, 0.4, 0.7])
_FAMILIES = 3  # constants as answers whatever the end, as answers with an end, as the entity asked about
_LOWEST_WEIGHT = -20.0
_HELD_EVERY = 5
_LEAST_HELD = 10
"""So many queries must be held out to say when to stop, where there are no facts of ``valid``."""
_PAIR_SCALES = (4.0, 1.5)
"""That two paths both speak has little weight unless much speaks for it: ``l2`` counts by the square of one of these,
as what is held out decides."""
_MOST_DOUBT = 0.95
_MOST_PAIRED = 400
_LEAST_SLOPE = 1e-4
_LEAST_CHANCE = 1.5


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

    sample = sampler.draw(relation, facts, mixture.sample, random)
    table, first_weights = _find_path_rules(mixture, graph, HiddenEdges(relation, *sample), given)
    if mixture.popularity:
        table = table.join(RuleTable.of_answer_edges(relation, invert_step(relation)))
        first_weights = np.append(first_weights, 0.0)
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
            max_drawn=mixture.drawn,
            seed=mixture.seed,
        )

    train, held_out = ask(sampler.draw(relation, facts, mixture.queries, random), facts, hide=True), None
    if valid is not None and len(valid.edges(relation)[0]) >= mixture.min_valid:
        every = [np.concatenate(pair) for pair in zip(facts, valid.edges(relation), strict=True)]
        order = np.argsort(every[0], kind="stable")
        asked = draw(valid.edges(relation), mixture.queries)
        held_out = ask(asked, (every[0][order], every[1][order]), hide=False)
    weights, support, body, pairs = _fit_columns(mixture, train, held_out, table)
    n_own, n_columns = len(table), len(weights) - len(pairs)
    column, value = _place_constants(counted, np.arange(len(counted.support)), counted.confidence, n_own)
    path_of = [table.paths[index] for index in table.path_index.tolist()]
    both = RuleTable.of_both(relation, [(path_of[first], path_of[second]) for first, second in pairs.tolist()])
    rule_weights = np.concatenate([weights[:n_own], weights[column] * value, weights[n_columns:]])
    keep = np.flatnonzero(np.abs(rule_weights) > 1e-6)
    return Target(
        evidence.table.join(both).select(keep),
        rule_weights[keep],
        np.concatenate([support[:n_own], counted.support, support[n_columns:]])[keep],
        np.concatenate([body[:n_own], counted.body, body[n_columns:]])[keep],
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
        fit = np.flatnonzero((found.support >= mixture.min_support) & (found.confidence >= mixture.min_confidence))
        strength = (found.support * found.confidence)[fit]
        best = fit[np.argsort(-strength, kind="stable")][: mixture.max_paths]
    else:
        found = find_paths(
            graph,
            hidden,
            max_length=mixture.max_length,
            max_edges=mixture.max_edges,
            min_support=mixture.min_support,
            min_confidence=mixture.min_confidence,
            max_paths=mixture.max_paths,
            seed=mixture.seed,
        )
        single = [(step,) for step in np.unique(graph.steps).tolist()]
        best = np.arange(len(found.paths))
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
    (−1 where no rule speaks for it), ``silent`` how many further candidates no rule speaks for, ``known`` how many
    right answers are known, and ``stands_for`` how many candidates each stands for, more than itself where it was drawn
    from many.
    """

    features: sparse.csr_array
    start: Ids
    positive: Ids
    silent: Floats
    known: Floats
    stands_for: Floats

    @cached_property
    def query(self) -> Ids:
        """The query of each candidate."""
        return np.repeat(np.arange(len(self.positive)), np.diff(self.start))

    def select(self, queries: Ids) -> RankingExamples:
        """Return some of the queries with their candidates."""
        sizes = np.diff(self.start)[queries]
        rows, start = expand_ranges(self.start[queries], sizes), range_bounds(sizes)
        positive = np.where(self.positive[queries] < 0, -1, self.positive[queries] - self.start[queries] + start[:-1])
        silent, known = self.silent[queries], self.known[queries]
        return RankingExamples(self.features[rows], start, positive, silent, known, self.stands_for[rows])

    def join_columns(self, pairs: Ids, scale: float) -> RankingExamples:
        """Return the candidates with further columns: ``1 / scale`` where both columns of a pair speak."""
        if len(pairs) == 0:
            return self
        columns, index = np.unique(pairs, return_inverse=True)
        speaks = sparse.csc_array(self.features)[:, columns]
        speaks.data = np.ones_like(speaks.data)
        first, second = index.reshape(pairs.shape).T
        both = speaks[:, first].multiply(speaks[:, second]) / scale
        return replace(self, features=sparse.csr_array(sparse.hstack([self.features, both], format="csr")))


def build_examples(
    evidence: Evidence,
    counted: CountedRules,
    facts: tuple[Ids, Ids],
    truth: tuple[Ids, Ids],
    first_weights: Floats,
    *,
    hide: bool,
    max_candidates: int | None = None,
    max_drawn: int = 0,
    seed: int = 0,
) -> RankingExamples:
    """Pose queries about facts, given as what is asked about and the answer; ``hide`` hides its fact from each.

    The rules are those that have a column each, then those that are ``counted``. Right answers beside the one asked
    for, by all true facts ``truth``, sorted, are left out. Where ``max_candidates`` is given, a query keeps its answer
    and so many other candidates, those that score highest by ``first_weights``, and about ``max_drawn`` of the rest,
    which stand for all of it.
    """
    (entity, answer), entities, count = facts, evidence.graph.entities, len(facts[0])
    n_own = len(first_weights) - len(counted.support)
    width = n_own + _FAMILIES * (len(_BINS) + 1)
    other_row, known = match_sorted(entity, truth[0])
    others = truth[1][known]
    is_other = others != answer[other_row]
    other_row, others = other_row[is_other], others[is_other]
    found = evidence.collect_examples(
        facts,
        first_weights,
        (other_row, others),
        hide=hide,
        max_candidates=max_candidates,
        max_drawn=max_drawn,
        seed=seed,
    )
    query = np.repeat(np.arange(count), np.diff(found.first_candidate))
    n_firings = np.diff(found.first_firing)
    is_answer = found.candidate == answer[query]
    firing_row = np.repeat(query, n_firings)
    column, value = _place_firings(
        counted,
        n_own,
        firing_row,
        np.repeat(is_answer, n_firings),
        found.rule.astype(np.int64),
        found.value,
        hide=hide,
    )
    first = found.first_firing.astype(np.int32)
    features = sparse.csr_array((value, column.astype(np.int32), first), shape=(len(query), width))
    if len(counted.support):  # rules with constants share columns
        features.sum_duplicates()
    positive = np.full(count, -1)
    positive[query[is_answer]] = np.flatnonzero(is_answer)
    n_others = np.bincount(other_row, minlength=count).astype(np.float64)
    silent = np.maximum(entities - n_others - found.spoken_for, 0)
    return RankingExamples(features, found.first_candidate, positive, silent, n_others + 1.0, found.stands_for)


def _place_firings(
    counted: CountedRules,
    n_own: int,
    row: Ids,
    is_answer: npt.NDArray[np.bool_],
    rule: Ids,
    truth: Floats,
    *,
    hide: bool,
) -> tuple[Ids, Floats]:
    """Return the column and the value of each firing; each of the first rules has a column of its own.

    Where ``hide``, the confidence of rules with constants is counted without the query's own fact: as it would be, or 0
    where the rule would have too little support. For rules about the entity asked about, that fact counts for all
    candidates of the query if it is among the rule's successes.
    """
    firing = np.flatnonzero(rule >= n_own)
    if len(firing) == 0:
        return rule, truth
    column, value = rule.copy(), truth.copy()
    chosen = rule[firing] - n_own
    confidence = counted.confidence[chosen]
    if hide:
        form, own = counted.table.form[chosen], is_answer[firing]
        key = row[firing] * len(counted.support) + chosen
        own[match_sorted(key, np.unique(key[own & (form == RuleForm.ASKED)]))[0]] = True
        support, body = counted.support[chosen] - own, counted.body[chosen] - (form == RuleForm.ANSWER)
        support = np.where(support >= counted.min_support[chosen], support, 0.0)
        confidence = support / (np.maximum(body, 0.0) + DOUBT)
    column[firing], value[firing] = _place_constants(counted, chosen, confidence, n_own)
    return column, value


def _place_constants(counted: CountedRules, chosen: Ids, confidence: Floats, n_own: int) -> tuple[Ids, Floats]:
    """Return the columns and values of rules with constants: those of one family and a like confidence share a column.

    Such a rule has few observations, so it gets no free weight: its value is ``−log(1 − confidence)``, times the weight
    of its column.
    """
    has_any_end = counted.table.end[chosen] == ANY_ENTITY
    family = np.where(counted.table.form[chosen] == RuleForm.ASKED, 2, np.where(has_any_end, 0, 1))
    column = n_own + family * (len(_BINS) + 1) + np.searchsorted(_BINS, confidence)
    return column, -np.log1p(-np.minimum(confidence, 0.999))


LOSSES: Mapping[str, int] = {"softmax": SOFTMAX, "logistic": LOGISTIC, "margin": MARGIN}
"""Summed over the queries; silent candidates score 0.

- ``softmax``: ``log(Σ_c exp s_c) − s_answer`` over all candidates;
- ``logistic``: the mean of ``log(1 + exp(s_c − s_answer))`` over all candidates but the answer;
- ``margin``: the mean of ``max(0, 1 − s_answer + s_c)``.
"""


def find_loss(
    loss: Loss, examples: RankingExamples, weights: Floats, *, with_slopes: bool = True
) -> tuple[float, Floats]:
    """Return the loss and how it changes with each weight."""
    slopes = np.zeros(len(weights) if with_slopes else 0)
    features = examples.features
    height = rank_loss(
        LOSSES[loss],
        np.asarray(examples.start, dtype=np.int64),
        np.asarray(features.indptr, dtype=np.int64),
        np.asarray(features.indices, dtype=np.int32),
        features.data,
        examples.stands_for,
        np.asarray(examples.positive, dtype=np.int64),
        np.asarray(examples.silent, dtype=np.float64),
        np.ascontiguousarray(weights),
        slopes,
    )
    return height, slopes


class FittedColumns(NamedTuple):
    """The weight of each column, how often it spoke for an answer and how often at all; the last are of ``pairs``.

    A pair holds the positions of two rules with a path each; its column says that both speak.
    """

    weights: Floats
    support: Floats
    body: Floats
    pairs: Ids


def _fit_columns(
    mixture: PathMixture, train: RankingExamples, held_out: RankingExamples | None, table: RuleTable
) -> FittedColumns:
    """Weigh the columns. The first are of the rules of the table, which have each a column of their own.

    Where nothing is held out, every fifth query of ``train`` says when to stop, and all are learned from for as many
    steps. Rules that name entities are kept only if the loss on what is held out is lower with them, and pairs are
    added only if it is lower on facts of ``valid``.
    """
    n_own, width = len(table), train.features.shape[1]
    no_pairs = np.zeros((0, 2), dtype=np.int64)
    if train.features.shape[0] == 0:  # no rule ever speaks
        return FittedColumns(np.zeros(width), np.zeros(width), np.zeros(width), no_pairs)
    support, body = _count_columns(train)
    start = np.zeros(width)
    start[1:n_own] = -mixture.prior * np.log1p(-support / (body + DOUBT))[1:n_own]
    lower, upper = np.zeros(width), np.full(width, np.inf)
    is_lone = np.isin(table.form, LONE)
    start[:n_own][is_lone] = 0.0
    lengths = np.array([len(path) for path in table.paths])[table.path_index]
    lower[:n_own][is_lone | ((mixture.negated > 0) & (lengths <= mixture.negated))] = _LOWEST_WEIGHT
    upper[0] = 0.0  # that X = Y may only speak against
    features = train.features
    scales = find_column_maxima(np.asarray(features.indices, dtype=np.int32), features.data, np.ones(width))
    for examples in (train, held_out):
        if examples is not None:
            examples.features.data *= (1 / scales)[examples.features.indices]
    questions = np.arange(len(train.positive))
    is_held = questions % _HELD_EVERY == _HELD_EVERY - 1
    split_off = held_out is None and is_held.sum() >= _LEAST_HELD
    seen = train.select(questions[~is_held]) if split_off else train
    watched = train.select(questions[is_held]) if split_off else held_out

    def fit(
        examples: RankingExamples, watched: RankingExamples | None, iterations: int = mixture.iterations
    ) -> FittedWeights:
        more = examples.features.shape[1] - width
        return fit_weights(
            examples,
            np.append(start, np.zeros(more)),
            lower=np.append(lower, np.full(more, -np.inf)),
            upper=np.append(upper, np.full(more, np.inf)),
            loss=mixture.loss,
            l1=mixture.l1,
            l2=mixture.l2,
            iterations=iterations,
            valid=watched,
        )

    pairs, pair_scale, fitted = no_pairs, 1.0, fit(seen, watched)
    if watched is not None and body[n_own:].any():  # rules that name entities must earn their place
        usual, upper[n_own:] = upper.copy(), 0.0
        without = fit(seen, watched)
        if fitted.loss < without.loss:
            upper = usual
        else:
            fitted = without
    if mixture.missing:
        train = doubt_candidates(train, fitted.weights, mixture.missing)
        seen = train.select(questions[~is_held]) if split_off else train
        fitted = fit(seen, watched)
    if mixture.conjunctions and held_out is not None:
        joining = np.flatnonzero((table.form == RuleForm.CLOSED) & (lengths > 0))
        tried = choose_pairs(train, fitted.weights, joining, mixture.conjunctions)
        for one_scale in _PAIR_SCALES if len(tried) else ():
            with_pairs = fit(train.join_columns(tried, one_scale), held_out.join_columns(tried, one_scale))
            if with_pairs.loss < fitted.loss:
                pairs, pair_scale, fitted = tried, one_scale, with_pairs
    whole = train.join_columns(pairs, pair_scale)
    if split_off:
        fitted = fit(whole, None, fitted.iterations) if fitted.iterations else fitted
    support, body = _count_columns(whole)
    return FittedColumns(fitted.weights / np.append(scales, np.full(len(pairs), pair_scale)), support, body, pairs)


def _count_columns(examples: RankingExamples) -> tuple[Floats, Floats]:
    """Return how often each column speaks for an answer, and how often at all."""
    features, width = examples.features, examples.features.shape[1]
    answers = features[examples.positive[examples.positive >= 0]]
    support = np.bincount(answers.indices, minlength=width).astype(np.float64)
    return support, np.bincount(features.indices, minlength=width).astype(np.float64)


def choose_pairs(examples: RankingExamples, weights: Floats, columns: Ids, count: int) -> Ids:
    """Return pairs of columns that would lower the loss most if it had a weight that both speak, as rows of two.

    The slope of the loss by such a weight is ``Σ g`` over the candidates for which both speak, ``g`` being its slope
    by the candidate's score; pairs are ordered by ``|Σ g| / √(1 + Σ g²)``, by which chance alone gives about 1. The
    `_MOST_PAIRED` columns that weigh most are looked at, none of weight 0, nor a pair never apart from one of its own.
    """
    features = sparse.csc_array(examples.features)
    spoken = np.diff(features.indptr)[columns]
    strength = np.abs(weights[columns]) * np.sqrt(spoken)
    columns = columns[np.argsort(-strength, kind="stable")[:_MOST_PAIRED]]
    columns = np.sort(columns[weights[columns] != 0])
    slopes = find_slopes(examples, weights)
    speaks = sparse.csr_array(features[:, columns])
    speaks.data = np.ones_like(speaks.data)
    telling = np.flatnonzero(np.abs(slopes) > _LEAST_SLOPE)
    speaks, slopes = speaks[telling], slopes[telling]
    slope, square, both = (
        (speaks.T @ (speaks * by[:, None])).toarray() for by in (slopes, slopes**2, np.ones(len(slopes)))
    )
    first, second = np.triu_indices(len(columns), 1)
    chance = (np.abs(slope) / np.sqrt(1 + square))[first, second]
    own, together = np.diag(both), both[first, second]
    chance[(together == own[first]) | (together == own[second])] = 0.0
    best = np.argsort(-chance, kind="stable")[:count]
    best = best[chance[best] > _LEAST_CHANCE]
    return np.stack([columns[first[best]], columns[second[best]]], axis=1)


def find_chances(
    examples: RankingExamples, weights: Floats, is_left_out: npt.NDArray[np.bool_] | None = None
) -> Floats:
    """Return ``exp s_c / Σ exp s`` of each candidate, over those of its query that are not left out; 0 for others."""
    scores, query = np.asarray(examples.features @ weights).ravel(), examples.query
    if is_left_out is not None:
        scores = np.where(is_left_out, -np.inf, scores)
    top = np.zeros(len(examples.positive))
    np.maximum.at(top, query, scores)
    each = np.exp(scores - top[query])
    mass = np.bincount(query, each * examples.stands_for, len(top)) + examples.silent * np.exp(-top)
    chances: Floats = each / np.maximum(mass, 1e-300)[query]
    return chances


def find_slopes(examples: RankingExamples, weights: Floats) -> Floats:
    """Return the slope of the ``softmax`` loss by the score of each candidate."""
    slopes = examples.stands_for * find_chances(examples, weights)
    slopes[examples.positive[examples.positive >= 0]] -= 1.0
    return slopes


def doubt_candidates(examples: RankingExamples, weights: Floats, missing: float) -> RankingExamples:
    """Return the examples with candidates that count for less, as they may be right answers that are not known.

    Where a share ``m`` of all facts is missing, ``k m / (1 − m)`` right answers are expected to be missing beside ``k``
    known ones. Candidate ``c`` is one with the chance ``p_c``, that number times ``exp s_c / Σ exp s`` over all that
    are not known to be right, at most `_MOST_DOUBT`, and counts ``1 − p_c``.
    """
    is_answer = np.zeros(len(examples.stands_for), dtype=bool)
    is_answer[examples.positive[examples.positive >= 0]] = True
    expected = (examples.known * missing / (1 - missing))[examples.query]
    chance = np.minimum(expected * find_chances(examples, weights, is_answer), _MOST_DOUBT)
    return replace(examples, stands_for=examples.stands_for * (1 - chance))


class FittedWeights(NamedTuple):
    """Weights, after how many iterations they were the best, and the loss of a query on what was held out."""

    weights: Floats
    iterations: int
    loss: float


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
) -> FittedWeights:
    """Find the weights that make answers score above other candidates.

    The objective is convex, ``loss + l1 Σ|w| + l2 Σ(w − w_start)²``, each weight within its bounds. Training stops
    early where the loss on ``valid`` has not fallen for ``patience`` steps; the best weights are returned.
    """
    sign = np.where(upper > 0, 1.0, -1.0)
    best, best_loss, best_at, done = start, np.inf, 0, 0
    if valid is not None:
        best_loss = find_loss(loss, valid, start, with_slopes=False)[0] / len(valid.positive)

    def objective(weights: Floats) -> tuple[float, Floats]:
        height, slopes = find_loss(loss, train, weights)
        apart = weights - start
        height += l1 * float((sign * weights).sum()) + l2 * float(apart @ apart)
        return height, slopes + l1 * sign + 2 * l2 * apart

    def watch(weights: Floats) -> None:
        nonlocal best, best_loss, best_at, done
        assert valid is not None
        now = find_loss(loss, valid, weights, with_slopes=False)[0] / len(valid.positive)
        done += 1
        if now < best_loss - 1e-6:
            best, best_loss, best_at = weights.copy(), now, done
        if done - best_at >= patience:
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
    if valid is None:
        return FittedWeights(result.x, int(result.nit), np.inf)
    return FittedWeights(best, best_at, best_loss)
