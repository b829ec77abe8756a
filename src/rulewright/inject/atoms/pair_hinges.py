"""Hinges of Horn clauses over entity pairs: which are open, in one pass over all groundings.

A grounding of a rule contributes the hinge ``max(0, offset + Σ body − head)`` of log-probabilities. Its derivative is
one for body atoms and minus one for the head where the hinge is open, and zero elsewhere: so one pass over all
groundings finds which hinges are open, three reductions of that pass give the slope of the sum in every
log-probability, and the sum itself is the slope times the log-probabilities plus the offsets of the open hinges.
Nothing of the size of all groundings is kept.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn

from rulewright.inject.atoms.clauses import AtomClause
from rulewright.logic.chain import encode_step, is_inverse, step_relation

Pair: TypeAlias = tuple[int, int]


class PairHinges:
    """Sums the hinges of Horn clauses over relations, for documents of any number of entities.

    ``slack(length)`` is ``-log η`` for a body of that length. ``largest`` takes for every clause the largest hinge over
    the body's own entities and then the mean over all pairs (the published form); otherwise all hinges are added up, or
    with ``mean`` the mean over the groundings of each clause.
    """

    def __init__(
        self,
        clauses: Iterable[AtomClause],
        relations: Sequence[str],
        slack: Callable[[int], float],
        *,
        largest: bool,
        mean: bool,
    ) -> None:
        self.largest, self.mean = largest, mean
        self.steps, self.groups = _group_clauses(clauses, relations, slack)
        self.inverse = [position for position, step in enumerate(self.steps) if is_inverse(step)]

    def sum_documents(self, logits: Tensor, mask: Tensor | None, chunk: int) -> Tensor:
        """Return the sum for each document of ``logits[D, n, n, R]``, differentiable any number of times."""
        with torch.no_grad():
            slope, offsets = self._find_slope(logits, mask, chunk)
        used = slope != 0  # what no hinge is open for may be anything, padding and the diagonal too
        log_p = nn.functional.logsigmoid(logits.to(slope.dtype).masked_fill(~used, 0.0))
        # Large parts of the sum cancel, so it is taken in double precision.
        values = (slope.double() * log_p.double()).flatten(1).sum(1) + offsets
        return values + (values.clamp(min=0.0) - values).detach()

    def _find_slope(self, logits: Tensor, mask: Tensor | None, chunk: int) -> tuple[Tensor, Tensor]:
        """Return the derivative of the sum by the log-probability of every atom, and the rest of the sum."""
        precise = torch.float64 if logits.dtype == torch.float64 else torch.float32
        offsets = torch.zeros(len(logits), dtype=torch.float64, device=logits.device)
        slope = torch.zeros(logits.shape, dtype=precise, device=logits.device)
        for documents, pairs in _group_by_size(logits, mask):
            slope[pairs], offsets[documents] = self._find_equal_sizes(logits[pairs].to(precise), chunk)
        return slope, offsets

    def _find_equal_sizes(self, logits: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
        """Return slope and offsets of documents that have the same number of entities."""
        size = logits.shape[1]
        log_p = nn.functional.logsigmoid(logits.permute(0, 3, 1, 2).contiguous())
        sums = _HingeSums(self._walk_steps(log_p), largest=self.largest, mean=self.mean, chunk=chunk)
        for group in self.groups:
            sums.add(group)
        slope = self._join_steps(sums.gradient.view(len(logits), -1, size, size), log_p)
        share = 1 / (size * (size - 1)) if self.largest else 1.0
        return slope.mul_(share).permute(0, 2, 3, 1), sums.offsets.double() * share

    def _walk_steps(self, log_p: Tensor) -> Tensor:
        """Return the log-probabilities of the steps in use as [D, S, n, n], with -inf on the diagonal."""
        table = log_p[:, [step_relation(step) for step in self.steps]]
        table[:, self.inverse] = table[:, self.inverse].transpose(2, 3)
        table.diagonal(dim1=2, dim2=3).fill_(-math.inf)
        return table

    def _join_steps(self, gradient: Tensor, log_p: Tensor) -> Tensor:
        """Bring the gradient of steps back to [D, R, n, n]."""
        gradient[:, self.inverse] = gradient[:, self.inverse].transpose(2, 3)
        relations = torch.tensor([step_relation(s) for s in self.steps], dtype=torch.long, device=log_p.device)
        return torch.zeros_like(log_p).index_add_(1, relations, gradient)


def _group_by_size(
    logits: Tensor, mask: Tensor | None
) -> Iterator[tuple[Tensor | slice, Tensor | slice | tuple[Tensor, Tensor, Tensor]]]:
    """Yield the documents with the same number of entities together, and the index of all their pairs."""
    size = logits.shape[1]
    if mask is None:
        if size > 1 and len(logits):
            yield slice(None), slice(None)
        return
    real = mask.to(device=logits.device, dtype=torch.bool)
    counts = real.sum(1)
    for count in sorted(set(counts.tolist())):
        if count > 1:
            documents = torch.nonzero(counts == count)[:, 0]
            entities = torch.nonzero(real[documents])[:, 1].view(len(documents), count)
            pairs = (documents[:, None, None], entities[:, :, None], entities[:, None, :])
            yield documents, documents if count == size else pairs


@dataclass(frozen=True)
class _RuleGroup:
    """Rules whose bodies join the same pairs of variables; only the relations differ.

    Variables 0 and 1 are those of the head, the others are the body's own. Each body atom stands on a pair
    (a, b) with a < b; ``slots`` gives for every body and atom the position of its step in the list that
    `_group_clauses` returns. ``heads`` has the heads of every body as (position of the step, offset), where the
    offset is ``log(η · confidence)``; bodies with more heads come first.
    """

    variables: int
    pairs: tuple[Pair, ...]
    slots: tuple[tuple[int, ...], ...]
    heads: tuple[tuple[tuple[int, float], ...], ...]

    def unjoined_pairs(self) -> list[Pair]:
        """Return the pairs of variables that no atom joins: their entities must still differ."""
        joined = {*self.pairs, (0, 1)}
        return [(a, b) for b in range(self.variables) for a in range(b) if (a, b) not in joined]


def _group_clauses(
    clauses: Iterable[AtomClause], relations: Sequence[str], slack: Callable[[int], float]
) -> tuple[list[int], list[_RuleGroup]]:
    """Group clauses by shape and body; return the steps that they use, and the groups."""
    relation_indices: Mapping[str, int] = {name: index for index, name in enumerate(relations)}
    slots: dict[int, int] = {}  # of each step
    shapes: dict[tuple[int, tuple[Pair, ...]], dict[tuple[int, ...], list[tuple[int, float]]]] = {}
    for clause in clauses:
        head = clause.heads[0]
        own = [variable for variable in range(len(clause.variables)) if variable not in head.args]
        body = clause.reorder_variables([*head.args, *own]).body
        atoms = sorted(
            ((min(a.args), max(a.args)), encode_step(relation_indices[a.predicate], a.args[0] > a.args[1]))
            for a in body
        )
        body_slots = tuple(slots.setdefault(step, len(slots)) for _, step in atoms)
        head_slot = slots.setdefault(encode_step(relation_indices[head.predicate]), len(slots))
        offset = math.log(clause.confidence) - slack(len(atoms))
        bodies = shapes.setdefault((len(clause.variables), tuple(pair for pair, _ in atoms)), {})
        bodies.setdefault(body_slots, []).append((head_slot, offset))
    groups = []
    for (variables, pairs), bodies in shapes.items():
        ranked = sorted(bodies.items(), key=lambda item: -len(item[1]))
        heads = tuple(tuple(heads) for _, heads in ranked)
        groups.append(_RuleGroup(variables, pairs, tuple(body_slots for body_slots, _ in ranked), heads))
    return list(slots), groups


class _HingeSums:
    """Accumulates the gradient of the hinges of many rule groups over the documents of one size.

    ``table[D, S, n, n]`` holds the log-probability of every step, with -inf on the diagonal. Afterwards
    ``gradient`` (of the same shape) and ``offsets[D]`` give the sum for document d as
    ``(gradient[d] * table[d]).sum() + offsets[d]``.
    """

    def __init__(self, table: Tensor, *, largest: bool, mean: bool, chunk: int) -> None:
        self.documents, self.steps, self.size = table.shape[:3]
        self.table = table.view(-1, self.size, self.size)
        self.gradient = torch.zeros_like(self.table)
        self.offsets = table.new_zeros(self.documents)
        self._largest, self._mean, self._chunk = largest, mean, chunk
        self._different = table.new_zeros(1, self.size, self.size)
        self._different.diagonal(dim1=1, dim2=2).fill_(-math.inf)
        self._buffers = [table.new_empty(0), table.new_empty(0)]

    def add(self, group: _RuleGroup) -> None:
        """Add every rule of a group, for every assignment of distinct entities."""
        if self.size < group.variables:
            return
        share = 1 / math.perm(self.size, group.variables) if self._mean else 1.0
        device = self.table.device
        slots = torch.tensor(group.slots, device=device)
        # Body by body over all documents: rows with more heads stay in front, as in the group.
        every_row = torch.arange(len(group.slots) * self.documents, device=device)
        for rows in torch.split(every_row, max(1, self._chunk // self.size**group.variables)):
            body, document = rows // self.documents, rows % self.documents
            first = document * self.steps
            row_heads = [group.heads[index] for index in body.tolist()]
            table_rows = (first[:, None] + slots[body]).unbind(1)
            atoms = [_BodyTerm(self.table[some], pair) for some, pair in zip(table_rows, group.pairs, strict=True)]
            heads = []
            for position in range(len(row_heads[0])):
                chosen = [heads_of_row[position] for heads_of_row in row_heads if len(heads_of_row) > position]
                head_rows = first[: len(chosen)] + torch.tensor([slot for slot, _ in chosen], device=device)
                offsets = self.table.new_tensor([offset for _, offset in chosen])
                heads.append(_HeadTerm(self.table[head_rows], offsets, head_rows))
            different = [_BodyTerm(self._different, pair, is_fixed=True) for pair in group.unjoined_pairs()]
            self._add_rows(_BodyLevels(group.variables, [*atoms, *different]), len(rows), heads)
            for atom, some in zip(atoms, table_rows, strict=True):
                self.gradient.index_add_(0, some, atom.gradient, alpha=share)
            for head in heads:
                self.gradient.index_add_(0, head.table_rows, head.open, alpha=-share)
                opened = head.open.sum((1, 2)) * head.offsets * share
                self.offsets.index_add_(0, document[: len(opened)], opened)

    def _add_rows(self, levels: _BodyLevels, rows: int, heads: list[_HeadTerm]) -> None:
        """Run over all groundings of some rows, block by block, and leave the gradient with each term."""
        variables = levels.last + 1
        largest = self._largest and variables > 2
        for ranges in self._split_blocks(variables, min(variables - 2, 2) if largest else variables - 2):
            sums = self._sum_bodies(levels, ranges, rows)
            if largest:
                self._open_largest(levels, ranges, sums, heads)
            else:
                self._open_all(levels, ranges, sums, heads)

    def _split_blocks(self, variables: int, leading: int) -> Iterator[tuple[slice, ...]]:
        """Split the ranges of the leading variables so that a block has at most some ``chunk`` groundings."""
        splits = []
        for variable in range(variables):
            rest = self.size ** (variables - variable - 1)
            length = min(self.size, max(1, self._chunk // rest)) if variable < leading else self.size
            splits.append([slice(start, min(start + length, self.size)) for start in range(0, self.size, length)])
        return itertools.product(*splits)

    def _sum_bodies(self, levels: _BodyLevels, ranges: tuple[slice, ...], rows: int) -> Tensor:
        """Sum the terms that have the last variable: for every row, value of the others, and value of the last."""
        inner = levels.add_up(levels.inner, ranges, range(levels.last + 1))
        outer = levels.add_up(levels.outer, ranges, range(levels.last + 1))
        assert inner is not None
        shape = (rows, *(block.stop - block.start for block in ranges))
        sums = self._buffer(0, shape)
        if outer is None:
            return sums.copy_(inner)
        return torch.add(outer, inner, out=sums)

    def _open_all(self, levels: _BodyLevels, ranges: tuple[slice, ...], sums: Tensor, heads: list[_HeadTerm]) -> None:
        """Sum form: every grounding has a hinge of its own."""
        prefix = levels.add_up(levels.prefix, ranges, range(max(2, levels.last)))
        for position, head in enumerate(heads):
            rows = len(head.values)
            needed = head.threshold(ranges, levels.last)
            if prefix is not None:
                needed = needed - prefix[:rows]
            if levels.last > 1:
                needed = needed.unsqueeze(-1)
            if position == len(heads) - 1:
                opened = sums[:rows].gt_(needed)
            else:
                opened = torch.gt(sums[:rows], needed, out=self._buffer(1, (rows, *sums.shape[1:])))
            levels.collect(opened, ranges, head)

    def _open_largest(
        self, levels: _BodyLevels, ranges: tuple[slice, ...], sums: Tensor, heads: list[_HeadTerm]
    ) -> None:
        """Published form: one hinge for each pair of the head, at the body's own entities that make it largest."""
        prefix = levels.add_up(levels.prefix, ranges, range(levels.last))
        if prefix is not None:
            sums.add_(prefix.unsqueeze(-1))
        own = tuple(range(3, sums.dim()))
        best = sums.amax(own, keepdim=True)
        weights = torch.zeros_like(best)
        for head in heads:
            rows = len(head.values)
            opened = best.flatten(3)[:rows, :, :, 0].gt(head.threshold(ranges, 2)).to(sums.dtype)
            head.open[:, ranges[0], ranges[1]] += opened
            weights[:rows] += opened.view(weights[:rows].shape)
        if weights.any():
            # Entities that tie share the derivative evenly, as torch.amax has it.
            chosen = sums.eq_(best)
            chosen.mul_(weights / chosen.sum(own, keepdim=True))
            levels.collect(chosen, ranges, None)

    def _buffer(self, index: int, shape: Sequence[int]) -> Tensor:
        """Return a reused piece of memory: fresh pages for every block would cost more than the arithmetic."""
        count = math.prod(shape)
        if self._buffers[index].numel() < count:
            self._buffers[index] = self.table.new_empty(count)
        return self._buffers[index][:count].view(*shape)


