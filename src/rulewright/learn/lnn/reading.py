"""What a trained network says, in the rule language: crisp rules, and templates with all that was learned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, product

import torch

from rulewright.errors import DataError
from rulewright.learn.lnn.network import TemplateNetwork
from rulewright.learn.lnn.nodes import Check, Expression, Flip, Frame, Gate, HeadNode, Leaf, Look, Neuron
from rulewright.learn.lnn.operators import Mixer
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

MOST_READINGS = 50
"""How many readings of a part of a template are followed."""

_SHOWN = 0.01  # weights below this share of a leaf's largest are not printed with a rule


@dataclass(frozen=True)
class Reading:
    """A conjunction of literals that makes a part of a template true, and how true it makes it."""

    body: tuple[Formula, ...]
    value: float


def crisp_rules(network: TemplateNetwork, *, min_truth: float = 0.5) -> list[Rule]:
    """Return the rules that make the target at least so true by themselves, the truest first.

    Each choice of predicates and of an alternative is a rule; its confidence is the truth value that the network gives
    to the head when the body holds and nothing else does. Where none reaches ``min_truth`` the best one is returned.
    """
    reader = _TemplateReader(network)
    program = network.program
    root = program.nodes[program.root]
    head = Atom(program.target, root.columns)
    readings = reader.readings(program.root)
    chosen = [each for each in readings if each.value >= min_truth] or readings[:1]
    found: dict[Rule, Rule] = {}
    learned = _parameters(network, least_share=_SHOWN)
    for reading in chosen:
        if reading.value > 0:
            rule = Rule(*_tidied(head, reading.body), min(1.0, round(reading.value, 6)), Annotations(learned))
            found.setdefault(rule.canonical(), rule)
    rules = list(found.values())
    for name in reader.needed:
        node = program.nodes[f"head {name}"]
        for reading in reader.readings(node.name):
            if reading.value >= min_truth:
                rules.append(Rule(*_tidied(Atom(name, node.columns), reading.body), min(1.0, round(reading.value, 6))))
    return rules


def soft_templates(network: TemplateNetwork, templates: RuleSet) -> RuleSet:
    """Return the templates with all that was learned in their ``@{…}``; a learner takes them up again."""
    found = []
    for number, statement in enumerate(templates):
        values = {
            neuron.label: _values(network, key, neuron, 0.0, digits=12)
            for key, neuron in network.program.neurons.items()
            if neuron.statement == number and network.operator(key).values()
        }
        if values and not isinstance(statement, WeightedFormula):
            statement = replace(statement, annotations=Annotations({**statement.annotations, **values}))
        found.append(statement)
    return RuleSet(found, predicates=templates.predicates, closed=templates.closed)


def load_parameters(network: TemplateNetwork, templates: RuleSet) -> None:
    """Put what templates carry in their ``@{…}`` into the operators of a network."""
    for key, neuron in network.program.neurons.items():
        given = templates[neuron.statement].annotations.get(neuron.label)
        if isinstance(given, Mapping):
            missing = set(given) ^ set(neuron.inputs)
            if missing:
                raise DataError(f"the weights of ?{neuron.label} and its domain differ in {', '.join(sorted(missing))}")
            first = 1.0 if network.options.leaves == "pred" else 0.0
            network.operator(key).load_values([first, *(float(given[each]) for each in neuron.inputs)])
        elif isinstance(given, Sequence) and not isinstance(given, str):
            network.operator(key).load_values([float(each) for each in given])


def _parameters(network: TemplateNetwork, *, least_share: float) -> dict[str, object]:
    neurons = network.program.neurons
    several = len({each.statement for each in neurons.values()}) > 1
    found: dict[str, object] = {}
    for key, neuron in neurons.items():
        if network.operator(key).values():
            label = f"{neuron.label}_{neuron.statement + 1}" if several else neuron.label
            found[label] = _values(network, key, neuron, least_share)
    return found


def _values(network: TemplateNetwork, key: str, neuron: Neuron, least_share: float, digits: int = 6) -> object:
    values = network.operator(key).values()
    if neuron.kind != "pred":
        return [round(each, digits) for each in values]
    largest = max(values[1:])
    named = zip(neuron.inputs, values[1:], strict=True)
    return {name: round(each, digits) for name, each in named if each >= least_share * largest}


def _tidied(head: Atom, body: Iterable[Formula]) -> tuple[Atom, tuple[Formula, ...]]:
    """Name variables X, Y, Z, … in the order in which they occur."""
    parts = tuple(dict.fromkeys(body))
    every = dict.fromkeys((*variables(head), *(each for part in parts for each in variables(part))))
    names = [*"XYZUVW", *(f"X{number}" for number in range(len(every)))]
    renaming = {old: Variable(new) for old, new in zip(every, names, strict=False)}
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
                found = self._leaf(node)
            elif isinstance(node, Frame):
                found = self._expression(node.expression)
            else:
                found = self._head(node)
            self._known[name] = _best(found)
        return self._known[name]

    def _leaf(self, leaf: Leaf) -> list[Reading]:
        found = []
        for number, (member, derived) in enumerate(zip(leaf.members, leaf.derived, strict=True)):
            if not derived:
                unit = leaf.unit if isinstance(leaf.unit, Membership) else Atom(member, leaf.unit.args)
                found.append(Reading((unit,), self._mixed(leaf, number, 1.0)))
                continue
            called = dict(zip(self.nodes[member].columns, leaf.unit.args, strict=True))
            for each in self.readings(member):
                found.append(Reading(self._called(each.body, called), self._mixed(leaf, number, each.value)))
        return found

    def _called(self, body: Sequence[Formula], given: Mapping[Variable, Term]) -> tuple[Formula, ...]:
        """Put terms for a body's outer variables, and variables that nothing else has for its own."""
        own = dict.fromkeys(each for part in body for each in variables(part) if each not in given)
        renaming = {**given, **{old: Variable(f"_R{next(self._fresh)}") for old in own}}
        return tuple(substitute(part, renaming) for part in body)

    def _mixed(self, leaf: Leaf, member: int, value: float) -> float:
        if leaf.operator is None:
            return value
        operator = self.network.operator(leaf.operator)
        assert isinstance(operator, Mixer)
        return self._run(operator, [value * (place == member) for place in range(operator.arity)])

    @staticmethod
    def _run(operator: torch.nn.Module, inputs: Sequence[float]) -> float:
        training = operator.training
        operator.eval()
        with torch.no_grad():
            found = float(operator(torch.tensor(inputs, dtype=torch.float64)))
        operator.train(training)
        return found

    def _expression(self, expression: Expression) -> list[Reading]:
        match expression:
            case Look(node):
                return self.readings(node)
            case Check(comparison):
                return [Reading((comparison,), 1.0)]
            case Flip(part):
                return [self._negated(part)]
        parts = [_best(self._expression(each)) for each in expression.parts]
        if expression.kind == "or":
            return [
                Reading(each.body, self._joined(expression, [each.value * (n == place) for n in range(len(parts))]))
                for place, readings in enumerate(parts)
                for each in readings
            ]
        found = []
        for choice in product(*parts):
            body = tuple(part for each in choice for part in each.body)
            found.append(
                Reading((*body, *expression.checks), self._joined(expression, [each.value for each in choice]))
            )
        return found

    def _joined(self, gate: Gate, values: list[float]) -> float:
        if gate.operator is None:
            return values[0] if values else 1.0
        return self._run(self.network.operator(gate.operator), values)

    def _negated(self, part: Expression) -> Reading:
        """Read a negated leaf: none of the predicates that it mostly is may hold."""
        assert isinstance(part, Look)
        leaf = self.nodes[part.node]
        assert isinstance(leaf, Leaf)
        body: list[Formula] = []
        for number, (member, derived) in enumerate(zip(leaf.members, leaf.derived, strict=True)):
            if self._mixed(leaf, number, 1.0) < 0.5:
                continue
            name = member.removeprefix("head ") if derived else member
            if derived:
                self.needed[name] = None
            body.append(Not(leaf.unit if isinstance(leaf.unit, Membership) else Atom(name, leaf.unit.args)))
        return Reading(tuple(body), 1.0)

    def _head(self, head: HeadNode) -> list[Reading]:
        found = []
        for place, name in enumerate(head.clauses):
            renaming = dict(zip(self.nodes[name].columns, head.columns, strict=True))
            for each in self.readings(name):
                value = each.value
                if head.operator is not None:
                    operator = self.network.operator(head.operator)
                    value = self._run(operator, [value * (number == place) for number in range(len(head.clauses))])
                found.append(Reading(self._called(each.body, renaming), value))
        return found


def _best(readings: list[Reading]) -> list[Reading]:
    return sorted(readings, key=lambda each: -each.value)[:MOST_READINGS]
