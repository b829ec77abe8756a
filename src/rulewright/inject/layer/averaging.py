"""Mean messages: an atom gets the mean of the messages of its groundings in place of their sum.

With ``messages="mean"`` every iteration sets ``logit_i ← φ_i + M_i · λ_i / (1 − e^{−λ_i})``, where

- M_i is the mean message: ``Σ_g π(g) w_f m_{g→i} / Σ_g π(g)`` over the ground clauses g that matter and have atom i:
  those that are no tautology, that evidence does not satisfy, and that have an atom that is not observed;
- π(g) is how likely g is drawn: each formula equally often, and of a formula the ground clauses that matter alike or,
  with ``observed_odds``, in proportion to the product of ``u_p = observed_odds · (number of atoms of p that are not
  observed) / (number that are)`` over its observed atoms: drawn by themselves, atoms of a predicate p would be observed
  ones with these odds. A predicate that is observed everywhere, or nowhere, has u_p = 1;
- ``λ_i = draws · Σ_{g∋i} π(g)`` is how many of ``draws`` drawn ground clauses have the atom, in expectation: one that
  is seen at all is seen ``λ / (1 − e^{−λ})`` times. Without draws that factor is 1; with many the sum comes back, each
  formula's messages divided by the number of its groundings.

This is what batches of sampled ground clauses give an atom in expectation, without their noise. A message counts with
its own weight, that of a hard formula with what annealing makes of it; the mean is taken over all formulas alike.

All sums are the contractions of the plan, with other factors: in the numerator ``u · F`` for the probability F that a
literal is false, u being u_p for an atom that is observed and 1 for another; in the denominator, which stays the
same in all iterations, 1 for an atom that is not observed; and in the sum over ground clauses that are observed
altogether 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Literal, TypeAlias

import torch
from torch import Tensor

from rulewright.inject.inputs import GroundInputs, Observed
from rulewright.inject.layer.candidates import OPEN, SparseInputs, Weighing
from rulewright.inject.layer.grounding import Grounding
from rulewright.inject.layer.plan import Plan
from rulewright.inject.layer.sparse import ROUNDED, SparsePlan

if TYPE_CHECKING:
    from rulewright.inject.layer.layer import LogicLayer

MessageForm: TypeAlias = Literal["sum", "mean"]
"""What an atom gets of the messages of its groundings."""


@dataclass(frozen=True)
class Averages:
    """What makes means of a call's sums: how likely ground clauses are, and by what each atom's messages are scaled.

    ``odds`` has u_p for the predicates where it may not be 1, with as many dimensions as their atoms have; ``shares``
    for each formula π of a ground clause without observed atoms, one number or one for each row of a batch. ``scales``
    has for each predicate what the sums ``Σ_g π(g) w_f m`` of its atoms are multiplied with.
    """

    inputs: GroundInputs
    odds: Mapping[str, Tensor]
    shares: tuple[Tensor, ...]
    scales: Mapping[str, Tensor]

    def weigh(self, name: str, false: Tensor) -> Tensor:
        """Return the factors of numerators, from the probabilities that literals of a predicate are false."""
        where = self.inputs.observed[name].where if name in self.odds else None
        return false if where is None else torch.where(where, false * self.odds[name], false)

    def share_out(self, messages: Tensor, formula_index: int, *, has_batch: bool) -> Tensor:
        """Return a formula's sums of messages, each message as likely as its ground clause."""
        return messages * _over_atoms(self.shares[formula_index], messages, has_batch=has_batch)

    def scale(self, name: str, messages: Tensor, *, has_classes: bool) -> Tensor:
        """Return the sums of messages to a predicate's atoms as what is added to their log-odds."""
        scale = self.scales[name]
        return messages * (scale.unsqueeze(-1) if has_classes else scale)


@dataclass(frozen=True)
class _Counted:
    """Factors of sums over ground clauses: of observed atoms as in numerators, of others the same number, 1 or 0."""

    inputs: GroundInputs
    odds: Mapping[str, Tensor]
    unobserved: int

    def weigh(self, name: str, false: Tensor) -> Tensor:
        observed = self.inputs.observed.get(name)
        if observed is None:
            return torch.full_like(false, self.unobserved)
        if observed.where is None:
            return false
        weighed = false * self.odds[name] if name in self.odds else false
        return torch.where(observed.where, weighed, self.unobserved)


