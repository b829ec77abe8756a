"""What a layer or a loss is given, checked and made ready: logits, evidence and masks of one batch, as tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from rulewright.errors import DataError, unknown_name
from rulewright.inject.atom_space import ShapeReader
from rulewright.inject.layer.grounding import Grounding
from rulewright.logic import PredicateDeclaration

Observation: TypeAlias = Tensor | tuple[Tensor, Tensor]
"""Values of a predicate that is observed everywhere, or values and where they are observed.

Values are truth values, or class indices where the predicate is multi-class.
"""

CERTAIN = 1e4
"""The log-odds of what is observed."""


@dataclass(frozen=True, slots=True)
class InputShape:
    """What a plan depends on: sizes, which predicates and masks have a batch, which predicates are observed."""

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
    """One batch: the batch is flattened to one dimension, or there is none."""

    logits: Mapping[str, Tensor]
    observed: Mapping[str, Observed]
    masks: Mapping[str, Tensor]
    batch: tuple[int, ...]
    shape: InputShape
    dtype: torch.dtype
    device: torch.device

    def mask_atoms(self, declaration: PredicateDeclaration) -> Tensor | None:
        """Return where a predicate's atoms are of entities that exist, 1 or 0; None is everywhere."""
        product: Tensor | None = None
        for position, type_name in enumerate(declaration.types):
            mask = self.masks.get(type_name)
            if mask is None:
                continue
            dims = [mask.shape[-1] if position == other else 1 for other in range(declaration.arity)]
            view = mask.view(*mask.shape[:-1], *dims)
            product = view if product is None else product * view
        return product

    def marginals(self, logits: Mapping[str, Tensor], grounding: Grounding) -> dict[str, Tensor]:
        """Return the probabilities of true, or of each class, of all atoms of each predicate that a formula has."""
        marginals = {}
        for name, given in logits.items():
            if name not in grounding.used:
                continue
            has_classes = grounding.predicates[name].classes is not None
            marginals[name] = torch.softmax(given, dim=-1) if has_classes else torch.sigmoid(given)
            observed = self.observed.get(name)
            if observed is not None and observed.where is not None:
                where = observed.where[..., None] if has_classes else observed.where
                marginals[name] = torch.where(where, observed.probability, marginals[name])
        return marginals


def read_inputs(
    grounding: Grounding,
    logits: Mapping[str, Tensor],
    evidence: Mapping[str, Observation] | None,
    mask: Mapping[str, Tensor] | None,
) -> GroundInputs:
    """Check what an injector is given and bring it into one form."""
    evidence, mask = evidence or {}, mask or {}
    for name in (*logits, *evidence):
        if name not in grounding.predicates:
            raise unknown_name("predicate", name, grounding.predicates)
    missing = [name for name in grounding.used if name not in logits and name not in evidence]
    if missing:
        name = min(missing)
        what = "evidence, since it is closed" if name in grounding.closed else "logits or evidence"
        raise DataError(f"predicate {name} has no {what}, but occurs in: {grounding.find_formula(name)}")
    open_names = [name for name in logits if not isinstance(evidence.get(name), Tensor)]
    for name in grounding.closed & set(open_names):
        if name in evidence or name in grounding.used:
            raise DataError(f"predicate {name} is closed: all its atoms are evidence, observed everywhere")
    if not logits and not evidence:
        raise DataError("there are no logits and no evidence")
    shapes = ShapeReader(grounding, logits)
    some = next(iter(logits.values()), None)
    dtype = torch.get_default_dtype() if some is None else some.dtype
    device = torch.device("cpu") if some is None else some.device
    for name, tensor in logits.items():
        if not tensor.is_floating_point():
            raise DataError(f"logits of {name} must be floating-point, got {tensor.dtype}")
        if not torch.compiler.is_compiling() and bool(torch.isnan(tensor).any()):
            raise DataError(f"logits of {name} hold NaN; check what the network gives before this layer")
    observed = {name: _read_evidence(shapes, name, observation, dtype) for name, observation in evidence.items()}
    masks = {type_name: _read_mask(shapes, type_name, given, dtype) for type_name, given in mask.items()}
    lead = len(shapes.batch)
    flat = {name: logits[name].flatten(0, lead - 1) if lead > 1 else logits[name] for name in open_names}
    batched = set(flat) if shapes.batch else set()
    batched |= {name for name, known in observed.items() if known.probability.ndim > grounding.count_dims(name)}
    shape = InputShape(
        tuple(sorted((name, shapes.sizes[name][0]) for name in grounding.types if name in shapes.sizes)),
        frozenset(batched),
        frozenset(type_name for type_name, given in masks.items() if given.ndim == 2),
        frozenset(name for name, known in observed.items() if known.where is None),
    )
    return GroundInputs(flat, observed, masks, shapes.batch, shape, dtype, device)


def _read_evidence(shapes: ShapeReader, name: str, observation: Observation, dtype: torch.dtype) -> Observed:
    declaration = shapes.space.predicates[name]
    values, where = observation if isinstance(observation, tuple) else (observation, None)
    if where is not None and (where.dtype != torch.bool or where.shape != values.shape):
        raise DataError(f"evidence of {name} is (values, observed), both of one shape and observed boolean")
    lead = shapes.read_evidence(name, values)
    if lead > 1:
        values = values.flatten(0, lead - 1)
        where = where if where is None else where.flatten(0, lead - 1)
    if declaration.classes is None:
        if values.dtype != torch.bool:
            raise DataError(f"evidence of {name} must be boolean, got {values.dtype}")
    elif values.is_floating_point() or values.dtype == torch.bool:
        raise DataError(f"evidence of {name} must be class indices, got {values.dtype}")
    elif bool(((values < 0) | (values >= len(declaration.classes))).any()):
        raise DataError(f"evidence of {name} must be class indices below {len(declaration.classes)}")
    else:
        values = torch.nn.functional.one_hot(values.long(), len(declaration.classes))
    return Observed(values.to(dtype), where)


def _read_mask(shapes: ShapeReader, type_name: str, mask: Tensor, dtype: torch.dtype) -> Tensor:
    shapes.read_mask(type_name, mask)
    if mask.dtype != torch.bool:
        raise DataError(f"the mask of type {type_name} must be boolean, got {mask.dtype}")
    return (mask.flatten(0, -2) if mask.ndim > 2 else mask).to(dtype)
