"""A penalty for every violated grounding: what semantic loss becomes when groundings are taken one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal as OneOf

import torch
from torch import Tensor, nn

from rulewright.errors import DataError
from rulewright.inject.layer.factors import fill_factors, plan_values
from rulewright.inject.layer.ground_inputs import Observation, read_inputs
from rulewright.inject.layer.grounding import Domains, Grounding
from rulewright.inject.layer.layer import Weights
from rulewright.inject.layer.plan import default_memory_limit
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
        reduction: OneOf["mean", "sum"] = "mean",
        weights: OneOf["one", "logit"] = "one",
        hard_weight: float = 1.0,
        optimize: bool = True,
        share: bool = True,
        memory_limit: int | None = None,
    ) -> None:
        super().__init__()
        if reduction not in ("mean", "sum"):
            raise DataError(f"reduction must be 'mean' or 'sum', got {reduction!r}")
        self.reduction = reduction
        self.memory_limit = default_memory_limit() if memory_limit is None else memory_limit
        self.grounding = Grounding(rules, domains=domains, optimize=optimize, share=share)
        given = Weights(rules, rule_weights=weights, hard_weight=hard_weight)
        self._weights = [given.value(number) for number in range(len(rules))]

    def forward(
        self,
        logits: Mapping[str, Tensor],
        evidence: Mapping[str, Observation] | None = None,
        mask: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Return the penalty of a batch; logits, evidence and masks are those of `LogicLayer`."""
        inputs = read_inputs(self.grounding, logits, evidence, mask)
        plan = self.grounding.plan(inputs.shape, "violations")
        size = torch.finfo(inputs.dtype).bits // 8
        training = torch.is_grad_enabled() and any(each.requires_grad for each in inputs.logits.values())
        plan.check_memory(plan.memory(batch=inputs.rows, bytes_each=size, training=training), self.memory_limit)
        values = plan_values(plan, inputs)
        marginals = {
            name: inputs.probabilities(inputs.logits, self.grounding.predicates[name])
            for name in inputs.logits
            if name in self.grounding.used
        }
        fill_factors(plan, inputs, marginals, values)
        plan.program.run(values, fixed=False, keep=plan.kept)
        total = torch.zeros((), dtype=inputs.dtype, device=inputs.device)
        for part, nodes in zip(self.grounding.formulas, plan.violations, strict=True):
            false: Tensor | None = None
            for coefficient, node in nodes:
                false = values[node] * coefficient if false is None else false + coefficient * values[node]
            if false is None:  # a tautology
                continue
            if self.reduction == "mean":
                count: Tensor | int = 1
                for kind in part.types.values():
                    exists = inputs.masks.get(kind)
                    count = count * (plan.sizes[kind] if exists is None else exists.sum(-1))
                false = false / (count.clamp(min=1) if isinstance(count, Tensor) else count)
            total = total + self._weights[part.statement] * false.mean()
        return total
