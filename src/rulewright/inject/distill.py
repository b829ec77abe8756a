"""Distillation: a network learns to say what rules make of its predictions, on samples without labels too.

The teacher is what an injector gives: log-odds of a `LogicLayer`, labels of a `RuleDecoder`. No gradient runs through
it. Unlike a loss that counts broken rules, it says of each atom what it should be, so silence is no way out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot, softplus

from rulewright.checks import Flag, OneOf, ParameterRule, Real, check_parameters
from rulewright.errors import DataError, unknown_name
from rulewright.inject.inputs import Logits, Mask

Values: TypeAlias = Tensor | npt.NDArray[Any]
Teacher: TypeAlias = Values | Mapping[str, Values]
"""Log-odds, or labels: booleans or class indices; stacked or by predicate, as the logits are."""

_STACKED = ""
_RULES: Mapping[str, ParameterRule] = {
    "form": OneOf("cross_entropy", "squares"),
    "unchanged": Real(0),
    "check_finite": Flag(),
}


def distillation_loss(
    logits: Logits,
    teacher: Teacher,
    mask: Mask | None = None,
    *,
    form: Literal["cross_entropy", "squares"] = "cross_entropy",
    unchanged: float = 1.0,
    before: Logits | None = None,
    classes: Collection[str] = (),
    check_finite: bool = True,
) -> Tensor:
    r"""How far a network's logits x are from what a teacher says, ``Σ_a w_a · D_a / Σ_a w_a`` over the atoms.

    - ``"cross_entropy"``: ``D = −q · log σ(x) − (1 − q) · log σ(−x)``, where q is σ of the teacher's log-odds, or its
      label, 1 or 0; with classes ``D = −Σ_k q_k · log softmax(x)_k``;
    - ``"squares"``: ``D = (x − t)²`` for log-odds t, with classes the mean over them. A label has no log-odds.

    The weight w is 1 where the teacher's label (log-odds above 0, or the likeliest class) is not the network's, and
    ``unchanged`` elsewhere: with 0 only what the rules changed is learned. The teacher has no gradient.

    Args:
        logits: stacked ``[*B, n, n, R]``, where the diagonal does not count, or by predicate.
        teacher: log-odds of the same shape; or labels, booleans of that shape or class indices.
        mask: of stacked logits ``[*B, n]`` or ``[n]``, which entities exist; by predicate which atoms count, in a shape
            that broadcasts against the atoms, without classes. What does not count may hold anything.
        form: see above.
        unchanged: the weight of atoms that the teacher labels as the network does.
        before: the logits that the teacher was made from, if it was made once: what it changed is then told by these.
            None are ``logits``.
        classes: the predicates whose last dimension are classes.
        check_finite: refuse logits that are infinite where they count; turn it off to save a pass over them.

    Of several predicates it is the mean, of those that have an atom that counts; 0 where none has. The value is of type
    float32, or float64 for such logits.

    >>> logits = {"dog": torch.tensor([2.0, 2.0]), "animal": torch.tensor([-1.0, 3.0])}
    >>> teacher = {"dog": torch.tensor([True, True]), "animal": torch.tensor([True, True])}
    >>> round(distillation_loss(logits, teacher).item(), 3)
    0.404
    >>> round(distillation_loss(logits, teacher, unchanged=0).item(), 3)    # log(1 + e) of animal
    1.313
    """
    check_parameters({"form": form, "unchanged": unchanged, "check_finite": check_finite}, _RULES)
    by_name, taught = _name_parts(logits), _name_parts(teacher)
    earlier = by_name if before is None else _name_parts(before)
    masks = _read_masks(logits, mask)
    if by_name.keys() != taught.keys() or by_name.keys() != earlier.keys():
        raise DataError(
            f"logits and teacher must be of the same predicates, got {sorted(by_name)} and "
            f"{sorted(taught if by_name.keys() != taught.keys() else earlier)}"
        )
    for name in (*classes, *masks):
        if name not in by_name:
            raise unknown_name("predicate", name, by_name)
    losses, counts = [], []
    for name, given in by_name.items():
        loss, counted = _compare(
            name, given, taught[name], earlier[name], masks.get(name), form, unchanged, name in classes, check_finite
        )
        losses.append(loss)
        counts.append(counted)
    if not losses:
        raise DataError("there are no logits")
    dtype = torch.float64 if any(loss.dtype == torch.float64 for loss in losses) else torch.float32
    total = torch.stack([loss.to(dtype) for loss in losses]).sum()
    return total / torch.stack(counts).sum().clamp(min=1)


def _name_parts(given: Any) -> Mapping[str, Any]:
    return given if isinstance(given, Mapping) else {_STACKED: given}


def _read_masks(logits: Logits, mask: Mask | None) -> dict[str, Tensor]:
    """Return which atoms count, by predicate, each in a shape that broadcasts against the atoms."""
    if isinstance(logits, Mapping):
        if isinstance(mask, Tensor):
            raise DataError("masks are given by predicate, {predicate: which atoms count}")
        masks = dict(mask or {})
    else:
        if logits.ndim < 3 or logits.shape[-3] != logits.shape[-2]:
            raise DataError(f"logits must have shape [B, n, n, R], got {list(logits.shape)}; give others by predicate")
        if isinstance(mask, Mapping):
            raise DataError("the mask of stacked logits is a tensor [B, n]")
        size = logits.shape[-2]
        exists = torch.ones(size, dtype=torch.bool) if mask is None else mask
        if exists.shape not in (logits.shape[:-2], torch.Size([size])):
            raise DataError(f"mask must have shape {list(logits.shape[:-2])}, got {list(exists.shape)}")
        different = ~torch.eye(size, dtype=torch.bool, device=exists.device)
        masks = {_STACKED: (exists.unsqueeze(-1) & exists.unsqueeze(-2) & different).unsqueeze(-1)}
    for given in masks.values():
        if given.dtype != torch.bool:
            raise DataError(f"the mask must be boolean, got {given.dtype}")
    return masks


def _compare(
    name: str,
    logits: Tensor,
    teacher: Values,
    before: Tensor,
    mask: Tensor | None,
    form: str,
    unchanged: float,
    has_classes: bool,
    check_finite: bool,
) -> tuple[Tensor, Tensor]:
    """Return the mean distance of one predicate's atoms that count, and whether there are any."""
    of = f" of {name}" if name else ""
    taught = (torch.from_numpy(teacher) if isinstance(teacher, np.ndarray) else teacher.detach()).to(logits.device)
    is_label = not taught.is_floating_point()
    has_classes |= is_label and taught.dtype != torch.bool
    atoms = logits.shape[:-1] if has_classes else logits.shape
    shape = atoms if is_label else logits.shape
    if taught.shape != shape or before.shape != logits.shape:
        wrong = taught.shape if taught.shape != shape else before.shape
        raise DataError(f"what the teacher says{of} must have shape {list(shape)}, got {list(wrong)}")
    if is_label and form == "squares":
        raise DataError(f"labels have no log-odds; form='squares' needs those of the teacher{of}")
    precise = torch.float64 if logits.dtype == torch.float64 else torch.float32
    counts = torch.ones(atoms, dtype=torch.bool, device=logits.device)
    if mask is not None:
        counts = counts & mask.to(logits.device)
    every = counts.unsqueeze(-1) if has_classes else counts
    x, earlier = (given.to(precise).masked_fill(~every, 0.0) for given in (logits, before.detach()))
    if not is_label:
        taught = taught.to(precise).masked_fill(~every, 0.0)
    if check_finite and not torch.compiler.is_compiling():
        for given in (x, taught):
            if not torch.isfinite(given).all():
                raise DataError(f"logits{of} must be finite, got {given[~torch.isfinite(given)][0].item()}")
    if has_classes:
        labels = taught if is_label else taught.argmax(-1)
        changed = labels != earlier.argmax(-1)
        if form == "squares":
            distance = (x - taught).square().mean(-1)
        else:
            labels = labels.masked_fill(~counts, 0).long()
            q = one_hot(labels, x.shape[-1]).to(precise) if is_label else taught.softmax(-1)
            distance = cross_entropy(x.flatten(0, -2), q.flatten(0, -2), reduction="none").view(atoms)
    else:
        changed = (taught if is_label else taught > 0) != (earlier > 0)
        distance = (x - taught).square() if form == "squares" else softplus(x) - _probability(taught, precise) * x
    weights = torch.full_like(distance, unchanged).masked_fill(changed, 1.0) * counts
    total = weights.sum()
    return (distance * weights).sum() / torch.where(total > 0, total, 1.0), total > 0


def _probability(taught: Tensor, dtype: torch.dtype) -> Tensor:
    return taught.to(dtype) if taught.dtype == torch.bool else torch.sigmoid(taught)
