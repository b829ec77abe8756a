"""Learned targets on disk: a run that was stopped goes on where it was."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path as FilePath

import numpy as np

from rulewright.data import KnowledgeBase
from rulewright.engine.walks import Path
from rulewright.errors import FileError
from rulewright.files import write_text
from rulewright.learn.completion_target import MixtureOptions, Target
from rulewright.reason.evidence import RuleTable

_COLUMNS = ("path", "kind", "constant", "end")
_AFTERWARDS = ("shared",)
"""Options that matter only when all targets are learned: they may change between two runs."""


class SavedTargets:
    """A folder with a file for each target, of one data set and one choice of options."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        kb: KnowledgeBase,
        options: MixtureOptions,
        seed: int,
        paths: Mapping[int, Sequence[Path]] | None = None,
    ) -> None:
        self.folder, self.ways = FilePath(folder), options.ways
        self.folder.mkdir(parents=True, exist_ok=True)
        wanted = {
            "options": {name: value for name, value in asdict(options).items() if name not in _AFTERWARDS},
            "seed": seed,
            "entities": kb.n_entities,
            "relations": len(kb.predicates),
            "facts": kb.n_facts,
        }
        if paths is not None:
            wanted["paths"] = sha256(repr(sorted(paths.items())).encode()).hexdigest()
        settings = self.folder / "settings.json"
        if settings.exists():
            if json.loads(settings.read_text(encoding="utf-8")) != wanted:
                raise FileError(f"{settings} is of a run with other facts or options; choose another folder")
        else:
            write_text(settings, json.dumps(wanted, indent=1) + "\n")

    def _file(self, relation: int) -> FilePath:
        return self.folder / f"target_{relation}.npz"

    def load(self, relation: int) -> Target | None:
        """Return a target that was learned before."""
        file = self._file(relation)
        if not file.exists():
            return None
        with np.load(file, allow_pickle=False) as held:
            paths = tuple(tuple(each) for each in json.loads(str(held["paths"])))
            path, kind, constant, end = (held[name] for name in _COLUMNS)
            table = RuleTable(relation, paths, path, kind, constant, end, self.ways)
            return Target(table, held["weights"], held["support"], held["body"], float(held["seconds"]))

    def save(self, target: Target) -> None:
        """Keep a target, in one step."""
        file = self._file(target.table.relation)
        columns = {name: getattr(target.table, name) for name in _COLUMNS}
        figures = {name: getattr(target, name) for name in ("weights", "support", "body", "seconds")}
        part = file.with_suffix(".part.npz")
        np.savez_compressed(part, paths=np.array(json.dumps(target.table.paths)), **columns, **figures)
        part.replace(file)
