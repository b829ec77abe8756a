"""The training loop of all networks: resumable, stoppable, and the same for the same seed."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rulewright.errors import DataError
from rulewright.io.docred import Document
from rulewright.papers.milr.batches import collate, passes
from rulewright.papers.milr.documents import DocumentFeatures
from rulewright.papers.milr.networks import Backbone, PairLogits
from rulewright.training.checkpoints import CheckpointFolder, deterministic, interrupts_noted
from rulewright.training.fitting import EpochRecord, TrainingResult, bucketed_order
from rulewright.training.settings import TrainingSettings, autocast, resolve_precision

Score = Callable[[Backbone], float]
TITLES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Progress:
    """Where training stands after a step; losses are means over the epoch so far, λ not applied.

    ``seconds_left`` assumes that all epochs are run; early stopping may end sooner.
    """

    epoch: int
    epochs: int
    step: int
    steps: int
    losses: Mapping[str, float]
    best_score: float | None
    seconds: float
    seconds_left: float


def train(
    model: Backbone,
    documents: Sequence[Document],
    *,
    settings: TrainingSettings | None = None,
    score: Score | None = None,
    extra: nn.Module | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> TrainingResult:
    """Train a model on documents and leave in it the weights with the best score (the last, without ``score``).

    The loss of a step is ``L_cls + λ·L_extra``: L_cls the mean over its pairs, L_extra that over its documents, for
    which ``extra(logits [B, n, n, R], mask [B, n])`` must give the mean over the B documents it is shown. With a
    ``folder``, every epoch is saved there, Ctrl-C saves after the running step, and calling again continues bit for bit
    where the last call stopped.
    """
    settings = settings or TrainingSettings()
    if not documents:
        raise DataError("there are no documents to train on")
    with deterministic(), interrupts_noted() as interrupted:
        return _Run(model, documents, settings, score, extra, folder, progress).to_the_end(interrupted)


class _Run:
    def __init__(
        self,
        model: Backbone,
        documents: Sequence[Document],
        settings: TrainingSettings,
        score: Score | None,
        extra: nn.Module | None,
        folder: str | os.PathLike[str] | None,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self.model, self.settings, self.score, self.extra, self.progress = model, settings, score, extra, progress
        self.features = model.features(documents)
        self.lengths = [len(each.pieces) for each in self.features]
        self.steps = -(-len(self.features) // settings.batch_size)
        self.optimizer = _optimizer(model, settings)
        self.identity = _identity(model, self.features, settings, with_extra=extra is not None)
        self.epoch, self.step, self.seconds = 0, 0, 0.0  # epochs done, steps done in the next, time spent before
        self.sums: dict[str, float] = {}
        self.history: list[EpochRecord] = []
        self.best_epoch, self.best_score = 0, None if score is None else -float("inf")
        self.best_weights: dict[str, Tensor] | None = None
        self.began = time.monotonic()
        self.epoch_seconds_before = 0.0
        self.between_steps = True
        self.folder = None if folder is None else CheckpointFolder(folder)
        torch.manual_seed(settings.seed)
        if self.folder is not None and (state := self.folder.read()) is not None:
            self._resume(self.folder, state)

    def to_the_end(self, interrupted: Callable[[], bool]) -> TrainingResult:
        try:
            while not self._finished():
                self._run_epoch(interrupted)
        except KeyboardInterrupt:
            if self.between_steps:  # otherwise the weights are half updated, and the last epoch's stay
                self._save(is_best=False)
            raise
        if self.folder is not None and (state := self.folder.read()) is not None:
            self.folder.restore_best(self.model, state)
        elif self.best_weights is not None:
            self.model.load_state_dict(self.best_weights)
        self.model.eval()
        return TrainingResult(tuple(self.history), self.best_epoch, self.best_score, self._total_seconds())

    def _finished(self) -> bool:
        patience = self.settings.patience
        tired = self.score is not None and patience is not None and self.epoch - self.best_epoch >= patience
        return self.epoch >= self.settings.epochs or tired

    def _run_epoch(self, interrupted: Callable[[], bool]) -> None:
        settings = self.settings
        began, before = time.monotonic(), self.epoch_seconds_before
        order = bucketed_order(self.lengths, batch_size=settings.batch_size, seed=[settings.seed, self.epoch])
        self.model.train()
        for numbers in order[self.step :]:
            self.between_steps = False
            self._take_step([self.features[number] for number in numbers])
            self.step += 1
            self.epoch_seconds_before = before + time.monotonic() - began
            self.between_steps = True
            if self.progress is not None:
                self.progress(self._progress())
            if interrupted():
                raise KeyboardInterrupt
        self.between_steps = False
        value = None if self.score is None else float(self.score(self.model))
        self.epoch, self.step = self.epoch + 1, 0
        self.history.append(EpochRecord(self.epoch, self._means(), value, before + time.monotonic() - began))
        self.sums, self.epoch_seconds_before = {}, 0.0
        is_best = value is None or self.best_score is None or value > self.best_score
        if is_best:
            self.best_epoch, self.best_score = self.epoch, value
        self._save(is_best=is_best)
        self.between_steps = True
        if interrupted():
            raise KeyboardInterrupt

    def _take_step(self, documents: Sequence[DocumentFeatures]) -> None:
        settings = self.settings
        factor = settings.rate_factor(self.epoch * self.steps + self.step, settings.epochs * self.steps)
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = parameters["full_rate"] * factor
        self.optimizer.zero_grad(set_to_none=True)
        pairs = max(1, sum(each.entities * (each.entities - 1) for each in documents))
        for part in passes(documents, settings.pieces_at_once):
            losses = self._losses(part, share_of_pair=1 / pairs, share_of_part=len(part) / len(documents))
            loss = losses["classification"]
            if "extra" in losses:
                loss = loss + settings.extra_weight * losses["extra"]
            loss.backward()  # type: ignore[no-untyped-call]
            for name, value in losses.items():
                self.sums[name] = self.sums.get(name, 0.0) + float(value.detach())
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip)
        if not torch.isfinite(norm):
            titles = [each.title for each in documents]
            raise DataError(f"the gradient {self._where()} is not finite, for {_named(titles)}")
        self.optimizer.step()

    def _losses(
        self, documents: Sequence[DocumentFeatures], *, share_of_pair: float, share_of_part: float
    ) -> dict[str, Tensor]:
        """What these documents add to the means over the step: of all its pairs, and of all its documents."""
        with autocast(self.settings.precision, self.model.device):
            output: PairLogits = self.model(collate(documents, device=self.model.device))
        pairs = self.model.pair_losses(output)
        losses = {"classification": pairs.sum() * share_of_pair}
        if not torch.isfinite(losses["classification"]):
            rows = output.batch.pair_document[~torch.isfinite(pairs)].tolist()
            raise self._not_finite("classification", [documents[row].title for row in sorted(set(rows))])
        if self.extra is None:
            return losses
        on_margins = self.settings.extra_input == "margins"
        dense, mask = output.dense_margins() if on_margins else output.dense_logits(), output.batch.mask
        losses["extra"] = self.extra(dense, mask) * share_of_part
        if not torch.isfinite(losses["extra"]):
            single = [self.extra(dense[row : row + 1], mask[row : row + 1]) for row in range(len(documents))]
            wrong = [row for row, value in enumerate(single) if not torch.isfinite(value)]
            raise self._not_finite("extra", [documents[row].title for row in wrong or range(len(documents))])
        return losses

    def _not_finite(self, part: str, titles: Sequence[str]) -> DataError:
        return DataError(f"the {part} loss {self._where()} is not finite, for {_named(titles)}")

    def _where(self) -> str:
        return f"in epoch {self.epoch + 1}, step {self.step + 1}"

    def _means(self) -> dict[str, float]:
        return {name: total / self.steps for name, total in self.sums.items()}

    def _total_seconds(self) -> float:
        return self.seconds + time.monotonic() - self.began

    def _progress(self) -> Progress:
        spent = sum(each.seconds for each in self.history) + self.epoch_seconds_before
        done = self.epoch * self.steps + self.step
        left = spent / done * (self.settings.epochs * self.steps - done)
        means = {name: total / self.step for name, total in self.sums.items()}
        best = self.best_score if self.best_epoch else None
        return Progress(
            self.epoch + 1, self.settings.epochs, self.step, self.steps, means, best, self._total_seconds(), left
        )

    def _save(self, *, is_best: bool) -> None:
        if self.folder is None:
            if is_best:
                self.best_weights = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
            return
        state: dict[str, Any] = {
            "identity": self.identity,
            "epoch": self.epoch,
            "step": self.step,
            "sums": self.sums,
            "epoch_seconds": self.epoch_seconds_before,
            "history": [asdict(each) for each in self.history],
            "best_epoch": self.best_epoch,
            "best_score": self.best_score if self.best_epoch else None,
            "seconds": self._total_seconds(),
        }
        step = self.epoch * self.steps + self.step
        self.folder.write(self.model, self.optimizer, state, step=step, is_best=is_best)

    def _resume(self, folder: CheckpointFolder, state: dict[str, Any]) -> None:
        other = {key: value for key, value in state["identity"].items() if value != self.identity.get(key)}
        if other:
            differing = ", ".join(
                f"{key} is {value!r} there, {self.identity.get(key)!r} here" for key, value in other.items()
            )
            raise DataError(f"{folder.folder} holds another run ({differing}); choose another folder")
        folder.restore(self.model, self.optimizer, state)
        self.epoch, self.step, self.sums = state["epoch"], state["step"], state["sums"]
        self.history = [EpochRecord(**each) for each in state["history"]]
        self.epoch_seconds_before, self.seconds = state["epoch_seconds"], state["seconds"]
        self.best_epoch = state["best_epoch"]
        if self.best_epoch:
            self.best_score = state["best_score"]


def _optimizer(model: Backbone, settings: TrainingSettings) -> torch.optim.AdamW:
    slow: list[nn.Parameter] = []
    fast: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            (slow if model.encoder.pretrained and name.startswith("encoder.") else fast).append(parameter)
    groups = [
        {"params": parameters, "lr": rate, "full_rate": rate}
        for parameters, rate in ((slow, settings.encoder_rate), (fast, settings.rate))
        if parameters
    ]
    return torch.optim.AdamW(groups, eps=settings.epsilon, weight_decay=settings.weight_decay, fused=True)


def _identity(
    model: Backbone, features: Sequence[DocumentFeatures], settings: TrainingSettings, *, with_extra: bool
) -> dict[str, Any]:
    """What must be equal for a saved state to belong to this run."""
    titles = "\0".join(each.title for each in features).encode()
    precision = resolve_precision(settings.precision)
    return {
        **asdict(settings),
        "precision": precision,
        "model": type(model).__name__,
        "parameters": sum(each.numel() for each in model.parameters()),
        "relations": len(model.relations),
        "documents": hashlib.sha256(titles).hexdigest()[:16],
        "extra": with_extra,
    }


def _named(titles: Sequence[str]) -> str:
    shown = ", ".join(repr(each) for each in titles[:TITLES_SHOWN])
    more = f" and {len(titles) - TITLES_SHOWN} more" if len(titles) > TITLES_SHOWN else ""
    return ("document " if len(titles) == 1 else "documents ") + shown + more
