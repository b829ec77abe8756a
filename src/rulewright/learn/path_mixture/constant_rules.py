"""Rules that name entities: ``r(X, c) ← p(X, d)`` and its kin, counted over the facts of a relation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rulewright.data.index import Ids
from rulewright.engine.evidence import ANY_ENTITY, RuleForm, RuleTable
from rulewright.engine.walks import Graph, HiddenEdges
from rulewright.learn.path_mixture.paths import Floats, Walkers, read_code, spread_walkers
from rulewright.logic import Path, count_steps, invert_step

DOUBT = 5.0
"""Added to a body's count, so that few observations give little confidence."""


@dataclass(frozen=True)
class CountedRules:
    """Rules with how often they answer a query rightly (``support``) and how often they speak at all (``body``).

    A rule is counted only where it has ``min_support``.
    """

    table: RuleTable
    support: Floats
    body: Floats
    min_support: Floats

    @property
    def confidence(self) -> Floats:
        """``support / (body + 5)``."""
        return self.support / (self.body + DOUBT)

    def select(self, keep: npt.NDArray[np.bool_] | Ids) -> CountedRules:
        """Return some of the rules."""
        return CountedRules(self.table.select(keep), self.support[keep], self.body[keep], self.min_support[keep])

    def join(self, other: CountedRules) -> CountedRules:
        """Return the rules of both."""
        return CountedRules(
            self.table.join(other.table),
            np.concatenate([self.support, other.support]),
            np.concatenate([self.body, other.body]),
            np.concatenate([self.min_support, other.min_support]),
        )

    def confidence_without_own(self, rule: Ids, own: npt.NDArray[np.bool_]) -> Floats:
        """Return the confidence of rules as it would be without the query's own fact, 0 where they would not be.

        ``own`` tells where that fact counts among the rule's successes.
        """
        is_answer = self.table.form[rule] == RuleForm.ANSWER
        support, body = self.support[rule] - own, self.body[rule] - is_answer
        confidence: Floats = np.where(support >= self.min_support[rule], support, 0.0) / (np.maximum(body, 0.0) + DOUBT)
        return confidence


def count_constant_rules(
    graph: Graph,
    hidden: HiddenEdges,
    *,
    max_length: int = 1,
    min_support: int = 2,
    min_confidence: float = 0.02,
    gain: float = 1.25,
    max_edges: int | None = 300,
    seed: int = 0,
) -> CountedRules:
    """Count the rules with constants that answer queries about the facts of a relation, each hidden from itself.

    - ``r(X, c)``: how often ``c`` is the answer, whatever the query (an empty path).
    - ``r(X, c) ← P(X, Z)`` and ``r(X, c) ← P(X, d)`` for paths ``P`` of up to ``max_length`` relations. Such a rule
      must be more confident than the one it specialises, by the factor ``gain``.
    - ``r(c, Y) ← p(Y, d)``: what the answers to queries about ``c`` have in common.
    """
    random = np.random.default_rng(seed)
    n_steps, entities, answers = count_steps(graph.relations), graph.entities, hidden.after
    distinct, counts = np.unique(answers, return_counts=True)
    rules = _make_rules(
        hidden.step, [()], np.zeros(len(distinct)), RuleForm.ANSWER, distinct, ANY_ENTITY, counts, len(answers), 1
    )
    prior = np.bincount(answers, minlength=entities) / max(len(answers), 1)
    ahead = spread_walkers(graph, hidden, hidden.before, max_length, max_edges, random)

    def count_open_ended(walkers: Walkers, length: int) -> CountedRules:
        """Count ``r(X, c) ← P(X, Z)``."""
        pair = np.unique(walkers.fact * n_steps**length + walkers.code)
        fact, code = pair // n_steps**length, pair % n_steps**length
        codes, code_index, body = np.unique(code, return_inverse=True, return_counts=True)
        key, support = np.unique(code_index * entities + answers[fact], return_counts=True)
        key, support = key[support >= min_support], support[support >= min_support]
        path, answer = key // entities, key % entities
        paths = [read_code(int(code), length, n_steps) for code in codes]
        counted = _make_rules(
            hidden.step, paths, path, RuleForm.ANSWER, answer, ANY_ENTITY, support, body[path], min_support
        )
        is_better = counted.support / counted.body >= gain * prior[counted.table.constant]
        return counted.select(is_better & (counted.confidence >= min_confidence))

    def count_ended(walkers: Walkers, length: int) -> CountedRules:
        """Count ``r(X, c) ← P(X, d)``."""
        features, feature_index, body = np.unique(
            walkers.code * entities + walkers.entity, return_inverse=True, return_counts=True
        )
        often = np.flatnonzero(body[feature_index] >= min_support)
        key, support = np.unique(feature_index[often] * entities + answers[walkers.fact[often]], return_counts=True)
        feature, answer = key // entities, key % entities
        keep = (support >= min_support) & (support / (body[feature] + DOUBT) >= min_confidence)
        keep &= support / body[feature] >= gain * prior[answer]
        code, end = features[feature] // entities, features[feature] % entities
        if length == 1:  # r(X, c) ← r(X, c)
            keep &= ~((code == hidden.step) & (end == answer))
        codes, path = np.unique(code[keep], return_inverse=True)
        paths = [read_code(int(code), length, n_steps) for code in codes]
        columns = answer[keep], end[keep], support[keep], body[feature[keep]]
        return _make_rules(hidden.step, paths, path, RuleForm.ANSWER, *columns, min_support)

    for length in range(1, max_length + 1):
        open_ended, ended = count_open_ended(ahead[length], length), count_ended(ahead[length], length)
        rules = rules.join(open_ended).join(ended)
    return rules.join(_count_asked(graph, hidden, min_support, max_edges, min_confidence, random))


