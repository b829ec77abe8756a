"""The learners of the matrix, each with settings of its own but the same facts and the same targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rulewright.data import KnowledgeBase
from rulewright.learn import RuleMiner
from rulewright.learn.lnn.learner import LNNLearner
from rulewright.learn.lnn.ready import chains
from rulewright.learn.nlil.learner import NLILLearner
from rulewright.logic import RuleSet

Learner = Callable[[KnowledgeBase, Sequence[str], Mapping[str, Any], int], RuleSet]


def most_frequent(kb: KnowledgeBase, count: int) -> list[str]:
    """Return the relations with most facts."""
    return sorted(kb.predicates, key=lambda name: -kb.count(name))[:count]


def _mine(kb: KnowledgeBase, targets: Sequence[str], options: Mapping[str, Any], seed: int) -> RuleSet:
    return RuleMiner(targets=targets, seed=seed, **options).fit(kb).rules_


def _lnn(kb: KnowledgeBase, targets: Sequence[str], options: Mapping[str, Any], seed: int) -> RuleSet:
    """Chains up to two relations long, of the most frequent relations, walked either way."""
    chosen = dict(options)
    near = most_frequent(kb, chosen.pop("relations"))
    template = chains(2, predicates=near, inverses=True)
    return LNNLearner(template, targets=targets, seed=seed, **chosen).fit(kb).rules_


def _nlil(kb: KnowledgeBase, targets: Sequence[str], options: Mapping[str, Any], seed: int) -> RuleSet:
    return NLILLearner(targets=targets, seed=seed, **options).fit(kb).rules_


LEARNERS: Mapping[str, Learner] = {"RuleMiner": _mine, "LNNLearner": _lnn, "NLILLearner": _nlil}
