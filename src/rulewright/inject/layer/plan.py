"""The plan of a rule set's messages: which tensors to contract, in which order, what that costs; and running it.

The message of a clause to one of its atoms, the head, is the product of the probabilities that its other literals are
false, summed over all groundings in which the head is that atom: one contraction for each head (`Plan._plan_message`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, reduce
from math import prod
from typing import TYPE_CHECKING, Literal, TypeAlias

import torch
from torch import Tensor

from rulewright.errors import DataError, MemoryLimitError
from rulewright.inject.inputs import GroundInputs, InputShape
from rulewright.inject.layer.contractions import BATCH, VIEWS, ContractionProgram, diagonal_mask
from rulewright.inject.layer.grounding import FALSE, TRUE, ClauseLiteral, GroundFormula, Grounding, Pattern
from rulewright.inject.layer.rates import format_seconds, measure_rates
from rulewright.logic import Number, Term, Variable

if TYPE_CHECKING:
    from rulewright.inject.layer.exact import CliqueTree

Purpose: TypeAlias = Literal["messages", "violations", "hard violations"]
"""What a plan computes: messages to all atoms that are not observed, or how many groundings are false, of all formulas
or of hard ones."""

Weigh: TypeAlias = Callable[[str, Tensor], Tensor]
"""What makes factors of the probabilities that the literals of a predicate are false, in place of these."""

ORDERS = ("<", "<=", ">", ">=")
"""The comparisons that are tensors; equality is a matter of variables."""

KEPT_PLANS = 256
"""How many plans are kept for sizes that may come again."""


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

    def spread(
        self, message: Tensor, sizes: Sequence[int], dtype: torch.dtype, device: torch.device
    ) -> tuple[Tensor, Tensor | None]:
        """Give a message a dimension for each argument, and say where it arrives, 1 or 0; None is everywhere."""
        lead = message.ndim - len(self.present)
        for position in range(self.arity):
            if position not in self.present:
                message = message.unsqueeze(lead + position)
        views = []
        for position, index in self.fixed:
            one_hot = torch.zeros(sizes[position], dtype=dtype, device=device)
            one_hot[index] = 1
            views.append(one_hot.view([-1 if position == other else 1 for other in range(self.arity)]))
        for pairs, inside in ((self.repeats, 1), (self.apart, 0)):
            views += [diagonal_mask(sizes[pair[0]], self.arity, pair, dtype, device, inside=inside) for pair in pairs]
        return message, reduce(torch.mul, views) if views else None


@dataclass(frozen=True, slots=True)
class Message:
    """A node of the program, how often it counts, and the formula and the statement whose weight it has.

    ``coefficient`` is negative where the message is against the classes it goes to; ``count`` is its pattern's own.
    """

    statement_index: int
    formula_index: int
    coefficient: int
    count: int
    node: int


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

    >>> from rulewright.logic import parse_rules
    >>> rules = parse_rules("1.5 smokes(X) & friend(X, Y) => smokes(Y). closed friend.")
    >>> plan = Plan(Grounding(rules), InputShape((("entity", 100),), observed=frozenset({"friend"})))
    >>> plan.rows[0].groundings, plan.rows[0].contractions
    (10000, 2)
    """

    def __init__(
        self,
        grounding: Grounding,
        shape: InputShape,
        purpose: Purpose = "messages",
        *,
        optimize: bool = True,
        share: bool = True,
    ) -> None:
        self.grounding, self.shape = grounding, shape
        self.sizes = dict(shape.sizes)
        self.cliques: CliqueTree | None = None
        self.inference = ""  # which one is used and why, where a layer says so
        self.program = ContractionProgram(self.sizes, optimize=optimize, share=share)
        self.messages: dict[tuple[str, frozenset[int], HeadForm], list[Message]] = {}
        self.violations: list[list[tuple[int, int]]] = []
        self._factors: dict[int, tuple[str, frozenset[int]]] = {}  # the inputs of the program, by what they hold
        self._ones: dict[int, str | None] = {}
        self._orders: dict[int, tuple[str, Tensor, Tensor]] = {}
        self._nodes: list[range] = []  # those that each formula added
        self._held: dict[tuple[int, int, bool, bool], int] = {}
        for formula_index, ground_formula in enumerate(grounding.formulas):
            start = len(self.program.nodes)
            violations: list[tuple[int, int]] = []
            is_left_out = purpose == "hard violations" and ground_formula.statement_index not in grounding.hard
            for pattern in () if is_left_out else ground_formula.patterns:
                if purpose != "messages":
                    violations.append((pattern.coefficient, self._contract(ground_formula, pattern, None, ())))
                    continue
                for position, literal in enumerate(pattern.literals):
                    if literal.predicate not in ORDERS and literal.predicate not in shape.observed:
                        self._plan_message(formula_index, pattern, position)
            self.violations.append(violations)
            self._nodes.append(range(start, len(self.program.nodes)))
        kept = {message.node for group in self.messages.values() for message in group}
        self.program.finish(kept | {node for nodes in self.violations for _, node in nodes})

    def with_inference(self, inference: str, cliques: CliqueTree | None = None) -> Plan:
        """Return the plan with a line that says which inference is used and why, and the cliques of an exact one."""
        plan = copy(self)
        plan.inference, plan.cliques = inference, cliques
        return plan

    # Planning

    def _plan_message(self, formula_index: int, pattern: Pattern, head_position: int) -> None:
        """Add the message of a pattern to one of its literals, the head."""
        ground_formula = self.grounding.formulas[formula_index]
        head = pattern.literals[head_position]
        declaration = self.grounding.predicates[head.predicate]
        first: dict[Variable, int] = {}
        fixed: list[tuple[int, int]] = []
        repeats: list[tuple[int, int]] = []
        for position, (term, type_name) in enumerate(zip(head.args, declaration.types, strict=True)):
            if not isinstance(term, Variable):
                fixed.append((position, self.grounding.constant_index(term, type_name)))
            elif term in first:
                repeats.append((first[term], position))
            else:
                first[term] = position
        others = [literal for position, literal in enumerate(pattern.literals) if position != head_position]
        shared = {term for literal in others for term in literal.args}
        present = tuple(variable for variable in first if variable in shared)
        form = HeadForm(
            len(head.args),
            tuple(first[variable] for variable in present),
            tuple(fixed),
            tuple(repeats),
            tuple(pattern.positions_apart(head_position)),
        )
        node = self._contract(ground_formula, pattern, head_position, present)
        classes, coefficient = head.classes, pattern.coefficient
        if declaration.classes is None and classes == {FALSE}:  # the log-odds of false are those of true, negated
            classes, coefficient = frozenset({TRUE}), -coefficient
        message = Message(ground_formula.statement_index, formula_index, coefficient, pattern.coefficient, node)
        self.messages.setdefault((head.predicate, classes, form), []).append(message)

    def _contract(
        self, ground_formula: GroundFormula, pattern: Pattern, head_position: int | None, output: Sequence[Variable]
    ) -> int:
        """Add the contraction of all literals but the head, over the variables that are not in the output."""
        operands: list[tuple[int, tuple[Variable, ...]]] = []
        counted: set[Term] = set() if head_position is None else set(pattern.literals[head_position].args)
        for position, literal in enumerate(pattern.literals):
            if position != head_position:
                operands.append(self._add_factor(ground_formula, literal, pattern.positions_apart(position)))
                if literal.predicate not in ORDERS:
                    counted |= set(literal.args)
        for variable in pattern.variables:
            if variable not in counted:
                type_name = ground_formula.types[variable]
                dims = (BATCH, type_name) if type_name in self.shape.batched_masks else (type_name,)
                node = self.program.add("input", (), ("ones", type_name), dims, is_fixed=True)
                self._ones[node] = type_name
                operands.append((node, (variable,)))
        if operands:
            return self.program.contract(operands, output)
        node = self.program.add("input", (), "one", (), is_fixed=True)
        self._ones[node] = None
        return node

    def _add_factor(
        self, ground_formula: GroundFormula, literal: ClauseLiteral, apart: Sequence[tuple[int, int]]
    ) -> tuple[int, tuple[Variable, ...]]:
        """Add the probability that a literal is false, over its variables."""
        program, shape = self.program, self.shape
        constants: dict[int, int] = {}
        if literal.predicate in ORDERS:
            node, lead = self._add_order(ground_formula, literal), 0
        else:
            types = self.grounding.predicates[literal.predicate].types
            lead = int(literal.predicate in shape.batched or not shape.batched_masks.isdisjoint(types))
            key = (literal.predicate, literal.classes)
            dims = (BATCH, *types) if lead else types
            node = program.add("input", (), key, dims, is_fixed=literal.predicate in shape.observed)
            self._factors[node] = key
            for position, (term, type_name) in enumerate(zip(literal.args, types, strict=True)):
                if not isinstance(term, Variable):
                    constants[position + lead] = self.grounding.constant_index(term, type_name)
        for one, other in apart:
            node = program.transform("apart", node, (one + lead, other + lead))
        if constants:
            node = program.transform("select", node, tuple(constants.items()))
        labels = [term for term in literal.args if isinstance(term, Variable)]
        while len(set(labels)) < len(labels):
            second = next(position for position, term in enumerate(labels) if term in labels[:position])
            node = program.transform("diagonal", node, (labels.index(labels[second]) + lead, second + lead))
            del labels[second]
        return node, tuple(labels)

    def _add_order(self, ground_formula: GroundFormula, literal: ClauseLiteral) -> int:
        """Add the comparison of two variables, or of a variable and a number, as a tensor: 1 where it is false."""
        key: list[object] = [literal.predicate]
        types: list[str] = []
        sides: list[Tensor] = []
        for term in literal.args:
            if isinstance(term, Variable):
                types.append(ground_formula.types[term])
                key.append(types[-1])
                sides.append(self.grounding.entity_numbers(types[-1], ground_formula.formula))
                continue
            try:
                key.append(float(term.value if isinstance(term, Number) else term.name))
            except ValueError:
                message = f"{literal.predicate} compares numbers, got {term}, in: {ground_formula.formula}"
                raise DataError(message) from None
            sides.append(torch.tensor(key[-1], dtype=torch.float64))
        left, right = sides
        node = self.program.add("input", (), tuple(key), tuple(types), is_fixed=True)
        self._orders[node] = (literal.predicate, left.unsqueeze(1) if len(types) == 2 else left, right)
        return node

    # Running

    def start(self, inputs: GroundInputs, *, weigh: Weigh | None = None) -> dict[int, Tensor]:
        """Compute the nodes that stay the same in all iterations."""
        values: dict[int, Tensor] = {}
        for node, type_name in self._ones.items():
            mask = None if type_name is None else inputs.masks.get(type_name)
            shape = [] if type_name is None else [inputs.sizes[type_name]]
            values[node] = torch.ones(shape, dtype=inputs.dtype, device=inputs.device) if mask is None else mask
        for node, (operator, left, right) in self._orders.items():
            holds = {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[operator]
            values[node] = (~holds).to(dtype=inputs.dtype, device=inputs.device)
        observed = {name: known.probability for name, known in inputs.observed.items() if known.where is None}
        return self.run(inputs, observed, values, is_fixed=True, weigh=weigh)

    def run(
        self,
        inputs: GroundInputs,
        marginals: Mapping[str, Tensor],
        started: Mapping[int, Tensor],
        *,
        is_fixed: bool = False,
        weigh: Weigh | None = None,
    ) -> dict[int, Tensor]:
        """Compute all contractions of one iteration, from marginals and what `start` computed with the same factors."""
        values = dict(started)
        for node, (name, classes) in self._factors.items():
            if name not in marginals or node in values:
                continue
            declaration = self.grounding.predicates[name]
            false = false_probability(marginals[name], classes, declaration.classes)
            false = false if weigh is None else weigh(name, false)
            mask = inputs.mask_atoms(declaration) if inputs.masks else None
            values[node] = false if mask is None else false * mask
        return self.program.run(values, is_fixed=is_fixed)

    def has_batch(self, node: int) -> bool:
        """Return whether a node has a value for each row of a batch."""
        return self.program.nodes[node].dims[:1] == (BATCH,)

    # What it costs

    @cached_property
    def rows(self) -> tuple[PlanRow, ...]:
        """What each formula costs in one iteration."""
        by_formula = [[self.program.nodes[index] for index in indices] for indices in self._nodes]
        return tuple(
            PlanRow(
                str(ground_formula.formula),
                len(ground_formula.clauses),
                len(ground_formula.patterns),
                ground_formula.count_groundings(self.sizes),
                sum(node.operation == "multiply" for node in nodes),
                sum(node.flops for node in nodes),
                max((node.elements for node in nodes), default=0),
            )
            for ground_formula, nodes in zip(self.grounding.formulas, by_formula, strict=True)
        )

    @property
    def flops(self) -> int:
        """Floating-point operations of one iteration, for one row of a batch."""
        return sum(row.flops for row in self.rows)

    def seconds(self, *, batch: int = 1, iterations: int = 1, training: bool = False) -> float:
        """Return about how long a call takes on this machine's processor, by rates measured once in a process.

        A product of matrices takes as long as its operations, or as reading and writing its elements where these are
        more; a backward pass takes twice as long as the forward one.
        """
        rates, nodes = measure_rates(), self.program.nodes
        total = 0.0
        for node in nodes:
            if node.operation == "input" or node.operation in VIEWS or node.is_fixed:
                continue
            moved = node.elements + sum(nodes[source].elements for source in node.sources)
            total += max(node.flops / rates.products if node.operation == "multiply" else 0.0, moved / rates.elements)
        names = {predicate for predicate, _, _ in self.messages}
        total += 10 * sum(self._count_atoms(name) for name in names) / rates.elements
        return total * batch * iterations * (3 if training else 1)

    @property
    def groundings(self) -> int:
        """The number of groundings of all formulas."""
        return sum(row.groundings for row in self.rows)

    def memory(
        self,
        *,
        batch: int = 1,
        bytes_each: int = 4,
        iterations: int = 1,
        training: bool = False,
        learns_weights: bool = False,
        averaged: bool = False,
    ) -> int:
        """Return the bytes that a call holds at most beside its inputs; in training, with those of a backward pass.

        While contractions run, a call holds log-odds, marginals, factors and what is computed and needed later. For a
        backward pass each iteration keeps the marginals and all operands of products, and messages with weights that
        are learned; the backward pass holds the gradients of one iteration's messages beside them. Mean messages are
        ``averaged``: their denominators are counted before, with 64 bits, and factors are weighed.
        """
        key = (batch, iterations, training, learns_weights)
        if key not in self._held:
            self._held[key] = self._count_held(*key)
        if not averaged:
            return bytes_each * self._held[key]
        names = {predicate for predicate, _, _ in self.messages} | {name for name, _ in self._factors.values()}
        atoms = batch * sum(self._count_atoms(name) for name in names)
        counting = self._count_held(batch, 1, False, False) + 2 * atoms
        return max(bytes_each * (self._held[key] + 3 * atoms), 8 * counting)

    def _count_held(self, batch: int, iterations: int, training: bool, learns_weights: bool) -> int:
        program, shape = self.program, self.shape
        nodes = program.nodes
        has_batch = bool(shape.batched or shape.batched_masks)  # else nothing is known of it, and all may have it
        sizes = [node.elements * (batch if node.dims[:1] == (BATCH,) or not has_batch else 1) for node in nodes]
        heads = {predicate for predicate, _, _ in self.messages}
        factors = {name for name, _ in self._factors.values()}
        atoms = {name: self._count_atoms(name) * batch for name in (heads | factors) - shape.observed}
        unowned = {index for index, factor in self._factors.items() if self._is_marginal(*factor)}
        peak, left = program.count_held(sizes, unowned)
        total, most = sum(atoms.values()), max(atoms.values(), default=0)
        constant = sum(  # what is observed, and the masks of atoms
            self._count_atoms(name) * (batch if name in shape.batched or not has_batch else 1)
            for name in factors & shape.observed
        )
        masked = {self.grounding.predicates[name].types for name in factors}
        masked = {types for types in masked if not shape.batched_masks.isdisjoint(types)}
        constant += batch * sum(prod(self.sizes[type_name] for type_name in types) for types in masked)
        before = total if iterations > 1 else 0  # the log-odds of the iteration before
        passing = most * (2 if masked else 1)  # what one step computes and the next replaces
        is_checked = bool(self.grounding.hard)  # labels, their factors, the last step and the log-odds that rows keep
        if not training:
            constant += passing + (4 * total + most if is_checked else 0)
            return constant + total + max(before + peak, total + most + left, 2 * total + 2 * most)
        viewed = program.find_viewed()
        fixed = {viewed[index] for index, node in enumerate(nodes) if node.is_fixed}
        kept = {viewed[index] for index in program.find_operands()} - unowned - fixed
        messages = {message.node for group in self.messages.values() for message in group}
        if learns_weights:  # they are let go as their gradients come
            kept |= {viewed[index] for index in messages} - unowned - fixed
        saved = total + sum(sizes[index] for index in kept) + (total if is_checked else 0)
        running = max(0, peak - sum(sizes[index] for index in kept | fixed))
        gradients = 0 if learns_weights else sum(sizes[index] for index in messages)
        constant += passing + most + (3 * total if is_checked else 0) + sum(sizes[index] for index in fixed - unowned)
        return constant + iterations * saved + total + max(running, gradients + total)

    def _count_atoms(self, name: str) -> int:
        """Return how many numbers a predicate's marginals have in one row of a batch."""
        declaration = self.grounding.predicates[name]
        return len(declaration.classes or ("true",)) * prod(self.sizes[type_name] for type_name in declaration.types)

    def _is_marginal(self, name: str, classes: frozenset[int]) -> bool:
        """Return whether a factor is the predicate's marginals themselves."""
        declaration = self.grounding.predicates[name]
        is_masked = not self.shape.batched_masks.isdisjoint(declaration.types)
        return declaration.classes is None and TRUE not in classes and not is_masked

    def check_memory(
        self,
        inputs: GroundInputs,
        memory_limit: int | None,
        *,
        iterations: int = 1,
        learns_weights: bool = False,
        averaged: bool = False,
    ) -> None:
        """Refuse inputs for which more bytes would be held than the limit; None is half of what the device has."""
        has_gradients = learns_weights or any(logits.requires_grad for logits in inputs.logits.values())
        needed = self.memory(
            batch=prod(inputs.batch),
            bytes_each=inputs.dtype.itemsize,
            iterations=iterations,
            training=torch.is_grad_enabled() and has_gradients,
            learns_weights=learns_weights,
            averaged=averaged,
        )
        limit = usual_limit(inputs.device) if memory_limit is None else memory_limit
        if needed > limit:
            worst = max(self.rows, key=lambda row: row.largest)
            raise MemoryLimitError(
                f"grounding needs {format_bytes(needed)} and the limit is {format_bytes(limit)}; the largest tensor, "
                f"of {worst.largest:,} elements, is for: {worst.formula} — split the formula, use fewer entities (a "
                "sample of them, smaller worlds or batches), fewer iterations, or raise memory_limit"
            )

    def __str__(self) -> str:
        table: list[tuple[str, ...]] = [("formula", "clauses", "groundings", "contractions", "FLOPs", "largest tensor")]
        for row in self.rows:
            counts = (f"{count:,}" for count in (row.clauses, row.groundings, row.contractions))
            table.append((row.formula, *counts, f"{row.flops:.2e}", f"{row.largest:,}"))
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join([formula.ljust(widths[0]), *map(str.rjust, counts, widths[1:])]) for formula, *counts in table
        ]
        sizes = ", ".join(f"{type_name} {size:,}" for type_name, size in self.shape.sizes) or "propositions"
        about = format_seconds(self.seconds())
        cost = f"{self.flops:.2e} FLOPs, {format_bytes(self.memory())} and about {about} an iteration"
        lines.append(f"{sizes}: {self.groundings:,} groundings, {cost}")
        return "\n".join([*lines, self.inference] if self.inference else lines)


