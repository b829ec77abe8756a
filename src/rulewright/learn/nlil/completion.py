"""Knowledge-base completion by extracted rules: transformers write the paths, a `PathMixture` weighs them."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from pathlib import Path as FilePath
from typing import ClassVar, Self

import numpy as np

from rulewright.checks import Flag, ParameterRule, Progress
from rulewright.data import KnowledgeBase, signature
from rulewright.data.index import Ids
from rulewright.engine.evidence import Ways
from rulewright.errors import FileError
from rulewright.files import read_text, write_text
from rulewright.learn.base import Learner
from rulewright.learn.nlil.choices import RuleShape
from rulewright.learn.nlil.facts import FactGraph, Floats
from rulewright.learn.nlil.generator import Truth
from rulewright.learn.nlil.learner import GENERATOR_RULES, check_heads, safe_file_name
from rulewright.learn.nlil.questions import LearningTask, add_wrong_pairs
from rulewright.learn.nlil.rounds import GeneratorSettings, RuleSearch, balance_weights
from rulewright.learn.nlil.selection import WrittenRule, count_rules, unexplained_shares
from rulewright.learn.path_mixture.learner import PathMixture
from rulewright.learn.path_mixture.target import Target
from rulewright.learn.path_mixture.weighing import Loss
from rulewright.logic import Path, RuleSet
from rulewright.reason.ranking import RuleRanker


class NLILCompletion(Learner):
    """Answers ``r(h, ?)`` and ``r(?, t)`` by chain rules that transformers wrote, each with a fitted weight.

    For each relation a generator is trained on ``max_facts`` facts with ``negatives`` checked wrong pairs beside each,
    every fact hidden from itself; its rules are read off, likeliest and drawn ones, and the next of the ``rounds`` is
    about what they leave unexplained. With ``hide_pair`` a fact is hidden together with all others between its two
    entities, for graphs whose queries are about pairs that nothing joins. The paths of these rules, and no others, are
    then weighed by a `PathMixture`, for each direction of the query: from ``ways`` on, parameters are those of
    `PathMixture`, the others are those of `NLILLearner`. What is learned is kept in ``folder``, relation by relation.

    ``ranker_`` ranks; ``learned_`` has the weighed rules of each step; ``rules_`` are the rules in the rule language,
    with ``weight`` and ``weight_inverse``.
    """

    paths_: dict[str, tuple[Path, ...]]
    mixture_: PathMixture
    learned_: dict[int, Target]
    ranker_: RuleRanker

    _parameter_rules: ClassVar[Mapping[str, ParameterRule]] = {**GENERATOR_RULES, "hide_pair": Flag()}

    def __init__(
        self,
        *,
        targets: Collection[str] | None = None,
        steps: int = 1,
        chains: int = 1,
        shared: bool = False,
        width: int = 32,
        layers: int = 3,
        heads: int = 4,
        slots: int = 7,
        seeds: int = 3,
        epochs: int = 30,
        batch_size: int = 256,
        rate: float = 0.003,
        sharpest: float = 0.3,
        entropy: float = 0.01,
        truth: Truth = "exponential",
        max_predicates: int = 40,
        max_edges: int | None = None,
        rounds: int = 3,
        samples: int = 20,
        max_length: int = 6,
        max_facts: int = 500,
        negatives: int = 4,
        hide_pair: bool = False,
        ways: Ways = "telling",
        negated: int = 1,
        queries: int = 500,
        candidates: int | None = 300,
        loss: Loss = "softmax",
        l1: float = 0.0,
        l2: float = 1.0,
        prior: float = 0.05,
        iterations: int = 50,
        min_valid: int = 5,
        seed: int = 0,
        folder: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.targets, self.steps, self.chains = targets, steps, chains
        self.shared, self.width, self.layers, self.heads = shared, width, layers, heads
        self.slots, self.seeds = slots, seeds
        self.epochs, self.batch_size, self.rate = epochs, batch_size, rate
        self.sharpest, self.entropy, self.truth = sharpest, entropy, truth
        self.max_predicates, self.max_edges = max_predicates, max_edges
        self.rounds, self.samples, self.max_length = rounds, samples, max_length
        self.max_facts, self.negatives, self.hide_pair = max_facts, negatives, hide_pair
        self.ways, self.negated, self.queries, self.candidates = ways, negated, queries, candidates
        self.loss, self.l1, self.l2, self.prior = loss, l1, l2, prior
        self.iterations, self.min_valid = iterations, min_valid
        self.seed, self.folder, self.progress = seed, folder, progress
        self._check_parameters()

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_heads(self.width, self.heads)
        self._make_mixture({})

    def fit(self, kb: KnowledgeBase) -> Self:
        """Learn the rules of every relation, or of the targets."""
        self._check_before_fit(kb)
        relations = [name for name, predicate in kb.predicates.items() if signature(predicate) == "ee"]
        targets = [name for name in relations if kb.count(name)] if self.targets is None else list(self.targets)
        graph = FactGraph(kb)
        paths: dict[str, tuple[Path, ...]] = {}
        for done, name in enumerate(targets, start=1):
            paths[name] = self._load_or_write(graph, name)
            if self.progress is not None:
                self.progress("relations", done, len(targets))
        self.paths_ = paths
        self.mixture_ = self._make_mixture(paths).fit(kb)
        self.learned_, self.ranker_ = self.mixture_.learned_, self.mixture_.ranker_
        return self

    @property
    def rules_(self) -> RuleSet:  # type: ignore[override]
        """The rules with their weights; what speaks against a relation is a formula."""
        return self.mixture_.rules_

    def scores(self, relation: str, entities: Ids, *, inverse: bool = False) -> Floats:
        """Return a row for each entity: how well every entity answers ``relation(h, ?)``, or ``relation(?, h)``."""
        return self.mixture_.scores(relation, entities, inverse=inverse)

    def _make_mixture(self, paths: Mapping[str, tuple[Path, ...]]) -> PathMixture:
        def report(stage: str, done: int, total: int) -> None:
            if self.progress is not None:
                self.progress("weights", done, total)

        return PathMixture(
            targets=self.targets,
            paths=paths,
            constants=0,
            ways=self.ways,
            negated=self.negated,
            queries=self.queries,
            candidates=self.candidates,
            loss=self.loss,
            l1=self.l1,
            l2=self.l2,
            prior=self.prior,
            iterations=self.iterations,
            min_valid=self.min_valid,
            seed=self.seed,
            folder=None if self.folder is None else FilePath(self.folder) / "weights",
            progress=report,
        )

    def _make_search(self, task: LearningTask) -> RuleSearch:
        shape = RuleShape(
            steps=self.steps,
            chains=self.chains,
            levels=0,
            shared=self.shared,
            width=self.width,
            layers=self.layers,
            heads=self.heads,
        )
        training = GeneratorSettings(
            slots=self.slots,
            seeds=self.seeds,
            epochs=self.epochs,
            batch_size=self.batch_size,
            rate=self.rate,
            sharpest=self.sharpest,
            entropy=self.entropy,
            truth=self.truth,
            max_predicates=self.max_predicates,
            max_edges=self.max_edges,
        )
        return RuleSearch(
            task,
            shape,
            training,
            rounds=self.rounds,
            samples=self.samples,
            max_length=self.max_length,
            seed=self.seed,
        )

    def _write_paths(self, search: RuleSearch) -> tuple[Path, ...]:
        """Train generators for a relation and return the paths of the rules that they wrote."""
        task, graph = search.task, search.task.graph
        known, false = task.target_facts(), task.target_facts(truth=False)
        rules: set[WrittenRule] = set()
        for round_index in range(self.rounds):
            order = np.random.default_rng([self.seed, round_index]).permutation(len(known[0]))
            facts = tuple(column[np.sort(order[: self.max_facts])] for column in known)
            questions = add_wrong_pairs(
                facts, known, graph, ratio=self.negatives, seed=self.seed + round_index, false=false
            )
            unexplained = np.ones(questions.truth.shape)
            if rules:  # what earlier rounds explain weighs less
                counted = count_rules(rules, task, questions, most=self.max_edges, seed=self.seed)
                unexplained = unexplained_shares(counted, questions.truth.shape)
            rules |= search.run_round(questions, balance_weights(questions.truth, unexplained))
        paths: dict[Path, None] = {}
        for _, conjunction in sorted(rules, key=repr):
            for literal, positive in conjunction:
                if positive and literal.is_joining:
                    operators = literal.joined_path(search.codes)
                    if not any(map(graph.vocabulary.is_filter, operators)):  # with a filter it is no path of relations
                        paths[tuple(map(graph.fact_step, operators))] = None
        return tuple(paths)

    def _load_or_write(self, graph: FactGraph, name: str) -> tuple[Path, ...]:
        """Return the paths that an earlier run wrote for a relation under the same parameters, or write new ones."""
        task = LearningTask.for_targets(graph, (name,))
        task = replace(task, hidden=replace(task.hidden, pair=self.hide_pair))
        search = self._make_search(task)
        if self.folder is None:
            return self._write_paths(search)
        file = FilePath(self.folder) / f"{safe_file_name(name)}.json"
        run = {
            "options": {
                **asdict(search.shape),
                **asdict(search.training),
                "rounds": self.rounds,
                "samples": self.samples,
                "max_length": self.max_length,
                "max_facts": self.max_facts,
                "negatives": self.negatives,
                "hide_pair": self.hide_pair,
                "seed": self.seed,
            },
            "facts": graph.kb.n_facts,
        }
        if file.exists():
            saved = json.loads(read_text(file))
            if any(saved[key] != value for key, value in run.items()):
                raise FileError(f"{file} is of a run with other facts or options; choose another folder")
            return tuple(tuple(path) for path in saved["paths"])
        paths = self._write_paths(search)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps({**run, "paths": paths}) + "\n")
        return paths
