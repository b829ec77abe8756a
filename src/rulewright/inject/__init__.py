"""Putting rules to work inside and around neural networks.

Names load on first use: the decoder, and the processes it starts, need no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rulewright.inject.layer.influence import Explanation
    from rulewright.inject.layer.layer import Convergence, LogicLayer
    from rulewright.inject.layer.plan import Plan
    from rulewright.inject.layer.slrelax import SLrelax
    from rulewright.inject.pairs.decoded import Change, Decoded
    from rulewright.inject.pairs.decoder import RuleDecoder
    from rulewright.inject.pairs.loss import ConsistencyLoss
    from rulewright.inject.pairs.reports import ErrorTypes, error_types

_HOME = {
    "Change": "pairs.decoded",
    "ConsistencyLoss": "pairs.loss",
    "Convergence": "layer.layer",
    "Decoded": "pairs.decoded",
    "ErrorTypes": "pairs.reports",
    "Explanation": "layer.influence",
    "LogicLayer": "layer.layer",
    "Plan": "layer.plan",
    "RuleDecoder": "pairs.decoder",
    "SLrelax": "layer.slrelax",
    "error_types": "pairs.reports",
}

__all__ = [
    "Change",
    "ConsistencyLoss",
    "Convergence",
    "Decoded",
    "ErrorTypes",
    "Explanation",
    "LogicLayer",
    "Plan",
    "RuleDecoder",
    "SLrelax",
    "error_types",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'rulewright.inject' has no attribute {name!r}")
    value = getattr(import_module(f"rulewright.inject.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
