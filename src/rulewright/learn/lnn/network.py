"""The network of a template: its operators, shared by all facts, and the flow of truth values over a grounding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from rulewright.checks import OneOf, ParameterRule, Real, check_parameters
from rulewright.learn.lnn.grounding import GroundFrame, Hidden, OwnFacts, TemplateGrounding
from rulewright.learn.lnn.nodes import Check, Expression, Flip, Frame, Gate, HeadNode, Leaf, Look, TemplateProgram
from rulewright.learn.lnn.operators import LEAK, Form, Mixer, Mixture, Negation, Operator, connective, mixer

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
    "alpha": Real(0.5, 1, above=True),
    "slack": Real(0, above=True, optional=True),
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
        made: dict[str, Operator] = {}
        for key, neuron in program.neurons.items():
            arity = len(neuron.inputs)
            if neuron.kind == "pred":
                made[key] = mixer(self.options.leaves, arity, start=self.options.start)
            else:
                form: Form = self.options.connectives if neuron.learned else "product"
                made[key] = connective(neuron.kind, form, arity, alpha=self.options.alpha, slack=self.options.slack)
        for each in made.values():
            each.leak = self.options.leak
        self.operators = nn.ModuleDict(made)
        self.negation = Negation()

    def operator(self, key: str) -> Operator:
        """Return an operator by its key in the program's neurons."""
        found = self.operators[key]
        assert isinstance(found, Operator)
        return found

    def penalty(self) -> Tensor:
        """Return the sum of the operators' penalties."""
        return torch.stack([self.operator(key).penalty() for key in self.operators] or [torch.zeros(())]).sum()

    def leaf_weights(self) -> Tensor:
        """Return the sum of all leaves' weights, by which a leaf can be kept sparse."""
        leaves = [self.operator(key) for key, each in self.program.neurons.items() if each.kind == "pred"]
        return torch.stack([each.weights().sum() for each in leaves] or [torch.zeros(())]).sum()

    def project_(self) -> None:
        """Bring all parameters back to where gradients reach them."""
        for key in self.operators:
            self.operator(key).project_()

    def forward(self, grounding: TemplateGrounding) -> Tensor:
        """Compute the truth values of the target's facts."""
        arguments = tuple(range(len(self.program.types[self.program.root])))
        return _Flow(self, grounding).facts(self.program.root, arguments)


class _Flow:
    """One pass; each node is computed once, or twice where it is looked up with and without the predicted fact."""

    def __init__(self, network: TemplateNetwork, grounding: TemplateGrounding) -> None:
        self.network, self.grounding = network, grounding
        self.nodes = grounding.program.nodes
        self._facts: dict[tuple[str, Hidden | None], Tensor] = {}
        self._totals: dict[tuple[str, Hidden | None], Tensor] = {}

    def facts(self, name: str, hidden: Hidden | None) -> Tensor:
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

    def _leaf(self, leaf: Leaf, hidden: Hidden | None) -> Tensor:
        ground = self.grounding.leaves[leaf.name]
        operator = None if leaf.operator is None else self.network.operator(leaf.operator)
        weights = torch.ones(1, dtype=torch.float64) if operator is None else operator.weights()
        given = weights[ground.members]
        if ground.derived:
            given = given * self._given(leaf, hidden)
        total = torch.zeros(ground.size, dtype=torch.float64).index_add(0, ground.rows, given)
        self._totals[leaf.name, hidden] = total
        return total if operator is None else self._mixed(operator, total)

    def _given(self, leaf: Leaf, hidden: Hidden | None) -> Tensor:
        """Return the truth values of all facts that a leaf is made of."""
        constants, key = self.grounding.constants, (f"members of {leaf.name}", hidden)
        if key in constants:
            return constants[key]
        ground = self.grounding.leaves[leaf.name]
        arguments = None if hidden is None else [leaf.columns[place] for place in hidden]
        inner = None
        if arguments is not None and all(each in leaf.unit.args for each in arguments):
            inner = tuple(leaf.unit.args.index(each) for each in arguments)
        parts = [self.facts(node, inner)[facts] for node, facts in ground.derived]
        found = torch.cat([torch.ones(ground.base, dtype=torch.float64), *parts])
        if all(self.grounding.program.is_fixed(node) for node, _ in ground.derived):
            constants[key] = found.detach()
        return found

    @staticmethod
    def _mixed(operator: Operator, total: Tensor) -> Tensor:
        assert isinstance(operator, Mixer)
        return operator.mixed(total)

    def _frame(self, frame: Frame, hidden: Hidden | None) -> Tensor:
        ground = self.grounding.frames[frame.name]
        own = None if hidden is None else ground.own.get(hidden)
        arguments = None if hidden is None else [frame.columns[place] for place in hidden]
        looked = iter(range(len(ground.looks)))

        def value(expression: Expression) -> Tensor:
            match expression:
                case Look(node, variables):
                    inner = None
                    if arguments is not None and all(each in variables for each in arguments):
                        inner = tuple(variables.index(each) for each in arguments)
                    place = next(looked)
                    return self._looked_up(node, inner, ground.looks[place], own[place] if own else None)
                case Flip(part):
                    return self.network.negation(value(part)[..., None])  # type: ignore[no-any-return]
                case Check(comparison):
                    return ground.checks[comparison].double()
            return self._gate(expression, [value(each) for each in expression.parts], ground)

        return self._reduced(value(frame.expression), ground)

    def _looked_up(self, node: str, hidden: Hidden | None, index: Tensor, own: OwnFacts | None) -> Tensor:
        values = _padded(self.facts(node, hidden))[index]
        if own is None:
            return values
        leaf = self.nodes[node]
        assert isinstance(leaf, Leaf)
        operator = None if leaf.operator is None else self.network.operator(leaf.operator)
        weights = torch.ones(1, dtype=torch.float64) if operator is None else operator.weights()
        rest = self._totals[node, hidden][index[own.rows]].index_add(0, own.places, -weights[own.members])
        return values.index_copy(0, own.rows, rest if operator is None else self._mixed(operator, rest))

    def _gate(self, gate: Gate, parts: list[Tensor], ground: GroundFrame) -> Tensor:
        if gate.operator is not None:
            found: Tensor = self.network.operator(gate.operator)(torch.stack(parts, dim=-1))
        else:
            found = parts[0] if parts else torch.ones(ground.rows, dtype=torch.float64)
        for each in gate.checks:
            found = torch.where(ground.checks[each], found, 0.0)
        return found

    def _reduced(self, values: Tensor, ground: GroundFrame) -> Tensor:
        empty = torch.zeros(ground.size, dtype=torch.float64)
        if self.network.options.reduction == "sum":
            return empty.index_add(0, ground.facts, values)
        return empty.scatter_reduce(0, ground.facts, values, "amax", include_self=False)

    def _head(self, head: HeadNode, hidden: Hidden | None) -> Tensor:
        ground = self.grounding.heads[head.name]
        parts = [
            _padded(self.facts(clause, hidden))[index]
            for clause, index in zip(head.clauses, ground.clauses, strict=True)
        ]
        if head.operator is None:
            return parts[0]
        joined: Tensor = self.network.operator(head.operator)(torch.stack(parts, dim=-1))
        return joined


def _padded(values: Tensor) -> Tensor:
    """Add a false fact at the end, for the index −1."""
    return torch.cat([values, values.new_zeros(1)])
