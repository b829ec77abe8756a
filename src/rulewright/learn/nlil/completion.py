"""Knowledge-base completion by extracted rules: transformers write the paths, a `PathMixture` weighs them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path as FilePath
from typing import ClassVar, NamedTuple, Self

import numpy as np

from rulewright.checks import Names, ParameterRule, Progress, Whole, read_names
from rulewright.data import KnowledgeBase, signature
from rulewright.data.index import Ids
from rulewright.engine.walks import Graph
from rulewright.errors import DataError, FileError
from rulewright.files import read_text, write_text
from rulewright.learn.base import Learner
from rulewright.learn.nlil.facts import FactGraph, Floats
from rulewright.learn.nlil.learner import NLILLearner, safe_file_name
from rulewright.learn.nlil.questions import LearningTask, add_wrong_pairs
from rulewright.learn.nlil.rounds import balance_weights
from rulewright.learn.nlil.selection import WrittenRule, count_rules, unexplained_shares
from rulewright.learn.path_mixture.learner import PathMixture
from rulewright.learn.path_mixture.questions import FactSampler, QuestionChoice
from rulewright.learn.path_mixture.target import Target
from rulewright.learn.processes import work_in_processes
from rulewright.logic import Path, RuleSet, encode_step
from rulewright.reason.ranking import RuleRanker


class NLILCompletion(Learner):
    """Answers ``r(h, ?)`` and ``r(?, t)`` by chain rules that transformers wrote, each with a fitted weight.

    The ``learner`` writes them: for each relation a generator is trained on ``max_facts`` facts with ``negatives``
    checked wrong pairs beside each, every fact hidden from itself; its rules are read off, likeliest and drawn ones,
    and the next of the ``rounds`` is about what they leave unexplained. The
    ``mixture`` then weighs the paths of these rules, and no others, for each direction of the query; its ``questions``
    say which facts both ask about. Targets, folders and processes of the two are those given here: what is learned is
    kept in ``folder``, relation by relation, and is the same in any number of ``processes``.

    ``ranker_`` ranks; ``learned_`` has the weighed rules of each step; ``rules_`` are the rules in the rule language,
    with ``weight`` and ``weight_inverse``; ``seconds_`` is the time of one core that all took, in earlier runs too.

    >>> kb = KnowledgeBase.from_triples(
    ...     [(f"a{i}", "p", f"b{i}") for i in range(9)] + [(f"b{i}", "q", f"a{i}") for i in range(8)]
    ... )
    >>> learner = NLILLearner(steps=1, levels=0, layers=1, epochs=3, rounds=1)
    >>> NLILCompletion(learner=learner, targets=["q"]).fit(kb).ranker_.answers("q", "b8", 1)[0][0]
    'a8'
    """

    paths_: dict[str, tuple[Path, ...]]
    seconds_: float
    mixture_: PathMixture
    learned_: dict[int, Target]
    ranker_: RuleRanker

    _parameter_rules: ClassVar[Mapping[str, ParameterRule]] = {"targets": Names(), "processes": Whole(1)}

    def __init__(
        self,
        *,
        learner: NLILLearner | None = None,
        mixture: PathMixture | None = None,
        targets: str | Collection[str] | None = None,
        processes: int = 1,
        folder: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.learner, self.mixture = learner, mixture
        self.targets, self.processes = targets, processes
        self.folder, self.progress = folder, progress
        self._check_parameters()

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.learner is not None and self.learner.levels:
            raise DataError(f"ranking takes chain rules, so levels of the learner must be 0, got {self.learner.levels}")

    def fit(self, kb: KnowledgeBase) -> Self:
        """Learn the rules of every relation, or of the targets."""
        self._check_before_fit(kb)
        learner = self.learner or NLILLearner(steps=1, levels=0, max_facts=500)
        mixture = self.mixture or PathMixture()
        relations = [name for name, predicate in kb.predicates.items() if signature(predicate) == "ee"]
        targets = read_names(self.targets)
        targets = [name for name in relations if kb.count(name)] if targets is None else targets
        valid = Graph(kb.splits["valid"]) if mixture.questions == "as valid" and "valid" in kb.splits else None
        plain = NLILLearner(**{**learner.get_params(deep=False), "folder": None, "progress": None})
        work = WritingWork(plain, FactGraph(kb), FactSampler(Graph(kb), valid))
        saved = None if self.folder is None else SavedPaths(self.folder, kb, learner, mixture.questions)
        written = {name: None if saved is None else saved.load(name) for name in targets}
        missing = [name for name, result in written.items() if result is None]
        earlier = len(targets) - len(missing)
        for done, (name, result) in enumerate(work_in_processes(write_paths, work, missing, self.processes), start=1):
            written[name] = result
            if saved is not None:
                saved.save(name, result)
            if self.progress is not None:
                self.progress("relations", earlier + done, len(targets))
        results = {name: result for name, result in written.items() if result is not None}
        self.paths_ = {name: result.paths for name, result in results.items()}
        parameters = mixture.get_params(deep=False)
        parameters |= {"targets": self.targets, "paths": self.paths_, "constants": 0}
        parameters |= {"processes": self.processes, "progress": self.progress}
        parameters["folder"] = None if self.folder is None else FilePath(self.folder) / "weights"
        self.mixture_ = PathMixture(**parameters).fit(kb)
        self.learned_, self.ranker_, self.note_ = self.mixture_.learned_, self.mixture_.ranker_, self.mixture_.note_
        self.seconds_ = sum(result.seconds for result in results.values())
        self.seconds_ += sum(target.seconds for target in self.learned_.values())
        return self

    @property
    def rules_(self) -> RuleSet:  # type: ignore[override]
        """The rules with their weights; what speaks against a relation is a formula."""
        return self.mixture_.rules_

    def scores(self, relation: str, entities: Ids, *, inverse: bool = False) -> Floats:
        """Return a row for each entity: how well every entity answers ``relation(h, ?)``, or ``relation(?, h)``."""
        return self.mixture_.scores(relation, entities, inverse=inverse)


class WrittenPaths(NamedTuple):
    """The paths that were written for a relation, and the time of one core that it took."""

    paths: tuple[Path, ...]
    seconds: float


class SavedPaths:
    """A folder with a file for each relation, of one data set and one choice of parameters."""

    _FREE = ("targets", "folder", "progress", "processes")  # may change between two runs

    def __init__(
        self,
        folder: str | os.PathLike[str],
        kb: KnowledgeBase,
        learner: NLILLearner,
        questions: QuestionChoice,
    ) -> None:
        self.folder = FilePath(folder)
        parameters = {key: value for key, value in learner.get_params(deep=False).items() if key not in self._FREE}
        self.run = {"parameters": parameters, "questions": questions, "facts": kb.n_facts}

    def _file(self, name: str) -> FilePath:
        return self.folder / f"{safe_file_name(name)}.json"

    def load(self, name: str) -> WrittenPaths | None:
        """Return the paths that an earlier run wrote for a relation under the same parameters."""
        file = self._file(name)
        if not file.exists():
            return None
        saved = json.loads(read_text(file))
        if any(saved.get(key) != value for key, value in self.run.items()):
            raise FileError(f"{file} is of a run with other facts or parameters; choose another folder")
        return WrittenPaths(tuple(tuple(path) for path in saved["paths"]), saved["seconds"])

    def save(self, name: str, result: WrittenPaths) -> None:
        """Keep the paths of a relation, in one step."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self._file(name), json.dumps({**self.run, **result._asdict()}) + "\n")


class WritingWork(NamedTuple):
    """What the relations of a graph share while their paths are written."""

    learner: NLILLearner
    graph: FactGraph
    sampler: FactSampler


def write_paths(work: WritingWork, name: str) -> WrittenPaths:
    """Train generators for a relation and return the paths of the rules that they wrote."""
    learner, graph = work.learner, work.graph
    started = time.process_time()
    task = LearningTask.for_targets(graph, (name,))
    search = learner.make_search(task)
    known, false = task.target_facts(), task.target_facts(truth=False)
    rules: set[WrittenRule] = set()
    for round_index in range(learner.rounds):
        random = np.random.default_rng([learner.seed, round_index])
        step = encode_step(graph.kb.predicate_index(name))
        facts = work.sampler.draw(step, (known[0], known[1]), learner.max_facts, random)
        seed = learner.seed + round_index
        questions = add_wrong_pairs(facts, known, task, ratio=learner.negatives, seed=seed, false=false)
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
    return WrittenPaths(tuple(paths), time.process_time() - started)
