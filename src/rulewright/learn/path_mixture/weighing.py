"""Weights of rules from questions and their candidates: convex losses over a sparse table of which rule speaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import optimize, sparse

from rulewright.data.index import Ids, match_sorted
from rulewright.engine.evidence import Evidence
from rulewright.engine.walks import HiddenEdges
from rulewright.errors import DataError

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Loss = Literal["softmax", "logistic", "margin"]
LOSSES = ("softmax", "logistic", "margin")


@dataclass(frozen=True)
class Examples:
    """Candidates, question by question: ``features`` (candidate × rule) says which rules speak for each.

    ``start`` is where each question's candidates begin (one more at the end), ``positive`` the row of its right answer
    (−1 where no rule speaks for it) and ``silent`` how many further candidates no rule speaks for.
    """

    features: sparse.csr_array
    start: Numbers
    positive: Numbers
    silent: Floats

    def __len__(self) -> int:
        return len(self.positive)

    @cached_property
    def transposed(self) -> sparse.csr_array:
        """The features, rule by rule."""
        return sparse.csr_array(self.features.T)

    @cached_property
    def question(self) -> Numbers:
        """The question of each candidate."""
        return np.repeat(np.arange(len(self)), np.diff(self.start))

    def scaled(self, factors: Floats) -> Examples:
        """Return the same with every rule's column multiplied."""
        table = self.features
        values = table.data * factors[table.indices]
        scaled = sparse.csr_array((values, table.indices, table.indptr), shape=table.shape)
        return Examples(scaled, self.start, self.positive, self.silent)

    def scores(self, weights: Floats) -> Floats:
        """Return ``Σ w_P ψ_P`` of each candidate."""
        return np.asarray(self.features @ weights)

    def reciprocal_rank(self, weights: Floats) -> Floats:
        """Return the expected reciprocal rank of each question's answer."""
        from rulewright.evaluate.ranking import reciprocal_ranks

        scores = self.scores(weights)
        own = np.where(self.positive >= 0, scores[self.positive], 0.0) if len(scores) else np.zeros(len(self))
        beside = own[self.question]
        higher = np.bincount(self.question, scores > beside, len(self)) + self.silent * (own < 0)
        equal = np.bincount(self.question, scores == beside, len(self)) + self.silent * (own == 0)
        return reciprocal_ranks(higher, np.maximum(equal, 1))


def _softmax(examples: Examples, scores: Floats) -> tuple[float, Floats]:
    """``Σ_questions log(Σ_c exp s_c) − s_answer`` over all candidates; silent ones score 0."""
    count, start = len(examples), examples.start[:-1]
    full = np.diff(examples.start) > 0
    top = np.zeros(count)
    top[full] = np.maximum(np.maximum.reduceat(scores, start[full]), 0.0)
    powers = np.exp(scores - top[examples.question])
    total = np.bincount(examples.question, powers, count) + examples.silent * np.exp(-top)
    answered = examples.positive >= 0
    own = np.where(answered, scores[examples.positive], 0.0) if len(scores) else np.zeros(count)
    slope = powers / total[examples.question]
    slope[examples.positive[answered]] -= 1.0
    return float((np.log(total) + top - own).sum()), slope


def _logistic(examples: Examples, scores: Floats) -> tuple[float, Floats]:
    """``Σ log(1 + exp(s_c − s_answer))`` over a question's candidates, each question weighing the same."""
    return _pairwise(examples, scores, lambda gap: (np.logaddexp(0.0, gap), 1 / (1 + np.exp(-np.clip(gap, -50, 50)))))


def _margin(examples: Examples, scores: Floats) -> tuple[float, Floats]:
    """``Σ max(0, 1 − s_answer + s_c)`` over a question's candidates, each question weighing the same."""
    return _pairwise(examples, scores, lambda gap: (np.maximum(0.0, 1.0 + gap), (gap > -1.0).astype(np.float64)))


