"""Exact marginals of a Markov logic network over a network's outputs, by messages between cliques of its atoms.

Atoms are eliminated one after another, each time one that joins the fewest others anew. An atom with the neighbours it
has then is a clique, its neighbours without it the separator to its parent: the clique in which the first of them is
eliminated. Messages go up to the roots and down again, in log space and in double precision, for all cliques of one
depth and all rows of a batch at once; so the marginals of all atoms are exact, and so are their gradients. The cost is
the size of the tables, ``Π`` of the numbers of classes of a clique's atoms: small for chains, trees and hierarchies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from itertools import combinations, count
from math import exp, inf, log, prod
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from rulewright.errors import MemoryLimitError
from rulewright.inject.inputs import CERTAIN, GroundInputs
from rulewright.inject.layer.factors import Factors, Indices, ground_factors, group_rows
from rulewright.inject.layer.grounding import Grounding
from rulewright.inject.layer.plan import format_bytes, usual_limit
from rulewright.logic import Number, Symbol, Term, Variable, substitute

if TYPE_CHECKING:
    from rulewright.inject.layer.layer import LogicLayer

MAX_TABLE = 2**22
"""The most cells of a clique's table."""

MAX_LEFT_OUT = 512
"""The most groundings that are left out one by one, to see what each does."""

KEPT_TREES = 16
"""The most trees that are kept for evidence that may come again."""


@dataclass(frozen=True, slots=True)
class CliqueGroup:
    """Cliques of one depth and shape: an atom of ``card`` classes, and ``separators`` cells of its neighbours.

    ``parent_cells``, ``[cliques · separators, r]``, are the cells of the next higher depth that a separator's cell is
    part of; none at the roots.
    """

    cliques: int
    card: int
    separators: int
    parent_cells: Tensor | None


@dataclass(frozen=True)
class CliqueTree:
    """The cliques of the factors of a batch, depth by depth from the roots, and where everything is in their tables."""

    atoms: Indices
    """The atoms that have factors."""
    factors: Factors
    levels: tuple[tuple[CliqueGroup, ...], ...]
    value_cells: Tensor
    """Which value of an atom each cell adds: that of the atom that its clique eliminates."""
    factor_cells: Tensor
    factor_groundings: Tensor
    value_order: Tensor
    """Where the values of each atom are among those of all cliques."""
    largest: int
    width: int

    @property
    def groundings(self) -> int:
        """The number of groundings that evidence leaves open."""
        return self.factors.groundings

    @property
    def cells(self) -> int:
        """The number of cells of all tables."""
        return len(self.value_cells)

    def __str__(self) -> str:
        return (
            f"exact inference: {len(self.atoms):,} atoms in {self.groundings:,} groundings; cliques of at most "
            f"{self.width} atoms, the largest table {self.largest:,} cells, {self.cells:,} in all, {len(self.levels)} "
            "deep"
        )

    def log_marginals(self, values: Tensor, costs: Tensor) -> Tensor:
        """Return log-probabilities, up to a constant for each atom, from potentials ``[rows, values]`` of the values
        of all atoms that have factors, and costs ``[rows or 1, groundings]``."""
        penalties = torch.zeros(len(costs), self.cells, dtype=values.dtype, device=values.device)
        penalties = penalties.index_add(1, self.factor_cells, -costs[:, self.factor_groundings])
        sizes = [sum(group.cliques * group.card * group.separators for group in level) for level in self.levels]
        tables = list(torch.split(values[:, self.value_cells] + penalties, sizes, 1))
        messages: list[list[Tensor]] = [[] for _ in self.levels]
        for depth in reversed(range(len(self.levels))):
            for group, cells in zip(self.levels[depth], self._split(tables[depth], depth), strict=True):
                message = torch.logsumexp(cells, 2).flatten(1)
                messages[depth].append(message)
                if group.parent_cells is not None:
                    spread = message.repeat_interleave(group.parent_cells.shape[1], 1)
                    tables[depth - 1] = tables[depth - 1].index_add(1, group.parent_cells.flatten(), spread)
        found: list[Tensor] = []
        for depth, level in enumerate(self.levels):
            parts = []
            for group, cells, message in zip(level, self._split(tables[depth], depth), messages[depth], strict=True):
                if group.parent_cells is not None:
                    down = torch.logsumexp(tables[depth - 1][:, group.parent_cells], -1) - message
                    cells = cells + down.view(-1, group.cliques, 1, group.separators)
                parts.append(cells.flatten(1))
                found.append(torch.logsumexp(cells, -1).flatten(1))
            tables[depth] = torch.cat(parts, 1)
        return torch.cat(found, 1)[:, self.value_order]

    def _split(self, table: Tensor, depth: int) -> list[Tensor]:
        """Return the tables of a depth by group, ``[rows, cliques, card, separators]``."""
        level = self.levels[depth]
        parts = torch.split(table, [group.cliques * group.card * group.separators for group in level], 1)
        return [
            part.view(-1, group.cliques, group.card, group.separators) for group, part in zip(level, parts, strict=True)
        ]

    def to(self, device: torch.device) -> CliqueTree:
        """Return the tree with its indices on a device."""
        if self.value_cells.device == device:
            return self
        levels = tuple(
            tuple(
                group
                if group.parent_cells is None
                else CliqueGroup(group.cliques, group.card, group.separators, group.parent_cells.to(device))
                for group in level
            )
            for level in self.levels
        )
        names = ("value_cells", "factor_cells", "factor_groundings", "value_order")
        moved = {name: getattr(self, name).to(device) for name in names}
        return CliqueTree(self.atoms, self.factors, levels, largest=self.largest, width=self.width, **moved)


