"""Putting rules to work inside and around neural networks.

- `atom_space`: what all of them are told: typed predicates and tensors of their atoms, in one convention; `inputs`: the
  tensors of one call, checked; `labelled_worlds`: predictions of calls beside gold labels.
- `calibration`: a network's labels as probabilities, applied and kept; `calibration_fit`: `calibrate`, which fits them
  to `label_columns`, the labels that count, with their folds.
- `layer/`: formulas as a layer of a network: `LogicLayer`.
- `atoms/`: rules over labels of atoms: `ConsistencyLoss`, `RuleDecoder`, reports.
- `distill`: a network learns what a layer or a decoder makes of its predictions: `distillation_loss`.
- `rule_messages`: what rules say of a network's predictions, and how often they are right there; `rule_likelihood`: the
  weights that make gold labels most likely; `rule_fit`: `fit_rules`, which rules are worth their weight.

Names load on first use: the decoder, and the processes it starts, need no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rulewright.lazy import lazy_names

if TYPE_CHECKING:
    from rulewright.inject.atoms.decoded import Change as Change
    from rulewright.inject.atoms.decoded import Decoded as Decoded
    from rulewright.inject.atoms.decoder import RuleDecoder as RuleDecoder
    from rulewright.inject.atoms.loss import ConsistencyLoss as ConsistencyLoss
    from rulewright.inject.atoms.reports import ErrorTypes as ErrorTypes
    from rulewright.inject.atoms.reports import batch_reports as batch_reports
    from rulewright.inject.atoms.reports import error_types as error_types
    from rulewright.inject.calibration import LabelCalibration as LabelCalibration
    from rulewright.inject.calibration_fit import calibrate as calibrate
    from rulewright.inject.distill import distillation_loss as distillation_loss
    from rulewright.inject.layer.effects import BatchExplanation as BatchExplanation
    from rulewright.inject.layer.influence import MessageExplanation as MessageExplanation
    from rulewright.inject.layer.layer import LogicLayer as LogicLayer
    from rulewright.inject.layer.plan import Plan as Plan
    from rulewright.inject.layer.schedule import Convergence as Convergence
    from rulewright.inject.rule_fit import RuleFit as RuleFit
    from rulewright.inject.rule_fit import fit_rules as fit_rules

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "calibration": "LabelCalibration",
        "calibration_fit": "calibrate",
        "distill": "distillation_loss",
        "layer.effects": "BatchExplanation",
        "layer.influence": "MessageExplanation",
        "layer.layer": "LogicLayer",
        "layer.plan": "Plan",
        "layer.schedule": "Convergence",
        "atoms.decoded": "Change Decoded",
        "atoms.decoder": "RuleDecoder",
        "atoms.loss": "ConsistencyLoss",
        "atoms.reports": "ErrorTypes batch_reports error_types",
        "rule_fit": "RuleFit fit_rules",
    },
)
