"""Knowledge-base completion by mixtures of paths (Table 2 of the paper, and the readable rules of Table 3)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rulewright import datasets
from rulewright.learn.path_mixture.learner import PathMixture
from rulewright.papers.catalogue import Experiment
from rulewright.papers.completion_runs import COLUMNS, choose_readable, make_progress, rank_splits


def run(experiment: Experiment, *, seed: int, folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Learn, or go on learning, the rules of a graph; rank valid and test; return the figures beside the paper's."""
    settings: Any = experiment.settings
    kb = datasets.load(str(settings["set"]))
    options = settings["options"]
    progress = make_progress(tell, "questions learned")
    mixture = PathMixture(seed=seed, processes=os.cpu_count() or 1, folder=folder, progress=progress, **options).fit(kb)
    learned = time.process_time()
    rows, by_split = rank_splits(mixture, kb, ("valid", "test"), tell)
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
            "ranking": round(time.process_time() - learned, 1),
        },
        "splits": by_split,
        "readable": choose_readable(mixture.rules_.rules, kb, count=3, seed=seed),
    }
