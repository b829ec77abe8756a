"""The training loop of every network: what an example is and what it costs are the caller's; resumable, seeded."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from rulewright.checks import SHARE, ParameterRule, Real, Whole, check_parameters
from rulewright.errors import DataError
from rulewright.interrupts import TimeBudget
from rulewright.training.checkpoints import CheckpointFolder, deterministic, interrupts_noted

Example = TypeVar("Example")
POOL = 16  # batches' worth of examples that are sorted by length together


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings:
    """AdamW with warm-up, linear decay of the learning rate and clipped gradients.

    Training stops after ``epochs``, or ``patience`` epochs after the best score; ``warmup`` is a share of all steps.
    """

    epochs: int = 30
    patience: int | None = 8
    batch_size: int = 4
    rate: float = 3e-4
    weight_decay: float = 0.0
    epsilon: float = 1e-6
    warmup: float = 0.06
    clip: float = 1.0
    seed: int = 0

    RULES: ClassVar[Mapping[str, ParameterRule]] = {
        "epochs": Whole(1),
        "patience": Whole(1, optional=True),
        "batch_size": Whole(1),
        "rate": Real(0),
        "weight_decay": Real(0),
        "epsilon": Real(0),
        "warmup": SHARE,
        "clip": Real(0, above=True),
        "seed": Whole(0),
    }

    def __post_init__(self) -> None:
        check_parameters(asdict(self), self.RULES)

    def rate_factor(self, step: int, steps: int) -> float:
        """The share of the learning rate at a step (from 0) of all: up over the warm-up, then down to 0.

        >>> settings = TrainingSettings(warmup=0.5)
        >>> [settings.rate_factor(step, 4) for step in range(4)]
        [0.5, 1.0, 1.0, 0.5]
        """
        rising = round(self.warmup * steps)
        if step < rising:
            return (step + 1) / rising
        return (steps - step) / max(1, steps - rising)


class StepPosition(NamedTuple):
    """A step of the training: ``step`` of the ``steps`` in ``epoch`` of ``epochs``; epochs and steps count from 0.

    ``spent`` is the share of a limit of time that is spent.

    >>> str(StepPosition(0, 4, 10, 3)), StepPosition(1, 4, 10, 3).done, StepPosition(1, 4, 10, 3).total
    ('epoch 1, step 5', 14, 30)
    """

    epoch: int
    step: int
    steps: int
    epochs: int
    spent: float = 0.0

    @property
    def done(self) -> int:
        """The number of steps before this one."""
        return self.epoch * self.steps + self.step

    @property
    def share(self) -> float:
        """How near the end is, from 0 for the first step to 1 for the last, by steps or by time.

        >>> StepPosition(0, 1, 5, 1).share, StepPosition(0, 1, 5, 1, spent=0.9).share
        (0.25, 0.9)
        """
        return max(min(1.0, self.done / max(1, self.total - 1)), self.spent)

    def ramp(self, warmup: float) -> float:
        """What a part of the loss counts for that is raised over the first ``warmup`` of the way: from 0 to 1.

        >>> [StepPosition(0, step, 5, 1).ramp(0.5) for step in range(5)], StepPosition(0, 0, 5, 1).ramp(0)
        ([0.0, 0.5, 1.0, 1.0, 1.0], 1.0)
        """
        return min(1.0, self.share / warmup) if warmup else 1.0

    @property
    def total(self) -> int:
        """The number of steps in all epochs."""
        return self.epochs * self.steps

    def __str__(self) -> str:
        return f"epoch {self.epoch + 1}, step {self.step + 1}"


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """What one epoch (from 1) gave: the mean of each part of the loss, the score (if any), and how long it took."""

    epoch: int
    losses: Mapping[str, float]
    score: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """How far training has come after a step: epochs and steps count from 1, losses are means over the epoch so far.

    After the last step of an epoch, ``record`` is what the epoch gave, its score included. ``seconds_left`` assumes
    that all epochs are run; early stopping may end sooner.
    """

    epoch: int
    epochs: int
    step: int
    steps: int
    losses: Mapping[str, float]
    record: EpochRecord | None
    best_score: float | None
    seconds_left: float


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """The epochs that were run and which of them is best; the model holds the weights of that one.

    ``is_cut`` says whether time was over before the epochs were; the last of them may then be a part of one.
    """

    history: tuple[EpochRecord, ...]
    best_epoch: int
    best_score: float | None
    is_cut: bool = False

    @property
    def seconds(self) -> float:
        """The time that the epochs took."""
        return sum(record.seconds for record in self.history)


def draw_batches(lengths: Sequence[int], *, batch_size: int, seed: Sequence[int]) -> list[list[int]]:
    """Cut ``0 … len(lengths) - 1`` into random batches of examples of similar length; the seed decides all.

    >>> sorted(sum(draw_batches([5, 9, 5, 8, 7], batch_size=2, seed=[1]), []))
    [0, 1, 2, 3, 4]
    """
    generator = np.random.default_rng(list(seed))
    order = generator.permutation(len(lengths))
    batches: list[list[int]] = []
    for start in range(0, len(order), POOL * batch_size):
        pool = sorted(order[start : start + POOL * batch_size].tolist(), key=lambda index: lengths[index])
        batches += [pool[first : first + batch_size] for first in range(0, len(pool), batch_size)]
    return [batches[index] for index in generator.permutation(len(batches))]


def decay_matrices(model: nn.Module, settings: TrainingSettings) -> list[dict[str, Any]]:
    """Return AdamW's groups with decay for matrices only: biases, scales and weights of rules follow the data."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {"params": [p for p in trained if p.ndim > 1], "lr": settings.rate, "weight_decay": settings.weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "lr": settings.rate, "weight_decay": 0.0},
    ]


