"""What a batch of questions can reach: sparse, laid out once, whatever the attentions are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from rulewright.data.index import Ids
from rulewright.learn.nlil.facts import ANYTHING, IDENTITY, FactGraph, Hidden, Mask

NOTHING = Hidden()
Place = tuple[int, Ids] | None
"""How many steps were taken and the nodes reached."""
Part = tuple[Ids, Ids, Place, Place]
Steps = tuple[Ids, Ids, Ids]


@dataclass(frozen=True)
class Hop:
    """Steps from the nodes before to the nodes after; ``stay`` is where each node before stands after."""

    source: Ids
    operator: Ids
    target: Ids
    stay: Ids


@dataclass(frozen=True)
class Frontier:
    """Nodes (question, entity) that paths from one argument reach after 0, 1, … T operators, sorted, each once."""

    rows: tuple[Ids, ...]
    entities: tuple[Ids, ...]
    hops: tuple[Hop, ...]


@dataclass(frozen=True)
class Term:
    """Where statements are made true: entry ``pair[i]`` counts a node of the first argument and one of the second.

    ``left`` and ``right`` are (steps taken, nodes), None where the statement has no such argument.
    """

    pair: Ids
    statement: Ids
    left: Place
    right: Place


@dataclass(frozen=True)
class Evidence:
    """All that bears on a batch: of question ``row[u]``, ``statement[u]`` may be true; every other pair is false."""

    questions: int
    row: Ids
    statement: Ids
    terms: tuple[Term, ...]
    frontiers: tuple[Frontier, ...]

    @property
    def touched(self) -> int:
        """How many steps and marks were looked at."""
        hops = sum(len(hop.source) for each in self.frontiers for hop in each.hops)
        return hops + sum(len(term.pair) for term in self.terms)


@dataclass(frozen=True)
class Statements:
    """Numbers the statements about one argument or about two.

    About one: its marks, ``0 … marks − 1``. About two: the steps from the first to the second, ``0 … 2R − 1`` (step
    ``s`` is operator ``s + 1``), then the marks of what the first reaches, then those of what the second reaches.
    """

    arity: int
    relations: int
    marks: int

    @classmethod
    def of(cls, graph: FactGraph, arity: int) -> Statements:
        """Return the statements of a graph."""
        return cls(arity, 2 * len(graph.vocabulary.binary), graph.vocabulary.marks)

    def __len__(self) -> int:
        return self.marks if self.arity == 1 else self.relations + 2 * self.marks

    def about(self, side: int, mark: int = 0) -> int:
        """Return the statement that something which an argument reaches bears a mark."""
        return mark if self.arity == 1 else self.relations + side * self.marks + mark

    def kind(self, statement: int) -> tuple[str, int]:
        """Return ``("step", operator)``, or ``("left", mark)`` or ``("right", mark)``.

        >>> Statements(2, 4, 3).kind(1), Statements(2, 4, 3).kind(8), Statements(1, 4, 3).kind(2)
        (('step', 2), ('right', 1), ('left', 2))
        """
        if self.arity == 1:
            return "left", statement
        if statement < self.relations:
            return "step", statement + 1
        side, mark = divmod(statement - self.relations, self.marks)
        return ("left", "right")[side], mark


class Reach:
    """Lays out the evidence of questions over a graph.

    ``operators`` and ``statements`` say which may be used at all; ``most`` bounds the steps taken from one entity, by a
    random choice (all, where it is None); those that join one argument to the other are always all looked at.
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
        self.graph, self.steps, self.numbers = graph, steps, Statements.of(graph, arity)
        vocabulary = graph.vocabulary
        self.operators = np.ones(vocabulary.operators, dtype=bool) if operators is None else operators
        self.statements = np.ones(len(self.numbers), dtype=bool) if statements is None else statements
        self.most, self.random = most, np.random.default_rng(seed)

    def evidence(self, arguments: Sequence[Ids], hidden: Hidden = NOTHING) -> Evidence:
        """Lay out what bears on questions, given as a column of entities for each argument."""
        columns = [np.asarray(each, dtype=np.int64) for each in arguments]
        ways = [self._spread(column, columns, hidden) for column in columns]
        parts: list[Part] = []
        for side, (frontier, _) in enumerate(ways):
            parts += self._marks(side, frontier, columns[side], hidden)
        if len(columns) == 2:
            parts += self._crossings(ways[0], ways[1][0])
        width = len(self.numbers)
        keys = [row * width + statement for row, statement, _, _ in parts]
        found, place = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *keys]), return_inverse=True)
        ends = np.cumsum([len(each) for each in keys])
        terms = [
            Term(place[end - len(part[0]) : end], part[1], part[2], part[3])
            for part, end in zip(parts, ends, strict=True)
            if len(part[0])
        ]
        return Evidence(len(columns[0]), found // width, found % width, tuple(terms), tuple(way[0] for way in ways))

    def _spread(self, start: Ids, columns: Sequence[Ids], hidden: Hidden) -> tuple[Frontier, list[Steps]]:
        """Walk from one argument; return also the steps that leave the nodes at each stage, where they are needed."""
        size = self.graph.entities
        rows, entities, hops = [np.arange(len(start))], [start], []
        leaving: list[Steps] = []
        crossing = len(columns) == 2 and start is columns[0]
        for taken in range(self.steps + 1):
            row, entity = rows[-1], entities[-1]
            last = taken == self.steps
            if last and not crossing:
                break
            # what joins the two arguments is rare and must not be missed: all steps are looked at, where they may cross
            source, operator, end = self.graph.leaving(entity, None if crossing else self.most, self.random)
            keep = np.ones(len(source), dtype=bool)
            if hidden.step is not None:
                before, after = columns[0][row[source]], columns[1][row[source]]
                there = (entity[source] == before) & (end == after)
                back = (entity[source] == after) & (end == before)
                own = (operator == hidden.step, operator == hidden.step + 1)
                keep &= ~(there | back) if hidden.pair else ~((own[0] & there) | (own[1] & back))
            if crossing:
                useful = keep & self.statements[operator - 1]
                leaving.append((source[useful], operator[useful], end[useful]))
            if last:
                break
            keep &= self.operators[operator]
            if crossing and self.most is not None:
                counts = np.bincount(source, minlength=len(entity))
                keep &= self.random.random(len(source)) * counts[source] < self.most
            bearer, mark = self._visible(row, entity, start, hidden)
            allowed = self.operators[self.graph.vocabulary.filter(0) + mark]
            bearer, mark = bearer[allowed], mark[allowed]
            source = np.concatenate([source[keep], bearer])
            operator = np.concatenate([operator[keep], self.graph.vocabulary.filter(0) + mark])
            end = np.concatenate([end[keep], entity[bearer]])
            keys = np.concatenate([row[source] * size + end, row * size + entity])
            found, place = np.unique(keys, return_inverse=True)
            hops.append(Hop(source, operator, place[: len(source)], place[len(source) :]))
            rows.append(found // size)
            entities.append(found % size)
        return Frontier(tuple(rows), tuple(entities), tuple(hops)), leaving

    def _visible(self, row: Ids, entity: Ids, start: Ids, hidden: Hidden) -> tuple[Ids, Ids]:
        """Return the marks of nodes, but those hidden of the entity asked about."""
        bearer, mark = self.graph.borne(entity)
        if hidden.marks:
            own = (entity[bearer] == start[row[bearer]]) & np.isin(mark, hidden.marks)
            bearer, mark = bearer[~own], mark[~own]
        return bearer, mark

    def _marks(self, side: int, frontier: Frontier, start: Ids, hidden: Hidden) -> list[Part]:
        parts = []
        for taken, (row, entity) in enumerate(zip(frontier.rows, frontier.entities, strict=True)):
            node, mark = self._visible(row, entity, start, hidden)
            if taken:  # that an argument is anything at all says nothing
                node = np.concatenate([node, np.arange(len(row))])
                mark = np.concatenate([mark, np.full(len(row), ANYTHING)])
            statement = self.numbers.about(side) + mark
            keep = self.statements[statement]
            node, statement = node[keep], statement[keep]
            place = (taken, node)
            parts.append((row[node], statement, *((place, None) if side == 0 else (None, place))))
        return parts

    def _crossings(self, way: tuple[Frontier, list[Steps]], other: Frontier) -> list[Part]:
        """Return the steps that join what the first argument reaches to what the second reaches."""
        size = self.graph.entities
        frontier, leaving = way
        parts: list[Part] = []
        for taken, (source, operator, end) in enumerate(leaving):
            row = frontier.rows[taken][source]
            wanted = row * size + end
            for back, (there, entity) in enumerate(zip(other.rows, other.entities, strict=True)):
                known = there * size + entity
                place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
                hit = np.flatnonzero(known[place] == wanted)
                parts.append((row[hit], operator[hit] - 1, (taken, source[hit]), (back, place[hit])))
        return parts


Truth = Literal["exponential", "paper"]


@dataclass(frozen=True)
class Attentions:
    """All choices of ``G`` groups, each a distribution over its last dimension.

    - ``operators[G, C', T, K]``: the operator of each step of each chain;
    - ``first, second[G, S, 1 + T·C']``: for each statement, how its arguments are reached: path 0 stays, path
      ``1 + (t − 1)·C' + c`` takes ``t`` steps of chain ``c``; ``second`` only for targets of two arguments;
    - ``levels``: for each level ``left, right[G, C, 2·below]``, over the formulas below and then their complements;
    - ``output[G, S + L·C]``: over the formulas of all levels.
    """

    operators: Tensor
    first: Tensor
    second: Tensor | None
    levels: tuple[tuple[Tensor, Tensor], ...]
    output: Tensor

    @property
    def groups(self) -> int:
        """How many rules there are."""
        return int(self.operators.shape[0])

    def entropy(self) -> Tensor:
        """Return the mean entropy of the choices that a rule consists of, weighted by how much each bears on it.

        Operators and outputs always bear on the rule; the path of a statement as much as the output attends to it.
        """
        statements = self.first.shape[1]
        weight = self.output[:, :statements] + 1e-3
        found = _entropy(self.operators).mean((1, 2)) + _entropy(self.output)
        for paths in (self.first, self.second):
            if paths is not None:
                found = found + (_entropy(paths) * weight).sum(1)
        for left, right in self.levels:
            found = found + (_entropy(left) + _entropy(right)).mean(1)
        return found.mean()


def _entropy(attention: Tensor) -> Tensor:
    return -(attention * attention.clamp(min=1e-12).log()).sum(-1)


def evaluate(attentions: Attentions, evidence: Evidence, truth: Truth = "exponential") -> Tensor:
    """Return how true each rule is of each question, ``[questions, G]``.

    What the evidence does not name is false, so only pairs (question, statement) that it does name are held: memory
    and time grow with the steps touched, not with entities × predicates.
    """
    values = statement_values(attentions, evidence, truth)
    at_rest = 0.5 if truth == "paper" else 0.0  # the value of statements that nothing speaks for
    row = torch.from_numpy(evidence.row)
    statement = torch.from_numpy(evidence.statement)
    excess = values - at_rest

    def attended(weights: Tensor) -> Tensor:
        """Return ``Σ_s w[g, q, s] f_s`` as ``[questions, G, q]``."""
        rest = at_rest * weights.sum(-1)
        found = excess.new_zeros(evidence.questions, *weights.shape[:2])
        found = found.index_add(0, row, excess[:, :, None] * weights.permute(2, 0, 1).index_select(0, statement))
        return found + rest

    statements = attentions.first.shape[1]
    score = attended(attentions.output[:, None, :statements])[:, :, 0]
    below: Tensor | None = None
    start = statements
    for left, right in attentions.levels:
        if below is None:
            # Σ_s a_s f_s + Σ_s a'_s (1 − f_s) = Σ_s (a_s − a'_s) f_s + Σ_s a'_s
            sides = [
                attended(each[:, :, :statements] - each[:, :, statements:]) + each[:, :, statements:].sum(-1)
                for each in (left, right)
            ]
        else:
            both = torch.cat([below, 1 - below], dim=2)
            sides = [torch.einsum("bgs,gcs->bgc", both, each) for each in (left, right)]
        below = sides[0] * sides[1]
        score = score + (below * attentions.output[:, start : start + below.shape[2]]).sum(-1)
        start += below.shape[2]
    return score


def statement_values(attentions: Attentions, evidence: Evidence, truth: Truth = "exponential") -> Tensor:
    """Return how true each pair (question, statement) of the evidence is under each rule, ``[pairs, G]``."""
    counts = statement_counts(attentions, evidence)
    return torch.sigmoid(counts) if truth == "paper" else -torch.expm1(-counts)


def statement_counts(attentions: Attentions, evidence: Evidence) -> Tensor:
    """Return the relaxed count of each pair (question, statement) of the evidence under each rule, ``[pairs, G]``."""
    reached = [path_values(attentions.operators, frontier) for frontier in evidence.frontiers]
    counts = attentions.operators.new_zeros(len(evidence.row), attentions.groups)
    for term in evidence.terms:
        statement = torch.from_numpy(term.statement)
        product: Tensor | None = None
        for side, (place, paths) in enumerate(((term.left, attentions.first), (term.right, attentions.second))):
            if place is None:
                continue
            if paths is None:
                raise ValueError("a statement about two arguments needs attention over the paths of the second")
            taken, node = place
            value = _argument(reached[side], taken, torch.from_numpy(node), paths, statement)
            product = value if product is None else product * value
        assert product is not None
        counts = counts.index_add(0, torch.from_numpy(term.pair), product)
    return counts


def path_values(operators: Tensor, frontier: Frontier) -> list[Tensor]:
    """Return for each number of steps in how many ways, under attention, each node is reached, ``[nodes, G, C']``."""
    groups, chains, _, _ = operators.shape
    values = [operators.new_ones(len(frontier.rows[0]), groups, chains)]
    for step, hop in enumerate(frontier.hops):
        weights = operators[:, :, step].permute(2, 0, 1)  # [K, G, C']
        now = values[-1]
        after = now.new_zeros(len(frontier.rows[step + 1]), groups, chains)
        after = after.index_add(0, torch.from_numpy(hop.stay), now * weights[IDENTITY])
        chosen = weights.index_select(0, torch.from_numpy(hop.operator))
        moved = now.index_select(0, torch.from_numpy(hop.source)) * chosen
        values.append(after.index_add(0, torch.from_numpy(hop.target), moved))
    return values


def _argument(reached: list[Tensor], taken: int, node: Tensor, paths: Tensor, statement: Tensor) -> Tensor:
    """Return in how many ways, under attention, an argument of statements is a node, ``[nodes, G]``."""
    if taken == 0:
        return paths[:, :, 0].T.index_select(0, statement)
    chains = reached[0].shape[2]
    first = 1 + (taken - 1) * chains
    weights = paths[:, :, first : first + chains].permute(1, 0, 2)  # [S, G, C']
    return (reached[taken].index_select(0, node) * weights.index_select(0, statement)).sum(-1)
