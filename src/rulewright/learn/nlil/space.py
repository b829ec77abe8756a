"""The relaxed rules: paths, primitive statements and logical combinations under attention (Equations 3 to 14).

A group ``g`` is one rule of one target. Paths ``κ_0 = 1`` and ``κ_{c,t} = Π_{t' ≤ t} Σ_k s_k^(c,t') M_k`` for each of
``C'`` chains; statements count what paths reach, ``n_s = Σ_t s_t (M_s 1)ᵀ κ_t v`` about one argument and
``n_s = (M_s Σ_t s_t κ_t v_x)ᵀ (Σ_t s'_t κ_t v_x')`` about two, and are as true as ``1 − exp(−n)``. A level's formulas
are products of two formulas of the level below, or of their complements, and the score attends over all levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rulewright.learn.nlil.facts import IDENTITY
from rulewright.learn.nlil.frontier import Evidence, Frontier

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
