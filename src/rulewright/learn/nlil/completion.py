"""Knowledge-base completion by extracted rules: transformers write the paths, a `PathMixture` weighs them."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path as FilePath
from typing import ClassVar, Self

import numpy as np

from rulewright.checks import Flag, Names, ParameterRule, Progress
from rulewright.data import KnowledgeBase, signature
from rulewright.data.index import Ids
from rulewright.errors import DataError, FileError
from rulewright.files import read_text, write_text
from rulewright.learn.base import Learner
from rulewright.learn.nlil.facts import FactGraph, Floats
from rulewright.learn.nlil.learner import NLILLearner, safe_file_name
from rulewright.learn.nlil.questions import LearningTask, add_wrong_pairs
from rulewright.learn.nlil.rounds import balance_weights
from rulewright.learn.nlil.selection import WrittenRule, count_rules, unexplained_shares
from rulewright.learn.path_mixture.learner import PathMixture
from rulewright.learn.path_mixture.target import Target
from rulewright.logic import Path, RuleSet
from rulewright.reason.ranking import RuleRanker


class NLILCompletion(Learner):
    """Answers ``r(h, ?)`` and ``r(?, t)`` by chain rules that transformers wrote, each with a fitted weight.

    The ``learner`` writes them: for each relation a generator is trained on ``max_facts`` facts with ``negatives``
    checked wrong pairs beside each, every fact hidden from itself; its rules are read off, likeliest and drawn ones,
    and the next of the ``rounds`` is about what they leave unexplained. With ``hide_pair`` a fact is hidden together
    with all others between its two entities, for graphs whose queries are about pairs that nothing joins. The
    ``mixture`` then weighs the paths of these rules, and no others, for each direction of the query. The targets and
    folders of the two are those given here; what is learned is kept in ``folder``, relation by relation.

    ``ranker_`` ranks; ``learned_`` has the weighed rules of each step; ``rules_`` are the rules in the rule language,
    with ``weight`` and ``weight_inverse``.

    >>> kb = KnowledgeBase.from_triples(
    ...     [(f"a{i}", "p", f"b{i}") for i in range(9)] + [(f"b{i}", "q", f"a{i}") for i in range(8)]
    ... )
    >>> learner = NLILLearner(steps=1, levels=0, layers=1, epochs=3, rounds=1)
    >>> NLILCompletion(learner=learner, targets=["q"]).fit(kb).ranker_.answers("q", "b8", 1)[0][0]
    'a8'
    """

    paths_: dict[str, tuple[Path, ...]]
    mixture_: PathMixture
    learned_: dict[int, Target]
    ranker_: RuleRanker

    _parameter_rules: ClassVar[Mapping[str, ParameterRule]] = {"targets": Names(), "hide_pair": Flag()}

    def __init__(
        self,
        *,
        learner: NLILLearner | None = None,
        mixture: PathMixture | None = None,
        hide_pair: bool = False,
        targets: Collection[str] | None = None,
        folder: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.learner, self.mixture, self.hide_pair = learner, mixture, hide_pair
        self.targets, self.folder, self.progress = targets, folder, progress
        self._check_parameters()

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.learner is not None and self.learner.levels:
            raise DataError(f"ranking takes chain rules, so levels of the learner must be 0, got {self.learner.levels}")

    def fit(self, kb: KnowledgeBase) -> Self:
        """Learn the rules of every relation, or of the targets."""
        self._check_before_fit(kb)
        learner = self.learner or NLILLearner(steps=1, levels=0, max_facts=500)
        relations = [name for name, predicate in kb.predicates.items() if signature(predicate) == "ee"]
        targets = [name for name in relations if kb.count(name)] if self.targets is None else list(self.targets)
        graph = FactGraph(kb)
        self.paths_ = {}
        for done, name in enumerate(targets, start=1):
            self.paths_[name] = self._load_or_write(learner, graph, name)
            if self.progress is not None:
                self.progress("relations", done, len(targets))
        parameters = (self.mixture or PathMixture()).get_params(deep=False)
        parameters |= {"targets": self.targets, "paths": self.paths_, "constants": 0, "progress": self.progress}
        parameters["folder"] = None if self.folder is None else FilePath(self.folder) / "weights"
        self.mixture_ = PathMixture(**parameters).fit(kb)
        self.learned_, self.ranker_ = self.mixture_.learned_, self.mixture_.ranker_
        return self

    @property
    def rules_(self) -> RuleSet:  # type: ignore[override]
        """The rules with their weights; what speaks against a relation is a formula."""
        return self.mixture_.rules_

    def scores(self, relation: str, entities: Ids, *, inverse: bool = False) -> Floats:
        """Return a row for each entity: how well every entity answers ``relation(h, ?)``, or ``relation(?, h)``."""
        return self.mixture_.scores(relation, entities, inverse=inverse)

    def _load_or_write(self, learner: NLILLearner, graph: FactGraph, name: str) -> tuple[Path, ...]:
        """Return the paths that an earlier run wrote for a relation under the same parameters, or write new ones."""
        if self.folder is None:
            return self._write_paths(learner, graph, name)
        file = FilePath(self.folder) / f"{safe_file_name(name)}.json"
        free = ("targets", "folder", "progress", "processes")
        parameters = {key: value for key, value in learner.get_params(deep=False).items() if key not in free}
        run = {"parameters": {**parameters, "hide_pair": self.hide_pair}, "facts": graph.kb.n_facts}
        if file.exists():
            saved = json.loads(read_text(file))
            if any(saved.get(key) != value for key, value in run.items()):
                raise FileError(f"{file} is of a run with other facts or parameters; choose another folder")
            return tuple(tuple(path) for path in saved["paths"])
        paths = self._write_paths(learner, graph, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps({**run, "paths": paths}) + "\n")
        return paths

    def _write_paths(self, learner: NLILLearner, graph: FactGraph, name: str) -> tuple[Path, ...]:
        """Train generators for a relation and return the paths of the rules that they wrote."""
        task = LearningTask.for_targets(graph, (name,))
        task = replace(task, hidden=replace(task.hidden, pair=self.hide_pair))
        search = learner.make_search(task)
        known, false = task.target_facts(), task.target_facts(truth=False)
        rules: set[WrittenRule] = set()
        for round_index in range(learner.rounds):
            order = np.random.default_rng([learner.seed, round_index]).permutation(len(known[0]))
            facts = tuple(column[np.sort(order[: learner.max_facts])] for column in known)
            seed = learner.seed + round_index
            questions = add_wrong_pairs(facts, known, graph, ratio=learner.negatives, seed=seed, false=false)
            unexplained = np.ones(questions.truth.shape)
            if rules:  # what earlier rounds explain weighs less
                counted = count_rules(rules, task, questions, most=learner.max_edges, seed=learner.seed)
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
