"""Explaining predicates by rules that transformers write."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import fields
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase, signature
from rulewright.errors import DataError, unknown_name
from rulewright.learn.nlil.classes import ClassScores, class_scores
from rulewright.learn.nlil.generator import Shape
from rulewright.learn.nlil.jobs import Job, Learned
from rulewright.learn.nlil.learning import learn, learn_alone
from rulewright.learn.nlil.rounds import SearchOptions
from rulewright.learn.nlil.scores import hard_scores, soft_scores
from rulewright.learn.nlil.training import RoundOptions
from rulewright.logic import RuleSet

Progress = Callable[[str, int, int], None]
Floats = npt.NDArray[np.float64]


class NLILLearner:
    """Explains predicates: for each, transformers write rules of paths, joined statements and their combinations.

    A rule's parts are chosen by attention that depends on the target alone, never on a question, so that a rule means
    the same everywhere (Equations 3 to 15 of the paper). Trained on questions, each without its own fact, attention
    sharpens until the rule can be read off; every rule that was read is then counted exactly, and those are kept that
    explain the target.

    Args:
        targets: the predicates to explain, of one or two entities; by default all that have facts.
        exclusive: the targets are classes of which an entity has one. They are learned together, the labels of the
            entity asked about are all hidden, and the rules get ``weight``s by which `classify` combines them.
        steps, chains: how many operators a path has at most, and how many chains of operators a rule has for each
            argument.
        levels, combinations, negation: how often statements are combined, into how many formulas, and whether
            complements take part; with them comes "or".
        width, layers, heads, shared: of the transformers; ``shared`` gives all rules the same embeddings.
        slots, seeds: how many rules of a target are trained at a time, and from how many true questions the choice of
            predicates of each is made (0: all choose from the same).
        epochs, batch_size, rate, sharpest, entropy: of training. ``sharpest`` is the last temperature.
        truth: ``"exponential"``, ``1 − exp(−count)``, or ``"paper"``, ``σ(count)``, which is never below ½.
        max_predicates, max_edges: how many operators and statements a rule chooses from, and how many steps are
            followed from one entity in training (all by default).
        rounds, samples: how many generators are trained one after the other, each on what is still unexplained, and
            how many rules are drawn from each of their slots beside the likeliest.
        max_length, min_support, min_precision, max_rules: of the rules that are kept for a target.
        max_heads, max_facts: on how many first arguments rules of two arguments are counted, and how many facts a
            round asks about.
        max_chained: up to how many facts it is checked that rules which rest on their own target have a beginning.
        negatives: how many checked wrong questions stand beside each right one, half of them near it.
        held_out: the share of questions, or of worlds, that rules are measured on and not learned from.
        l2, refit: how firmly the weights of classes' rules are held, and whether they are fitted once more with what
            was held out, after rules were measured on it.
        processes: how many targets are learned at a time, each in a process of its own.
        folder: keeps checkpoints; fitting again goes on where it stopped.

    ``rules_`` has the rules: confidence is precision, with support, body and recall in ``@{…}``, all counted on what
    was held out (``measured``). ``against_`` has those whose weight is negative: where they hold, their class is less
    likely. ``learned_`` tells how it went, ``without_rules_`` which targets have none and why.

    >>> from rulewright.data.generators import even_successor
    >>> options = {"levels": 0, "layers": 1, "seeds": 0, "slots": 13, "rounds": 9, "epochs": 40, "rate": 0.002}
    >>> learner = NLILLearner(targets=["even"], held_out=0, min_support=1, min_precision=1.0, **options)
    >>> sorted(str(rule.canonical()) for rule in learner.fit(even_successor(20).kb).rules_.rules)
    ['even(X0) :- even(X1), succ(X1, X2), succ(X2, X0).', 'even(X0) :- zero(X0).']

    Yang and Song, Learn to Explain Efficiently via Neural Logic Inductive Learning, ICLR 2020.
    """

    def __init__(
        self,
        *,
        targets: Iterable[str] | None = None,
        exclusive: bool = False,
        negatives: int = 4,
        held_out: float = 0.1,
        l2: float = 2.0,
        refit: bool = False,
        seed: int = 0,
        processes: int = 1,
        folder: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
        **options: Any,
    ) -> None:
        kinds = {field.name: kind for kind in (Shape, RoundOptions, SearchOptions) for field in fields(kind)}
        for name in options:
            if name not in kinds:
                raise DataError(f"unknown option {name!r}; known: {', '.join(sorted(kinds))}")
        self.shape = Shape(**{k: v for k, v in options.items() if kinds[k] is Shape})
        self.training_options = RoundOptions(**{k: v for k, v in options.items() if kinds[k] is RoundOptions})
        self.search_options = SearchOptions(**{k: v for k, v in options.items() if kinds[k] is SearchOptions})
        if not 0 <= held_out < 1:
            raise DataError(f"held_out must lie in [0, 1), got {held_out}")
        for name, number in (("negatives", negatives), ("processes", processes)):
            if number < 1:
                raise DataError(f"{name} must be >= 1, got {number}")
        self.targets = None if targets is None else tuple(targets)
        self.exclusive, self.negatives, self.held_out = exclusive, negatives, held_out
        self.l2, self.refit = l2, refit
        self.seed, self.processes, self.progress = seed, processes, progress
        self.folder = None if folder is None else os.fspath(folder)
        self.kb: KnowledgeBase | None = None
        self.rules_, self.against_ = RuleSet(), RuleSet()
        self.learned_: dict[str, Learned] = {}
        self.without_rules_: dict[str, str] = {}

    def fit(self, kb: KnowledgeBase) -> Self:
        """Learn the rules of the targets."""
        self.kb = kb
        self.without_rules_ = {}
        jobs = [self._job(kb, targets) for targets in self._tasks(kb)]
        self.learned_ = {}
        for learned in self._learn(jobs):
            for name in learned.targets:
                self.learned_[name] = learned
        distinct = {id(each): each for each in self.learned_.values()}
        rules = [rule for each in distinct.values() for rule in each.rules]
        against = [(rule.annotations.number("weight") or 0.0) < 0 for rule in rules]
        self.rules_ = RuleSet([rule for rule, no in zip(rules, against, strict=True) if not no])
        self.against_ = RuleSet([rule for rule, no in zip(rules, against, strict=True) if no])
        spoken = {str(rule.head.predicate) for rule in self.rules_.rules}
        for name, learned in self.learned_.items():
            if name not in spoken:
                kind = "nothing occurs near its facts" if not learned.read else "no rule was precise enough"
                self.without_rules_[name] = f"{kind}; {learned.read} rules were read"
        return self

    def scores(
        self,
        target: str,
        arguments: Sequence[npt.NDArray[np.int64]],
        *,
        kb: KnowledgeBase | None = None,
        soft: bool = False,
    ) -> Floats:
        """Return how true a target is of questions, given as columns of ids, each without its own fact.

        Hard scores are those of the extracted rules: ``1 − Π (1 − confidence)`` over those that hold. Soft scores are
        those of the relaxed rules, ``σ(a + b · score)``, of the surest slot.
        """
        learned = self._of(target)
        columns = [np.asarray(each, dtype=np.int64) for each in arguments]
        facts = self._fitted() if kb is None else kb
        if soft:
            return soft_scores(learned, target, columns, facts, self.shape)
        return hard_scores(learned, target, columns, facts)

    def classify(self, kb: KnowledgeBase | None = None) -> ClassScores:
        """Return the scores of all classes for every entity of a knowledge base that has a class, its label hidden."""
        if not self.exclusive:
            raise DataError("classify is for classes; say exclusive=True")
        learned = next(iter(self.learned_.values()), None)
        if learned is None:
            raise DataError("fit(kb) comes first")
        return class_scores(learned, self._fitted() if kb is None else kb)

    def _fitted(self) -> KnowledgeBase:
        if self.kb is None:
            raise DataError("fit(kb) comes first")
        return self.kb

    def _of(self, target: str) -> Learned:
        self._fitted()
        if target not in self.learned_:
            raise unknown_name("target", target, self.learned_)
        return self.learned_[target]

    def _tasks(self, kb: KnowledgeBase) -> list[tuple[str, ...]]:
        usable = [name for name, each in kb.predicates.items() if signature(each) in ("e", "ee")]
        if not usable:
            raise DataError("no predicate is about one or two entities, so there is nothing to explain")
        for name in self.targets or ():
            if signature(kb.predicate(name)) not in ("e", "ee"):
                raise DataError(f"{name} is no predicate of one or two entities, and only those can be explained")
        wanted = usable if self.targets is None else list(self.targets)
        if self.exclusive:
            wanted = [name for name in wanted if signature(kb.predicate(name)) == "e" or self.targets is not None]
        for name in wanted:
            if not kb.count(name):
                self.without_rules_[name] = "it has no facts"
        asked = [name for name in wanted if kb.count(name)]
        if not asked:
            raise DataError(f"no target has a fact to learn from: {', '.join(wanted)}")
        if not self.exclusive:
            return [(name,) for name in asked]
        binary = [name for name in asked if signature(kb.predicate(name)) != "e"]
        if binary:
            raise DataError(f"exclusive targets are classes of one entity, and {binary[0]} is about two")
        if len(asked) < 2:
            raise DataError(f"exclusive targets are two classes or more, got {asked}")
        return [tuple(asked)]

    def _job(self, kb: KnowledgeBase, targets: tuple[str, ...]) -> Job:
        place = None
        if self.folder is not None:
            place = str(Path(self.folder) / (_file_name(targets[0]) if len(targets) == 1 else "classes"))
        return Job(
            kb,
            targets,
            self.shape,
            self.training_options,
            self.search_options,
            self.held_out,
            self.negatives,
            self.l2,
            self.refit,
            self.seed,
            place,
        )

    def _learn(self, jobs: Sequence[Job]) -> Iterator[Learned]:
        if self.processes == 1 or len(jobs) == 1:
            for job in jobs:
                yield learn(job, self.progress)
            return
        found: dict[int, Learned] = {}
        with _workers(self.processes, len(jobs)) as pool:
            running = {pool.submit(learn_alone, job): number for number, job in enumerate(jobs)}
            for done, future in enumerate(as_completed(running), start=1):
                found[running[future]] = future.result()
                if self.progress is not None:
                    self.progress(jobs[running[future]].targets[0], done, len(jobs))
        yield from (found[number] for number in range(len(jobs)))


@contextmanager
def _workers(processes: int, jobs: int) -> Iterator[ProcessPoolExecutor]:
    # a fork would copy the threads' locks, and then wait for them for ever
    pool = ProcessPoolExecutor(min(processes, jobs), mp_context=get_context("spawn"))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _file_name(target: str) -> str:
    return "".join(each if each.isalnum() or each in "-_" else f"%{ord(each):02x}" for each in target)
