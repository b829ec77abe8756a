"""What a layer or a loss is given, checked and made ready: logits, evidence and masks of one batch, as tensors.

`read_inputs` brings a call into one form, in which all tensors have one dtype and one device and the batch is one
dimension; `StoredEvidence` is evidence that a module is given once. Under ``torch.compile`` and ``torch.export``,
shapes and dtypes are checked and values (NaN, class indices) are not, since that would wait for the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import index
from typing import TypeAlias

import torch
from torch import Tensor, nn

from rulewright.errors import DataError, unknown_name
from rulewright.inject.atom_space import ENTITY, AtomSpace, ShapeReader
from rulewright.logic import PredicateDeclaration

Logits: TypeAlias = Tensor | Mapping[str, Tensor]
"""Logits by predicate, or those of ``relations`` stacked."""

Mask: TypeAlias = Tensor | Mapping[str, Tensor]
"""Which entities exist, by type, or with ``relations`` those of the one type."""

Observation: TypeAlias = Tensor | tuple[Tensor, Tensor]
"""Values of a predicate that is observed everywhere, or values and where they are observed.

Values are truth values, or class indices where the predicate is multi-class. Of candidate atoms they are the index and
the values (`rulewright.inject.layer.candidates`).
"""

Evidence: TypeAlias = Mapping[str, Observation]
"""Observations by predicate."""

CERTAIN = 1e4
"""The log-odds of what is observed."""

NOMINAL_SIZE = 64
"""The size for which an order of contractions is chosen where the size is open, as in a dynamic compiled graph."""


@dataclass(frozen=True, slots=True)
class InputShape:
    """What a plan depends on: sizes, which predicates and masks have a batch, which predicates are observed.

    Of the sizes only the order of contractions and the costs depend; a plan runs on tensors of any sizes.
    """

    sizes: tuple[tuple[str, int], ...]
    batched: frozenset[str] = frozenset()
    batched_masks: frozenset[str] = frozenset()
    observed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Observed:
    """An observed predicate: probabilities of true (or of each class), and where; None is everywhere."""

    probability: Tensor
    where: Tensor | None


@dataclass(frozen=True)
class GroundInputs:
    """One batch: the batch is flattened to one dimension, or there is none. ``sizes`` are those of types."""

    logits: Mapping[str, Tensor]
    observed: Mapping[str, Observed]
    masks: Mapping[str, Tensor]
    batch: tuple[int, ...]
    sizes: Mapping[str, int]
    shape: InputShape
    dtype: torch.dtype
    device: torch.device
    _atom_masks: dict[tuple[str, ...], Tensor | None] = field(default_factory=dict, init=False)

    def detach(self) -> GroundInputs:
        """Return the same without what a backward pass needs."""
        return replace(self, logits={name: tensor.detach() for name, tensor in self.logits.items()})

    def mask_atoms(self, declaration: PredicateDeclaration) -> Tensor | None:
        """Return where a predicate's atoms are of entities that exist, 1 or 0; None is everywhere."""
        if declaration.types not in self._atom_masks:
            self._atom_masks[declaration.types] = self._make_mask(declaration)
        return self._atom_masks[declaration.types]

    def _make_mask(self, declaration: PredicateDeclaration) -> Tensor | None:
        product: Tensor | None = None
        for position, type_name in enumerate(declaration.types):
            mask = self.masks.get(type_name)
            if mask is None:
                continue
            dims = [mask.shape[-1] if position == other else 1 for other in range(declaration.arity)]
            view = mask.view(*mask.shape[:-1], *dims)
            product = view if product is None else product * view
        return product

    def marginals(self, logits: Mapping[str, Tensor], space: AtomSpace) -> dict[str, Tensor]:
        """Return the probabilities of true, or of each class, of all atoms of each predicate that a formula has."""
        marginals = {}
        for name, given in logits.items():
            if name not in space.used:
                continue
            has_classes = space.predicates[name].classes is not None
            marginals[name] = torch.softmax(given, dim=-1) if has_classes else torch.sigmoid(given)
            observed = self.observed.get(name)
            if observed is not None and observed.where is not None:
                where = observed.where[..., None] if has_classes else observed.where
                marginals[name] = torch.where(where, observed.probability, marginals[name])
        return marginals


