"""Rules that name entities: ``r(X, c) ← p(X, d)`` and its kin, counted over the facts of a relation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rulewright.data.index import Ids
from rulewright.engine.evidence import ANY_ENTITY, RuleForm, RuleTable
from rulewright.engine.walks import Graph, HiddenEdges
from rulewright.learn.path_mixture.paths import Walkers, spread
from rulewright.logic import Path

Floats = npt.NDArray[np.float64]

DOUBT = 5.0
"""Added to a body's count, so that few observations give little confidence."""


@dataclass(frozen=True)
class CountedRules:
    """Rules with how often they answer a question rightly (``support``) and how often they speak at all (``body``)."""

    table: RuleTable
    support: Floats
    body: Floats
    least: Floats
    """The support without which the rule would not be here."""

    @property
    def confidence(self) -> Floats:
        """``support / (body + 5)``."""
        return self.support / (self.body + DOUBT)

    def kept(self, keep: npt.NDArray[np.bool_] | Ids) -> CountedRules:
        """Return some of the rules."""
        return CountedRules(self.table.select(keep), self.support[keep], self.body[keep], self.least[keep])

    def joined(self, other: CountedRules) -> CountedRules:
        """Return the rules of both."""
        return CountedRules(
            self.table.join(other.table),
            np.concatenate([self.support, other.support]),
            np.concatenate([self.body, other.body]),
            np.concatenate([self.least, other.least]),
        )

    def without_own(self, rule: Ids, own: npt.NDArray[np.bool_]) -> Floats:
        """Return the confidence of rules as it would be without the question's own fact, 0 where they would not be.

        ``own`` tells where that fact counts among the rule's successes.
        """
        answer = self.table.form[rule] == RuleForm.ANSWER
        support, body = self.support[rule] - own, self.body[rule] - answer
        found: Floats = np.where(support >= self.least[rule], support, 0.0) / (np.maximum(body, 0.0) + DOUBT)
        return found


def constant_rules(
    graph: Graph,
    hidden: HiddenEdges,
    *,
    steps: int = 1,
    min_support: int = 2,
    min_confidence: float = 0.02,
    gain: float = 1.25,
    max_edges: int | None = 300,
    seed: int = 0,
) -> CountedRules:
    """Count the rules with constants that answer questions about the facts of a relation, each hidden from itself.

    - ``r(X, c)``: how often ``c`` is the answer, whatever the question (an empty path).
    - ``r(X, c) ← P(X, Z)`` and ``r(X, c) ← P(X, d)`` for paths ``P`` of up to ``steps`` relations. Such a rule must be
      more confident than the one it specialises, by the factor ``gain``.
    - ``r(c, Y) ← p(Y, d)``: what the answers to questions about ``c`` have in common.
    """
    random = np.random.default_rng(seed)
    base = 2 * graph.relations
    answers = hidden.after
    found = _priors(graph, hidden)
    prior = np.bincount(answers, minlength=graph.entities) / max(len(answers), 1)
    ahead = spread(graph, hidden, hidden.before, steps, max_edges, random)
    for step in range(1, steps + 1):
        open_rules = _open(graph, hidden, ahead[step], step, base, min_support)
        better = open_rules.support / open_rules.body >= gain * prior[open_rules.table.constant]
        open_rules = open_rules.kept(better & (open_rules.confidence >= min_confidence))
        ended = _ended(graph, hidden, ahead[step], step, base, min_support, min_confidence, gain, prior)
        found = found.joined(open_rules).joined(ended)
    return found.joined(_asked(graph, hidden, min_support, max_edges, min_confidence, random))


def _priors(graph: Graph, hidden: HiddenEdges) -> CountedRules:
    answers, counts = np.unique(hidden.after, return_counts=True)
    return _rules(
        hidden.step, [()], np.zeros(len(answers)), RuleForm.ANSWER, answers, ANY_ENTITY, counts, len(hidden.after), 1
    )


