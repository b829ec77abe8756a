"""What a trained network says, in the rule language: crisp rules, and templates with all that was learned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from rulewright.errors import DataError
from rulewright.learn.lnn.crisp import CrispReader
from rulewright.learn.lnn.grounding import TemplateGrounding
from rulewright.learn.lnn.network import TemplateNetwork
from rulewright.learn.lnn.template import Neuron
from rulewright.learn.lnn.unfolding import HeadReading
from rulewright.logic import (
    Annotations,
    Atom,
    Formula,
    Rule,
    RuleSet,
    Variable,
    WeightedFormula,
    substitute,
    variables,
)

MAX_DISAGREEMENT = 0.1
"""By how much crisp rules may disagree with the network, unless told otherwise."""

_SHOWN = 0.01  # weights below this share of a leaf's largest are not printed with a rule
_DIGITS = 3  # of numbers in rules
_EXACT_DIGITS = 17  # of those in templates, which another learner takes up as they are


@dataclass(frozen=True)
class CrispReading:
    """The crisp rules of a target, none where they would say something else than the network.

    ``disagreement`` is, of the training facts that the network or the rules hold true, the share that only one of them
    does; ``highest`` the truth value of the truest training fact.
    """

    rules: tuple[Rule, ...]
    disagreement: float
    highest: float


def write_crisp_rules(
    network: TemplateNetwork,
    grounding: TemplateGrounding,
    *,
    facts: Tensor | None = None,
    min_truth: float = 0.5,
    max_disagreement: float = MAX_DISAGREEMENT,
) -> CrispReading:
    """Return rules that give the facts to which the network gives a truth value of ``min_truth`` or more.

    ``facts`` are the positions of the facts to agree on, as `TemplateGrounding.find` has them; None is all of the
    grounding. A rule's confidence is the truth value that the network gives to the head when just the body holds. Rules
    that disagree with the network by more than ``max_disagreement`` are not given.

    >>> from rulewright.data import KnowledgeBase
    >>> from rulewright.learn.lnn.grounding import ground
    >>> from rulewright.learn.lnn.network import NetworkOptions
    >>> from rulewright.learn.lnn.template import resolve
    >>> kb = KnowledgeBase.from_facts([("a", "x"), ("a", "y"), ("b", "x"), ("b", "y"), ("c", "y")])
    >>> program = resolve("template t(X) :- ?P(X), !?Q(X) where ?P in {a}, ?Q in {b, c}.", kb)
    >>> network = TemplateNetwork(program, NetworkOptions(alpha=0.8)).eval()
    >>> network.operator("0_P").load_values([1.0, 1.0])
    >>> network.operator("0_Q").load_values([1.0, 0.1, 0.45])
    >>> network.operator("0_and").load_values([2.2, 2.5, 4.5])
    >>> reading = write_crisp_rules(network, ground(program, kb))
    >>> print(reading.rules[0].canonical(), reading.disagreement)
    t(X0) :- a(X0), !c(X0). 0.0
    """
    training = network.training
    network.eval()
    program, reader = network.program, CrispReader(network, grounding)
    root = program.nodes[program.root]
    positions = None if facts is None else facts.numpy()
    found = reader.read(program.root, tuple(range(len(root.columns))), facts=positions, min_truth=min_truth)
    network.train(training)
    rules: dict[Rule, Rule] = {}
    if found.disagreement <= max_disagreement:
        learned = _parameters(network, min_share=_SHOWN, digits=_DIGITS)
        _add_rules(rules, program.target, root.columns, found, learned)
        open_heads = list(found.negated_heads())
        for name, hidden in open_heads:
            below = reader.read(name, hidden)
            if name not in {known for known, _ in open_heads[: open_heads.index((name, hidden))]}:
                _add_rules(rules, name.removeprefix("head "), program.nodes[name].columns, below, {})
                open_heads += [head for head in below.negated_heads() if head not in open_heads]
    return CrispReading(tuple(rules.values()), found.disagreement, found.highest)


def _add_rules(
    rules: dict[Rule, Rule],
    name: str,
    columns: Sequence[Variable],
    reading: HeadReading,
    learned: Mapping[str, object],
) -> None:
    """Write the rules of a head, of those that differ in names only the first."""
    annotations = Annotations({**learned, "disagreement": _round(reading.disagreement)})
    for body, value in reading.bodies():
        rule = Rule(*_rename_variables(Atom(name, tuple(columns)), body), min(1.0, _round(value)), annotations)
        rules.setdefault(rule.canonical(), rule)


def _round(value: float, digits: int = _DIGITS) -> float:
    return float(f"{value:.{digits}g}")


def write_soft_templates(network: TemplateNetwork, templates: RuleSet) -> RuleSet:
    """Return the templates with all that was learned in their ``@{…}``; a learner takes them up again."""
    learned = []
    for position, statement in enumerate(templates):
        values = {
            neuron.label: _values(network, key, neuron, 0.0, digits=_EXACT_DIGITS)
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


def _parameters(network: TemplateNetwork, *, min_share: float, digits: int) -> dict[str, object]:
    neurons = network.program.neurons
    several = len({neuron.statement for neuron in neurons.values()}) > 1
    parameters: dict[str, object] = {}
    for key, neuron in neurons.items():
        if network.operator(key).values():
            label = f"{neuron.label}_{neuron.statement + 1}" if several else neuron.label
            parameters[label] = _values(network, key, neuron, min_share, digits)
    return parameters


def _values(network: TemplateNetwork, key: str, neuron: Neuron, min_share: float, digits: int) -> object:
    values = network.operator(key).values()
    if neuron.operation != "pred":
        return [_round(value, digits) for value in values]
    largest = max(values[1:])
    named = zip(neuron.inputs, values[1:], strict=True)
    return {name: _round(weight, digits) for name, weight in named if weight >= min_share * largest}


def _rename_variables(head: Atom, body: Iterable[Formula]) -> tuple[Atom, tuple[Formula, ...]]:
    """Name variables X, Y, Z, … in the order in which they occur."""
    parts = tuple(dict.fromkeys(body))
    old_names = dict.fromkeys((*variables(head), *(variable for part in parts for variable in variables(part))))
    new_names = [*"XYZUVW", *(f"X{position}" for position in range(len(old_names)))]
    renaming = {old: Variable(new) for old, new in zip(old_names, new_names, strict=False)}
    return substitute(head, renaming), tuple(substitute(part, renaming) for part in parts)