def build_tree(factors: Factors) -> CliqueTree:
    """Eliminate all atoms that have factors, and lay out the tables of their cliques."""
    atoms = np.unique(np.concatenate([group.atoms.reshape(-1) for group in factors.groups] or [np.zeros(0, int)]))
    cards = factors.cards[atoms]
    local = [np.searchsorted(atoms, group.atoms) for group in factors.groups]
    separators, order = _eliminate(cards, local)
    position = np.empty(len(atoms), dtype=np.int64)
    position[order] = np.arange(len(atoms))
    depths = np.zeros(len(atoms), dtype=np.int64)
    parents = np.full(len(atoms), -1, dtype=np.int64)
    for atom in reversed(order):
        separators[atom].sort(key=position.__getitem__)
        if separators[atom]:
            parents[atom] = separators[atom][0]
            depths[atom] = depths[parents[atom]] + 1
    cliques = [(atom, *separators[atom]) for atom in range(len(atoms))]
    shapes = [tuple(int(cards[member]) for member in clique) for clique in cliques]
    grouped: dict[int, dict[tuple[int, int, int], list[int]]] = {}
    for atom in order:
        parent_size = prod(shapes[parents[atom]]) if parents[atom] >= 0 else 0
        key = (shapes[atom][0], prod(shapes[atom][1:]), parent_size)
        grouped.setdefault(int(depths[atom]), {}).setdefault(key, []).append(atom)
    first_cells = np.zeros(len(atoms), dtype=np.int64)  # of each clique's table, among all
    value_starts = np.concatenate([[0], np.cumsum(cards)])
    level_starts: list[int] = []
    total = 0
    value_cells: list[Indices] = []
    value_order = np.zeros(value_starts[-1], dtype=np.int64)
    levels: list[tuple[CliqueGroup, ...]] = []
    values_done = 0
    for depth in range(len(grouped)):
        level_starts.append(total)
        groups = []
        for (card, cells, parent_size), members in grouped[depth].items():
            of_members = np.asarray(members)
            first_cells[of_members] = total + np.arange(len(members)) * card * cells
            values = value_starts[of_members][:, None] + np.arange(card)
            value_cells.append(np.repeat(values.reshape(-1), cells))
            value_order[values.reshape(-1)] = values_done + np.arange(values.size)
            values_done += values.size
            total += len(members) * card * cells
            parent_cells: Tensor | None = None
            if parent_size:
                rows = [
                    first_cells[parents[atom]]
                    - level_starts[depth - 1]
                    + _cells_of(
                        shapes[parents[atom]],
                        tuple(cliques[parents[atom]].index(member) for member in separators[atom]),
                    )
                    for atom in members
                ]
                parent_cells = torch.from_numpy(np.concatenate(rows))
            groups.append(CliqueGroup(len(members), card, cells, parent_cells))
        levels.append(tuple(groups))
    factor_cells, factor_groundings = _place_factors(factors, local, position, cliques, shapes, first_cells)
    return CliqueTree(
        atoms,
        factors,
        tuple(levels),
        torch.from_numpy(np.concatenate(value_cells) if value_cells else np.zeros(0, dtype=np.int64)),
        factor_cells,
        factor_groundings,
        torch.from_numpy(value_order),
        max(map(prod, shapes), default=0),
        max(map(len, cliques), default=0),
    )


