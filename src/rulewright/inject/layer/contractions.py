"""Sums of products of tensors as a program: contractions in a good order, equal parts computed once.

A `ContractionProgram` is built for given sizes of types and run on any tensors of these sizes. A node is known by its
index; its sources come before it, and adding the same node twice gives the same index.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate, pairwise
from math import prod
from typing import TypeAlias

import opt_einsum
import torch
from torch import Tensor

BATCH = "*"
"""The type of the first dimension of tensors that have one for each row of a batch."""

Run: TypeAlias = Callable[..., Tensor]
Labels: TypeAlias = tuple[object, ...]
Operand: TypeAlias = tuple[int, Labels]
"""A node with a label for each of its dimensions."""


@dataclass(frozen=True, slots=True)
class Node:
    """A tensor with dimensions of the types ``dims``, computed from earlier nodes; an input has no ``run``.

    A node ``is_fixed`` that stays the same in all iterations. ``flops`` and ``elements`` are for one row of a batch.
    """

    operation: str
    sources: tuple[int, ...]
    dims: tuple[str, ...]
    run: Run | None
    is_fixed: bool
    flops: int
    elements: int


class ContractionProgram:
    """Nodes to compute one after another.

    >>> program = ContractionProgram({"node": 3})
    >>> p = program.add_input("p", ("node", "node"))
    >>> path = program.contract([(p, "ab"), (p, "bc")], "ac")
    >>> program.contract([(p, "xy"), (p, "yz")], "xz") == path
    True
    >>> ones = torch.ones(3, 3)
    >>> program.run({p: ones}, is_fixed=False)[path].tolist()
    [[3.0, 3.0, 3.0], [3.0, 3.0, 3.0], [3.0, 3.0, 3.0]]
    """

    def __init__(self, sizes: Mapping[str, int], *, optimize: bool = True, share: bool = True) -> None:
        self.nodes: list[Node] = []
        self._sizes = {**sizes, BATCH: 1}
        self._optimize, self._share = optimize, share
        self._indices: dict[tuple[object, ...], int] = {}

    # Building

    def add_input(self, key: object, dims: Sequence[str], *, is_fixed: bool = False) -> int:
        """Add a tensor that is given when the program runs."""
        return self._add("input", (), key, tuple(dims), None, is_fixed=is_fixed)

    def set_apart(self, source: int, first: int, second: int) -> int:
        """Add the source with zeros where two of its dimensions have the same index."""

        def run(tensor: Tensor) -> Tensor:
            mask = diagonal_mask(
                tensor.shape[first], tensor.ndim, (first, second), tensor.dtype, tensor.device, inside=0
            )
            return tensor * mask

        dims = self.nodes[source].dims
        return self._add("apart", (source,), (first, second), dims, run, flops=self._count_elements(dims))

    def select(self, source: int, indices: Mapping[int, int]) -> int:
        """Add the source at fixed indices of some dimensions, which it then lacks."""
        dims = self.nodes[source].dims
        index = tuple(indices.get(position, slice(None)) for position in range(len(dims)))
        left = tuple(type_name for position, type_name in enumerate(dims) if position not in indices)
        return self._add("select", (source,), tuple(sorted(indices.items())), left, lambda tensor: tensor[index])

    def take_diagonal(self, source: int, first: int, second: int) -> int:
        """Add the source where two dimensions have the same index, as one dimension in the position of the first."""

        def run(tensor: Tensor) -> Tensor:
            return torch.diagonal(tensor, dim1=first, dim2=second).movedim(-1, first)

        dims = self.nodes[source].dims
        return self._add("diagonal", (source,), (first, second), (*dims[:second], *dims[second + 1 :]), run)

    def contract(self, operands: Sequence[tuple[int, Sequence[object]]], output: Sequence[object]) -> int:
        """Add the sum of products that ``einsum("…,…->output")`` means; a batch dimension needs no label.

        Each operand is a node with a label for each of its dimensions, none twice. The output has a batch dimension if
        an operand has one.
        """
        labelled = [
            (node, (BATCH, *labels) if self.nodes[node].dims[:1] == (BATCH,) else tuple(labels))
            for node, labels in operands
        ]
        is_batched = any(labels[:1] == (BATCH,) for _, labels in labelled)
        result = (BATCH, *output) if is_batched else tuple(output)
        remaining: list[Operand] = []
        for position, (node, labels) in enumerate(labelled):
            others = {label for other, (_, more) in enumerate(labelled) if other != position for label in more}
            kept = tuple(label for label in labels if label in others or label in result)
            if kept != labels:  # sum over what nothing else has
                dims = self.nodes[node].dims
                summed = tuple(i for i, label in enumerate(labels) if label not in kept)
                left = tuple(type_name for i, type_name in enumerate(dims) if i not in summed)
                flops = self._count_elements(dims)
                node = self._add("sum", (node,), summed, left, partial(torch.sum, dim=summed), flops=flops)
            remaining.append((node, kept))
        for pair in self._find_path(remaining, result):
            chosen = [remaining[position] for position in pair]
            remaining = [operand for position, operand in enumerate(remaining) if position not in pair]
            needed = {label for _, labels in remaining for label in labels} | set(result)
            joined = chosen[0]
            for count, other_operand in enumerate(chosen[1:], start=2):
                later = {label for _, labels in chosen[count:] for label in labels}
                is_last = not remaining and count == len(chosen)
                joined = self._multiply(joined, other_operand, needed | later, result if is_last else None)
            remaining.append(joined)
        node, labels = remaining[0]
        if labels == result:
            return node
        order = tuple(labels.index(label) for label in result)
        dims = tuple(self.nodes[node].dims[position] for position in order)
        return self._add("permute", (node,), order, dims, lambda tensor: tensor.permute(order))

    def _find_path(self, operands: Sequence[Operand], result: Labels) -> Sequence[tuple[int, ...]]:
        """Return which operands to multiply, step by step; a product joins the end of those that are left."""
        if len(operands) <= 2 or not self._optimize:
            return [(0, 1)] * (len(operands) - 1)
        symbols: dict[object, str] = {}
        for label in (label for _, labels in operands for label in labels):
            symbols.setdefault(label, opt_einsum.get_symbol(len(symbols)))
        terms = ["".join(symbols[label] for label in labels) for _, labels in operands]
        equation = ",".join(terms) + "->" + "".join(symbols[label] for label in result if label in symbols)
        return _best_path(
            equation,
            tuple(tuple(self._sizes[type_name] for type_name in self.nodes[node].dims) for node, _ in operands),
        )

    def _multiply(self, left: Operand, right: Operand, needed: set[object], wanted: Labels | None) -> Operand:
        """Add the product of two nodes, summed over the labels that are not needed any more."""
        if left[0] != right[0] and right < left:
            left, right = right, left
        (one, one_labels), (other, other_labels) = left, right
        shared = [label for label in one_labels if label in other_labels]
        result = wanted
        if result is None:
            both = [label for label in shared if label in needed]
            result = (*both, *(label for label in (*one_labels, *other_labels) if label not in shared))
        codes = {label: code for code, label in enumerate(dict.fromkeys((*one_labels, *other_labels)))}
        coded = tuple(tuple(codes[label] for label in labels) for labels in (one_labels, other_labels, result))
        types = dict(zip(one_labels, self.nodes[one].dims, strict=True))
        types |= zip(other_labels, self.nodes[other].dims, strict=True)
        is_summed = any(label not in needed for label in shared)
        flops = (2 if is_summed else 1) * self._count_elements([types[label] for label in codes])
        dims = tuple(types[label] for label in result)
        return self._add("multiply", (one, other), coded, dims, _multiplication(*coded), flops=flops), result

    def _add(
        self,
        operation: str,
        sources: tuple[int, ...],
        arguments: object,
        dims: tuple[str, ...],
        run: Run | None,
        *,
        flops: int = 0,
        is_fixed: bool | None = None,
    ) -> int:
        key = (operation, sources, arguments, dims)
        if key in self._indices and (self._share or operation == "input"):
            return self._indices[key]
        if is_fixed is None:
            is_fixed = all(self.nodes[source].is_fixed for source in sources)
        self._indices[key] = len(self.nodes)
        self.nodes.append(Node(operation, sources, dims, run, is_fixed, flops, self._count_elements(dims)))
        return self._indices[key]

    def _count_elements(self, dims: Sequence[str]) -> int:
        return prod(self._sizes[type_name] for type_name in dims)

    # Running

    def run(
        self, values: dict[int, Tensor], *, is_fixed: bool, released: Sequence[Collection[int]] | None = None
    ) -> dict[int, Tensor]:
        """Compute all nodes that are (or are not) fixed into ``values``, which has the inputs.

        ``released[i]`` are those that are let go after node i is computed.
        """
        for index, node in enumerate(self.nodes):
            if node.run is None or index in values or node.is_fixed != is_fixed:
                continue
            values[index] = node.run(*[values[source] for source in node.sources])
            if released is not None:
                for source in released[index]:
                    del values[source]
        return values

    def plan_release(self, kept: Collection[int]) -> list[list[int]]:
        """Return for each node what is not needed after it: computed, not fixed, and not to be kept."""
        last_use = {source: index for index, node in enumerate(self.nodes) for source in node.sources}
        released: list[list[int]] = [[] for _ in self.nodes]
        for source, index in last_use.items():
            if self.nodes[source].run is not None and not self.nodes[source].is_fixed and source not in kept:
                released[index].append(source)
        return released

    def peak_elements(self, released: Sequence[Collection[int]]) -> int:
        """Return the most elements that nodes hold at one time in a run, for one row of a batch."""
        held = peak = sum(node.elements for node in self.nodes if node.is_fixed or node.run is None)
        for index, node in enumerate(self.nodes):
            if node.run is not None and not node.is_fixed:
                held += node.elements
                peak = max(peak, held)
                held -= sum(self.nodes[source].elements for source in released[index])
        return peak


@lru_cache(maxsize=4096)
def _best_path(equation: str, shapes: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    path, _ = opt_einsum.contract_path(equation, *shapes, shapes=True, optimize="auto")
    return tuple(tuple(pair) for pair in path)


def diagonal_mask(
    size: int, dims: int, pair: tuple[int, int], dtype: torch.dtype, device: torch.device, *, inside: int
) -> Tensor:
    """Return ``inside`` (1 or 0) where a pair of ``dims`` dimensions has the same index, else 1 - ``inside``.

    The other dimensions are of size 1.

    >>> diagonal_mask(2, 2, (0, 1), torch.float32, torch.device("cpu"), inside=0).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    make = _make_eye if torch.compiler.is_compiling() else _cached_eye
    return make(size, dtype, device, inside).view([size if position in pair else 1 for position in range(dims)])


