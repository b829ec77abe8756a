"""As few rules as keep what a mixture answers: those that say least are left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rulewright.checks import Real, check_parameter
from rulewright.data import KnowledgeBase
from rulewright.engine.walks import Floats
from rulewright.evaluate.ranking import evaluate_ranking
from rulewright.learn.path_mixture.target import Target
from rulewright.reason.ranking import RuleRanker

_TRIALS = 7
"""The share that is kept is found to this many halvings."""


def prune_targets(
    targets: Mapping[int, Target], kb: KnowledgeBase, *, loss: float = 0.002, split: str = "valid", threads: int = 1
) -> dict[int, Target]:
    """Return the targets with as few rules as keep the MRR on a split within ``loss`` of what it was.

    How much a rule says is ``|w| · √body``: what it weighs, and how often it spoke while it was learned. Of each query
    the rules that say most are kept, until they make up a share of what all of them say; the share is the same for all
    queries, and the least that will do is found by halving.

    >>> kb = KnowledgeBase.from_triples([("a", "p", "b"), ("b", "q", "a"), ("c", "p", "d")])
    >>> kb = kb.with_splits({"valid": kb.add([("q", "d", "c")]).remove(kb)})
    >>> from rulewright.engine.walks import RuleTable
    >>> table = RuleTable.of_paths(2, [(1,), (0,)])
    >>> target = Target(table, np.array([1.0, 0.01]), np.ones(2), np.ones(2))
    >>> prune_targets({2: target}, kb)[2].table.paths[0]
    (1,)
    """
    check_parameter("loss", loss, Real(0))

    def rank(kept: Mapping[int, Target]) -> float:
        tables = {step: (target.table, target.weights) for step, target in kept.items()}
        return evaluate_ranking(RuleRanker(kb, tables, threads=threads), kb, split).mrr

    least = rank(targets) - loss
    low, high, best = 0.0, 1.0, dict(targets)
    for _ in range(_TRIALS):
        share = (low + high) / 2
        kept = {step: keep_strongest(target, share) for step, target in targets.items()}
        if rank(kept) >= least:
            high, best = share, kept
        else:
            low = share
    return best


def keep_strongest(target: Target, share: float) -> Target:
    """Return a target with the rules that say most, which make up a share of what all of them say.

    >>> from rulewright.engine.walks import RuleTable
    >>> target = Target(RuleTable.of_paths(0, [(1,), (2,), (3,)]), np.array([1.0, -5.0, 4.0]), np.ones(3), np.ones(3))
    >>> keep_strongest(target, 0.5).weights.tolist(), keep_strongest(target, 0.6).weights.tolist()
    ([-5.0], [-5.0, 4.0])
    """
    strengths: Floats = np.abs(target.weights) * np.sqrt(target.body + 1)
    order = np.argsort(-strengths, kind="stable")
    before = np.cumsum(strengths[order]) - strengths[order]
    kept = np.sort(order[before < share * strengths.sum() * (1 - 1e-12)])
    columns = {name: getattr(target, name)[kept] for name in ("weights", "support", "body")}
    return replace(target, table=target.table.select(kept), **columns)
