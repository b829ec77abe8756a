"""Answering queries about a graph: every candidate scored by the rules that speak for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from rulewright.checks import OneOf, Whole, check_parameter
from rulewright.data import KnowledgeBase
from rulewright.data.index import Ids
from rulewright.engine.batches import Derivation, Source
from rulewright.engine.walks import ANY_ENTITY, WAYS, Evidence, Graph, RuleForm, RuleTable, Ways, find_relation
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
    Variable,
    encode_path,
    encode_step,
    mirror_path,
    parse_formula,
)
from rulewright.reason.program import Rules, add_new_predicates, read_rule_set
from rulewright.reason.proofs import rule_text
from rulewright.tables import FrameLibrary, build_frame, html_table

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
        self.graph = Graph(kb)
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

    def answers(
        self, relation: str, entity: str, count: int = 10, *, inverse: bool = False, known: bool = False
    ) -> list[tuple[str, float]]:
        """Return the best answers to ``relation(entity, ?)``, or ``relation(?, entity)``, but for ``known`` facts."""
        near, far = (1, 0) if inverse else (0, 1)
        find_relation(self.kb, relation)
        domains = [self.kb.domains[type_name] for type_name in self.kb.predicate(relation).types]
        asked = domains[near].index_of(entity)
        scores = self.scores(relation, np.array([asked]), inverse=inverse)[0]
        if not known:
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
    source: Source


def read_rows(statements: Iterable[Statement], kb: KnowledgeBase, *, weighted: bool) -> dict[int, list[RankedRule]]:
    """Return the rules of every query, by its step, with their confidence, or with ``weighted`` their weights.

    Weights are the annotations ``weight`` for ``r(X, ?)`` and ``weight_inverse`` for ``r(?, X)``; a rule that has
    neither weighs ``−log(1 − confidence)``. ``ways`` says what many ways along a path count (`path_truth`). Rules are
    chains whose ends are variables or entities; with ``weighted``, formulas ``w q(X, Y) => !r(X, Y)``,
    ``w X = Y => !r(X, Y)`` and ``w r(X, c)`` too.
    """
    rows: dict[int, list[RankedRule]] = defaultdict(list)
    for statement in statements:
        if isinstance(statement, Template):
            raise DataError(f"a template has no facts to give until a learner has filled it: {statement}")
        head, body, sign = _split(statement, weighted)
        parts = [part for part in body if not (isinstance(part, Comparison) and part.operator == "!=")]
        chain = Chain.read(head, parts)
        if chain is None:
            raise DataError(f"ranking takes chain rules, got: {statement}")
        relation = find_relation(kb, chain.head)
        path = encode_path(chain.steps, {step.relation: find_relation(kb, step.relation) for step in chain.steps})
        backward_path, constant, end = mirror_path(path), ANY_ENTITY, ANY_ENTITY
        forms = (RuleForm.CLOSED, RuleForm.CLOSED)
        if not chain.is_closed:
            forms = (RuleForm.ANSWER, RuleForm.ASKED) if chain.last else (RuleForm.ASKED, RuleForm.ANSWER)
            backward_path = path
            symbol, position = (chain.last, 1) if chain.last else (chain.first, 0)
            assert symbol is not None
            constant = kb.domains[kb.predicate(chain.head).types[position]].index_of(symbol.name)
        if chain.end is not None:
            last = chain.steps[-1]
            end = kb.domains[kb.predicate(last.relation).types[0 if last.inverse else 1]].index_of(chain.end.name)
        ways = str(statement.annotations.get("ways", "once")) if weighted and chain.is_closed else ""
        if weighted and chain.is_closed and ways not in WAYS:
            raise DataError(f"ways must be one of {', '.join(WAYS)}, got {ways!r}: {statement}")
        for inverse, walked, form, weight in zip(
            (False, True), (path, backward_path), forms, _read_weights(statement, weighted, sign), strict=True
        ):
            if weight:
                row = RankedRule(walked, form, constant, end, weight, ways, statement)
                rows[encode_step(relation, inverse)].append(row)
    return dict(rows)


def _split(statement: Source, weighted: bool) -> tuple[Atom, Sequence[Formula], float]:
    """Return head, body and whether the statement speaks for its head (1) or against it (−1)."""
    if isinstance(statement, Rule):
        if isinstance(statement.head, Atom):
            return statement.head, statement.body, 1.0
    elif weighted and statement.kind == "soft":
        match statement.formula:
            case Implies(And(parts), Not(Atom() as head)):
                return head, parts, -1.0
            case Implies(premise, Not(Atom() as head)):
                return head, () if isinstance(premise, Comparison) else (premise,), -1.0
            case Atom() as head:
                return head, (), 1.0
    raise DataError(f"ranking takes chain rules, got: {statement}")


def _read_weights(statement: Source, weighted: bool, sign: float) -> tuple[float, float]:
    """Return the weights for ``r(X, ?)`` and ``r(?, X)``."""
    given = [statement.annotations.number(name) for name in ("weight", "weight_inverse")]
    if isinstance(statement, Rule):
        if not weighted:
            return statement.confidence, statement.confidence
        if given == [None, None]:
            usual = -float(np.log1p(-min(statement.confidence, 0.999)))
            return usual, usual
    elif given == [None, None]:
        given = [sign * float(statement.weight or 0.0)] * 2
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


@dataclass(frozen=True)
class Answer:
    """A candidate that answers a query: its label, its score and the statements that speak for it, strongest first."""

    entity: str
    score: float
    reasons: tuple[Source, ...]

    def __str__(self) -> str:
        return f"{self.entity}  {self.score:.3g}"


class Answers(Sequence[Answer]):
    """The answers to a query, best first; see `rank`."""

    def __init__(self, query: Atom, answers: Sequence[Answer]) -> None:
        self.query = query
        self._answers = tuple(answers)

    def __len__(self) -> int:
        return len(self._answers)

    def __getitem__(self, index: Any) -> Any:
        return self._answers[index]

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """Return the answers as a data frame of pandas or Polars: entity, score, reasons."""
        columns: dict[str, list[Any]] = {
            "entity": [answer.entity for answer in self],
            "score": [answer.score for answer in self],
            "reasons": ["\n".join(map(str, answer.reasons)) for answer in self],
        }
        return build_frame(columns, library)

    def _repr_html_(self) -> str:
        rows = ((answer.entity, answer.score, " ".join(map(str, answer.reasons))) for answer in self)
        return html_table(["entity", "score", "reasons"], rows, caption=str(self.query))

    def __repr__(self) -> str:
        return f"Answers({self.query}: {', '.join(map(str, self)) or 'none'})"

    def __str__(self) -> str:
        lines = [f"{self.query}: {len(self)} answers" if self else f"{self.query} has no answer"]
        for answer in self:
            lines += [str(answer), *(f"   by {rule_text(reason)}" for reason in answer.reasons)]
        return "\n".join(lines)


@runtime_checkable
class RankingModel(Protocol):
    """A fitted learner that ranks, such as `PathMixture`."""

    @property
    def rules_(self) -> RuleSet:
        """The rules that it ranks by."""
        ...

    @property
    def ranker_(self) -> RuleRanker:
        """What ranks on the facts of training."""
        ...


def rank(
    rules: Rules | RankingModel,
    kb: KnowledgeBase,
    query: str | Atom,
    *,
    count: int = 10,
    aggregation: Aggregation | None = None,
    known: bool = False,
) -> Answers:
    """Return the best answers to a query ``r(entity, X)`` or ``r(X, entity)``, each with the rules that speak for it.

    Rules are applied once to the facts, without chaining. The confidences ``c`` of those that speak for a candidate
    are combined to ``1 − Π(1 − c)`` (``noisy-or``) or the highest (``max``), or their weights added (``weight``, which
    is how a learner that ranks combines them); None chooses ``noisy-or``, or the learner's way. Answers that are
    known facts are left out unless ``known``.

    >>> from rulewright.logic import parse_rules
    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob"), ("bob", "parent_of", "cid")])
    >>> rules = parse_rules("0.9 :: grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).")
    >>> print(rank(rules, kb, "grandparent_of(ann, X)"))
    grandparent_of(ann, X): 1 answers
    cid  0.9
       by 0.9 :: grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).
    >>> rank(rules, kb, "grandparent_of(X, cid)")[0].entity
    'ann'
    """
    check_parameter("count", count, Whole(1))
    if isinstance(rules, RankingModel):
        rule_set, aggregation = rules.rules_, aggregation or rules.ranker_.aggregation
    else:
        rule_set, aggregation = read_rule_set(rules), aggregation or "noisy-or"
    check_parameter("aggregation", aggregation, AGGREGATION)
    if any(name not in kb.predicates for name in rule_set.arities):
        derivations = [Derivation(rule.head, body, rule, 0) for rule in rule_set.rules for body in rule.alternatives()]
        kb = add_new_predicates(kb, rule_set, derivations)
    atom, entity, inverse = _read_query(query, kb)
    relation = str(atom.predicate)
    step = encode_step(find_relation(kb, relation), inverse)
    statements = [statement for statement in rule_set if _find_conclusion(statement) == relation]
    rows = read_rows(statements, kb, weighted=aggregation == "weight").get(step, [])
    ranker = RuleRanker(kb, {step: _write_table(step, rows)} if rows else {}, aggregation=aggregation)
    answers = ranker.answers(relation, entity, count, inverse=inverse, known=known)
    if not answers:
        return Answers(atom, ())
    near, far = (kb.domains[type_name] for type_name in kb.predicate(relation).types[:: -1 if inverse else 1])
    indices = [far.index_of(label) for label, _ in answers]
    wanted = np.zeros((1, kb.n_entities), dtype=bool)
    wanted[0, indices] = True
    table, weights = ranker.tables[step]
    _, candidate, rule, truth = Evidence(ranker.graph, table).firings(np.array([near.index_of(entity)]), wanted=wanted)
    strength = weights[rule] * truth
    reasons: dict[int, list[Source]] = defaultdict(list)
    for position in np.lexsort((rule, -strength)):
        if strength[position] > 0:
            reasons[int(candidate[position])].append(rows[rule[position]].source)
    scored = zip(answers, indices, strict=True)
    return Answers(atom, [Answer(label, score, tuple(reasons[index])) for (label, score), index in scored])


def _read_query(query: str | Atom, kb: KnowledgeBase) -> tuple[Atom, str, bool]:
    """Return a query, the entity that it is about, and whether that stands last."""
    atom = parse_formula(query) if isinstance(query, str) else query
    if not isinstance(atom, Atom) or len(atom.args) != 2:
        raise DataError(f"expected a query such as parent_of(ann, X), got {query}")
    find_relation(kb, str(atom.predicate))
    inverse = isinstance(atom.args[0], Variable)
    asked, wanted = atom.args[::-1] if inverse else atom.args
    if not isinstance(asked, Symbol) or not isinstance(wanted, Variable):
        raise DataError(f"a query has an entity and a variable for the answer, such as parent_of(ann, X), got {query}")
    return atom, asked.name, inverse


def _find_conclusion(statement: Statement) -> str:
    """Return the predicate that a statement speaks for or against."""
    if isinstance(statement, Rule):
        return str(statement.head.predicate)
    if not isinstance(statement, Template):
        match statement.formula:
            case Implies(_, Not(Atom() as head)) | (Atom() as head):
                return str(head.predicate)
    return ""
