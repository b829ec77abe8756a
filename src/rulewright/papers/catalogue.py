"""The experiments by name: ``family/name``, each with its settings."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType

from rulewright.errors import unknown_name


@dataclass(frozen=True)
class Experiment:
    """A named experiment; ``settings`` are those of its file, the shared ones first."""

    name: str
    title: str
    settings: Mapping[str, object]

    @property
    def family(self) -> str:
        """The module that runs it."""
        return self.name.partition("/")[0]


@lru_cache(maxsize=1)
def experiments() -> Mapping[str, Experiment]:
    """Return every experiment by name.

    >>> experiments()["milr/dwie_atlop"].settings["backbone"]
    'atlop'
    """
    found = {}
    folder = files("rulewright.papers")
    for file in sorted(folder.iterdir(), key=lambda each: each.name):
        if (settings_file := file / "experiments.toml").is_file():
            family = file.name
            tables = tomllib.loads(settings_file.read_text(encoding="utf-8"))
            shared = tables.pop("shared", {})
            for name, settings in tables.items():
                merged = {**shared, **settings}
                found[f"{family}/{name}"] = Experiment(f"{family}/{name}", str(merged.pop("title")), merged)
    return MappingProxyType(found)


def find(name: str) -> Experiment:
    """Return an experiment; an unknown name is an error that lists near ones."""
    known = experiments()
    if name not in known:
        raise unknown_name("experiment", name, known)
    return known[name]


def with_settings(experiment: Experiment, changed: Mapping[str, object]) -> Experiment:
    """Return an experiment with other settings; one that it does not have is an error that lists near ones.

    >>> with_settings(find("milr/dwie_atlop"), {"epochs": 3}).settings["epochs"]
    3
    """
    for name in changed:
        if name not in experiment.settings:
            raise unknown_name(f"setting of {experiment.name}", name, experiment.settings)
    return replace(experiment, settings={**experiment.settings, **changed})