class Planner:
    """The plans of a grounding, each made once; of many the latest are kept.

    ``optimize`` contracts in a good order and ``share`` computes equal parts once; without them is for comparison.
    """

    def __init__(self, grounding: Grounding, *, optimize: bool = True, share: bool = True) -> None:
        self.grounding, self.optimize, self.share = grounding, optimize, share
        self._names: dict[tuple[InputShape, Purpose], str] = {}  # of the attributes that hold plans
        self._made = 0

    def __getstate__(self) -> dict[str, object]:
        """Leave out the plans: a copy makes its own."""
        own = {"grounding": self.grounding, "optimize": self.optimize, "share": self.share}
        return {**own, "_names": {}, "_made": 0}

    def plan(self, shape: InputShape, purpose: Purpose = "messages") -> Plan:
        """Return the plan for a shape; closed predicates are observed."""
        groups = (shape.batched, shape.batched_masks, shape.observed | self.grounding.closed)
        plan: Plan = getattr(self, self._make(shape.sizes, *(tuple(sorted(group)) for group in groups), purpose))
        return plan

    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
    def _make(
        self,
        sizes: tuple[tuple[str, int], ...],
        batched: tuple[str, ...],
        batched_masks: tuple[str, ...],
        observed: tuple[str, ...],
        purpose: Purpose,
    ) -> str:
        """Plan once, and return the name of the attribute that has the plan.

        torch.compile calls this while it traces and takes the result as a constant, which must be a plain value; it
        sees attributes that were set meanwhile, but no new keys of a dictionary.
        """
        shape = InputShape(sizes, frozenset(batched), frozenset(batched_masks), frozenset(observed))
        if (shape, purpose) not in self._names:
            if len(self._names) >= KEPT_PLANS:
                delattr(self, self._names.pop(next(iter(self._names))))
            self._made += 1
            self._names[shape, purpose] = name = f"plan_{self._made}"
            setattr(self, name, Plan(self.grounding, shape, purpose, optimize=self.optimize, share=self.share))
        return self._names[shape, purpose]


def false_probability(probabilities: Tensor, classes: frozenset[int], declared_classes: Sequence[str] | None) -> Tensor:
    """Return the probability that a literal is false: that its atom is of none of its classes."""
    if declared_classes is None:
        return 1 - probabilities if TRUE in classes else probabilities
    outside = torch.ones(len(declared_classes), dtype=probabilities.dtype, device=probabilities.device)
    outside[list(classes)] = 0
    return probabilities @ outside


def usual_limit(device: torch.device) -> int:
    """Return half of the memory that a device has: of the machine's, or of what a GPU has left."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return (free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)) // 2
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def format_bytes(size: int) -> str:
    """Write a number of bytes for people.

    >>> format_bytes(3 * 2**20)
    '3.0 MB'
    """
    value = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1024:
            return f"{value:,.1f} {unit}" if unit != "bytes" else f"{size} bytes"
        value /= 1024
    return f"{value:,.1f} TB"
