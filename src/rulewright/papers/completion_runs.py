"""What runs of knowledge-base completion share: progress, ranks of each split, and a few rules to read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from rulewright.checks import Progress
from rulewright.data import KnowledgeBase
from rulewright.evaluate.ranking import Scorer, evaluate_ranking
from rulewright.logic import Rule

COLUMNS = ("mrr", "hits@1", "hits@3", "hits@10")
READABLE_RELATIONS = 10
"""Rules are kept for the relations with most facts: a page shows no more."""

Tell = Callable[[str], None]


def make_progress(tell: Tell, what: str, *, seconds: float = 30) -> Progress:
    """Return what tells of progress at the end and from time to time before it."""
    started, latest = time.process_time(), time.monotonic()

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal latest
        if time.monotonic() - latest > seconds or done == total:
            latest = time.monotonic()
            tell(f"{done} of {total} {what}, {time.process_time() - started:.0f} s of one core")

    return progress


def rank_splits(
    scorer: Scorer, kb: KnowledgeBase, splits: Sequence[str], tell: Tell
) -> tuple[dict[str, dict[str, float]], dict[str, Any]]:
    """Return a row of figures for each split, and the same by direction; single relations are left to ``evaluate``."""
    rows, by_split = {}, {}
    for split in splits:
        scores = evaluate_ranking(scorer, kb, split)
        rows[f"ours, {split}"] = dict(scores.figures())
        by_split[split] = {name: value for name, value in scores.as_dict().items() if name != "by_relation"}
        tell(f"{split}: {scores}")
    return rows, by_split


def choose_readable(rules: Iterable[Rule], kb: KnowledgeBase, *, count: int) -> dict[str, list[str]]:
    """Return the first ``count`` rules of each of the relations with most facts.

    >>> from rulewright.logic import parse_rules
    >>> kb = KnowledgeBase.from_triples([("ann", "knows", "bob"), ("ann", "likes", "bob"), ("bob", "likes", "ann")])
    >>> rules = parse_rules("likes(X, Y) :- knows(X, Y). likes(X, Y) :- likes(Y, X). knows(X, Y) :- likes(X, Y).")
    >>> choose_readable(rules.rules, kb, count=1)
    {'likes': ['likes(X, Y) :- knows(X, Y).'], 'knows': ['knows(X, Y) :- likes(X, Y).']}
    """
    names = [*kb.predicates]
    order = np.argsort([-kb.count(name) for name in names], kind="stable")[:READABLE_RELATIONS]
    by_relation: dict[str, list[str]] = {names[index]: [] for index in order}
    for rule in rules:
        written = by_relation.get(str(rule.head.predicate))
        if written is not None and len(written) < count:
            written.append(str(rule))
    return {name: texts for name, texts in by_relation.items() if texts}