class _BodyTerm:
    """One body atom of some rows, or the fixed demand that two variables differ, and the gradient it collects."""

    def __init__(self, values: Tensor, pair: Pair, *, is_fixed: bool = False) -> None:
        self.values, self.pair, self.is_fixed = values, pair, is_fixed
        self.gradient = values.new_zeros(0 if is_fixed else values.shape)


@dataclass
class _HeadTerm:
    """One head of some rows: log-probabilities, offsets, rows of the table, and how many hinges are open."""

    values: Tensor
    offsets: Tensor
    table_rows: Tensor

    def __post_init__(self) -> None:
        self.open = torch.zeros_like(self.values)
        self.values.diagonal(dim1=1, dim2=2).fill_(math.inf)  # no body is larger: the two entities must differ
        self.values -= self.offsets[:, None, None]

    def threshold(self, ranges: tuple[slice, ...], dimensions: int) -> Tensor:
        """Return what a body must exceed to open the hinge, with room for the variables before ``dimensions``."""
        part = self.values[:, ranges[0], ranges[1]]
        return part.view(*part.shape, *[1] * (dimensions - 2))


class _BodyLevels:
    """The terms of a body by what they share with the last two variables.

    ``prefix`` lacks the last variable, ``outer`` has it without the one before, ``inner`` has both: so only two
    operations run over all groundings, whatever the number of atoms.
    """

    def __init__(self, variables: int, terms: list[_BodyTerm]) -> None:
        self.last = variables - 1
        self.prefix = [term for term in terms if term.pair[1] != self.last]
        self.outer = [term for term in terms if term.pair[1] == self.last and term.pair[0] != self.last - 1]
        self.inner = [term for term in terms if term.pair == (self.last - 1, self.last)]

    def add_up(self, terms: list[_BodyTerm], ranges: tuple[slice, ...], variables: range) -> Tensor | None:
        """Sum terms over a block, shaped for broadcasting over ``variables``."""
        total: Tensor | None = None
        for term in terms:
            part = term.values[:, ranges[term.pair[0]], ranges[term.pair[1]]]
            sizes = {term.pair[0]: part.shape[1], term.pair[1]: part.shape[2]}
            part = part.reshape(len(part), *[sizes.get(variable, 1) for variable in variables])
            total = part if total is None else total + part
        return total

    def collect(self, opened: Tensor, ranges: tuple[slice, ...], head: _HeadTerm | None) -> None:
        """Reduce the open hinges of a block to the gradient of every term, and count them for the head."""
        every = tuple(range(self.last + 1))
        if self.last == 1:
            counts, kept = opened, every
            _add_gradient(self.inner, opened, every, ranges)
        else:
            counts, kept = opened.sum(-1), every[:-1]
            _add_gradient(self.prefix, counts, kept, ranges)
            _add_gradient(self.outer, opened.sum(-2), (*every[:-2], self.last), ranges)
            _add_gradient(self.inner, opened.sum(tuple(range(1, self.last))), every[-2:], ranges)
        if head is not None:
            head.open[:, ranges[0], ranges[1]] += _reduce_to_pair(counts, kept, (0, 1))


def _add_gradient(terms: list[_BodyTerm], part: Tensor, kept: tuple[int, ...], ranges: tuple[slice, ...]) -> None:
    """Add a reduction that kept some variables to the gradient of terms over pairs of them."""
    for term in terms:
        if not term.is_fixed:
            a, b = term.pair
            term.gradient[: len(part), ranges[a], ranges[b]] += _reduce_to_pair(part, kept, term.pair)


def _reduce_to_pair(part: Tensor, kept: tuple[int, ...], pair: Pair) -> Tensor:
    others = tuple(dimension for dimension, variable in enumerate(kept, start=1) if variable not in pair)
    return part.sum(others) if others else part
