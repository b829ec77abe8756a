"""Knowledge-base completion: one mixture of relation paths for every relation, learned from the graph itself."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from functools import cached_property
from hashlib import sha256
from pathlib import Path as FilePath
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase, signature
from rulewright.engine.evidence import RuleForm, RuleTable
from rulewright.engine.walks import Graph, find_relation
from rulewright.errors import DataError, FileError
from rulewright.files import write_text
from rulewright.learn.path_mixture.target import MixtureOptions, Target, learn_target
from rulewright.logic import Path, RuleSet, mirror_path
from rulewright.reason.rank import RuleRanker

_COLUMNS = ("path_index", "form", "constant", "end")
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
        file = self._file(target.table.step)
        columns = {name: getattr(target.table, name) for name in _COLUMNS}
        figures = {name: getattr(target, name) for name in ("weights", "support", "body", "seconds")}
        part = file.with_suffix(".part.npz")
        np.savez_compressed(part, paths=np.array(json.dumps(target.table.paths)), **columns, **figures)
        part.replace(file)


def with_shared(learned: Mapping[int, Target], share: float) -> dict[int, Target]:
    """Add to each path's weight ``share`` times what it weighs in the other direction.

    >>> def target(relation, path, weight):
    ...     return Target(RuleTable.of_paths(relation, [path]), np.array([weight]), np.ones(1), np.ones(1))
    >>> found = with_shared({0: target(0, (2, 4), 1.0), 1: target(1, (5, 3), 2.0)}, 0.5)
    >>> found[0].weights.tolist(), found[1].weights.tolist()
    ([2.0], [2.5])
    """
    if share == 0:
        return dict(learned)
    return {
        relation: _joined(target, learned[relation ^ 1], share) if relation ^ 1 in learned else target
        for relation, target in learned.items()
    }


def _joined(target: Target, other: Target, share: float) -> Target:
    own = _closed(target)
    back = {mirror_path(path): place for path, place in _closed(other).items()}
    weights = target.weights.copy()
    both = [path for path in own if path in back]
    weights[[own[path] for path in both]] += share * other.weights[[back[path] for path in both]]
    more = [path for path in back if path not in own]
    places = np.array([back[path] for path in more], dtype=np.int64)
    table = target.table.join(RuleTable.of_paths(target.table.step, more, target.table.ways))
    return Target(
        table,
        np.concatenate([weights, share * other.weights[places]]),
        np.concatenate([target.support, other.support[places]]),
        np.concatenate([target.body, other.body[places]]),
        target.seconds,
    )


def _closed(target: Target) -> dict[Path, int]:
    """Return where the rule of each path stands."""
    table = target.table
    return {table.paths[table.path_index[place]]: int(place) for place in np.flatnonzero(table.form == RuleForm.CLOSED)}


Progress = Callable[[int, int], None]


class PathMixture:
    """Answers ``r(h, ?)`` and ``r(?, t)`` by a weighted sum of rules: an LNN-pred over paths for each relation.

    ``ψ_r(x, y) = 1 − relu1(β − Σ_P w_P ψ_P(x, y))`` with ``w ≥ 0``; ``ψ_P`` is 1 where path ``P`` joins ``x`` to ``y``,
    or more for more ways (``ways``: once, counted or telling, see `truth`).
    Since ψ grows with the sum, candidates are ranked by the sum, which never saturates. Beside paths of up to
    ``max_length`` relations (the ``max_paths`` best of those found on ``sample`` facts), the mixture has rules that
    name entities (``constants``: the relations in their body, 0 for none). Paths of up to ``negated`` relations may be
    negated: what else joins ``x`` and ``y``, or that they are one, may speak against ``r``. Both directions of a
    relation have weights of their own; a path weighs, beside its own, ``shared`` times that of the other direction.
    Where ``paths`` are given, by relation, these are weighed and none are looked for.

    Training asks ``questions`` facts of each relation on the graph without that very fact (exactly, for every candidate
    and any path), and raises the answer above all other entities by the ``loss`` (softmax, logistic or margin); ``l2``
    holds the weights near ``prior`` times ``−log(1 − confidence)``. Where the knowledge base has a split ``valid``,
    training stops when the loss there no longer falls. What is learned is kept in ``folder``, where one is given: the
    same call goes on where it was stopped.

    >>> kb = KnowledgeBase.from_triples(
    ...     [(f"a{i}", "p", f"b{i}") for i in range(9)] + [(f"b{i}", "q", f"a{i}") for i in range(8)]
    ... )
    >>> mixture = PathMixture(max_length=1, constants=0).fit(kb)
    >>> mixture.ranker_.answers("q", "b8", 1)[0][0]
    'a8'
    """

    def __init__(
        self,
        *,
        targets: Iterable[str] | None = None,
        paths: Mapping[str, Sequence[Path]] | None = None,
        seed: int = 0,
        folder: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
        **options: Any,
    ) -> None:
        known = {field.name for field in fields(MixtureOptions)}
        for name in options:
            if name not in known:
                raise DataError(f"unknown option {name!r}; known: {', '.join(sorted(known))}")
        self.options = MixtureOptions(**options)
        self.targets = None if targets is None else tuple(targets)
        self.paths = paths
        self.seed = seed
        self.folder = folder
        self.progress = progress
        self.learned_: dict[int, Target] = {}

    def fit(self, kb: KnowledgeBase) -> Self:
        """Learn the rules of every relation, or of the targets."""
        numbers = [kb.predicate_index(name) for name, each in kb.predicates.items() if signature(each) == "ee"]
        if not numbers:
            raise DataError("no predicate has two entities as arguments, so there are no paths to learn from")
        if self.targets is not None:
            numbers = [find_relation(kb, name) for name in self.targets]
            for name in self.targets:
                if kb.count(name) == 0:
                    raise DataError(f"{name} has no facts, so there is nothing to learn it from")
        graph = Graph.of(kb)
        valid = Graph.of(kb.splits["valid"]) if "valid" in kb.splits else None
        given = None if self.paths is None else self._both_ways(kb, self.paths)
        saved = None if self.folder is None else SavedTargets(self.folder, kb, self.options, self.seed, given)
        self._kb = kb
        self.learned_ = {}
        vars(self).pop("rules_", None)
        none = np.zeros(0, dtype=np.int64)
        for done, relation in enumerate(2 * number + inverse for number in numbers for inverse in (0, 1)):
            target = None if saved is None else saved.load(relation)
            if target is None:
                edges = (none, none) if valid is None else valid.edges(relation)
                paths = None if given is None else given[relation]
                target = learn_target(graph, relation, self.options, edges, seed=self.seed, paths=paths)
                if target is not None and saved is not None:
                    saved.save(target)
            if target is not None:
                self.learned_[relation] = target
            if self.progress is not None:
                self.progress(done + 1, 2 * len(numbers))
        self.learned_ = with_shared(self.learned_, self.options.shared)
        self.ranker_ = RuleRanker(
            kb, {relation: (each.table, each.weights) for relation, each in self.learned_.items()}
        )
        return self

    @staticmethod
    def _both_ways(kb: KnowledgeBase, paths: Mapping[str, Sequence[Path]]) -> dict[int, tuple[Path, ...]]:
        """Return the given paths of each relation and of its inverse."""
        found: dict[int, tuple[Path, ...]] = dict.fromkeys(range(2 * len(kb.predicates)), ())
        for name, mine in paths.items():
            number = 2 * find_relation(kb, name)
            found[number], found[number + 1] = tuple(mine), tuple(map(mirror_path, mine))
        return found

    def scores(
        self, relation: str, entities: npt.NDArray[np.int64], *, inverse: bool = False
    ) -> npt.NDArray[np.float64]:
        """Return a row for each entity: how well every entity answers ``relation(h, ?)``, or ``relation(?, h)``."""
        return self.ranker_.scores(relation, entities, inverse=inverse)

    @cached_property
    def rules_(self) -> RuleSet:
        """The rules with their weights, in the common language; what speaks against a relation is a formula."""
        from rulewright.learn.path_mixture.rules import written

        return written(self.learned_, self._kb)
