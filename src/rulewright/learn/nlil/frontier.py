"""What a batch of questions can reach: sparse, laid out once, whatever the attentions are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rulewright.data.index import Ids
from rulewright.learn.nlil.facts import (
    ANYTHING,
    FactGraph,
    HiddenFacts,
    Mask,
    StatementCodes,
    operator_of_step,
    step_of_operator,
)
from rulewright.logic.chain import invert_step

NOTHING_HIDDEN = HiddenFacts()
ReachedNodes = tuple[int, Ids] | None
"""How many steps were taken and the nodes that stand there; None where a statement has no such argument."""
_Steps = tuple[Ids, Ids, Ids]


@dataclass(frozen=True)
class Hop:
    """Steps from the nodes before to the nodes after; ``stay`` is the position after of each node before."""

    source: Ids
    operator: Ids
    target: Ids
    stay: Ids


@dataclass(frozen=True)
class Frontier:
    """Nodes (question, entity) that paths from one argument reach after 0, 1, … T operators, sorted and distinct."""

    rows: tuple[Ids, ...]
    entities: tuple[Ids, ...]
    hops: tuple[Hop, ...]


@dataclass(frozen=True)
class EvidenceTerm:
    """What makes statements true: ``pair[i]`` counts a node of the first argument and one of the second."""

    pair: Ids
    statement: Ids
    left: ReachedNodes
    right: ReachedNodes


@dataclass(frozen=True)
class QuestionEvidence:
    """All that matters for a batch: ``statement[u]`` may be true of question ``row[u]``; all other pairs are false."""

    n_questions: int
    row: Ids
    statement: Ids
    terms: tuple[EvidenceTerm, ...]
    frontiers: tuple[Frontier, ...]

    @property
    def n_touched(self) -> int:
        """How many steps and marks were looked at."""
        hops = sum(len(hop.source) for frontier in self.frontiers for hop in frontier.hops)
        return hops + sum(len(term.pair) for term in self.terms)


class EvidenceBuilder:
    """Lays out the evidence of questions over a graph.

    ``operators`` and ``statements`` say which may be used at all; ``most`` bounds the steps taken from one entity, by a
    random choice (None: all); of those that join one argument to the other all are used.
    """

    def __init__(
        self,
        graph: FactGraph,
        *,
        steps: int,
        arity: int,
        operators: Mask | None = None,
        statements: Mask | None = None,
        most: int | None = None,
        seed: int = 0,
    ) -> None:
        self.graph, self.steps, self.codes = graph, steps, StatementCodes(arity, graph.vocabulary)
        self.operators = np.ones(graph.vocabulary.n_operators, dtype=bool) if operators is None else operators
        self.statements = np.ones(len(self.codes), dtype=bool) if statements is None else statements
        self.most, self.random = most, np.random.default_rng(seed)

    def build(self, arguments: Sequence[Ids], hidden: HiddenFacts = NOTHING_HIDDEN) -> QuestionEvidence:
        """Lay out the evidence of questions, given as a column of entities for each argument."""
        columns = [np.asarray(column, dtype=np.int64) for column in arguments]
        spreads = [self._spread(column, columns, hidden) for column in columns]
        frontiers = tuple(frontier for frontier, _ in spreads)
        parts: list[tuple[Ids, Ids, ReachedNodes, ReachedNodes]] = []
        for side, frontier in enumerate(frontiers):
            for taken, (row, entity) in enumerate(zip(frontier.rows, frontier.entities, strict=True)):
                node, mark = self._visible_marks(row, entity, columns[side], hidden)
                if taken:  # that an argument itself is anything is no information
                    node = np.concatenate([node, np.arange(len(row))])
                    mark = np.concatenate([mark, np.full(len(row), ANYTHING)])
                statement = self.codes.mark_statement(side) + mark
                keep = self.statements[statement]
                reached = (taken, node[keep])
                parts.append((row[node[keep]], statement[keep], *((None, reached) if side else (reached, None))))
        if len(columns) == 2:
            parts += self._join_sides(*spreads[0], frontiers[1])
        width = len(self.codes)
        keys = [row * width + statement for row, statement, _, _ in parts]
        different, pair = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *keys]), return_inverse=True)
        pairs = np.split(pair, np.cumsum([len(part_keys) for part_keys in keys])[:-1])
        terms = [
            EvidenceTerm(part_pair, statement, left, right)
            for part_pair, (_, statement, left, right) in zip(pairs, parts, strict=True)
            if len(part_pair)
        ]
        return QuestionEvidence(len(columns[0]), different // width, different % width, tuple(terms), frontiers)

    def _spread(self, start: Ids, columns: Sequence[Ids], hidden: HiddenFacts) -> tuple[Frontier, list[_Steps]]:
        """Walk from one argument; from the first of two, return also the steps that leave the nodes at each stage."""
        size, filters = self.graph.n_entities, self.graph.vocabulary.filter_operator(0)
        rows, entities, hops = [np.arange(len(start))], [start], []
        leaving: list[_Steps] = []
        may_join = len(columns) == 2 and start is columns[0]
        for taken in range(self.steps + may_join):
            row, entity = rows[-1], entities[-1]
            # what joins the two arguments is rare and must not be missed: where steps may join, all are looked at
            source, operator, end = self.graph.steps_from(entity, None if may_join else self.most, self.random)
            keep = np.ones(len(source), dtype=bool)
            if hidden.step is not None:
                first, second = columns[0][row[source]], columns[1][row[source]]
                forwards = operator == operator_of_step(hidden.step)
                forwards &= (entity[source] == first) & (end == second)
                backwards = operator == operator_of_step(invert_step(hidden.step))
                backwards &= (entity[source] == second) & (end == first)
                keep = ~(forwards | backwards)
            if may_join:
                useful = keep & self.statements[step_of_operator(operator)]
                leaving.append((source[useful], operator[useful], end[useful]))
            if taken == self.steps:
                break
            keep &= self.operators[operator]
            if may_join and self.most is not None:
                counts = np.bincount(source, minlength=len(entity))
                keep &= self.random.random(len(source)) * counts[source] < self.most
            node, mark = self._visible_marks(row, entity, start, hidden)
            allowed = self.operators[filters + mark]
            node, mark = node[allowed], mark[allowed]
            source = np.concatenate([source[keep], node])
            operator = np.concatenate([operator[keep], filters + mark])
            end = np.concatenate([end[keep], entity[node]])
            keys = np.concatenate([row[source] * size + end, row * size + entity])
            different, position = np.unique(keys, return_inverse=True)
            hops.append(Hop(source, operator, position[: len(source)], position[len(source) :]))
            rows.append(different // size)
            entities.append(different % size)
        return Frontier(tuple(rows), tuple(entities), tuple(hops)), leaving

    def _visible_marks(self, row: Ids, entity: Ids, start: Ids, hidden: HiddenFacts) -> tuple[Ids, Ids]:
        """Return the marks of nodes, except the hidden ones of the entity that the question is about."""
        node, mark = self.graph.marks_of(entity)
        if hidden.marks:
            visible = (entity[node] != start[row[node]]) | ~np.isin(mark, hidden.marks)
            node, mark = node[visible], mark[visible]
        return node, mark

    def _join_sides(
        self, first: Frontier, leaving: list[_Steps], second: Frontier
    ) -> list[tuple[Ids, Ids, ReachedNodes, ReachedNodes]]:
        """Return the steps that join what the first argument reaches to what the second reaches."""
        size = self.graph.n_entities
        parts: list[tuple[Ids, Ids, ReachedNodes, ReachedNodes]] = []
        for taken, (source, operator, end) in enumerate(leaving):
            row = first.rows[taken][source]
            wanted = row * size + end
            for taken_back, (other_row, entity) in enumerate(zip(second.rows, second.entities, strict=True)):
                nodes = other_row * size + entity
                node = np.minimum(np.searchsorted(nodes, wanted), len(nodes) - 1)
                hit = np.flatnonzero(nodes[node] == wanted)
                statement = step_of_operator(operator[hit])
                parts.append((row[hit], statement, (taken, source[hit]), (taken_back, node[hit])))
        return parts
