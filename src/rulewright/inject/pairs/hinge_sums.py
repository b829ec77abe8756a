"""How far dense log-probabilities break rules: exact sums over all groundings with their gradient, in bounded memory.

A grounding of a rule contributes ``max(0, offset + Σ body − head)``. Its derivative is one for body atoms and minus one
for the head where the hinge is open, and zero elsewhere: so one pass over all groundings finds which hinges are open,
three reductions of that pass give the gradient, and the sum itself is the gradient times the log-probabilities plus the
offsets of the open hinges. Nothing of the size of all groundings is ever kept.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from rulewright.inject.pairs.clauses import PairClause

Pair: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class RuleGroup:
    """Rules whose bodies join the same pairs of variables; only the relations differ.

    Variables 0 and 1 are those of the head, the others are the body's own. Each body atom stands on a pair
    (a, b) with a < b; ``slices`` gives for every body and atom the oriented relation that is meant, a number in the
    list that `arranged` returns. ``heads`` has the heads of every body as (oriented relation, offset), where the
    offset is ``log(η · confidence)``; bodies with more heads come first.
    """

    variables: int
    pairs: tuple[Pair, ...]
    slices: tuple[tuple[int, ...], ...]
    heads: tuple[tuple[tuple[int, float], ...], ...]

    def uncovered(self) -> list[Pair]:
        """Return the pairs of variables that no atom joins: their entities must still differ."""
        covered = {*self.pairs, (0, 1)}
        every = ((a, b) for b in range(self.variables) for a in range(b))
        return [pair for pair in every if pair not in covered]


def arranged(
    clauses: Iterable[PairClause], slack: Callable[[int], float]
) -> tuple[list[tuple[int, bool]], list[RuleGroup]]:
    """Group clauses by shape and body; return the oriented relations (relation, inverse) they use, and the groups.

    ``slack(length)`` is ``-log η`` for a body of that length. A rule of confidence 0 asks for nothing and is left out.
    """
    oriented: dict[tuple[int, bool], int] = {}
    shapes: dict[tuple[int, tuple[Pair, ...]], dict[tuple[int, ...], list[tuple[int, float]]]] = {}
    for clause in clauses:
        if clause.confidence == 0:
            continue
        head = clause.heads[0]
        own = [variable for variable in range(len(clause.variables)) if variable not in head[1:]]
        standard = clause.renumbered([head.first, head.second, *own])
        atoms = sorted(
            ((min(each[1:]), max(each[1:])), (each.relation, each.first > each.second)) for each in standard.body
        )
        pairs = tuple(pair for pair, _ in atoms)
        slices = tuple(oriented.setdefault(relation, len(oriented)) for _, relation in atoms)
        head_slice = oriented.setdefault((head.relation, False), len(oriented))
        offset = math.log(clause.confidence) - slack(len(atoms))
        bodies = shapes.setdefault((len(clause.variables), pairs), {})
        bodies.setdefault(slices, []).append((head_slice, offset))
    groups = []
    for (variables, pairs), bodies in shapes.items():
        ranked = sorted(bodies.items(), key=lambda item: -len(item[1]))
        groups.append(
            RuleGroup(
                variables, pairs, tuple(slices for slices, _ in ranked), tuple(tuple(heads) for _, heads in ranked)
            )
        )
    return list(oriented), groups


class HingeSums:
    """Accumulates the gradient of the hinges of many rule groups over the documents of one size.

    ``table[D, S, n, n]`` holds the log-probability of every oriented relation, with -inf on the diagonal. Afterwards
    ``gradient`` (of the same shape) and ``offsets[D]`` give the sum for document d as
    ``(gradient[d] * table[d]).sum() + offsets[d]``.
    """

    def __init__(self, table: Tensor, *, largest: bool, chunk: int) -> None:
        self.documents, self.used, self.size = table.shape[:3]
        self.table = table.view(-1, self.size, self.size)
        self.gradient = torch.zeros_like(self.table)
        self.offsets = table.new_zeros(self.documents)
        self._largest, self._chunk = largest, chunk
        self._different = table.new_zeros(1, self.size, self.size)
        self._different.diagonal(dim1=1, dim2=2).fill_(-math.inf)
        self._buffers: list[Tensor] = []

    def add(self, group: RuleGroup) -> None:
        """Add every rule of a group, for every assignment of distinct entities."""
        if self.size < group.variables:
            return
        device = self.table.device
        slices = torch.tensor(group.slices, device=device)
        # Body by body over all documents: rows with more heads stay in front, as in the group.
        rows = torch.arange(len(group.slices) * self.documents, device=device)
        for some in torch.split(rows, max(1, self._chunk // self.size**group.variables)):
            body, document = some // self.documents, some % self.documents
            first = document * self.used
            bodies = [group.heads[number] for number in body.tolist()]
            places = (first[:, None] + slices[body]).unbind(1)
            atoms = [_Term(self.table[place], pair) for place, pair in zip(places, group.pairs, strict=True)]
            heads = []
            for slot in range(len(bodies[0])):
                chosen = [each[slot] for each in bodies if len(each) > slot]
                place = first[: len(chosen)] + torch.tensor([number for number, _ in chosen], device=device)
                heads.append(_Head(self.table[place], self.table.new_tensor([offset for _, offset in chosen]), place))
            different = [_Term(self._different, pair, fixed=True) for pair in group.uncovered()]
            self._add_rows(_Levels(group.variables, [*atoms, *different]), len(some), heads)
            for atom, place in zip(atoms, places, strict=True):
                self.gradient.index_add_(0, place, atom.gradient)
            for head in heads:
                self.gradient.index_add_(0, head.place, head.open, alpha=-1)
                opened = head.open.sum((1, 2)) * head.offset
                self.offsets.index_add_(0, document[: len(opened)], opened)

    def _add_rows(self, levels: _Levels, rows: int, heads: list[_Head]) -> None:
        """Run over all groundings of some rows, block by block, and leave the gradient with each term."""
        variables = levels.last + 1
        largest = self._largest and variables > 2
        for ranges in self._blocks(variables, min(variables - 2, 2) if largest else variables - 2):
            sums = self._body_sums(levels, ranges, rows)
            if largest:
                self._open_largest(levels, ranges, sums, heads)
            else:
                self._open_all(levels, ranges, sums, heads)

    def _blocks(self, variables: int, leading: int) -> Iterator[tuple[slice, ...]]:
        """Split the ranges of the leading variables so that a block has at most some ``chunk`` groundings."""
        splits = []
        for place in range(variables):
            rest = self.size ** (variables - place - 1)
            step = min(self.size, max(1, self._chunk // rest)) if place < leading else self.size
            splits.append([slice(start, min(start + step, self.size)) for start in range(0, self.size, step)])
        return itertools.product(*splits)

    def _body_sums(self, levels: _Levels, ranges: tuple[slice, ...], rows: int) -> Tensor:
        """Sum the terms that have the last variable: for every row, value of the others, and value of the last."""
        inner = levels.total(levels.inner, ranges, range(levels.last + 1))
        outer = levels.total(levels.outer, ranges, range(levels.last + 1))
        assert inner is not None
        shape = (rows, *(each.stop - each.start for each in ranges))
        sums = self._buffer(0, shape)
        if outer is None:
            return sums.copy_(inner)
        return torch.add(outer, inner, out=sums)

    def _open_all(self, levels: _Levels, ranges: tuple[slice, ...], sums: Tensor, heads: list[_Head]) -> None:
        """Sum form: every grounding has a hinge of its own."""
        prefix = levels.total(levels.prefix, ranges, range(max(2, levels.last)))
        for slot, head in enumerate(heads):
            rows = len(head.values)
            needed = head.needed(ranges, levels.last)
            if prefix is not None:
                needed = needed - prefix[:rows]
            if levels.last > 1:
                needed = needed.unsqueeze(-1)
            if slot == len(heads) - 1:
                opened = sums[:rows].gt_(needed)
            else:
                opened = torch.gt(sums[:rows], needed, out=self._buffer(1, (rows, *sums.shape[1:])))
            levels.collect(opened, ranges, head)

    def _open_largest(self, levels: _Levels, ranges: tuple[slice, ...], sums: Tensor, heads: list[_Head]) -> None:
        """Published form: one hinge for each pair of the head, at the body's own entities that make it largest."""
        prefix = levels.total(levels.prefix, ranges, range(levels.last))
        if prefix is not None:
            sums.add_(prefix.unsqueeze(-1))
        own = tuple(range(3, sums.dim()))
        best = sums.amax(own, keepdim=True)
        weights = torch.zeros_like(best)
        for head in heads:
            rows = len(head.values)
            opened = best.flatten(3)[:rows, :, :, 0].gt(head.needed(ranges, 2)).to(sums.dtype)
            head.open[:, ranges[0], ranges[1]] += opened
            weights[:rows] += opened.view(weights[:rows].shape)
        if weights.any():
            # Entities that tie share the derivative evenly, as torch.amax has it.
            chosen = sums.eq_(best)
            chosen.mul_(weights / chosen.sum(own, keepdim=True))
            levels.collect(chosen, ranges, None)

    def _buffer(self, number: int, shape: Sequence[int]) -> Tensor:
        """Return a reused piece of memory: fresh pages for every block would cost more than the arithmetic."""
        count = math.prod(shape)
        while len(self._buffers) <= number:
            self._buffers.append(self.table.new_empty(0))
        if self._buffers[number].numel() < count:
            self._buffers[number] = self.table.new_empty(count)
        return self._buffers[number][:count].view(*shape)


