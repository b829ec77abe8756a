"""Training the network of one target: its losses, its examples, its checkpoints."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import softplus

from rulewright.checks import Progress
from rulewright.data import KnowledgeBase
from rulewright.errors import DataError
from rulewright.learn.lnn.grounding import Columns, ground, lookup, projected
from rulewright.learn.lnn.network import NetworkOptions, TemplateNetwork
from rulewright.learn.lnn.reading import load_parameters
from rulewright.learn.lnn.template import resolve
from rulewright.logic import RuleSet
from rulewright.training.loop import StepPosition, TrainingLoop, TrainingProgress, TrainingSettings

_ROUNDS = 30  # how often a negative that turns out true is drawn anew


@dataclass(frozen=True)
class TemplateExamples:
    """Facts as columns, the positive ones first, and for each positive one the places of its negatives.

    ``negatives`` has −1 where none was found. ``without`` counts the positive facts that have no negative.
    """

    columns: Columns
    positives: int
    negatives: npt.NDArray[np.int64]

    @property
    def without(self) -> int:
        """The number of positive facts that no negative was found for."""
        return int((self.negatives < 0).all(axis=1).sum())


def examples_of(
    target: str,
    positives: Columns,
    known: Sequence[Columns],
    ranges: Sequence[npt.NDArray[np.generic]],
    *,
    false: Columns | None = None,
    count: int,
    places: Sequence[int],
    seed: int,
) -> TemplateExamples:
    """Put beside each positive fact ``count`` facts in which one argument is another one of its range.

    Negatives are checked: none is among ``known``. Facts observed to be ``false`` are drawn first, in turn.
    """
    size = len(positives[0])
    if size == 0:
        raise DataError(f"{target} has no positive example to learn from")
    random = np.random.default_rng(seed)
    true = tuple(np.concatenate(parts) for parts in zip(positives, *known, strict=True))
    drawn = [np.repeat(column, count).astype(column.dtype) for column in positives]
    found = np.zeros(size * count, dtype=bool)
    if false is not None and len(false[0]):
        share = (np.arange(size * count) % count) < max(1, count // 2)
        chosen = random.integers(len(false[0]), size=int(share.sum()))
        for column, values in zip(drawn, false, strict=True):
            column[share] = values[chosen]
        found |= share
    which = np.array(places)[random.integers(len(places), size=size * count)]
    for _ in range(_ROUNDS):
        left = np.flatnonzero(~found)
        if not len(left):
            break
        for place in places:
            rows = left[which[left] == place]
            fresh = [column[rows // count] for column in positives]
            fresh[place] = random.choice(ranges[place], size=len(rows)).astype(positives[place].dtype)
            good = lookup(true, fresh) < 0
            for column, values in zip(drawn, fresh, strict=True):
                column[rows[good]] = values[good]
            found[rows[good]] = True
        which[left] = np.array(places)[random.integers(len(places), size=len(left))]
    numbers = np.where(found, size + np.cumsum(found) - 1, -1).reshape(size, count)
    columns = tuple(np.concatenate([one, other[found]]) for one, other in zip(positives, drawn, strict=True))
    return TemplateExamples(columns, size, numbers)


def argument_ranges(*facts: Columns | None) -> list[npt.NDArray[np.generic]]:
    """Return for each argument the values it has in any of the facts.

    >>> argument_ranges((np.array([1, 2]), np.array([5, 5])), None)
    [array([1, 2]), array([5])]
    """
    given = [each for each in facts if each is not None]
    return [np.unique(np.concatenate(parts)) for parts in zip(*given, strict=True)]


Loss = Literal["margin", "logistic", "ranking"]


@dataclass(frozen=True)
class TrainingOptions:
    """How a network is trained: see `LNNLearner`."""

    loss: Loss = "margin"
    margin: float = 1.0
    epochs: int = 100
    patience: int | None = None
    batch_size: int = 64
    rate: float = 0.02
    negatives: int = 4
    positions: tuple[int, ...] | None = None
    sparsity: float = 0.0
    hide: bool = True
    seed: int = 0


def pair_loss(kind: Loss, positive: Tensor, negative: Tensor, there: Tensor, margin: float) -> Tensor:
    """Return the mean loss of positives ``[n]`` and their negatives ``[n, k]``, of which only those ``there`` count.

    * margin: ``max(0, γ − ψ⁺ + ψ⁻)``
    * logistic: ``log(1 + e^((½ − ψ⁺)/γ)) + log(1 + e^((ψ⁻ − ½)/γ))``
    * ranking: ``−log e^(ψ⁺/γ) / (e^(ψ⁺/γ) + Σ e^(ψ⁻/γ))``

    >>> one, none = torch.tensor([1.0]), torch.tensor([[0.0]])
    >>> pair_loss("margin", one, none, none == 0, 1.0).item(), pair_loss("margin", one, none + 1, none == 0, 1.0).item()
    (0.0, 1.0)
    """
    if kind == "ranking":
        scores = torch.cat([positive[:, None], negative.masked_fill(~there, -torch.inf)], dim=1) / margin
        return (scores.logsumexp(dim=1) - scores[:, 0]).mean()
    if kind == "margin":
        each = (margin - positive[:, None] + negative).clamp(min=0)
    else:
        each = softplus((0.5 - positive[:, None]) / margin) + softplus((negative - 0.5) / margin)
    return each.masked_fill(~there, 0).sum() / there.sum().clamp(min=1)


@dataclass(frozen=True)
class TemplateJob:
    """All that training one target takes, to be sent to another process."""

    target: str
    templates: RuleSet
    kb: KnowledgeBase
    positives: Columns
    false: Columns | None
    valid: Columns | None
    network: NetworkOptions
    training: TrainingOptions
    inverses: Mapping[str, str]
    folder: str | None = None
    memory_limit: int | str | None = None


@dataclass(frozen=True)
class TrainedTemplate:
    """What training one target gave: the operators' values, and how it went."""

    target: str
    values: Mapping[str, tuple[float, ...]]
    losses: tuple[float, ...]
    scores: tuple[float, ...]
    best_epoch: int
    examples: int
    reachable: int
    without_negatives: int
    partly_hidden: tuple[str, ...]


