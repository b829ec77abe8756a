"""The weights of statements: fixed, hard or learned."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal as OneOf

import torch
from torch import Tensor, nn

from rulewright.errors import DataError
from rulewright.logic import Rule, RuleSet, Statement, WeightedFormula

CLIPPED = 1e-3
"""How near to 0 and 1 a confidence may be when its log-odds are taken."""


class Weights(nn.Module):
    """One weight for each statement of a rule set; those that are learned are the parameter ``learned``."""

    def __init__(
        self,
        rules: RuleSet,
        *,
        rule_weights: OneOf["one", "logit"] = "one",
        hard_weight: float = 20.0,
        initial_weight: float = 1.0,
        learnable: bool = False,
    ) -> None:
        super().__init__()
        if rule_weights not in ("one", "logit"):
            raise DataError(f"weights must be 'one' or 'logit', got {rule_weights!r}")
        if not (math.isfinite(hard_weight) and hard_weight > 0):
            raise DataError(f"hard_weight must be finite and > 0, got {hard_weight}")
        self._fixed: list[float | None] = []
        self._place: list[int] = []
        start: list[float] = []
        for statement in rules:
            value = _given(statement, rule_weights, hard_weight)
            hard = isinstance(statement, WeightedFormula) and statement.kind == "hard"
            learned = value is None or (learnable and not hard)
            self._place.append(len(start))
            self._fixed.append(None if learned else value)
            if learned:
                start.append(initial_weight if value is None else value)
        self.learned = nn.Parameter(torch.tensor(start)) if start else None

    @property
    def requires_grad(self) -> bool:
        """Whether a weight is learned."""
        return self.learned is not None and self.learned.requires_grad

    def value(self, statement: int) -> float:
        """Return a statement's weight as a number."""
        fixed = self._fixed[statement]
        if fixed is not None:
            return fixed
        assert self.learned is not None
        return float(self.learned[self._place[statement]].detach())

    def add(self, total: Tensor | None, term: Tensor, statement: int, coefficient: int) -> Tensor:
        """Return ``total + coefficient · weight · term``."""
        fixed = self._fixed[statement]
        if fixed is not None:
            factor = fixed * coefficient
            return term * factor if total is None else torch.add(total, term, alpha=factor)
        assert self.learned is not None
        weight = self.learned[self._place[statement]].to(term.dtype) * coefficient
        return term * weight if total is None else torch.addcmul(total, term, weight)

    def as_rules(self, rules: RuleSet) -> RuleSet:
        """Return the rule set with learned weights in the place of ``learn`` and of the weights they started from."""
        found: list[Statement] = []
        for number, statement in enumerate(rules):
            if self._fixed[number] is not None:
                found.append(statement)
            elif isinstance(statement, WeightedFormula):
                found.append(replace(statement, kind="soft", weight=round(self.value(number), 6)))
            else:
                assert isinstance(statement, Rule)
                found.append(statement.annotated(weight=round(self.value(number), 6)))
        return RuleSet(found, predicates=rules.predicates, closed=rules.closed)


def _given(statement: Statement, rule_weights: str, hard_weight: float) -> float | None:
    """Return what a statement says its weight is; None is to be learned."""
    if isinstance(statement, Rule):
        if rule_weights == "one":
            return 1.0
        confidence = min(max(statement.confidence, CLIPPED), 1 - CLIPPED)
        return math.log(confidence / (1 - confidence))
    assert isinstance(statement, WeightedFormula)
    return hard_weight if statement.kind == "hard" else statement.weight
