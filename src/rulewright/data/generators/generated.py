"""What a generator returns, and how a complete knowledge base loses facts and gains wrong ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rulewright.data.facts import Column, group_by_signature
from rulewright.data.generators.sampling import distinct_keys, keys_of, rows_of
from rulewright.data.knowledge_base import KnowledgeBase
from rulewright.logic import NUMBER_TYPE, RuleSet


@dataclass(frozen=True)
class Generated:
    """A knowledge base with what is known of how it came about.

    ``rules`` hold on the truth. ``hidden`` has the true facts that were left out of ``kb``, ``noise`` the false
    facts that were put in; both are over the entities and predicates of ``kb``.
    """

    kb: KnowledgeBase
    rules: RuleSet
    hidden: KnowledgeBase
    noise: KnowledgeBase


def corrupted(
    truth: KnowledgeBase, rules: RuleSet, *, missing: float, noise: float, random: np.random.Generator
) -> Generated:
    """Hide a share of the facts at random and add a share of wrong ones, of each predicate in proportion.

    A wrong fact has arguments of the right types and is not true, nor among the hidden. Where a predicate has
    fewer wrong facts than the share asks for, all of them are added.
    """
    kept, hidden = truth, truth.derived({})
    if missing:
        kept, hidden = truth.hold_out(missing, seed=int(random.integers(2**32)))
    wrong = {}
    if noise:
        wrong = {name: _wrong_facts(truth, name, noise, random) for name in truth.predicates if truth.count(name)}
        columns = {
            name: [np.concatenate(pair) for pair in zip(kept.columns(name), added, strict=True)]
            for name, added in wrong.items()
        }
        kept = truth.derived(group_by_signature(truth.predicates, columns))
    return Generated(kept, rules, hidden, truth.derived(group_by_signature(truth.predicates, wrong)))


def _wrong_facts(truth: KnowledgeBase, name: str, share: float, random: np.random.Generator) -> list[Column]:
    columns = truth.columns(name)
    firsts, sizes = [], []
    for kind, column in zip(truth.predicate(name).types, columns, strict=True):
        if kind == NUMBER_TYPE:
            firsts.append(int(column.min()))
            sizes.append(int(column.max()) - firsts[-1] + 1)
        else:
            firsts.append(truth.domains[kind].start)
            sizes.append(len(truth.domains[kind]))
    true = keys_of([column - first for column, first in zip(columns, firsts, strict=True)], sizes)
    space = int(np.prod(sizes, dtype=object))
    count = min(round(share * len(true)), space - len(true))
    drawn = rows_of(distinct_keys(random, space=space, count=count, excluded=true), sizes)
    return [(digit + first).astype(column.dtype) for digit, first, column in zip(drawn, firsts, columns, strict=True)]
