"""How log-odds are moved from iteration to iteration, so that they settle: damping, hard formulas, and what is kept.

Messages of hard formulas are large, and all atoms are updated at once: at their full weight from the start they make
atoms swing. Unless a damping is given, a rule set with hard formulas is therefore *annealed*: the weight of hard
formulas grows geometrically from `FIRST_HARD_WEIGHT` to its full value in the last iteration, and an atom takes its new
log-odds, but only the share `BACKWARD` of them where they would turn it back from where it was going.
Of the last two iterates a row keeps the one that breaks fewer groundings of hard formulas; the given log-odds stand
beside them where there are no other formulas, so that no row comes out worse than it went in.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rulewright.errors import RulewrightWarning
from rulewright.inject.inputs import GroundInputs, Observed
from rulewright.inject.layer.averaging import find_averages
from rulewright.inject.layer.plan import Plan
from rulewright.inject.layer.sparse import SparsePlan

if TYPE_CHECKING:
    from rulewright.inject.layer.layer import LogicLayer

FIRST_HARD_WEIGHT = 0.3
"""The weight of hard formulas in the first of many iterations."""

BACKWARD = 0.3
"""The share of the new log-odds that an atom takes where it would turn back."""

SETTLED = 0.01
"""The change of a marginal below which iterations count as settled where no tolerance is given."""

UNSETTLED = 0.1
"""The change of a marginal from which a layer warns."""


@dataclass(frozen=True, slots=True)
class Convergence:
    """How the iterations of a call went.

    ``changes`` are the largest changes of a marginal: of each iteration where the layer has a tolerance, else of the
    last two. ``broken`` counts the groundings of hard formulas that the labels break, most probable ones, as they were
    given and as they are returned.
    """

    changes: tuple[float, ...]
    converged: bool
    iterations: int
    broken: tuple[int, int] | None = None

    def __str__(self) -> str:
        state = "settled" if self.converged else "not settled"
        last = f", last change {self.changes[-1]:.2g}" if self.changes else ""
        broken = "" if self.broken is None else f"; hard formulas broken {self.broken[0]:,} → {self.broken[1]:,} times"
        return f"{state} after {self.iterations} iterations{last}{broken}"


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration: the marginals that its messages came from, what hard formulas weighed, and what was taken over.

    ``shares`` are those of the iteration's messages in the log-odds that were returned, of each predicate: one number,
    or one for each atom.
    """

    marginals: Mapping[str, Tensor]
    hard_share: float
    shares: Mapping[str, Tensor]


def iterate(
    layer: LogicLayer, inputs: GroundInputs, plan: Plan | SparsePlan, steps: list[Iteration] | None = None
) -> tuple[dict[str, Tensor], Convergence | None]:
    """Run the iterations of a layer; return the log-odds of all predicates, and how it went where nothing is traced.

    ``steps`` is filled with what the iterations did.
    """
    grounding, iterations, tolerance = layer.grounding, layer.iterations, layer.tolerance
    is_annealed = layer.damping is None and bool(grounding.hard)
    averages = find_averages(layer, inputs, plan) if iterations else None
    weigh = None if averages is None else averages.weigh
    current, started = dict(inputs.logits), plan.start(inputs, weigh=weigh)
    marginals = inputs.marginals(current, grounding)
    choice = _RowIterates(layer, inputs, current) if grounding.hard and iterations else None
    before: dict[str, Tensor] = {}
    records: list[tuple[Mapping[str, Tensor], float, dict[str, Tensor | float]]] = []
    changes: list[float] = []
    done = 0
    for iteration in range(iterations):
        done, is_last = iteration + 1, iteration + 1 == iterations
        hard_share = 1.0
        if is_annealed and not is_last:
            hard_share = min(1.0, FIRST_HARD_WEIGHT / layer.hard_weight) ** (1 - done / iterations)
        values = plan.run(inputs, marginals, started, weigh=weigh)
        shares: dict[str, Tensor | float] = {}
        for name in marginals:
            target = layer.add_messages(name, inputs, plan, values, hard_share, averages=averages)
            if is_annealed:
                step = target - current[name]
                shares[name] = 1.0
                if name in before:
                    shares[name] = torch.where((step < 0) == (before[name] < 0), 1.0, BACKWARD).to(step.dtype)
                before[name] = step.detach()
                current[name] = current[name] + shares[name] * step
            else:
                shares[name] = 1 - (layer.damping or 0.0)
                current[name] = torch.lerp(current[name], target, shares[name]) if layer.damping else target
        del values  # of the next iteration there are as many
        if choice is not None and done >= iterations - 1:
            choice.consider(current, done)
        if steps is not None:
            records.append((marginals, hard_share, shares))
        is_measured = not torch.compiler.is_compiling() and (done >= iterations - 1 or tolerance is not None)
        if is_last and not is_measured:
            break
        with torch.set_grad_enabled(torch.is_grad_enabled() and not is_last):
            after = inputs.marginals(current, grounding)
        if is_measured:
            changes.append(largest_change(marginals, after))
            if tolerance is not None and hard_share == 1 and changes[-1] <= tolerance:
                if choice is not None and done < iterations - 1:
                    choice.consider(current, done)
                break
        marginals = after
    if steps is not None:
        steps += _share_out(records, None if choice is None else choice.kept, inputs.logits)
    chosen = current if choice is None else choice.chosen
    if torch.compiler.is_compiling():
        return chosen, None
    limit = SETTLED if tolerance is None else tolerance
    converged = not changes or changes[-1] <= limit
    broken = None if choice is None else (choice.given_count(), choice.count())
    return chosen, Convergence(tuple(changes), converged, done, broken)


