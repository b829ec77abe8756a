"""Figures of merit."""

from rulewright.evaluate.facts import Agreement, agreement
from rulewright.evaluate.rules import Grounding, RuleCounts, explain_counts

__all__ = ["Agreement", "Grounding", "RuleCounts", "agreement", "explain_counts"]
