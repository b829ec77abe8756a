"""What a layer is given, checked and made ready: logits, evidence and masks of one batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from rulewright.errors import DataError, unknown_name
from rulewright.inject.layer.grounding import Grounding
from rulewright.logic import Comparison, PredicateDeclaration, units

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
    """Check what a layer is given and bring it into one form."""
    evidence, mask = evidence or {}, mask or {}
    for name in (*logits, *evidence):
        if name not in grounding.predicates:
            raise unknown_name("predicate", name, grounding.predicates)
    missing = [name for name in grounding.used if name not in logits and name not in evidence]
    if missing:
        name = min(missing)
        what = "evidence, since it is closed" if name in grounding.closed else "logits or evidence"
        raise DataError(f"predicate {name} has no {what}, but occurs in: {_formula_with(grounding, name)}")
    open_names = [name for name in logits if not isinstance(evidence.get(name), Tensor)]
    for name in grounding.closed & set(open_names):
        if name in evidence or name in grounding.used:
            raise DataError(f"predicate {name} is closed: all its atoms are evidence, observed everywhere")
    if not logits and not evidence:
        raise DataError("there are no logits and no evidence")
    reader = _InputReader(grounding, logits)
    observed = {name: reader.read_evidence(name, observation) for name, observation in evidence.items()}
    masks = {type_name: reader.read_mask(type_name, given) for type_name, given in mask.items()}
    lead = len(reader.batch)
    flat = {name: logits[name].flatten(0, lead - 1) if lead > 1 else logits[name] for name in open_names}
    batched = set(flat) if reader.batch else set()
    batched |= {name for name, known in observed.items() if known.probability.ndim > reader.dims[name]}
    shape = InputShape(
        tuple(sorted((name, reader.sizes[name][0]) for name in grounding.types if name in reader.sizes)),
        frozenset(batched),
        frozenset(type_name for type_name, given in masks.items() if given.ndim == 2),
        frozenset(name for name, known in observed.items() if known.where is None),
    )
    return GroundInputs(flat, observed, masks, reader.batch, shape, reader.dtype, reader.device)


class _InputReader:
    """Reads tensors that agree: on the batch, before the arguments, and on the sizes of types.

    ``dims`` are the dimensions of a predicate after those of the batch; ``sizes`` those of types, with what said so.
    """

    def __init__(self, grounding: Grounding, logits: Mapping[str, Tensor]) -> None:
        self._grounding = grounding
        self.sizes = {type_name: (size, "its domain") for type_name, size in grounding.given_sizes.items()}
        self.dims = {name: known.arity + (known.classes is not None) for name, known in grounding.predicates.items()}
        some = next(iter(logits.values()), None)
        self.dtype = torch.get_default_dtype() if some is None else some.dtype
        self.device = torch.device("cpu") if some is None else some.device
        batches: dict[tuple[int, ...], str] = {}
        for name, tensor in logits.items():
            if tensor.ndim < self.dims[name]:
                raise self._shape_error(name, f"at least {self.dims[name]} dimensions", tensor)
            batches.setdefault(tuple(tensor.shape[: tensor.ndim - self.dims[name]]), name)
        if len(batches) > 1:
            (one, first), (other, second) = list(batches.items())[:2]
            raise DataError(f"the batch of {first} is {list(one)} and that of {second} {list(other)}; they must agree")
        self.batch = next(iter(batches), ())
        for name, tensor in logits.items():
            classes = grounding.predicates[name].classes
            if classes is not None and tensor.shape[-1] != len(classes):
                raise self._shape_error(name, f"{len(classes)} classes in the last dimension", tensor)
            self._read_sizes(name, tensor, len(self.batch))
            if not tensor.is_floating_point():
                raise DataError(f"logits of {name} must be floating-point, got {tensor.dtype}")
            if not torch.compiler.is_compiling() and bool(torch.isnan(tensor).any()):
                raise DataError(f"logits of {name} hold NaN; check what the network gives before this layer")

    def read_evidence(self, name: str, observation: Observation) -> Observed:
        declaration = self._grounding.predicates[name]
        values, where = observation if isinstance(observation, tuple) else (observation, None)
        if where is not None and (where.dtype != torch.bool or where.shape != values.shape):
            raise DataError(f"evidence of {name} is (values, observed), both of one shape and observed boolean")
        lead = values.ndim - declaration.arity
        if lead < 0 or (lead > 0 and tuple(values.shape[:lead]) != self.batch):
            batch = f"after those of the batch {list(self.batch)} " if self.batch else ""
            raise DataError(
                f"evidence of {declaration} has the shape {list(values.shape)}, expected {declaration.arity} "
                f"dimensions {batch}and class indices where it has classes"
            )
        self._read_sizes(name, values, lead)
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
        return Observed(values.to(self.dtype), where)

    def read_mask(self, type_name: str, mask: Tensor) -> Tensor:
        if type_name not in self._grounding.types:
            raise unknown_name("type", type_name, self._grounding.types)
        if mask.dtype != torch.bool or tuple(mask.shape[:-1]) not in ((), self.batch) or mask.ndim == 0:
            raise DataError(
                f"the mask of type {type_name} is boolean, of shape {[*self.batch, 'N']} or ['N'], "
                f"got {mask.dtype} {list(mask.shape)}"
            )
        size = mask.shape[-1]
        expected, origin = self.sizes.setdefault(type_name, (size, "its mask"))
        if size != expected:
            raise DataError(f"the mask of type {type_name} has {size} entities, expected {expected} as {origin} has")
        return (mask.flatten(0, -2) if mask.ndim > 2 else mask).to(self.dtype)

    def _read_sizes(self, name: str, tensor: Tensor, lead: int) -> None:
        for position, type_name in enumerate(self._grounding.predicates[name].types):
            size = tensor.shape[lead + position]
            expected, origin = self.sizes.setdefault(type_name, (size, f"argument {position + 1} of {name}"))
            if size != expected:
                wanted = f"size {expected} for type {type_name} at argument {position + 1}, as {origin} has"
                raise self._shape_error(name, wanted, tensor)
            if size == 0:
                raise DataError(f"type {type_name} has no entities: {name} has the shape {list(tensor.shape)}")

    def _shape_error(self, name: str, expected: str, tensor: Tensor) -> DataError:
        shape, formula = list(tensor.shape), _formula_with(self._grounding, name)
        return DataError(f"{self._grounding.predicates[name]} expects {expected}, got the shape {shape}, in: {formula}")


def _formula_with(grounding: Grounding, name: str) -> str:
    for ground_formula in grounding.formulas:
        for unit in units(ground_formula.formula):
            if not isinstance(unit, Comparison) and unit.predicate == name:
                return str(ground_formula.formula)
    return "no formula"