def find_averages(layer: LogicLayer, inputs: GroundInputs, plan: Plan | SparsePlan) -> Averages | None:
    """Return what makes means of the sums of a call; None where messages are added up.

    Counts are made with 64 bits. Where atoms coincide they are differences, and what is less than `ROUNDED` of what
    cancels counts as no ground clause at all.
    """
    if layer.messages == "sum":
        return None
    if isinstance(inputs, SparseInputs):
        return _find_sparse_averages(layer, inputs)
    assert isinstance(plan, Plan)
    grounding = layer.grounding
    with torch.no_grad():
        wide = _widen(inputs)
        known = {name: _observed_only(wide, grounding, name) for name in inputs.logits if name in grounding.used}
        odds = {} if layer.observed_odds is None else _find_odds(wide, grounding, layer.observed_odds)
        totals = _count_all(layer, wide, known, odds)
        shares = _share_formulas(totals)
        counted = _Counted(wide, odds, 1)
        values = plan.run(wide, known, plan.start(wide, weigh=counted.weigh), weigh=counted.weigh)
        scales = {
            name: _scale_of(_count_atoms(name, wide, plan, values, shares), layer.draws).to(inputs.dtype)
            for name in known
        }
    narrow = {name: number.to(inputs.dtype) for name, number in odds.items()}
    return Averages(inputs, narrow, tuple(share.to(inputs.dtype) for share in shares), scales)


def weigh_candidates(layer: LogicLayer, inputs: SparseInputs) -> Weighing | None:
    """Return how ground clauses over candidates weigh in the sums of a call; None where messages are added up."""
    if layer.messages == "sum":
        return None
    odds = {}
    for name, atoms in inputs.candidates.items():
        if layer.observed_odds is None or atoms.is_observed:
            continue
        n_observed = int((atoms.known != OPEN).sum())
        n_others = prod(inputs.sizes[type_name] for type_name in layer.grounding.predicates[name].types) - n_observed
        if n_observed and n_others:
            odds[name] = layer.observed_odds * n_others / n_observed
    return Weighing(odds)


def _find_sparse_averages(layer: LogicLayer, inputs: SparseInputs) -> Averages:
    """Return what makes means of the sums over candidates, the same numbers as with tensors over all atoms."""
    weighing = weigh_candidates(layer, inputs)
    assert weighing is not None
    wide = replace(inputs, dtype=torch.float64)
    with torch.no_grad():
        counts = [SignedSum(wide) for _ in layer.grounding.formulas]
        for unobserved, sign in ((1.0, 1), (0.0, -1)):  # all but those that are observed altogether
            counted = replace(weighing, unobserved=unobserved)
            plan = layer.sparse_planner.plan(inputs, "violations", layer.memory_limit, counted)
            values = plan.run(wide, {}, plan.start(wide))
            for count, nodes in zip(counts, plan.violations, strict=True):
                for coefficient, node in nodes:
                    count.add(values[node].sum(), sign * coefficient)
        shares = _share_formulas([count.total() for count in counts])
        counted = replace(weighing, unobserved=1.0)
        plan = layer.sparse_planner.plan(inputs, "messages", layer.memory_limit, counted)
        values = plan.run(wide, {}, plan.start(wide))
        scales = {}
        for name, logits in inputs.logits.items():
            likely = torch.zeros(len(logits), dtype=wide.dtype, device=wide.device)
            for index, total in plan.count_messages(name, values, wide).items():
                likely = likely + total * shares[index]
            scales[name] = _scale_of(likely, layer.draws).to(inputs.dtype)
    return Averages(inputs, {}, tuple(shares), scales)


def _share_formulas(totals: Sequence[Tensor]) -> list[Tensor]:
    """Return π of a ground clause without observed atoms for each formula, from what all of its clauses weigh."""
    n_formulas = torch.stack([total > 0 for total in totals]).sum(0).clamp(min=1) if totals else 1
    return [torch.where(total > 0, 1 / torch.where(total > 0, total, 1), 0) / n_formulas for total in totals]


def _find_odds(wide: GroundInputs, grounding: Grounding, observed_odds: float) -> dict[str, Tensor]:
    """Return how many times likelier a ground clause is for each of its observed atoms, of each predicate."""
    odds = {}
    for name, observed in wide.observed.items():
        if observed.where is None:
            continue
        declaration = grounding.predicates[name]
        atoms = tuple(range(-declaration.arity, 0))
        exists = wide.mask_atoms(declaration)
        exists = torch.ones_like(observed.where, dtype=wide.dtype) if exists is None else exists
        n_observed, n_others = (
            (exists * where).sum(atoms, keepdim=True) for where in (observed.where, ~observed.where)
        )
        has_both = (n_observed > 0) & (n_others > 0)
        odds[name] = torch.where(has_both, observed_odds * n_others / n_observed.clamp(min=1), 1)
    return odds


