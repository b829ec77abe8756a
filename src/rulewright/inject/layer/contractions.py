"""Sums of products of tensors as a program: contractions in a good order, equal parts computed once.

A `Program` is built for given sizes of types and run on any tensors of these sizes. Its nodes are numbered so that
sources come first; asking for the same node twice gives the same number.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TypeAlias

import opt_einsum
import torch
from torch import Tensor

BATCH = "*"
"""The type of the first dimension of tensors that have one for each row of a batch."""

Run: TypeAlias = Callable[..., Tensor]
Labels: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """What is computed: an operation with its arguments, from earlier nodes; ``dims`` are the types of the result."""

    operation: str
    sources: tuple[int, ...]
    arguments: tuple[object, ...]
    dims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """Floating-point operations and result elements of a node for one row of a batch."""

    flops: int
    elements: int


class Program:
    """Nodes to compute one after another.

    >>> program = Program({"node": 3})
    >>> p = program.input("p", ("node", "node"))
    >>> path = program.contract([(p, "ab"), (p, "bc")], "ac")
    >>> program.contract([(p, "xy"), (p, "yz")], "xz") == path
    True
    >>> ones = torch.ones(3, 3)
    >>> program.run({p: ones})[path].tolist()
    [[3.0, 3.0, 3.0], [3.0, 3.0, 3.0], [3.0, 3.0, 3.0]]
    """

    def __init__(self, sizes: Mapping[str, int], *, optimize: bool = True, share: bool = True) -> None:
        self.sizes = dict(sizes)
        self.nodes: list[Node] = []
        self.costs: list[Cost] = []
        self.fixed: list[bool] = []
        self.owner: list[object] = []
        self.owned_by: object = None
        self._optimize, self._share = optimize, share
        self._numbers: dict[Node, int] = {}
        self._runs: list[Run | None] = []
        self._spent: dict[int, tuple[int, ...]] | None = None

    # Building

    def input(self, key: object, dims: Sequence[str], *, fixed: bool = False) -> int:
        """Add a tensor that is given when the program runs; ``fixed`` says that it stays the same in all runs."""
        known = self._numbers.get(Node("input", (), (key,), tuple(dims)))
        if known is not None:
            return known
        return self._add(Node("input", (), (key,), tuple(dims)), None, 0, fixed=fixed, always_shared=True)

    def apart(self, source: int, first: int, second: int) -> int:
        """Add the source with zeros where two of its dimensions have the same index."""
        dims = self.nodes[source].dims
        node = Node("apart", (source,), (first, second), dims)
        return self._add(node, _kept_apart(first, second), self.elements(dims))

    def select(self, source: int, indices: Mapping[int, int]) -> int:
        """Add the source at fixed indices of some dimensions, which it then lacks."""
        dims = self.nodes[source].dims
        index = tuple(indices.get(place, slice(None)) for place in range(len(dims)))
        left = tuple(kind for place, kind in enumerate(dims) if place not in indices)
        node = Node("select", (source,), tuple(sorted(indices.items())), left)
        return self._add(node, lambda tensor: tensor[index], 0)

    def diagonal(self, source: int, first: int, second: int) -> int:
        """Add the source where two dimensions have the same index, as one dimension in the place of the first."""
        dims = self.nodes[source].dims
        left = tuple(kind for place, kind in enumerate(dims) if place != second)

        def run(tensor: Tensor) -> Tensor:
            return torch.diagonal(tensor, dim1=first, dim2=second).movedim(-1, first)

        return self._add(Node("diagonal", (source,), (first, second), left), run, 0)

    def total(self, source: int, places: Sequence[int]) -> int:
        """Add the sum of the source over some dimensions."""
        if not places:
            return source
        dims = self.nodes[source].dims
        left = tuple(kind for place, kind in enumerate(dims) if place not in places)
        node = Node("sum", (source,), tuple(places), left)
        return self._add(node, lambda tensor: tensor.sum(tuple(places)), self.elements(dims))

    def contract(self, operands: Sequence[tuple[int, Sequence[object]]], output: Sequence[object]) -> int:
        """Add the sum of products that ``einsum("…,…->output")`` means; a batch dimension needs no label.

        Each operand is a node with a label for each of its dimensions, none twice. The output has a batch dimension if
        an operand has one.
        """
        places = [
            (node, ((BATCH, *labels) if self.nodes[node].dims[:1] == (BATCH,) else tuple(labels)))
            for node, labels in operands
        ]
        batched = any(labels[:1] == (BATCH,) for _, labels in places)
        wanted = (BATCH, *output) if batched else tuple(output)
        remaining = [self._summed_alone(place, places, wanted) for place in range(len(places))]
        for pair in self._path(remaining, wanted):
            chosen = [remaining[place] for place in pair]
            remaining = [each for place, each in enumerate(remaining) if place not in pair]
            needed = {label for _, labels in remaining for label in labels} | set(wanted)
            joined = chosen[0]
            for number, other in enumerate(chosen[1:], start=2):
                later = {label for _, labels in chosen[number:] for label in labels}
                last = not remaining and number == len(chosen)
                joined = self._multiply(joined, other, needed | later, wanted if last else None)
            remaining.append(joined)
        node, labels = remaining[0]
        return node if labels == wanted else self._permute(node, tuple(labels.index(label) for label in wanted))

    def _summed_alone(
        self, place: int, operands: Sequence[tuple[int, tuple[object, ...]]], wanted: tuple[object, ...]
    ) -> tuple[int, tuple[object, ...]]:
        """Sum an operand over the labels that nothing else has."""
        node, labels = operands[place]
        others = {label for number, (_, each) in enumerate(operands) if number != place for label in each}
        alone = [number for number, label in enumerate(labels) if label not in others and label not in wanted]
        left = tuple(label for number, label in enumerate(labels) if number not in alone)
        return self.total(node, alone), left

    def _path(
        self, operands: Sequence[tuple[int, tuple[object, ...]]], wanted: tuple[object, ...]
    ) -> list[tuple[int, ...]]:
        if len(operands) <= 2 or not self._optimize:
            return [(0, 1)] * (len(operands) - 1)  # the product joins the end, so this goes from left to right
        symbols: dict[object, str] = {}
        for _, labels in operands:
            for label in labels:
                symbols.setdefault(label, opt_einsum.get_symbol(len(symbols)))
        terms = ["".join(symbols[label] for label in labels) for _, labels in operands]
        shapes = [tuple(self._size(kind) for kind in self.nodes[node].dims) for node, _ in operands]
        equation = ",".join(terms) + "->" + "".join(symbols[label] for label in wanted if label in symbols)
        return list(_best_path(equation, tuple(shapes)))

    def _multiply(
        self,
        left: tuple[int, tuple[object, ...]],
        right: tuple[int, tuple[object, ...]],
        needed: set[object],
        wanted: tuple[object, ...] | None,
    ) -> tuple[int, tuple[object, ...]]:
        """Add the product of two nodes, summed over the labels that are not needed any more."""
        (one, one_labels), (other, other_labels) = left, right
        if (other, other_labels) < (one, one_labels) if one != other else False:
            one, one_labels, other, other_labels = other, other_labels, one, one_labels
        shared = [label for label in one_labels if label in other_labels]
        summed = [label for label in shared if label not in needed]
        both = [label for label in shared if label in needed]
        only = [[label for label in labels if label not in shared] for labels in (one_labels, other_labels)]
        result = tuple(wanted) if wanted is not None else (*both, *only[0], *only[1])
        numbers: dict[object, int] = {}
        for label in (*one_labels, *other_labels):
            numbers.setdefault(label, len(numbers))
        specification = tuple(
            tuple(numbers[label] for label in labels) for labels in (one_labels, other_labels, result)
        )
        kinds = dict(zip(one_labels, self.nodes[one].dims, strict=True))
        kinds |= dict(zip(other_labels, self.nodes[other].dims, strict=True))
        node = Node("multiply", (one, other), specification, tuple(kinds[label] for label in result))
        flops = (2 if summed else 1) * prod(self._size(kinds[label]) for label in numbers)
        return self._add(node, _multiplication(*specification), flops), result

    def _permute(self, source: int, order: tuple[int, ...]) -> int:
        dims = tuple(self.nodes[source].dims[place] for place in order)
        return self._add(Node("permute", (source,), order, dims), lambda tensor: tensor.permute(order), 0)

    def _add(
        self, node: Node, run: Run | None, flops: int, *, fixed: bool | None = None, always_shared: bool = False
    ) -> int:
        if (self._share or always_shared) and node in self._numbers:
            return self._numbers[node]
        number = self._numbers[node] = len(self.nodes)
        self.nodes.append(node)
        self.costs.append(Cost(flops, self.elements(node.dims)))
        self.fixed.append(all(self.fixed[each] for each in node.sources) if fixed is None else fixed)
        self.owner.append(self.owned_by)
        self._runs.append(run)
        self._spent = None
        return number

    def _size(self, kind: str) -> int:
        return 1 if kind == BATCH else self.sizes[kind]

    def elements(self, dims: Sequence[str]) -> int:
        """Return the number of elements of a tensor with these dimensions, for one row of a batch."""
        return prod(map(self._size, dims))

    # Running

    def run(
        self, values: dict[int, Tensor], *, fixed: bool | None = None, keep: Collection[int] | None = None
    ) -> dict[int, Tensor]:
        """Compute all nodes, or only those that are (or are not) fixed, into ``values``, which has the inputs.

        With ``keep``, other nodes that are not fixed are let go after their last use.
        """
        for number, run in enumerate(self._runs):
            if run is None or number in values or (fixed is not None and self.fixed[number] != fixed):
                continue
            values[number] = run(*(values[each] for each in self.nodes[number].sources))
            if keep is not None:
                for each in self._spent_after(number):
                    if each not in keep:
                        del values[each]
        return values

    def _spent_after(self, number: int) -> tuple[int, ...]:
        if self._spent is None:
            last: dict[int, int] = {}
            for user, node in enumerate(self.nodes):
                last |= dict.fromkeys(node.sources, user)
            spent: dict[int, list[int]] = {}
            for source, user in last.items():
                if self._runs[source] is not None and not self.fixed[source]:
                    spent.setdefault(user, []).append(source)
            self._spent = {user: tuple(sources) for user, sources in spent.items()}
        return self._spent.get(number, ())

    def peak_elements(self, keep: Collection[int]) -> int:
        """Return the most elements that nodes hold at one time in a run with ``keep``, for one row of a batch."""
        held = sum(
            cost.elements
            for cost, fixed, run in zip(self.costs, self.fixed, self._runs, strict=True)
            if fixed or not run
        )
        peak = held
        for number, run in enumerate(self._runs):
            if run is None or self.fixed[number]:
                continue
            held += self.costs[number].elements
            peak = max(peak, held)
            held -= sum(self.costs[each].elements for each in self._spent_after(number) if each not in keep)
        return peak


@lru_cache(maxsize=4096)
def _best_path(equation: str, shapes: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    path, _ = opt_einsum.contract_path(equation, *shapes, shapes=True, optimize="auto")
    return tuple(tuple(each) for each in path)


def on_diagonal(size: int, dims: int, first: int, second: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return 1 where two of ``dims`` dimensions have the same index, else 0; the other dimensions are of size 1."""
    return _eye(size, dtype, device, True).view([size if each in (first, second) else 1 for each in range(dims)])


