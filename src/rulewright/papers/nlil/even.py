"""Even numbers: the target is explained by itself, two successors further, and zero must be explained too."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rulewright.data import KnowledgeBase
from rulewright.data.generators import even_successor
from rulewright.learn.nlil.learner import NLILLearner
from rulewright.logic import RuleSet
from rulewright.papers.catalogue import Experiment
from rulewright.reason import apply

TARGET = "even"


def run(experiment: Experiment, *, seed: int, folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Learn the rules of even numbers 0 … n and measure them: asked one by one, and derived from nothing but zero.

    ``untrained`` has the figures of the same options but for epochs: rules are drawn from a generator that learned
    nothing.
    """
    settings: Any = experiment.settings
    kb = even_successor(int(settings["n"])).kb
    even = set(kb.columns(TARGET)[0].tolist())
    entities = np.arange(kb.n_entities)

    def learn(options: dict[str, Any]) -> dict[str, Any]:
        began, core_began = time.monotonic(), time.process_time()
        learner = NLILLearner(targets=[TARGET], seed=seed, held_out=0, **options).fit(kb)
        seconds, core_seconds = time.monotonic() - began, time.process_time() - core_began
        inferred = set(entities[learner.scores(TARGET, [entities]) > 0.5].tolist())
        derived = derive_alone(learner.rules_, kb)
        return {
            "rows": {"asked one by one": measure(inferred, even), "derived from zero": measure(derived, even)},
            "exact": inferred == even and derived == even,
            "zero": 0 in inferred and 0 in derived,
            "rounds": learner.learned_[TARGET].n_rounds,
            "read": learner.learned_[TARGET].n_read,
            "rules": [str(rule) for rule in learner.rules_],
            "seconds": round(seconds, 1),
            "core_seconds": round(core_seconds, 1),
        }

    trained = learn(settings["options"])
    for rule in trained["rules"]:
        tell(rule)
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "seed": seed,
        "columns": ["precision", "recall"],
        **trained,
        "untrained": learn({**settings["options"], "epochs": 0}),
        "paper": settings.get("paper"),
    }


def derive_alone(rules: RuleSet, kb: KnowledgeBase) -> set[int]:
    """Return what rules derive of the target where none of its facts is given."""
    target_index = kb.predicate_index(TARGET)
    tables = {name: table.keep_rows(table.predicate != target_index) for name, table in kb.tables().items()}
    return set(apply(rules, kb.with_facts(tables), max_rounds=None).facts.columns(TARGET)[0].tolist())


def measure(derived: set[int], wanted: set[int]) -> dict[str, float]:
    """Return precision and recall.

    >>> measure({0, 2, 3}, {0, 2, 4})
    {'precision': 0.6666666666666666, 'recall': 0.6666666666666666}
    """
    right = len(derived & wanted)
    return {"precision": right / len(derived) if derived else 0.0, "recall": right / len(wanted)}
