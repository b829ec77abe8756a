"""A training loop for any network: what an example is and what it costs are the caller's; resumable, seeded."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from rulewright.errors import DataError
from rulewright.training.checkpoints import CheckpointFolder, deterministic, interrupts_noted
from rulewright.training.settings import TrainingSettings

Example = TypeVar("Example")
POOL = 16  # batches' worth of examples that are sorted by length together


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """What one epoch gave: the mean of each part of the loss, the score (if any), and how long it took."""

    epoch: int
    losses: Mapping[str, float]
    score: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """The epochs that were run and which of them is best; the model holds the weights of that one."""

    history: tuple[EpochRecord, ...]
    best_epoch: int
    best_score: float | None
    seconds: float


def bucketed_order(lengths: Sequence[int], *, batch_size: int, seed: Sequence[int]) -> list[list[int]]:
    """Cut ``0 … len(lengths) - 1`` into random batches of documents of similar length; the seed decides all.

    >>> sorted(sum(bucketed_order([5, 9, 5, 8, 7], batch_size=2, seed=[1]), []))
    [0, 1, 2, 3, 4]
    """
    generator = np.random.default_rng(list(seed))
    order = generator.permutation(len(lengths))
    batches: list[list[int]] = []
    for start in range(0, len(order), POOL * batch_size):
        pool = sorted(order[start : start + POOL * batch_size].tolist(), key=lambda number: lengths[number])
        batches += [pool[at : at + batch_size] for at in range(0, len(pool), batch_size)]
    return [batches[number] for number in generator.permutation(len(batches))]


def fit(
    model: nn.Module,
    examples: Sequence[Example],
    loss: Callable[[Sequence[Example]], tuple[Tensor, Mapping[str, Tensor]]],
    *,
    lengths: Sequence[int],
    settings: TrainingSettings,
    identity: Mapping[str, Any],
    score: Callable[[], float],
    folder: str | os.PathLike[str] | None = None,
    progress: Callable[[EpochRecord, float], None] | None = None,
) -> TrainingResult:
    """Train a model and leave in it the weights of the epoch with the best score.

    ``loss(batch)`` gives what is minimised and its parts by name, which are reported; batches are of similar
    ``lengths``. ``progress`` is told of every epoch and the best score so far. With a ``folder``, every epoch is saved
    there, and calling again continues bit for bit after the last; ``identity`` is JSON that says what the run is, and a
    folder of another one is refused. Ctrl-C stops after the running step and loses the epoch that it is part of.
    """
    if not examples:
        raise DataError("there is nothing to train on")
    with deterministic(), interrupts_noted() as interrupted:
        run = _Fit(model, examples, loss, lengths, settings, {**asdict(settings), **identity}, score, folder, progress)
        return run.to_the_end(interrupted)


class _Fit(Generic[Example]):
    def __init__(
        self,
        model: nn.Module,
        examples: Sequence[Example],
        loss: Callable[[Sequence[Example]], tuple[Tensor, Mapping[str, Tensor]]],
        lengths: Sequence[int],
        settings: TrainingSettings,
        identity: Mapping[str, Any],
        score: Callable[[], float],
        folder: str | os.PathLike[str] | None,
        progress: Callable[[EpochRecord, float], None] | None,
    ) -> None:
        self.model, self.examples, self.loss, self.lengths = model, examples, loss, lengths
        self.settings, self.identity, self.score, self.progress = settings, identity, score, progress
        self.steps = -(-len(examples) // settings.batch_size)
        trained = [each for each in model.parameters() if each.requires_grad]
        groups = [  # decay is for matrices; biases, scales and the weights of rules go where the data takes them
            {"params": [each for each in trained if each.ndim > 1], "weight_decay": settings.weight_decay},
            {"params": [each for each in trained if each.ndim <= 1], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=settings.rate, eps=settings.epsilon, fused=True)
        self.history: list[EpochRecord] = []
        self.best_epoch, self.best_score = 0, -float("inf")
        self.best_weights: dict[str, Tensor] = {}
        self.folder = None if folder is None else CheckpointFolder(folder)
        torch.manual_seed(settings.seed)
        if self.folder is not None and (state := self.folder.read()) is not None:
            self._resume(self.folder, state)

    def to_the_end(self, interrupted: Callable[[], bool]) -> TrainingResult:
        patience = self.settings.patience
        while (epoch := len(self.history)) < self.settings.epochs:
            if patience is not None and epoch - self.best_epoch >= patience:
                break
            self._run_epoch(epoch, interrupted)
        if self.folder is not None and (state := self.folder.read()) is not None:
            self.folder.restore_best(self.model, state)
        else:
            self.model.load_state_dict(self.best_weights)
        self.model.eval()
        seconds = sum(each.seconds for each in self.history)
        return TrainingResult(tuple(self.history), self.best_epoch, self.best_score, seconds)

    def _run_epoch(self, epoch: int, interrupted: Callable[[], bool]) -> None:
        settings, began = self.settings, time.monotonic()
        sums: dict[str, float] = {}
        order = bucketed_order(self.lengths, batch_size=settings.batch_size, seed=[settings.seed, epoch])
        self.model.train()
        for step, numbers in enumerate(order):
            factor = settings.rate_factor(epoch * self.steps + step, settings.epochs * self.steps)
            for group in self.optimizer.param_groups:
                group["lr"] = settings.rate * factor
            self.optimizer.zero_grad(set_to_none=True)
            loss, parts = self.loss([self.examples[number] for number in numbers])
            loss.backward()  # type: ignore[no-untyped-call]
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip)
            if not torch.isfinite(norm):
                raise DataError(f"the gradient in epoch {epoch + 1}, step {step + 1} is not finite")
            self.optimizer.step()
            for name, value in parts.items():
                sums[name] = sums.get(name, 0.0) + float(value.detach())
            if interrupted():
                raise KeyboardInterrupt
        self.model.eval()
        score = float(self.score())
        means = {name: total / self.steps for name, total in sums.items()}
        self.history.append(EpochRecord(epoch + 1, means, score, time.monotonic() - began))
        is_best = score > self.best_score
        if is_best:
            self.best_epoch, self.best_score = epoch + 1, score
        self._save(is_best=is_best)
        if self.progress is not None:
            self.progress(self.history[-1], self.best_score)
        if interrupted():
            raise KeyboardInterrupt

    def _save(self, *, is_best: bool) -> None:
        if self.folder is None:
            if is_best:
                self.best_weights = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
            return
        state: dict[str, Any] = {
            "identity": self.identity,
            "history": [asdict(each) for each in self.history],
            "best_epoch": self.best_epoch,
            "best_score": self.best_score,
        }
        self.folder.write(self.model, self.optimizer, state, step=len(self.history), is_best=is_best)

    def _resume(self, folder: CheckpointFolder, state: dict[str, Any]) -> None:
        other = {key: value for key, value in state["identity"].items() if value != self.identity.get(key)}
        if other:
            differing = ", ".join(
                f"{key} is {value!r} there, {self.identity.get(key)!r} here" for key, value in other.items()
            )
            raise DataError(f"{folder.folder} holds another run ({differing}); choose another folder")
        folder.restore(self.model, self.optimizer, state)
        self.history = [EpochRecord(**each) for each in state["history"]]
        self.best_epoch, self.best_score = state["best_epoch"], state["best_score"]