class StoredEvidence(nn.Module):
    """Evidence that is given once: buffers that follow ``.to()`` and are no part of the state.

    >>> space = AtomSpace("hard label(X, C) & parent(C, P) => label(X, P).")
    >>> stored = StoredEvidence(space, {"parent": torch.eye(3, dtype=torch.bool)})
    >>> [*stored.join(None)], [*stored.state_dict()]
    (['parent'], [])
    """

    def __init__(self, space: AtomSpace, evidence: Evidence | None) -> None:
        super().__init__()
        self.names: tuple[str, ...] = tuple(evidence or ())
        for position, (name, observation) in enumerate((evidence or {}).items()):
            if name not in space.predicates:
                raise unknown_name("predicate", name, space.predicates)
            values, where = _split_observation(name, observation)
            self.register_buffer(f"values_{position}", values, persistent=False)
            self.register_buffer(f"observed_{position}", where, persistent=False)

    def join(self, evidence: Evidence | None) -> dict[str, Observation]:
        """Return what is stored, with the evidence of a call in its place where both have a predicate."""
        joined: dict[str, Observation] = {}
        for position, name in enumerate(self.names):
            values, where = getattr(self, f"values_{position}"), getattr(self, f"observed_{position}")
            joined[name] = values if where is None else (values, where)
        return {**joined, **(evidence or {})}


def split_inputs(
    space: AtomSpace, logits: Logits, evidence: Evidence | Tensor | None, mask: Mask | None
) -> tuple[Mapping[str, Tensor], Evidence | None, Mapping[str, Tensor] | None]:
    """Return logits by predicate, evidence, and masks by type, where logits and mask may be those of ``relations``.

    A tensor in the place of evidence is the mask of stacked logits: ``layer(logits, mask)``.
    """
    if isinstance(evidence, Tensor):
        if mask is not None or not isinstance(logits, Tensor):
            raise DataError("evidence is given by predicate, {predicate: values}, got a tensor")
        evidence, mask = None, evidence
    if isinstance(logits, Tensor):
        if space.relations is None:
            raise DataError("logits are given by predicate, {predicate: logits}; one tensor needs relations=[…]")
        logits = space.split_relations(logits)
    if isinstance(mask, Tensor):
        if space.relations is None:
            raise DataError("masks are given by type, {type: mask}; one tensor needs relations=[…]")
        mask = {ENTITY: mask}
    return logits, evidence, mask


def read_inputs(
    space: AtomSpace,
    logits: Mapping[str, Tensor],
    evidence: Evidence | None,
    mask: Mapping[str, Tensor] | None,
    *,
    dtype: torch.dtype | None = None,
) -> GroundInputs:
    """Check what an injector is given and bring it into one form, promoted to ``dtype`` at least."""
    evidence, mask = evidence or {}, mask or {}
    space.check_names(logits, evidence)
    open_names = [name for name in logits if not isinstance(evidence.get(name), Tensor)]
    for name in open_names:
        if name in space.closed and (name in evidence or name in space.used):
            raise DataError(f"predicate {name} is closed: all its atoms are evidence, observed everywhere")
    if not logits and not evidence:
        raise DataError("there are no logits and no evidence")
    dtype, device = join_logits(logits, dtype)
    shapes = ShapeReader(space, logits)
    observed = {
        name: _read_evidence(shapes, name, observation, dtype, device) for name, observation in evidence.items()
    }
    masks = {type_name: _read_mask(shapes, type_name, given, dtype, device) for type_name, given in mask.items()}
    lead = len(shapes.batch)
    flat = {name: (logits[name].flatten(0, lead - 1) if lead > 1 else logits[name]).to(dtype) for name in open_names}
    batched = set(flat) if lead else set()
    batched |= {name for name, known in observed.items() if known.probability.ndim > space.count_dims(name)}
    sizes = {name: shapes.sizes[name][0] for name in sorted(space.types) if name in shapes.sizes}
    shape = InputShape(
        tuple((name, _plan_size(size)) for name, size in sizes.items()),
        frozenset(batched),
        frozenset(type_name for type_name, given in masks.items() if given.ndim == 2),
        frozenset(name for name, known in observed.items() if known.where is None),
    )
    return GroundInputs(flat, observed, masks, shapes.batch, sizes, shape, dtype, device)


