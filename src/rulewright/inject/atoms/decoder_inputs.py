"""What a decoder is given, checked and made ready: logits, evidence, masks and thresholds of one batch, as arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from rulewright.errors import DataError, unknown_name
from rulewright.inject.atom_space import ENTITY, AtomSpace, ShapeReader
from rulewright.inject.atoms.decoded import write_atom
from rulewright.inject.atoms.joins import ClauseJoins
from rulewright.inject.atoms.layout import AtomLayout, Floats, Labels

AnyNumber = TypeVar("AnyNumber", np.float64, np.bool_)

Observation: TypeAlias = Any
"""Truth values or class indices where a predicate is observed everywhere, or (values, observed); arrays or tensors."""


@dataclass(frozen=True)
class DecoderInputs:
    """What a decoder is given, checked and as arrays with one dimension for the batch.

    ``logits`` are ``[rows, *arguments, channels]`` of one predicate, or of all relations; ``evidence`` is values and
    where they are observed, None for everywhere; ``exists`` are masks ``[rows, N]``.
    """

    space: AtomSpace
    joins: ClauseJoins
    layout: AtomLayout
    batch: tuple[int, ...]
    logits: list[tuple[tuple[str, ...], Floats]]
    evidence: Mapping[str, tuple[npt.NDArray[Any], Labels | None]]
    exists: Mapping[str, Labels]

    @property
    def observed(self) -> frozenset[str]:
        """The predicates that are observed everywhere."""
        return frozenset(name for name, (_, where) in self.evidence.items() if where is None)

    def has_classes(self, name: str) -> bool:
        """Tell whether a predicate has classes."""
        return self.layout.channels[name].has_classes

    def flatten(self, parts: Mapping[tuple[str, ...], npt.NDArray[AnyNumber]]) -> npt.NDArray[AnyNumber]:
        """Return what predicates with logits have as one flat vector, with zeros for the others."""
        one = next(iter(parts.values()))
        if one.size == self.layout.size:
            return one.reshape(-1)
        flat = np.zeros(self.layout.size, dtype=one.dtype)
        for names, part in parts.items():
            first = self.layout.channels[names[0]]
            self.layout.block_of(flat, first.block)[..., first.first : first.first + part.shape[-1]] = part
        return flat

    def find_counted(self, names: tuple[str, ...]) -> Labels:
        """Return which labels of predicates are of entities that exist and are not observed."""
        first, last = self.layout.channels[names[0]], self.layout.channels[names[-1]]
        shape = self.layout.shapes[first.block]
        counted = np.ones((*shape[:-1], last.first + last.width - first.first), dtype=bool)
        for position, type_name in enumerate(self.layout.channels.blocks[first.block].types):
            if type_name in self.exists:
                counted &= align_mask(self.exists[type_name], position, len(shape))
        if self.space.relations is not None and self.space.distinct:
            clear_diagonal(counted)
        for name in names:
            if name in self.evidence:
                where = self.evidence[name][1]
                start = self.layout.channels[name].first - first.first
                part = counted[..., start : start + self.layout.channels[name].width]
                part &= False if where is None else ~where[..., None]
        return counted

    def clear_padding(self, flat: Labels, type_name: str) -> None:
        """Set the labels of entities that do not exist to 0; what all rows share is left, joins leave padding out."""
        for index, block in enumerate(self.layout.channels.blocks):
            for position, other in enumerate(block.types):
                if other == type_name and block.batched:
                    labels = self.layout.block_of(flat, index)
                    labels &= align_mask(self.exists[type_name], position, labels.ndim)

    def shape_labels(self, flat: Labels) -> Any:
        """Return flat labels as those of each predicate that has logits, or of all relations."""
        if self.space.relations is not None:
            labels = self.layout.block_of(flat, 0)
            return labels.reshape((*self.batch, *labels.shape[1:]))
        shaped: dict[str, npt.NDArray[Any]] = {}
        for (name,), _ in self.logits:
            found = self.layout.predicate_of(flat, name)
            values = found.argmax(-1) if self.has_classes(name) else found[..., 0]
            shaped[name] = values.reshape((*self.batch, *values.shape[1:])).copy()
        return shaped

    def count_classified(self) -> int:
        """Count the atoms of predicates with classes that have logits and entities that exist."""
        total = 0
        for names, given in self.logits:
            if self.has_classes(names[0]):
                exists = np.ones(given.shape[:-1], dtype=bool)
                for position, type_name in enumerate(self.space.predicates[names[0]].types):
                    if type_name in self.exists:
                        exists &= align_mask(self.exists[type_name], position, exists.ndim + 1)[..., 0]
                total += int(exists.sum())
        return total


def align_mask(exists: Labels, position: int, dims: int) -> Labels:
    """Return a mask ``[rows, N]`` so that N is the argument at a position of an array with so many dimensions."""
    return exists.reshape(len(exists), *(1,) * position, -1, *(1,) * (dims - position - 2))


def read_decoder_inputs(
    space: AtomSpace,
    plan: Callable[[tuple[str, ...], frozenset[str]], ClauseJoins],
    logits: Any,
    evidence: Mapping[str, Observation],
    mask: Any,
) -> DecoderInputs | None:
    """Check what a decoder is given; None where there are no pairs to decide.

    ``plan`` gives the joins for predicates, of which some are shared: they are observed without a batch.
    """
    arrays: dict[str, Floats] = {}
    stacked: Floats | None = None
    if isinstance(logits, Mapping):
        if space.relations is not None:
            raise DataError(f"logits are one array [*batch, n, n, {len(space.relations)}] with relations=[…]")
        arrays = {name: as_floats(given, f"logits of {name}") for name, given in logits.items()}
    else:
        stacked = as_floats(logits, "logits")
        if space.relations is None:
            raise DataError("logits are given by predicate, {predicate: logits}; one array needs relations=[…]")
        first = space.check_stacked(stacked)[0]
        if stacked.shape[-2] < (2 if space.distinct else 1):
            return None
        arrays = {first: stacked[..., 0]}  # all have one shape
    given_names = space.relations or tuple(arrays)
    if not given_names:
        raise DataError("there are no logits, so there is nothing to decode")
    space.check_names(given_names, evidence)
    shapes = ShapeReader(space, arrays)
    known: dict[str, tuple[npt.NDArray[Any], Labels | None]] = {}
    for name, observation in evidence.items():
        known[name] = read_evidence(shapes, name, observation)
        if known[name][1] is not None and name not in given_names:
            raise DataError(f"predicate {name} is observed in part, so it needs logits for the rest")
    for name in given_names:
        if name in space.closed and name in space.used and (name not in known or known[name][1] is not None):
            raise DataError(f"predicate {name} is closed: all its atoms are evidence, observed everywhere")
    if mask is not None and not isinstance(mask, Mapping):
        if space.relations is None:
            raise DataError("masks are given by type, {type: mask}; one array needs relations=[…]")
        mask = {ENTITY: mask}
    rows = prod(shapes.batch)
    exists = {type_name: read_mask(shapes, type_name, given, rows) for type_name, given in (mask or {}).items()}
    sizes = {type_name: size for type_name, (size, _) in shapes.sizes.items()}
    names = (*given_names, *(name for name in known if name not in given_names))
    shared = frozenset(
        name for name, (values, _) in known.items() if name not in given_names and len(values) == 1 != rows
    )
    joins = plan(names, shared)
    layout = AtomLayout(joins.channels, rows, sizes)
    flat: list[tuple[tuple[str, ...], Floats]] = []
    if stacked is not None:
        assert space.relations is not None
        flat.append((space.relations, stacked.reshape(rows, *stacked.shape[-3:])))
    else:
        for name, given in arrays.items():
            shape = given.shape[len(shapes.batch) :]
            classes = space.predicates[name].classes
            flat.append(((name,), given.reshape((rows, *shape, *([1] if classes is None else [])))))
    return DecoderInputs(space, joins, layout, shapes.batch, flat, known, exists)


def read_evidence(shapes: ShapeReader, name: str, observation: Observation) -> tuple[npt.NDArray[Any], Labels | None]:
    """Return observed values and where they are, with one dimension for the batch, of size 1 where all rows share."""
    declaration = shapes.space.predicates[name]
    values, where = observation if isinstance(observation, tuple) else (observation, None)
    values = np.asarray(detach_values(values))
    where = where if where is None else np.asarray(detach_values(where))
    if where is not None and (where.dtype != bool or where.shape != values.shape):
        raise DataError(f"evidence of {name} is (values, observed), both of one shape and observed boolean")
    lead = shapes.read_evidence(name, values)
    if declaration.classes is None:
        if values.dtype != bool:
            raise DataError(f"evidence of {name} must be boolean, got {values.dtype}")
    elif not np.issubdtype(values.dtype, np.integer):
        raise DataError(f"evidence of {name} must be class indices, got {values.dtype}")
    else:
        wrong = (values < 0) | (values >= len(declaration.classes))
        if np.any(wrong if where is None else wrong & where):
            raise DataError(f"evidence of {name} must be class indices below {len(declaration.classes)}")
    shape = values.shape[lead:]
    return values.reshape(-1, *shape), where if where is None else where.reshape(-1, *shape)


def read_mask(shapes: ShapeReader, type_name: str, given: Any, rows: int) -> Labels:
    """Return a mask as ``[rows, N]``."""
    mask = np.asarray(detach_values(given))
    shapes.read_mask(type_name, mask)
    if mask.dtype != bool:
        raise DataError(f"the mask of type {type_name} must be boolean, got {mask.dtype}")
    return np.broadcast_to(mask.reshape(-1, mask.shape[-1]), (rows, mask.shape[-1]))


def write_evidence(labels: Labels, values: npt.NDArray[Any], where: Labels | None, *, has_classes: bool) -> None:
    """Set what is observed in labels ``[rows, *arguments, channels]``."""
    known = values[..., None] == np.arange(labels.shape[-1]) if has_classes else values[..., None]
    labels[...] = known if where is None else known & where[..., None]


def detach_values(values: Any) -> Any:
    """Return tensors, also in a pair or by name, as arrays; numbers of a precision that arrays lack as float64."""
    if isinstance(values, Mapping):
        return {name: detach_values(part) for name, part in values.items()}
    if isinstance(values, tuple):
        return tuple(map(detach_values, values))
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        return (values.double() if values.is_floating_point() else values).numpy()
    return values


def as_floats(values: Any, name: str) -> Floats:
    """Return a NumPy array or a torch tensor, of any precision and device, as float64."""
    try:
        return np.asarray(detach_values(values), dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{name} must be an array of numbers, got {type(values).__name__}") from None


def read_thresholds(inputs: DecoderInputs, threshold: Any, threshold_logits: Any) -> dict[tuple[str, ...], Any]:
    """Return the log-odds of the thresholds of predicates without classes, which their logits are compared with."""
    names = [names for names, _ in inputs.logits if not inputs.has_classes(names[0])]
    if isinstance(threshold, Mapping):
        known = [name for group in names for name in group]
        for name in threshold:
            if name not in known:
                raise unknown_name("predicate without classes", name, known)
    if threshold_logits is None:
        return {group: _read_threshold(threshold, group, inputs) for group in names}
    if inputs.space.relations is None:
        raise DataError("threshold_logits are for relations=[…]; subtract what is adaptive from the logits")
    if not (np.ndim(threshold) == 0 and threshold == 0.5):
        raise DataError("give threshold or threshold_logits, not both")
    bounds = as_floats(threshold_logits, "threshold_logits")
    shape = (*inputs.batch, *inputs.layout.shapes[0][1:-1])
    if bounds.shape != shape:
        raise DataError(f"threshold_logits must have shape {list(shape)}, got {list(bounds.shape)}")
    return {names[0]: bounds.reshape(inputs.layout.shapes[0][:-1])[..., None]}


def _read_threshold(threshold: Any, names: tuple[str, ...], inputs: DecoderInputs) -> Floats:
    """Return the log-odds of a threshold: of one for all predicates, or one for each."""
    if isinstance(threshold, Mapping):
        bounds = np.array([as_floats(threshold.get(name, 0.5), "threshold") for name in names])
    else:
        bounds = as_floats(threshold, "threshold")
    if bounds.shape not in ((), (len(names),)) or (bounds.shape and inputs.space.relations is None and len(names) > 1):
        raise DataError(f"threshold must be one number or {len(names)}, got shape {list(bounds.shape)}")
    wrong = bounds[~((bounds > 0) & (bounds < 1))]
    if wrong.size:
        raise DataError(f"threshold must be a probability between 0 and 1, got {float(wrong.flat[0])}")
    return np.asarray(np.log(bounds) - np.log1p(-bounds))


def not_finite(inputs: DecoderInputs, names: tuple[str, ...], given: Floats, margins: Floats) -> DataError:
    """Return the error for margins that are no numbers, with the first atom that has one."""
    row, *args, channel = np.argwhere(~np.isfinite(margins))[0].tolist()
    where = f" in row {row}" if inputs.batch else ""
    if inputs.space.relations is not None:
        atom = f"relation {names[channel]!r} between entities {args[0]} and {args[1]}"
    else:
        atom = write_atom(names[0], [str(index) for index in args])
        classes = inputs.space.predicates[names[0]].classes
        atom += "" if classes is None else f" in {{{classes[channel]}}}"
    value = given[(row, *args, channel)]
    if not np.isfinite(value):
        return DataError(f"logits must be finite, got {value} for {atom}{where}")
    return DataError(f"threshold_logits must be finite, got {value - margins[(row, *args, channel)]} for {atom}{where}")


def clear_diagonal(labels: Labels) -> None:
    """Set labels ``[rows, n, n, channels]`` of entities with themselves to False."""
    diagonal = np.arange(labels.shape[1])
    labels[:, diagonal, diagonal] = False
