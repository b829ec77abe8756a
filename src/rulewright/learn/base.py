"""What every learner is."""

from __future__ import annotations

from typing import Protocol, Self

from rulewright.data import KnowledgeBase
from rulewright.logic import RuleSet


class Learner(Protocol):
    """Learns from a knowledge base with `fit`, which returns itself; what it found are ``rules_``."""

    rules_: RuleSet

    def fit(self, kb: KnowledgeBase) -> Self:
        """Learn rules from facts."""
        ...
