"""Messages over candidate atoms: exact for them, with all other atoms at rest.

The probability that literal j of a pattern is false is ``F_j = ρ_j + δ_j``: what it is at rest, and how far a candidate
is from that. So the expected number of false groundings is a sum over sets T of literals,

    E = Σ_T c_T W_T,    c_T = Π_{j ∉ T} ρ_j · Π (size of each variable that T lacks),    W_T = Σ Π_{j ∈ T} δ_j,

in which W_T goes over rows of candidates only, and a set with ``ρ_j = 0`` outside it vanishes. The message to a
candidate of literal i is the derivative of E by its δ_i. Each W_T is summed along an ear decomposition of its tables
(`rulewright.inject.layer.relations`), up and down, so that all its messages cost as much as two passes over its rows;
where the tables form a cycle, as in transitivity, the joined rows are enumerated once: the ground clauses.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rulewright.errors import MemoryLimitError
from rulewright.inject.inputs import GroundInputs
from rulewright.inject.layer.candidates import OPEN, SparseInputs, Weighing
from rulewright.inject.layer.ground_clauses import GroundClauses, StreamedClauses, send_joined
from rulewright.inject.layer.grounding import Grounding
from rulewright.inject.layer.plan import Purpose, Weigh, false_probability, format_bytes, usual_limit
from rulewright.inject.layer.rates import format_seconds, measure_join_rate, measure_rates
from rulewright.inject.layer.relations import Joiner
from rulewright.inject.layer.terms import SparseMessage, SparseNode, TermBuilder

if TYPE_CHECKING:
    from rulewright.inject.layer.averaging import Averages
    from rulewright.inject.layer.layer import Weights

ROUNDED = 1e-12
"""The share of what cancels below which a difference of counts is taken as 0."""

INDEXED = 200
"""As how many elementwise operations reading and indexing a candidate counts."""

KEPT_GROUNDINGS = 8
"""How many groundings are kept for candidates that may come again."""


@dataclass(frozen=True, slots=True)
class SparseRow:
    """What a formula costs: its clauses and terms, and the ground clauses that were enumerated for it."""

    formula: str
    clauses: int
    terms: int
    ground_clauses: int


class SparsePlan:
    """What an iteration computes over candidate atoms, with all its index columns.

    ``messages`` are by predicate and classes; ``violations`` as in `rulewright.inject.layer.plan.Plan`, where resting
    atoms count as their more probable value. Ground clauses that need more than half of the memory limit are joined
    anew in each iteration, in blocks. An estimate joins nothing: its ground clauses are estimated from a sample, and it
    cannot run.
    """

    def __init__(
        self,
        grounding: Grounding,
        inputs: SparseInputs,
        purpose: Purpose = "messages",
        *,
        memory_limit: int | None = None,
        is_estimate: bool = False,
        weighing: Weighing | None = None,
    ) -> None:
        self.grounding, self.purpose, self.is_estimate, self.weighing = grounding, purpose, is_estimate, weighing
        self.candidates, self.sizes, self.device = inputs.candidates, inputs.sizes, inputs.device
        limit = usual_limit(self.device) if memory_limit is None else memory_limit
        self.clause_memory = limit // 2
        self.nodes: list[SparseNode] = []
        self.messages: dict[tuple[str, frozenset[int]], list[SparseMessage]] = {}
        self.violations: list[list[tuple[float, int]]] = []
        self.clauses: list[GroundClauses] = []
        self.joined_rows = 0.0  # that joins go through, about
        rows: list[SparseRow] = []
        joiner = Joiner()
        weakref.finalize(self, joiner.close)
        builder = TermBuilder(self, joiner)
        for formula_index, formula in enumerate(grounding.formulas):
            before = self.ground_clauses
            is_left_out = purpose == "hard violations" and formula.statement_index not in grounding.hard
            self.violations.append([])
            terms = sum(builder.add(formula_index, pattern) for pattern in (() if is_left_out else formula.patterns))
            rows.append(SparseRow(str(formula.formula), len(formula.clauses), terms, self.ground_clauses - before))
        builder.finish()
        if not self.is_blockwise:  # else clauses are joined again in each iteration
            joiner.close()
        self.rows = tuple(rows)
        kept = {message.node for group in self.messages.values() for message in group}
        kept |= {node for nodes in self.violations for _, node in nodes}
        last_use = {source: index for index, node in enumerate(self.nodes) for source in node.sources}
        self._released: dict[int, list[int]] = {}
        for source, index in last_use.items():
            if source not in kept and not self.nodes[source].is_fixed:
                self._released.setdefault(index, []).append(source)

    @property
    def is_blockwise(self) -> bool:
        """Whether ground clauses are joined anew in each iteration, since they do not fit into memory together."""
        return any(isinstance(clauses, StreamedClauses) for clauses in self.clauses)

    @property
    def ground_clauses(self) -> int:
        """The ground clauses that are gone through in each iteration."""
        return sum(clauses.count for clauses in self.clauses)

    @property
    def joined_memory(self) -> int:
        """The bytes of all ground clauses."""
        return sum(clauses.count * 4 * len(clauses.columns) for clauses in self.clauses)

    @property
    def operations(self) -> int:
        """Gathers, products and additions of one iteration."""
        joined = sum(clauses.count * 3 * len(clauses.columns) for clauses in self.clauses)
        return joined + sum(node.length * max(1, len(node.sources)) for node in self.nodes if not node.is_fixed)

    def seconds(self, *, iterations: int = 1, training: bool = False, blockwise: bool | None = None) -> float:
        """Return about how long a call takes on this machine's processor, its joins included.

        Rates are measured once in a process; a backward pass takes three times as long as the forward one. Where
        clauses come ``blockwise`` they are joined in each pass; None is as the plan does.
        """
        rates = measure_rates()
        positions = sum(clauses.count * len(clauses.columns) for clauses in self.clauses)
        positions += sum(node.length for node in self.nodes if not node.is_fixed)
        atoms = sum(map(len, self.candidates.values()))
        iteration = positions / rates.positions + 10 * atoms / rates.elements
        passes = iterations * (4 if training else 1)
        joins = 1
        if self.is_blockwise if blockwise is None else blockwise:
            joins = 1 + iterations * (2 if training else 1)
        grounding = INDEXED * atoms / rates.elements
        if self.clauses:
            grounding += joins * (self.joined_rows + atoms) / measure_join_rate()
        return grounding + iteration * passes

    def __str__(self) -> str:
        about = "about " if self.is_estimate else ""
        table: list[tuple[str, ...]] = [("formula", "clauses", "terms", "ground clauses")]
        table += [(row.formula, str(row.clauses), str(row.terms), f"{row.ground_clauses:,}") for row in self.rows]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join([name.ljust(widths[0]), *map(str.rjust, counts, widths[1:])]) for name, *counts in table]
        for name, candidates in self.candidates.items():
            rest = "none rests"
            if candidates.rest is not None:
                classes = self.grounding.predicates[name].classes or ("false", "true")
                shares = zip(classes, candidates.rest, strict=True)
                rest = "others rest at " + ", ".join(f"{label} {share:.3g}" for label, share in shares if share)
            lines.append(f"{name}: {len(candidates):,} candidates, {rest}")
        way = ", joined anew in each iteration" if self.is_blockwise else ""
        lines.append(
            f"{about}{self.ground_clauses:,} ground clauses{way}, {self.operations:.2e} operations and "
            f"{format_bytes(self.memory())} an iteration; about {format_seconds(self.seconds(iterations=0))} of "
            f"grounding and {format_seconds(self.seconds(iterations=2) - self.seconds(iterations=1))} an iteration"
        )
        return "\n".join(lines)

    def memory(
        self, *, bytes_each: int = 4, iterations: int = 1, training: bool = False, learns_weights: bool = False
    ) -> int:
        """Return about how many bytes a call holds: index columns, ground clauses, and the vectors of an iteration.

        In training each iteration keeps its vectors, and messages with weights that are learned.
        """
        columns = {id(column): column for node in self.nodes for column in _tensors(node.arguments)}
        columns |= {id(column): column for clauses in self.clauses for column in _tensors(tuple(clauses.columns))}
        columns |= {id(m.rows): m.rows for group in self.messages.values() for m in group if m.rows is not None}
        held = sum(column.numel() * column.itemsize for column in columns.values())
        if self.is_blockwise:
            held += self.clause_memory // 2
        elif self.is_estimate:
            held += min(self.joined_memory, self.clause_memory)
        atoms = sum(len(candidates) * len(candidates.rest or "01") for candidates in self.candidates.values())
        vectors = sum(node.length for node in self.nodes if not node.is_fixed)
        fixed = sum(node.length for node in self.nodes if node.is_fixed)
        messages = sum(self.candidates[name].given for name, _ in self.messages) if learns_weights else 0
        steps = iterations if training else 1
        return held + bytes_each * (fixed + 4 * atoms + steps * (vectors + 2 * atoms * training + messages))

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
            bytes_each=inputs.dtype.itemsize,
            iterations=iterations,
            training=torch.is_grad_enabled() and has_gradients,
            learns_weights=learns_weights,
        )
        limit = usual_limit(inputs.device) if memory_limit is None else memory_limit
        if needed > limit:
            atoms = sum(map(len, self.candidates.values()))
            raise MemoryLimitError(
                f"messages over {atoms:,} candidate atoms need {format_bytes(needed)} and the limit is "
                f"{format_bytes(limit)}; give fewer candidates or iterations, or raise memory_limit"
            )

    def start(self, inputs: GroundInputs, *, weigh: Weigh | None = None) -> dict[int, Tensor]:
        """Compute the nodes that stay the same in all iterations."""
        return self._compute(inputs, {}, {}, is_fixed=True)

    def run(
        self,
        inputs: GroundInputs,
        marginals: Mapping[str, Tensor],
        started: Mapping[int, Tensor],
        *,
        weigh: Weigh | None = None,
    ) -> dict[int, Tensor]:
        """Compute the nodes of one iteration, from marginals and what `start` computed."""
        return self._compute(inputs, marginals, dict(started), is_fixed=False)

    def _compute(
        self, inputs: GroundInputs, marginals: Mapping[str, Tensor], values: dict[int, Tensor], *, is_fixed: bool
    ) -> dict[int, Tensor]:
        joined: dict[int, tuple[Tensor, ...]] = {}
        for index, node in enumerate(self.nodes):
            if node.is_fixed != is_fixed:
                continue
            match node.operation:
                case "base":
                    values[index] = self._compute_base(inputs, marginals, *node.arguments)
                case "take":
                    values[index] = values[node.sources[0]].index_select(0, node.arguments)
                case "counts":
                    values[index] = node.arguments.to(inputs.dtype)
                case "group":
                    zeros = torch.zeros(node.length, dtype=inputs.dtype, device=inputs.device)
                    values[index] = zeros.index_add_(0, node.arguments, values[node.sources[0]])
                case "total":
                    values[index] = values[node.sources[0]].sum().reshape(1)
                case "product":
                    values[index] = _multiply(values, node)
                case "joined":
                    clauses, sources, lengths, wanted = node.arguments
                    vectors = [None if source is None else values[source] for source in sources]
                    heads = tuple(sorted(wanted))
                    joined[index] = send_joined(clauses, heads, lengths, inputs.dtype, vectors)
                case "role":
                    _, _, _, wanted = self.nodes[node.sources[0]].arguments
                    values[index] = joined[node.sources[0]][sorted(wanted).index(node.arguments)]
            for source in self._released.get(index, ()) if not is_fixed else ():
                values.pop(source, None)
                joined.pop(source, None)
        return values

    def _compute_base(
        self, inputs: GroundInputs, marginals: Mapping[str, Tensor], name: str, classes: frozenset[int], rest: float
    ) -> Tensor:
        """Return how far each candidate's probability that a literal is false is from that at rest."""
        candidates, weighing = self.candidates[name], self.weighing or Weighing()
        values = torch.from_numpy(weighing.is_false(name, candidates.known, classes))
        values = values.to(dtype=inputs.dtype, device=inputs.device)
        is_open = torch.from_numpy(candidates.known == OPEN).to(inputs.device)
        if weighing.unobserved is not None:
            values = torch.where(is_open, weighing.unobserved, values)
        elif name in marginals:
            false = false_probability(marginals[name], classes, self.grounding.predicates[name].classes)
            given = torch.where(is_open[: candidates.given], false, values[: candidates.given])
            values = torch.cat([given, values[candidates.given :]]) if len(given) < len(values) else given
        return values - rest if rest else values

    def count_messages(self, name: str, values: Mapping[int, Tensor], inputs: GroundInputs) -> dict[int, Tensor]:
        """Return what the groundings of a predicate's given candidates weigh in all, by formula."""
        sizes = (self.candidates[name].given,)
        sums: dict[int, Tensor] = {}
        largest: dict[int, Tensor] = {}
        for (predicate, _), messages in self.messages.items():
            for message in messages if predicate == name else ():
                part = torch.zeros(sizes, dtype=inputs.dtype, device=inputs.device)
                rows = slice(None) if message.rows is None else message.rows.long()
                part[rows] = message.coefficient if message.node is None else message.coefficient * values[message.node]
                index = message.formula_index
                sums[index] = sums.get(index, 0) + part
                largest[index] = largest.get(index, 0) + part.abs()
        return {index: torch.where(total > ROUNDED * largest[index], total, 0) for index, total in sums.items()}

    def add_messages(
        self,
        weights: Weights,
        name: str,
        inputs: GroundInputs,
        values: Mapping[int, Tensor],
        hard_share: float = 1.0,
        averages: Averages | None = None,
    ) -> Tensor:
        """Add a predicate's messages to the log-odds that it was given, those of hard formulas by a share.

        ``averages`` make means of the sums.
        """
        total = inputs.logits[name] if averages is None else torch.zeros_like(inputs.logits[name])
        has_classes = self.grounding.predicates[name].classes is not None
        for (predicate, classes), messages in self.messages.items():
            if predicate != name:
                continue
            for statement_index in dict.fromkeys(message.statement_index for message in messages):
                chosen = [message for message in messages if message.statement_index == statement_index]
                if averages is not None:
                    shares = [float(averages.shares[message.formula_index]) for message in chosen]
                    chosen = [replace(m, coefficient=m.coefficient * p) for m, p in zip(chosen, shares, strict=True)]
                summed = _sum(chosen, values, torch.zeros(len(total), dtype=inputs.dtype, device=inputs.device))
                share = hard_share if statement_index in self.grounding.hard else 1.0
                if not has_classes:
                    total = weights.add(total, summed, statement_index, share)
                    continue
                inside = torch.zeros(total.shape[-1], dtype=inputs.dtype, device=inputs.device)
                inside[list(classes)] = 1
                total = total + weights.add(None, summed, statement_index, share).unsqueeze(-1) * inside
        if averages is not None and name in averages.scales:
            total = inputs.logits[name] + averages.scale(name, total, has_classes=has_classes)
        return total


