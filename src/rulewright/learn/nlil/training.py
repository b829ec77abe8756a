"""One round: a generator trained on questions until its attentions are sharp."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import softplus

from rulewright.errors import DataError
from rulewright.learn.nlil.facts import Mask
from rulewright.learn.nlil.frontier import Reach, Truth, evaluate
from rulewright.learn.nlil.generator import Choices, Generator, Shape
from rulewright.learn.nlil.questions import Questions, Task
from rulewright.training.loop import StepPosition, TrainingLoop, TrainingProgress, TrainingSettings

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RoundOptions:
    """How a generator is trained: see `NLILLearner`."""

    slots: int = 7
    seeds: int = 3
    epochs: int = 30
    batch_size: int = 256
    rate: float = 0.003
    sharpest: float = 0.3
    entropy: float = 0.01
    truth: Truth = "exponential"
    max_predicates: int = 40
    max_edges: int | None = None

    def __post_init__(self) -> None:
        for name in ("slots", "epochs", "batch_size", "max_predicates"):
            if getattr(self, name) < 1:
                raise DataError(f"{name} must be >= 1, got {getattr(self, name)}")
        if self.seeds < 0:
            raise DataError(f"seeds must be >= 0, got {self.seeds}")
        if not 0 < self.sharpest <= 1:
            raise DataError(f"sharpest is the last temperature and must lie in (0, 1], got {self.sharpest}")
        if not self.entropy >= 0:
            raise DataError(f"entropy must be >= 0, got {self.entropy}")
        if self.truth not in ("exponential", "paper"):
            raise DataError(f"truth must be 'exponential' or 'paper', got {self.truth!r}")


def allowed(numbers: Tensor, size: int) -> Mask:
    """Return which numbers some rule may choose."""
    found = np.zeros(size, dtype=bool)
    found[numbers[numbers >= 0].numpy()] = True
    return found


def reach_of(task: Task, choices: Choices, shape: Shape, most: int | None, seed: int) -> Reach:
    """Return what lays out questions with the operators and statements that may be chosen."""
    return Reach(
        task.graph,
        steps=shape.steps,
        arity=task.arity,
        operators=allowed(choices.operators, choices.operators_all),
        statements=allowed(choices.statements, choices.statements_all),
        most=most,
        seed=seed,
    )


def train(
    task: Task,
    questions: Questions,
    weights: Floats,
    choices: Choices,
    shape: Shape,
    options: RoundOptions,
    *,
    seed: int,
    identity: Mapping[str, Any],
    folder: str | os.PathLike[str] | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Generator:
    """Train a generator on questions, each with a weight for each target, ``[questions, targets]``.

    Each rule is held to the truth by the cross-entropy of ``σ(a + b · score)`` with ``a`` and ``b > 0`` its own: it
    need not be right always, only tell as much as it can. The temperature of all choices falls from 1 to ``sharpest``,
    and the price of their entropy rises to ``entropy``.
    """
    torch.manual_seed(seed)
    generator = Generator(choices, shape)
    reach = reach_of(task, choices, shape, options.max_edges, seed)
    truth = torch.from_numpy(questions.truth)
    balance = torch.from_numpy(weights).float()

    def losses(numbers: Sequence[int], position: StepPosition) -> Iterator[tuple[Tensor, Mapping[str, Tensor]]]:
        rows = np.sort(np.asarray(numbers))
        done = position.done / max(1, position.total - 1)
        attentions = generator(1.0 + (options.sharpest - 1.0) * min(1.0, done))
        evidence = reach.evidence([column[rows] for column in questions.arguments], task.hidden)
        scores = evaluate(attentions, evidence, options.truth)
        odds = generator.log_odds(scores).view(len(rows), -1, options.slots)
        each = softplus(torch.where(truth[rows][:, :, None], -odds, odds)).mean(-1)
        error = (each * balance[rows]).mean()
        yield error + options.entropy * done * attentions.entropy(), {"loss": error}

    settings = TrainingSettings(
        epochs=options.epochs,
        patience=None,
        batch_size=options.batch_size,
        rate=options.rate,
        warmup=0.05,
        clip=5.0,
        seed=seed,
    )

    def report(state: TrainingProgress) -> None:
        if progress is not None and state.record is not None:
            progress(state.record.epoch, state.record.losses["loss"])

    TrainingLoop(  # without a score: the last epoch is the sharpest
        generator,
        range(len(questions)),
        losses,
        settings=settings,
        identity={**identity, "targets": list(task.targets), "questions": len(questions)},
        folder=folder,
        progress=report,
    ).run()
    return generator