def join_logits(logits: Mapping[str, Tensor], dtype: torch.dtype | None) -> tuple[torch.dtype, torch.device]:
    """Return the dtype that all logits are promoted to, and the device that they share."""
    device, first = torch.device("cpu"), ""
    for name, tensor in logits.items():
        if not tensor.is_floating_point():
            raise DataError(f"logits of {name} must be floating-point, got {tensor.dtype}")
        dtype = tensor.dtype if dtype is None else torch.promote_types(dtype, tensor.dtype)
        if not first:
            device, first = tensor.device, name
        elif tensor.device != device:
            raise DataError(
                f"logits of {first} are on {device} and those of {name} on {tensor.device}; move them to one device"
            )
        if not torch.compiler.is_compiling() and bool(torch.isnan(tensor).any()):
            raise DataError(f"logits of {name} hold NaN; check what the network gives before this layer")
    return torch.get_default_dtype() if dtype is None else dtype, device


def _plan_size(size: int) -> int:
    """Return the size that a plan is made for: the size itself, unless it is open in a graph that is compiled."""
    if not torch.compiler.is_compiling():
        return size
    from torch.fx.experimental.symbolic_shapes import has_static_value

    return index(size) if has_static_value(size) else NOMINAL_SIZE


def _split_observation(name: str, observation: Observation) -> tuple[Tensor, Tensor | None]:
    values, where = observation if isinstance(observation, tuple) else (observation, None)
    if not isinstance(values, Tensor):
        raise DataError(f"evidence of {name} is a tensor, or two: (values, observed), got a {type(values).__name__}")
    if where is not None and values.ndim == 2 and where.ndim == 1:  # candidates: (index, values)
        return values, where
    if where is not None and (where.dtype != torch.bool or where.shape != values.shape):
        raise DataError(f"evidence of {name} is (values, observed), both of one shape and observed boolean")
    return values, where


def _read_evidence(
    shapes: ShapeReader, name: str, observation: Observation, dtype: torch.dtype, device: torch.device
) -> Observed:
    declaration = shapes.space.predicates[name]
    values, where = _split_observation(name, observation)
    lead = shapes.read_evidence(name, values)
    values, where = values.to(device), where if where is None else where.to(device)
    if lead > 1:
        values = values.flatten(0, lead - 1)
        where = where if where is None else where.flatten(0, lead - 1)
    if declaration.classes is None:
        if values.dtype != torch.bool:
            raise DataError(f"evidence of {name} must be boolean, got {values.dtype}")
        return Observed(values.to(dtype), where)
    count = len(declaration.classes)
    if values.is_floating_point() or values.dtype == torch.bool:
        raise DataError(f"evidence of {name} must be class indices, got {values.dtype}")
    if not torch.compiler.is_compiling() and bool(((values < 0) | (values >= count)).any()):
        raise DataError(f"evidence of {name} must be class indices below {count}")
    return Observed((values.unsqueeze(-1) == torch.arange(count, device=device)).to(dtype), where)


def _read_mask(shapes: ShapeReader, type_name: str, mask: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    shapes.read_mask(type_name, mask)
    if mask.dtype != torch.bool:
        raise DataError(f"the mask of type {type_name} must be boolean, got {mask.dtype}")
    return (mask.flatten(0, -2) if mask.ndim > 2 else mask).to(device=device, dtype=dtype)