def _eliminate(cards: Indices, local: Sequence[Indices]) -> tuple[list[list[int]], list[int]]:
    """Return the neighbours that each atom has when it is eliminated, and the order; refuse what grows too large."""
    neighbours: list[set[int]] = [set() for _ in cards]
    for atoms in local:
        for one, other in combinations(range(atoms.shape[1]), 2):
            for first, second in np.unique(atoms[:, [one, other]], axis=0).tolist():
                neighbours[first].add(second)
                neighbours[second].add(first)
    sizes = [log(card) for card in cards.tolist()]
    limit = log(MAX_TABLE) + 1e-9
    stamps = count()
    current: list[tuple[float, float, int, int]] = []

    def cost(atom: int) -> tuple[float, float, int, int]:
        around = neighbours[atom]
        size = sizes[atom] + sum(sizes[other] for other in around)
        joined = inf if size > limit else sum(len(around) - 1 - len(around & neighbours[other]) for other in around)
        return joined, size, next(stamps), atom  # of equals the older: chains are eaten up from both ends

    current = [cost(atom) for atom in range(len(cards))]
    heap = list(current)
    heapify(heap)
    separators: list[list[int]] = [[] for _ in cards]
    order: list[int] = []
    done = np.zeros(len(cards), dtype=bool)
    while heap:
        entry = heappop(heap)
        joined, _, _, atom = entry
        if done[atom] or entry != current[atom]:
            continue
        if joined == inf:
            smallest = min(current[other][1] for other in range(len(cards)) if not done[other])
            raise MemoryLimitError(
                f"exact inference needs a table of at least {exp(smallest):.2g} cells, with all values of "
                f'{len(neighbours[atom]) + 1} atoms at once; at most {MAX_TABLE:,} fit. Use inference="mean-field", '
                "fewer entities, or evidence for relations that are known (closed predicates)"
            )
        around = neighbours[atom]
        separators[atom] = list(around)
        order.append(atom)
        done[atom] = True
        changed = set(around)
        for other in around:
            neighbours[other].discard(atom)
            new = around - neighbours[other] - {other}
            if new:
                changed |= neighbours[other]
                neighbours[other] |= new
        for other in changed:
            current[other] = cost(other)
            heappush(heap, current[other])
    return separators, order


@lru_cache(maxsize=4096)
def _cells_of(shape: tuple[int, ...], positions: tuple[int, ...]) -> Indices:
    """Return the cells of a table for each assignment of some of its dimensions: ``[assignments, cells each]``.

    >>> _cells_of((2, 3), (1,)).tolist()
    [[0, 3], [1, 4], [2, 5]]
    """
    cells = np.arange(prod(shape)).reshape(shape)
    others = tuple(axis for axis in range(len(shape)) if axis not in positions)
    return cells.transpose(*positions, *others).reshape(prod(shape[axis] for axis in positions), -1)


