"""Sums of products of tensors as a program: contractions in a good order, equal parts computed once.

A `ContractionProgram` is built for given sizes of types and run on any tensors of these sizes. A node is known by its
index; its sources come before it, and adding the same node twice gives the same index.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, pairwise
from math import prod
from typing import Any, TypeAlias

import opt_einsum
import torch
from torch import Tensor

BATCH = "*"
"""The type of the first dimension of tensors that have one for each row of a batch; it counts as of size 1."""

VIEWS = ("diagonal", "select", "permute")
"""The operations that hold no elements of their own."""

Labels: TypeAlias = tuple[object, ...]
Operand: TypeAlias = tuple[int, Labels]
"""A node with a label for each of its dimensions."""


@dataclass(frozen=True, slots=True)
class Node:
    """A tensor with dimensions of the types ``dims``: an ``input``, or computed by an operation from earlier nodes.

    A node ``is_fixed`` that stays the same in all iterations. ``flops`` and ``elements`` are for one row of a batch.
    """

    operation: str
    sources: tuple[int, ...]
    arguments: Any
    dims: tuple[str, ...]
    is_fixed: bool
    flops: int
    elements: int


@dataclass
class ContractionProgram:
    """Nodes to compute one after another.

    >>> program = ContractionProgram({"node": 3})
    >>> p = program.add("input", (), "p", ("node", "node"))
    >>> path = program.contract([(p, "ab"), (p, "bc")], "ac")
    >>> program.contract([(p, "xy"), (p, "yz")], "xz") == path
    True
    >>> ones = torch.ones(3, 3)
    >>> program.run({p: ones}, is_fixed=False)[path].tolist()
    [[3.0, 3.0, 3.0], [3.0, 3.0, 3.0], [3.0, 3.0, 3.0]]
    """

    sizes: Mapping[str, int]
    optimize: bool = True
    share: bool = True
    nodes: list[Node] = field(default_factory=list, init=False)
    released: dict[int, list[int]] = field(default_factory=dict, init=False)
    """What is let go after a node is computed, once the program is finished."""
    _indices: dict[tuple[object, ...], int] = field(default_factory=dict, init=False)

    # Building

    def add(
        self,
        operation: str,
        sources: tuple[int, ...],
        arguments: object,
        dims: tuple[str, ...],
        *,
        flops: int = 0,
        is_fixed: bool | None = None,
    ) -> int:
        """Add a node; an ``input`` is given when the program runs, and ``arguments`` say which."""
        key = (operation, sources, arguments, dims)
        if key in self._indices and (self.share or operation == "input"):
            return self._indices[key]
        if is_fixed is None:
            is_fixed = bool(sources) and all(self.nodes[source].is_fixed for source in sources)
        elements = prod(self.sizes.get(type_name, 1) for type_name in dims)
        self._indices[key] = len(self.nodes)
        self.nodes.append(Node(operation, sources, arguments, dims, is_fixed, flops, elements))
        return self._indices[key]

    def transform(self, operation: str, source: int, arguments: tuple[Any, ...]) -> int:
        """Add a source with its dimensions changed.

        - ``apart``: zero where two dimensions have the same index;
        - ``diagonal``: where two have the same index, as one dimension in the position of the first;
        - ``select``: at fixed indices of some, given as (position, index);
        - ``sum``: summed over some; ``permute``: in another order.
        """
        dims = self.nodes[source].dims
        positions: Sequence[int] = range(len(dims))
        match operation:
            case "diagonal":
                positions = [position for position in positions if position != arguments[1]]
            case "select":
                positions = [position for position in positions if position not in dict(arguments)]
            case "sum":
                positions = [position for position in positions if position not in arguments]
            case "permute":
                positions = arguments
        flops = self.nodes[source].elements if operation in ("apart", "sum") else 0
        return self.add(operation, (source,), arguments, tuple(dims[position] for position in positions), flops=flops)

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
                node = self.transform("sum", node, tuple(i for i, label in enumerate(labels) if label not in kept))
            remaining.append((node, kept))
        path: Sequence[tuple[int, ...]] = [(0, 1)] * (len(remaining) - 1)
        if len(remaining) > 2 and self.optimize:
            path = self._find_path(remaining, result)
        for pair in path:
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
        return self.transform("permute", node, tuple(labels.index(label) for label in result))

    def _find_path(self, operands: Sequence[Operand], result: Labels) -> Sequence[tuple[int, ...]]:
        """Return which operands to multiply, step by step; a product joins the end of those that are left."""
        symbols: dict[object, str] = {}
        for label in (label for _, labels in operands for label in labels):
            symbols.setdefault(label, opt_einsum.get_symbol(len(symbols)))
        terms = ["".join(symbols[label] for label in labels) for _, labels in operands]
        equation = ",".join(terms) + "->" + "".join(symbols[label] for label in result if label in symbols)
        dims = [self.nodes[node].dims for node, _ in operands]
        return _best_path(equation, tuple(tuple(self.sizes.get(name, 1) for name in names) for names in dims))

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
        flops = (2 if is_summed else 1) * prod(self.sizes.get(types[label], 1) for label in codes)
        dims = tuple(types[label] for label in result)
        return self.add("multiply", (one, other), _plan_product(*coded), dims, flops=flops), result

    def finish(self, kept: Collection[int]) -> None:
        """Plan to let go of what no later node needs: computed, not fixed, and not to be kept."""
        computed = {i for i, node in enumerate(self.nodes) if node.operation != "input" and not node.is_fixed}
        last_use = {source: index for index, node in enumerate(self.nodes) for source in node.sources}
        for source, index in last_use.items():
            if source in computed and source not in kept:
                self.released.setdefault(index, []).append(source)

    # What it holds

    def count_held(self, sizes: Sequence[int], unowned: Collection[int]) -> tuple[int, int]:
        """Return the most elements that a run holds at one time, and those it holds at its end.

        ``sizes`` are the elements of each node in a batch; views of a node hold its elements and no more. Nodes that
        are ``unowned`` hold those of others, which do not count.
        """
        views = self.find_viewed()
        users: dict[int, int] = {}  # how many nodes hold a tensor
        held = peak = 0
        for index, node in enumerate(self.nodes):
            if node.operation == "input" or node.is_fixed:
                held += 0 if views[index] in users or views[index] in unowned else sizes[views[index]]
                users[views[index]] = users.get(views[index], 0) + 1
        peak = held
        for index, node in enumerate(self.nodes):
            if node.operation == "input" or node.is_fixed:
                continue
            viewed = views[index]
            held += 0 if viewed in users or viewed in unowned else sizes[viewed]
            users[viewed] = users.get(viewed, 0) + 1
            product = node.arguments.count_summed(node) * sizes[index] if node.operation == "multiply" else 0
            peak = max(peak, held + product)
            for source in self.released.get(index, ()):
                users[views[source]] -= 1
                if not users[views[source]] and views[source] not in unowned:
                    held -= sizes[views[source]]
                    del users[views[source]]
        return peak, held

    def find_viewed(self) -> list[int]:
        """Return for each node the one whose elements it holds: itself, unless it is a view."""
        viewed: list[int] = []
        for index, node in enumerate(self.nodes):
            viewed.append(viewed[node.sources[0]] if node.operation in VIEWS else index)
        return viewed

    def find_operands(self) -> set[int]:
        """Return the nodes that a backward pass multiplies gradients with: operands beside one that is not fixed."""
        operands: set[int] = set()
        for node in self.nodes:
            if node.operation == "multiply":
                one, other = node.sources
                operands |= {one} if not self.nodes[other].is_fixed else set()
                operands |= {other} if not self.nodes[one].is_fixed else set()
        return operands

    # Running

    def run(self, values: dict[int, Tensor], *, is_fixed: bool) -> dict[int, Tensor]:
        """Compute all nodes that are (or are not) fixed into ``values``, which has the inputs."""
        for index, node in enumerate(self.nodes):
            if node.operation == "input" or index in values or node.is_fixed != is_fixed:
                continue
            tensor, arguments = values[node.sources[0]], node.arguments
            match node.operation:
                case "multiply":
                    tensor = arguments.multiply(tensor, values[node.sources[1]])
                case "apart":
                    size = tensor.shape[arguments[0]]
                    tensor = tensor * diagonal_mask(size, tensor.ndim, arguments, tensor.dtype, tensor.device, inside=0)
                case "diagonal":
                    tensor = torch.diagonal(tensor, dim1=arguments[0], dim2=arguments[1]).movedim(-1, arguments[0])
                case "select":
                    chosen = dict(arguments)
                    tensor = tensor[tuple(chosen.get(position, slice(None)) for position in range(tensor.ndim))]
                case "sum":
                    tensor = torch.sum(tensor, dim=arguments)
                case "permute":
                    tensor = tensor.permute(arguments)
            values[index] = tensor
            for source in self.released.get(index, ()):
                del values[source]
        return values


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


@dataclass(frozen=True, slots=True)
class _Product:
    """How two tensors are multiplied and summed over labels: elementwise, or as matrices side by side.

    Each tensor is first brought into an ``order``, and neighbouring dimensions between ``bounds`` into one. The outer
    dimensions of a product of matrices, by their positions in the two tensors, may have to be taken apart again.
    """

    labels: tuple[tuple[int, ...], ...]
    is_swapped: bool
    orders: tuple[tuple[int, ...] | None, tuple[int, ...] | None]
    bounds: tuple[tuple[int, ...] | None, tuple[int, ...] | None]
    is_elementwise: bool
    summed: tuple[int, ...]
    n_both: int
    outer: tuple[tuple[int, ...], tuple[int, ...]] | None
    result_order: tuple[int, ...] | None

    def count_summed(self, node: Node) -> int:
        """Return how many products are held for each element of the result: of elementwise ones before the sum."""
        return node.flops // (2 * node.elements) if self.is_elementwise and self.summed and node.elements else 0

    def multiply(self, one: Tensor, other: Tensor) -> Tensor:
        tensors = (other, one) if self.is_swapped else (one, other)
        views = []
        for tensor, order, bounds in zip(tensors, self.orders, self.bounds, strict=True):
            ordered = tensor if order is None else tensor.permute(order)
            if bounds is not None:
                ordered = ordered.reshape([prod(ordered.shape[start:end]) for start, end in pairwise(bounds)])
            views.append(ordered)
        if self.is_elementwise:
            product = views[0] * views[1]
            return product.sum(self.summed) if self.summed else product
        product = torch.matmul(views[0], views[1])
        if self.outer is not None:
            sizes = [tensors[i].shape[position] for i in (0, 1) for position in self.outer[i]]
            product = product.reshape(*product.shape[: self.n_both], *sizes)
        return product if self.result_order is None else product.permute(self.result_order)


def _plan_product(one: tuple[int, ...], other: tuple[int, ...], result: tuple[int, ...]) -> _Product:
    """Plan the product of two tensors with these labels, summed over the labels that the result lacks."""
    labels = one, other, result
    summed = [label for label in one if label in other and label not in result]
    both = [label for label in result if label in one and label in other]
    left = [label for label in result if label in one and label not in other]
    right = [label for label in result if label in other and label not in one]
    is_elementwise = not summed or not (left or right)
    is_swapped = not is_elementwise and bool(left and right) and result.index(right[0]) < result.index(left[0])
    if is_swapped:
        one, other, left, right = other, one, right, left
    if is_elementwise:
        groups = [[[label] if label in own else [] for label in (*result, *summed)] for own in (one, other)]
    else:
        kept = [[label] for label in both]
        groups = [[*kept, left, summed], [*kept, summed, right]]
    orders, bounds = [], []
    for own, own_groups in zip((one, other), groups, strict=True):
        order = tuple(own.index(label) for group in own_groups for label in group)
        orders.append(None if order == tuple(range(len(order))) else order)
        is_plain = all(len(group) == 1 for group in own_groups)
        bounds.append(None if is_plain else (0, *accumulate(len(group) for group in own_groups)))
    dims = (*both, *left, *right)
    order = tuple(dims.index(label) for label in result)
    outer = tuple(one.index(label) for label in left), tuple(other.index(label) for label in right)
    return _Product(
        labels,
        is_swapped,
        (orders[0], orders[1]),
        (bounds[0], bounds[1]),
        is_elementwise,
        summed=tuple(range(len(result), len(result) + len(summed))),
        n_both=len(both),
        outer=None if len(left) == len(right) == 1 else outer,
        result_order=None if order == tuple(range(len(order))) else order,
    )