def _sum(messages: Sequence[SparseMessage], values: Mapping[int, Tensor], zeros: Tensor) -> Tensor:
    """Return the sum of messages to the same atoms."""
    everywhere = [message for message in messages if message.rows is None and message.node is not None]
    summed = zeros
    for message in everywhere:
        assert message.node is not None
        value = values[message.node]
        summed = value * message.coefficient if summed is zeros else summed.add_(value, alpha=message.coefficient)
    for message in messages:
        if message.node is None:
            where = slice(None) if message.rows is None else message.rows.long()
            summed[where] += message.coefficient
        elif message.rows is not None:
            summed.index_add_(0, message.rows, values[message.node], alpha=message.coefficient)
    return summed


def _tensors(arguments: object) -> list[Tensor]:
    parts = arguments if isinstance(arguments, tuple) else (arguments,)
    return [part for part in parts if isinstance(part, Tensor)]


class SparsePlanner:
    """The sparse plans of a grounding; those of the latest candidates are kept."""

    def __init__(self, grounding: Grounding) -> None:
        self.grounding = grounding
        self._kept: dict[tuple[bytes, str, Purpose, str], SparsePlan] = {}

    def __getstate__(self) -> dict[str, object]:
        """Leave out the plans: a copy makes its own."""
        return {"grounding": self.grounding, "_kept": {}}

    @property
    def kept(self) -> tuple[SparsePlan, ...]:
        """The plans of the latest candidates, the newest last."""
        return tuple(self._kept.values())

    def plan(
        self,
        inputs: SparseInputs,
        purpose: Purpose = "messages",
        memory_limit: int | None = None,
        weighing: Weighing | None = None,
    ) -> SparsePlan:
        """Return the plan for candidates; it is made once for those that are equal."""
        key = (inputs.key, str(inputs.device), purpose, repr(weighing))
        if key not in self._kept:
            while len(self._kept) >= KEPT_GROUNDINGS:
                del self._kept[next(iter(self._kept))]
            with torch.inference_mode(False):  # its columns are kept, and may serve a backward pass later
                self._kept[key] = SparsePlan(
                    self.grounding, inputs, purpose, memory_limit=memory_limit, weighing=weighing
                )
        return self._kept[key]


def _multiply(values: Mapping[int, Tensor], node: SparseNode) -> Tensor:
    product: Tensor | None = None
    for source, positions in zip(node.sources, node.arguments, strict=True):
        value = values[source] if positions is None else values[source].index_select(0, positions)
        product = value if product is None else product * value
    assert product is not None
    return product.expand(node.length)