def _place_factors(
    factors: Factors,
    local: Sequence[Indices],
    position: Indices,
    cliques: Sequence[tuple[int, ...]],
    shapes: Sequence[tuple[int, ...]],
    first_cells: Indices,
) -> tuple[Tensor, Tensor]:
    """Return the cells in which groundings are false, and these groundings: in the clique of the first atom to go."""
    sizes = np.fromiter(map(len, cliques), dtype=np.int64, count=len(cliques))
    owners = np.repeat(np.arange(len(cliques)), sizes)
    members = np.fromiter((member for clique in cliques for member in clique), dtype=np.int64)
    places = np.concatenate([np.arange(size) for size in sizes] or [np.zeros(0, dtype=np.int64)])
    keys = owners * len(cliques) + members
    by_key = np.argsort(keys)
    known_shapes = {shape: index for index, shape in enumerate(dict.fromkeys(shapes))}
    shape_indices = np.asarray([known_shapes[shape] for shape in shapes], dtype=np.int64)
    shape_list = list(known_shapes)
    cells: list[Indices] = []
    groundings: list[Indices] = []
    start = 0
    for group, atoms in zip(factors.groups, local, strict=True):
        owner = atoms[np.arange(len(atoms)), position[atoms].argmin(1)]
        found = by_key[np.searchsorted(keys[by_key], owner[:, None] * len(cliques) + atoms)]
        columns = np.concatenate([shape_indices[owner][:, None], places[found]], 1)
        for (shape_index, *axes), rows in group_rows(columns):
            shape = shape_list[shape_index]
            false = _false_cells(shape, tuple(axes), group.false_classes)
            cells.append((first_cells[owner[rows]][:, None] + false).reshape(-1))
            groundings.append(np.repeat(start + rows, len(false)))
        start += len(atoms)
    empty = np.zeros(0, dtype=np.int64)
    return tuple(torch.from_numpy(np.concatenate(parts) if parts else empty) for parts in (cells, groundings))  # type: ignore[return-value]


@lru_cache(maxsize=4096)
def _false_cells(shape: tuple[int, ...], axes: tuple[int, ...], false_classes: tuple[tuple[int, ...], ...]) -> Indices:
    """Return the cells in which all atoms at some axes are of their false classes."""
    cells = np.arange(prod(shape)).reshape(shape)
    for axis, classes in zip(axes, false_classes, strict=True):
        cells = cells.take(classes, axis)
    return cells.reshape(-1)


@dataclass
class ExactSolver:
    """The clique trees of a grounding, each made once for sizes and evidence."""

    grounding: Grounding
    _trees: dict[bytes, CliqueTree] = field(default_factory=dict, init=False)

    def __reduce__(self) -> tuple[object, ...]:
        """Leave out the trees: a copy makes its own."""
        return ExactSolver, (self.grounding,)

    def tree(self, inputs: GroundInputs) -> CliqueTree:
        """Return the tree for sizes, evidence and masks."""
        key = _fingerprint(inputs)
        if key not in self._trees:
            while len(self._trees) >= KEPT_TREES:
                del self._trees[next(iter(self._trees))]
            self._trees[key] = build_tree(ground_factors(self.grounding, inputs))
        return self._trees[key]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def infer_exactly(layer: LogicLayer, inputs: GroundInputs) -> dict[str, Tensor]:
    """Return exact log-odds of all atoms; of classes log-probabilities, with the sum of the given potentials.

    ``logit_i = log P(v_i = 1) − log P(v_i = 0)`` under ``P(v) ∝ exp(Σ_i φ_i v_i − Σ_f w_f · (groundings broken))``.
    """
    tree = layer.solver.tree(inputs).to(inputs.device)
    if not len(tree.atoms):
        return dict(inputs.logits)
    _check_memory(tree, inputs, layer.memory_limit)
    dtype = torch.float32 if inputs.device.type == "mps" else torch.float64
    values = atom_values(layer.grounding, inputs, tree, dtype)
    costs = grounding_costs(layer, tree, inputs, dtype)
    return place_marginals(layer.grounding, inputs, tree, tree.log_marginals(values, costs))


def atom_values(grounding: Grounding, inputs: GroundInputs, tree: CliqueTree, dtype: torch.dtype) -> Tensor:
    """Return the potentials ``[rows, values]`` of all values of the atoms of a tree; what is observed has no other."""
    rows = prod(inputs.batch)
    parts: list[Tensor] = []
    for name, indices in _atoms_by_predicate(tree, inputs.logits).items():
        potentials = _flatten(inputs.logits[name], inputs, grounding, name).to(dtype)
        if grounding.predicates[name].classes is None:
            potentials = torch.stack([torch.zeros_like(potentials[..., 0]), potentials[..., 0]], -1)
        observed = inputs.observed.get(name)
        if observed is not None and observed.where is not None:
            probability = _flatten(observed.probability, inputs, grounding, name).to(dtype)
            if grounding.predicates[name].classes is None:
                probability = torch.cat([1 - probability, probability], -1)
            where = observed.where.reshape(-1, potentials.shape[1], 1)
            potentials = torch.where(where, (probability - 1) * CERTAIN, potentials)
        parts.append(potentials[:, torch.from_numpy(indices).to(inputs.device)].flatten(1))
    return torch.cat(parts, 1) if parts else torch.zeros(rows, 0, dtype=dtype, device=inputs.device)


