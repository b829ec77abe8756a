"""Rounds of one task: generators trained one after the other, each on what the rules so far leave unexplained.

`RuleSearch` trains a generator and reads its rules; `learn_predicate` runs the rounds of a predicate from beginning to
end: counting, choosing, and figures on what was held out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from rulewright.checks import Progress
from rulewright.data.index import Ids
from rulewright.errors import TimeLimitError
from rulewright.interrupts import TimeBudget, time_limit
from rulewright.learn.nlil.choices import RuleChoices, RuleShape, choose_predicates
from rulewright.learn.nlil.facts import Floats, Mask, StatementCodes
from rulewright.learn.nlil.formulas import (
    Alternatives,
    RuleReader,
    RuleWriter,
    count_atoms,
    make_sampler,
    pick_likeliest,
)
from rulewright.learn.nlil.generator import Generator, Truth, score_questions
from rulewright.learn.nlil.questions import LearningTask, TargetQuestions, add_wrong_pairs, balance_questions
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
from rulewright.training.loop import StepPosition, TrainingLoop, TrainingProgress, TrainingSettings

TEMPERATURES = (1.0, 2.0, 4.0)
"""At which choices are drawn, times the sharpest: the hotter, the further from the likeliest rule."""
FEW = 10
"""With fewer true questions than this nothing is held out, and rules are measured on what they were learned from."""
TRIED = 256
"""On how many true questions rules are tried before they are counted on all, where time is limited."""
_TICKS = 1000
"""Of how many parts of a round is told that they are done."""
CHAINED = 12
"""How many rounds recursive rules are chained forwards."""


@dataclass(frozen=True)
class GeneratorSettings:
    """How a generator is trained: see `NLILLearner`."""

    slots: int
    seeds: int
    epochs: int
    batch_size: int
    rate: float
    sharpest: float
    entropy: float
    truth: Truth
    max_predicates: int
    max_edges: int | None


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


def train_generator(
    task: LearningTask,
    questions: TargetQuestions,
    weights: Floats,
    choices: RuleChoices,
    shape: RuleShape,
    settings: GeneratorSettings,
    *,
    seed: int,
    round_index: int = 0,
    folder: Path | None = None,
    progress: Callable[[float], None] | None = None,
    budget: TimeBudget | None = None,
) -> tuple[Generator, bool]:
    """Train a generator on questions, each with a weight for each target, ``[questions, targets]``.

    The loss of each rule is the cross-entropy of ``σ(a + b · score)`` with ``a`` and ``b > 0`` its own: it need not be
    right always, only be as informative as it can. The temperature of all choices falls from 1 to ``sharpest``, and the
    price of their entropy rises to ``entropy``; both sooner where the time of ``budget`` is short, and then the second
    value is whether it was over first. ``progress`` gets the share that is done.
    """
    torch.manual_seed(seed)
    generator = Generator(choices, shape)
    builder = choices.builder(task, shape, most=settings.max_edges, seed=seed)
    truth = torch.from_numpy(questions.truth)
    balance = torch.from_numpy(weights).float()

    def losses(batch: Sequence[int], position: StepPosition) -> Iterator[tuple[Tensor, Mapping[str, Tensor]]]:
        rows = np.sort(np.asarray(batch))
        attentions = generator(1.0 + (settings.sharpest - 1.0) * position.share)
        evidence = builder.build([column[rows] for column in questions.arguments], task.hidden)
        scores = score_questions(attentions, evidence, settings.truth)
        odds = generator.log_odds(scores).view(len(rows), -1, settings.slots)
        entropies = softplus(torch.where(truth[rows][:, :, None], -odds, odds)).mean(-1)
        error = (entropies * balance[rows]).mean()
        yield error + settings.entropy * position.share * attentions.entropy(), {"loss": error}

    budget = budget or TimeBudget(None)

    def report(state: TrainingProgress) -> None:
        if progress is not None:
            done = ((state.epoch - 1) * state.steps + state.step) / (state.epochs * state.steps)
            progress(max(done, budget.spent))

    result = TrainingLoop(  # without a score: the last epoch is the sharpest
        generator,
        range(len(questions)),
        losses,
        settings=TrainingSettings(
            epochs=settings.epochs,
            patience=None,
            batch_size=settings.batch_size,
            rate=settings.rate,
            warmup=0.05,
            clip=5.0,
            seed=seed,
        ),
        identity={
            "shape": asdict(shape),
            "options": asdict(settings),
            "round": round_index,
            "facts": task.graph.kb.n_facts,
            "targets": list(task.targets),
            "questions": len(questions),
        },
        folder=folder,
        progress=report,
        budget=budget,
    ).run()
    return generator, result.is_cut


class RuleSearch:
    """Trains generators for a task, one a round, and gathers the rules that they write."""

    def __init__(
        self,
        task: LearningTask,
        shape: RuleShape,
        training: GeneratorSettings,
        *,
        rounds: int,
        samples: int,
        max_length: int,
        seed: int,
        folder: Path | None = None,
        progress: Progress | None = None,
        budget: TimeBudget | None = None,
    ) -> None:
        self.budget, self.is_cut = budget or TimeBudget(None), False
        self.task, self.shape, self.training, self.samples, self.max_length = task, shape, training, samples, max_length
        self.rounds, self.seed, self.folder, self.progress = rounds, seed, folder, progress
        self.codes = StatementCodes(task.arity, task.graph.vocabulary)
        self.reader = RuleReader(self.codes, task.hidden)
        self.writers = [RuleWriter(name, self.codes) for name in task.targets]
        self.generators: list[Generator] = []
        self.refused: dict[str, int] = {}

    def run_round(self, questions: TargetQuestions, weights: Floats, *, recursive: bool = True) -> set[WrittenRule]:
        """Train one more generator and return its rules."""
        round_index = len(self.generators)
        seed = self.seed + 1000 * round_index
        choices = choose_predicates(
            self.task,
            questions,
            weights,
            self.shape,
            slots=self.training.slots,
            seeds=self.training.seeds,
            most=self.training.max_predicates,
            max_edges=self.training.max_edges,
            seed=seed,
            recursive=recursive,
        )
        if not bool((choices.statements >= 0).any()):
            return set()
        targets = self.task.targets
        stage = targets[0] if len(targets) == 1 else f"{len(targets)} classes"
        earlier, left = min(round_index, self.rounds - 1), max(1, self.rounds - round_index)

        def report(share: float) -> None:
            if self.progress is not None:
                self.progress(stage, round((earlier + share) * _TICKS), self.rounds * _TICKS)

        # a round that was cut short would be another after a longer one, so what follows it is not kept
        folder = None if self.folder is None or self.is_cut else self.folder / f"round_{round_index}"
        generator, is_cut = train_generator(
            self.task,
            questions,
            weights,
            choices,
            self.shape,
            self.training,
            seed=seed,
            round_index=round_index,
            folder=folder,
            progress=report,
            budget=self.budget.share(left + 1),  # one part is for what comes after training
        )
        self.is_cut |= is_cut
        self.generators.append(generator)
        return self._read_rules(generator)

    def _read_rules(self, generator: Generator) -> set[WrittenRule]:
        """Read the likeliest rule of every slot and ``samples`` drawn ones at each temperature."""
        pick = make_sampler(np.random.default_rng(self.seed))
        with torch.no_grad():
            rules = self._keep_allowed(self.reader.read(generator(self.training.sharpest), pick_likeliest))
            for temperature in TEMPERATURES if self.samples else ():
                attentions = generator(self.training.sharpest * temperature)
                for _ in range(self.samples):
                    rules |= self._keep_allowed(self.reader.read(attentions, pick))
        return rules

    def _keep_allowed(self, read: Iterable[Alternatives]) -> set[WrittenRule]:
        allowed: set[WrittenRule] = set()
        for group, alternatives in enumerate(read):
            target_index = group // self.training.slots
            for conjunction in alternatives:
                reason = self.writers[target_index].why_not(conjunction)
                if reason is None and count_atoms(conjunction) > self.max_length:
                    reason = f"longer than {self.max_length} atoms"
                if reason is None:
                    allowed.add((target_index, conjunction))
                else:
                    self.refused[reason] = self.refused.get(reason, 0) + 1
        return allowed

    def is_out_of_time(self) -> bool:
        """Whether there is no time for another round; the first is always run."""
        is_over = bool(self.generators) and self.budget.is_over
        self.is_cut |= is_over
        return is_over

    def try_rules(self, rules: Iterable[WrittenRule], questions: TargetQuestions) -> set[WrittenRule]:
        """Return the rules that are right of one of `TRIED` true questions: most are of none, and counting is slow."""
        true = np.flatnonzero(questions.truth.any(axis=1))
        rows = np.sort(np.random.default_rng(self.seed).permutation(true)[:TRIED])
        return {rule.written for rule in count_rules(rules, self.task, questions.take(rows)) if rule.support}

    def is_recursive(self, rule: CountedRule) -> bool:
        """Whether a rule uses facts of its own target."""
        operators, statements = self.task.own_codes(rule.target_index)
        return any(
            literal.statement in statements or not set(operators).isdisjoint(literal.operators)
            for literal, _ in rule.conjunction
        )

    def write_measured(
        self,
        rule: CountedRule,
        measured: CountedRule,
        held_out: TargetQuestions,
        measured_on: str,
        weight: float | None = None,
    ) -> Rule:
        """Write a rule with its figures: confidence is its precision where it was measured to be true at all."""
        positives = int(held_out.truth[:, rule.target_index].sum())
        return self.writers[rule.target_index].write(
            rule.conjunction,
            min(1.0, round((measured if measured.body_count else rule).precision, 4)),
            support=measured.support,
            body=int(measured.body_count),
            recall=round(measured.support / max(1, positives), 4),
            measured=measured_on if measured.body_count else "train",
            train_support=rule.support,
            train_precision=round(rule.precision, 4),
            **({} if weight is None else {"weight": round(weight, 4)}),
        )


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
