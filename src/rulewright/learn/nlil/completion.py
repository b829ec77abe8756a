"""Knowledge-base completion by extracted rules: transformers write the paths, ranking weighs them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path as FilePath
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase, signature
from rulewright.data.index import Ids
from rulewright.errors import DataError, FileError
from rulewright.files import read_text, write_text
from rulewright.learn.nlil.facts import FactGraph
from rulewright.learn.nlil.generator import Shape
from rulewright.learn.nlil.questions import Task, with_wrong_pairs
from rulewright.learn.nlil.rounds import Rules, Search, SearchOptions, balance, unexplained
from rulewright.learn.nlil.selection import counted, joined_path
from rulewright.learn.nlil.training import RoundOptions
from rulewright.learn.path_mixture.learner import PathMixture
from rulewright.learn.path_mixture.target import MixtureOptions, Target
from rulewright.logic import Path, RuleSet
from rulewright.reason.rank import RuleRanker

Floats = npt.NDArray[np.float64]
_WEIGHING = (
    "ways",
    "negated",
    "questions",
    "candidates",
    "loss",
    "l1",
    "l2",
    "prior",
    "shared",
    "iterations",
    "min_valid",
)
"""The options of `MixtureOptions` that tell how paths are weighed, not how they are found."""


@dataclass(frozen=True)
class FactOptions:
    """Which facts generators of a relation are trained on: see `NLILCompletion`."""

    max_facts: int = 500
    negatives: int = 4
    hide_pair: bool = False

    def __post_init__(self) -> None:
        for name in ("max_facts", "negatives"):
            if getattr(self, name) < 1:
                raise DataError(f"{name} must be >= 1, got {getattr(self, name)}")


class NLILCompletion:
    """Answers ``r(h, ?)`` and ``r(?, t)`` by chain rules that transformers wrote, each with a fitted weight.

    For each relation a generator is trained on ``max_facts`` facts with ``negatives`` checked wrong pairs beside each,
    every fact hidden from itself; its rules are read off, likeliest and drawn ones, and the next of the ``rounds`` is
    about what they leave unexplained. With ``hide_pair`` a fact is hidden together with all others between its two
    entities, for graphs whose questions are about pairs that nothing joins. The paths of these rules, and no others,
    are then weighed by a `PathMixture`, for each direction of the question. Options are those of `NLILLearner`, with
    ``levels=0``, and those by which a `PathMixture` weighs (``questions``, ``negated``, ``l2``, …). What is learned is
    kept in ``folder``, relation by relation.

    ``ranker_`` ranks; ``rules_`` are the rules in the common language, with ``weight`` and ``weight_inverse``.
    """

    def __init__(
        self,
        *,
        targets: Iterable[str] | None = None,
        seed: int = 0,
        folder: str | os.PathLike[str] | None = None,
        progress: Callable[[int, int], None] | None = None,
        **options: Any,
    ) -> None:
        given = {"levels": 0, "steps": 1, **options}
        kinds: dict[str, type] = dict.fromkeys(_WEIGHING, MixtureOptions)
        kinds |= {f.name: kind for kind in (Shape, RoundOptions, SearchOptions, FactOptions) for f in fields(kind)}
        for name in given:
            if name not in kinds:
                raise DataError(f"unknown option {name!r}; known: {', '.join(sorted(kinds))}")
        if given["levels"]:
            raise DataError(f"ranking takes chain rules, so levels must be 0, got {given['levels']}")

        def of(kind: type) -> dict[str, Any]:
            return {name: value for name, value in given.items() if kinds[name] is kind}

        self.shape, self.training = Shape(**of(Shape)), RoundOptions(**of(RoundOptions))
        self.search, self.facts = SearchOptions(**of(SearchOptions)), FactOptions(**of(FactOptions))
        self.folder = None if folder is None else FilePath(folder)
        self.targets = None if targets is None else tuple(targets)
        self.seed, self.progress = seed, progress
        self.mixture = PathMixture(
            targets=self.targets,
            seed=seed,
            folder=None if self.folder is None else self.folder / "weights",
            constants=0,
            **of(MixtureOptions),
        )
        self.paths_: dict[str, tuple[Path, ...]] = {}

    def fit(self, kb: KnowledgeBase) -> Self:
        """Learn the rules of every relation, or of the targets."""
        names = [name for name, each in kb.predicates.items() if signature(each) == "ee"]
        wanted = [name for name in names if kb.count(name)] if self.targets is None else list(self.targets)
        facts = FactGraph(kb)
        self._kb, self.paths_ = kb, {}
        steps = 2 * len(wanted)  # the second half of them is spent on weights
        for done, name in enumerate(wanted):
            self.paths_[name] = self._saved(facts, name)
            self._tell(done + 1, steps)
        self.mixture.paths = self.paths_
        self.mixture.progress = lambda done, total: self._tell(len(wanted) + done * len(wanted) // total, steps)
        self.mixture.fit(kb)
        return self

    def _tell(self, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(done, total)

    @property
    def learned_(self) -> dict[int, Target]:
        """The weighed rules of each relation and of its inverse."""
        return self.mixture.learned_

    @property
    def ranker_(self) -> RuleRanker:
        """What ranks answers."""
        return self.mixture.ranker_

    @property
    def rules_(self) -> RuleSet:
        """The rules with their weights, in the common language; what speaks against a relation is a formula."""
        return self.mixture.rules_

    def scores(self, relation: str, entities: Ids, *, inverse: bool = False) -> Floats:
        """Return a row for each entity: how well every entity answers ``relation(h, ?)``, or ``relation(?, h)``."""
        return self.mixture.scores(relation, entities, inverse=inverse)

    def _written(self, facts: FactGraph, name: str) -> tuple[Path, ...]:
        """Train generators for a relation and return the paths of the rules that they wrote."""
        task = Task.of(facts, (name,))
        task = replace(task, hidden=replace(task.hidden, pair=self.facts.hide_pair))
        search = Search(task, self.shape, self.training, self.search, seed=self.seed, folder=None, tell=None)
        known = task.facts(facts.kb)
        false = task.facts(facts.kb, truth=False)
        relations = [facts.kb.predicate_index(each) for each in facts.vocabulary.binary]
        rules: Rules = set()
        for number in range(self.search.rounds):
            some = np.random.default_rng([self.seed, number]).permutation(len(known[0]))[: self.facts.max_facts]
            mine = tuple(column[np.sort(some)] for column in known)
            asked = with_wrong_pairs(
                mine, known, facts, ratio=self.facts.negatives, seed=self.seed + number, false=false
            )
            left = np.ones(asked.truth.shape)
            if rules:  # what earlier rounds explain weighs less
                reach = search.reach((each for _, each in rules), self.training.max_edges)
                left = unexplained(counted(rules, task, reach, asked), asked.truth.shape)
            rules |= search.round(asked, balance(asked.truth, left))
        found: dict[Path, None] = {}
        for _, conjunction in sorted(rules, key=repr):
            for literal, positive in conjunction:
                if not positive or literal.left is None or literal.right is None:
                    continue
                steps = joined_path(literal, search.numbers)
                if max(steps) <= search.numbers.relations:  # a path that asks for a mark is no chain of relations
                    found[tuple(2 * relations[(each - 1) // 2] + (each - 1) % 2 for each in steps)] = None
        return tuple(found)

    def _saved(self, facts: FactGraph, name: str) -> tuple[Path, ...]:
        """Return the paths that an earlier run wrote for a relation with the same options, or write and keep them."""
        if self.folder is None:
            return self._written(facts, name)
        safe = "".join(each if each.isalnum() or each in "-_" else f"%{ord(each):02x}" for each in name)
        file = self.folder / f"{safe}.json"
        kinds = (self.shape, self.training, self.search, self.facts)
        options = {**{key: value for each in kinds for key, value in asdict(each).items()}, "seed": self.seed}
        if file.exists():
            held = json.loads(read_text(file))
            if held["options"] != options or held["facts"] != self._kb.n_facts:
                raise FileError(f"{file} is of a run with other facts or options; choose another folder")
            return tuple(tuple(each) for each in held["paths"])
        paths = self._written(facts, name)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps({"options": options, "facts": self._kb.n_facts, "paths": paths}) + "\n")
        return paths