def _pairwise(
    examples: Examples, scores: Floats, shape: Callable[[Floats], tuple[Floats, Floats]]
) -> tuple[float, Floats]:
    count = len(examples)
    answered = examples.positive >= 0
    own = np.where(answered, scores[examples.positive], 0.0)
    many = np.maximum(np.diff(examples.start) - answered + examples.silent, 1.0)
    height, slope = shape(scores - own[examples.question])
    height[examples.positive[answered]] = slope[examples.positive[answered]] = 0.0
    quiet_height, quiet_slope = shape(-own)
    height, slope = height / many[examples.question], slope / many[examples.question]
    share = examples.silent / many
    back = np.bincount(examples.question, slope, count) + quiet_slope * share
    slope[examples.positive[answered]] = -back[answered]
    return float(height.sum() + (quiet_height * share).sum()), slope


_SHAPES = {"softmax": _softmax, "logistic": _logistic, "margin": _margin}


def loss_of(loss: Loss, examples: Examples, scores: Floats) -> tuple[float, Floats]:
    """Return a loss, summed over the questions, and how it changes with each candidate's score."""
    return _SHAPES[loss](examples, scores)


def fit_weights(
    train: Examples,
    start: Floats,
    *,
    lower: Floats,
    upper: Floats,
    loss: Loss = "softmax",
    l1: float = 0.0,
    l2: float = 0.0,
    iterations: int = 50,
    valid: Examples | None = None,
    patience: int = 8,
) -> tuple[Floats, float]:
    """Return the weights that make answers score above other candidates, and the mean loss on ``valid`` (or train).

    The objective is convex, ``loss + l1 Σ|w| + l2 Σ(w − w_start)²``, each weight within its bounds. Training stops
    early where the loss on ``valid`` has not fallen for ``patience`` steps; the best weights are returned.
    """
    if loss not in LOSSES:
        raise DataError(f"loss must be one of {', '.join(LOSSES)}, got {loss!r}")
    shape = _SHAPES[loss]
    sign = np.where(upper > 0, 1.0, -1.0)

    def objective(weights: Floats) -> tuple[float, Floats]:
        height, slope = shape(train, train.scores(weights))
        apart = weights - start
        height += l1 * float((sign * weights).sum()) + l2 * float(apart @ apart)
        return height, np.asarray(train.transposed @ slope) + l1 * sign + 2 * l2 * apart

    best, best_loss, waited = start, np.inf, 0
    if valid is not None and len(valid):
        best_loss = shape(valid, valid.scores(start))[0] / len(valid)

    def watch(weights: Floats) -> None:
        nonlocal best, best_loss, waited
        if valid is None or not len(valid):
            return
        now = shape(valid, valid.scores(weights))[0] / len(valid)
        waited += 1
        if now < best_loss - 1e-6:
            best, best_loss, waited = weights.copy(), now, 0
        if waited >= patience:
            raise StopIteration

    found = optimize.minimize(
        objective,
        np.clip(start, lower, upper),
        jac=True,
        method="L-BFGS-B",
        bounds=np.stack([lower, upper], axis=1),
        callback=watch,
        options={"maxiter": iterations, "maxcor": 10},
    )
    if valid is None or not len(valid):
        return found.x, float(found.fun) / max(len(train), 1)
    return best, float(best_loss)


Columns = Callable[[Ids, npt.NDArray[np.bool_], Ids, Floats], tuple[Ids, Floats]]
"""From question, whether the candidate is its answer, rule and truth of each firing: its column and value."""


@dataclass(frozen=True)
class Questions:
    """Questions ``r(entity, ?)`` with their answers and all answers that are known to be right."""

    relation: int
    entity: Ids
    answer: Ids
    known_row: Ids
    known: Ids

    @classmethod
    def of(cls, relation: int, entity: Ids, answer: Ids, truth: tuple[Ids, Ids]) -> Questions:
        """Ask about some facts, given all true facts of the relation, sorted by the entity asked about."""
        rows, place = match_sorted(entity, truth[0])
        return cls(relation, entity, answer, rows, truth[1][place])

    def __len__(self) -> int:
        return len(self.entity)

    def hidden(self) -> HiddenEdges:
        """Return the questions' own facts, to be hidden from them."""
        return HiddenEdges(self.relation, self.entity, self.answer)


