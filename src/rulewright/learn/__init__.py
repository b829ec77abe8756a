"""Learners: facts in, rules out."""

from rulewright.learn.base import Learner
from rulewright.learn.miner import RuleMiner

__all__ = ["Learner", "RuleMiner"]
