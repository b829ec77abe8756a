"""The marginals of a Markov logic network itself, from all its worlds: what mean field approximates."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import torch
from torch import Tensor

from rulewright.errors import DataError
from rulewright.inject.layer.factors import plan_values
from rulewright.inject.layer.ground_inputs import Observation, read_inputs
from rulewright.inject.layer.grounding import Grounding
from rulewright.inject.layer.layer import Weights

MAX_WORLDS = 2**16
"""How many assignments of the atoms that are not observed are gone through."""


def exact_marginals(
    grounding: Grounding,
    weights: Weights,
    logits: Mapping[str, Tensor],
    evidence: Mapping[str, Observation] | None = None,
) -> dict[str, Tensor]:
    """Return the probability of true, or of each class, of every atom, from all worlds: Equation 1, normalised."""
    inputs = read_inputs(grounding, logits, evidence, None)
    if inputs.batch:
        raise DataError(f"exact marginals are of one problem at a time, got the batch {list(inputs.batch)}")
    predicates = {name: grounding.predicates[name] for name in inputs.logits}
    counts = {name: len(each.classes or (0, 1)) for name, each in predicates.items()}
    free: list[tuple[str, int]] = []  # the atoms that are not observed, by predicate and place
    shapes = {name: each.shape[: predicates[name].arity] for name, each in inputs.logits.items()}
    for name, shape in shapes.items():
        known = inputs.known.get(name)
        seen = torch.zeros(shape, dtype=torch.bool) if known is None or known.where is None else known.where
        free += [(name, place) for place in (~seen.reshape(-1)).nonzero()[:, 0].tolist()]
    worlds = prod(counts[name] for name, _ in free)
    if worlds > MAX_WORLDS:
        raise DataError(
            f"{len(free)} atoms are not observed, which makes {worlds:,} worlds; at most {MAX_WORLDS:,} fit"
        )
    values = {name: _observed_values(inputs.known.get(name), shape) for name, shape in shapes.items()}
    values = {name: each.reshape(1, -1).repeat(worlds, 1) for name, each in values.items()}
    number = torch.arange(worlds)
    for name, place in free:
        values[name][:, place] = number % counts[name]
        number = number // counts[name]
    score = torch.zeros(worlds, dtype=torch.float64)
    for name, chosen in values.items():
        given = inputs.logits[name].reshape(chosen.shape[1], -1).double()
        if predicates[name].classes is None:
            given = torch.cat([torch.zeros_like(given), given], 1)
        score += given[torch.arange(chosen.shape[1]), chosen].sum(1)
    shaped = {name: each.reshape(worlds, *shapes[name]) for name, each in values.items()}
    score += _formula_scores(grounding, weights, shaped, evidence or {}, worlds)
    probability = torch.softmax(score, 0)
    found = {}
    for name, chosen in shaped.items():
        each = [(probability * (chosen == value).reshape(worlds, -1).T).sum(1) for value in range(counts[name])]
        whole = torch.stack(each, -1).reshape(*shapes[name], counts[name])
        found[name] = (whole[..., 1] if predicates[name].classes is None else whole).to(inputs.dtype)
    return found


def _observed_values(known: object, shape: torch.Size) -> Tensor:
    """Return the class of each observed atom, 0 for the others."""
    probability = getattr(known, "probability", None)
    if probability is None:
        return torch.zeros(shape, dtype=torch.long)
    classes = probability.long() if probability.shape == shape else probability.argmax(-1)
    return torch.where(known.where, classes, 0)  # type: ignore[attr-defined]


def _formula_scores(
    grounding: Grounding,
    weights: Weights,
    worlds: Mapping[str, Tensor],
    evidence: Mapping[str, Observation],
    rows: int,
) -> Tensor:
    """Return ``Σ_f w_f · (groundings that hold)`` of each world, up to a constant."""
    observed: dict[str, Observation] = {name: each for name, each in evidence.items() if name not in worlds}
    for name, chosen in worlds.items():
        observed[name] = chosen if grounding.predicates[name].classes is not None else chosen.bool()
    like = {name: _like_logits(grounding, name, chosen) for name, chosen in worlds.items()}
    inputs = read_inputs(grounding, like, observed, None)
    plan = grounding.plan(inputs.shape, "violations")
    values = plan_values(plan, inputs)
    total = torch.zeros(rows, dtype=torch.float64)
    for part, nodes in zip(grounding.formulas, plan.violations, strict=True):
        for coefficient, node in nodes:
            total = total - weights.value(part.statement) * coefficient * values[node].double()
    return total


def _like_logits(grounding: Grounding, name: str, chosen: Tensor) -> Tensor:
    classes = grounding.predicates[name].classes
    shape = chosen.shape if classes is None else (*chosen.shape, len(classes))
    return torch.zeros(shape, dtype=torch.float64)
