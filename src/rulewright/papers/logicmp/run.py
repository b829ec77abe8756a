"""LogicMP's tables: rules as a layer of the network, on forms, sentences and knowledge bases."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from rulewright.errors import unknown_name
from rulewright.papers.catalogue import Experiment

TASKS = ("forms", "graphs", "tags")
"""The values of ``task``, each a module ``logicmp_<task>`` with the same ``run``."""


def run(experiment: Experiment, *, seed: int, folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run an experiment, or go on with it where it was stopped, and return its figures."""
    task = str(experiment.settings["task"])
    if task not in TASKS:
        raise unknown_name("task", task, TASKS)
    found: dict[str, Any] = import_module(f"rulewright.papers.logicmp.{task}").run(
        experiment, seed=seed, folder=folder, tell=tell
    )
    return found