def off_diagonal(size: int, dims: int, first: int, second: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return 0 where two of ``dims`` dimensions have the same index, else 1; the other dimensions are of size 1.

    >>> off_diagonal(2, 2, 0, 1, torch.float32, torch.device("cpu")).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    return _eye(size, dtype, device, False).view([size if each in (first, second) else 1 for each in range(dims)])


def _eye(size: int, dtype: torch.dtype, device: torch.device, on: bool) -> Tensor:
    return _made_eye(size, dtype, device, on) if torch.compiler.is_compiling() else _kept_eye(size, dtype, device, on)


def _made_eye(size: int, dtype: torch.dtype, device: torch.device, on: bool) -> Tensor:
    eye = torch.eye(size, dtype=dtype, device=device)
    return eye if on else 1 - eye


@lru_cache(maxsize=16)
def _kept_eye(size: int, dtype: torch.dtype, device: torch.device, on: bool) -> Tensor:
    with torch.inference_mode(False):  # it is kept, and may serve a backward pass later
        return _made_eye(size, dtype, device, on)


def _kept_apart(first: int, second: int) -> Run:
    def run(tensor: Tensor) -> Tensor:
        return tensor * off_diagonal(tensor.shape[first], tensor.ndim, first, second, tensor.dtype, tensor.device)

    return run


def _multiplication(one: Labels, other: Labels, result: Labels) -> Run:
    """Return a function that multiplies two tensors and sums over the labels that the result lacks."""
    summed = [label for label in one if label in other and label not in result]
    both = [label for label in result if label in one and label in other]
    left = [label for label in result if label in one and label not in other]
    right = [label for label in result if label in other and label not in one]
    if not summed:
        return _elementwise(one, other, result)
    if not left and not right:
        product = _elementwise(one, other, (*result, *summed))
        places = tuple(range(len(result), len(result) + len(summed)))
        return lambda a, b: product(a, b).sum(places)
    if right and left and result.index(right[0]) < result.index(left[0]):
        swapped = _matrix_product(other, one, both, right, left, summed, result)
        return lambda a, b: swapped(b, a)
    return _matrix_product(one, other, both, left, right, summed, result)


def _elementwise(one: Labels, other: Labels, result: Labels) -> Run:
    views = [_aligned(labels, result) for labels in (one, other)]
    return lambda a, b: views[0](a) * views[1](b)


def _aligned(labels: Labels, result: Labels) -> Callable[[Tensor], Tensor]:
    """Return a view with the dimensions of the result, of size 1 where the tensor has none."""
    order = tuple(labels.index(label) for label in result if label in labels)
    missing = [place for place, label in enumerate(result) if label not in labels]
    in_order = order == tuple(range(len(order)))

    def view(tensor: Tensor) -> Tensor:
        seen = tensor if in_order else tensor.permute(order)
        for place in missing:
            seen = seen.unsqueeze(place)
        return seen

    return view


def _matrix_product(
    one: Labels,
    other: Labels,
    both: Sequence[int],
    left: Sequence[int],
    right: Sequence[int],
    summed: Sequence[int],
    result: Labels,
) -> Run:
    first = _grouped(one, both, left, summed)
    second = _grouped(other, both, summed, right)
    found = (*both, *left, *right)
    order = tuple(found.index(label) for label in result)
    in_order = order == tuple(range(len(order)))
    n_both = len(both)
    flat = len(left) != 1 or len(right) != 1
    left_places = tuple(one.index(label) for label in left)
    right_places = tuple(other.index(label) for label in right)

    def run(a: Tensor, b: Tensor) -> Tensor:
        product = torch.matmul(first(a), second(b))
        if flat:
            sizes = [a.shape[place] for place in left_places] + [b.shape[place] for place in right_places]
            product = product.reshape(*product.shape[:n_both], *sizes)
        return product if in_order else product.permute(order)

    return run


def _grouped(labels: Labels, *groups: Sequence[int]) -> Callable[[Tensor], Tensor]:
    """Return a view as matrices: the first group as it is, then one dimension for each of the other two."""
    order = tuple(labels.index(label) for group in groups for label in group)
    in_order = order == tuple(range(len(order)))
    kept, rows, columns = (len(group) for group in groups)
    flat = rows != 1 or columns != 1

    def view(tensor: Tensor) -> Tensor:
        seen = tensor if in_order else tensor.permute(order)
        if flat:
            shape = seen.shape
            seen = seen.reshape(*shape[:kept], prod(shape[kept : kept + rows]), prod(shape[kept + rows :]))
        return seen

    return view
