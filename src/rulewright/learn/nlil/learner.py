"""Explaining predicates by rules that transformers write."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import torch

from rulewright.checks import SHARE, TIME_LIMIT, Flag, Names, OneOf, ParameterRule, Progress, Real, Whole, read_names
from rulewright.data import KnowledgeBase, signature
from rulewright.data.index import Ids
from rulewright.errors import DataError, unknown_name
from rulewright.interrupts import TimeBudget
from rulewright.learn.base import Learner, describe_time_limit, list_names
from rulewright.learn.nlil.choices import RuleShape
from rulewright.learn.nlil.classes import ClassResult, ClassScores, learn_classes, score_classes
from rulewright.learn.nlil.facts import FactGraph, Floats, StatementCodes, Vocabulary
from rulewright.learn.nlil.formulas import RuleWriter, match_conjunctions
from rulewright.learn.nlil.generator import Truth, score_questions
from rulewright.learn.nlil.questions import LearningTask
from rulewright.learn.nlil.rounds import SelectionSettings, TaskResult, learn_predicate
from rulewright.learn.nlil.search import GeneratorSettings, Objective, RuleSearch
from rulewright.logic import Rule, RuleSet

BLOCK = 2048
"""How many questions soft scores are computed for at a time."""


class NLILLearner(Learner):
    """Explains predicates: for each, transformers write rules of paths, joined statements and their combinations.

    A rule's parts are chosen by attention that depends on the target alone, never on a question, so that a rule means
    the same everywhere (Equations 3 to 15 of the paper). Rules are drawn by chance as attention has it, and counted on
    questions, each without its own fact; with ``epochs`` the transformers learn to draw what gained, given what is
    explained already, and where rules are combined later rounds go on from the best rules of earlier ones. Every rule
    is then counted exactly, and those are kept that explain the target.

    Args:
        targets: the predicates to explain, of one or two entities; by default all that have facts.
        exclusive: the targets are classes of which an entity has one. They are learned together, all labels of the
            entity in question are hidden, and the rules get ``weight``s by which `classify` combines them.
        steps, chains: how many operators a path has at most, and how many chains of operators a rule has for each
            argument.
        levels, combinations, negation: how often statements are combined, into how many formulas, and whether
            complements take part; with them comes "or".
        shared, width, layers, heads: of the transformers; ``shared`` gives all rules the same embeddings.
        slots, seeds: how many rules of a target are trained at a time, and from how many true questions the choice of
            predicates of each is made (0: all choose from the same).
        objective: what is learned. ``"counted"``: to draw rules that gain, by what was counted of those drawn before.
            ``"relaxed"``: to answer questions by relaxed rules, by gradient, as in the paper; rules are drawn when that
            is done, from a generator for each round.
        epochs, rate, entropy: of training: in how many parts between draws (``"counted"``), or passes over questions
            (``"relaxed"``), with what learning rate (.003 suits ``"relaxed"``), and what is given for choices that stay
            open (``"counted"``) or is the price of those that do (``"relaxed"``). With 0 epochs nothing is trained:
            rules are drawn as chance has it from what occurs near true questions, which was measured to be as good in
            as much time but for trees; 4 epochs (30 of ``"relaxed"``) are enough.
        batch_size, sharpest, truth: of the objective ``"relaxed"``: questions a step, the last temperature, and
            ``"exponential"``, ``1 − exp(−count)``, or ``"paper"``, ``σ(count)``, which is never below ½.
        max_predicates, max_edges: how many operators and statements a rule chooses from, and how many steps are
            followed from one entity in training (all by default).
        rounds, samples: how many times rules are drawn, each time about what is still unexplained, and how many rules
            each slot draws in a round.
        max_length, min_support, min_precision, max_rules: of the rules that are kept for a target.
        max_heads, max_facts: on how many first arguments that have the target, and on how many that have not, rules of
            two arguments are counted before they are chosen, and how many facts a round asks about. The rules that are
            kept are counted on all.
        max_chained: up to how many facts it is checked that recursive rules have something to start from.
        negatives: how many checked wrong questions stand beside each right one, half of them near it.
        held_out: the share of questions, or of worlds, that rules are measured on and not learned from.
        l2, refit: how firmly the weights of classes' rules are held, and whether they are fitted once more with what
            was held out, after rules were measured on it.
        processes: how many targets are learned at a time, each in a process of its own.
        time_limit: about how many seconds to learn for, the best so far being kept; every target and round has its
            share, and sharpens the sooner the less it has.
        folder: keeps checkpoints; fitting again continues where it stopped.

    ``rules_`` has the rules: confidence is precision, with support, body and coverage in ``@{…}``, counted over all
    first arguments as `rulewright.explain_counts` does (``support_heads``, ``body_heads``). Beside it stands what was
    seen on what was held out, ``held_out_support`` of ``held_out_body``, with its 95 % interval, ``held_out_low`` to
    ``held_out_high``. For classes, all labels of an entity are hidden from it. ``against_`` has the rules whose weight
    is negative: where they hold, their class is less likely. That something does not exist is said by a predicate that
    an auxiliary rule before defines, ``has_b(X) :- b(X, Y)``: these are ``auxiliary_`` too. ``learned_`` has for each
    target how it went, ``without_rules_`` which targets have no rules and why.

    >>> from rulewright.data.generators import even_successor
    >>> options = {"levels": 0, "layers": 1, "seeds": 0, "slots": 13}
    >>> learner = NLILLearner(targets=["even"], held_out=0, min_support=1, min_precision=1.0, **options)
    >>> sorted(str(rule.canonical()) for rule in learner.fit(even_successor(20).kb).rules_.rules)
    ['even(X0) :- even(X1), succ(X1, X2), succ(X2, X0).', 'even(X0) :- zero(X0).']

    Yang and Song, Learn to Explain Efficiently via Neural Logic Inductive Learning, ICLR 2020.
    """

    against_: RuleSet
    auxiliary_: RuleSet
    learned_: dict[str, TaskResult]
    without_rules_: dict[str, str]
    kb_: KnowledgeBase

    _parameter_rules: ClassVar[Mapping[str, ParameterRule]] = {
        "targets": Names(),
        **dict.fromkeys(("exclusive", "negation", "shared", "refit"), Flag()),
        **dict.fromkeys(("steps", "chains", "combinations", "width", "layers", "heads", "slots"), Whole(1)),
        **dict.fromkeys(("batch_size", "max_predicates", "rounds", "max_length"), Whole(1)),
        **dict.fromkeys(("min_support", "max_rules", "max_heads", "max_facts", "negatives", "processes"), Whole(1)),
        **dict.fromkeys(("epochs", "levels", "seeds", "samples", "max_chained", "seed"), Whole(0)),
        **dict.fromkeys(("rate", "entropy", "l2"), Real(0)),
        "max_edges": Whole(1, optional=True),
        "sharpest": Real(0, 1, above=True),
        "truth": OneOf("exponential", "paper"),
        "objective": OneOf("counted", "relaxed"),
        "min_precision": SHARE,
        "held_out": Real(0, 1, below=True),
        "time_limit": TIME_LIMIT,
    }

    def __init__(
        self,
        *,
        targets: str | Collection[str] | None = None,
        exclusive: bool = False,
        steps: int = 2,
        chains: int = 1,
        levels: int = 1,
        combinations: int = 4,
        negation: bool = False,
        shared: bool = False,
        width: int = 32,
        layers: int = 3,
        heads: int = 4,
        slots: int = 7,
        seeds: int = 3,
        epochs: int = 0,
        batch_size: int = 256,
        rate: float = 0.02,
        sharpest: float = 0.3,
        entropy: float = 0.05,
        truth: Truth = "exponential",
        objective: Objective = "counted",
        max_predicates: int = 40,
        max_edges: int | None = None,
        rounds: int = 6,
        samples: int = 60,
        max_length: int = 6,
        min_support: int = 2,
        min_precision: float = 0.5,
        max_rules: int = 20,
        max_heads: int = 1000,
        max_facts: int = 2000,
        max_chained: int = 50_000,
        negatives: int = 4,
        held_out: float = 0.1,
        l2: float = 0.25,
        refit: bool = False,
        seed: int = 0,
        processes: int = 1,
        time_limit: float | None = None,
        folder: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.targets, self.exclusive = targets, exclusive
        self.steps, self.chains = steps, chains
        self.levels, self.combinations, self.negation = levels, combinations, negation
        self.shared, self.width, self.layers, self.heads = shared, width, layers, heads
        self.slots, self.seeds = slots, seeds
        self.epochs, self.batch_size, self.rate = epochs, batch_size, rate
        self.sharpest, self.entropy, self.truth = sharpest, entropy, truth
        self.objective = objective
        self.max_predicates, self.max_edges = max_predicates, max_edges
        self.rounds, self.samples = rounds, samples
        self.max_length, self.min_support, self.min_precision = max_length, min_support, min_precision
        self.max_rules, self.max_heads, self.max_facts, self.max_chained = max_rules, max_heads, max_facts, max_chained
        self.negatives, self.held_out, self.l2, self.refit = negatives, held_out, l2, refit
        self.seed, self.processes, self.time_limit = seed, processes, time_limit
        self.folder, self.progress = folder, progress
        self._check_parameters()

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.width % self.heads:
            raise DataError(f"width must be a multiple of heads ({self.heads}), got {self.width}")

    def fit(self, kb: KnowledgeBase) -> Self:
        """Learn the rules of the targets."""
        self._check_before_fit(kb)
        self.kb_ = kb
        names = self._choose_targets(kb)
        usable = [name for name in names if kb.count(name)]
        tasks = [tuple(usable)] if self.exclusive else [(name,) for name in usable]
        results = self._learn(kb, tasks)
        self.note_ = "; ".join(filter(None, [self._describe_cuts(usable, results), self._describe_samples(results)]))
        self.learned_ = {name: result for result in results for name in result.targets}
        self.rules_ = RuleSet(self._with_definitions(kb, results, against=False))
        self.against_ = RuleSet(self._with_definitions(kb, results, against=True))
        both = dict.fromkeys((*self.rules_.rules, *self.against_.rules))
        self.auxiliary_ = RuleSet([rule for rule in both if rule.annotations.get("auxiliary")])
        explained = {str(rule.head.predicate) for rule in self.rules_.rules}
        self.without_rules_ = {name: "it has no facts" for name in names if not kb.count(name)}
        for name, result in self.learned_.items():
            if name not in explained:
                reason = "no rule was precise enough" if result.n_read else "nothing occurs near its facts"
                if kb.count(name) < self.min_support:
                    reason = f"it has fewer facts than min_support={self.min_support}"
                self.without_rules_[name] = f"{reason}; {result.n_read} rules were read"
        return self

    def _with_definitions(self, kb: KnowledgeBase, results: Sequence[TaskResult], *, against: bool) -> list[Rule]:
        """Return the rules that speak for their heads, or against them, each after those that define what it uses."""
        vocabulary = Vocabulary.from_facts(kb)
        rules: dict[Rule, None] = {}
        for result in results:
            codes = StatementCodes(vocabulary.arity(result.targets[0]), vocabulary)
            writers = [RuleWriter(name, codes, kb.predicates) for name in result.targets]
            for (target_index, body), rule in zip(result.written, result.rules, strict=True):
                if ((rule.annotations.number("weight") or 0.0) < 0) == against:
                    rules |= dict.fromkeys([*writers[target_index].write_auxiliary(body), rule])
        return list(rules)

    def scores(
        self, target: str, arguments: Sequence[Ids], *, kb: KnowledgeBase | None = None, soft: bool = False
    ) -> Floats:
        """Return how true a target is of questions, given as columns of entity indices, each without its own fact.

        Hard scores are those of the extracted rules: ``1 − Π (1 − confidence)`` over those that hold. Soft scores are
        those of the relaxed rules, the highest ``σ(a + b · score)`` of all slots of all generators: only where
        ``objective`` is ``"relaxed"`` and something was trained.
        """
        if target not in self.learned_:
            raise unknown_name("target", target, self.learned_)
        result = self.learned_[target]
        task = LearningTask.for_targets(FactGraph(self.kb_ if kb is None else kb), result.targets)
        columns = [np.asarray(column, dtype=np.int64) for column in arguments]
        target_index = result.targets.index(target)
        if soft and not result.generators:
            raise DataError('soft scores are those of relaxed rules: learn with objective="relaxed" and epochs')
        if soft:
            return self._score_softly(result, task, target_index, columns)
        pairs = zip(result.written, result.rules, strict=True)
        own = [(body, rule) for (rule_target, body), rule in pairs if rule_target == target_index]
        rows = match_conjunctions((body for body, _ in own), task, columns)
        left = np.ones(len(columns[0]))
        for body, rule in own:
            left[rows[body]] *= 1 - rule.confidence
        return 1 - left

    def _score_softly(
        self, result: TaskResult, task: LearningTask, target_index: int, columns: Sequence[Ids]
    ) -> Floats:
        best = np.zeros(len(columns[0]))
        for generator in result.generators:
            slots = generator.choices.slots
            builder = generator.choices.builder(task, generator.shape)
            with torch.no_grad():
                attentions = generator(self.sharpest)
                for low in range(0, len(best), BLOCK):
                    block = slice(low, low + BLOCK)
                    evidence = builder.build([column[block] for column in columns], task.hidden)
                    odds = generator.log_odds(score_questions(attentions, evidence))
                    own = odds[:, target_index * slots : (target_index + 1) * slots].sigmoid().max(dim=1).values
                    best[block] = np.maximum(best[block], own.double().numpy())
        return best

    def classify(self, kb: KnowledgeBase | None = None) -> ClassScores:
        """Return the scores of all classes for every entity of a knowledge base that has a class, its label hidden."""
        if not self.exclusive:
            raise DataError("classify is for classes: set exclusive=True")
        return score_classes(self.class_result(), self.kb_ if kb is None else kb)[0]

    def class_result(self) -> ClassResult:
        """Return what was learned of exclusive targets."""
        result = next(iter(self.learned_.values()))
        assert isinstance(result, ClassResult)
        return result

    def _choose_targets(self, kb: KnowledgeBase) -> list[str]:
        """Return the predicates to explain, those without facts too; what cannot be explained is refused."""
        signatures = {name: signature(predicate) for name, predicate in kb.predicates.items()}
        usable = [name for name, facts_signature in signatures.items() if facts_signature in ("e", "ee")]
        if not usable:
            raise DataError("no predicate is about one or two entities, so there is nothing to explain")
        targets = read_names(self.targets)
        for name in targets or ():
            if signature(kb.predicate(name)) not in ("e", "ee"):
                raise DataError(f"{name} is no predicate of one or two entities, and only those can be explained")
        names = usable if targets is None else targets
        if self.exclusive and targets is None:
            names = [name for name in names if signatures[name] == "e"]
        with_facts = [name for name in names if kb.count(name)]
        if not with_facts:
            raise DataError(f"no target has a fact to learn from: {', '.join(names)}")
        relations = [name for name in with_facts if signatures[name] == "ee"]
        if self.exclusive and relations:
            raise DataError(f"exclusive targets are classes of one entity, and {relations[0]} is about two")
        if self.exclusive and len(with_facts) < 2:
            raise DataError(f"exclusive targets are two classes or more, got {with_facts}")
        return names

    def make_search(
        self,
        task: LearningTask,
        folder: Path | None = None,
        progress: Progress | None = None,
        budget: TimeBudget | None = None,
    ) -> RuleSearch:
        """Return what trains generators for a task with these parameters and reads their rules."""
        shape = RuleShape(
            steps=self.steps,
            chains=self.chains,
            levels=self.levels,
            combinations=self.combinations,
            negation=self.negation,
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
            objective=self.objective,
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
            folder=folder,
            progress=progress,
            budget=budget,
        )

    def _learn_task(self, kb: KnowledgeBase, targets: tuple[str, ...], budget: TimeBudget) -> TaskResult:
        folder = None
        if self.folder is not None:
            folder = Path(self.folder) / (safe_file_name(targets[0]) if len(targets) == 1 else "classes")
        search = self.make_search(LearningTask.for_targets(FactGraph(kb), targets), folder, self.progress, budget)
        settings = SelectionSettings(
            min_support=self.min_support,
            min_precision=self.min_precision,
            max_rules=self.max_rules,
            max_heads=self.max_heads,
            max_facts=self.max_facts,
            max_chained=self.max_chained,
            negatives=self.negatives,
            held_out=self.held_out,
            l2=self.l2,
            refit=self.refit,
        )
        return learn_classes(search, settings) if len(targets) > 1 else learn_predicate(search, settings)

    def _describe_cuts(self, targets: Sequence[str], results: Sequence[TaskResult]) -> str:
        """Say which targets the time limit left unfinished, and which it left out."""
        learned = [name for result in results for name in result.targets]
        cut = [name for result in results for name in result.targets if result.is_cut]
        missing = [name for name in targets if name not in learned]
        parts = [f"{list_names(cut)} had less training than asked for"] if cut else []
        parts += [f"{list_names(missing)} had none"] if missing else []
        return describe_time_limit(self.time_limit, " and ".join(parts))

    def _describe_samples(self, results: Sequence[TaskResult]) -> str:
        """Say which targets' rules were chosen, and perhaps counted, on a sample of first arguments."""
        sampled = [name for result in results for name in result.targets if result.is_sampled]
        estimated = [name for result in results for name in result.targets if result.is_estimated]
        if not sampled:
            return ""
        note = f"rules of {list_names(sampled)} were chosen on {self.max_heads:,} first arguments that have the target "
        note += f"and {self.max_heads:,} that have not (max_heads)"
        if estimated:
            return f"{note}; the time was over before those of {list_names(estimated)} were counted on all"
        return f"{note}, and those kept were counted on all"

    def _learn(self, kb: KnowledgeBase, tasks: Sequence[tuple[str, ...]]) -> list[TaskResult]:
        if self.processes == 1 or len(tasks) == 1:
            budget = TimeBudget(self.time_limit)
            results: list[TaskResult] = []
            for position, targets in enumerate(tasks):
                if position and budget.is_over:
                    break
                results.append(self._learn_task(kb, targets, budget.share(len(tasks) - position)))
            return results
        seconds = None if self.time_limit is None else self.time_limit * min(1.0, self.processes / len(tasks))
        worker = NLILLearner(**{**self.get_params(deep=False), "progress": None})
        # a fork would copy the threads' locks, and then wait for them for ever
        pool = ProcessPoolExecutor(min(self.processes, len(tasks)), mp_context=get_context("spawn"))
        try:
            running = {pool.submit(_learn_on_one_thread, worker, kb, targets, seconds): targets for targets in tasks}
            for done, future in enumerate(as_completed(running), start=1):
                future.result()
                if self.progress is not None:
                    self.progress(running[future][0], done, len(tasks))
            return [future.result() for future in running]
        finally:
            pool.shutdown(cancel_futures=True)


def _learn_on_one_thread(
    learner: NLILLearner, kb: KnowledgeBase, targets: tuple[str, ...], seconds: float | None
) -> TaskResult:
    torch.set_num_threads(1)
    return learner._learn_task(kb, targets, TimeBudget(seconds))


def safe_file_name(name: str) -> str:
    """Return a name with what file names may not contain replaced.

    >>> safe_file_name("/people/born_in")
    '%2fpeople%2fborn_in'
    """
    return "".join(letter if letter.isalnum() or letter in "-_" else f"%{ord(letter):02x}" for letter in name)
