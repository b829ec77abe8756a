"""The marginals of a Markov logic network itself, from all its worlds: what mean field approximates."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rulewright.errors import DataError
from rulewright.inject.inputs import Observation, read_inputs

if TYPE_CHECKING:
    from rulewright.inject.layer.layer import LogicLayer

MAX_WORLDS = 2**16
"""How many assignments of the atoms that are not observed are gone through."""


def exact_marginals(
    layer: LogicLayer, logits: Mapping[str, Tensor], evidence: Mapping[str, Observation]
) -> dict[str, Tensor]:
    """Return the probability of true, or of each class, of every atom, from all worlds: Equation 1, normalised."""
    inputs = read_inputs(layer.grounding, logits, evidence, None)
    if inputs.batch:
        raise DataError(f"exact marginals are of one problem at a time, got the batch {list(inputs.batch)}")
    predicates = {name: layer.grounding.predicates[name] for name in inputs.logits}
    n_classes = {name: len(declaration.classes or (0, 1)) for name, declaration in predicates.items()}
    shapes = {name: given.shape[: predicates[name].arity] for name, given in inputs.logits.items()}
    free: list[tuple[str, int]] = []  # the atoms that are not observed, by predicate and position
    values: dict[str, Tensor] = {}  # the class of each atom, flat; 0 where it is free
    for name, shape in shapes.items():
        values[name] = torch.zeros(shape, dtype=torch.long)
        where = torch.zeros(shape, dtype=torch.bool)
        observed = inputs.observed.get(name)
        if observed is not None and observed.where is not None:
            where, probability = observed.where, observed.probability
            classes = probability.long() if probability.shape == shape else probability.argmax(-1)
            values[name] = torch.where(where, classes, 0)
        free += [(name, position) for position in (~where.reshape(-1)).nonzero()[:, 0].tolist()]
    worlds = prod(n_classes[name] for name, _ in free)
    if worlds > MAX_WORLDS:
        raise DataError(
            f"{len(free)} atoms are not observed, which makes {worlds:,} worlds; at most {MAX_WORLDS:,} fit"
        )
    values = {name: classes.reshape(1, -1).repeat(worlds, 1) for name, classes in values.items()}
    code = torch.arange(worlds)
    for name, position in free:
        values[name][:, position] = code % n_classes[name]
        code = code // n_classes[name]
    score = torch.zeros(worlds, dtype=torch.float64)
    for name, classes in values.items():
        given = inputs.logits[name].reshape(classes.shape[1], -1).double()
        if predicates[name].classes is None:
            given = torch.cat([torch.zeros_like(given), given], 1)
        score += given[torch.arange(classes.shape[1]), classes].sum(1)
    shaped = {name: classes.reshape(worlds, *shapes[name]) for name, classes in values.items()}
    probability = torch.softmax(score + _score_formulas(layer, shaped, evidence, worlds), 0)
    marginals = {}
    for name, classes in shaped.items():
        by_class = [(probability * (classes == value).reshape(worlds, -1).T).sum(1) for value in range(n_classes[name])]
        marginal = torch.stack(by_class, -1).reshape(*shapes[name], n_classes[name])
        marginals[name] = (marginal[..., 1] if predicates[name].classes is None else marginal).to(inputs.dtype)
    return marginals


def _score_formulas(
    layer: LogicLayer, values: Mapping[str, Tensor], evidence: Mapping[str, Observation], worlds: int
) -> Tensor:
    """Return ``Σ_f w_f · (groundings that hold)`` of each world, up to a constant."""
    observed = {name: observation for name, observation in evidence.items() if name not in values}
    placeholders = {}
    for name, classes in values.items():
        declared = layer.grounding.predicates[name].classes
        observed[name] = classes.bool() if declared is None else classes
        shape = classes.shape if declared is None else (*classes.shape, len(declared))
        placeholders[name] = torch.zeros(shape, dtype=torch.float64)
    inputs = read_inputs(layer.grounding, placeholders, observed, None)
    plan = layer.planner.plan(inputs.shape, "violations")
    counts = plan.start(inputs)
    total = torch.zeros(worlds, dtype=torch.float64)
    for ground_formula, nodes in zip(layer.grounding.formulas, plan.violations, strict=True):
        for coefficient, node in nodes:
            weight = layer.weights.value(ground_formula.statement_index)
            total = total - weight * coefficient * counts[node].double()
    return total
