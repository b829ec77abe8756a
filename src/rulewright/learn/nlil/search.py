"""One task's search for rules: a generator is trained on questions, and rules are read off it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from rulewright.checks import Progress
from rulewright.interrupts import TimeBudget
from rulewright.learn.nlil.choices import RuleChoices, RuleShape, choose_predicates
from rulewright.learn.nlil.facts import Floats, StatementCodes
from rulewright.learn.nlil.formulas import (
    Alternatives,
    RuleReader,
    RuleWriter,
    count_atoms,
    make_sampler,
    pick_likeliest,
    uses_target,
)
from rulewright.learn.nlil.generator import Generator, Truth, score_questions
from rulewright.learn.nlil.questions import LearningTask, TargetQuestions
from rulewright.learn.nlil.selection import CountedRule, WrittenRule, count_rules
from rulewright.training.loop import StepPosition, TrainingLoop, TrainingProgress, TrainingSettings

TEMPERATURES = (1.0, 2.0, 4.0)
"""At which choices are drawn, times the sharpest: the hotter, the further from the likeliest rule."""
TRIED = 256
"""On how many true questions rules are tried before they are counted on all, where time is limited."""
_TICKS = 1000
"""Of how many parts of a round is told that they are done."""


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

    if settings.epochs == 0:
        return generator, False
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
        self.writers = [RuleWriter(name, self.codes, task.graph.kb.predicates) for name in task.targets]
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
        target = self.task.targets[rule.target_index]
        return any(uses_target(literal, target, self.codes) for literal, _ in rule.conjunction)
