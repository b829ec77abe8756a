"""Figures of merit."""

from rulewright.evaluate.rules import Agreement, Grounding, RuleCounts, agreement, explain_counts

__all__ = ["Agreement", "Grounding", "RuleCounts", "agreement", "explain_counts"]