def _open(graph: Graph, hidden: HiddenEdges, walkers: Walkers, step: int, base: int, min_support: int) -> CountedRules:
    """``r(X, c) ← P(X, Z)``."""
    pair = np.unique(walkers.fact * base**step + walkers.code)
    fact, code = pair // base**step, pair % base**step
    codes, place, body = np.unique(code, return_inverse=True, return_counts=True)
    key, support = np.unique(place * graph.entities + hidden.after[fact], return_counts=True)
    key, support = key[support >= min_support], support[support >= min_support]
    path, answer = key // graph.entities, key % graph.entities
    paths = [_steps(int(each), step, base) for each in codes]
    return _rules(hidden.step, paths, path, RuleForm.ANSWER, answer, ANY_ENTITY, support, body[path], min_support)


def _ended(
    graph: Graph,
    hidden: HiddenEdges,
    walkers: Walkers,
    step: int,
    base: int,
    min_support: int,
    min_confidence: float,
    gain: float,
    prior: Floats,
) -> CountedRules:
    """``r(X, c) ← P(X, d)``."""
    feature, place, body = np.unique(
        walkers.code * graph.entities + walkers.place, return_inverse=True, return_counts=True
    )
    enough = np.flatnonzero(body[place] >= min_support)
    key = place[enough] * graph.entities + hidden.after[walkers.fact[enough]]
    key, support = np.unique(key, return_counts=True)
    number, answer = key // graph.entities, key % graph.entities
    share = support / body[number]
    fit = (support >= min_support) & (support / (body[number] + DOUBT) >= min_confidence)
    fit &= share >= gain * prior[answer]
    number, answer, support = number[fit], answer[fit], support[fit]
    code, end = feature[number] // graph.entities, feature[number] % graph.entities
    trivial = (code == hidden.step) & (end == answer) if step == 1 else np.zeros(len(code), dtype=bool)
    number, answer, support, code, end = (each[~trivial] for each in (number, answer, support, code, end))
    codes, path = np.unique(code, return_inverse=True)
    paths = [_steps(int(each), step, base) for each in codes]
    return _rules(hidden.step, paths, path, RuleForm.ANSWER, answer, end, support, body[number], min_support)


def _asked(
    graph: Graph,
    hidden: HiddenEdges,
    min_support: int,
    max_edges: int | None,
    min_confidence: float,
    random: np.random.Generator,
) -> CountedRules:
    """``r(c, Y) ← p(Y, d)``."""
    _, place, often = np.unique(hidden.before, return_inverse=True, return_counts=True)
    rows = np.flatnonzero(often[place] >= min_support)
    part = HiddenEdges(hidden.step, hidden.before[rows], hidden.after[rows])
    near = spread(graph, part, part.after, 1, max_edges, random)[1]
    feature, number = np.unique(near.code * graph.entities + near.place, return_inverse=True)
    key, support = np.unique(number * graph.entities + part.before[near.fact], return_counts=True)
    number, constant = key // graph.entities, key % graph.entities
    code, end = feature[number] // graph.entities, feature[number] % graph.entities
    keep = support >= min_support
    code, end, constant, support = code[keep], end[keep], constant[keep], support[keep]
    body = np.zeros(len(code), dtype=np.int64)
    for relation in np.unique(code):
        degree = np.diff(graph.adjacency(int(relation) ^ 1).indptr)
        body[code == relation] = degree[end[code == relation]]
    keep = support / (body + DOUBT) >= min_confidence
    keep &= ~((code == hidden.step ^ 1) & (end == constant))
    codes, path = np.unique(code[keep], return_inverse=True)
    paths: list[Path] = [(int(each),) for each in codes]
    named = constant[keep], end[keep], support[keep], body[keep]
    return _rules(hidden.step, paths, path, RuleForm.ASKED, *named, min_support)


def _rules(
    relation: int,
    paths: list[Path],
    path: npt.ArrayLike,
    kind: int,
    constant: Ids,
    end: Ids | int,
    support: npt.ArrayLike,
    body: npt.ArrayLike,
    least: int,
) -> CountedRules:
    count = len(constant)
    table = RuleTable(
        relation,
        tuple(paths),
        np.asarray(path, dtype=np.int64),
        np.full(count, kind, dtype=np.int64),
        constant,
        np.broadcast_to(np.asarray(end, dtype=np.int64), count).copy(),
    )
    often, spoken = (np.broadcast_to(np.asarray(each, dtype=np.float64), count).copy() for each in (support, body))
    return CountedRules(table, often, spoken, np.full(count, float(least)))


def _steps(code: int, length: int, base: int) -> Path:
    return tuple(code // base**place % base for place in reversed(range(length)))
