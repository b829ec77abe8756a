"""One task's search for rules: drawn from a generator that learns from what they gain, or by relaxed scores."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from rulewright.checks import Progress
from rulewright.data.index import Ids
from rulewright.errors import DataError
from rulewright.files import read_text, write_text
from rulewright.interrupts import TimeBudget
from rulewright.learn.nlil.choices import RuleChoices, RuleShape, choose_predicates
from rulewright.learn.nlil.drawing import RuleDraws, draw_rules, log_probabilities, read_rules
from rulewright.learn.nlil.facts import Floats, StatementCodes
from rulewright.learn.nlil.formulas import (
    Conjunction,
    OperatorPath,
    PathLiteral,
    RuleReader,
    RuleWriter,
    conjoin,
    count_atoms,
    drop_filters,
    match_conjunctions,
    uses_target,
)
from rulewright.learn.nlil.frontier import EvidenceBuilder
from rulewright.learn.nlil.gains import RuleGains
from rulewright.learn.nlil.generator import Generator, Truth, score_questions
from rulewright.learn.nlil.questions import LearningTask, TargetQuestions
from rulewright.learn.nlil.selection import CountedRule, WrittenRule, count_rules
from rulewright.training.checkpoints import load_weights, save_weights
from rulewright.training.loop import StepPosition, TrainingLoop, TrainingProgress, TrainingSettings

TEMPERATURES = (1.0, 2.0, 4.0)
"""At which a relaxed generator is drawn from, times the sharpest: the hotter, the further from the likeliest rule."""
TRIED = 256
"""On how many true questions rules are tried before they are counted on all, where time is limited."""
EXPLORE = 0.1
"""The share of choices that are drawn evenly, whatever was learned."""
ELITE = 0.15
"""The share of a round's different draws that is learned from: those that gain most."""
CLIP = 5.0
"""How long a gradient may be."""
LEADS = 10
"""From how many rules of a target the next round goes on."""
_TICKS = 1000
"""Of how many parts of a round is told that they are done."""


Objective = Literal["counted", "relaxed"]


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
    objective: Objective
    max_predicates: int
    max_edges: int | None


def train_generator(
    task: LearningTask,
    questions: TargetQuestions,
    weights: Floats,
    choices: RuleChoices,
    shape: RuleShape,
    settings: GeneratorSettings,
    builder: EvidenceBuilder,
    *,
    seed: int,
    identity: Mapping[str, object],
    folder: Path | None = None,
    progress: Callable[[float], None] | None = None,
    budget: TimeBudget | None = None,
) -> tuple[Generator, bool]:
    """Train a generator by relaxed scores on questions, each with a weight for each target, ``[questions, targets]``.

    The loss of each rule is the cross-entropy of ``σ(a + b · score)`` with ``a`` and ``b > 0`` its own: it need not be
    right always, only be as informative as it can. The temperature of all choices falls from 1 to ``sharpest``, and the
    price of their entropy rises to ``entropy``; both sooner where the time of ``budget`` is short, and then the second
    value is whether it was over first. ``progress`` gets the share that is done.
    """
    torch.manual_seed(seed)
    generator = Generator(choices, shape)
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
        identity=dict(identity),
        folder=folder,
        progress=report,
        budget=budget,
    ).run()
    return generator, result.is_cut