def grounding_costs(layer: LogicLayer, tree: CliqueTree, inputs: GroundInputs, dtype: torch.dtype) -> Tensor:
    """Return what each grounding costs when it is false, ``[rows or 1, groundings]``."""
    parts: list[Tensor] = []
    rows = max((len(group.coefficients) for group in tree.factors.groups), default=1)
    for group in tree.factors.groups:
        coefficients = torch.from_numpy(group.coefficients).to(device=inputs.device, dtype=dtype)
        statement_index = layer.grounding.formulas[group.formula_index].statement_index
        parts.append(layer.weights.add(None, coefficients, statement_index, 1).expand(rows, -1))
    return torch.cat(parts, 1) if parts else torch.zeros(1, 0, dtype=dtype, device=inputs.device)


def place_marginals(grounding: Grounding, inputs: GroundInputs, tree: CliqueTree, found: Tensor) -> dict[str, Tensor]:
    """Return the log-odds of all atoms, those without factors as they were given."""
    current = dict(inputs.logits)
    start = 0
    for name, indices in _atoms_by_predicate(tree, inputs.logits).items():
        given = _flatten(inputs.logits[name], inputs, grounding, name)
        classes = grounding.predicates[name].classes
        card = 2 if classes is None else len(classes)
        values = found[:, start : start + len(indices) * card].view(-1, len(indices), card)
        start += len(indices) * card
        atom_indices = torch.from_numpy(indices).to(inputs.device)
        if classes is None:
            logits = values[..., 1:] - values[..., :1]
        else:
            logits = values.log_softmax(-1) + given[:, atom_indices].to(values.dtype).logsumexp(-1, keepdim=True)
        placed = given.index_copy(1, atom_indices, logits.to(given.dtype))
        current[name] = placed.view(inputs.logits[name].shape)
    return current


@torch.no_grad()
def moves_without(
    layer: LogicLayer, inputs: GroundInputs, logits: Mapping[str, Tensor]
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """Yield for each statement how far exact log-odds are from what they would be without it."""
    tree = layer.solver.tree(inputs).to(inputs.device)
    if not len(tree.atoms):
        return
    values = atom_values(layer.grounding, inputs, tree, torch.float64)
    costs = grounding_costs(layer, tree, inputs, torch.float64)
    owners = statement_indices(layer.grounding, tree).to(inputs.device)
    for statement_index in range(len(layer.grounding.rules)):
        found = tree.log_marginals(values, costs * (owners != statement_index))
        without = place_marginals(layer.grounding, inputs, tree, found)
        yield statement_index, {name: logits[name] - without[name] for name in layer.grounding.used & set(logits)}


@torch.no_grad()
def moves_without_groundings(
    layer: LogicLayer, inputs: GroundInputs, statement_index: int, row: int, name: str, entry: Sequence[int]
) -> list[tuple[str, float]]:
    """Return for each grounding of a statement how far an atom's log-odds are from what they would be without it.

    Without groundings, where there are more than `MAX_LEFT_OUT`.
    """
    grounding, tree = layer.grounding, layer.solver.tree(inputs).to(inputs.device)
    declaration = grounding.predicates[name]
    sizes = [inputs.sizes[type_name] for type_name in declaration.types]
    atom = tree.factors.first_atoms[name]
    if sizes:
        atom += int(np.ravel_multi_index(list(entry)[: len(sizes)], sizes))
    place = int(np.searchsorted(tree.atoms, atom))
    own = (statement_indices(grounding, tree) == statement_index).nonzero()[:, 0].to(inputs.device)
    if not 0 < len(own) <= MAX_LEFT_OUT or place == len(tree.atoms) or tree.atoms[place] != atom:
        return []
    values = atom_values(grounding, inputs, tree, torch.float64)
    costs = grounding_costs(layer, tree, inputs, torch.float64)
    costs = costs[row if len(costs) > 1 else 0].repeat(len(own) + 1, 1)
    costs[torch.arange(len(own)) + 1, own] = 0
    found = tree.log_marginals(values[row if len(values) > 1 else 0].expand(len(costs), -1), costs)
    start = int(tree.factors.cards[tree.atoms[:place]].sum())
    of_atom = found[:, start : start + int(tree.factors.cards[atom])]
    logits = of_atom[:, 1] - of_atom[:, 0] if declaration.classes is None else of_atom.log_softmax(-1)[:, entry[-1]]
    moves = (logits[0] - logits[1:]).tolist()
    return list(zip(_write_groundings(grounding, inputs, tree, own.tolist()), moves, strict=True))


def statement_indices(grounding: Grounding, tree: CliqueTree) -> Tensor:
    """Return the statement that each grounding of a tree is of."""
    parts = [
        torch.full((len(group.atoms),), grounding.formulas[group.formula_index].statement_index)
        for group in tree.factors.groups
    ]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.long)


