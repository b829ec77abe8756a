"""Figures of merit."""

from rulewright.evaluate.facts import Agreement, agreement

__all__ = ["Agreement", "agreement"]
