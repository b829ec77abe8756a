"""What a layer is given, checked and made ready: logits, evidence and masks of one batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from rulewright.errors import DataError, unknown_name
from rulewright.inject.layer.grounding import Grounding
from rulewright.inject.layer.plan import Shape
from rulewright.logic import Comparison, PredicateDeclaration, units

Observation: TypeAlias = Tensor | tuple[Tensor, Tensor]
"""Values of a predicate that is observed everywhere, or values and where they are observed.

Values are truth values, or class numbers where the predicate is multi-class.
"""

CERTAIN = 1e4
"""The log-odds of what is observed."""


@dataclass(frozen=True, slots=True)
class Known:
    """An observed predicate: probabilities of true (or of each class), and where; None is everywhere."""

    probability: Tensor
    where: Tensor | None


@dataclass(frozen=True)
class GroundInputs:
    """One batch: the batch is flattened to one dimension, or there is none."""

    logits: Mapping[str, Tensor]
    known: Mapping[str, Known]
    masks: Mapping[str, Tensor]
    batch: tuple[int, ...]
    shape: Shape
    dtype: torch.dtype
    device: torch.device

    @property
    def rows(self) -> int:
        """The number of rows of the batch, 1 where there is none."""
        return torch.Size(self.batch).numel()

    def mask_over(self, declaration: PredicateDeclaration) -> Tensor | None:
        """Return where a predicate's atoms are of entities that exist, 1 or 0; None is everywhere."""
        found: Tensor | None = None
        for place, kind in enumerate(declaration.types):
            mask = self.masks.get(kind)
            if mask is None:
                continue
            lead = mask.shape[:-1]
            view = mask.view(*lead, *(mask.shape[-1] if place == each else 1 for each in range(declaration.arity)))
            found = view if found is None else found * view
        return found

    def probabilities(self, logits: Mapping[str, Tensor], declaration: PredicateDeclaration) -> Tensor:
        """Return the probability of true, or of each class, of all atoms of a predicate."""
        known = self.known.get(declaration.name)
        if known is not None and known.where is None:
            return known.probability
        given = logits[declaration.name]
        found = torch.sigmoid(given) if declaration.classes is None else torch.softmax(given, dim=-1)
        if known is None or known.where is None:
            return found
        return torch.where(
            known.where if declaration.classes is None else known.where[..., None], known.probability, found
        )


def read_inputs(
    grounding: Grounding,
    logits: Mapping[str, Tensor],
    evidence: Mapping[str, Observation] | None,
    mask: Mapping[str, Tensor] | None,
) -> GroundInputs:
    """Check what a layer is given and bring it into one form."""
    evidence, mask = evidence or {}, mask or {}
    sizes = _Sizes(grounding)
    for name in (*logits, *evidence):
        if name not in grounding.predicates:
            raise unknown_name("predicate", name, grounding.predicates)
    missing = [name for name in grounding.used if name not in logits and name not in evidence]
    if missing:
        name = min(missing)
        what = "evidence, since it is closed" if name in grounding.closed else "logits or evidence"
        raise DataError(f"predicate {name} has no {what}, but occurs in: {_formula_with(grounding, name)}")
    open_names = [name for name in logits if not _observed_everywhere(evidence.get(name))]
    for name in grounding.closed & set(open_names):
        if name in evidence or name in grounding.used:
            raise DataError(f"predicate {name} is closed: all its atoms are evidence, observed everywhere")
    batch = _batch_shape(grounding, logits)
    if not logits and not evidence:
        raise DataError("there are no logits and no evidence")
    some = next(iter(logits.values()), None)
    dtype = torch.get_default_dtype() if some is None else some.dtype
    device = next((each.device for each in logits.values()), torch.device("cpu"))
    for name, tensor in logits.items():
        sizes.take(name, tensor, len(batch))
        if not tensor.is_floating_point():
            raise DataError(f"logits of {name} must be floating-point, got {tensor.dtype}")
        if not torch.compiler.is_compiling() and bool(torch.isnan(tensor).any()):
            raise DataError(f"logits of {name} hold NaN; check what the network gives before this layer")
    known = {name: _known(grounding, name, each, sizes, batch, dtype) for name, each in evidence.items()}
    masks = {kind: _mask(grounding, kind, each, sizes, batch, dtype) for kind, each in mask.items()}
    flat = {name: _flattened(tensor, len(batch)) for name, tensor in logits.items() if name in open_names}
    rows = torch.Size(batch).numel()
    flat = {name: tensor.expand(rows, *tensor.shape[1:]) if batch else tensor for name, tensor in flat.items()}
    batched = set(flat) if batch else set()
    batched |= {name for name, each in known.items() if each.probability.ndim > _dims(grounding.predicates[name])}
    shape = Shape(
        tuple(sorted(sizes.found(grounding).items())),
        frozenset(batched),
        frozenset(kind for kind, each in masks.items() if each.ndim == 2),
        frozenset(name for name, each in known.items() if each.where is None),
    )
    return GroundInputs(flat, known, masks, batch, shape, dtype, device)


