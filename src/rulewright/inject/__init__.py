"""Putting rules to work inside and around neural networks.

- `layer/`: formulas as a layer of a network: `LogicLayer`, `SLrelax`.
- `pairs/`: rules over pairs of entities, for extraction of relations: `ConsistencyLoss`, `RuleDecoder`, reports.

Names load on first use: the decoder, and the processes it starts, need no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rulewright.lazy import lazy_names

if TYPE_CHECKING:
    from rulewright.inject.layer.influence import MessageExplanation as MessageExplanation
    from rulewright.inject.layer.layer import Convergence as Convergence
    from rulewright.inject.layer.layer import LogicLayer as LogicLayer
    from rulewright.inject.layer.layer import SLrelax as SLrelax
    from rulewright.inject.layer.plan import Plan as Plan
    from rulewright.inject.pairs.decoder import Change as Change
    from rulewright.inject.pairs.decoder import Decoded as Decoded
    from rulewright.inject.pairs.decoder import RuleDecoder as RuleDecoder
    from rulewright.inject.pairs.loss import ConsistencyLoss as ConsistencyLoss
    from rulewright.inject.pairs.reports import ErrorTypes as ErrorTypes
    from rulewright.inject.pairs.reports import error_types as error_types

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "layer.influence": "MessageExplanation",
        "layer.layer": "Convergence LogicLayer SLrelax",
        "layer.plan": "Plan",
        "pairs.decoder": "Change Decoded RuleDecoder",
        "pairs.loss": "ConsistencyLoss",
        "pairs.reports": "ErrorTypes error_types",
    },
)