class RuleSearch:
    """Draws the rules of a task, round by round, from a generator that learns which draws gain.

    With ``objective="counted"`` one generator goes through all rounds and learns between draws. With ``"relaxed"`` each
    round trains one of its own by the gradient of relaxed scores, as the paper does, and draws when it is trained.
    Either way 0 epochs draw without training. Where rules may be combined (``levels``), most slots go on from the best
    rules of the rounds before, whose bodies stand in their draws.
    """

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
        self.n_drawn = 0
        self.n_rounds = 0
        self._generator: Generator | None = None
        self._leads: list[dict[Conjunction, float]] = [{} for _ in task.targets]
        self._begun: dict[int, Conjunction] = {}

    def run_round(self, questions: TargetQuestions, weights: Floats, *, recursive: bool = True) -> set[WrittenRule]:
        """Draw the rules of one more round."""
        round_index, seed = self.n_rounds, self.seed + 1000 * self.n_rounds
        self.n_rounds += 1
        # a round that was cut short would be another after a longer one, so what follows it is not kept
        folder = None if self.folder is None or self.is_cut else self.folder / f"round_{round_index}"
        identity = {
            "shape": asdict(self.shape),
            "options": asdict(self.training),
            "samples": self.samples,
            "round": round_index,
            "facts": self.task.graph.kb.n_facts,
            "targets": list(self.task.targets),
            "questions": len(questions),
        }
        known = self._choose_begun(questions)
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
            begun=known,
        )
        if not bool((choices.statements >= 0).any()):
            return set()
        builder = choices.builder(self.task, self.shape, most=self.training.max_edges, seed=seed)
        report = self._make_report(round_index)
        budget = self.budget.share(max(1, self.rounds - round_index) + 1)  # one part is for what comes after training
        if self.training.objective == "relaxed" and self.training.epochs:
            generator, is_cut = train_generator(
                self.task,
                questions,
                weights,
                choices,
                self.shape,
                self.training,
                builder,
                seed=seed,
                identity=identity,
                folder=folder,
                progress=report,
                budget=budget,
            )
            self.is_cut |= is_cut
            self.generators.append(generator)
            rules = self._draw_trained(generator, seed)
            if self.shape.levels:
                self._note_leads(rules, RuleGains(self.task, questions, weights, builder, seed=seed))
            return rules
        generator = self._take_generator(choices)
        if folder is not None and (finished := self._load_round(folder, identity, generator)) is not None:
            return finished
        gains = None  # of rules that are drawn without training and not gone on from nothing need be known
        if self.training.epochs or self.shape.levels:
            gains = RuleGains(self.task, questions, weights, builder, seed=seed)
        rules, is_cut = self._draw_and_learn(generator, gains, seed, report, budget)
        self.is_cut |= is_cut
        if gains is not None:
            self._note_leads(rules, gains)
        if folder is not None and not is_cut:
            self._save_round(folder, identity, generator, rules)
        return rules

    def _make_report(self, round_index: int) -> Callable[[float], None]:
        targets = self.task.targets
        stage = targets[0] if len(targets) == 1 else f"{len(targets)} classes"
        earlier = min(round_index, self.rounds - 1)

        def report(share: float) -> None:
            if self.progress is not None:
                self.progress(stage, round((earlier + share) * _TICKS), self.rounds * _TICKS)

        return report

    def _choose_begun(self, questions: TargetQuestions) -> dict[int, Ids]:
        """Choose which slots go on from which rule; return the true questions of which that rule holds."""
        slots = self.training.slots
        self._begun = {}
        leads = [sorted(own, key=lambda body, own=own: -own[body])[:LEADS] for own in self._leads]  # type: ignore[misc]
        matched = match_conjunctions((body for own in leads for body in own), self.task, questions.arguments)
        known: dict[int, Ids] = {}
        for target_index, own in enumerate(leads):
            for turn, slot in enumerate(range(slots - 1, slots // 3, -1) if own else ()):
                body = own[turn % len(own)]
                right = matched[body][questions.truth[matched[body], target_index]]
                if len(right):
                    group = target_index * slots + slot
                    self._begun[group], known[group] = body, right
        return known

    def _note_leads(self, rules: Iterable[WrittenRule], gains: RuleGains) -> None:
        """Keep the rules that gain most and are wrong at times: the next round goes on from them."""
        if not self.shape.levels:
            return
        ordered = sorted(
            (rule for rule in rules if count_atoms(rule[1]) < self.max_length),
            key=lambda rule: (rule[0], repr(rule[1])),
        )
        rows = [gains.match([body]) for _, body in ordered]
        targets = np.array([target_index for target_index, _ in ordered], dtype=np.int64)
        for (target_index, body), gain, is_wrong in zip(
            ordered, gains.measure(targets, rows, residual=False).tolist(), gains.are_wrong(targets, rows), strict=True
        ):
            if gain > 0 and is_wrong:
                self._leads[target_index][body] = gain
        for target_index, own in enumerate(self._leads):
            self._leads[target_index] = dict(sorted(own.items(), key=lambda lead: -lead[1])[:LEADS])

    def _take_generator(self, choices: RuleChoices) -> Generator:
        """Return the one generator of all rounds, with what may be chosen in this one."""
        if self._generator is None:
            torch.manual_seed(self.seed)
            self._generator = Generator(choices, replace(self.shape, shared=True))
        self._generator.choices = choices
        return self._generator

    def _draw_and_learn(
        self,
        generator: Generator,
        gains: RuleGains | None,
        seed: int,
        progress: Callable[[float], None],
        budget: TimeBudget,
    ) -> tuple[set[WrittenRule], bool]:
        """Draw ``samples`` rules for each slot, and learn between draws; the second value is whether time was over.

        Draws are spread over the epochs. After each, what its rules gain is counted, given what all rules so far
        explain and beyond the rule that a slot goes on from. The generator then learns to draw the best `ELITE` of all
        different draws of the round: ``−Σ w log p(draw) − entropy · H``, ``w ∝ √gain``.
        """
        random = torch.Generator().manual_seed(seed)
        optimizer = torch.optim.Adam(generator.parameters(), lr=self.training.rate)
        epochs = min(self.training.epochs, max(0, self.samples - 1))  # something must be drawn each time
        groups = torch.nonzero((generator.choices.statements >= 0).any(1))[:, 0]  # of slots that have a choice
        sizes = [len(part) for part in np.array_split(np.arange(self.samples), epochs + 1)]
        slots, begun = self.training.slots, sorted(self._begun)
        begun_rows = [gains.match([self._begun[group]]) for group in begun] if gains is not None else []
        begun_targets = np.array([group // slots for group in begun], dtype=np.int64)
        rules: set[WrittenRule] = set()
        seen: set[bytes] = set()
        parts: list[RuleDraws] = []
        rows: list[Ids] = []
        for epoch, size in enumerate(sizes):
            is_cut = epoch < epochs and budget.is_over
            if is_cut:  # what is left is drawn at once
                size = sum(sizes[epoch:])
            with torch.no_grad():
                draws = draw_rules(generator(), groups.repeat_interleave(size), random=random, explore=EXPLORE)
            self.n_drawn += len(draws)
            read = self._keep_allowed(draws)
            new = set().union(*read) - rules
            rules |= new
            progress(max((epoch + 1) / len(sizes), budget.spent))
            if is_cut or epoch == epochs:
                return rules, is_cut
            assert gains is not None
            for target_index, body in sorted(new, key=repr):
                gains.explain(target_index, gains.match([body]))
            fresh: list[int] = []
            for position, (key, allowed) in enumerate(zip(draws.keys(), read, strict=True)):
                if allowed and (written := key.tobytes()) not in seen:
                    seen.add(written)
                    holds = gains.match(body for _, body in allowed)
                    if len(holds):
                        fresh.append(position)
                        rows.append(holds)
            if fresh:
                parts.append(draws.take(torch.tensor(fresh)))
            if parts:
                every = RuleDraws.join(parts)
                before = np.zeros(generator.n_rules)
                before[begun] = gains.measure(begun_targets, begun_rows)
                group = every.group.numpy()
                self._learn(generator, optimizer, every, gains.measure(group // slots, rows) - before[group])
        raise AssertionError("the last part of the draws returns")

    def _learn(self, generator: Generator, optimizer: torch.optim.Optimizer, draws: RuleDraws, gain: Floats) -> None:
        """Make the draws that gain most more probable."""
        best = np.argsort(-gain, kind="stable")[: max(1, round(ELITE * len(gain)))]
        best = best[gain[best] > 0]
        if not len(best):
            return
        elite, share = draws.take(torch.from_numpy(best)), torch.from_numpy(np.sqrt(gain[best])).float()
        share = share / share.sum()
        attentions = generator()
        loss = -(share * log_probabilities(attentions, elite)).sum() - self.training.entropy * attentions.entropy()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(generator.parameters(), CLIP)
        optimizer.step()

    def _draw_trained(self, generator: Generator, seed: int) -> set[WrittenRule]:
        """Return the likeliest rule of every slot of a relaxed generator, and ``samples`` drawn ones."""
        rules: set[WrittenRule] = set()
        random = torch.Generator().manual_seed(seed)
        groups = torch.nonzero((generator.choices.statements >= 0).any(1))[:, 0]
        with torch.no_grad():
            rules.update(*self._keep_allowed(draw_rules(generator(self.training.sharpest), groups)))
            for temperature, part in zip(TEMPERATURES, np.array_split(np.arange(self.samples), 3), strict=True):
                many = groups.repeat_interleave(len(part))
                attentions = generator(self.training.sharpest * temperature)
                rules.update(*self._keep_allowed(draw_rules(attentions, many, random=random)))
                self.n_drawn += len(many)
        return rules

    def _keep_allowed(self, draws: RuleDraws) -> list[set[WrittenRule]]:
        """Return the rules of each draw that the language and the length allow."""
        different, position = np.unique(draws.keys(), axis=0, return_inverse=True)
        first = np.zeros(len(different), dtype=np.int64)
        first[position.ravel()] = np.arange(len(draws))
        some = draws.take(torch.from_numpy(first))
        allowed: list[set[WrittenRule]] = []
        for group, alternatives in zip(
            some.group.tolist(), read_rules(some, self.reader, len(self.codes)), strict=True
        ):
            target_index = group // self.training.slots
            kept: set[WrittenRule] = set()
            if group in self._begun:
                alternatives = conjoin(alternatives, frozenset([self._begun[group]]))
            for conjunction in alternatives:
                reason = self.writers[target_index].why_not(conjunction)
                if reason is None and count_atoms(conjunction) > self.max_length:
                    reason = f"longer than {self.max_length} atoms"
                if reason is None:
                    kept.add((target_index, conjunction))
                else:
                    self.refused[reason] = self.refused.get(reason, 0) + 1
            allowed.append(kept)
        return [allowed[place] for place in position.ravel().tolist()]

    def _save_round(
        self, folder: Path, identity: Mapping[str, object], generator: Generator, rules: set[WrittenRule]
    ) -> None:
        """Keep what a round gave: its rules, what the next goes on from, and the generator."""
        folder.mkdir(parents=True, exist_ok=True)
        save_weights(generator, folder / "weights.safetensors")
        state = {
            "identity": identity,
            "rules": [[target_index, _list_literals(body)] for target_index, body in sorted(rules, key=repr)],
            "leads": [[[_list_literals(body), gain] for body, gain in own.items()] for own in self._leads],
            "refused": self.refused,
            "n_drawn": self.n_drawn,
        }
        write_text(folder / "round.json", json.dumps(state) + "\n")

    def _load_round(
        self, folder: Path, identity: Mapping[str, object], generator: Generator
    ) -> set[WrittenRule] | None:
        """Return the rules of a round that an earlier run finished, or None where there is none."""
        file = folder / "round.json"
        if not file.exists():
            return None
        state = json.loads(read_text(file))
        if state.get("identity") != json.loads(json.dumps(identity)):
            raise DataError(f"{folder} holds another run, with other facts or options; choose another folder")
        load_weights(generator, folder / "weights.safetensors")
        self._leads = [{_read_literals(body): gain for body, gain in own} for own in state["leads"]]
        self.refused, self.n_drawn = dict(state["refused"]), int(state["n_drawn"])
        return {(target_index, _read_literals(body)) for target_index, body in state["rules"]}

    def is_out_of_time(self) -> bool:
        """Whether there is no time for another round; the first is always run."""
        is_over = self.n_rounds > 0 and self.budget.is_over
        self.is_cut |= is_over
        return is_over

    def try_rules(self, rules: Iterable[WrittenRule], questions: TargetQuestions) -> set[WrittenRule]:
        """Return the rules that are right of one of `TRIED` true questions: most are of none, and counting is slow."""
        true = np.flatnonzero(questions.truth.any(axis=1))
        rows = np.sort(np.random.default_rng(self.seed).permutation(true)[:TRIED])
        return {rule.written for rule in count_rules(rules, self.task, questions.take(rows)) if rule.support}

    def shorten(self, rule: WrittenRule) -> set[WrittenRule]:
        """Return the rules with one literal or one filter less, which may be as good and are easier to read."""
        target_index, body = rule
        shorter: set[Conjunction] = set()
        for literal, positive in body:
            rest = body - {(literal, positive)}
            shorter.add(rest)
            shorter |= {rest | {(short, positive)} for short in drop_filters(literal, self.codes)}
        return {(target_index, short) for short in shorter if self.writers[target_index].why_not(short) is None}

    def is_recursive(self, rule: CountedRule) -> bool:
        """Whether a rule uses facts of its own target."""
        target = self.task.targets[rule.target_index]
        return any(uses_target(literal, target, self.codes) for literal, _ in rule.conjunction)


def _list_literals(body: Conjunction) -> list[object]:
    """Return a conjunction as lists of numbers."""
    ordered = sorted(body, key=lambda signed: (signed[0].statement, repr(signed)))
    return [[literal.statement, literal.left, literal.right, positive] for literal, positive in ordered]


def _read_literals(listed: Iterable[tuple[int, list[int] | None, list[int] | None, bool]]) -> Conjunction:
    """Return the conjunction of `_list_literals`."""

    def read(path: list[int] | None) -> OperatorPath | None:
        return None if path is None else tuple(path)

    return frozenset(
        (PathLiteral(statement, read(left), read(right)), positive) for statement, left, right, positive in listed
    )
