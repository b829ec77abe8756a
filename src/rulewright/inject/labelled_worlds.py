"""What a network says of worlds beside what is true there: the selection data of a calibration, or of a decoder.

`read_labelled_worlds` takes predictions as an injector takes them (`rulewright.inject.atom_space`), of one call or of a
sequence of calls, as documents of different sizes are, and gold labels of the same structure: truth values, or class
indices where a predicate has classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from rulewright.errors import DataError, RulewrightError, unknown_name
from rulewright.inject.atom_space import ENTITY, AtomSpace, ShapeReader
from rulewright.inject.atoms.decoder_inputs import (
    align_mask,
    as_floats,
    clear_diagonal,
    detach_values,
    read_evidence,
    read_mask,
)
from rulewright.inject.atoms.layout import Floats, Labels
from rulewright.logic import PredicateDeclaration, RuleSet


@dataclass(frozen=True)
class LabelledWorld:
    """One call's predictions by predicate beside gold labels; the batch is one dimension of rows, also without one.

    ``logits[p]`` is ``[rows, *arguments]``, with K classes ``[rows, *arguments, K]``; ``gold[p]`` is
    ``[rows, *arguments]``, truth values or class indices. ``counted[p]``, of the same shape, says which atoms count:
    those of entities that exist, not observed, and with ``relations`` of different entities; what gold says of the
    others has no meaning. All are views where what was given allows it.

    ``given``, ``evidence`` and ``mask`` are those of the call: ``decoder(world.given, world.evidence, world.mask)``.
    """

    space: AtomSpace
    batch: tuple[int, ...]
    logits: Mapping[str, Floats]
    gold: Mapping[str, npt.NDArray[Any]]
    counted: Mapping[str, Labels]
    given: Any
    evidence: Any = None
    mask: Any = None

    @property
    def rows(self) -> int:
        """How many rows the batch has, 1 without a batch."""
        return prod(self.batch)

    def has_classes(self, name: str) -> bool:
        """Tell whether a predicate has classes."""
        return self.space.predicates[name].classes is not None


def read_labelled_worlds(
    predictions: Any,
    gold: Any,
    *,
    relations: Sequence[str] | None = None,
    space: AtomSpace | None = None,
    evidence: Any = None,
    mask: Any = None,
) -> list[LabelledWorld]:
    """Check predictions and gold labels, of one call or a list of calls, and return a world for each call.

    ``evidence`` and ``mask`` are those of the call, or one for each call of a list; a single one is that of all calls.
    ``space`` has the declarations of the predicates, with their types and classes; without it, and without
    ``relations``, all dimensions of gold labels are arguments (there is no batch), types are not known (there are no
    masks), and a predicate has classes where its logits have one dimension more than its gold labels. Gold labels are
    booleans, or numbers that are 0 and 1.

    >>> logits, gold = np.array([2.0, -1.0, 0.5]), np.array([True, False, True])
    >>> (world,) = read_labelled_worlds({"dog": logits}, {"dog": gold}, evidence={"dog": (gold, logits < 0)})
    >>> world.logits["dog"].tolist(), world.counted["dog"].tolist()
    ([[2.0, -1.0, 0.5]], [[True, False, True]])
    """
    is_list = _is_list(predictions)
    given = list(predictions) if is_list else [predictions]
    labels = list(gold) if is_list and _is_list(gold) else [gold]
    if is_list != _is_list(gold) or len(given) != len(labels):
        has = f"a list of {len(labels):,}" if _is_list(gold) else "one"
        wanted = f"a list of {len(given):,}" if is_list else "one"
        raise DataError(f"gold has the structure of the predictions: {wanted}, got {has}")
    if not given:
        raise DataError("there are no predictions")
    parts = {name: _share(name, values, len(given)) for name, values in (("evidence", evidence), ("mask", mask))}
    if space is not None and relations is not None and space.relations != tuple(relations):
        raise DataError("relations are those of the space that is given; leave them out")
    if space is None and relations is not None:
        space = AtomSpace(RuleSet(), relations=relations)
    worlds: list[LabelledWorld] = []
    for index, (call, truth) in enumerate(zip(given, labels, strict=True)):
        try:
            if space is None:
                space = _infer_space(call, truth, mask)
            worlds.append(_read_world(space, call, truth, parts["evidence"][index], parts["mask"][index]))
            if worlds[index].logits.keys() != worlds[0].logits.keys():
                names = (", ".join(sorted(worlds[one].logits)) for one in (index, 0))
                raise DataError(f"it has predictions of {next(names)}, but world 0 of {next(names)}")
        except RulewrightError as error:
            if not is_list:
                raise
            raise DataError(f"world {index}: {error}") from None
    return worlds


def split_arguments(world: LabelledWorld, parts: int, seed: int) -> list[LabelledWorld]:
    """Return a world several times, each with the atoms of other first arguments counted: parts of one large graph.

    >>> (world,) = read_labelled_worlds({"r": np.zeros((4, 4))}, {"r": np.eye(4, dtype=bool)})
    >>> [part.counted["r"].sum().item() for part in split_arguments(world, 2, 0)]
    [8, 8]
    """
    chosen: list[dict[str, Labels]] = [{} for _ in range(parts)]
    for name, counted in world.counted.items():
        size = counted.shape[1] if counted.ndim > 1 else 1
        part_of = np.random.default_rng([seed, size]).permutation(size) % parts
        for part, own in enumerate(chosen):
            own[name] = counted & (part_of == part).reshape(1, -1, *(1,) * (counted.ndim - 2))[: counted.shape[0]]
    return [replace(world, counted=own) for own in chosen]


def _is_list(values: Any) -> bool:
    return isinstance(values, Sequence) and not isinstance(values, str)


def _share(name: str, values: Any, count: int) -> list[Any]:
    """Return evidence or masks, one for each call; a single one is that of all calls."""
    if not _is_list(values):
        return [values] * count
    if len(values) != count:
        raise DataError(f"{name} must be one, or a list of {count:,}, one for each world, got {len(values):,}")
    return list(values)


def _infer_space(logits: Any, gold: Any, mask: Any) -> AtomSpace:
    """Return a space in which every argument has a type of its own, since nothing says which are the same."""
    if not isinstance(logits, Mapping):
        raise DataError("predictions are given by predicate, {predicate: logits}; one array needs relations=[…]")
    if mask is not None:
        raise DataError("masks need the types of arguments; give the declarations: predicate likes(person, person).")
    declarations = []
    for name in _check_names(logits, gold):
        shape, wanted = np.shape(detach_values(logits[name])), np.shape(detach_values(gold[name]))
        has_classes = len(shape) == len(wanted) + 1
        types = tuple(f"argument {position + 1} of {name}" for position in range(len(wanted)))
        if has_classes and shape[-1] < 2:
            raise DataError(f"{name} has logits of one class, in the shape {list(shape)}; gold has {list(wanted)}")
        classes = tuple(map(str, range(shape[-1]))) if has_classes else None
        declarations.append(PredicateDeclaration(name, types, classes))
    return AtomSpace(RuleSet(predicates=declarations))


def _check_names(logits: Mapping[str, Any], gold: Any) -> Iterator[str]:
    """Yield the predicates of logits; each has gold labels, and nothing else has."""
    if not isinstance(gold, Mapping):
        raise DataError("gold is given by predicate as the predictions are, {predicate: labels}")
    if not logits:
        raise DataError("there are no predictions")
    for name in gold:
        if name not in logits:
            raise unknown_name("predicate", name, logits)
    for name in logits:
        if name not in gold:
            raise DataError(f"predicate {name} has predictions and no gold labels")
        yield name


def _read_world(space: AtomSpace, logits: Any, gold: Any, evidence: Any, mask: Any) -> LabelledWorld:
    arrays: dict[str, Floats]
    truths: dict[str, npt.NDArray[Any]]
    if isinstance(logits, Mapping):
        arrays = {name: as_floats(part, f"logits of {name}") for name, part in logits.items()}
        truths = {name: np.asarray(detach_values(gold[name])) for name in _check_names(logits, gold)}
    else:
        if space.relations is None:
            raise DataError("predictions are given by predicate, {predicate: logits}; one array needs relations=[…]")
        stacked, labels = as_floats(logits, "logits"), np.asarray(detach_values(gold))
        space.check_stacked(stacked)
        if labels.shape != stacked.shape:
            raise DataError(f"gold labels have the shape {list(labels.shape)}, and logits {list(stacked.shape)}")
        arrays, truths = space.split_relations(stacked), space.split_relations(labels)
    if evidence is not None and not isinstance(evidence, Mapping):
        raise DataError("evidence is given by predicate, {predicate: values}")
    masks = mask if isinstance(mask, Mapping) else {} if mask is None else {ENTITY: mask}
    if masks is not mask and masks and space.relations is None:
        raise DataError("masks are given by type, {type: mask}; one array needs relations=[…]")
    if space.relations is not None and not isinstance(logits, Mapping) and not arrays[space.relations[0]].size:
        batch = tuple(stacked.shape[:-3])  # no entities, so nothing that evidence or a mask could say
        rows = {name: part.reshape(prod(batch), *part.shape[-2:]) for name, part in arrays.items()}
        empty = {name: np.zeros(part.shape, dtype=bool) for name, part in rows.items()}
        return LabelledWorld(space, batch, rows, empty, empty, logits, evidence, mask)
    shapes = ShapeReader(space, arrays)
    for name, part in arrays.items():
        wanted = part.shape if space.predicates[name].classes is None else part.shape[:-1]
        if truths[name].shape != wanted:
            raise DataError(
                f"gold labels of {space.predicates[name]} have the shape {list(truths[name].shape)}, expected "
                f"{list(wanted)} beside logits {list(part.shape)}"
            )
    count = prod(shapes.batch)
    lead = len(shapes.batch)
    arrays = {name: part.reshape(count, *part.shape[lead:]) for name, part in arrays.items()}
    truths = {name: part.reshape(count, *part.shape[lead:]) for name, part in truths.items()}
    exists = {type_name: read_mask(shapes, type_name, part, count) for type_name, part in masks.items()}
    counted: dict[str, Labels] = {}
    shared: dict[tuple[str, ...], Labels] = {}  # by types: atoms without evidence have one array
    for name, part in truths.items():
        declaration = space.predicates[name]
        if declaration.types not in shared:
            shared[declaration.types] = _find_existing(space, declaration, part.shape, exists)
        counted[name] = shared[declaration.types]
    for name, observation in (evidence or {}).items():
        where = read_evidence(shapes, name, observation)[1]
        if name in counted:
            counted[name] = np.zeros_like(counted[name]) if where is None else counted[name] & ~where
    for name, part in arrays.items():
        _check_finite(name, part, counted[name])
        truths[name] = _read_gold(space.predicates[name], truths[name], counted[name])
    return LabelledWorld(space, shapes.batch, arrays, truths, counted, logits, evidence, mask)


def _find_existing(
    space: AtomSpace, declaration: PredicateDeclaration, shape: tuple[int, ...], exists: Mapping[str, Labels]
) -> Labels:
    """Return which atoms are of entities that exist, and with ``relations`` of different ones."""
    counted = np.ones((*shape, 1), dtype=bool)
    for position, type_name in enumerate(declaration.types):
        if type_name in exists:
            counted &= align_mask(exists[type_name], position, counted.ndim)
    if space.relations is not None and space.distinct and declaration.arity == 2:
        clear_diagonal(counted)
    return counted[..., 0]


def _check_finite(name: str, logits: Floats, counted: Labels) -> None:
    if not np.isfinite(logits.sum()):  # one pass; where it is, all are
        wrong = ~np.isfinite(logits) & (counted if logits.ndim == counted.ndim else counted[..., None])
        if wrong.any():
            position = np.argwhere(wrong)[0].tolist()
            raise DataError(f"logits of {name} must be finite, got {logits[tuple(position)]} at {position}")


def _read_gold(declaration: PredicateDeclaration, gold: npt.NDArray[Any], counted: Labels) -> npt.NDArray[Any]:
    """Return truth values as booleans, or class indices."""
    if declaration.classes is not None:
        if not np.issubdtype(gold.dtype, np.integer):
            raise DataError(f"gold labels of {declaration.name} must be class indices, got {gold.dtype}")
        wrong = ((gold < 0) | (gold >= len(declaration.classes))) & counted
        if wrong.any():
            raise DataError(
                f"gold labels of {declaration.name} must be class indices below {len(declaration.classes)}, "
                f"got {gold[wrong][0]}"
            )
        return gold
    if gold.dtype == bool:
        return gold
    if not np.issubdtype(gold.dtype, np.number):
        raise DataError(f"gold labels of {declaration.name} must be boolean, got {gold.dtype}")
    truth = np.asarray(gold == 1)
    wrong = ~truth & (gold != 0) & counted
    if wrong.any():
        raise DataError(f"gold labels of {declaration.name} must be true or false, 1 or 0, got {gold[wrong][0]}")
    return truth
