"""Ground clauses: the joined rows of tables that form a cycle, and their messages, block by block.

In a ground clause stand rows of k tables with values v; its message to row i is the product of the other values. A
backward pass goes through the clauses again, so that no more than a block of products is ever held; clauses that do not
fit into memory are joined anew in each pass, range by range of the first table (`StreamedClauses`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rulewright.data.index import Ids
from rulewright.inject.layer.relations import Joiner, Table

BLOCK = 2**17
"""How many ground clauses are gone through at once: their products stay in the cache of a processor."""


class GroundClauses:
    """Where the rows of each ground clause stand in the tables; columns that nothing needs are None."""

    def __init__(self, columns: list[Tensor | None], count: int, device: torch.device) -> None:
        self.columns, self.count, self.device = columns, count, device
        self.needed: set[int] = set()

    @classmethod
    def of(cls, columns: Sequence[npt.NDArray[np.int32] | None], device: torch.device) -> GroundClauses:
        """Take columns of positions."""
        tensors = [None if column is None else torch.from_numpy(column).to(device) for column in columns]
        return cls(tensors, next(len(column) for column in columns if column is not None), device)

    def drop_unneeded(self) -> None:
        """Let go of columns that are not ``needed``."""
        self.columns = [column if index in self.needed else None for index, column in enumerate(self.columns)]

    def blocks(self) -> Iterator[list[Tensor | None]]:
        """Return the columns block by block."""
        for start in range(0, self.count, BLOCK):
            yield [None if column is None else column[start : start + BLOCK] for column in self.columns]


class StreamedClauses(GroundClauses):
    """Ground clauses of which only a range is held: those of some rows of the first table, joined when they are needed.

    ``counts`` are how many each of these rows is in; a range has ``most`` at least where one row has as many.
    """

    def __init__(
        self,
        joiner: Joiner,
        tables: Sequence[Table],
        variables: Sequence[Sequence[int]],
        counts: Ids,
        most: int,
        device: torch.device,
        *,
        all_known: bool,
    ) -> None:
        super().__init__([None] * len(tables), int(counts.sum()), device)
        self._joiner, self._tables, self._variables, self._all_known = joiner, tables, variables, all_known
        numbers = (np.cumsum(counts) - counts) // max(1, most)  # of the range that each row's clauses begin in
        starts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1])) if len(counts) else np.zeros(0, np.int64)
        self.ranges = list(zip(starts.tolist(), [*starts[1:].tolist(), len(counts)], strict=True))

    def drop_unneeded(self) -> None:
        """Nothing is held."""

    def blocks(self) -> Iterator[list[Tensor | None]]:
        """Join range by range, and return the columns of each block by block."""
        wanted = [index in self.needed for index in range(len(self._tables))]
        for bounds in self.ranges:
            columns = self._joiner.join(
                self._tables, self._variables, wanted=wanted, bounds=bounds, all_known=self._all_known
            )
            yield from GroundClauses.of(columns, self.device).blocks()


class JoinedMessages(torch.autograd.Function):
    """The messages of ground clauses to the rows of the tables ``heads``; a vector of None is of ones."""

    @staticmethod
    def forward(
        ctx: Any,
        clauses: GroundClauses,
        heads: tuple[int, ...],
        lengths: tuple[int, ...],
        dtype: torch.dtype,
        *vectors: Tensor | None,
    ) -> tuple[Tensor, ...]:
        """Return the messages to each head."""
        ctx.clauses, ctx.heads, ctx.lengths = clauses, heads, lengths
        ctx.save_for_backward(*vectors)
        totals = [torch.zeros(lengths[head], dtype=dtype, device=clauses.device) for head in heads]
        for block in clauses.blocks():
            values = _take(vectors, block)
            for total, head, product in zip(totals, heads, _leave_one_out(values, heads), strict=True):
                _add(total, block[head], product)
        return tuple(totals)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the gradients of the vectors: the messages with a head's gradient in place of its value."""
        vectors: tuple[Tensor | None, ...] = ctx.saved_tensors
        wanted = [index for index, needed in enumerate(ctx.needs_input_grad[4:]) if needed]
        totals = {index: torch.zeros_like(vectors[index]) for index in wanted}  # type: ignore[arg-type]
        for block in ctx.clauses.blocks():
            values = _take(vectors, block)
            for head, gradient in zip(ctx.heads, gradients, strict=True):
                others = [index for index in wanted if index != head]
                if gradient is None or not others:
                    continue
                replaced = [*values]
                replaced[head] = gradient.index_select(0, block[head])
                for index, product in zip(others, _leave_one_out(replaced, others), strict=True):
                    _add(totals[index], block[index], product)
        return (None, None, None, None, *(totals.get(index) for index in range(len(vectors))))


def send_joined(
    clauses: GroundClauses,
    heads: tuple[int, ...],
    lengths: tuple[int, ...],
    dtype: torch.dtype,
    vectors: Sequence[Tensor | None],
) -> tuple[Tensor, ...]:
    """Return the messages of ground clauses to the rows of the tables ``heads``; a vector of None is of ones."""
    messages: tuple[Tensor, ...] = JoinedMessages.apply(clauses, heads, lengths, dtype, *vectors)  # type: ignore[no-untyped-call]
    return messages


def _take(vectors: Sequence[Tensor | None], block: Sequence[Tensor | None]) -> list[Tensor | None]:
    return [
        None if vector is None or column is None else vector.index_select(0, column)
        for vector, column in zip(vectors, block, strict=True)
    ]


def _add(total: Tensor, column: Tensor | None, product: Tensor | None) -> None:
    assert column is not None
    if product is None:
        product = torch.ones(1, dtype=total.dtype, device=total.device).expand(len(column))
    total.index_add_(0, column, product)


def _leave_one_out(values: Sequence[Tensor | None], heads: Sequence[int]) -> list[Tensor | None]:
    """Return for each head, in ascending order, the product of the other values; None is 1."""
    after: list[Tensor | None] = [None]
    for value in reversed(values[1:]):
        after.append(_times(value, after[-1]))
    after.reverse()
    products: list[Tensor | None] = []
    before: Tensor | None = None
    for index, value in enumerate(values):
        if index in heads:
            products.append(_times(before, after[index]))
        before = _times(before, value)
    return products


def _times(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return other if one is None else one
    return one * other
