"""What a template is made of once its names are resolved: leaves, frames and heads, each a table of facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, product
from typing import TypeAlias

from rulewright.errors import DataError
from rulewright.logic import Atom, Comparison, Literal, Membership, Variable
from rulewright.logic.rules import MAX_ALTERNATIVES


@dataclass(frozen=True)
class Look:
    """The truth value of a node's fact, found by the values of variables."""

    node: str
    variables: tuple[Variable, ...]


@dataclass(frozen=True)
class Flip:
    """One minus a truth value."""

    part: Expression


@dataclass(frozen=True)
class Check:
    """A comparison: 0 or 1."""

    comparison: Comparison


@dataclass(frozen=True)
class Gate:
    """A connective; ``checks`` are comparisons that must hold besides, and are no inputs of an operator.

    ``operator`` is None where a conjunction has one part beside its comparisons.
    """

    kind: str
    operator: str | None
    parts: tuple[Expression, ...]
    checks: tuple[Comparison, ...] = ()


Expression: TypeAlias = Look | Flip | Check | Gate


@dataclass(frozen=True)
class Leaf:
    """``?P(X, Y)`` or ``p(X, Y)``: the union of the facts of its members, mixed by an operator where it has a hole.

    ``members`` are predicates of the knowledge base, or names of heads where ``derived`` says so.
    """

    name: str
    unit: Atom | Membership
    columns: tuple[Variable, ...]
    members: tuple[str, ...]
    derived: tuple[bool, ...]
    operator: str | None


@dataclass(frozen=True)
class Frame:
    """A body, or an alternative with variables of its own: rows over ``variables``, projected to ``columns``."""

    name: str
    variables: tuple[Variable, ...]
    columns: tuple[Variable, ...]
    expression: Expression

    def bodies(self) -> list[tuple[Literal, ...]]:
        """Return the conjunctive bodies whose groundings together are all rows that can be true.

        A negated part asks for nothing: its truth value is the rest of one that may be anything.
        """
        found = [frozenset(each) for each in _alternatives(self.expression)]
        least = [each for each in dict.fromkeys(found) if not any(other < each for other in found)]
        return [tuple(sorted(each, key=str)) for each in least]


@dataclass(frozen=True)
class HeadNode:
    """A predicate that clauses define; where there are several an operator joins them."""

    name: str
    columns: tuple[Variable, ...]
    clauses: tuple[str, ...]
    operator: str | None


Node: TypeAlias = Leaf | Frame | HeadNode


@dataclass(frozen=True)
class Neuron:
    """An operator to be made: ``pred``, ``and`` or ``or``, with names for its inputs; fixed in plain rules.

    ``label`` is its name within the statement it stands in, number ``statement``.
    """

    kind: str
    inputs: tuple[str, ...]
    learned: bool
    label: str
    statement: int


def looks(expression: Expression) -> Iterator[Look]:
    """Yield what an expression looks up, from left to right."""
    match expression:
        case Look():
            yield expression
        case Flip(part):
            yield from looks(part)
        case Gate(parts=parts):
            for each in parts:
                yield from looks(each)


def _alternatives(expression: Expression) -> list[tuple[Literal, ...]]:
    match expression:
        case Look(node, variables):
            return [(Literal(Atom(node, variables)),)]
        case Flip():
            return [()]
        case Check(comparison):
            return [(Literal(comparison),)]
    parts = [_alternatives(each) for each in expression.parts]
    if expression.kind == "or":
        return list(chain.from_iterable(parts))
    checks = tuple(Literal(each) for each in expression.checks)
    found = []
    for choice in product(*parts):
        found.append((*chain.from_iterable(choice), *checks))
        if len(found) > MAX_ALTERNATIVES:
            raise DataError(f"a template with more than {MAX_ALTERNATIVES} alternatives when multiplied out; split it")
    return found


@dataclass(frozen=True)
class TemplateProgram:
    """A template made ready for a knowledge base: its nodes, each after those it looks up, and its operators.

    ``types`` has the types of every node's columns; ``root`` is the node whose facts are predicted.
    """

    target: str
    root: str
    nodes: Mapping[str, Node]
    types: Mapping[str, tuple[str, ...]]
    neurons: Mapping[str, Neuron]

    def reaches(self, name: str, predicates: frozenset[str]) -> bool:
        """Tell whether a node's truth values rest on facts of some predicates."""
        node = self.nodes[name]
        match node:
            case Leaf():
                members = zip(node.members, node.derived, strict=True)
                return any(self.reaches(each, predicates) if head else each in predicates for each, head in members)
            case Frame():
                return any(self.reaches(each.node, predicates) for each in looks(node.expression))
        return any(self.reaches(each, predicates) for each in node.clauses)

    def is_fixed(self, name: str) -> bool:
        """Tell whether a node's truth values depend on nothing that is learned."""
        node = self.nodes[name]
        match node:
            case Leaf():
                members = zip(node.members, node.derived, strict=True)
                return node.operator is None and all(self.is_fixed(each) for each, head in members if head)
            case Frame():
                gates = all(key is None or not self.neurons[key].learned for key in _operators(node.expression))
                return gates and all(self.is_fixed(each.node) for each in looks(node.expression))
        learned = node.operator is not None and self.neurons[node.operator].learned
        return not learned and all(map(self.is_fixed, node.clauses))


def _operators(expression: Expression) -> Iterator[str | None]:
    match expression:
        case Flip(part):
            yield from _operators(part)
        case Gate(operator=operator, parts=parts):
            yield operator
            for each in parts:
                yield from _operators(each)
