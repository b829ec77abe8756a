"""Rounds of one task: generators trained one after the other, each on what the rules so far leave unexplained.

`learn_predicate` runs the rounds of a predicate from beginning to end: questions and counting (`EntityCounts`,
`PairCounts`), generators (`RuleSearch`), choosing, and figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rulewright.data.index import Ids
from rulewright.errors import TimeLimitError
from rulewright.interrupts import time_limit
from rulewright.learn.nlil.facts import Floats, Mask
from rulewright.learn.nlil.generator import Generator
from rulewright.learn.nlil.questions import LearningTask, TargetQuestions, add_wrong_pairs, balance_questions
from rulewright.learn.nlil.search import RuleSearch
from rulewright.learn.nlil.selection import (
    BodyWalks,
    CountedRule,
    PairCounter,
    RuleFigures,
    WrittenRule,
    choose_cover,
    count_rules,
    right_rows,
    unexplained_shares,
)
from rulewright.logic import Rule, RuleSet
from rulewright.reason.apply import apply

FEW = 10
"""With fewer true questions than this nothing is held out, and rules are measured on what they were learned from."""
CHAINED = 12
"""How many rounds recursive rules are chained forwards."""


@dataclass(frozen=True)
class SelectionSettings:
    """How rules are counted and chosen: see `NLILLearner`."""

    min_support: int
    min_precision: float
    max_rules: int
    max_heads: int
    max_facts: int
    max_chained: int
    negatives: int
    held_out: float
    l2: float
    refit: bool


@dataclass(frozen=True)
class TaskResult:
    """What was learned of a task: rules with their figures, in the order of the targets, and how it went.

    ``generators`` are those trained by relaxed scores, ``n_rounds`` how many rounds there were. ``measured_on`` says
    what the figures are about, and ``held_out`` has the questions that were held out. ``recall``
    is the share of true training questions that some rule is right of; ``n_read`` how many rules were read, ``refused``
    how many were no rules of the language, by reason. ``grounded`` says whether recursive rules have something to start
    from: None where none is recursive or it was not found out. ``is_cut`` says whether time was over too soon,
    ``is_sampled`` whether rules were chosen on a sample of first arguments, and ``is_estimated`` whether their figures
    are estimates from it.
    """

    targets: tuple[str, ...]
    written: tuple[WrittenRule, ...]
    rules: tuple[Rule, ...]
    generators: tuple[Generator, ...]
    n_rounds: int
    measured_on: str
    recall: float
    n_read: int
    refused: Mapping[str, int]
    grounded: bool | None
    held_out: TargetQuestions
    is_cut: bool
    is_sampled: bool
    is_estimated: bool


def balance_weights(truth: Mask, unexplained: Floats) -> Floats:
    """Return weights by which, for each target, what is true and still unexplained weighs as much as what is false.

    ``unexplained`` is how much of each true answer no rule so far accounts for.
    """
    true = np.where(truth, np.maximum(unexplained, 1e-3), 0.0)
    false = np.where(truth, 0.0, 1.0)
    shares = [part / np.maximum(part.sum(axis=0), 1e-12) for part in (true, false)]
    weights: Floats = (shares[0] + shares[1]) * len(truth) / 2
    return weights


def split_questions(
    questions: TargetQuestions, group: Ids, share: float, seed: int
) -> tuple[TargetQuestions, TargetQuestions, str]:
    """Hold a share of the groups of questions out; where there are few questions, measure on all."""
    if share and questions.truth.any(axis=1).sum() >= FEW:
        different = np.unique(group)
        chosen = np.random.default_rng(seed).permutation(different)[: max(1, round(share * len(different)))]
        out = np.isin(group, chosen)
        if questions.truth[~out].any() and questions.truth[out].any():
            return questions.take(~out), questions.take(out), "held out"
    return questions, questions, "train"


def split_entities(task: LearningTask, share: float, seed: int) -> tuple[TargetQuestions, TargetQuestions, str]:
    """Hold a share of the questions about one entity out, by whole worlds where there are several."""
    questions, worlds = task.all_questions(), task.graph.kb.entity_worlds
    group = np.arange(len(questions)) if worlds is None else worlds[questions.arguments[0]].astype(np.int64)
    return split_questions(questions, group, share, seed)


class EntityCounts:
    """The questions of a target of one entity, and rules counted on them."""

    is_sampled = False

    def __init__(self, search: RuleSearch, settings: SelectionSettings) -> None:
        self._search, self._settings = search, settings
        self.train, self.held_out, self.measured_on = split_entities(search.task, settings.held_out, search.seed)
        self._facts = int(self.train.truth.sum())
        if self.measured_on != "train":
            self._facts += int(self.held_out.truth.sum())

    def ask(self, round_index: int) -> TargetQuestions:
        """Return the questions of a round."""
        worlds = self._search.task.graph.kb.entity_worlds
        return balance_questions(self.train, worlds, self._settings.negatives, self._search.seed + round_index)

    def count(self, rules: Iterable[WrittenRule]) -> list[CountedRule]:
        """Count rules on the questions of training."""
        return count_rules(rules, self._search.task, self.train)

    def measure(self, rules: Iterable[CountedRule]) -> list[RuleFigures]:
        """Count what is kept on all there is."""
        kept = {rule.written: rule for rule in rules}
        if self.measured_on == "train":
            return [RuleFigures(rule, None, self._facts) for rule in kept.values()]
        held_out = {rule.written: rule for rule in count_rules(kept, self._search.task, self.held_out)}
        return [RuleFigures(rule, held_out[rule.written], self._facts) for rule in kept.values()]


class PairCounts:
    """The questions of a target of two entities, and rules counted on them.

    While rules are looked for, they are counted on up to ``max_heads`` first arguments that have the target and as many
    that have not; those that are kept are counted on all, unless the time is over.
    """

    def __init__(self, search: RuleSearch, settings: SelectionSettings) -> None:
        task, seed = search.task, search.seed
        self._search, self._settings, self._walks = search, settings, BodyWalks(task)
        self._facts, self._false = task.target_facts(), task.target_facts(truth=False)
        every = TargetQuestions(self._facts, np.ones((len(self._facts[0]), 1), dtype=bool))
        train, held_out, self.measured_on = split_questions(every, self._facts[0], settings.held_out, seed)
        others = np.setdiff1d(task.entities_with_facts(0), self._facts[0])
        parts = [(train.arguments, others)]
        if self.measured_on != "train":
            chosen = np.random.default_rng(seed).permutation(others)[: round(settings.held_out * len(others))]
            parts = [(train.arguments, np.setdiff1d(others, chosen)), (held_out.arguments, np.sort(chosen))]
        self._parts = parts
        self._counters = [PairCounter(self._walks, *part, most=settings.max_heads, seed=seed) for part in parts]
        self.train, self.held_out = self._counters[0].questions, self._counters[-1].questions
        self.is_sampled = self._counters[0].is_sampled

    def ask(self, round_index: int) -> TargetQuestions:
        """Return the questions of a round."""
        seed, known = self._search.seed, self._parts[0][0]
        order = np.random.default_rng([seed, round_index]).permutation(len(known[0]))
        some = tuple(column[np.sort(order[: self._settings.max_facts])] for column in known)
        ratio, task = self._settings.negatives, self._search.task
        return add_wrong_pairs(some, self._facts, task, ratio=ratio, seed=seed + round_index, false=self._false)

    def count(self, rules: Iterable[WrittenRule]) -> list[CountedRule]:
        """Count rules on the first arguments of training, or a sample of them."""
        return self._counters[0].count(rules)

    def measure(self, rules: Iterable[CountedRule]) -> list[RuleFigures]:
        """Count what is kept on all there is; where there is no time left for that, on the samples."""
        written = [rule.written for rule in rules]
        is_over = self._search.budget.is_over
        counted = []
        for part, counter in zip(self._parts, self._counters, strict=True):
            if counter.is_sampled and not is_over:
                counter = PairCounter(self._walks, *part, most=None)
            counted.append({rule.written: rule for rule in counter.count(written)})
        estimated = is_over and any(counter.is_sampled for counter in self._counters)
        facts = sum(len(counter.questions) for counter in self._counters) if estimated else len(self._facts[0])
        return [
            RuleFigures(counted[0][rule], counted[1][rule] if len(counted) > 1 else None, facts, estimated)
            for rule in written
        ]


def learn_predicate(search: RuleSearch, settings: SelectionSettings) -> TaskResult:
    """Explain a predicate of one or two entities: train, read and count until it is explained; then choose.

    It is explained where the rules kept are right of all that is true, and of nothing else.
    """
    counts = EntityCounts(search, settings) if search.task.arity == 1 else PairCounts(search, settings)
    train = counts.train
    pool: list[CountedRule] = []
    kept: list[CountedRule] = []
    seen: set[WrittenRule] = set()
    positives = int(train.truth.sum())
    grounded: bool | None = None
    figures: dict[WrittenRule, RuleFigures] = {}

    def choose(rules: Sequence[CountedRule]) -> list[CountedRule]:
        return choose_cover(
            rules,
            [search.is_recursive(rule) for rule in rules],
            min_support=settings.min_support,
            min_precision=settings.min_precision,
            max_rules=settings.max_rules,
        )

    def keep_measured(rules: Sequence[CountedRule]) -> list[CountedRule]:
        """Leave out what is not precise enough on all there is."""
        new = counts.measure(rule for rule in rules if rule.written not in figures)
        figures.update({rule.train.written: rule for rule in new})
        least, lowest = settings.min_support, settings.min_precision
        return [
            rule
            for rule in rules
            if figures[rule.written].support >= least and figures[rule.written].precision >= lowest
        ]

    # with fewer facts than a rule must be right of there is nothing to look for
    for round_index in range(search.rounds if positives >= settings.min_support else 0):
        if search.is_out_of_time():
            break
        questions = counts.ask(round_index)
        weights = balance_weights(questions.truth, _unexplained(questions, train, kept))
        # a recursive set with nothing to start from needs rules that do not use the target
        new = search.run_round(questions, weights, recursive=grounded is not False) - seen
        seen |= new
        tried = new if search.budget.seconds is None else search.try_rules(new, train)
        pool += [rule for rule in counts.count(tried) if rule.support]
        kept = choose(pool)
        while shorter := {short for rule in kept for short in search.shorten(rule.written)} - seen:
            seen |= shorter
            pool += [rule for rule in counts.count(shorter) if rule.support]
            kept = choose(pool)
        if len(right_rows(kept)) == positives and all(rule.precision == 1 for rule in kept):
            grounded = _is_grounded(search, settings.max_chained, kept, train)
            if grounded is not False:
                break
    kept = keep_measured(kept)
    grounded = _is_grounded(search, settings.max_chained, kept, train)
    if grounded is False:  # rules that start a recursion come before those that only repeat it
        starts = keep_measured(choose([rule for rule in pool if not search.is_recursive(rule)]))
        kept = [*(rule for rule in starts if rule not in kept), *kept]
        grounded = _is_grounded(search, settings.max_chained, kept, train)
    return TaskResult(
        search.task.targets,
        tuple(rule.written for rule in kept),
        tuple(figures[rule.written].write(search.writers[0]) for rule in kept),
        tuple(search.generators),
        search.n_rounds,
        counts.measured_on,
        len(right_rows(kept)) / max(1, positives),
        len(seen),
        dict(search.refused),
        grounded,
        counts.held_out,
        search.is_cut,
        counts.is_sampled,
        any(rule.estimated for rule in figures.values()),
    )


def _unexplained(questions: TargetQuestions, train: TargetQuestions, kept: Sequence[CountedRule]) -> Floats:
    """Return how much of each question is unexplained; the questions of training and of a round differ in order."""
    if not kept:
        return np.ones(questions.truth.shape)
    shares = unexplained_shares(kept, train.truth.shape)
    known, wanted = _keys(train.arguments), _keys(questions.arguments)
    order = np.argsort(known, kind="stable")
    row = order[np.minimum(np.searchsorted(known[order], wanted), len(order) - 1)]
    return np.where((known[row] == wanted)[:, None], shares[row], 1.0)


def _keys(arguments: Sequence[Ids]) -> Ids:
    """Return one integer for each question."""
    return arguments[0] if len(arguments) == 1 else arguments[0] * (2**31) + arguments[1]


def _is_grounded(
    search: RuleSearch, max_chained: int, kept: Sequence[CountedRule], train: TargetQuestions
) -> bool | None:
    """Return whether recursive rules derive, from facts without the target, all that they are right of.

    None where no rule is recursive, where there are too many facts or too little time to chain forwards, and where the
    chain is still growing after `CHAINED` rounds: it has a start then.
    """
    kb, target = search.task.graph.kb, search.task.targets[0]
    if not any(map(search.is_recursive, kept)) or kb.n_facts > max_chained:
        return None
    target_index = kb.predicate_index(target)
    tables = {name: table.keep_rows(table.predicate != target_index) for name, table in kb.tables().items()}
    writer = search.writers[0]
    definitions = dict.fromkeys(auxiliary for rule in kept for auxiliary in writer.write_auxiliary(rule.conjunction))
    rules = RuleSet([*definitions, *(writer.write(rule.conjunction) for rule in kept)])
    try:
        with time_limit(search.budget.left):
            inferred = apply(rules, kb.with_facts(tables), max_rounds=CHAINED)
    except TimeLimitError:
        return None
    derived = _keys([column.astype(np.int64) for column in inferred.facts.columns(target)])
    right = right_rows(kept)
    if np.isin(_keys([column[right] for column in train.arguments]), derived).all():
        return True
    return None if inferred.note else False