def examples(
    evidence: Evidence,
    questions: Questions,
    columns: Columns,
    width: int,
    first: Floats,
    *,
    hide: bool,
    most: int | None = None,
    block: int = 64,
) -> Examples:
    """Build the table of ``width`` columns that ``columns`` makes of the rules.

    Right answers beside the one asked for are left out. Where ``most`` is given, a question keeps its answer and so
    many other candidates, those that score highest when rules weigh ``first``; the others then count neither as
    candidates nor as silent ones.
    """
    entities, parts, keys = evidence.graph.entities, [], []
    spoken = np.zeros(len(questions))
    weighty = np.flatnonzero(first)
    guide = Evidence(evidence.graph, evidence.table.select(weighty))
    other = questions.known != questions.answer[questions.known_row]
    other_row, others = questions.known_row[other], questions.known[other]
    for low in range(0, len(questions), block):
        rows = slice(low, min(low + block, len(questions)))
        asked = questions.entity[rows]
        hidden = questions.hidden().part(rows) if hide else None
        wanted = np.ones((len(asked), entities), dtype=bool)
        mine = (other_row >= rows.start) & (other_row < rows.stop)
        left_out = other_row[mine] - low, others[mine]
        if most is not None:
            score = guide.scores(asked, first[weighty], hidden)
            score[left_out] = 0.0
            spoken[rows] = (score > 0).sum(axis=1)
            wanted = _highest(score, most)
        wanted[left_out] = False
        wanted[np.arange(len(asked)), questions.answer[rows]] = True
        row, candidate, rule, truth = evidence.firings(asked, hidden, wanted=wanted)
        place, value = columns(row, candidate == questions.answer[rows][row], rule, truth)
        key = row * entities + candidate
        present = np.zeros(len(asked) * entities, dtype=bool)
        present[key] = True
        if most is None:
            spoken[rows] = present.reshape(-1, entities).sum(axis=1)
        number = np.cumsum(present) - 1
        found = np.flatnonzero(present)
        table = sparse.csr_array((value, (number[key], place)), shape=(len(found), width))
        table.sum_duplicates()
        parts.append(table)
        keys.append(found + low * entities)
    return _assembled(questions, entities, sparse.csr_array(sparse.vstack(parts)), np.concatenate(keys), spoken)


def _highest(score: Floats, most: int) -> npt.NDArray[np.bool_]:
    """Tell which candidates are among the ``most`` highest of their question, and score above nothing."""
    found: npt.NDArray[np.bool_] = score > 0
    row, place = np.nonzero(found)
    value = score[row, place]
    order = np.lexsort((-value, row))
    counts = np.bincount(row, minlength=len(score))
    crowded = np.flatnonzero(counts > most)
    bound = np.zeros(len(score))
    bound[crowded] = value[order[(np.cumsum(counts) - counts)[crowded] + most - 1]]
    low = value < bound[row]
    found[row[low], place[low]] = False
    return found


def _assembled(questions: Questions, entities: int, features: sparse.csr_array, keys: Ids, spoken: Floats) -> Examples:
    count = len(questions)
    question = keys // entities
    wanted = np.arange(count) * entities + questions.answer
    own = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    answered = keys[own] == wanted if len(keys) else np.zeros(count, dtype=bool)
    others = np.bincount(questions.known_row[questions.known != questions.answer[questions.known_row]], minlength=count)
    silent = np.maximum(entities - others - spoken, 0)
    return Examples(features, np.searchsorted(question, np.arange(count + 1)), np.where(answered, own, -1), silent)
