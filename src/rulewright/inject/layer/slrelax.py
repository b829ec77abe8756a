"""A penalty for every violated grounding: what semantic loss becomes when groundings are taken one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from rulewright.checks import OneOf, check_parameter
from rulewright.inject.layer.grounding import Domains, Grounding
from rulewright.inject.layer.inputs import Observation, read_inputs
from rulewright.inject.layer.layer import Weights
from rulewright.inject.layer.plan import Planner, limit_memory
from rulewright.logic import RuleSet


class SLrelax(nn.Module):
    """The probability of each grounding to be false, its atoms being independent, added up through contractions.

    ``L = Σ_f w_f Σ_g P(g is false)``, divided by the number of groundings of each formula with ``reduction="mean"``
    (over those of existing entities, where masks say which exist), and always by the number of rows of the batch. A
    ``learn`` formula weighs 1: a penalty cannot learn its own weight. The other options are those of `LogicLayer`.

    >>> import rulewright as rw
    >>> penalty = SLrelax(rw.parse_rules("1.0 p(X) => q(X)."), reduction="sum")
    >>> penalty({"p": torch.tensor([0.0, 0.0]), "q": torch.tensor([0.0, 50.0])})
    tensor(0.2500)
    """

    def __init__(
        self,
        rules: RuleSet,
        domains: Domains | None = None,
        *,
        reduction: Literal["mean", "sum"] = "mean",
        weights: Literal["one", "logit"] = "one",
        hard_weight: float = 1.0,
        memory_limit: int | str | None = None,
    ) -> None:
        super().__init__()
        check_parameter("reduction", reduction, OneOf("mean", "sum"))
        self.reduction = reduction
        self.memory_limit = limit_memory(memory_limit)
        self.grounding = Grounding(rules, domains=domains)
        self.planner = Planner(self.grounding)
        given = Weights(rules, weights=weights, hard_weight=hard_weight)
        self._weights = [given.value(index) for index in range(len(rules))]

    def forward(
        self,
        logits: Mapping[str, Tensor],
        evidence: Mapping[str, Observation] | None = None,
        mask: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Return the penalty of a batch; logits, evidence and masks are those of `LogicLayer`."""
        inputs = read_inputs(self.grounding, logits, evidence, mask)
        plan = self.planner.plan(inputs.shape, "violations")
        plan.check_memory(inputs, self.memory_limit)
        values = plan.run(inputs, inputs.marginals(inputs.logits, self.grounding), plan.start(inputs))
        total = torch.zeros((), dtype=inputs.dtype, device=inputs.device)
        for ground_formula, nodes in zip(self.grounding.formulas, plan.violations, strict=True):
            false: Tensor | None = None
            for coefficient, node in nodes:
                false = values[node] * coefficient if false is None else false + coefficient * values[node]
            if false is None:  # a tautology
                continue
            if self.reduction == "mean":
                count: Tensor | int = 1
                for type_name in ground_formula.types.values():
                    exists = inputs.masks.get(type_name)
                    count = count * (plan.sizes[type_name] if exists is None else exists.sum(-1))
                false = false / (count.clamp(min=1) if isinstance(count, Tensor) else count)
            total = total + self._weights[ground_formula.statement_index] * false.mean()
        return total
