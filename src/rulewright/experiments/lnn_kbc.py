"""Knowledge-base completion by mixtures of paths (Table 2 of the paper, and the readable rules of Table 3)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rulewright import datasets
from rulewright.data import KnowledgeBase
from rulewright.evaluate.ranking import evaluate_ranking
from rulewright.experiments.catalogue import Experiment
from rulewright.learn.completion import PathMixture
from rulewright.logic import Rule, RuleSet

COLUMNS = ("mrr", "hits@1", "hits@3", "hits@10")


def run(experiment: Experiment, *, seed: int, folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Learn, or go on learning, the rules of a graph; rank valid and test; return the figures beside the paper's."""
    settings = experiment.settings
    kb = datasets.load(str(settings["set"]))
    options = settings["options"]
    assert isinstance(options, Mapping)
    started = time.process_time()
    latest = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal latest
        if time.monotonic() - latest > 30 or done == total:
            latest = time.monotonic()
            tell(f"{done} of {total} questions learned, {time.process_time() - started:.0f} s of one core")

    mixture = PathMixture(seed=seed, folder=folder, progress=progress, **options).fit(kb)
    learned = time.process_time()
    rows: dict[str, Mapping[str, float]] = {}
    by_split = {}
    for split in ("valid", "test"):
        scores = evaluate_ranking(mixture, kb, split)
        by_split[split] = scores.as_dict()
        rows[f"ours, {split}"] = scores.figures()
    ranked = time.process_time()
    paper = settings.get("paper", {})
    assert isinstance(paper, Mapping)
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "columns": COLUMNS,
        "rows": {**rows, **paper},
        "seed": seed,
        "ties": "mean",
        "options": dict(options),
        "rules": sum(len(each.table) for each in mixture.learned_.values()),
        "seconds": {  # of one core
            "learning": round(sum(each.seconds for each in mixture.learned_.values()), 1),
            "ranking": round(ranked - learned, 1),
        },
        "splits": by_split,
        "readable": _readable(mixture.rules_, kb),
    }


def _readable(rules: RuleSet, kb: KnowledgeBase, count: int = 3) -> dict[str, list[str]]:
    """Return the heaviest path rules of each relation: those without constants."""
    found: dict[str, list[str]] = {name: [] for name in kb.predicates}
    for rule in rules.rules:
        mine = found[str(rule.head.predicate)]
        if len(mine) < count and _is_path(rule):
            mine.append(str(rule))
    return {name: written for name, written in found.items() if written}


def _is_path(rule: Rule) -> bool:
    from rulewright.logic import Chain

    return Chain.of(rule) is not None
