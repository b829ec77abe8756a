"""The experiments by name: ``family/name``, each with its settings and the function that runs it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from rulewright.errors import unknown_name


@dataclass(frozen=True)
class Experiment:
    """A named experiment; ``settings`` are those of its file, the shared ones first."""

    name: str
    title: str
    settings: Mapping[str, object]

    @property
    def family(self) -> str:
        """The folder of its paper."""
        return self.name.partition("/")[0]

    @property
    def needs_data(self) -> bool:
        """Whether its data is a folder that a user gives."""
        return self.settings.get("set") == ""


class PaperRun(Protocol):
    """Runs an experiment, or goes on with it where ``folder`` says it stopped, and returns its figures."""

    def __call__(
        self, experiment: Experiment, *, seed: int, folder: Path, tell: Callable[[str], None]
    ) -> dict[str, Any]:
        """Run it; ``tell`` shows how far it has come."""
        ...


TASKS: Mapping[str, tuple[str, ...]] = {
    "lnn": ("countries", "gridworld", "kbc", "leaf"),
    "logicmp": ("forms", "graphs", "tags"),
    "matrix": ("run",),
    "milr": ("run",),
    "nlil": ("even", "scenes", "kbc"),
    "rules_that_pay": ("run", "teaching"),
}
"""The modules of each family that have a ``run``; the setting ``task`` of an experiment chooses one of them."""


def load_run(experiment: Experiment) -> PaperRun:
    """Import the module that runs an experiment, which may load PyTorch, and return its function."""
    tasks = TASKS[experiment.family]
    task = str(experiment.settings.get("task", "run"))
    if task not in tasks:
        raise unknown_name("task", task, tasks)
    run: PaperRun = import_module(f"rulewright.papers.{experiment.family}.{task}").run
    return run


@lru_cache(maxsize=1)
def experiments() -> Mapping[str, Experiment]:
    """Return every experiment by name.

    >>> experiments()["milr/dwie_atlop"].settings["backbone"]
    'atlop'
    """
    by_name = {}
    for family in TASKS:
        settings_file = files("rulewright.papers") / family / "experiments.toml"
        tables = tomllib.loads(settings_file.read_text(encoding="utf-8"))
        shared = tables.pop("shared", {})
        for name, settings in tables.items():
            merged = {**shared, **settings}
            by_name[f"{family}/{name}"] = Experiment(f"{family}/{name}", str(merged.pop("title")), merged)
    return MappingProxyType(by_name)


def find_experiment(name: str) -> Experiment:
    """Return an experiment; an unknown name is an error that lists near ones."""
    known = experiments()
    if name not in known:
        raise unknown_name("experiment", name, known)
    return known[name]


def with_settings(experiment: Experiment, changed: Mapping[str, object]) -> Experiment:
    """Return an experiment with other settings; one that it does not have is an error that lists near ones.

    >>> with_settings(find_experiment("milr/dwie_atlop"), {"epochs": 3}).settings["epochs"]
    3
    """
    for name in changed:
        if name not in experiment.settings:
            raise unknown_name(f"setting of {experiment.name}", name, experiment.settings)
    return replace(experiment, settings={**experiment.settings, **changed})
