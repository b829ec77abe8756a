"""One question, ``r(X, ?)``, learned: which rules answer it, and how much each weighs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rulewright.engine.walks import Graph, Hidden, Ids
from rulewright.errors import DataError
from rulewright.learn.constant_rules import DOUBT, CountedRules, constant_rules
from rulewright.learn.path_examples import Questions, examples
from rulewright.learn.paths import LONGEST, find_paths
from rulewright.learn.ranking_loss import LOSSES, Loss, fit_weights
from rulewright.reason.evidence import ANY, ASKED, Evidence, RuleTable

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
    negated: int = 1
    questions: int = 500
    candidates: int | None = 300
    loss: Loss = "softmax"
    l1: float = 0.0
    l2: float = 1.0
    prior: float = 0.05
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

    def __call__(self, row: Ids, right: npt.NDArray[np.bool_], rule: Ids) -> tuple[Ids, Floats]:
        column, value = rule.astype(np.int64), np.ones(len(rule))
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
        family = np.where(table.kind[number] == ASKED, 2, np.where(table.end[number] == ANY, 0, 1))
        column = self.closed + family * (len(_BINS) + 1) + np.searchsorted(_BINS, confidence)
        return column, -np.log1p(-np.minimum(confidence, 0.999))

    def _own(self, row: Ids, right: npt.NDArray[np.bool_], number: Ids) -> npt.NDArray[np.bool_]:
        """Tell where the question's fact counts among a rule's successes: always or never for all its candidates,
        where the rule is about the entity asked about."""
        asked = self.constants.table.kind[number] == ASKED
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
) -> Target | None:
    """Learn to answer ``r(X, ?)`` from the graph's own facts, each hidden from itself; None where it has none."""
    before, after = graph.edges(relation)
    if len(before) == 0:
        return None
    random = np.random.default_rng([seed, relation])

    def some(count: int) -> Ids:
        return np.sort(random.permutation(len(before))[:count])

    chosen = some(options.sample)
    found = find_paths(
        graph,
        Hidden(relation, before[chosen], after[chosen]),
        max_length=options.max_length,
        max_edges=options.max_edges,
        seed=seed,
    ).best(options.max_paths, min_support=options.min_support, min_confidence=options.min_confidence)
    single = [(int(each),) for each in np.unique(graph.relation) if each != relation]
    known = {(), *found.paths}
    paths = ((), *found.paths, *(path for path in single if path not in known))
    table = RuleTable.of_paths(relation, paths)
    closed = len(table)
    chosen = some(20 * options.questions)
    counted = constant_rules(
        graph, Hidden(relation, before[chosen], after[chosen]), steps=max(options.constants, 1), seed=seed
    )
    order = np.argsort(-counted.support * counted.confidence, kind="stable")
    counted = counted.kept(np.sort(order[: options.max_constants if options.constants else 0]))
    evidence = Evidence(graph, table.joined(counted.table))
    width = _Columns.width(closed)
    first = np.concatenate(
        [
            np.zeros(1),
            -np.log1p(-np.minimum(found.confidence, 0.99)),
            np.zeros(len(paths) - 1 - len(found.paths)),
            -0.3 * np.log1p(-np.minimum(counted.confidence, 0.99)),
        ]
    )
    chosen = some(options.questions)
    most = options.candidates if options.candidates and graph.entities > 4 * options.candidates else None
    block = max(1, min(256, 2_000_000 // graph.entities))
    questions = Questions.of(relation, before[chosen], after[chosen], (before, after))
    training = examples(
        evidence, questions, _Columns(closed, counted, hide=True), width, first, hide=True, most=most, block=block
    )
    every = [np.concatenate(pair) for pair in zip((before, after), valid, strict=True)]
    order = np.argsort(every[0], kind="stable")
    watched = None
    if len(valid[0]) >= options.min_valid:
        few = np.sort(random.permutation(len(valid[0]))[: options.questions])
        watched = examples(
            evidence,
            Questions.of(relation, valid[0][few], valid[1][few], (every[0][order], every[1][order])),
            _Columns(closed, counted, hide=False),
            width,
            first,
            hide=False,
            most=most,
            block=block,
        )
    support = np.zeros(width)
    answered = training.positive[training.positive >= 0]
    support += np.asarray(training.features[answered].sum(axis=0)).ravel() if len(answered) else 0
    body = np.asarray(training.features.sum(axis=0)).ravel()
    start = -options.prior * np.log1p(-support / (body + DOUBT))
    lower, upper = np.zeros(width), np.full(width, np.inf)
    if options.negated:
        lower[:closed] = np.where([len(path) <= options.negated for path in paths], _LEAST, 0.0)
    start[0] = upper[0] = 0.0  # that X = Y may only speak against
    start[closed:] = 0.0
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
    weights = weights / scale
    column, value = _Columns(closed, counted, hide=False).place(np.arange(len(counted.support)), counted.confidence)
    everything = np.concatenate([weights[:closed], weights[column] * value])
    keep = np.flatnonzero(np.abs(everything) > 1e-6)
    return Target(
        evidence.table.kept(keep),
        everything[keep],
        np.concatenate([support[:closed], counted.support])[keep],
        np.concatenate([body[:closed], counted.body])[keep],
    )