def _make_eye(size: int, dtype: torch.dtype, device: torch.device, inside: int) -> Tensor:
    eye = torch.eye(size, dtype=dtype, device=device)
    return eye if inside else 1 - eye


@lru_cache(maxsize=16)
def _cached_eye(size: int, dtype: torch.dtype, device: torch.device, inside: int) -> Tensor:
    with torch.inference_mode(False):  # it is kept, and may serve a backward pass later
        return _make_eye(size, dtype, device, inside)


def _multiplication(one: Sequence[int], other: Sequence[int], result: Sequence[int]) -> Run:
    """Return a function that multiplies two tensors and sums over the labels that the result lacks."""
    summed = [label for label in one if label in other and label not in result]
    both = [label for label in result if label in one and label in other]
    left = [label for label in result if label in one and label not in other]
    right = [label for label in result if label in other and label not in one]
    if not summed or not (left or right):
        dims = (*result, *summed)
        first, second = (_regroup(labels, [{label} & {*labels} for label in dims]) for labels in (one, other))
        if not summed:
            return lambda a, b: first(a) * second(b)
        positions = tuple(range(len(result), len(dims)))
        return lambda a, b: (first(a) * second(b)).sum(positions)
    is_swapped = bool(left and right) and result.index(right[0]) < result.index(left[0])
    if is_swapped:
        one, other, left, right = other, one, right, left
    kept = [[label] for label in both]
    first, second = _regroup(one, [*kept, left, summed]), _regroup(other, [*kept, summed, right])
    dims = (*both, *left, *right)
    order = tuple(dims.index(label) for label in result)
    in_order = order == tuple(range(len(order)))
    is_flat = len(left) != 1 or len(right) != 1
    left_positions = [one.index(label) for label in left]
    right_positions = [other.index(label) for label in right]

    def run(a: Tensor, b: Tensor) -> Tensor:
        if is_swapped:
            a, b = b, a
        product = torch.matmul(first(a), second(b))
        if is_flat:
            sizes = [a.shape[position] for position in left_positions]
            sizes += [b.shape[position] for position in right_positions]
            product = product.reshape(*product.shape[: len(both)], *sizes)
        return product if in_order else product.permute(order)

    return run


def _regroup(labels: Sequence[int], groups: Sequence[Collection[int]]) -> Callable[[Tensor], Tensor]:
    """Return a function that views a tensor with a dimension for each group of labels, of size 1 where one is empty."""
    order = tuple(labels.index(label) for group in groups for label in group)
    in_order = order == tuple(range(len(order)))
    is_plain = all(len(group) == 1 for group in groups)
    bounds = [0, *accumulate(len(group) for group in groups)]

    def view(tensor: Tensor) -> Tensor:
        ordered = tensor if in_order else tensor.permute(order)
        if is_plain:
            return ordered
        return ordered.reshape([prod(ordered.shape[start:end]) for start, end in pairwise(bounds)])

    return view
