"""Rounds of one task: generators trained one after the other, each on what the rules so far leave unexplained.

`learn_predicate` runs the rounds of a predicate from beginning to end: questions, generators (`RuleSearch`), counting,
choosing, and figures on what was held out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
    CountedRule,
    PairCounter,
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

    ``measured_on`` says what the figures are about, and ``held_out`` has the questions that were held out. ``recall``
    is the share of true training questions that some rule is right of; ``n_read`` how many rules were read, ``refused``
    how many were no rules of the language, by reason. ``grounded`` says whether recursive rules have something to start
    from: None where none is recursive or it was not found out. ``is_cut`` says whether time was over too soon.
    """

    targets: tuple[str, ...]
    written: tuple[WrittenRule, ...]
    rules: tuple[Rule, ...]
    generators: tuple[Generator, ...]
    measured_on: str
    recall: float
    n_read: int
    refused: Mapping[str, int]
    grounded: bool | None
    held_out: TargetQuestions
    is_cut: bool


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


def learn_predicate(search: RuleSearch, settings: SelectionSettings) -> TaskResult:
    """Explain a predicate of one or two entities."""
    task, seed = search.task, search.seed
    if task.arity == 1:
        train, held_out, measured_on = split_entities(task, settings.held_out, seed)

        def ask(round_index: int) -> TargetQuestions:
            return balance_questions(train, task.graph.kb.entity_worlds, settings.negatives, seed + round_index)

        def count(rules: Iterable[WrittenRule], questions: TargetQuestions) -> list[CountedRule]:
            return count_rules(rules, task, questions)

        return _run_rounds(search, settings, ask, count, train, held_out, measured_on)

    facts, false = task.target_facts(), task.target_facts(truth=False)
    every = TargetQuestions(facts, np.ones((len(facts[0]), 1), dtype=bool))
    train, held_out, measured_on = split_questions(every, facts[0], settings.held_out, seed)
    counters = [PairCounter(task, part.arguments, most=settings.max_heads, seed=seed) for part in (train, held_out)]
    known = train.arguments

    def ask_pairs(round_index: int) -> TargetQuestions:
        order = np.random.default_rng([seed, round_index]).permutation(len(known[0]))
        some = tuple(column[np.sort(order[: settings.max_facts])] for column in known)
        ratio = settings.negatives
        return add_wrong_pairs(some, facts, task.graph, ratio=ratio, seed=seed + round_index, false=false)

    def count_pairs(rules: Iterable[WrittenRule], questions: TargetQuestions) -> list[CountedRule]:
        counter = counters[0] if questions is counters[0].questions else counters[1]
        return counter.count(
            rule for rule in rules if any(literal.is_joining and positive for literal, positive in rule[1])
        )

    return _run_rounds(
        search, settings, ask_pairs, count_pairs, counters[0].questions, counters[1].questions, measured_on
    )


def _run_rounds(
    search: RuleSearch,
    settings: SelectionSettings,
    ask: Callable[[int], TargetQuestions],
    count: Callable[[Iterable[WrittenRule], TargetQuestions], list[CountedRule]],
    train: TargetQuestions,
    held_out: TargetQuestions,
    measured_on: str,
) -> TaskResult:
    """Train, read and count until what is true is explained, or the rounds are over; then choose."""
    pool: list[CountedRule] = []
    kept: list[CountedRule] = []
    seen: set[WrittenRule] = set()
    positives = int(train.truth.sum())
    grounded: bool | None = None

    def choose(rules: Sequence[CountedRule]) -> list[CountedRule]:
        return choose_cover(
            rules,
            [search.is_recursive(rule) for rule in rules],
            min_support=settings.min_support,
            min_precision=settings.min_precision,
            max_rules=settings.max_rules,
        )

    for round_index in range(search.rounds):
        if search.is_out_of_time():
            break
        questions = ask(round_index)
        weights = balance_weights(questions.truth, _unexplained(questions, train, kept))
        # a recursive set with nothing to start from needs rules that do not use the target
        new = search.run_round(questions, weights, recursive=grounded is not False) - seen
        seen |= new
        tried = new if search.budget.seconds is None else search.try_rules(new, train)
        pool += [rule for rule in count(tried, train) if rule.support]
        kept = choose(pool)
        if len(right_rows(kept)) == positives:
            grounded = _is_grounded(search, settings.max_chained, kept, train)
            if grounded is not False:
                break
    if grounded is None:
        grounded = _is_grounded(search, settings.max_chained, kept, train)
    if grounded is False:  # rules that start a recursion come before those that only repeat it
        starts = [rule for rule in choose([rule for rule in pool if not search.is_recursive(rule)]) if rule not in kept]
        kept = [*starts, *kept]
        grounded = _is_grounded(search, settings.max_chained, kept, train)
    measured = {rule.written: rule for rule in count([rule.written for rule in kept], held_out)}
    return TaskResult(
        search.task.targets,
        tuple(rule.written for rule in kept),
        tuple(search.write_measured(rule, measured[rule.written], held_out, measured_on) for rule in kept),
        tuple(search.generators),
        measured_on,
        len(right_rows(kept)) / max(1, positives),
        len(seen),
        dict(search.refused),
        grounded,
        held_out,
        search.is_cut,
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
    rules = RuleSet([search.writers[0].write(rule.conjunction) for rule in kept])
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