class _Sizes:
    """The size of each type, as the domains or the first tensor that has it say."""

    def __init__(self, grounding: Grounding) -> None:
        self._grounding = grounding
        self._sizes: dict[str, tuple[int, str]] = {
            kind: (size, "its domain") for kind, size in grounding.given_sizes.items()
        }

    def take(self, name: str, tensor: Tensor, batch: int) -> None:
        declaration = self._grounding.predicates[name]
        shape = tuple(tensor.shape)
        wanted = _dims(declaration)
        if len(shape) != wanted + batch:
            raise self._fault(name, declaration, shape, f"{wanted} dimensions after those of the batch")
        if declaration.classes is not None and shape[-1] != len(declaration.classes):
            raise self._fault(name, declaration, shape, f"{len(declaration.classes)} classes in the last dimension")
        self.take_arguments(name, shape[batch : batch + declaration.arity], shape)

    def take_arguments(self, name: str, arguments: tuple[int, ...], shape: tuple[int, ...]) -> None:
        declaration = self._grounding.predicates[name]
        for place, (kind, size) in enumerate(zip(declaration.types, arguments, strict=True)):
            expected, origin = self._sizes.setdefault(kind, (size, f"argument {place + 1} of {name}"))
            if size != expected:
                wanted = f"size {expected} for type {kind} at argument {place + 1}, as {origin} has"
                raise self._fault(name, declaration, shape, wanted)
            if size == 0:
                raise DataError(f"type {kind} has no entities: {name} has the shape {list(shape)}")

    def take_mask(self, kind: str, size: int) -> None:
        expected, origin = self._sizes.setdefault(kind, (size, "its mask"))
        if size != expected:
            raise DataError(f"the mask of type {kind} has {size} entities, expected {expected} as {origin} has")

    def found(self, grounding: Grounding) -> dict[str, int]:
        return {kind: self._sizes[kind][0] for kind in grounding.types if kind in self._sizes}

    def _fault(self, name: str, declaration: PredicateDeclaration, shape: tuple[int, ...], wanted: str) -> DataError:
        formula = _formula_with(self._grounding, name)
        return DataError(f"{declaration} expects {wanted}, got the shape {list(shape)}, in: {formula}")


def _dims(declaration: PredicateDeclaration) -> int:
    return declaration.arity + (declaration.classes is not None)


def _formula_with(grounding: Grounding, name: str) -> str:
    for part in grounding.formulas:
        for unit in units(part.formula):
            if not isinstance(unit, Comparison) and unit.predicate == name:
                return str(part.formula)
    return "no formula"


def _observed_everywhere(observation: Observation | None) -> bool:
    return isinstance(observation, Tensor)


def _batch_shape(grounding: Grounding, logits: Mapping[str, Tensor]) -> tuple[int, ...]:
    """Return what comes before the arguments; all logits agree on it."""
    found: dict[tuple[int, ...], str] = {}
    for name, tensor in logits.items():
        lead = tensor.ndim - _dims(grounding.predicates[name])
        if lead < 0:
            declaration = grounding.predicates[name]
            raise DataError(
                f"{declaration} expects at least {_dims(declaration)} dimensions, got the shape {list(tensor.shape)}, "
                f"in: {_formula_with(grounding, name)}"
            )
        found.setdefault(tuple(tensor.shape[:lead]), name)
    if len(found) > 1:
        (one, first), (other, second) = list(found.items())[:2]
        raise DataError(f"the batch of {first} is {list(one)} and that of {second} {list(other)}; they must agree")
    return next(iter(found), ())


def _flattened(tensor: Tensor, batch: int) -> Tensor:
    return tensor.reshape(-1, *tensor.shape[batch:]) if batch > 1 else tensor


def _known(
    grounding: Grounding,
    name: str,
    observation: Observation,
    sizes: _Sizes,
    batch: tuple[int, ...],
    dtype: torch.dtype,
) -> Known:
    declaration = grounding.predicates[name]
    values, where = observation if isinstance(observation, tuple) else (observation, None)
    if where is not None and (where.dtype != torch.bool or where.shape != values.shape):
        raise DataError(f"evidence of {name} is (values, observed), both of one shape and observed boolean")
    lead = values.ndim - declaration.arity
    if lead < 0 or (lead > 0 and tuple(values.shape[:lead]) != batch):
        raise DataError(
            f"evidence of {declaration} has the shape {list(values.shape)}, expected {declaration.arity} dimensions "
            f"{'after those of the batch ' + str(list(batch)) if batch else ''}and class numbers where it has classes"
        )
    sizes.take_arguments(name, tuple(values.shape[lead:]), tuple(values.shape))
    values = _flattened(values, lead)
    if declaration.classes is None:
        if values.dtype != torch.bool:
            raise DataError(f"evidence of {name} must be boolean, got {values.dtype}")
        probability = values.to(dtype)
    else:
        if values.is_floating_point() or values.dtype == torch.bool:
            raise DataError(f"evidence of {name} must be class numbers, got {values.dtype}")
        if bool(((values < 0) | (values >= len(declaration.classes))).any()):
            raise DataError(f"evidence of {name} must be class numbers below {len(declaration.classes)}")
        probability = torch.nn.functional.one_hot(values.long(), len(declaration.classes)).to(dtype)
    return Known(probability, None if where is None else _flattened(where, lead))


def _mask(
    grounding: Grounding, kind: str, mask: Tensor, sizes: _Sizes, batch: tuple[int, ...], dtype: torch.dtype
) -> Tensor:
    if kind not in grounding.types:
        raise unknown_name("type", kind, grounding.types)
    if mask.dtype != torch.bool or tuple(mask.shape[:-1]) not in ((), batch) or mask.ndim == 0:
        raise DataError(
            f"the mask of type {kind} is boolean, of shape {[*batch, 'N']} or ['N'], "
            f"got {mask.dtype} {list(mask.shape)}"
        )
    sizes.take_mask(kind, mask.shape[-1])
    return _flattened(mask, mask.ndim - 1).to(dtype)
