"""A network unfolded for reading: every place of its template where a literal may stand, and what was kept, written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from rulewright.learn.lnn.grounding import HiddenColumns, find_arguments
from rulewright.learn.lnn.network import TemplateNetwork
from rulewright.learn.lnn.template import Check, Expression, Flip, Frame, Gate, HeadNode, Leaf, Look
from rulewright.logic import Atom, Comparison, Formula, Membership, Not, Term, Variable, substitute

Kept: TypeAlias = frozenset[int]
Bits: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Slot:
    """A leaf where a frame looks it up; its members are literals from ``first`` on.

    ``heads`` has for members that are derived their own unfolding, except under a negation.
    """

    index: int
    first: int
    leaf: Leaf
    unit: Atom | Membership
    position: int
    hidden: HiddenColumns | None
    negated: bool
    heads: Mapping[int, UnfoldedHead]

    @property
    def literals(self) -> range:
        """The indices of its literals."""
        return range(self.first, self.first + len(self.leaf.members))

    def write(self, member: int) -> Formula:
        """Return the literal of a member."""
        name = (
            self.leaf.members[member].removeprefix("head ") if self.leaf.derived[member] else self.leaf.members[member]
        )
        atom = self.unit if isinstance(self.unit, Membership) else Atom(name, self.unit.args)
        return Not(atom) if self.negated else atom


@dataclass(frozen=True)
class Nested:
    """An alternative with variables of its own."""

    frame: UnfoldedFrame
    position: int


@dataclass(frozen=True)
class UnfoldedGate:
    """A connective; in an "or" that a part is there at all is a literal too, from ``first`` on."""

    operator: str | None
    parts: tuple[Part, ...]
    checks: tuple[Comparison, ...]
    first: int | None


Part: TypeAlias = Slot | Nested | Check | UnfoldedGate


@dataclass(frozen=True)
class UnfoldedFrame:
    """A frame with its variables' names in a rule."""

    index: int
    frame: Frame
    hidden: HiddenColumns | None
    names: Mapping[Variable, Term]
    part: Part


@dataclass(frozen=True)
class UnfoldedHead:
    """A head; where it has several clauses, that one is there at all is a literal, from ``first`` on."""

    head: HeadNode
    clauses: tuple[UnfoldedFrame, ...]
    first: int | None


@dataclass(frozen=True)
class HeadReading:
    """Rules for a head: the literals of each with its truth value, and which of the facts compared they give.

    ``disagreement`` is, of the facts that the network or the rules hold true, the share that only one of them does;
    ``highest`` the truth value that the network gives to the truest fact.
    """

    unfolded: Unfolding
    chosen: tuple[tuple[Kept, float], ...]
    holds: Bits
    disagreement: float
    highest: float

    def bodies(self) -> Iterator[tuple[tuple[Formula, ...], float]]:
        """Yield the bodies of the rules, with the truth values that they give."""
        for kept, value in self.chosen:
            yield tuple(self.unfolded.write(kept)), value

    def negated_heads(self) -> Iterator[tuple[str, HiddenColumns | None]]:
        """Yield the heads that the rules negate."""
        for kept, _ in self.chosen:
            for slot in self.unfolded.slots:
                for member, literal in enumerate(slot.literals):
                    if slot.negated and slot.leaf.derived[member] and literal in kept:
                        yield slot.leaf.members[member], find_inner(slot)


def find_inner(slot: Slot) -> HiddenColumns | None:
    """Return in which columns the members of a slot carry the arguments of the predicted fact."""
    arguments = None if slot.hidden is None else [slot.leaf.columns[position] for position in slot.hidden]
    return find_arguments(arguments, slot.leaf.unit.args)