class _Term:
    """One body atom of some rows, or the fixed demand that two variables differ, and the gradient it collects."""

    def __init__(self, values: Tensor, pair: Pair, *, fixed: bool = False) -> None:
        self.values, self.pair, self.fixed = values, pair, fixed
        self.gradient = values.new_zeros(0 if fixed else values.shape)


@dataclass
class _Head:
    """One head of some rows: log-probabilities, offsets, places in the table, and the number of open hinges."""

    values: Tensor
    offset: Tensor
    place: Tensor

    def __post_init__(self) -> None:
        self.open = torch.zeros_like(self.values)
        self.values.diagonal(dim1=1, dim2=2).fill_(math.inf)  # no body is larger: the two entities must differ
        self.values -= self.offset[:, None, None]

    def needed(self, ranges: tuple[slice, ...], dimensions: int) -> Tensor:
        """Return what a body must exceed to open the hinge, with room for the variables before ``dimensions``."""
        part = self.values[:, ranges[0], ranges[1]]
        return part.view(*part.shape, *[1] * (dimensions - 2))


class _Levels:
    """The terms of a body by what they share with the last two variables.

    ``prefix`` lacks the last variable, ``outer`` has it without the one before, ``inner`` has both: so only two
    operations run over all groundings, whatever the number of atoms.
    """

    def __init__(self, variables: int, terms: list[_Term]) -> None:
        self.last = variables - 1
        self.prefix = [each for each in terms if each.pair[1] != self.last]
        self.outer = [each for each in terms if each.pair[1] == self.last and each.pair[0] != self.last - 1]
        self.inner = [each for each in terms if each.pair == (self.last - 1, self.last)]

    def total(self, terms: list[_Term], ranges: tuple[slice, ...], dimensions: range) -> Tensor | None:
        """Sum terms over a block, shaped for broadcasting over the variables ``dimensions``."""
        found: Tensor | None = None
        for term in terms:
            part = term.values[:, ranges[term.pair[0]], ranges[term.pair[1]]]
            sizes = {term.pair[0]: part.shape[1], term.pair[1]: part.shape[2]}
            part = part.reshape(len(part), *[sizes.get(each, 1) for each in dimensions])
            found = part if found is None else found + part
        return found

    def collect(self, opened: Tensor, ranges: tuple[slice, ...], head: _Head | None) -> None:
        """Reduce the open hinges of a block to the gradient of every term, and count them for the head."""
        every = tuple(range(self.last + 1))
        if self.last == 1:
            counted, kept = opened, every
            _collect(self.inner, opened, every, ranges)
        else:
            counted, kept = opened.sum(-1), every[:-1]
            _collect(self.prefix, counted, kept, ranges)
            _collect(self.outer, opened.sum(-2), (*every[:-2], self.last), ranges)
            _collect(self.inner, opened.sum(tuple(range(1, self.last))), every[-2:], ranges)
        if head is not None:
            head.open[:, ranges[0], ranges[1]] += _summed(counted, kept, (0, 1))


def _collect(terms: list[_Term], part: Tensor, kept: tuple[int, ...], ranges: tuple[slice, ...]) -> None:
    """Add a reduction that kept some variables to the gradient of terms over pairs of them."""
    for term in terms:
        if not term.fixed:
            a, b = term.pair
            term.gradient[: len(part), ranges[a], ranges[b]] += _summed(part, kept, term.pair)


def _summed(part: Tensor, kept: tuple[int, ...], pair: Pair) -> Tensor:
    away = tuple(place + 1 for place, variable in enumerate(kept) if variable not in pair)
    return part.sum(away) if away else part