def _over_atoms(numbers: Tensor, tensor: Tensor, *, has_batch: bool) -> Tensor:
    """Return numbers, one or one for each row of a batch, so that they go with a tensor over atoms."""
    return numbers if numbers.ndim == 0 else numbers.view(-1, *[1] * (tensor.ndim - has_batch))


def _scale_of(likely: Tensor, draws: int) -> Tensor:
    """Return ``λ / (1 − e^{−λ}) / p`` with λ = draws · p, for how likely (p) ground clauses with an atom are."""
    safe = torch.where(likely > 0, likely, 1)
    scale = draws / -torch.expm1(-draws * safe) if draws else 1 / safe
    return torch.where(likely > 0, scale, 0)


def _count_all(
    layer: LogicLayer, wide: GroundInputs, known: Mapping[str, Tensor], odds: Mapping[str, Tensor]
) -> list[Tensor]:
    """Return for each formula how much its ground clauses that matter weigh."""
    plan = layer.planner.plan(wide.shape, "violations")
    counts = [SignedSum(wide) for _ in plan.violations]
    for unobserved, sign in ((1, 1), (0, -1)):  # all but those that are observed altogether
        counted = _Counted(wide, odds, unobserved)
        values = plan.run(wide, known, plan.start(wide, weigh=counted.weigh), weigh=counted.weigh)
        for count, nodes in zip(counts, plan.violations, strict=True):
            for coefficient, node in nodes:
                count.add(values[node], sign * coefficient)
    return [count.total() for count in counts]


def _count_atoms(
    name: str, wide: GroundInputs, plan: Plan, values: Mapping[int, Tensor], shares: list[Tensor]
) -> Tensor:
    """Return ``Σ_{g∋i} π(g)`` of all atoms of a predicate, of those that are observed too."""
    declaration = plan.grounding.predicates[name]
    sizes = [wide.sizes[type_name] for type_name in declaration.types]
    counts: dict[int, SignedSum] = {}  # by formula
    for (predicate, _, form), messages in plan.messages.items():
        for message in messages if predicate == name else ():
            value, where = form.spread(values[message.node], sizes, wide.dtype, wide.device)
            value = value if where is None else value * where
            counts.setdefault(message.formula_index, SignedSum(wide)).add(value, message.count)
    likely = torch.zeros(sizes, dtype=wide.dtype, device=wide.device)
    for index, count in counts.items():
        likely = likely + count.total() * _over_atoms(shares[index], likely, has_batch=likely.ndim > len(sizes))
    return likely


class SignedSum:
    """A sum that cannot be negative, of parts that may cancel."""

    def __init__(self, wide: GroundInputs) -> None:
        self._sum = self._size = torch.zeros((), dtype=wide.dtype, device=wide.device)

    def add(self, part: Tensor, coefficient: float) -> None:
        """Add ``coefficient`` times a part."""
        self._sum = self._sum + coefficient * part
        self._size = self._size + abs(coefficient) * part.abs()

    def total(self) -> Tensor:
        """Return the sum, without what rounding left where all cancels."""
        return torch.where(self._sum > ROUNDED * self._size, self._sum, 0)


def _observed_only(wide: GroundInputs, grounding: Grounding, name: str) -> Tensor:
    """Return a predicate's marginals where they are observed and 0 elsewhere, in the shape of its logits."""
    known = torch.zeros_like(wide.logits[name])
    observed = wide.observed.get(name)
    if observed is None or observed.where is None:
        return known
    where = observed.where if grounding.predicates[name].classes is None else observed.where[..., None]
    return torch.where(where, observed.probability, known)


def _widen(inputs: GroundInputs) -> GroundInputs:
    """Return inputs of 64 bits, whose logits say nothing but their shape."""
    dtype = torch.float64
    return replace(
        inputs,
        logits={name: torch.zeros_like(logits, dtype=dtype) for name, logits in inputs.logits.items()},
        observed={name: Observed(known.probability.to(dtype), known.where) for name, known in inputs.observed.items()},
        masks={type_name: mask.to(dtype) for type_name, mask in inputs.masks.items()},
        dtype=dtype,
    )
