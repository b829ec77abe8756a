"""Knowledge-base completion by rules that transformers wrote (Table 1 of the paper)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rulewright import datasets
from rulewright.evaluate.ranking import evaluate_ranking
from rulewright.experiments.catalogue import Experiment
from rulewright.learn.nlil.completion import NLILCompletion
from rulewright.logic import Rule

COLUMNS = ("mrr", "hits@1", "hits@3", "hits@10")


def run(experiment: Experiment, *, seed: int, folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Learn, or go on learning, the rules of a graph; rank valid and test; return the figures beside the paper's."""
    settings: Any = experiment.settings
    kb = datasets.load(str(settings["set"]))
    started, began = time.process_time(), time.monotonic()
    latest = began

    def progress(done: int, total: int) -> None:
        nonlocal latest
        if time.monotonic() - latest > 30 or done == total:
            latest = time.monotonic()
            tell(f"{done} of {total} relations, {time.process_time() - started:.0f} s of one core")

    completion = NLILCompletion(seed=seed, folder=folder, progress=progress, **settings["options"]).fit(kb)
    learned = time.process_time()
    rows: dict[str, Any] = {}
    by_split = {}
    for split in settings.get("splits", ("valid", "test")):
        scores = evaluate_ranking(completion, kb, split)
        by_split[split] = scores.as_dict()
        rows[f"ours, {split}"] = scores.figures()
        tell(f"{split}: {scores}")
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "seed": seed,
        "columns": COLUMNS,
        "rows": {**rows, **settings.get("paper", {})},
        "ties": "mean",
        "scores": "hard: the extracted rules, weighted",
        "written": sum(map(len, completion.paths_.values())),
        "rules": sum(len(each.table) for each in completion.learned_.values()),
        "core_seconds": {
            "learning": round(learned - started, 1),
            "ranking": round(time.process_time() - learned, 1),
        },
        "seconds": round(time.monotonic() - began, 1),
        "splits": by_split,
        "readable": readable(completion.rules_.rules),
    }


def readable(rules: tuple[Rule, ...], count: int = 2) -> dict[str, list[str]]:
    """Return the heaviest rules of each relation."""
    found: dict[str, list[str]] = {}
    for rule in rules:
        mine = found.setdefault(str(rule.head.predicate), [])
        if len(mine) < count:
            mine.append(str(rule))
    return found
