"""Rulewright learns logical rules from data and puts them to work inside neural networks.

    import rulewright as rw

Names load on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from rulewright import datasets
    from rulewright.data import KnowledgeBase, KnowledgeBaseBuilder
    from rulewright.engine import Engine
    from rulewright.errors import RulewrightError
    from rulewright.evaluate import explain_counts
    from rulewright.inject import ConsistencyLoss, Decoded, LogicLayer, RuleDecoder, SLrelax
    from rulewright.io import read_facts, read_rules, write_facts
    from rulewright.learn import LNNLearner, MarkovLogic, NLILLearner, RuleMiner, explain_classifier
    from rulewright.logic import Rule, RuleSet, parse_formula, parse_rule, parse_rules
    from rulewright.reason import apply, explain

_HOME = {
    "ConsistencyLoss": "inject",
    "Decoded": "inject",
    "Engine": "engine",
    "KnowledgeBase": "data",
    "KnowledgeBaseBuilder": "data",
    "LNNLearner": "learn",
    "LogicLayer": "inject",
    "MarkovLogic": "learn",
    "NLILLearner": "learn",
    "Rule": "logic",
    "RuleDecoder": "inject",
    "RuleMiner": "learn",
    "RuleSet": "logic",
    "RulewrightError": "errors",
    "SLrelax": "inject",
    "apply": "reason",
    "explain": "reason",
    "explain_classifier": "learn",
    "explain_counts": "evaluate",
    "parse_formula": "logic",
    "parse_rule": "logic",
    "parse_rules": "logic",
    "read_facts": "io",
    "read_rules": "io",
    "write_facts": "io",
}

__all__ = [
    "ConsistencyLoss",
    "Decoded",
    "Engine",
    "KnowledgeBase",
    "KnowledgeBaseBuilder",
    "LNNLearner",
    "LogicLayer",
    "MarkovLogic",
    "NLILLearner",
    "Rule",
    "RuleDecoder",
    "RuleMiner",
    "RuleSet",
    "RulewrightError",
    "SLrelax",
    "apply",
    "datasets",
    "explain",
    "explain_classifier",
    "explain_counts",
    "parse_formula",
    "parse_rule",
    "parse_rules",
    "read_facts",
    "read_rules",
    "write_facts",
]


def __getattr__(name: str) -> object:
    if name in _HOME:
        value = getattr(import_module(f"rulewright.{_HOME[name]}"), name)
    elif name == "datasets":
        value = import_module("rulewright.datasets")
    else:
        raise AttributeError(f"module 'rulewright' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