class Unfolding:
    """A head with all that it looks up, each look-up on its own: a tree of literals, to be kept or left out."""

    def __init__(self, network: TemplateNetwork, name: str, hidden: HiddenColumns | None) -> None:
        self.network, self.nodes = network, network.program.nodes
        self.slots: list[Slot] = []
        self.frames: list[UnfoldedFrame] = []
        self.weights: list[float] = []
        self.choices: list[range] = []  # the literals that say which part of an "or" is there
        self._fresh = count()
        self._next_frame = count()
        self.root = self._unfold_head(name, hidden, self.nodes[name].columns)

    def _add(self, weights: Iterable[float]) -> int:
        first = len(self.weights)
        self.weights += weights
        return first

    def _add_choice(self, operator: str | None, size: int) -> int | None:
        if operator is None or size < 2:
            return None
        first = self._add(self.network.operator(operator).weights().tolist())
        self.choices.append(range(first, first + size))
        return first

    def _unfold_head(self, name: str, hidden: HiddenColumns | None, terms: Sequence[Term]) -> UnfoldedHead:
        head = self.nodes[name]
        assert isinstance(head, HeadNode)
        first = self._add_choice(head.operator, len(head.clauses))
        clauses = tuple(self._unfold_frame(clause, hidden, terms) for clause in head.clauses)
        return UnfoldedHead(head, clauses, first)

    def _unfold_frame(self, name: str, hidden: HiddenColumns | None, terms: Sequence[Term]) -> UnfoldedFrame:
        frame = self.nodes[name]
        assert isinstance(frame, Frame)
        names: dict[Variable, Term] = dict(zip(frame.columns, terms, strict=True))
        names |= {own: Variable(f"_R{next(self._fresh)}") for own in frame.variables if own not in names}
        arguments = None if hidden is None else [frame.columns[position] for position in hidden]
        positions = count()

        def unfold(expression: Expression, negated: bool = False) -> Part:
            match expression:
                case Look(node, variables):
                    position, inner = next(positions), find_arguments(arguments, variables)
                    if isinstance(leaf := self.nodes[node], Leaf):
                        return self._unfold_leaf(leaf, position, inner, names, negated)
                    return Nested(self._unfold_frame(node, inner, [names[one] for one in variables]), position)
                case Flip(part):
                    return unfold(part, True)
                case Check():
                    return expression
            assert isinstance(expression, Gate)
            is_choice = expression.connective == "or"
            first = self._add_choice(expression.operator, len(expression.parts)) if is_choice else None
            return UnfoldedGate(expression.operator, tuple(map(unfold, expression.parts)), expression.checks, first)

        unfolded = UnfoldedFrame(next(self._next_frame), frame, hidden, names, unfold(frame.expression))
        self.frames.append(unfolded)
        return unfolded

    def _unfold_leaf(
        self, leaf: Leaf, position: int, hidden: HiddenColumns | None, names: Mapping[Variable, Term], negated: bool
    ) -> Slot:
        weights = [1.0] if leaf.operator is None else self.network.operator(leaf.operator).weights().tolist()
        first = self._add(weights)
        unit = substitute(leaf.unit, names)
        arguments = None if hidden is None else [leaf.columns[column] for column in hidden]
        inner = find_arguments(arguments, leaf.unit.args)
        heads = {
            member: self._unfold_head(name, inner, unit.args)
            for member, (name, derived) in enumerate(zip(leaf.members, leaf.derived, strict=True))
            if derived and not negated
        }
        slot = Slot(len(self.slots), first, leaf, unit, position, hidden, negated, heads)
        self.slots.append(slot)
        return slot

    def write(self, kept: Kept) -> list[Formula]:
        """Return the body that some literals are, in the order of the template."""
        literals: list[Formula] = []

        def write_head(head: UnfoldedHead) -> None:
            for position, clause in enumerate(head.clauses):
                if head.first is None or head.first + position in kept:
                    write_part(clause.part, clause.names)

        def write_part(part: Part, names: Mapping[Variable, Term]) -> None:
            match part:
                case Slot():
                    for member, literal in enumerate(part.literals):
                        if literal in kept and member in part.heads:
                            write_head(part.heads[member])
                        elif literal in kept:
                            literals.append(part.write(member))
                case Nested(frame):
                    write_part(frame.part, frame.names)
                case Check(comparison):
                    literals.append(substitute(comparison, names))
                case UnfoldedGate():
                    for position, inner in enumerate(part.parts):
                        if part.first is None or part.first + position in kept:
                            write_part(inner, names)
                    literals.extend(substitute(check, names) for check in part.checks)

        write_head(self.root)
        return literals

    def by_weight(self, literals: Iterable[int]) -> list[int]:
        """Return literals in the order in which they are left out: the lightest first, of equals the last."""
        return sorted(literals, key=lambda literal: (self.weights[literal], -literal))
