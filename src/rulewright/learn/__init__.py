"""Learners: facts in, rules or probabilities out. Names load on first use: mining needs no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rulewright.learn.base import Learner
    from rulewright.learn.lnn.learner import LNNLearner
    from rulewright.learn.markov.learner import MarkovLogic
    from rulewright.learn.markov.marginals import Marginal, Marginals
    from rulewright.learn.miner import RuleMiner
    from rulewright.learn.nlil.explain import Explanation, explain_classifier
    from rulewright.learn.nlil.learner import NLILLearner
    from rulewright.learn.path_mixture.learner import PathMixture

_HOME = {
    "Explanation": "nlil.explain",
    "LNNLearner": "lnn.learner",
    "Learner": "base",
    "Marginal": "markov.marginals",
    "Marginals": "markov.marginals",
    "MarkovLogic": "markov.learner",
    "NLILLearner": "nlil.learner",
    "PathMixture": "path_mixture.learner",
    "RuleMiner": "miner",
    "explain_classifier": "nlil.explain",
}

__all__ = [
    "Explanation",
    "LNNLearner",
    "Learner",
    "Marginal",
    "Marginals",
    "MarkovLogic",
    "NLILLearner",
    "PathMixture",
    "RuleMiner",
    "explain_classifier",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'rulewright.learn' has no attribute {name!r}")
    value = getattr(import_module(f"rulewright.learn.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
