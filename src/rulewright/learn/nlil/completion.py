"""Knowledge-base completion by extracted rules: transformers write the paths, ranking weighs them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path as FilePath
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase, signature
from rulewright.engine.walks import Graph, Hidden, Path, mirrored
from rulewright.errors import DataError, FileError
from rulewright.files import read_text, write_text
from rulewright.learn.completion_rules import written
from rulewright.learn.completion_target import Target
from rulewright.learn.nlil.facts import FactGraph, Ids
from rulewright.learn.nlil.generator import Shape
from rulewright.learn.nlil.pairs import joined_path
from rulewright.learn.nlil.questions import Task, with_wrong_pairs
from rulewright.learn.nlil.rounds import Rules, Search, SearchOptions, balance, unexplained
from rulewright.learn.nlil.selection import counted
from rulewright.learn.nlil.training import RoundOptions
from rulewright.learn.path_examples import Questions, examples
from rulewright.learn.ranking_loss import Examples, fit_weights
from rulewright.logic import RuleSet
from rulewright.reason.evidence import Evidence, RuleTable, Ways
from rulewright.reason.rank import RuleRanker

Floats = npt.NDArray[np.float64]
DOUBT = 5.0
"""How many wrong answers a rule is taken to have given before it was counted."""


@dataclass(frozen=True)
class WeightOptions:
    """How extracted paths are weighed: see `NLILCompletion`."""

    max_facts: int = 500
    negatives: int = 4
    hide_pair: bool = False
    questions: int = 300
    candidates: int | None = 200
    ways: Ways = "once"
    l2: float = 1.0
    prior: float = 0.05
    iterations: int = 50

    def __post_init__(self) -> None:
        for name in ("max_facts", "negatives", "questions", "iterations"):
            if getattr(self, name) < 1:
                raise DataError(f"{name} must be >= 1, got {getattr(self, name)}")


class NLILCompletion:
    """Answers ``r(h, ?)`` and ``r(?, t)`` by chain rules that transformers wrote, each with a fitted weight.

    For each relation a generator is trained on ``max_facts`` facts with ``negatives`` checked wrong pairs beside each,
    every fact hidden from itself; its rules are read off, likeliest and drawn ones, and the next of the ``rounds`` is
    about what they leave unexplained. With ``hide_pair`` a fact is hidden together with all others between its two
    entities, for graphs whose questions are about pairs that nothing joins. Their weights, one for each
    direction, raise the right answers of ``questions`` facts above all other entities, each on the graph without that
    very fact (`rulewright.learn.ranking_loss`). Options are those of `NLILLearner`, with ``levels=0``, and of
    `WeightOptions`. What is learned is kept in ``folder``, relation by relation.

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
        kinds = {f.name: kind for kind in (Shape, RoundOptions, SearchOptions, WeightOptions) for f in fields(kind)}
        for name in given:
            if name not in kinds:
                raise DataError(f"unknown option {name!r}; known: {', '.join(sorted(kinds))}")
        if given["levels"]:
            raise DataError(f"ranking takes chain rules, so levels must be 0, got {given['levels']}")
        self.shape = Shape(**{k: v for k, v in given.items() if kinds[k] is Shape})
        self.training = RoundOptions(**{k: v for k, v in given.items() if kinds[k] is RoundOptions})
        self.search = SearchOptions(**{k: v for k, v in given.items() if kinds[k] is SearchOptions})
        self.weights = WeightOptions(**{k: v for k, v in given.items() if kinds[k] is WeightOptions})
        self.targets = None if targets is None else tuple(targets)
        self.seed, self.progress = seed, progress
        self.folder = None if folder is None else FilePath(folder)
        self.paths_: dict[str, tuple[Path, ...]] = {}
        self.learned_: dict[int, Target] = {}

    def fit(self, kb: KnowledgeBase) -> Self:
        """Learn the rules of every relation, or of the targets."""
        names = [name for name, each in kb.predicates.items() if signature(each) == "ee"]
        wanted = names if self.targets is None else list(self.targets)
        if not wanted:
            raise DataError("no predicate has two entities as arguments, so there are no paths to learn")
        facts, walks = FactGraph(kb), Graph.of(kb)
        self._kb, self.learned_, self.paths_ = kb, {}, {}
        vars(self).pop("rules_", None)
        for done, name in enumerate(wanted):
            number = kb.number_of(name)
            if kb.count(name):
                self.paths_[name] = paths = self._saved(facts, name)
                for relation, mine in ((2 * number, paths), (2 * number + 1, tuple(map(mirrored, paths)))):
                    target = self._weighed(walks, relation, mine)
                    if target is not None:
                        self.learned_[relation] = target
            if self.progress is not None:
                self.progress(done + 1, len(wanted))
        self.ranker_ = RuleRanker(kb, {each: (target.table, target.weights) for each, target in self.learned_.items()})
        return self

    def scores(self, relation: str, entities: Ids, *, inverse: bool = False) -> Floats:
        """Return a row for each entity: how well every entity answers ``relation(h, ?)``, or ``relation(?, h)``."""
        return self.ranker_.scores(relation, entities, inverse=inverse)

    @cached_property
    def rules_(self) -> RuleSet:
        """The rules with their weights, in the common language."""
        return written(self.learned_, self._kb)

    def _written(self, facts: FactGraph, name: str) -> tuple[Path, ...]:
        """Train generators for a relation and return the paths of the rules that they wrote."""
        task = Task.of(facts, (name,))
        task = replace(task, hidden=replace(task.hidden, pair=self.weights.hide_pair))
        search = Search(task, self.shape, self.training, self.search, seed=self.seed, folder=None, tell=None)
        known = task.facts(facts.kb)
        false = task.facts(facts.kb, truth=False)
        relations = [facts.kb.number_of(each) for each in facts.vocabulary.binary]
        rules: Rules = set()
        for number in range(self.search.rounds):
            some = np.random.default_rng([self.seed, number]).permutation(len(known[0]))[: self.weights.max_facts]
            mine = tuple(column[np.sort(some)] for column in known)
            asked = with_wrong_pairs(
                mine, known, facts, ratio=self.weights.negatives, seed=self.seed + number, false=false
            )
            left = np.ones(asked.truth.shape)
            if rules:  # what earlier rounds explain weighs less
                reach = search.reach((each for _, each in rules), self.training.max_edges)
                left = unexplained(counted(rules, task, reach, asked), asked.truth.shape)
            rules |= search.round(asked, balance(asked.truth, left))
        found: dict[Path, None] = {}
        for _, conjunction in sorted(rules, key=repr):
            for literal, positive in conjunction:
                if positive and literal.left is not None and literal.right is not None:
                    steps = joined_path(literal, search.numbers)
                    found[tuple(2 * relations[(each - 1) // 2] + (each - 1) % 2 for each in steps)] = None
        return tuple(found)

    def _weighed(self, graph: Graph, relation: int, paths: tuple[Path, ...]) -> Target | None:
        """Fit the weights of paths that answer ``r(X, ?)``; those that never speak for an answer are left out."""
        before, after = graph.edges(relation)
        options = self.weights
        usable = [path for path in paths if path != (relation,)]
        if len(before) == 0 or not usable:
            return None
        chosen = np.sort(np.random.default_rng([self.seed, relation]).permutation(len(before))[: options.questions])
        questions = Questions.of(relation, before[chosen], after[chosen], (before, after))
        table = RuleTable.of_paths(relation, usable, options.ways)
        found = self._examples(graph, table, questions, _confidence(graph, table, questions))
        support, body = _spoken(found)
        keep = np.flatnonzero(support > 0)
        if len(keep) == 0:
            return None
        start = -options.prior * np.log1p(-support / (body + DOUBT))
        scale = np.maximum(np.asarray(found.features.max(axis=0).todense()).ravel(), 1.0)
        weights, _ = fit_weights(
            found.scaled(1 / scale),
            start,
            lower=np.zeros(len(table)),
            upper=np.where(support > 0, np.inf, 1e-12),
            l2=options.l2,
            iterations=options.iterations,
        )
        keep = keep[weights[keep] > 1e-6]
        return Target(table.kept(keep), (weights / scale)[keep], support[keep], body[keep])

    def _examples(self, graph: Graph, table: RuleTable, questions: Questions, first: Floats) -> Examples:
        most = self.weights.candidates
        return examples(
            Evidence(graph, table),
            questions,
            lambda row, right, rule, truth: (rule.astype(np.int64), truth),
            len(table),
            first,
            hide=True,
            most=most if most is not None and graph.entities > 4 * most else None,
            block=max(1, min(256, 2_000_000 // graph.entities)),
        )

    def _saved(self, facts: FactGraph, name: str) -> tuple[Path, ...]:
        """Return the paths that an earlier run wrote for a relation with the same options, or write and keep them."""
        if self.folder is None:
            return self._written(facts, name)
        safe = "".join(each if each.isalnum() or each in "-_" else f"%{ord(each):02x}" for each in name)
        file = self.folder / f"{safe}.json"
        kinds = (self.shape, self.training, self.search, self.weights)
        options = {**{key: value for each in kinds for key, value in asdict(each).items()}, "seed": self.seed}
        # how paths are weighed is no part of how they are written
        options = {key: value for key, value in options.items() if key not in _OF_WEIGHTS}
        if file.exists():
            held = json.loads(read_text(file))
            if held["options"] != options or held["facts"] != self._kb.n_facts:
                raise FileError(f"{file} is of a run with other facts or options; choose another folder")
            return tuple(tuple(each) for each in held["paths"])
        paths = self._written(facts, name)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps({"options": options, "facts": self._kb.n_facts, "paths": paths}) + "\n")
        return paths


_OF_WEIGHTS = ("questions", "candidates", "ways", "l2", "prior", "iterations")


def _confidence(graph: Graph, table: RuleTable, questions: Questions) -> Floats:
    """Return ``−log(1 − c)`` of each path, ``c`` counted on some questions, each without its own fact."""
    some = np.arange(min(100, len(questions)))
    hidden = Hidden(table.relation, questions.entity[some], questions.answer[some])
    found = np.zeros(len(table))
    for number, path in enumerate(table.paths):
        state = graph.walk(questions.entity[some], path, hidden).sign()
        right = float(np.asarray(state[some, questions.answer[some]]).sum())
        found[number] = -np.log1p(-min(0.99, right / (state.nnz + DOUBT)))
    return found


def _spoken(found: Examples) -> tuple[Floats, Floats]:
    """Return how often each rule spoke for an answer, and how often at all."""
    fired = found.features.astype(bool).astype(np.float64)
    answered = found.positive[found.positive >= 0]
    return np.asarray(fired[answered].sum(axis=0)).ravel(), np.asarray(fired.sum(axis=0)).ravel()