def largest_change(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> float:
    """Return the largest difference of two sets of marginals."""
    with torch.no_grad():
        differences = [(after[name] - before[name]).abs().amax() for name in before if before[name].numel()]
        return float(torch.stack(differences).amax()) if differences else 0.0


def warn_unsettled(convergence: Convergence) -> bool:
    """Warn where hard formulas stay broken, or marginals swing: move by `UNSETTLED` and hardly less than before.

    Return whether that was so. Without broken formulas, the last move of annealed marginals is no swinging.
    """
    previous, change = (0.0, 0.0, *convergence.changes)[-2:]
    given, broken = convergence.broken or (0, 0)
    if broken:
        plural = "" if broken == 1 else "s"
        finding = f"hard formulas are broken in {broken:,} grounding{plural} ({given:,} before)"
        ways = 'more iterations, inference="exact" for few atoms, or a RuleDecoder, which breaks none'
    elif convergence.broken is None and len(convergence.changes) > 1 and change > max(UNSETTLED, 0.7 * previous):
        finding = f"marginals still moved by {change:.2f} in the last of {convergence.iterations} iterations"
        ways = "more iterations or damping=0.5"
    else:
        return False
    warnings.warn(
        f"LogicLayer: {finding}; try {ways}. layer.convergence has the figures of each call; this is said once",
        RulewrightWarning,
        stacklevel=7,
    )
    return True


class _RowIterates:
    """Which iterate each row of a batch keeps: the last of those considered that break the fewest hard groundings."""

    def __init__(self, layer: LogicLayer, inputs: GroundInputs, given: Mapping[str, Tensor]) -> None:
        self._grounding = layer.grounding
        self._inputs = _as_counted(inputs)
        self._plan = layer.plan_for(inputs, "hard violations")
        self._started = self._plan.start(self._inputs)
        self.chosen = dict(given)
        self._given = self._fewest = self._count_broken(given)
        self.kept = torch.zeros_like(self._given, dtype=torch.long)
        if len(self._grounding.hard) < len(self._grounding.rules):
            self._fewest = torch.full_like(self._given, torch.inf)

    def consider(self, current: Mapping[str, Tensor], iteration: int) -> None:
        """Let rows change to a new iterate."""
        broken = self._count_broken(current)
        is_better = broken <= self._fewest
        self._fewest = torch.where(is_better, broken, self._fewest)
        self.kept = torch.where(is_better, iteration, self.kept)
        for name, logits in current.items():
            where = is_better.view(-1, *[1] * (logits.ndim - 1)) if is_better.ndim else is_better
            self.chosen[name] = torch.where(where, logits, self.chosen[name])

    def given_count(self) -> int:
        """Return how many groundings the labels broke as they were given."""
        return round(float(self._given.sum()))

    def count(self) -> int:
        """Return how many groundings the labels break that are kept."""
        return round(float(self._fewest.sum()))

    def _count_broken(self, logits: Mapping[str, Tensor]) -> Tensor:
        """Return how many groundings of hard formulas the most probable labels break, in each row of the batch."""
        inputs, labels = self._inputs, {}
        for name in self._grounding.used & set(logits):
            given, observed = logits[name].detach(), inputs.observed.get(name)
            has_classes = self._grounding.predicates[name].classes is not None
            is_true = given > 0
            if has_classes:
                is_true = given.argmax(-1, keepdim=True) == torch.arange(given.shape[-1], device=given.device)
            labels[name] = is_true.to(inputs.dtype)
            if observed is not None and observed.where is not None:
                where = observed.where[..., None] if has_classes else observed.where
                labels[name] = torch.where(where, observed.probability, labels[name])
        values = self._plan.run(inputs, labels, self._started)
        rows = [prod(inputs.batch)] if inputs.batch else []
        total = torch.zeros(rows, dtype=inputs.dtype, device=inputs.device)
        for nodes in self._plan.violations:
            for coefficient, node in nodes:
                total = total + coefficient * values[node]
        return total


def _as_counted(inputs: GroundInputs) -> GroundInputs:
    """Return inputs of at least 32 bits, in which counts are exact further."""
    if inputs.dtype.itemsize >= 4:
        return inputs
    dtype = torch.float32
    observed = {name: Observed(known.probability.to(dtype), known.where) for name, known in inputs.observed.items()}
    masks = {type_name: mask.to(dtype) for type_name, mask in inputs.masks.items()}
    return replace(inputs, observed=observed, masks=masks, dtype=dtype)


def _share_out(
    records: list[tuple[Mapping[str, Tensor], float, dict[str, Tensor | float]]],
    kept: Tensor | None,
    given: Mapping[str, Tensor],
) -> list[Iteration]:
    """Return the iterations with the share that each has in what was returned: ``a_t · Π_{s > t} (1 − a_s)``.

    ``a_t`` is the share that an atom took over in iteration t, and 0 after the iterate that its row kept.
    """
    left = {name: torch.ones_like(logits) for name, logits in given.items()}
    steps: list[Iteration] = []
    for iteration, (marginals, hard_share, taken) in reversed(list(enumerate(records, start=1))):
        shares = {}
        for name, share in taken.items():
            part = torch.as_tensor(share, dtype=left[name].dtype, device=left[name].device)
            if kept is not None:
                is_kept = (kept >= iteration).to(part.dtype)
                part = part * (is_kept.view(-1, *[1] * (left[name].ndim - 1)) if kept.ndim else is_kept)
            shares[name] = part * left[name]
            left[name] = (1 - part) * left[name]
        steps.append(Iteration(marginals, hard_share, shares))
    return steps[::-1]
