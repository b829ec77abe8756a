"""What a trained network says, in the rule language: crisp rules, and templates with all that was learned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, product

import torch

from rulewright.errors import DataError
from rulewright.learn.lnn.network import TemplateNetwork
from rulewright.learn.lnn.template import Check, Expression, Flip, Frame, HeadNode, Leaf, Look, Neuron
from rulewright.logic import (
    Annotations,
    Atom,
    Formula,
    Membership,
    Not,
    Rule,
    RuleSet,
    Term,
    Variable,
    WeightedFormula,
    substitute,
    variables,
)

MAX_READINGS = 50
"""How many readings of a part of a template are followed."""

_SHOWN = 0.01  # weights below this share of a leaf's largest are not printed with a rule


@dataclass(frozen=True)
class Reading:
    """A conjunction of literals that makes a part of a template true, and how true it makes it."""

    body: tuple[Formula, ...]
    value: float


def write_crisp_rules(network: TemplateNetwork, *, min_truth: float = 0.5) -> list[Rule]:
    """Return the rules that make the target at least so true by themselves, the truest first.

    Each choice of predicates and of an alternative is a rule; its confidence is the truth value that the network gives
    to the head when the body holds and nothing else does. Where none reaches ``min_truth`` the best one is returned.
    """
    reader = _TemplateReader(network)
    program = network.program
    root = program.nodes[program.root]
    head = Atom(program.target, root.columns)
    readings = reader.readings(program.root)
    chosen = [reading for reading in readings if reading.value >= min_truth] or readings[:1]
    distinct: dict[Rule, Rule] = {}
    learned = _parameters(network, min_share=_SHOWN)
    for reading in chosen:
        if reading.value > 0:
            rule = Rule(*_rename_variables(head, reading.body), min(1.0, round(reading.value, 6)), Annotations(learned))
            distinct.setdefault(rule.canonical(), rule)
    rules = list(distinct.values())
    for name in reader.needed:
        node = program.nodes[f"head {name}"]
        for reading in reader.readings(node.name):
            if reading.value >= min_truth:
                rules.append(
                    Rule(*_rename_variables(Atom(name, node.columns), reading.body), min(1.0, round(reading.value, 6)))
                )
    return rules


def write_soft_templates(network: TemplateNetwork, templates: RuleSet) -> RuleSet:
    """Return the templates with all that was learned in their ``@{…}``; a learner takes them up again."""
    learned = []
    for position, statement in enumerate(templates):
        values = {
            neuron.label: _values(network, key, neuron, 0.0, digits=12)
            for key, neuron in network.program.neurons.items()
            if neuron.statement == position and network.operator(key).values()
        }
        if values and not isinstance(statement, WeightedFormula):
            statement = replace(statement, annotations=Annotations({**statement.annotations, **values}))
        learned.append(statement)
    return RuleSet(learned, predicates=templates.predicates, closed=templates.closed)


def load_parameters(network: TemplateNetwork, templates: RuleSet) -> None:
    """Put what templates carry in their ``@{…}`` into the operators of a network."""
    for key, neuron in network.program.neurons.items():
        given = templates[neuron.statement].annotations.get(neuron.label)
        if isinstance(given, Mapping):
            missing = set(given) ^ set(neuron.inputs)
            if missing:
                raise DataError(f"the weights of ?{neuron.label} and its domain differ in {', '.join(sorted(missing))}")
            first = 1.0 if network.options.leaves == "pred" else 0.0
            network.operator(key).load_values([first, *(float(given[name]) for name in neuron.inputs)])
        elif isinstance(given, Sequence) and not isinstance(given, str):
            network.operator(key).load_values([float(value) for value in given])


def _parameters(network: TemplateNetwork, *, min_share: float) -> dict[str, object]:
    neurons = network.program.neurons
    several = len({neuron.statement for neuron in neurons.values()}) > 1
    parameters: dict[str, object] = {}
    for key, neuron in neurons.items():
        if network.operator(key).values():
            label = f"{neuron.label}_{neuron.statement + 1}" if several else neuron.label
            parameters[label] = _values(network, key, neuron, min_share)
    return parameters


def _values(network: TemplateNetwork, key: str, neuron: Neuron, min_share: float, digits: int = 6) -> object:
    values = network.operator(key).values()
    if neuron.operation != "pred":
        return [round(value, digits) for value in values]
    largest = max(values[1:])
    named = zip(neuron.inputs, values[1:], strict=True)
    return {name: round(weight, digits) for name, weight in named if weight >= min_share * largest}


def _rename_variables(head: Atom, body: Iterable[Formula]) -> tuple[Atom, tuple[Formula, ...]]:
    """Name variables X, Y, Z, … in the order in which they occur."""
    parts = tuple(dict.fromkeys(body))
    old_names = dict.fromkeys((*variables(head), *(variable for part in parts for variable in variables(part))))
    new_names = [*"XYZUVW", *(f"X{position}" for position in range(len(old_names)))]
    renaming = {old: Variable(new) for old, new in zip(old_names, new_names, strict=False)}
    return substitute(head, renaming), tuple(substitute(part, renaming) for part in parts)


class _TemplateReader:
    def __init__(self, network: TemplateNetwork) -> None:
        self.network, self.nodes = network, network.program.nodes
        self.needed: dict[str, None] = {}
        self._known: dict[str, list[Reading]] = {}
        self._fresh = count()

    def readings(self, name: str) -> list[Reading]:
        if name not in self._known:
            node = self.nodes[name]
            if isinstance(node, Leaf):
                readings = self._read_leaf(node)
            elif isinstance(node, Frame):
                readings = self._read_expression(node.expression)
            else:
                readings = self._read_head(node)
            self._known[name] = _best(readings)
        return self._known[name]

    def _read_leaf(self, leaf: Leaf) -> list[Reading]:
        readings = []
        for position, (member, derived) in enumerate(zip(leaf.members, leaf.derived, strict=True)):
            if not derived:
                unit = leaf.unit if isinstance(leaf.unit, Membership) else Atom(member, leaf.unit.args)
                readings.append(Reading((unit,), self._run_alone(leaf.operator, len(leaf.members), position, 1.0)))
                continue
            called = dict(zip(self.nodes[member].columns, leaf.unit.args, strict=True))
            for inner in self.readings(member):
                value = self._run_alone(leaf.operator, len(leaf.members), position, inner.value)
                readings.append(Reading(self._call(inner.body, called), value))
        return readings

    def _call(self, body: Sequence[Formula], given: Mapping[Variable, Term]) -> tuple[Formula, ...]:
        """Put terms for a body's outer variables, and variables that nothing else has for its own."""
        own = dict.fromkeys(variable for part in body for variable in variables(part) if variable not in given)
        renaming = {**given, **{old: Variable(f"_R{next(self._fresh)}") for old in own}}
        return tuple(substitute(part, renaming) for part in body)

    def _run(self, key: str | None, inputs: Sequence[float]) -> float:
        """Return what an operator makes of its inputs; without one there is one input, or none."""
        if key is None:
            return inputs[0] if inputs else 1.0
        operator = self.network.operator(key)
        training = operator.training
        operator.eval()
        with torch.no_grad():
            value = float(operator(torch.tensor(inputs, dtype=torch.float64)))
        operator.train(training)
        return value

    def _run_alone(self, key: str | None, arity: int, position: int, value: float) -> float:
        """Return what an operator makes of one input where all others are false."""
        return self._run(key, [value * (other == position) for other in range(arity)])

    def _read_expression(self, expression: Expression) -> list[Reading]:
        match expression:
            case Look(node):
                return self.readings(node)
            case Check(comparison):
                return [Reading((comparison,), 1.0)]
            case Flip(part):
                return [self._read_negation(part)]
        parts = [_best(self._read_expression(part)) for part in expression.parts]
        if expression.connective == "or":
            return [
                Reading(reading.body, self._run_alone(expression.operator, len(parts), position, reading.value))
                for position, readings in enumerate(parts)
                for reading in readings
            ]
        joined = []
        for choice in product(*parts):
            body = tuple(part for reading in choice for part in reading.body)
            value = self._run(expression.operator, [reading.value for reading in choice])
            joined.append(Reading((*body, *expression.checks), value))
        return joined

    def _read_negation(self, part: Expression) -> Reading:
        """Read a negated leaf: none of the predicates that it mostly is may hold."""
        assert isinstance(part, Look)
        leaf = self.nodes[part.node]
        assert isinstance(leaf, Leaf)
        body: list[Formula] = []
        for position, (member, derived) in enumerate(zip(leaf.members, leaf.derived, strict=True)):
            if self._run_alone(leaf.operator, len(leaf.members), position, 1.0) < 0.5:
                continue
            name = member.removeprefix("head ") if derived else member
            if derived:
                self.needed[name] = None
            body.append(Not(leaf.unit if isinstance(leaf.unit, Membership) else Atom(name, leaf.unit.args)))
        return Reading(tuple(body), 1.0)

    def _read_head(self, head: HeadNode) -> list[Reading]:
        readings = []
        for position, name in enumerate(head.clauses):
            renaming = dict(zip(self.nodes[name].columns, head.columns, strict=True))
            for reading in self.readings(name):
                value = self._run_alone(head.operator, len(head.clauses), position, reading.value)
                readings.append(Reading(self._call(reading.body, renaming), value))
        return readings


def _best(readings: list[Reading]) -> list[Reading]:
    return sorted(readings, key=lambda reading: -reading.value)[:MAX_READINGS]