def train(job: TemplateJob, progress: Progress | None = None) -> TrainedTemplate:
    """Train one target; with a folder, every epoch is saved there and training goes on where it stopped."""
    options = job.training
    program = resolve(job.templates, job.kb, job.target)
    network = TemplateNetwork(program, job.network)
    load_parameters(network, job.templates)
    batches = _Batches(job, network)
    settings = TrainingSettings(
        epochs=options.epochs,
        patience=options.patience,
        batch_size=options.batch_size,
        rate=options.rate,
        warmup=0.0,
        clip=1e9,
        seed=options.seed,
    )
    identity: dict[str, Any] = {
        "target": job.target,
        "templates": str(job.templates),
        "network": asdict(job.network),
        "facts": job.kb.n_facts,
        "positives": len(job.positives[0]),
        **{f"training_{key}": list(v) if isinstance(v, tuple) else v for key, v in asdict(options).items()},
    }

    def report(state: TrainingProgress) -> None:
        if progress is not None and state.record is not None:
            progress(job.target, state.epoch, state.epochs)

    result = TrainingLoop(
        network,
        range(len(job.positives[0])),
        batches.losses,
        settings=settings,
        identity=identity,
        score=batches.score,
        folder=None if job.folder is None else os.path.join(job.folder, _file_name(job.target)),  # noqa: PTH118
        progress=report,
    ).run()
    return TrainedTemplate(
        job.target,
        {key: network.operator(key).values() for key in network.operators},
        tuple(float(each.losses["loss"]) for each in result.history),
        tuple(float(each.score or 0.0) for each in result.history),
        result.best_epoch,
        batches.train.positives,
        batches.reachable,
        batches.train.without,
        batches.grounding.partly_hidden,
    )


def train_alone(job: TemplateJob) -> TrainedTemplate:
    """Train one target in a process of its own, on one thread."""
    torch.set_num_threads(1)
    return train(job)


class _Batches:
    """The examples of one target over one grounding, and the loss of any of them."""

    def __init__(self, job: TemplateJob, network: TemplateNetwork) -> None:
        self.options, self.network = job.training, network
        known = [job.kb.columns(job.target)] if job.target in job.kb.predicates else []
        if job.valid is not None:
            known.append(job.valid)
        ranges = argument_ranges(job.positives, job.false)
        places = self.options.positions or tuple(range(len(ranges)))
        if any(place not in range(len(ranges)) for place in places):
            raise DataError(f"positions of {job.target} lie in 0 … {len(ranges) - 1}, got {list(places)}")

        def examples(positives: Columns, seed: int, false: Columns | None) -> TemplateExamples:
            every = [job.positives, *known]
            return examples_of(
                job.target,
                positives,
                every,
                ranges,
                false=false,
                count=self.options.negatives,
                places=places,
                seed=seed,
            )

        self.train = examples(job.positives, self.options.seed, job.false)
        self.valid = None
        if job.valid is not None and len(job.valid[0]):
            self.valid = examples(job.valid, self.options.seed + 1, None)
        parts = [each.columns for each in (self.train, self.valid) if each is not None]
        wanted = tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))
        self.grounding = ground(
            network.program,
            job.kb,
            wanted=projected(wanted)[0],
            hide=self.options.hide,
            inverses=job.inverses,
            memory_limit=job.memory_limit,
        )
        self.places = [torch.cat([self.grounding.find(each), torch.tensor([-1])]) for each in parts]
        self.reachable = int((self.places[0][: self.train.positives] >= 0).sum())

    def _loss(self, which: int, examples: TemplateExamples, numbers: Sequence[int]) -> Tensor:
        values = self.network(self.grounding)
        values = torch.cat([values, values.new_zeros(1)])[self.places[which]]
        chosen = torch.as_tensor(np.asarray(numbers))
        negatives = torch.from_numpy(examples.negatives)[chosen]
        return pair_loss(self.options.loss, values[chosen], values[negatives], negatives >= 0, self.options.margin)

    def losses(self, numbers: Sequence[int], position: StepPosition) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
        self.network.project_()
        found = self._loss(0, self.train, numbers)
        price = self.network.penalty() + self.options.sparsity * self.network.leaf_weights()
        yield found + price, {"loss": found}

    def score(self) -> float:
        """Return the negative loss on valid, or else on train; through the leaky clamp, which tells more apart."""
        self.network.project_()
        self.network.train()
        which, examples = (0, self.train) if self.valid is None else (1, self.valid)
        with torch.no_grad():
            found = self._loss(which, examples, range(examples.positives))
        self.network.eval()
        return -float(found)


def _file_name(target: str) -> str:
    return "".join(each if each.isalnum() or each in "-_" else f"%{ord(each):02x}" for each in target)