def _write_groundings(
    grounding: Grounding, inputs: GroundInputs, tree: CliqueTree, positions: Sequence[int]
) -> list[str]:
    starts = np.cumsum([0, *(len(group.atoms) for group in tree.factors.groups)])
    texts = []
    for position in positions:
        group_index = int(np.searchsorted(starts, position, side="right")) - 1
        group = tree.factors.groups[group_index]
        formula = grounding.formulas[group.formula_index]
        shape = [inputs.sizes[type_name] for type_name in formula.types.values()]
        assignment = group.assignments[position - starts[group_index]]
        indices = np.unravel_index(assignment, shape) if shape else ()
        binding: dict[Variable, Term] = {}
        for (variable, type_name), index in zip(formula.types.items(), indices, strict=True):
            names = grounding.entity_names(type_name)
            binding[variable] = Number(int(index)) if names is None else Symbol(names[int(index)])
        texts.append(str(substitute(formula.formula, binding)))
    return texts


def _atoms_by_predicate(tree: CliqueTree, names: Iterable[str]) -> dict[str, Indices]:
    """Return the atoms of a tree by predicate, as indices among those of the predicate."""
    starts = tree.factors.first_atoms
    bounds = [*(starts[name] for name in names), len(tree.factors.cards)]
    cuts = np.searchsorted(tree.atoms, bounds)
    return {
        name: tree.atoms[cuts[index] : cuts[index + 1]] - starts[name]
        for index, name in enumerate(names)
        if cuts[index] < cuts[index + 1]
    }


def _flatten(tensor: Tensor, inputs: GroundInputs, grounding: Grounding, name: str) -> Tensor:
    """Return a predicate's tensor as ``[rows or 1, atoms, classes]``, with one class where it has none."""
    declaration = grounding.predicates[name]
    atoms = prod(inputs.sizes[type_name] for type_name in declaration.types)
    return tensor.reshape(-1, atoms, 1 if declaration.classes is None else len(declaration.classes))


def _check_memory(tree: CliqueTree, inputs: GroundInputs, memory_limit: int | None) -> None:
    """Refuse tables that do not fit: about six times, for messages up and down."""
    needed = 6 * 8 * tree.cells * prod(inputs.batch)
    limit = usual_limit(inputs.device) if memory_limit is None else memory_limit
    if needed > limit:
        raise MemoryLimitError(
            f"exact inference needs {format_bytes(needed)} for {tree.cells:,} cells in each of {prod(inputs.batch):,} "
            f'rows and the limit is {format_bytes(limit)}; use smaller batches, inference="mean-field", or raise '
            "memory_limit"
        )


def _fingerprint(inputs: GroundInputs) -> bytes:
    """Return a digest of all that a tree depends on."""
    digest = blake2b(repr((sorted(inputs.sizes.items()), sorted(inputs.logits), bool(inputs.batch))).encode())
    tensors: dict[str, Tensor | None] = {f"mask {name}": mask for name, mask in inputs.masks.items()}
    for name, observed in inputs.observed.items():
        tensors[f"value {name}"], tensors[f"where {name}"] = observed.probability, observed.where
    for name, tensor in sorted(tensors.items()):
        if tensor is not None:
            array = tensor.detach().bool().cpu().contiguous().numpy()
            digest.update(f"{name} {array.shape}".encode() + array.tobytes())
    return digest.digest()
