"""The network of a template: its operators, shared by all facts, and the flow of truth values over a grounding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from rulewright.checks import OneOf, ParameterRule, Real, check_parameters
from rulewright.learn.lnn.grounding import HiddenColumns, OwnFacts, TemplateGrounding, find_arguments
from rulewright.learn.lnn.operators import (
    ALPHA,
    LEAK,
    SLACK,
    Form,
    Mixer,
    Mixture,
    Negation,
    Operator,
    make_connective,
    make_mixer,
)
from rulewright.learn.lnn.template import Check, Expression, Flip, Frame, HeadNode, Leaf, Look, TemplateProgram

Reduction = Literal["max", "sum"]


@dataclass(frozen=True)
class NetworkOptions:
    """How operators are made: see `LNNLearner`."""

    alpha: float = 0.95
    slack: float | None = None
    connectives: Form = "lnn"
    leaves: Mixture = "pred"
    reduction: Reduction = "max"
    start: float = 1e-3
    leak: float = LEAK

    def __post_init__(self) -> None:
        check_parameters(vars(self), NETWORK_RULES)


NETWORK_RULES: Mapping[str, ParameterRule] = {
    "alpha": ALPHA,
    "slack": SLACK,
    "connectives": OneOf("lnn", "product", "lukasiewicz"),
    "leaves": OneOf("pred", "attention"),
    "reduction": OneOf("max", "sum"),
    "start": Real(0, above=True),
    "leak": Real(0, 1, below=True),
}
"""What the parameters of a network may be."""


class TemplateNetwork(nn.Module):
    """ψ of every fact that a template gives: ``network(grounding)`` is a tensor, in the order of ``grounding.facts``.

    >>> from rulewright.data import KnowledgeBase
    >>> from rulewright.learn.lnn.grounding import ground
    >>> from rulewright.learn.lnn.template import resolve
    >>> kb = KnowledgeBase.from_facts([("a", "1", "2"), ("a", "1", "5"), ("b", "1", "2"), ("c", "2", "5")])
    >>> program = resolve("template r(X, Z) :- ?P(X, Y), ?Q(Y, Z) where ?P in {a, b}, ?Q in {c}.", kb)
    >>> network = TemplateNetwork(program, NetworkOptions(start=0.5)).eval()
    >>> network(ground(program, kb)).shape
    torch.Size([1])
    """

    def __init__(self, program: TemplateProgram, options: NetworkOptions | None = None) -> None:
        super().__init__()
        self.program, self.options = program, options or NetworkOptions()
        operators: dict[str, Operator] = {}
        for key, neuron in program.neurons.items():
            arity = len(neuron.inputs)
            if neuron.operation == "pred":
                operators[key] = make_mixer(self.options.leaves, arity, start=self.options.start)
            else:
                form: Form = self.options.connectives if neuron.learned else "product"
                alpha, slack = self.options.alpha, self.options.slack
                operators[key] = make_connective(neuron.operation, form, arity, alpha=alpha, slack=slack)
        for operator in operators.values():
            operator.leak = self.options.leak
        self.operators = nn.ModuleDict(operators)
        self.negation = Negation()

    def operator(self, key: str) -> Operator:
        """Return an operator by its key in the program's neurons."""
        operator = self.operators[key]
        assert isinstance(operator, Operator)
        return operator

    def penalty(self) -> Tensor:
        """Return the sum of the operators' penalties."""
        return torch.stack([self.operator(key).penalty() for key in self.operators] or [torch.zeros(())]).sum()

    def leaf_weights(self) -> Tensor:
        """Return the sum of all leaves' weights, by which a leaf can be kept sparse."""
        leaves = [self.operator(key) for key, neuron in self.program.neurons.items() if neuron.operation == "pred"]
        return torch.stack([leaf.weights().sum() for leaf in leaves] or [torch.zeros(())]).sum()

    def project_(self) -> None:
        """Bring all parameters back to where gradients reach them."""
        for key in self.operators:
            self.operator(key).project_()

    def forward(self, grounding: TemplateGrounding) -> Tensor:
        """Compute the truth values of the target's facts."""
        arguments = tuple(range(len(self.program.types[self.program.root])))
        return TruthFlow(self, grounding).facts(self.program.root, arguments)


