"""Putting rules to work inside and around neural networks.

Names load on first use: the decoder, and the processes it starts, need no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rulewright.inject.decoded import Change, Decoded
    from rulewright.inject.decoder import RuleDecoder
    from rulewright.inject.influence import Explanation
    from rulewright.inject.layer import Convergence, LogicLayer
    from rulewright.inject.loss import ConsistencyLoss
    from rulewright.inject.plan import Plan
    from rulewright.inject.revealed_errors import ErrorTypes, error_types
    from rulewright.inject.slrelax import SLrelax

_HOME = {
    "Change": "decoded",
    "ConsistencyLoss": "loss",
    "Convergence": "layer",
    "Decoded": "decoded",
    "ErrorTypes": "revealed_errors",
    "Explanation": "influence",
    "LogicLayer": "layer",
    "Plan": "plan",
    "RuleDecoder": "decoder",
    "SLrelax": "slrelax",
    "error_types": "revealed_errors",
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
