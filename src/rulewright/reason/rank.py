"""Answering questions about a graph: every entity scored by the rules that speak for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase
from rulewright.data.index import Ids
from rulewright.engine.evidence import ANSWER, ANY, ASKED, CLOSED, WAYS, Evidence, RuleTable, Ways
from rulewright.engine.walks import Graph, check_relation
from rulewright.errors import DataError
from rulewright.logic import (
    And,
    Atom,
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
    Term,
    Variable,
    mirror_path,
)

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


Weighted = tuple[RuleTable, npt.NDArray[np.float64]]


@dataclass
class _Columns:
    paths: dict[Path, int] = field(default_factory=dict)
    rows: list[tuple[int, int, int, int]] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    ways: set[str] = field(default_factory=set)

    def add(self, path: Path, kind: int, constant: int, end: int, weight: float) -> None:
        number = self.paths.setdefault(path, len(self.paths))
        self.rows.append((number, kind, constant, end))
        self.weights.append(weight)

    def table(self, relation: int) -> Weighted:
        path, kind, constant, end = np.array(self.rows, dtype=np.int64).reshape(-1, 4).T
        if len(self.ways) > 1:
            raise DataError(f"the rules of one relation must agree in what many ways count, got {sorted(self.ways)}")
        ways = cast(Ways, next(iter(self.ways), "once"))
        return RuleTable(relation, tuple(self.paths), path, kind, constant, end, ways), np.array(self.weights)


def tables_of(rules: RuleSet, kb: KnowledgeBase, *, weighted: bool) -> dict[int, Weighted]:
    """Return the table of every question: its rules with their confidence, or with ``weighted`` their weights.

    Weights are the annotations ``weight`` for ``r(X, ?)`` and ``weight_inverse`` for ``r(?, X)``; a rule that has
    neither weighs ``−log(1 − confidence)``. ``ways`` says what many ways along a path count (`truth`). Rules are chains
    whose ends are variables or entities; with ``weighted``, formulas ``w q(X, Y) => !r(X, Y)``, ``w X = Y => !r(X, Y)``
    and ``w r(X, c)`` too.
    """
    found: dict[int, _Columns] = {}
    for statement in rules:
        if isinstance(statement, Template):
            raise DataError(f"a template has no facts to give until a learner has filled it: {statement}")
        head, body, sign = _read(statement, weighted)
        relation = check_relation(kb, str(head.predicate))
        ends, steps = _walked(head, body, kb, statement)
        ahead, back = _weights(statement, weighted, sign)
        near, far, last = ends
        if near is None and far is None:
            forward = (steps, CLOSED, ANY, ANY)
            backward = (mirror_path(steps), CLOSED, ANY, ANY)
        else:
            constant = near if far is None else far
            assert constant is not None
            kinds = (ANSWER, ASKED) if near is None else (ASKED, ANSWER)
            forward, backward = ((steps, kind, constant, last) for kind in kinds)
        for number, row, weight in ((2 * relation, forward, ahead), (2 * relation + 1, backward, back)):
            if weight:
                columns = found.setdefault(number, _Columns())
                columns.add(*row, weight)
                if weighted and row[1] == CLOSED:
                    columns.ways.add(_ways(statement))
    return {number: columns.table(number) for number, columns in found.items()}


def _ways(statement: Statement) -> str:
    ways = str(statement.annotations.get("ways", "once"))
    if ways not in WAYS:
        raise DataError(f"ways must be one of {', '.join(WAYS)}, got {ways!r}: {statement}")
    return ways


def _weights(statement: Statement, weighted: bool, sign: float) -> tuple[float, float]:
    notes = statement.annotations
    given = [notes.number(name) for name in ("weight", "weight_inverse")]
    if isinstance(statement, Rule):
        if not weighted:
            return statement.confidence, statement.confidence
        if given == [None, None]:
            usual = -float(np.log1p(-min(statement.confidence, 0.999)))
            return usual, usual
    elif given == [None, None]:
        given = [sign * float(getattr(statement, "weight", 0.0) or 0.0)] * 2
    return given[0] or 0.0, given[1] or 0.0


def _read(statement: Statement, weighted: bool) -> tuple[Atom, Sequence[Formula], float]:
    """Return head, body and whether the statement speaks for its head (1) or against it (−1)."""
    if isinstance(statement, Rule):
        if isinstance(statement.head, Atom) and statement.head.arity == 2:
            return statement.head, statement.body, 1.0
    elif weighted and not isinstance(statement, Template) and statement.kind == "soft":
        match statement.formula:
            case Implies(And(parts), Not(Atom() as head)) if head.arity == 2:
                return head, parts, -1.0
            case Implies(premise, Not(Atom() as head)) if head.arity == 2:
                return head, () if isinstance(premise, Comparison) else (premise,), -1.0
            case Atom() as head if head.arity == 2:
                return head, (), 1.0
    raise DataError(f"ranking takes chain rules, got: {statement}")


def _walked(
    head: Atom, body: Sequence[Formula], kb: KnowledgeBase, statement: Statement
) -> tuple[tuple[int | None, int | None, int], Path]:
    """Walk a body from the head's first variable: the head's constants, the body's last entity, and the steps."""
    types = kb.predicate(str(head.predicate)).types
    near, far = (_entity(term, kind, kb) for term, kind in zip(head.args, types, strict=True))
    start, goal = (head.args[1], None) if near is not None else (head.args[0], head.args[1] if far is None else None)
    left = [part for part in body if not (isinstance(part, Comparison) and part.operator == "!=")]
    place, steps, last = start, [], ANY
    seen: set[Term] = {start}
    while left:
        atom = next((part for part in left if isinstance(part, Atom) and part.arity == 2 and place in part.args), None)
        if atom is None or (near is not None and far is not None):
            raise DataError(f"ranking takes chain rules, got: {statement}")
        left.remove(atom)
        inverse = atom.args[0] != place
        place = atom.args[0 if inverse else 1]
        steps.append(2 * check_relation(kb, str(atom.predicate)) + inverse)
        kind = kb.predicate(str(atom.predicate)).types[0 if inverse else 1]
        entity = _entity(place, kind, kb)
        if place in seen or (entity is not None and left):
            raise DataError(f"ranking takes chain rules, got: {statement}")
        last = ANY if entity is None else entity
        seen.add(place)
    if goal is not None and body and place != goal and not isinstance(body[0], Comparison):
        raise DataError(f"ranking takes chain rules, got: {statement}")
    return (near, far, last), tuple(steps)


def _entity(term: Term, kind: str, kb: KnowledgeBase) -> int | None:
    if isinstance(term, Variable):
        return None
    if not isinstance(term, Symbol):
        raise DataError(f"{term} is a number and no entity")
    return kb.domains[kind].id_of(term.name)