def _count_asked(
    graph: Graph,
    hidden: HiddenEdges,
    min_support: int,
    max_edges: int | None,
    min_confidence: float,
    random: np.random.Generator,
) -> CountedRules:
    """Count ``r(c, Y) ← p(Y, d)``."""
    _, asked_index, counts = np.unique(hidden.before, return_inverse=True, return_counts=True)
    rows = np.flatnonzero(counts[asked_index] >= min_support)
    part = HiddenEdges(hidden.step, hidden.before[rows], hidden.after[rows])
    near = spread_walkers(graph, part, part.after, 1, max_edges, random)[1]
    features, feature_index = np.unique(near.code * graph.entities + near.entity, return_inverse=True)
    key, support = np.unique(feature_index * graph.entities + part.before[near.fact], return_counts=True)
    key, support = key[support >= min_support], support[support >= min_support]
    feature, constant = features[key // graph.entities], key % graph.entities
    step, end = feature // graph.entities, feature % graph.entities
    body = np.zeros(len(step), dtype=np.int64)
    for one in np.unique(step):
        body[step == one] = graph.degrees(invert_step(int(one)))[end[step == one]]
    keep = support / (body + DOUBT) >= min_confidence
    keep &= ~((step == invert_step(hidden.step)) & (end == constant))
    steps, path = np.unique(step[keep], return_inverse=True)
    paths: list[Path] = [(int(one),) for one in steps]
    columns = constant[keep], end[keep], support[keep], body[keep]
    return _make_rules(hidden.step, paths, path, RuleForm.ASKED, *columns, min_support)


def _make_rules(
    relation: int,
    paths: list[Path],
    path: npt.ArrayLike,
    form: RuleForm,
    constant: Ids,
    end: Ids | int,
    support: npt.ArrayLike,
    body: npt.ArrayLike,
    min_support: int,
) -> CountedRules:
    count = len(constant)
    table = RuleTable(
        relation,
        tuple(paths),
        np.asarray(path, dtype=np.int64),
        np.full(count, form, dtype=np.int64),
        constant,
        np.broadcast_to(np.asarray(end, dtype=np.int64), count).copy(),
    )
    supports, bodies = (
        np.broadcast_to(np.asarray(column, dtype=np.float64), count).copy() for column in (support, body)
    )
    return CountedRules(table, supports, bodies, np.full(count, float(min_support)))
