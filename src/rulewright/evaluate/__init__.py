"""Figures of merit."""

from rulewright.evaluate.rules import Agreement, GroundedRule, RuleCounts, agreement, explain_counts

__all__ = ["Agreement", "GroundedRule", "RuleCounts", "agreement", "explain_counts"]
