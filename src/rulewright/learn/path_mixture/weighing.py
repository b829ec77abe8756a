"""Weights of rules from queries and their candidates: convex losses over a sparse table of which rule speaks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import optimize, sparse

from rulewright.data.index import Ids, match_sorted, range_starts
from rulewright.engine.evidence import Evidence
from rulewright.engine.walks import HiddenEdges
from rulewright.learn.path_mixture.paths import Floats

Loss = Literal["softmax", "logistic", "margin"]


@dataclass(frozen=True)
class Queries:
    """Queries ``r(entity, ?)`` with their answers and all answers that are known to be right.

    ``known[i]`` answers the query in row ``known_row[i]``.
    """

    relation: int
    entity: Ids
    answer: Ids
    known_row: Ids
    known: Ids

    @classmethod
    def of(cls, relation: int, entity: Ids, answer: Ids, truth: tuple[Ids, Ids]) -> Queries:
        """Ask about some facts, given all true facts of the relation, sorted by the entity asked about."""
        rows, position = match_sorted(entity, truth[0])
        return cls(relation, entity, answer, rows, truth[1][position])

    def __len__(self) -> int:
        return len(self.entity)

    @cached_property
    def others(self) -> tuple[Ids, Ids]:
        """The rows and the entities of known answers beside the one that is looked for."""
        is_other = self.known != self.answer[self.known_row]
        return self.known_row[is_other], self.known[is_other]


@dataclass(frozen=True)
class RankingExamples:
    """Candidates, query by query: ``features`` (candidate × rule) says which rules speak for each.

    ``start`` is where each query's candidates begin (one more at the end), ``positive`` the row of its right answer
    (−1 where no rule speaks for it) and ``silent`` how many further candidates no rule speaks for.
    """

    features: sparse.csr_array
    start: Ids
    positive: Ids
    silent: Floats

    def __len__(self) -> int:
        return len(self.positive)

    @cached_property
    def transposed(self) -> sparse.csr_array:
        """The features, rule by rule."""
        return sparse.csr_array(self.features.T)

    @cached_property
    def query(self) -> Ids:
        """The query of each candidate."""
        return np.repeat(np.arange(len(self)), np.diff(self.start))

    def scale_columns(self, factors: Floats) -> RankingExamples:
        """Return the same with every rule's column multiplied."""
        table = self.features
        values = table.data * factors[table.indices]
        scaled = sparse.csr_array((values, table.indices, table.indptr), shape=table.shape)
        return RankingExamples(scaled, self.start, self.positive, self.silent)

    def scores(self, weights: Floats) -> Floats:
        """Return ``Σ w_P ψ_P`` of each candidate."""
        return np.asarray(self.features @ weights)


Columns = Callable[[Ids, npt.NDArray[np.bool_], Ids, Floats], tuple[Ids, Floats]]
"""From query, whether the candidate is its answer, rule and truth of each firing: its column and value."""


def build_examples(
    evidence: Evidence,
    queries: Queries,
    columns: Columns,
    width: int,
    first_weights: Floats,
    *,
    hide: bool,
    max_candidates: int | None = None,
    block: int = 64,
) -> RankingExamples:
    """Build the table of ``width`` columns that ``columns`` makes of the rules; ``hide`` hides each query's own fact.

    Right answers beside the one asked for are left out. Where ``max_candidates`` is given, a query keeps its answer and
    so many other candidates, those that score highest by ``first_weights``; the others then count neither as candidates
    nor as silent ones.
    """
    entities = evidence.graph.entities
    tables, keys = [], []
    spoken_for = np.zeros(len(queries))
    weighty = np.flatnonzero(first_weights)
    guide = Evidence(evidence.graph, evidence.table.select(weighty))
    other_row, others = queries.others
    own_facts = HiddenEdges(queries.relation, queries.entity, queries.answer)
    for low in range(0, len(queries), block):
        rows = slice(low, min(low + block, len(queries)))
        asked, answers = queries.entity[rows], queries.answer[rows]
        hidden = own_facts.part(rows) if hide else None
        wanted = np.ones((len(asked), entities), dtype=bool)
        in_block = (other_row >= rows.start) & (other_row < rows.stop)
        left_out = other_row[in_block] - low, others[in_block]
        if max_candidates is not None:
            scores = guide.scores(asked, first_weights[weighty], hidden)
            scores[left_out] = 0.0
            spoken_for[rows] = (scores > 0).sum(axis=1)
            wanted = find_highest(scores, max_candidates)
        wanted[left_out] = False
        wanted[np.arange(len(asked)), answers] = True
        row, candidate, rule, truth = evidence.firings(asked, hidden, wanted=wanted)
        column, value = columns(row, candidate == answers[row], rule, truth)
        key = row * entities + candidate
        is_present = np.zeros(len(asked) * entities, dtype=bool)
        is_present[key] = True
        if max_candidates is None:
            spoken_for[rows] = is_present.reshape(-1, entities).sum(axis=1)
        table_row = np.cumsum(is_present) - 1
        present = np.flatnonzero(is_present)
        table = sparse.csr_array((value, (table_row[key], column)), shape=(len(present), width))
        table.sum_duplicates()
        tables.append(table)
        keys.append(present + low * entities)
    every_key, count = np.concatenate(keys), len(queries)
    answer_key = np.arange(count) * entities + queries.answer
    position = np.minimum(np.searchsorted(every_key, answer_key), max(len(every_key) - 1, 0))
    is_answered = every_key[position] == answer_key if len(every_key) else np.zeros(count, dtype=bool)
    return RankingExamples(
        sparse.csr_array(sparse.vstack(tables)),
        np.searchsorted(every_key // entities, np.arange(count + 1)),
        np.where(is_answered, position, -1),
        np.maximum(entities - np.bincount(other_row, minlength=count) - spoken_for, 0),
    )


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
    count, start = len(examples), examples.start[:-1]
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
    count = len(examples)
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
    loss_of = LOSSES[loss]
    sign = np.where(upper > 0, 1.0, -1.0)

    def objective(weights: Floats) -> tuple[float, Floats]:
        height, slope = loss_of(train, train.scores(weights))
        apart = weights - start
        height += l1 * float((sign * weights).sum()) + l2 * float(apart @ apart)
        return height, np.asarray(train.transposed @ slope) + l1 * sign + 2 * l2 * apart

    best, best_loss, waited = start, np.inf, 0
    if valid is not None and len(valid):
        best_loss = loss_of(valid, valid.scores(start))[0] / len(valid)

    def watch(weights: Floats) -> None:
        nonlocal best, best_loss, waited
        if valid is None or not len(valid):
            return
        now = loss_of(valid, valid.scores(weights))[0] / len(valid)
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
        callback=watch,
        options={"maxiter": iterations, "maxcor": 10},
    )
    final: Floats = result.x
    return final if valid is None or not len(valid) else best
