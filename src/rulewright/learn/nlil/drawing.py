"""Crisp rules drawn from attentions, many at a time: every choice made, how probable it was, and the rule it gives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rulewright.learn.nlil.formulas import Alternatives, OperatorPath, RuleReader, conjoin, negate
from rulewright.learn.nlil.generator import Attentions

NONE = -1
"""Stands where there is nothing to choose."""


@dataclass(frozen=True)
class RuleDraws:
    """All choices of ``n`` draws; draw ``i`` is of rule ``group[i]`` of the attentions.

    A draw is a tree: ``nodes[d][i, w]`` is the formula at depth ``d``: a statement, or ``S + level · C + formula``,
    whose two sides are at ``d + 1``, ``2w`` and ``2w + 1``, or `NONE`; ``negated`` if its complement is meant.
    ``paths[d][side]`` has the paths of statements, ``operators[i, chain, step]`` the operators of all chains.
    """

    group: Tensor
    operators: Tensor
    nodes: tuple[Tensor, ...]
    negated: tuple[Tensor, ...]
    paths: tuple[tuple[Tensor, Tensor], ...]

    def __len__(self) -> int:
        return len(self.group)

    def take(self, rows: Tensor) -> RuleDraws:
        """Return some of the draws."""
        return RuleDraws(
            self.group[rows],
            self.operators[rows],
            tuple(nodes[rows] for nodes in self.nodes),
            tuple(negated[rows] for negated in self.negated),
            tuple((first[rows], second[rows]) for first, second in self.paths),
        )

    @staticmethod
    def join(parts: list[RuleDraws]) -> RuleDraws:
        """Return all draws of several, in their order."""
        depths = range(len(parts[0].nodes))
        return RuleDraws(
            torch.cat([part.group for part in parts]),
            torch.cat([part.operators for part in parts]),
            tuple(torch.cat([part.nodes[depth] for part in parts]) for depth in depths),
            tuple(torch.cat([part.negated[depth] for part in parts]) for depth in depths),
            tuple(
                (sides[0], sides[1])
                for sides in (
                    [torch.cat([part.paths[depth][side] for part in parts]) for side in range(2)] for depth in depths
                )
            ),
        )

    def used_operators(self) -> Tensor:
        """Return which operators are part of a path that some statement takes, ``[n, chains, steps]``."""
        _, chains, steps = self.operators.shape
        order = torch.arange(steps)
        used = torch.zeros(self.operators.shape, dtype=torch.bool)
        for sides in self.paths:
            for path in sides:
                row, column = torch.nonzero(path > 0, as_tuple=True)
                taken, chain = _decode_path(path[row, column], chains)
                longest = torch.zeros(len(self), chains, dtype=torch.long)
                longest.view(-1).scatter_reduce_(0, row * chains + chain, taken, "amax")
                used |= order < longest[:, :, None]
        return used

    def keys(self) -> npt.NDArray[np.int64]:
        """Return one row of integers for each draw; equal rows are the same rule of the same group."""
        operators = torch.where(self.used_operators(), self.operators, NONE).flatten(1)
        columns = [self.group[:, None], operators]
        for nodes, negated, (first, second) in zip(self.nodes, self.negated, self.paths, strict=True):
            columns += [nodes, negated.long(), first, second]
        keys: npt.NDArray[np.int64] = torch.cat(columns, dim=1).numpy()
        return keys


def _decode_path(path: Tensor, chains: int) -> tuple[Tensor, Tensor]:
    """Return how many steps a path takes, and of which chain; path 0 takes none."""
    return torch.where(path > 0, (path - 1) // chains + 1, 0), (path - 1).clamp(min=0) % chains


def draw_rules(
    attentions: Attentions, group: Tensor, *, random: torch.Generator | None = None, explore: float = 0.0
) -> RuleDraws:
    """Draw one rule for each entry of ``group``, or with no ``random`` take the likeliest choices.

    ``explore`` is the share of choices that are made evenly among all that are possible.
    """

    def choose(distributions: Tensor) -> Tensor:
        if random is None:
            return distributions.argmax(-1)
        if explore:
            possible = (distributions > 0).to(distributions.dtype)
            even = possible / possible.sum(-1, keepdim=True).clamp(min=1)
            distributions = (1 - explore) * distributions + explore * even
        return torch.multinomial(distributions, 1, generator=random)[:, 0]

    with torch.no_grad():
        _, chains, steps, vocabulary = attentions.operators.shape
        operators = choose(attentions.operators[group].reshape(-1, vocabulary)).view(len(group), chains, steps)
        statements = attentions.first.shape[1]
        nodes = [choose(attentions.output[group])[:, None]]
        negated = [torch.zeros(len(group), 1, dtype=torch.bool)]
        paths: list[tuple[Tensor, Tensor]] = []
        for depth in range(len(attentions.levels) + 1):
            sides = []
            row, column = torch.nonzero((nodes[depth] >= 0) & (nodes[depth] < statements), as_tuple=True)
            for attention in (attentions.first, attentions.second):
                path = torch.full_like(nodes[depth], NONE)
                if attention is not None and len(row):
                    path[row, column] = choose(attention[group[row], nodes[depth][row, column]])
                sides.append(path)
            paths.append((sides[0], sides[1]))
            if depth == len(attentions.levels):
                break
            below = nodes[depth].new_full((len(group), 2 ** (depth + 1)), NONE)
            below_negated = torch.zeros(below.shape, dtype=torch.bool)
            for level, (row, column, formula) in _find_formulas(nodes[depth], attentions):
                size, first = _count_below(level, attentions), _first_below(level, attentions)
                for side, attention in enumerate(attentions.levels[level]):
                    choice = choose(attention[group[row], formula])
                    below[row, 2 * column + side] = choice % size + first
                    below_negated[row, 2 * column + side] = choice >= size
            nodes.append(below)
            negated.append(below_negated)
    return RuleDraws(group, operators, tuple(nodes), tuple(negated), tuple(paths))


def log_probabilities(attentions: Attentions, draws: RuleDraws) -> Tensor:
    """Return the log-probability of the choices of each draw, those that its rule consists of."""
    tiny = 1e-12
    group, statements = draws.group, attentions.first.shape[1]
    total = attentions.output[group, draws.nodes[0][:, 0]].clamp(min=tiny).log()
    chosen = attentions.operators[group].gather(-1, draws.operators[..., None])[..., 0].clamp(min=tiny).log()
    total = total + torch.where(draws.used_operators(), chosen, 0.0).sum((1, 2))
    for depth, nodes in enumerate(draws.nodes):
        row, column = torch.nonzero((nodes >= 0) & (nodes < statements), as_tuple=True)
        for side, attention in enumerate((attentions.first, attentions.second)):
            if attention is not None and len(row):
                path = draws.paths[depth][side][row, column]
                logs = attention[group[row], nodes[row, column], path].clamp(min=tiny).log()
                total = total.index_add(0, row, logs)
        if depth == len(attentions.levels):
            break
        for level, (row, column, formula) in _find_formulas(nodes, attentions):
            size, first = _count_below(level, attentions), _first_below(level, attentions)
            for side, attention in enumerate(attentions.levels[level]):
                child = draws.nodes[depth + 1][row, 2 * column + side]
                position = child - first + size * draws.negated[depth + 1][row, 2 * column + side]
                total = total.index_add(0, row, attention[group[row], formula, position].clamp(min=tiny).log())
    return total


def _count_below(level: int, attentions: Attentions) -> int:
    """Return how many formulas a level chooses from, complements not counted."""
    return attentions.levels[level][0].shape[2] // 2


def _first_of(level: int, attentions: Attentions) -> int:
    """Return the code of the first formula of a level."""
    return attentions.first.shape[1] + level * attentions.levels[level][0].shape[1]


def _first_below(level: int, attentions: Attentions) -> int:
    """Return the code of the first formula that a level chooses from."""
    return 0 if level == 0 else _first_of(level - 1, attentions)


def _find_formulas(nodes: Tensor, attentions: Attentions) -> list[tuple[int, tuple[Tensor, Tensor, Tensor]]]:
    """Return for each level where its formulas stand: rows, columns, and which formula of the level it is."""
    found = []
    for level in range(len(attentions.levels)):
        local = nodes - _first_of(level, attentions)
        row, column = torch.nonzero((local >= 0) & (local < attentions.levels[level][0].shape[1]), as_tuple=True)
        if len(row):
            found.append((level, (row, column, local[row, column])))
    return found


def read_rules(draws: RuleDraws, reader: RuleReader, statements: int) -> list[Alternatives]:
    """Return the rule of each draw; ``statements`` is how many there are."""
    operators = draws.operators.tolist()
    nodes = [part.tolist() for part in draws.nodes]
    negated = [part.tolist() for part in draws.negated]
    paths = [(first.tolist(), second.tolist()) for first, second in draws.paths]
    chains = draws.operators.shape[1]

    def walk(row: int, path: int) -> OperatorPath:
        if path <= 0:
            return ()
        steps, chain = divmod(path - 1, chains)
        return tuple(operators[row][chain][: steps + 1])

    def read(row: int, depth: int, column: int) -> Alternatives:
        node = nodes[depth][row][column]
        if node < statements:
            first, second = (side[row][column] for side in paths[depth])
            formula = reader.make_literal(node, walk(row, first), walk(row, second))
        else:
            formula = conjoin(read(row, depth + 1, 2 * column), read(row, depth + 1, 2 * column + 1))
        return negate(formula) if negated[depth][row][column] else formula

    return [read(row, 0, 0) for row in range(len(draws))]
