"""Hinges of Horn clauses over entity pairs: which are open, in one pass over all groundings.

A grounding of a rule contributes the hinge ``max(0, offset + Σ body − head)`` of log-probabilities. Its derivative is
one for body atoms and minus one for the head where the hinge is open, and zero elsewhere: so one pass over all
groundings finds which hinges are open, three reductions of that pass give the slope of the sum in every
log-probability, and the sum itself is the slope times the log-probabilities plus the offsets of the open hinges.
Nothing of the size of all groundings is kept.

Where a hinge teaches one side only (`Side`), the slope still gives the sum, and a second slope, of what is taught, the
gradient.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from rulewright.inject.atoms.clauses import AtomClause
from rulewright.inject.atoms.grids import Side, log_not
from rulewright.logic.chain import encode_step, is_inverse, step_relation

Pair: TypeAlias = tuple[int, int]

MOST_COUNTED = 2**24
"""Up to this, whole numbers of type float32 are exact."""


class PairHinges:
    """Sums the hinges of Horn clauses over relations, for documents of any number of entities.

    ``slack(length)`` is ``-log η`` for a body of that length, ``weights`` has a factor for every clause. ``largest``
    takes for every clause the largest hinge over the body's own entities and then the mean over all pairs (the
    published form); otherwise all hinges are added up, or with ``mean`` the mean over the groundings of each clause.
    """

    def __init__(
        self,
        clauses: Iterable[AtomClause],
        relations: Sequence[str],
        slack: Callable[[int], float],
        *,
        weights: Iterable[float],
        largest: bool,
        mean: bool,
        side: Side = "both",
    ) -> None:
        self.largest, self.mean, self.side = largest, mean, side
        self.steps, self.groups = _group_clauses(zip(clauses, weights, strict=True), relations, slack)
        self.inverse = [position for position, step in enumerate(self.steps) if is_inverse(step)]

    def sum_documents(self, logits: Tensor, mask: Tensor | None, chunk: int) -> Tensor:
        """Return the sum for each document of ``logits[D, n, n, R]``, differentiable any number of times."""
        with torch.no_grad():
            slope, taught, offsets = self._find_slopes(logits, mask, chunk)
        used = slope != 0  # what no hinge is open for may be anything, padding and the diagonal too
        if taught is not None:
            used |= taught != 0
        # Large parts of the sum cancel, so it is taken in double precision.
        log_p = nn.functional.logsigmoid(logits.to(slope.dtype).masked_fill(~used, 0.0)).double()
        values = (slope.double() * log_p).flatten(1).sum(1) + offsets
        values = values + (values.clamp(min=0.0) - values).detach()
        if taught is None:
            return values
        told = (taught.double() * log_p).flatten(1).sum(1)
        return values.detach() + (told - told.detach())

    def _find_slopes(self, logits: Tensor, mask: Tensor | None, chunk: int) -> tuple[Tensor, Tensor | None, Tensor]:
        """Return the derivative of the sum by the log-probability of every atom, what of it is taught where that is
        not all, and the rest of the sum."""
        precise = torch.float64 if logits.dtype == torch.float64 else torch.float32
        offsets = torch.zeros(len(logits), dtype=torch.float64, device=logits.device)
        slope = torch.zeros(logits.shape, dtype=precise, device=logits.device)
        taught = None if self.side == "both" else torch.zeros_like(slope)
        for documents, pairs in _group_by_size(logits, mask):
            sums = self._sum_equal_sizes(logits[pairs].to(precise), chunk)
            slope[pairs], offsets[documents] = self._join_steps(sums.gradient, logits.shape[-1]), sums.offsets.double()
            if taught is not None:
                taught[pairs] = self._join_steps(sums.taught, logits.shape[-1])
        return slope, taught, offsets

    def _sum_equal_sizes(self, logits: Tensor, chunk: int) -> _HingeSums:
        """Return the slopes and offsets of documents that have the same number of entities."""
        log_p = nn.functional.logsigmoid(logits.permute(0, 3, 1, 2).contiguous())
        sums = _HingeSums(self._walk_steps(log_p), largest=self.largest, mean=self.mean, chunk=chunk, side=self.side)
        for group in self.groups:
            sums.add(group)
        return sums

    def _walk_steps(self, log_p: Tensor) -> Tensor:
        """Return the log-probabilities of the steps in use as [D, S, n, n], with -inf on the diagonal."""
        table = log_p[:, [step_relation(step) for step in self.steps]]
        table[:, self.inverse] = table[:, self.inverse].transpose(2, 3)
        table.diagonal(dim1=2, dim2=3).fill_(-math.inf)
        return table

    def _join_steps(self, gradient: Tensor, relations: int) -> Tensor:
        """Bring the gradient of steps back to [D, n, n, R]."""
        size = gradient.shape[-1]
        gradient = gradient.view(-1, len(self.steps), size, size)
        gradient[:, self.inverse] = gradient[:, self.inverse].transpose(2, 3)
        used = torch.tensor([step_relation(s) for s in self.steps], dtype=torch.long, device=gradient.device)
        joined = gradient.new_zeros(len(gradient), relations, size, size).index_add_(1, used, gradient)
        return joined.permute(0, 2, 3, 1)


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


class _Head(NamedTuple):
    """A head of a body: the position of its step, ``log(η · confidence)``, and the weight of the rule."""

    slot: int
    offset: float
    weight: float


@dataclass(frozen=True)
class _RuleGroup:
    """Rules whose bodies join the same pairs of variables; only the relations differ.

    Variables 0 and 1 are those of the head, the others are the body's own. Each body atom stands on a pair
    (a, b) with a < b; ``slots`` gives for every body and atom the position of its step in the list that
    `_group_clauses` returns. ``heads`` has the heads of every body; bodies with more heads come first.
    """

    variables: int
    pairs: tuple[Pair, ...]
    slots: tuple[tuple[int, ...], ...]
    heads: tuple[tuple[_Head, ...], ...]

    def unjoined_pairs(self) -> list[Pair]:
        """Return the pairs of variables that no atom joins: their entities must still differ."""
        joined = {*self.pairs, (0, 1)}
        return [(a, b) for b in range(self.variables) for a in range(b) if (a, b) not in joined]


def _group_clauses(
    weighted: Iterable[tuple[AtomClause, float]], relations: Sequence[str], slack: Callable[[int], float]
) -> tuple[list[int], list[_RuleGroup]]:
    """Group clauses by shape and body; return the steps that they use, and the groups."""
    relation_indices: Mapping[str, int] = {name: index for index, name in enumerate(relations)}
    slots: dict[int, int] = {}  # of each step
    shapes: dict[tuple[int, tuple[Pair, ...]], dict[tuple[int, ...], list[_Head]]] = {}
    for clause, weight in weighted:
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
        bodies.setdefault(body_slots, []).append(_Head(head_slot, offset, weight))
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
    ``(gradient[d] * table[d]).sum() + offsets[d]``; ``taught`` is what of the gradient is passed on.
    """

    def __init__(self, table: Tensor, *, largest: bool, mean: bool, chunk: int, side: Side = "both") -> None:
        self.documents, self.steps, self.size = table.shape[:3]
        self.table = table.view(-1, self.size, self.size)
        self.gradient = torch.zeros_like(self.table)
        self.taught = self.gradient if side == "both" else torch.zeros_like(self.table)
        self.offsets = table.new_zeros(self.documents)
        self._largest, self._mean, self._chunk, self._side = largest, mean, chunk, side
        self._different = table.new_zeros(1, self.size, self.size)
        self._different.diagonal(dim1=1, dim2=2).fill_(-math.inf)
        self._buffers = [table.new_empty(0)] * 3

    def add(self, group: _RuleGroup) -> None:
        """Add every rule of a group, for every assignment of distinct entities."""
        if self.size < group.variables:
            return
        share = 1.0
        if self._mean:
            share = 1 / math.perm(self.size, 2 if self._largest else group.variables)
        splits = self._side == "likelier"
        device = self.table.device
        slots = torch.tensor(group.slots, device=device)
        # Body by body over all documents: rows with more heads stay in front, as in the group.
        every_row = torch.arange(len(group.slots) * self.documents, device=device)
        for rows in torch.split(every_row, max(1, self._chunk // self.size**group.variables)):
            body, document = rows // self.documents, rows % self.documents
            first = document * self.steps
            row_heads = [group.heads[index] for index in body.tolist()]
            table_rows = (first[:, None] + slots[body]).unbind(1)
            paired = zip(table_rows, group.pairs, strict=True)
            atoms = [_BodyTerm(self.table[some], pair, splits=splits) for some, pair in paired]
            heads = []
            for position in range(len(row_heads[0])):
                chosen = [heads_of_row[position] for heads_of_row in row_heads if len(heads_of_row) > position]
                head_rows = first[: len(chosen)] + torch.tensor([head.slot for head in chosen], device=device)
                offsets = self.table.new_tensor([head.offset for head in chosen])
                weights = self.table.new_tensor([head.weight for head in chosen])
                heads.append(_HeadTerm(self.table[head_rows], offsets, weights, head_rows, splits=splits))
            different = [_BodyTerm(self._different, pair, is_fixed=True) for pair in group.unjoined_pairs()]
            self._add_rows(_BodyLevels(group.variables, [*atoms, *different]), len(rows), heads)
            for atom, some in zip(atoms, table_rows, strict=True):
                self._add_slopes(some, atom, share, taught=self._side == "body")
            for head in heads:
                self._add_slopes(head.table_rows, head, -share, taught=self._side == "head")
                opened = head.gradient.sum((1, 2)) * head.offsets * share
                self.offsets.index_add_(0, document[: len(opened)], opened)

    def _add_slopes(self, rows: Tensor, term: _BodyTerm | _HeadTerm, share: float, *, taught: bool) -> None:
        """Add what a term has collected to rows of the table."""
        self.gradient.index_add_(0, rows, term.gradient, alpha=share)
        if term.taught is not None:
            self.taught.index_add_(0, rows, term.taught, alpha=share)
        elif taught:
            self.taught.index_add_(0, rows, term.gradient, alpha=share)

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
        base = None
        if self._side == "likelier":
            sizes = sorted(block.stop - block.start for block in ranges)
            base = math.prod(sizes[2:]) + 1  # more than the groundings of a block that have a pair in common
            if base * base > MOST_COUNTED:
                sums = sums.double()
        for position, head in enumerate(heads):
            rows = len(head.values)
            needed = head.threshold(ranges, prefix, levels.last)
            sure = head.threshold(ranges, prefix, levels.last, sure=True) if base else needed
            if levels.last > 1:
                needed, sure = needed.unsqueeze(-1), sure.unsqueeze(-1)
            last = position == len(heads) - 1
            if base is None:
                opened = sums[:rows].gt_(needed) if last else self._compare(1, torch.gt, sums[:rows], needed)
            else:
                opened = self._compare(1, torch.gt, sums[:rows], needed)
                above = torch.nextafter(needed, torch.full_like(needed, math.inf))  # only open hinges teach
                sure = torch.maximum(sure, above)
                raised = sums[:rows].ge_(sure) if last else self._compare(2, torch.ge, sums[:rows], sure)
                opened.add_(raised, alpha=base)
            levels.collect(opened, ranges, head, base=base)

    def _open_largest(
        self, levels: _BodyLevels, ranges: tuple[slice, ...], sums: Tensor, heads: list[_HeadTerm]
    ) -> None:
        """Published form: one hinge for each pair of the head, at the body's own entities that make it largest."""
        prefix = levels.add_up(levels.prefix, ranges, range(levels.last))
        if prefix is not None:
            sums.add_(prefix.unsqueeze(-1))
        own = tuple(range(3, sums.dim()))
        best = sums.amax(own, keepdim=True)
        pairs = best.flatten(3)[:, :, :, 0]
        weights = torch.zeros_like(pairs)
        lowered = torch.zeros_like(pairs) if self._side == "likelier" else None
        for head in heads:
            rows = len(head.values)
            opened = pairs[:rows].gt(head.threshold(ranges, None, 2)).to(sums.dtype) * head.weights
            head.gradient[:, ranges[0], ranges[1]] += opened
            weights[:rows] += opened
            if lowered is not None and head.taught is not None:
                raised = opened * pairs[:rows].ge(head.threshold(ranges, None, 2, sure=True))
                head.taught[:, ranges[0], ranges[1]] += raised
                lowered[:rows] += opened - raised
        if weights.any():
            # Entities that tie share the derivative evenly, as torch.amax has it.
            chosen = sums.eq_(best)
            count = chosen.sum(own, keepdim=True)
            if lowered is None:
                levels.collect(chosen.mul_(weights.view_as(count) / count), ranges, None)
            else:
                levels.collect(chosen * (weights.view_as(count) / count), ranges, None)
                levels.collect(chosen.mul_(lowered.view_as(count) / count), ranges, None, taught=True)

    def _compare(self, index: int, compare: Callable[..., Tensor], sums: Tensor, bound: Tensor) -> Tensor:
        """Return 1 where a comparison holds and 0 elsewhere, in reused memory where the type allows it."""
        if sums.dtype != self.table.dtype:
            return compare(sums, bound).to(sums.dtype)
        return compare(sums, bound, out=self._buffer(index, sums.shape))

    def _buffer(self, index: int, shape: Sequence[int]) -> Tensor:
        """Return a reused piece of memory: fresh pages for every block would cost more than the arithmetic."""
        count = math.prod(shape)
        if self._buffers[index].numel() < count:
            self._buffers[index] = self.table.new_empty(count)
        return self._buffers[index][:count].view(*shape)


class _BodyTerm:
    """One body atom of some rows, or the fixed demand that two variables differ, and the gradient it collects.

    Where hinges differ in the side that they teach, ``taught`` is the part of the gradient that is passed on.
    """

    def __init__(self, values: Tensor, pair: Pair, *, is_fixed: bool = False, splits: bool = False) -> None:
        self.values, self.pair, self.is_fixed = values, pair, is_fixed
        self.gradient = values.new_zeros(0 if is_fixed else values.shape)
        self.taught = torch.zeros_like(self.gradient) if splits else None


class _HeadTerm:
    """One head of some rows: log-probabilities, offsets, rows of the table, and how many hinges are open, weighted.

    Where hinges differ in the side that they teach, ``taught`` counts those that raise the head.
    """

    def __init__(
        self, log_p: Tensor, offsets: Tensor, weights: Tensor, table_rows: Tensor, *, splits: bool = False
    ) -> None:
        self.offsets, self.table_rows = offsets, table_rows
        self.weights = weights[:, None, None]
        self.is_weighted = bool((weights != 1).any())
        self.gradient = torch.zeros_like(log_p)
        self.taught = torch.zeros_like(log_p) if splits else None
        self.log_not = log_not(log_p) if splits else None
        log_p.diagonal(dim1=1, dim2=2).fill_(math.inf)  # no body is larger: the two entities must differ
        self.values = log_p.sub_(offsets[:, None, None])

    def threshold(
        self, ranges: tuple[slice, ...], prefix: Tensor | None, dimensions: int, *, sure: bool = False
    ) -> Tensor:
        """Return what the rest of a body must exceed to open the hinge, or with ``sure`` reach to raise the head.

        There is room for the variables before ``dimensions``, and for the last one where there are more than two.
        """
        values = self.log_not if sure else self.values
        assert values is not None
        part = values[:, ranges[0], ranges[1]]
        part = part.view(*part.shape, *[1] * (dimensions - 2))
        if prefix is not None:
            part = part - prefix[: len(part)]
        return part


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

    def collect(
        self,
        opened: Tensor,
        ranges: tuple[slice, ...],
        head: _HeadTerm | None,
        *,
        base: int | None = None,
        taught: bool = False,
    ) -> None:
        """Reduce the open hinges of a block to the gradient of every term, and count them for the head.

        With a ``base`` a number of ``opened`` is 1 for an open hinge, and the base more where it raises the head.
        Without a head the hinges are weighted, and are of the gradient or ``taught``.
        """
        every = tuple(range(self.last + 1))

        def add(terms: list[_BodyTerm], part: Tensor, kept: tuple[int, ...]) -> None:
            for term in terms:
                if not term.is_fixed:
                    total, raised = _read_counts(_reduce_to_pair(part, kept, term.pair), head, base)
                    block = (slice(len(part)), *(ranges[variable] for variable in term.pair))
                    kept_gradient = term.taught if taught else term.gradient
                    assert kept_gradient is not None
                    kept_gradient[block] += total
                    if raised is not None and term.taught is not None:
                        term.taught[block] += total - raised

        if self.last == 1:
            counts, kept = opened, every
            add(self.inner, opened, every)
        else:
            counts, kept = opened.sum(-1), every[:-1]
            add(self.prefix, counts, kept)
            add(self.outer, opened.sum(-2), (*every[:-2], self.last))
            add(self.inner, opened.sum(tuple(range(1, self.last))), every[-2:])
        if head is not None:
            total, raised = _read_counts(_reduce_to_pair(counts, kept, (0, 1)), head, base)
            head.gradient[:, ranges[0], ranges[1]] += total
            if raised is not None and head.taught is not None:
                head.taught[:, ranges[0], ranges[1]] += raised


def _read_counts(counts: Tensor, head: _HeadTerm | None, base: int | None) -> tuple[Tensor, Tensor | None]:
    """Return the weighted numbers of hinges that are open and, with a base, of those that raise the head."""
    raised = None
    if base is not None:
        raised = torch.div(counts, base, rounding_mode="floor")
        counts = counts - raised * base
    if head is not None and head.is_weighted:
        return counts * head.weights, None if raised is None else raised * head.weights
    return counts, raised


def _reduce_to_pair(part: Tensor, kept: tuple[int, ...], pair: Pair) -> Tensor:
    others = tuple(dimension for dimension, variable in enumerate(kept, start=1) if variable not in pair)
    return part.sum(others) if others else part