@dataclass
class TrainingLoop(Generic[Example]):
    """Trains a model and leaves in it the weights of the epoch with the best score, or the last without a score.

    ``losses(batch, position)`` gives what is minimised and its parts by name, which are reported; it may do so several
    times, and the gradients of a step add up. Batches are of similar ``lengths``. With a ``folder``, every epoch is
    saved there, Ctrl-C saves after the running step, and running again continues bit for bit; ``identity`` is JSON
    that says what the run is, and a folder of another one is refused. ``groups`` are AdamW's groups of parameters,
    each with its rate ``lr``; ``describe`` names the examples of a batch whose gradient is not finite. Where the time
    of ``budget`` is over before all epochs are, training ends after the running step, its learning rate fallen.

    >>> model = nn.Linear(1, 1)
    >>> def losses(batch, position):
    ...     error = sum((model(x) - 3 * x).square().sum() for x in batch)
    ...     yield error, {"error": error}
    >>> examples = [torch.tensor([x]) for x in (-1.0, 0.5, 1.0)]
    >>> settings = TrainingSettings(epochs=200, patience=None, rate=0.1)
    >>> TrainingLoop(model, examples, losses, settings=settings).run().history[-1].losses["error"] < 0.01
    True
    """

    model: nn.Module
    examples: Sequence[Example]
    losses: Callable[[Sequence[Example], StepPosition], Iterable[tuple[Tensor, Mapping[str, Tensor]]]]
    _: KW_ONLY
    settings: TrainingSettings
    identity: Mapping[str, Any] | None = None
    lengths: Sequence[int] | None = None
    score: Callable[[], float] | None = None
    folder: str | os.PathLike[str] | None = None
    progress: Callable[[TrainingProgress], None] | None = None
    groups: Sequence[dict[str, Any]] | None = None
    describe: Callable[[Sequence[Example]], str] | None = None
    budget: TimeBudget = field(default_factory=lambda: TimeBudget(None))

    def run(self) -> TrainingResult:
        """Train to the end, from the beginning or from where the folder's last run stopped."""
        if not self.examples:
            raise DataError("there is nothing to train on")
        with deterministic(), interrupts_noted() as is_interrupted:
            self._start()
            try:
                while not self._is_finished():
                    self._run_epoch(is_interrupted)
            except KeyboardInterrupt:
                if self._is_between_steps:  # otherwise the weights are half updated, and the last saved ones stay
                    self._save(is_best=False)
                raise
        if self._checkpoints is not None and (state := self._checkpoints.read()) is not None:
            self._checkpoints.restore_best(self.model, state)
        elif self._best_weights is not None:
            self.model.load_state_dict(self._best_weights)
        self.model.eval()
        best_score = self._best_score if self._best_epoch else None
        return TrainingResult(tuple(self._history), self._best_epoch, best_score, is_cut=self._is_cut)

    def _start(self) -> None:
        settings = self.settings
        self._steps = -(-len(self.examples) // settings.batch_size)
        groups = self.groups or decay_matrices(self.model, settings)
        self._rates: list[float] = [group["lr"] for group in groups]
        self._optimizer = torch.optim.AdamW(groups, eps=settings.epsilon, fused=True)
        self._epoch, self._step, self._seconds = 0, 0, 0.0  # epochs done; steps of the next and the time they took
        self._sums: dict[str, float] = {}
        self._history: list[EpochRecord] = []
        self._best_epoch, self._best_score = 0, None if self.score is None else -float("inf")
        self._best_weights: dict[str, Tensor] | None = None
        self._is_between_steps, self._is_cut = True, False
        self._identity = {**asdict(settings), **(self.identity or {})}
        self._checkpoints = None if self.folder is None else CheckpointFolder(self.folder)
        torch.manual_seed(settings.seed)
        if self._checkpoints is not None and (state := self._checkpoints.read()) is not None:
            self._resume(self._checkpoints, state)

    def _is_finished(self) -> bool:
        patience = self.settings.patience
        is_stale = self.score is not None and patience is not None and self._epoch - self._best_epoch >= patience
        return self._epoch >= self.settings.epochs or is_stale or self._is_cut

    def _run_epoch(self, is_interrupted: Callable[[], bool]) -> None:
        settings, began = self.settings, time.monotonic() - self._seconds
        lengths = self.lengths or [1] * len(self.examples)
        batches = draw_batches(lengths, batch_size=settings.batch_size, seed=[settings.seed, self._epoch])
        self.model.train()
        for indices in batches[self._step :]:
            self._is_between_steps = False
            self._take_step([self.examples[index] for index in indices])
            self._step, self._seconds = self._step + 1, time.monotonic() - began
            self._is_between_steps = True
            if self._step < self._steps:
                self._report(None)
            if is_interrupted():
                raise KeyboardInterrupt
            if self.budget.is_over:
                self._is_cut = self._epoch + 1 < settings.epochs or self._step < self._steps
                break
        self._is_between_steps = False
        self.model.eval()
        score = None if self.score is None else float(self.score())
        losses = {name: total / self._step for name, total in self._sums.items()}
        record = EpochRecord(self._epoch + 1, losses, score, time.monotonic() - began)
        self._history.append(record)
        is_best = score is None or self._best_score is None or score > self._best_score
        if is_best:
            self._best_epoch, self._best_score = record.epoch, score
        self._epoch, self._step, self._seconds, self._sums = record.epoch, 0, 0.0, {}
        self._save(is_best=is_best)
        self._is_between_steps = True
        self._report(record)
        if is_interrupted():
            raise KeyboardInterrupt

    def _take_step(self, batch: Sequence[Example]) -> None:
        position = StepPosition(self._epoch, self._step, self._steps, self.settings.epochs, self.budget.spent)
        hurried = min(round(position.spent * position.total), position.total - 1)
        factor = self.settings.rate_factor(max(position.done, hurried), position.total)
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * factor
        self._optimizer.zero_grad(set_to_none=True)
        for loss, parts in self.losses(batch, position):
            loss.backward()  # type: ignore[no-untyped-call]
            for name, value in parts.items():
                self._sums[name] = self._sums.get(name, 0.0) + float(value.detach())
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        if not torch.isfinite(norm):
            examples = "" if self.describe is None else f", for {self.describe(batch)}"
            raise DataError(f"the gradient in {position} is not finite{examples}")
        self._optimizer.step()

    def _report(self, record: EpochRecord | None) -> None:
        """Tell the caller about the last step: in the middle of an epoch, or at its end with the epoch's record."""
        if self.progress is None:
            return
        spent = self._seconds + sum(epoch.seconds for epoch in self._history)
        done, total = self._epoch * self._steps + self._step, self.settings.epochs * self._steps
        self.progress(
            TrainingProgress(
                epoch=record.epoch if record else self._epoch + 1,
                epochs=self.settings.epochs,
                step=self._steps if record else self._step,
                steps=self._steps,
                losses=record.losses if record else {name: sum_ / self._step for name, sum_ in self._sums.items()},
                record=record,
                best_score=self._best_score if self._best_epoch else None,
                seconds_left=spent / done * (total - done),
            )
        )

    def _save(self, *, is_best: bool) -> None:
        if self._checkpoints is None:
            if is_best:
                self._best_weights = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
            return
        state: dict[str, Any] = {
            "identity": self._identity,
            "epoch": self._epoch,
            "step": self._step,
            "seconds": self._seconds,
            "sums": self._sums,
            "history": [asdict(record) for record in self._history],
            "best_epoch": self._best_epoch,
            "best_score": self._best_score if self._best_epoch else None,
        }
        step = self._epoch * self._steps + self._step
        self._checkpoints.write(self.model, self._optimizer, state, step=step, is_best=is_best)

    def _resume(self, checkpoints: CheckpointFolder, state: dict[str, Any]) -> None:
        identity = self._identity
        differing = [
            f"{key} is {value!r} there, {identity.get(key)!r} here"
            for key, value in state["identity"].items()
            if value != identity.get(key)
        ]
        if differing:
            raise DataError(f"{checkpoints.folder} holds another run ({', '.join(differing)}); choose another folder")
        checkpoints.restore(self.model, self._optimizer, state)
        self._epoch, self._step, self._seconds = state["epoch"], state["step"], state["seconds"]
        self._sums = state["sums"]
        self._history = [EpochRecord(**record) for record in state["history"]]
        self._best_epoch = state["best_epoch"]
        if self._best_epoch:
            self._best_score = state["best_score"]
