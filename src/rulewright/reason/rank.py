"""Answering queries about a graph: every candidate scored by the rules that speak for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from rulewright.checks import OneOf, check_parameter
from rulewright.data import KnowledgeBase
from rulewright.data.index import Ids
from rulewright.engine.evidence import ANY_ENTITY, WAYS, Evidence, RuleForm, RuleTable, Ways
from rulewright.engine.walks import Graph, find_relation
from rulewright.errors import DataError
from rulewright.logic import (
    And,
    Atom,
    Chain,
    Comparison,
    Formula,
    Implies,
    Not,
    Path,
    Rule,
    RuleSet,
    Statement,
    Symbol,
    Template,
    encode_path,
    encode_step,
    mirror_path,
)

Scores = npt.NDArray[np.float64]
Aggregation = Literal["weight", "noisy-or", "max"]
AGGREGATION = OneOf("weight", "noisy-or", "max")


class RuleRanker:
    """Scores candidates for ``r(h, ?)`` and ``r(?, t)`` by sparse products, a block of queries at a time.

    A query is known by its step, which walks the relation from what is asked about to the answer. Its table of rules
    with weights answers it: a candidate's score is the sum of the weights of the rules that speak for it. Nothing
    larger than ``max_cells`` (queries × entities) is held.

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
        max_cells: int = 2**22,
    ) -> None:
        self.kb, self.tables, self.aggregation, self.max_cells = kb, dict(tables), aggregation, max_cells
        self.graph = Graph.of(kb)
        self._latest: tuple[int, Evidence] | None = None

    @classmethod
    def of(cls, rules: RuleSet, kb: KnowledgeBase, *, aggregation: Aggregation = "noisy-or") -> RuleRanker:
        """Rank by rules: their confidences combined by ``1 − Π(1 − c)`` or the highest, or the sum of ``weight``s."""
        check_parameter("aggregation", aggregation, AGGREGATION)
        rows = read_rows(rules, kb, weighted=aggregation == "weight")
        return cls(kb, {step: _write_table(step, part) for step, part in rows.items()}, aggregation=aggregation)

    def scores(self, relation: str, entities: Ids, *, inverse: bool = False) -> Scores:
        """Return a row for each entity: how well every entity answers ``relation(h, ?)``, or ``relation(?, h)``."""
        step = encode_step(find_relation(self.kb, relation), inverse)
        entities = np.asarray(entities, dtype=np.int64)
        scores = np.zeros((len(entities), self.graph.entities))
        if step not in self.tables:
            return scores
        table, weights = self.tables[step]
        if self._latest is None or self._latest[0] != step:
            self._latest = (step, Evidence(self.graph, table))
        evidence = self._latest[1]
        size = max(1, self.max_cells // max(1, self.graph.entities))
        for low in range(0, len(entities), size):
            rows = slice(low, low + size)
            if self.aggregation == "max":
                row, candidate, rule, _ = evidence.firings(entities[rows])
                np.maximum.at(scores[rows], (row, candidate), weights[rule])
            elif self.aggregation == "noisy-or":
                scores[rows] = -np.expm1(-evidence.scores(entities[rows], -np.log1p(-np.minimum(weights, 1 - 1e-12))))
            else:
                scores[rows] = evidence.scores(entities[rows], weights)
        return scores

    def answers(self, relation: str, entity: str, count: int = 10, *, inverse: bool = False) -> list[tuple[str, float]]:
        """Return the best answers to ``relation(entity, ?)``, or ``relation(?, entity)``, but those already known."""
        near, far = (1, 0) if inverse else (0, 1)
        find_relation(self.kb, relation)
        domains = [self.kb.domains[type_name] for type_name in self.kb.predicate(relation).types]
        asked = domains[near].index_of(entity)
        scores = self.scores(relation, np.array([asked]), inverse=inverse)[0]
        columns = self.kb.columns(relation)
        scores[columns[far][columns[near] == asked]] = 0.0
        domain = domains[far]
        candidates = scores[domain.start : domain.start + len(domain)]
        best = np.argsort(-candidates, kind="stable")[:count]
        return [
            (str(domain.labels[index]), float(round(candidates[index], 12))) for index in best if candidates[index] > 0
        ]


class RankedRule(NamedTuple):
    """A statement as a row of the table of one query; see `RuleTable`."""

    path: Path
    form: RuleForm
    constant: int
    end: int
    weight: float
    ways: str
    source: Statement


def read_rows(rules: RuleSet, kb: KnowledgeBase, *, weighted: bool) -> dict[int, list[RankedRule]]:
    """Return the rules of every query with their confidence, or with ``weighted`` their weights.

    Weights are the annotations ``weight`` for ``r(X, ?)`` and ``weight_inverse`` for ``r(?, X)``; a rule that has
    neither weighs ``−log(1 − confidence)``. ``ways`` says what many ways along a path count (`path_truth`). Rules are
    chains whose ends are variables or entities; with ``weighted``, formulas ``w q(X, Y) => !r(X, Y)``,
    ``w X = Y => !r(X, Y)`` and ``w r(X, c)`` too.
    """
    rows: dict[int, list[RankedRule]] = defaultdict(list)
    for statement in rules:
        if isinstance(statement, Template):
            raise DataError(f"a template has no facts to give until a learner has filled it: {statement}")
        head, body, sign = _split(statement, weighted)
        chain = Chain.read(head, [part for part in body if not _says_different(part)])
        if chain is None:
            raise DataError(f"ranking takes chain rules, got: {statement}")
        relation = find_relation(kb, chain.head)
        path = encode_path(chain.steps, {step.relation: find_relation(kb, step.relation) for step in chain.steps})
        backward_path, constant, end = mirror_path(path), ANY_ENTITY, ANY_ENTITY
        forms = (RuleForm.CLOSED, RuleForm.CLOSED)
        if not chain.is_closed:
            forms = (RuleForm.ANSWER, RuleForm.ASKED) if chain.last else (RuleForm.ASKED, RuleForm.ANSWER)
            backward_path = path
            constant = _find_entity(kb, chain.head, 1 if chain.last else 0, chain.last or chain.first)
        if chain.end is not None:
            end = _find_entity(kb, chain.steps[-1].relation, 0 if chain.steps[-1].inverse else 1, chain.end)
        ways = _read_ways(statement) if weighted and chain.is_closed else ""
        for inverse, walked, form, weight in zip(
            (False, True), (path, backward_path), forms, _read_weights(statement, weighted, sign), strict=True
        ):
            if weight:
                row = RankedRule(walked, form, constant, end, weight, ways, statement)
                rows[encode_step(relation, inverse)].append(row)
    return dict(rows)


def _split(statement: Statement, weighted: bool) -> tuple[Atom, Sequence[Formula], float]:
    """Return head, body and whether the statement speaks for its head (1) or against it (−1)."""
    if isinstance(statement, Rule):
        if isinstance(statement.head, Atom):
            return statement.head, statement.body, 1.0
    elif weighted and not isinstance(statement, Template) and statement.kind == "soft":
        match statement.formula:
            case Implies(And(parts), Not(Atom() as head)):
                return head, parts, -1.0
            case Implies(premise, Not(Atom() as head)):
                return head, () if isinstance(premise, Comparison) else (premise,), -1.0
            case Atom() as head:
                return head, (), 1.0
    raise DataError(f"ranking takes chain rules, got: {statement}")


def _says_different(part: Formula) -> bool:
    return isinstance(part, Comparison) and part.operator == "!="


def _find_entity(kb: KnowledgeBase, relation: str, position: int, symbol: Symbol | None) -> int:
    assert symbol is not None
    return kb.domains[kb.predicate(relation).types[position]].index_of(symbol.name)


def _read_ways(statement: Statement) -> str:
    ways = str(statement.annotations.get("ways", "once"))
    if ways not in WAYS:
        raise DataError(f"ways must be one of {', '.join(WAYS)}, got {ways!r}: {statement}")
    return ways


def _read_weights(statement: Statement, weighted: bool, sign: float) -> tuple[float, float]:
    """Return the weights for ``r(X, ?)`` and ``r(?, X)``."""
    given = [statement.annotations.number(name) for name in ("weight", "weight_inverse")]
    if isinstance(statement, Rule):
        if not weighted:
            return statement.confidence, statement.confidence
        if given == [None, None]:
            usual = -float(np.log1p(-min(statement.confidence, 0.999)))
            return usual, usual
    elif given == [None, None]:
        given = [sign * float(getattr(statement, "weight", 0.0) or 0.0)] * 2
    return given[0] or 0.0, given[1] or 0.0


def _write_table(step: int, rows: Sequence[RankedRule]) -> tuple[RuleTable, Scores]:
    paths = {path: index for index, path in enumerate(dict.fromkeys(row.path for row in rows))}
    ways = {row.ways for row in rows} - {""}
    if len(ways) > 1:
        raise DataError(f"the rules of one relation must agree in what many ways count, got {sorted(ways)}")
    path_index, form, constant, end = np.array(
        [(paths[row.path], row.form, row.constant, row.end) for row in rows], dtype=np.int64
    ).T
    counting = cast(Ways, next(iter(ways), "once"))
    table = RuleTable(step, tuple(paths), path_index, form, constant, end, counting)
    return table, np.array([row.weight for row in rows])
