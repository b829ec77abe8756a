"""Rounds of one task: generators trained one after the other, each on what the rules so far leave unexplained."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from rulewright.data.index import Ids
from rulewright.errors import DataError
from rulewright.learn.nlil.choices import choices_of
from rulewright.learn.nlil.formulas import Conjunction, Reader, Writer, drawn, length, likeliest
from rulewright.learn.nlil.frontier import Reach, Statements
from rulewright.learn.nlil.generator import Choices, Generator, Shape
from rulewright.learn.nlil.questions import Questions, Task
from rulewright.learn.nlil.selection import Counted
from rulewright.learn.nlil.training import RoundOptions, train

Floats = npt.NDArray[np.float64]
Tell = Callable[[str, int, int], None]
Rules = set[tuple[int, Conjunction]]
TEMPERATURES = (1.0, 2.0, 4.0)
"""At which choices are drawn, times the sharpest: the hotter, the further from the likeliest rule."""


@dataclass(frozen=True)
class SearchOptions:
    """How many generators are trained and how their rules are read: see `NLILLearner`."""

    rounds: int = 3
    samples: int = 20
    max_length: int = 6
    min_support: int = 2
    min_precision: float = 0.5
    max_rules: int = 20
    max_heads: int = 1000
    max_facts: int = 2000
    max_chained: int = 50_000

    def __post_init__(self) -> None:
        for name in ("rounds", "max_length", "min_support", "max_rules", "max_heads", "max_facts"):
            if getattr(self, name) < 1:
                raise DataError(f"{name} must be >= 1, got {getattr(self, name)}")
        if self.samples < 0:
            raise DataError(f"samples must be >= 0, got {self.samples}")
        if not 0 <= self.min_precision <= 1:
            raise DataError(f"min_precision must lie in [0, 1], got {self.min_precision}")


@dataclass(frozen=True)
class Trained:
    """One trained generator and what it chose from."""

    generator: Generator
    choices: Choices
    sharpest: float


class Search:
    """Trains generators for a task and gathers the rules that they write."""

    def __init__(
        self,
        task: Task,
        shape: Shape,
        options: RoundOptions,
        search: SearchOptions,
        *,
        seed: int,
        folder: str | os.PathLike[str] | None,
        tell: Tell | None,
    ) -> None:
        self.task, self.shape, self.options, self.search = task, shape, options, search
        self.seed, self.folder, self.tell = seed, folder, tell
        self.numbers = Statements.of(task.graph, task.arity)
        self.reader = Reader(task.graph.vocabulary, self.numbers, task.hidden)
        self.writers = [Writer(name, task.graph.vocabulary, self.numbers) for name in task.targets]
        self.trained: list[Trained] = []
        self.refused: dict[str, int] = {}

    def round(self, questions: Questions, weights: Floats, *, recursive: bool = True) -> Rules:
        """Train one more generator and return its rules, each with the number of its target."""
        number = len(self.trained)
        seed = self.seed + 1000 * number
        choices = choices_of(
            self.task,
            questions,
            weights,
            self.shape,
            slots=self.options.slots,
            seeds=self.options.seeds,
            most=self.options.max_predicates,
            max_edges=self.options.max_edges,
            seed=seed,
            recursive=recursive,
        )
        if not bool((choices.statements >= 0).any()):
            return set()
        identity: dict[str, Any] = {
            "shape": asdict(self.shape),
            "options": asdict(self.options),
            "round": number,
            "facts": self.task.graph.kb.n_facts,
        }
        generator = train(
            self.task,
            questions,
            weights,
            choices,
            self.shape,
            self.options,
            seed=seed,
            identity=identity,
            folder=None if self.folder is None else Path(self.folder) / f"round_{number}",
            progress=None if self.tell is None else self._progress(number),
        )
        self.trained.append(Trained(generator, choices, self.options.sharpest))
        return self.read(generator)

    def _progress(self, number: int) -> Callable[[int, float], None]:
        epochs, rounds = self.options.epochs, self.search.rounds
        name = self.task.targets[0] if len(self.task.targets) == 1 else f"{len(self.task.targets)} classes"

        def told(epoch: int, _: float) -> None:
            assert self.tell is not None
            self.tell(name, min(number, rounds - 1) * epochs + epoch, rounds * epochs)

        return told

    def read(self, generator: Generator) -> Rules:
        """Read the likeliest rule of every slot and ``samples`` drawn ones at each temperature."""
        random = np.random.default_rng(self.seed)
        found: Rules = set()
        with torch.no_grad():
            sharp = generator(self.options.sharpest)
            found |= self._allowed(self.reader.read(sharp, lambda: likeliest))
            for temperature in TEMPERATURES if self.search.samples else ():
                attentions = generator(self.options.sharpest * temperature)
                for _ in range(self.search.samples):
                    found |= self._allowed(self.reader.read(attentions, lambda: drawn(random)))
        return found

    def _allowed(self, read: Iterable[Iterable[Conjunction]]) -> Rules:
        found: Rules = set()
        for group, alternatives in enumerate(read):
            target = group // self.options.slots
            for each in alternatives:
                reason = self.writers[target].why_not(each)
                if reason is None and length(each) > self.search.max_length:
                    reason = f"longer than {self.search.max_length} atoms"
                if reason is None:
                    found.add((target, each))
                else:
                    self.refused[reason] = self.refused.get(reason, 0) + 1
        return found

    def reach(self, rules: Iterable[Conjunction], most: int | None = None) -> Reach:
        """Return what lays out questions with all that some rules use, by at most ``most`` steps from one entity."""
        operators = np.zeros(self.task.graph.vocabulary.operators, dtype=bool)
        statements = np.zeros(len(self.numbers), dtype=bool)
        longest = 0
        for conjunction in rules:
            for literal, _ in conjunction:
                statements[literal.statement] = True
                for path in (literal.left or (), literal.right or ()):
                    operators[list(path)] = True
                    longest = max(longest, len(path))
        return Reach(
            self.task.graph,
            steps=longest,
            arity=self.task.arity,
            operators=operators,
            statements=statements,
            most=most,
            seed=self.seed,
        )

    def recursive(self, rule: Counted) -> bool:
        """Tell whether a rule rests on facts of its own target."""
        vocabulary, name = self.task.graph.vocabulary, self.task.targets[rule.target]
        if self.task.arity == 1:
            mark = vocabulary.mark(name)
            return rule.uses(frozenset([mark]), frozenset([vocabulary.filter(mark)]))
        step = vocabulary.step(name)
        return rule.uses(frozenset([step - 1, step]), frozenset([step, step + 1]))


def balance(truth: npt.NDArray[np.bool_], unexplained: Floats) -> Floats:
    """Return weights by which, for each target, what is true and still unexplained weighs as much as what is not true.

    ``unexplained`` is how much of each true answer no rule so far accounts for.
    """
    true = np.where(truth, np.maximum(unexplained, 1e-3), 0.0)
    false = np.where(truth, 0.0, 1.0)
    totals = [np.maximum(each.sum(axis=0), 1e-12) for each in (true, false)]
    found: Floats = (true / totals[0] + false / totals[1]) * len(truth) / 2
    return found


def unexplained(rules: Iterable[Counted], shape: tuple[int, int]) -> Floats:
    """Return for each question and target 1 less the precision of the most precise rule that is right of it."""
    found = np.ones(shape)
    for each in rules:
        found[each.right, each.target] = np.minimum(found[each.right, each.target], 1 - each.precision)
    return found


def rows_right(rules: Iterable[Counted]) -> Ids:
    """Return the questions of which some rule is right."""
    return np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *(each.right for each in rules)]))
