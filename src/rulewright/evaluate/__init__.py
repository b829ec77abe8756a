"""Figures of merit, of facts, answers and rules.

- `rules`: how often one rule is right, with examples, and how sure a share of few cases is; facts against facts,
  predicate by predicate
- `ranking`: link prediction, MRR and Hits
- `classification`: atoms with scores, AUC-PR
- `calibration`: scores into probabilities, and how well these hold
- `extraction`: relations in documents, F1, Ign F1 and Logic; on `extraction_facts`, their facts as integers
- `bootstrap`: whether one system is better than another, or only luckier with the documents

The package is also the function ``rw.evaluate``, which is `rulewright.learn.evaluate`: it needs learners.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from rulewright.evaluate.rules import Agreement, GroundedRule, RuleCounts, agreement, explain_counts, share_interval

__all__ = ["Agreement", "GroundedRule", "RuleCounts", "agreement", "explain_counts", "share_interval"]


class _EvaluatePackage(ModuleType):
    """This package, with a call."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Evaluate rules or a learner; see `rulewright.learn.evaluate`."""
        return import_module("rulewright.learn").evaluate(*args, **named)


sys.modules[__name__].__class__ = _EvaluatePackage
