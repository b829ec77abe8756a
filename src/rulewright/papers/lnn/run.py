"""The tables of rule learning with logical neural networks: Countries, gridworld, knowledge-base completion."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from rulewright.errors import unknown_name
from rulewright.papers.catalogue import Experiment

TASKS = ("countries", "gridworld", "kbc")
"""The values of ``task``, each a module ``lnn_<task>`` with the same ``run``."""


def run(experiment: Experiment, *, seed: int, folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run an experiment, or go on with it where it was stopped, and return its figures."""
    task = str(experiment.settings["task"])
    if task not in TASKS:
        raise unknown_name("task", task, TASKS)
    found: dict[str, Any] = import_module(f"rulewright.papers.lnn.{task}").run(
        experiment, seed=seed, folder=folder, tell=tell
    )
    return found
