"""The tensors that a plan starts from: how probable each literal is to be false."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rulewright.inject.layer.ground_inputs import GroundInputs
from rulewright.inject.layer.plan import Factor, Plan


def false_probability(factor: Factor, probabilities: Tensor, classes: int | None) -> Tensor:
    """Return the probability that a literal is false: that its atom is of none of the factor's classes."""
    if classes is None:
        return 1 - probabilities if 1 in factor.classes else probabilities
    outside = torch.ones(classes, dtype=probabilities.dtype, device=probabilities.device)
    outside[list(factor.classes)] = 0
    return probabilities @ outside


def plan_values(plan: Plan, inputs: GroundInputs) -> dict[int, Tensor]:
    """Compute what stays the same in all iterations."""
    values: dict[int, Tensor] = {}
    for number, node in enumerate(plan.program.nodes):
        if node.operation != "input":
            continue
        if node.arguments == ("one",):
            values[number] = torch.ones((), dtype=inputs.dtype, device=inputs.device)
        elif number in plan.ones:
            kind = plan.ones[number]
            mask = inputs.masks.get(kind)
            size = plan.sizes[kind]
            values[number] = torch.ones(size, dtype=inputs.dtype, device=inputs.device) if mask is None else mask
        elif number in plan.orders:
            values[number] = _order_tensor(plan, number, inputs)
    observed = {name: each.probability for name, each in inputs.known.items() if each.where is None}
    fill_factors(plan, inputs, observed, values)
    return plan.program.run(values, fixed=True)


def fill_factors(plan: Plan, inputs: GroundInputs, marginals: Mapping[str, Tensor], values: dict[int, Tensor]) -> None:
    """Put the factors of these predicates among the values: the probabilities that their literals are false."""
    for number, factor in plan.factors.items():
        if factor.predicate not in marginals or number in values:
            continue
        declaration = plan.grounding.predicates[factor.predicate]
        classes = None if declaration.classes is None else len(declaration.classes)
        found = false_probability(factor, marginals[factor.predicate], classes)
        exists = inputs.mask_over(declaration)
        values[number] = found if exists is None else found * exists


def _order_tensor(plan: Plan, number: int, inputs: GroundInputs) -> Tensor:
    operator, sides, formula = plan.orders[number]
    tensors: list[Tensor] = []
    places = [place for place, side in enumerate(sides) if isinstance(side, str)]
    for place, side in enumerate(sides):
        if isinstance(side, str):
            numbers = plan.grounding.numbers_of(side, formula)
            tensors.append(numbers.unsqueeze(1) if len(places) == 2 and place == 0 else numbers)
        else:
            tensors.append(torch.tensor(side, dtype=torch.float64))
    one, other = tensors
    holds = {"<": one < other, "<=": one <= other, ">": one > other, ">=": one >= other}[operator]
    return (~holds).to(dtype=inputs.dtype, device=inputs.device)
