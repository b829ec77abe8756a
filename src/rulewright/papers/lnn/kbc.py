"""Knowledge-base completion by mixtures of paths (Table 2 of the paper, and the readable rules of Table 3)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rulewright import datasets
from rulewright.learn.path_mixture.learner import PathMixture
from rulewright.learn.path_mixture.pruning import prune_targets
from rulewright.papers.catalogue import Experiment
from rulewright.papers.completion_runs import COLUMNS, choose_readable, make_progress, rank_splits
from rulewright.reason.ranking import RuleRanker

PRUNING_LOSS = 0.002
"""By how much MRR on valid may fall for fewer rules."""


def run(experiment: Experiment, *, seed: int, folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Learn, or go on learning, the rules of a graph; rank valid and test; return the figures beside the paper's."""
    settings: Any = experiment.settings
    kb = datasets.load(str(settings["set"]))
    options = settings["options"]
    progress = make_progress(tell, "questions learned")
    mixture = PathMixture(seed=seed, processes=os.cpu_count() or 1, folder=folder, progress=progress, **options).fit(kb)
    learned = time.process_time()
    rows, by_split = rank_splits(mixture, kb, ("valid", "test"), tell)
    ranked = time.process_time()
    pruned = prune_targets(mixture.learned_, kb, loss=PRUNING_LOSS, threads=mixture.processes)
    tables = {step: (target.table, target.weights) for step, target in pruned.items()}
    tell("pruned")
    pruned_rows, _ = rank_splits(RuleRanker(kb, tables, threads=mixture.processes), kb, ("valid", "test"), tell)
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "columns": COLUMNS,
        "rows": {**rows, **settings.get("paper", {})},
        "seed": seed,
        "ties": "mean",
        "options": dict(options),
        "rules": sum(len(each.table) for each in mixture.learned_.values()),
        "seconds": {  # of one core
            "learning": round(sum(each.seconds for each in mixture.learned_.values()), 1),
            "ranking": round(ranked - learned, 1),
        },
        "pruned": {
            "loss": PRUNING_LOSS,
            "rules": sum(len(target.table) for target in pruned.values()),
            "rows": pruned_rows,
        },
        "splits": by_split,
        "readable": choose_readable(mixture.rules_.rules, kb, count=3, seed=seed),
    }
