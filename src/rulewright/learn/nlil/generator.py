"""Three stacked transformers that write the attentions of rules (Equation 15), and never see a question."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rulewright.errors import DataError
from rulewright.learn.nlil.frontier import Attentions

OWN = 8.0
"""How much faster a rule's own embeddings are learned than what all rules share, lest one draws all others along."""


@dataclass(frozen=True)
class Shape:
    """The size of a rule space and of the transformers that search it: see `NLILLearner`."""

    steps: int = 2
    chains: int = 1
    levels: int = 1
    combinations: int = 4
    negation: bool = False
    shared: bool = False
    width: int = 32
    layers: int = 3
    heads: int = 4

    def __post_init__(self) -> None:
        for name in ("steps", "chains", "combinations", "width", "layers", "heads"):
            if getattr(self, name) < 1:
                raise DataError(f"{name} must be >= 1, got {getattr(self, name)}")
        if self.levels < 0:
            raise DataError(f"levels must be >= 0, got {self.levels}")
        if self.width % self.heads:
            raise DataError(f"width must be a multiple of heads ({self.heads}), got {self.width}")


class Attend(nn.Module):
    """Layers in which queries attend to values; the last has one head, and its attention is the choice made.

    ``temperature`` divides the logits of that last attention: the lower, the sharper the choice.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        heads = [shape.heads] * (shape.layers - 1) + [1]
        self.layers = nn.ModuleList([_Layer(shape.width, each) for each in heads])

    def forward(
        self, queries: Tensor, values: Tensor, forbidden: Tensor | None = None, temperature: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """Return outputs ``[G, q, d]`` and attentions ``[G, q, v]``; ``forbidden`` (``[G, v]`` or ``[G, q, v]``)."""
        attention = queries
        for number, layer in enumerate(self.layers):
            last = number == len(self.layers) - 1
            queries, attention = layer(queries, values, forbidden, temperature if last else 1.0)
        return queries, attention


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(
        self, queries: Tensor, values: Tensor, forbidden: Tensor | None, temperature: float
    ) -> tuple[Tensor, Tensor]:
        groups, count, width = queries.shape

        def split(each: Tensor) -> Tensor:
            return each.view(groups, -1, self.heads, width // self.heads).transpose(1, 2)

        asked, keys, held = split(self.query(self.before(queries))), split(self.key(values)), split(self.value(values))
        logits = asked @ keys.transpose(2, 3) / math.sqrt(width // self.heads)
        if forbidden is not None:
            mask = forbidden[:, None, None] if forbidden.ndim == 2 else forbidden[:, None]
            logits = logits.masked_fill(mask, -1e9)
        attention = (logits / temperature).softmax(-1)
        found = self.out((attention @ held).transpose(1, 2).reshape(groups, count, width))
        queries = queries + found
        return queries + self.feed(self.after(queries)), attention[:, 0]


@dataclass(frozen=True)
class Choices:
    """What each rule may choose from, as rows of numbers padded with −1.

    ``operators[G, k]`` and ``statements[G, s]`` of ``G`` rules, ``slots`` for each target, in a vocabulary of
    ``operators_all`` and ``statements_all``; ``sides[arity, G, k]`` tells which operators may lead from which argument,
    each of which has chains of its own. ``needs_step`` are statements that say nothing of an argument itself,
    such as "is anything". ``paths`` say which paths each rule may use for first and second arguments, ``[G, paths]``:
    the empty one, and each beginning of each chain.
    """

    operators: Tensor
    sides: Tensor
    statements: Tensor
    operators_all: int
    statements_all: int
    paths: tuple[Tensor, Tensor]
    needs_step: frozenset[int]
    arity: int
    slots: int


class Generator(nn.Module):
    """Writes the rules of each target: operators, then statements, then formulas, each by its transformer.

    All embeddings are of predicates, of the target and of the place in a rule; the attentions ``T(e_X, h*, e_X')`` are
    therefore the same for every question. ``H* = FeedForward([h_k, h*])`` makes them the target's own. Unless the
    shape is ``shared``, each rule also has embeddings of its own beside those of the one vocabulary, and of operators
    each of its chains has, lest all chains take the same steps.
    """

    def __init__(self, choices: Choices, shape: Shape) -> None:
        super().__init__()
        self.choices, self.shape = choices, shape
        slots, width = choices.slots, shape.width
        targets = choices.operators.shape[0] // slots

        def learned(*size: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*size, width))

        self.operator_names = learned(choices.operators_all)
        self.statement_names = learned(choices.statements_all)
        self.target_names, self.slot_names = learned(targets, 1), learned(1, slots)
        if not shape.shared:
            self.own_operators = nn.Parameter(torch.randn(self.chains, *choices.operators.shape, width) / OWN)
            self.own_statements = nn.Parameter(torch.randn(*choices.statements.shape, width) / OWN)
        self.arguments = learned(2)
        self.as_operator, self.as_first, self.as_second = learned(), learned(), learned()
        self.step_queries = learned(shape.steps, self.chains)
        self.level_queries = learned(shape.levels, 2, shape.combinations)
        self.signs, self.output_query = learned(2), learned(1)
        self.own = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, width))
        self.run_operators, self.choose_operator = Attend(shape), Attend(shape)
        self.choose_first, self.choose_second = Attend(shape), Attend(shape)
        self.join_statement = nn.Linear(2 * width, width)
        self.choose_left, self.choose_right = Attend(shape), Attend(shape)
        self.join_formula = nn.Linear(2 * width, width)
        self.choose_output = Attend(shape)
        self.offset, self.slope = nn.Parameter(torch.zeros(self.groups)), nn.Parameter(torch.ones(self.groups))

    @property
    def chains(self) -> int:
        """How many chains a rule has: those of its first argument, then those of its second."""
        return self.shape.chains * self.choices.arity

    @property
    def groups(self) -> int:
        """How many rules are written: the slots of the first target, then those of the second, …"""
        return int(self.choices.operators.shape[0])

    def forward(self, temperature: float = 1.0) -> Attentions:
        """Write all attentions; a lower ``temperature`` makes every choice sharper."""
        choices, shape, groups = self.choices, self.shape, self.groups
        target = (self.target_names + self.slot_names).view(groups, 1, shape.width)

        def own(names: Tensor, numbers: Tensor, mine: Tensor | None) -> Tensor:
            found = names[numbers.clamp(min=0)]
            if mine is not None:
                found = found + OWN * mine
            mixed: Tensor = self.own(torch.cat([found, target.expand_as(found)], dim=-1))
            return mixed

        operator_numbers, statement_numbers = choices.operators, choices.statements
        operators = [
            own(self.operator_names, operator_numbers, None if shape.shared else self.own_operators[chain])
            for chain in range(self.chains)
        ]
        statements = own(self.statement_names, statement_numbers, None if shape.shared else self.own_statements)
        chosen, ends = self._operators(operators, temperature)
        values, firsts, seconds = self._statements(statements, statement_numbers, ends, temperature)
        absent = statement_numbers < 0
        levels, every, forbidden = self._formulas(values, absent, temperature)
        _, output = self.choose_output(self.output_query.expand(groups, 1, -1), every, forbidden, temperature)
        return Attentions(
            _placed(chosen, operator_numbers[:, None, None], choices.operators_all, 3),
            _placed_rows(firsts, statement_numbers, choices.statements_all),
            None if choices.arity == 1 else _placed_rows(seconds, statement_numbers, choices.statements_all),
            tuple(self._level(each, statement_numbers, number) for number, each in enumerate(levels)),
            self._output(output[:, 0], statement_numbers),
        )

    def log_odds(self, scores: Tensor) -> Tensor:
        """Return the log-odds ``a + b s`` of a target, given how true its rule is; ``b > 0``."""
        return self.offset + 4 * nn.functional.softplus(self.slope) * scores

    def _operators(self, operators: list[Tensor], temperature: float) -> tuple[Tensor, Tensor]:
        """Return the operator of each step and chain ``[G, C', T, k]`` and an embedding of each path."""
        shape, groups = self.shape, self.groups
        start = self.arguments.expand(groups, 2, -1)
        chosen, ends = [], [[] for _ in range(shape.steps)]  # type: list[Tensor], list[list[Tensor]]
        for chain in range(self.chains):
            absent = ~self.choices.sides[chain // shape.chains]
            values, steps, queries = start, [], operators[chain] + self.as_operator
            for step in range(shape.steps):
                results, _ = self.run_operators(queries, values)
                asked = (self.step_queries[step, chain] + self.slot_queries()).expand(groups, 1, -1)
                end, attention = self.choose_operator(asked, results, absent, temperature)
                values = torch.cat([values, end], dim=1)
                steps.append(attention[:, 0])
                ends[step].append(end)
            chosen.append(torch.stack(steps, dim=1))
        paths = [start.mean(1, keepdim=True), *(end for step in ends for end in step)]
        return torch.stack(chosen, dim=1), torch.cat(paths, dim=1)

    def slot_queries(self) -> Tensor:
        """Return what tells the rules of one target apart, ``[G, 1, d]``."""
        targets = self.groups // self.choices.slots
        return self.slot_names.expand(targets, -1, -1).reshape(self.groups, 1, -1)

    def _statements(
        self, statements: Tensor, numbers: Tensor, ends: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return embeddings of the statements, and how their two arguments are reached ``[G, s, paths]``."""
        needing = torch.isin(numbers, torch.tensor(sorted(self.choices.needs_step)))
        forbidden = [(~each)[:, None].repeat(1, numbers.shape[1], 1) for each in self.choices.paths]
        for each in forbidden:
            each[:, :, 0] |= needing
        one, first = self.choose_first(statements + self.as_first, ends, forbidden[0], temperature)
        if self.choices.arity == 1:
            return self.join_statement(torch.cat([one, one], dim=-1)), first, first
        two, second = self.choose_second(statements + self.as_second, ends, forbidden[1], temperature)
        return self.join_statement(torch.cat([one, two], dim=-1)), first, second

    def _formulas(
        self, values: Tensor, absent: Tensor, temperature: float
    ) -> tuple[list[tuple[Tensor, Tensor]], Tensor, Tensor]:
        """Return the choices of each level over formulas below and their complements, and all formulas' embeddings."""
        groups = self.groups
        levels, every, missing = [], [values], [absent]
        for level in range(self.shape.levels):
            signed = torch.cat([values + self.signs[0], values + self.signs[1]], dim=1)
            negative = absent if self.shape.negation else torch.ones_like(absent)
            forbidden = torch.cat([absent, negative], dim=1)
            sides = [
                attend(
                    self.level_queries[level, side].expand(groups, -1, -1) + self.slot_queries(),
                    signed,
                    forbidden,
                    temperature,
                )
                for side, attend in enumerate((self.choose_left, self.choose_right))
            ]
            levels.append((sides[0][1], sides[1][1]))
            values = self.join_formula(torch.cat([sides[0][0], sides[1][0]], dim=-1))
            absent = torch.zeros(groups, self.shape.combinations, dtype=torch.bool)
            every.append(values)
            missing.append(absent)
        return levels, torch.cat(every, dim=1), torch.cat(missing, dim=1)

    def _level(self, sides: tuple[Tensor, Tensor], numbers: Tensor, level: int) -> tuple[Tensor, Tensor]:
        if level:
            return sides
        count = numbers.shape[1]

        def placed(attention: Tensor) -> Tensor:
            halves = attention[:, :, :count], attention[:, :, count:]
            return torch.cat([_placed(each, numbers[:, None], self.choices.statements_all, 2) for each in halves], -1)

        return placed(sides[0]), placed(sides[1])

    def _output(self, output: Tensor, numbers: Tensor) -> Tensor:
        count = numbers.shape[1]
        return torch.cat([_placed(output[:, :count], numbers, self.choices.statements_all, 1), output[:, count:]], -1)


def _placed(attention: Tensor, numbers: Tensor, size: int, dim: int) -> Tensor:
    """Put attention over a choice of numbers (−1 for none) into a vocabulary of a size."""
    wide = attention.new_zeros(*attention.shape[:-1], size + 1)
    return wide.scatter_add(dim, numbers.expand_as(attention) % (size + 1), attention)[..., :size]


def _placed_rows(attention: Tensor, numbers: Tensor, size: int) -> Tensor:
    """Put the rows of statements into the order of all statements; one that may not be chosen has none."""
    groups, _, paths = attention.shape
    wide = attention.new_zeros(groups, size + 1, paths)
    places = (numbers % (size + 1))[:, :, None].expand_as(attention)
    return wide.scatter(1, places, attention)[:, :size]
