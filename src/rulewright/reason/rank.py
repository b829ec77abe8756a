"""Answering questions about a graph: every entity scored by the rules that speak for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase
from rulewright.engine.walks import Graph, Ids, check_relation
from rulewright.errors import DataError
from rulewright.logic import RuleSet
from rulewright.reason.evidence import Evidence, RuleTable

Scores = npt.NDArray[np.float64]
Aggregation = Literal["weight", "noisy-or", "max"]


class RuleRanker:
    """Scores candidates for ``r(h, ?)`` and ``r(?, t)`` by sparse products, a block of questions at a time.

    A table of rules with weights answers each question, numbered ``2r`` or ``2r + 1``; a candidate's score is the
    sum of the weights of the rules that speak for it. Nothing larger than a block of questions × entities is held.

    >>> from rulewright.logic import parse_rules
    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob"), ("bob", "parent_of", "cid"), ("eve", "g", "dan")])
    >>> ranker = RuleRanker.of(parse_rules("0.9 :: g(X, Z) :- parent_of(X, Y), parent_of(Y, Z)."), kb)
    >>> ranker.answers("g", "ann", 1), ranker.answers("g", "cid", 1, inverse=True)
    ([('cid', 0.9)], [('ann', 0.9)])
    """

    def __init__(
        self,
        kb: KnowledgeBase,
        tables: Mapping[int, tuple[RuleTable, Scores]],
        *,
        aggregation: Aggregation = "weight",
        memory: int = 2**22,
    ) -> None:
        self.kb, self.tables, self.aggregation, self.memory = kb, dict(tables), aggregation, memory
        self.graph = Graph.of(kb)
        self._latest: tuple[int, Evidence] | None = None

    @classmethod
    def of(cls, rules: RuleSet, kb: KnowledgeBase, *, aggregation: Aggregation = "noisy-or") -> RuleRanker:
        """Rank by rules: their confidences combined by ``1 − Π(1 − c)`` or the highest, or the sum of ``weight``s."""
        from rulewright.reason.rank_rules import tables_of

        if aggregation not in ("weight", "noisy-or", "max"):
            raise DataError(f"aggregation must be 'weight', 'noisy-or' or 'max', got {aggregation!r}")
        return cls(kb, tables_of(rules, kb, weighted=aggregation == "weight"), aggregation=aggregation)

    def scores(self, relation: str, entities: Ids, *, inverse: bool = False) -> Scores:
        """Return a row for each entity: how well every entity answers ``relation(h, ?)``, or ``relation(?, h)``."""
        number = 2 * check_relation(self.kb, relation) + inverse
        asked = np.asarray(entities, dtype=np.int64)
        found = np.zeros((len(asked), self.graph.entities))
        if number not in self.tables:
            return found
        table, weights = self.tables[number]
        evidence = self._evidence(number, table)
        step = max(1, self.memory // max(1, self.graph.entities))
        for low in range(0, len(asked), step):
            rows = slice(low, low + step)
            if self.aggregation == "max":
                found[rows] = self._highest(evidence, asked[rows], weights)
            elif self.aggregation == "noisy-or":
                found[rows] = -np.expm1(-evidence.scores(asked[rows], -np.log1p(-np.minimum(weights, 1 - 1e-12))))
            else:
                found[rows] = evidence.scores(asked[rows], weights)
        return found

    def _evidence(self, number: int, table: RuleTable) -> Evidence:
        if self._latest is None or self._latest[0] != number:
            self._latest = (number, Evidence(self.graph, table))
        return self._latest[1]

    def _highest(self, evidence: Evidence, entities: Ids, weights: Scores) -> Scores:
        row, candidate, rule, _ = evidence.firings(entities)
        found = np.zeros((len(entities), self.graph.entities))
        np.maximum.at(found, (row, candidate), weights[rule])
        return found

    def answers(self, relation: str, entity: str, count: int = 10, *, inverse: bool = False) -> list[tuple[str, float]]:
        """Return the best answers to ``relation(entity, ?)``, or ``relation(?, entity)``, but those already known."""
        near, far = (1, 0) if inverse else (0, 1)
        check_relation(self.kb, relation)
        domains = [self.kb.domains[kind] for kind in self.kb.predicate(relation).types]
        asked = domains[near].id_of(entity)
        scores = self.scores(relation, np.array([asked]), inverse=inverse)[0]
        columns = self.kb.columns(relation)
        scores[columns[far][columns[near] == asked]] = 0.0
        place = domains[far]
        mine = scores[place.start : place.start + len(place)]
        best = np.argsort(-mine, kind="stable")[:count]
        return [(str(place.labels[each]), float(round(mine[each], 12))) for each in best if mine[each] > 0]
