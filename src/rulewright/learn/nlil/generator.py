"""Relaxed rules: what attention over choices means (Equations 3 to 14), and the transformers that write it (15)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from rulewright.learn.nlil.choices import RuleChoices, RuleShape
from rulewright.learn.nlil.facts import IDENTITY
from rulewright.learn.nlil.frontier import Frontier, QuestionEvidence

OWN = 8.0
"""How much faster a rule's own embeddings are learned than what all rules share, lest all rules move together."""

Truth = Literal["exponential", "paper"]


@dataclass(frozen=True)
class Attentions:
    """All choices of ``G`` rules, each a distribution over its last dimension.

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

    def entropy(self) -> Tensor:
        """Return the mean entropy of the choices that a rule consists of, weighted by how much each matters for it.

        Operators and outputs always matter; the path of a statement as much as the output attends to it.
        """
        statements = self.first.shape[1]
        weight = self.output[:, :statements] + 1e-3
        total = _entropy(self.operators).mean((1, 2)) + _entropy(self.output)
        for paths in (self.first, self.second):
            if paths is not None:
                total = total + (_entropy(paths) * weight).sum(1)
        for left, right in self.levels:
            total = total + (_entropy(left) + _entropy(right)).mean(1)
        return total.mean()


def _entropy(attention: Tensor) -> Tensor:
    return -(attention * attention.clamp(min=1e-12).log()).sum(-1)


def score_questions(attentions: Attentions, evidence: QuestionEvidence, truth: Truth = "exponential") -> Tensor:
    """Return how true each rule is of each question, ``[questions, G]``.

    What the evidence does not name is false, so only pairs (question, statement) that it does name are held: memory
    and time grow with the steps touched, not with entities × predicates.
    """
    counts = _count_statements(attentions, evidence)
    values = torch.sigmoid(counts) if truth == "paper" else -torch.expm1(-counts)
    at_rest = 0.5 if truth == "paper" else 0.0  # the value of statements without evidence
    row = torch.from_numpy(evidence.row)
    statement = torch.from_numpy(evidence.statement)
    excess = values - at_rest

    def attend(weights: Tensor) -> Tensor:
        """Return ``Σ_s w[g, q, s] f_s`` as ``[questions, G, q]``."""
        rest = at_rest * weights.sum(-1)
        total = excess.new_zeros(evidence.n_questions, *weights.shape[:2])
        total = total.index_add(0, row, excess[:, :, None] * weights.permute(2, 0, 1).index_select(0, statement))
        return total + rest

    statements = attentions.first.shape[1]
    score = attend(attentions.output[:, None, :statements])[:, :, 0]
    below: Tensor | None = None
    start = statements
    for level in attentions.levels:
        if below is None:
            # Σ_s a_s f_s + Σ_s a'_s (1 − f_s) = Σ_s (a_s − a'_s) f_s + Σ_s a'_s
            sides = [
                attend(side[:, :, :statements] - side[:, :, statements:]) + side[:, :, statements:].sum(-1)
                for side in level
            ]
        else:
            signed = torch.cat([below, 1 - below], dim=2)
            sides = [torch.einsum("bgs,gcs->bgc", signed, side) for side in level]
        below = sides[0] * sides[1]
        score = score + (below * attentions.output[:, start : start + below.shape[2]]).sum(-1)
        start += below.shape[2]
    return score


def _count_statements(attentions: Attentions, evidence: QuestionEvidence) -> Tensor:
    """Return the relaxed count of each pair (question, statement) of the evidence under each rule, ``[pairs, G]``."""
    values = [_path_values(attentions.operators, frontier) for frontier in evidence.frontiers]
    counts = attentions.operators.new_zeros(len(evidence.row), len(attentions.operators))
    for term in evidence.terms:
        statement = torch.from_numpy(term.statement)
        product: Tensor | None = None
        for side, (reached, paths) in enumerate(((term.left, attentions.first), (term.right, attentions.second))):
            if reached is None:
                continue
            assert paths is not None, "a statement about two arguments needs attention over the paths of the second"
            taken, node = reached
            if taken == 0:
                value = paths[:, :, 0].T.index_select(0, statement)
            else:
                chains = attentions.operators.shape[1]
                first = 1 + (taken - 1) * chains
                weights = paths[:, :, first : first + chains].permute(1, 0, 2)  # [S, G, C']
                at_node = values[side][taken].index_select(0, torch.from_numpy(node))
                value = (at_node * weights.index_select(0, statement)).sum(-1)
            product = value if product is None else product * value
        assert product is not None
        counts = counts.index_add(0, torch.from_numpy(term.pair), product)
    return counts


def _path_values(operators: Tensor, frontier: Frontier) -> list[Tensor]:
    """Return for each number of steps in how many ways, under attention, each node is reached, ``[nodes, G, C']``."""
    groups, chains, _, _ = operators.shape
    values = [operators.new_ones(len(frontier.rows[0]), groups, chains)]
    for step, hop in enumerate(frontier.hops):
        weights = operators[:, :, step].permute(2, 0, 1)  # [K, G, C']
        before = values[-1]
        after = before.new_zeros(len(frontier.rows[step + 1]), groups, chains)
        after = after.index_add(0, torch.from_numpy(hop.stay), before * weights[IDENTITY])
        chosen = weights.index_select(0, torch.from_numpy(hop.operator))
        moved = before.index_select(0, torch.from_numpy(hop.source)) * chosen
        values.append(after.index_add(0, torch.from_numpy(hop.target), moved))
    return values


class Attend(nn.Module):
    """Layers in which queries attend to values; the last has one head, and its attention is the choice made.

    ``temperature`` divides the logits of that last attention: the lower, the sharper the choice.
    """

    def __init__(self, shape: RuleShape) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [_AttentionLayer(shape.width, heads) for heads in [shape.heads] * (shape.layers - 1) + [1]]
        )

    def forward(
        self, queries: Tensor, values: Tensor, forbidden: Tensor | None = None, temperature: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """Return outputs ``[G, q, d]`` and attentions ``[G, q, v]``; ``forbidden`` (``[G, v]`` or ``[G, q, v]``)."""
        attention = queries
        for depth, layer in enumerate(self.layers, start=1):
            queries, attention = layer(queries, values, forbidden, temperature if depth == len(self.layers) else 1.0)
        return queries, attention


class _AttentionLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.before, self.beside, self.after = (nn.LayerNorm(width) for _ in range(3))

    def forward(
        self, queries: Tensor, values: Tensor, forbidden: Tensor | None, temperature: float
    ) -> tuple[Tensor, Tensor]:
        groups, count, width = queries.shape

        def split_heads(rows: Tensor) -> Tensor:
            return rows.view(groups, -1, self.heads, width // self.heads).transpose(1, 2)

        values = self.beside(values)  # or else what is summed up over many steps would settle all choices
        query, key = split_heads(self.query(self.before(queries))), split_heads(self.key(values))
        logits = query @ key.transpose(2, 3) / (math.sqrt(width // self.heads) * temperature)
        if forbidden is not None:
            mask = forbidden[:, None, None] if forbidden.ndim == 2 else forbidden[:, None]
            logits = logits.masked_fill(mask, torch.finfo(logits.dtype).min)
        attention = logits.softmax(-1)
        attended = (attention @ split_heads(self.value(values))).transpose(1, 2).reshape(groups, count, width)
        queries = queries + self.out(attended)
        return queries + self.feed(self.after(queries)), attention[:, 0]


class Generator(nn.Module):
    """Writes the rules of each target: operators, then statements, then formulas, each by its transformer.

    All embeddings are of predicates, of the target and of the position in a rule; the attentions ``T(e_X, h*, e_X')``
    are therefore the same for every question. ``H* = FeedForward([h_k, h*])`` makes them the target's own. Unless the
    shape is ``shared``, each rule also has embeddings of its own beside those of the one vocabulary, and so has each of
    its chains for operators, lest all chains take the same steps.
    """

    def __init__(self, choices: RuleChoices, shape: RuleShape) -> None:
        super().__init__()
        self.choices, self.shape = choices, shape
        slots, width = choices.slots, shape.width
        self.n_rules = int(choices.operators.shape[0])  # the slots of the first target, then those of the second, …
        self.n_chains = shape.chains * choices.arity  # those of the first argument, then those of the second
        targets = self.n_rules // slots

        def learned(*size: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*size, width))

        self.operator_names = learned(choices.n_operators)
        self.statement_names = learned(choices.n_statements)
        self.target_names, self.slot_names = learned(targets, 1), learned(1, slots)
        if not shape.shared:
            self.own_operators = nn.Parameter(torch.randn(self.n_chains, *choices.operators.shape, width) / OWN)
            self.own_statements = nn.Parameter(torch.randn(*choices.statements.shape, width) / OWN)
        self.arguments = learned(2)
        self.as_operator, self.as_first, self.as_second = learned(), learned(), learned()
        self.step_queries = learned(shape.steps, self.n_chains)
        self.level_queries = learned(shape.levels, 2, shape.combinations)
        self.signs, self.output_query = learned(2), learned(1)
        self.own = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, width))
        self.run_operators, self.choose_operator = Attend(shape), Attend(shape)
        self.choose_first, self.choose_second = Attend(shape), Attend(shape)
        self.join_statement = nn.Linear(2 * width, width)
        self.choose_left, self.choose_right = Attend(shape), Attend(shape)
        self.join_formula = nn.Linear(2 * width, width)
        self.choose_output = Attend(shape)
        self.offset, self.slope = nn.Parameter(torch.zeros(self.n_rules)), nn.Parameter(torch.ones(self.n_rules))

    def forward(self, temperature: float = 1.0) -> Attentions:
        """Write all attentions; a lower ``temperature`` makes every choice sharper."""
        choices, shape = self.choices, self.shape
        target = (self.target_names + self.slot_names).view(self.n_rules, 1, shape.width)

        def embed(names: Tensor, codes: Tensor, own: Tensor | None) -> Tensor:
            embedded = names[codes.clamp(min=0)]
            if own is not None:
                embedded = embedded + OWN * own
            mixed: Tensor = self.own(torch.cat([embedded, target.expand_as(embedded)], dim=-1))
            return mixed

        operators = [
            embed(self.operator_names, choices.operators, None if shape.shared else self.own_operators[chain])
            for chain in range(self.n_chains)
        ]
        statements = embed(self.statement_names, choices.statements, None if shape.shared else self.own_statements)
        chosen, ends = self._choose_operators(operators, temperature)
        values, first, second = self._choose_paths(statements, ends, temperature)
        levels, formulas, absent = self._combine(values, temperature)
        _, output = self.choose_output(self.output_query.expand(self.n_rules, 1, -1), formulas, absent, temperature)
        count = choices.statements.shape[1]

        def spread(attention: Tensor) -> Tensor:
            """Put attention over the statements that a rule may choose into the order of all statements."""
            return _scatter(attention, choices.statements[:, None], choices.n_statements)

        if levels:
            left, right = (torch.cat([spread(side[..., :count]), spread(side[..., count:])], -1) for side in levels[0])
            levels[0] = left, right
        return Attentions(
            _scatter(chosen, choices.operators[:, None, None], choices.n_operators),
            _scatter_rows(first, choices.statements, choices.n_statements),
            None if second is None else _scatter_rows(second, choices.statements, choices.n_statements),
            tuple(levels),
            torch.cat([spread(output[..., :count]), output[..., count:]], -1)[:, 0],
        )

    def log_odds(self, scores: Tensor) -> Tensor:
        """Return the log-odds ``a + b s`` of a target, given how true its rule is; ``b > 0``."""
        return self.offset + 4 * nn.functional.softplus(self.slope) * scores

    def _slot_queries(self) -> Tensor:
        """Return what distinguishes the rules of one target, ``[G, 1, d]``."""
        targets = self.n_rules // self.choices.slots
        return self.slot_names.expand(targets, -1, -1).reshape(self.n_rules, 1, -1)

    def _choose_operators(self, operators: list[Tensor], temperature: float) -> tuple[Tensor, Tensor]:
        """Return the operator of each step and chain ``[G, C', T, k]`` and an embedding of each path."""
        shape, rules = self.shape, self.n_rules
        start = self.arguments.expand(rules, 2, -1)
        chosen: list[Tensor] = []
        ends: list[list[Tensor]] = [[] for _ in range(shape.steps)]
        for chain in range(self.n_chains):
            absent = ~self.choices.sides[chain // shape.chains]
            values, steps, queries = start, [], operators[chain] + self.as_operator
            for step in range(shape.steps):
                results, _ = self.run_operators(queries, values)
                query = (self.step_queries[step, chain] + self._slot_queries()).expand(rules, 1, -1)
                end, attention = self.choose_operator(query, results, absent, temperature)
                values = torch.cat([values, end], dim=1)
                steps.append(attention[:, 0])
                ends[step].append(end)
            chosen.append(torch.stack(steps, dim=1))
        paths = [start.mean(1, keepdim=True), *(end for step_ends in ends for end in step_ends)]
        return torch.stack(chosen, dim=1), torch.cat(paths, dim=1)

    def _choose_paths(
        self, statements: Tensor, ends: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return embeddings of the statements, and how their arguments are reached ``[G, s, paths]``."""
        codes = self.choices.statements
        needs_step = torch.isin(codes, torch.tensor(sorted(self.choices.needs_step)))
        forbidden = [(~paths)[:, None].repeat(1, codes.shape[1], 1) for paths in self.choices.paths]
        for mask in forbidden:
            mask[:, :, 0] |= needs_step
        one, first = self.choose_first(statements + self.as_first, ends, forbidden[0], temperature)
        if self.choices.arity == 1:
            return self.join_statement(torch.cat([one, one], dim=-1)), first, None
        two, second = self.choose_second(statements + self.as_second, ends, forbidden[1], temperature)
        return self.join_statement(torch.cat([one, two], dim=-1)), first, second

    def _combine(self, values: Tensor, temperature: float) -> tuple[list[tuple[Tensor, Tensor]], Tensor, Tensor]:
        """Return what each level chooses of the formulas below and their complements, and the embeddings of all."""
        absent = self.choices.statements < 0
        levels, formulas, missing = [], [values], [absent]
        for level in range(self.shape.levels):
            signed = torch.cat([values + self.signs[0], values + self.signs[1]], dim=1)
            forbidden = torch.cat([absent, absent if self.shape.negation else torch.ones_like(absent)], dim=1)
            queries = [query.expand(self.n_rules, -1, -1) + self._slot_queries() for query in self.level_queries[level]]
            left, left_choice = self.choose_left(queries[0], signed, forbidden, temperature)
            right, right_choice = self.choose_right(queries[1], signed, forbidden, temperature)
            levels.append((left_choice, right_choice))
            values = self.join_formula(torch.cat([left, right], dim=-1))
            absent = torch.zeros(self.n_rules, self.shape.combinations, dtype=torch.bool)
            formulas.append(values)
            missing.append(absent)
        return levels, torch.cat(formulas, dim=1), torch.cat(missing, dim=1)


def _scatter(attention: Tensor, codes: Tensor, size: int) -> Tensor:
    """Put attention over some codes (−1 for none) into a vocabulary of a size."""
    wide = attention.new_zeros(*attention.shape[:-1], size + 1)
    return wide.scatter_add(-1, codes.expand_as(attention) % (size + 1), attention)[..., :size]


def _scatter_rows(attention: Tensor, codes: Tensor, size: int) -> Tensor:
    """Put the rows of statements into the order of all statements; one that may not be chosen has none."""
    groups, _, paths = attention.shape
    wide = attention.new_zeros(groups, size + 1, paths)
    positions = (codes % (size + 1))[:, :, None].expand_as(attention)
    return wide.scatter(1, positions, attention)[:, :size]
