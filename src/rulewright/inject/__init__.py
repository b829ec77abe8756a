"""Putting rules to work inside and around neural networks.

Names load on first use: the decoder, and the processes it starts, need no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rulewright.inject.decoded import Change, Decoded
    from rulewright.inject.decoder import RuleDecoder
    from rulewright.inject.loss import ConsistencyLoss
    from rulewright.inject.revealed_errors import ErrorTypes, error_types

_HOME = {
    "Change": "decoded",
    "ConsistencyLoss": "loss",
    "Decoded": "decoded",
    "ErrorTypes": "revealed_errors",
    "RuleDecoder": "decoder",
    "error_types": "revealed_errors",
}

__all__ = ["Change", "ConsistencyLoss", "Decoded", "ErrorTypes", "RuleDecoder", "error_types"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'rulewright.inject' has no attribute {name!r}")
    value = getattr(import_module(f"rulewright.inject.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