class TruthFlow:
    """One pass; each node is computed once, or twice where it is looked up with and without the predicted fact.

    ``rows`` has the truth values of the rows of every frame that was computed.
    """

    def __init__(self, network: TemplateNetwork, grounding: TemplateGrounding) -> None:
        self.network, self.grounding = network, grounding
        self.nodes = grounding.program.nodes
        self._facts: dict[tuple[str, HiddenColumns | None], Tensor] = {}
        self._totals: dict[tuple[str, HiddenColumns | None], Tensor] = {}
        self.rows: dict[tuple[str, HiddenColumns | None], Tensor] = {}

    def facts(self, name: str, hidden: HiddenColumns | None) -> Tensor:
        """Return the truth values of a node's facts; ``hidden`` are its columns with the predicted fact's arguments."""
        constants = self.grounding.constants
        if (name, hidden) in constants:
            return constants[name, hidden]
        if (name, hidden) not in self._facts:
            node = self.nodes[name]
            if isinstance(node, Leaf):
                self._facts[name, hidden] = self._leaf(node, hidden)
            elif isinstance(node, Frame):
                self._facts[name, hidden] = self._frame(node, hidden)
            else:
                self._facts[name, hidden] = self._head(node, hidden)
                if self.grounding.program.is_fixed(name):
                    constants[name, hidden] = self._facts[name, hidden].detach()
        return self._facts[name, hidden]

    def _leaf(self, leaf: Leaf, hidden: HiddenColumns | None) -> Tensor:
        ground = self.grounding.leaves[leaf.name]
        weights, mix = self._mixture(leaf)
        given = weights[ground.members]
        if ground.derived:
            given = given * self._member_values(leaf, hidden)
        total = torch.zeros(ground.size, dtype=torch.float64).index_add(0, ground.rows, given)
        self._totals[leaf.name, hidden] = total
        return mix(total)

    def _mixture(self, leaf: Leaf) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Return the weights of a leaf's members, and what makes a truth value of their sum."""
        if leaf.operator is None:
            return torch.ones(1, dtype=torch.float64), lambda total: total
        operator = self.network.operator(leaf.operator)
        assert isinstance(operator, Mixer)
        return operator.weights(), operator.mix

    def _member_values(self, leaf: Leaf, hidden: HiddenColumns | None) -> Tensor:
        """Return the truth values of all facts that a leaf is made of."""
        constants, key = self.grounding.constants, (f"members of {leaf.name}", hidden)
        if key in constants:
            return constants[key]
        ground = self.grounding.leaves[leaf.name]
        arguments = None if hidden is None else [leaf.columns[position] for position in hidden]
        inner = find_arguments(arguments, leaf.unit.args)
        parts = [self.facts(node, inner)[facts] for node, facts in ground.derived]
        values = torch.cat([torch.ones(ground.base, dtype=torch.float64), *parts])
        if all(self.grounding.program.is_fixed(node) for node, _ in ground.derived):
            constants[key] = values.detach()
        return values

    def _frame(self, frame: Frame, hidden: HiddenColumns | None) -> Tensor:
        ground = self.grounding.frames[frame.name]
        own = None if hidden is None else ground.own.get(hidden)
        arguments = None if hidden is None else [frame.columns[position] for position in hidden]
        positions = iter(range(len(ground.looks)))

        def value(expression: Expression) -> Tensor:
            match expression:
                case Look(node, variables):
                    position = next(positions)
                    inner = find_arguments(arguments, variables)
                    return self._look_up(node, inner, ground.looks[position], own[position] if own else None)
                case Flip(part):
                    return self.network.negation(value(part)[..., None])  # type: ignore[no-any-return]
                case Check(comparison):
                    return ground.checks[comparison].double()
            parts = [value(part) for part in expression.parts]
            if expression.operator is not None:
                values: Tensor = self.network.operator(expression.operator)(torch.stack(parts, dim=-1))
            else:
                values = parts[0] if parts else torch.ones(ground.rows, dtype=torch.float64)
            for check in expression.checks:
                values = torch.where(ground.checks[check], values, 0.0)
            return values

        values, empty = value(frame.expression), torch.zeros(ground.size, dtype=torch.float64)
        self.rows[frame.name, hidden] = values
        if self.network.options.reduction == "sum":
            return empty.index_add(0, ground.facts, values)
        return empty.scatter_reduce(0, ground.facts, values, "amax", include_self=False)

    def _look_up(self, node: str, hidden: HiddenColumns | None, index: Tensor, own: OwnFacts | None) -> Tensor:
        values = _pad(self.facts(node, hidden))[index]
        if own is None:
            return values
        leaf = self.nodes[node]
        assert isinstance(leaf, Leaf)
        weights, mix = self._mixture(leaf)
        rest = self._totals[node, hidden][index[own.rows]].index_add(0, own.positions, -weights[own.members])
        return values.index_copy(0, own.rows, mix(rest))

    def _head(self, head: HeadNode, hidden: HiddenColumns | None) -> Tensor:
        clauses = zip(head.clauses, self.grounding.heads[head.name], strict=True)
        parts = [_pad(self.facts(clause, hidden))[index] for clause, index in clauses]
        if head.operator is None:
            return parts[0]
        joined: Tensor = self.network.operator(head.operator)(torch.stack(parts, dim=-1))
        return joined


def _pad(values: Tensor) -> Tensor:
    """Add a false fact at the end, for the index −1."""
    return torch.cat([values, values.new_zeros(1)])
