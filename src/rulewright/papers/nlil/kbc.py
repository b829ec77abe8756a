"""Knowledge-base completion by rules that transformers wrote (Table 1 of the paper)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rulewright import datasets
from rulewright.learn.nlil.completion import NLILCompletion
from rulewright.learn.nlil.learner import NLILLearner
from rulewright.learn.path_mixture.learner import PathMixture
from rulewright.papers.catalogue import Experiment
from rulewright.papers.completion_runs import COLUMNS, choose_readable, make_progress, rank_splits


def run(experiment: Experiment, *, seed: int, folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Learn, or go on learning, the rules of a graph; rank valid and test; return the figures beside the paper's."""
    settings: Any = experiment.settings
    kb = datasets.load(str(settings["set"]))
    progress = make_progress(tell, "relations")
    learner = NLILLearner(levels=0, seed=seed, **settings["options"])
    completion = NLILCompletion(
        learner=learner,
        mixture=PathMixture(seed=seed, **settings["weighing"]),
        folder=folder,
        progress=progress,
    ).fit(kb)
    learned = time.process_time()
    ranked, by_split = rank_splits(completion, kb, ("valid", "test"), tell)
    untrained = "" if learner.epochs else ", untrained"
    rows = {f"{row}{untrained}": figures for row, figures in ranked.items()}
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "seed": seed,
        "columns": COLUMNS,
        "rows": {**rows, **settings.get("paper", {})},
        "ties": "mean",
        "scores": "hard: the extracted rules, weighted",
        "written": sum(map(len, completion.paths_.values())),
        "rules": sum(len(target.table) for target in completion.learned_.values()),
        "core_seconds": {  # of earlier runs too, where learning went on
            "learning": round(completion.seconds_, 1),
            "ranking": round(time.process_time() - learned, 1),
        },
        "splits": by_split,
        "readable": choose_readable(completion.rules_.rules, kb, count=2, seed=seed),
    }
