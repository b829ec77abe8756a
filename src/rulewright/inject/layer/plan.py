"""The plan of a grounding: which tensors to contract, in which order, and what that costs."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias
from typing import Literal as OneOf

from rulewright.errors import DataError, MemoryLimitError
from rulewright.inject.layer.coincidence import FALSE, TRUE, ClauseLiteral, Pattern
from rulewright.inject.layer.contractions import BATCH, Program
from rulewright.logic import Formula, Number, Term, Variable

if TYPE_CHECKING:
    from rulewright.inject.layer.grounding import GroundFormula, Grounding


Purpose: TypeAlias = OneOf["messages", "violations"]
"""What a plan computes: messages to all atoms that are not observed, or how many groundings are false."""

ORDERS = ("<", "<=", ">", ">=")
"""The comparisons that are tensors; equality is a matter of variables."""


@dataclass(frozen=True, slots=True)
class HeadForm:
    """How a message over some variables becomes one to all atoms of a predicate.

    ``present`` are the positions that the message has a dimension for. The others are a constant (``fixed``), the same
    variable as an earlier position (``repeats``), or free, where every index gets the message. Positions of ``apart``
    get it where they differ.
    """

    arity: int
    present: tuple[int, ...]
    fixed: tuple[tuple[int, int], ...] = ()
    repeats: tuple[tuple[int, int], ...] = ()
    apart: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Message:
    """A node of the program, how often it counts, and the statement whose weight it has."""

    statement: int
    coefficient: int
    node: int


@dataclass(frozen=True, slots=True)
class Factor:
    """The probability that an atom of a predicate is of none of ``classes``: that a literal is false."""

    predicate: str
    classes: frozenset[int]


@dataclass(frozen=True, slots=True)
class Shape:
    """What a plan depends on: sizes, which predicates and masks have a batch, which predicates are observed."""

    sizes: tuple[tuple[str, int], ...]
    batched: frozenset[str] = frozenset()
    batched_masks: frozenset[str] = frozenset()
    observed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PlanRow:
    """What a formula costs in one iteration, for one row of a batch; shared parts count where they first occur."""

    formula: str
    clauses: int
    patterns: int
    groundings: int
    contractions: int
    flops: int
    largest: int


class Plan:
    """The contractions for formulas of given sizes, and what they cost; prints as a table.

    ``messages`` has for each predicate, each set of classes and each form of head what is added up; ``violations`` the
    nodes, with coefficients, whose sum is the expected number of false groundings of each formula.
    """

    def __init__(
        self,
        grounding: Grounding,
        shape: Shape,
        purpose: Purpose = "messages",
        *,
        optimize: bool = True,
        share: bool = True,
    ) -> None:
        self.grounding, self.shape = grounding, shape
        self.sizes = dict(shape.sizes)
        self.program = Program(self.sizes, optimize=optimize, share=share)
        self.factors: dict[int, Factor] = {}
        self.ones: dict[int, str] = {}
        self.orders: dict[int, tuple[str, tuple[object, ...], Formula]] = {}
        self.messages: dict[tuple[str, frozenset[int], HeadForm], list[Message]] = {}
        self.violations: list[list[tuple[int, int]]] = []
        for part in grounding.formulas:
            self.program.owned_by = part
            if purpose == "violations":
                nodes = [(pattern.coefficient, self._contracted(part, pattern, None, ())) for pattern in part.patterns]
                self.violations.append(nodes)
                continue
            for pattern in part.patterns:
                for place, literal in enumerate(pattern.literals):
                    if literal.predicate not in ORDERS and literal.predicate not in shape.observed:
                        self._add_message(part, pattern, place)
        self.kept = frozenset(message.node for group in self.messages.values() for message in group) | {
            node for nodes in self.violations for _, node in nodes
        }

    def _add_message(self, part: GroundFormula, pattern: Pattern, place: int) -> None:
        head = pattern.literals[place]
        declaration = self.grounding.predicates[head.predicate]
        first: dict[Variable, int] = {}
        fixed: list[tuple[int, int]] = []
        repeats: list[tuple[int, int]] = []
        for position, (term, kind) in enumerate(zip(head.args, declaration.types, strict=True)):
            if not isinstance(term, Variable):
                fixed.append((position, self.grounding.index_of(term, kind)))
            elif term in first:
                repeats.append((first[term], position))
            else:
                first[term] = position
        others = [literal for number, literal in enumerate(pattern.literals) if number != place]
        spoken = {term for literal in others for term in literal.args}
        present = tuple(variable for variable in first if variable in spoken)
        mine = [pair for pair in pattern.apart if _holder(pattern, pair) == place]
        form = HeadForm(
            len(head.args),
            tuple(first[variable] for variable in present),
            tuple(fixed),
            tuple(repeats),
            tuple(sorted(_places(head, pair) for pair in mine)),
        )
        node = self._contracted(part, pattern, place, present)
        classes, coefficient = head.classes, pattern.coefficient
        if declaration.classes is None and classes == {FALSE}:  # the log-odds of false are those of true, negated
            classes, coefficient = frozenset({TRUE}), -coefficient
        group = self.messages.setdefault((head.predicate, classes, form), [])
        group.append(Message(part.statement, coefficient, node))

    def _contracted(self, part: GroundFormula, pattern: Pattern, head: int | None, output: Sequence[Variable]) -> int:
        """Add the contraction of all literals but the head, over the variables that are not in the output."""
        operands: list[tuple[int, tuple[Variable, ...]]] = []
        counted: set[Term] = set() if head is None else set(pattern.literals[head].args)
        for place, literal in enumerate(pattern.literals):
            if place == head:
                continue
            apart = [pair for pair in pattern.apart if _holder(pattern, pair) == place]
            operands.append(self._operand(part, literal, apart))
            if literal.predicate not in ORDERS:
                counted |= set(literal.args)
        for variable in pattern.variables:
            if variable not in counted:
                operands.append((self._ones(part.types[variable]), (variable,)))
        if not operands:
            return self.program.input("one", (), fixed=True)
        return self.program.contract(operands, output)

    def _ones(self, kind: str) -> int:
        batch = (BATCH,) if kind in self.shape.batched_masks else ()
        node = self.program.input(("ones", kind), (*batch, kind), fixed=True)
        self.ones[node] = kind
        return node

    def _operand(
        self, part: GroundFormula, literal: ClauseLiteral, apart: Iterable[frozenset[Term]]
    ) -> tuple[int, tuple[Variable, ...]]:
        program, grounding, shape = self.program, self.grounding, self.shape
        if literal.predicate in ORDERS:
            node, kinds = self._order(part, literal)
            batch = 0
        else:
            kinds = grounding.predicates[literal.predicate].types
            factor = Factor(literal.predicate, literal.classes)
            batched = literal.predicate in shape.batched or not shape.batched_masks.isdisjoint(kinds)
            batch = int(batched)
            dims = (BATCH, *kinds) if batched else kinds
            node = program.input(factor, dims, fixed=literal.predicate in shape.observed)
            self.factors[node] = factor
        for pair in apart:
            one, other = _places(literal, pair)
            node = program.apart(node, one + batch, other + batch)
        left = list(literal.args)
        if literal.predicate not in ORDERS:
            constants = {
                place + batch: grounding.index_of(term, kind)
                for place, (term, kind) in enumerate(zip(left, kinds, strict=True))
                if not isinstance(term, Variable)
            }
            if constants:
                node = program.select(node, constants)
        labels = [term for term in left if isinstance(term, Variable)]
        while len(set(labels)) < len(labels):
            second = next(place for place, term in enumerate(labels) if term in labels[:place])
            first = labels.index(labels[second])
            node = program.diagonal(node, first + batch, second + batch)
            del labels[second]
        return node, tuple(labels)

    def _order(self, part: GroundFormula, literal: ClauseLiteral) -> tuple[int, tuple[str, ...]]:
        """Add the comparison of two variables, or of a variable and a number, as a tensor: 1 where it is false."""
        sides: list[object] = []
        kinds: list[str] = []
        for term in literal.args:
            if isinstance(term, Variable):
                sides.append(part.types[term])
                kinds.append(part.types[term])
                self.grounding.numbers_of(part.types[term], part.formula)
            else:
                sides.append(_as_number(term, literal, part.formula))
        node = self.program.input((literal.predicate, *sides), tuple(kinds), fixed=True)
        self.orders[node] = (literal.predicate, tuple(sides), part.formula)
        return node, tuple(kinds)

    # What it costs

    @cached_property
    def rows(self) -> tuple[PlanRow, ...]:
        """What each formula costs in one iteration."""
        owned: dict[int, list[int]] = {}
        for number in range(len(self.program.nodes)):
            owned.setdefault(id(self.program.owner[number]), []).append(number)
        found = []
        for part in self.grounding.formulas:
            numbers = owned.get(id(part), [])
            costs = [self.program.costs[number] for number in numbers]
            computed = [number for number in numbers if self.program.nodes[number].operation == "multiply"]
            found.append(
                PlanRow(
                    str(part.formula),
                    len(part.clauses),
                    len(part.patterns),
                    part.groundings(self.sizes),
                    len(computed),
                    sum(each.flops for each in costs),
                    max((each.elements for each in costs), default=0),
                )
            )
        return tuple(found)

    @property
    def flops(self) -> int:
        """Floating-point operations of one iteration, for one row of a batch."""
        return sum(row.flops for row in self.rows)

    @property
    def groundings(self) -> int:
        """The number of groundings of all formulas."""
        return sum(row.groundings for row in self.rows)

    def memory(self, *, batch: int = 1, bytes_each: int = 4, iterations: int = 1, training: bool = False) -> int:
        """Return the bytes that an iteration holds at most; in training, those that all iterations keep."""
        if training:
            elements = iterations * sum(cost.elements for cost in self.program.costs)
        else:
            elements = self.program.peak_elements(self.kept)
        return batch * bytes_each * elements

    def check_memory(self, needed: int, allowed: int) -> None:
        """Refuse what would hold more bytes than are allowed."""
        if needed > allowed:
            worst = max(self.rows, key=lambda row: row.largest)
            raise MemoryLimitError(
                f"grounding needs {readable(needed)} and the limit is {readable(allowed)}; the largest tensor, of "
                f"{worst.largest:,} elements, is for: {worst.formula} — split the formula, use fewer entities (a "
                "sample of them, smaller worlds or batches), fewer iterations, or raise memory_limit"
            )

    def __str__(self) -> str:
        head = ("formula", "clauses", "groundings", "contractions", "FLOPs", "largest tensor")
        table = [head] + [
            (
                row.formula,
                f"{row.clauses:,}",
                f"{row.groundings:,}",
                f"{row.contractions:,}",
                f"{row.flops:.2e}",
                f"{row.largest:,}",
            )
            for row in self.rows
        ]
        widths = [max(len(line[column]) for line in table) for column in range(len(head))]
        lines = [
            "  ".join(
                text.ljust(width) if place == 0 else text.rjust(width) for place, (text, width) in enumerate(each)
            )
            for each in (list(zip(line, widths, strict=True)) for line in table)
        ]
        sizes = ", ".join(f"{kind} {size:,}" for kind, size in self.shape.sizes)
        cost = f"{self.flops:.2e} FLOPs and {readable(self.memory())} an iteration"
        return "\n".join([*lines, f"{sizes}: {self.groundings:,} groundings, {cost}"])


def _as_number(term: Term, literal: ClauseLiteral, formula: Formula) -> float:
    try:
        return float(term.value if isinstance(term, Number) else term.name)
    except ValueError:
        raise DataError(f"{literal.predicate} compares numbers, got {term}, in: {formula}") from None


def _holder(pattern: Pattern, pair: Collection[Term]) -> int:
    """Return the literal that keeps a pair apart: the first that has both."""
    return next(place for place, literal in enumerate(pattern.literals) if set(pair) <= set(literal.args))


def _places(literal: ClauseLiteral, pair: Collection[Term]) -> tuple[int, int]:
    first, second = sorted(literal.args.index(term) for term in pair)
    return first, second


def default_memory_limit() -> int:
    """Return half of the machine's memory, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def readable(size: int) -> str:
    """Return a number of bytes as people read it.

    >>> readable(3 * 2**20)
    '3.0 MB'
    """
    value = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1024:
            return f"{value:,.1f} {unit}" if unit != "bytes" else f"{size} bytes"
        value /= 1024
    return f"{value:,.1f} TB"
