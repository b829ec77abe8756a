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
from rulewright.interrupts import TimeBudget, time_limit
from rulewright.learn.lnn.grounding import Columns, distinct_rows, find_rows, ground
from rulewright.learn.lnn.network import NetworkOptions, TemplateNetwork
from rulewright.learn.lnn.reading import MAX_DISAGREEMENT, CrispReading, load_parameters, write_crisp_rules
from rulewright.learn.lnn.template import resolve
from rulewright.logic import NUMBER_TYPE, RuleSet
from rulewright.training.loop import StepPosition, TrainingLoop, TrainingProgress, TrainingSettings

_ROUNDS = 30  # how often a negative that turns out true is drawn anew


@dataclass(frozen=True)
class TemplateExamples:
    """Facts as columns, the positive ones first, and for each positive one the rows of its negatives.

    ``negatives`` has −1 where none was found. ``without`` counts the positive facts that have no negative.
    """

    columns: Columns
    positives: int
    negatives: npt.NDArray[np.int64]

    @property
    def without(self) -> int:
        """The number of positive facts that no negative was found for."""
        return int((self.negatives < 0).all(axis=1).sum())


def draw_examples(
    target: str,
    positives: Columns,
    known: Sequence[Columns],
    ranges: Sequence[npt.NDArray[np.generic]],
    *,
    false: Columns | None = None,
    count: int,
    positions: Sequence[int],
    worlds: npt.NDArray[np.int32] | None = None,
    seed: int,
) -> TemplateExamples:
    """Put beside each positive fact ``count`` facts in which one argument is another one of its range.

    With ``worlds``, which has the world of every entity, an argument becomes one of its own world. Negatives are
    checked: none is among ``known``. Of ``false`` facts, observed or taken to be so, half of the negatives are drawn.
    """
    size = len(positives[0])
    if size == 0:
        raise DataError(f"{target} has no positive example to learn from")
    random = np.random.default_rng(seed)
    true = tuple(np.concatenate(parts) for parts in zip(positives, *known, strict=True))
    drawn = [np.repeat(column, count).astype(column.dtype) for column in positives]
    is_drawn = np.zeros(size * count, dtype=bool)
    if false is not None and len(false[0]):
        share = (np.arange(size * count) % count) < max(1, count // 2)
        chosen = random.integers(len(false[0]), size=int(share.sum()))
        for column, values in zip(drawn, false, strict=True):
            column[share] = values[chosen]
        is_drawn |= share
    draws = [_Range(values, worlds) for values in ranges]
    changed = np.array(positions)[random.integers(len(positions), size=size * count)]
    for _ in range(_ROUNDS):
        left = np.flatnonzero(~is_drawn)
        if not len(left):
            break
        for position in positions:
            rows = left[changed[left] == position]
            fresh = [column[rows // count] for column in positives]
            fresh[position] = draws[position].draw(random, fresh[position])
            is_false = find_rows(true, fresh) < 0
            for column, values in zip(drawn, fresh, strict=True):
                column[rows[is_false]] = values[is_false]
            is_drawn[rows[is_false]] = True
        changed[left] = np.array(positions)[random.integers(len(positions), size=len(left))]
    negatives = np.where(is_drawn, size + np.cumsum(is_drawn) - 1, -1).reshape(size, count)
    columns = tuple(np.concatenate([one, other[is_drawn]]) for one, other in zip(positives, drawn, strict=True))
    return TemplateExamples(columns, size, negatives)


class _Range:
    """The values that an argument may have, apart for each world where there are several."""

    def __init__(self, values: npt.NDArray[Any], worlds: npt.NDArray[np.int32] | None) -> None:
        self.values, self.worlds = values, worlds
        if worlds is not None:
            homes = worlds[values] + 1  # entities that all worlds share come first
            self.values = values[np.argsort(homes, kind="stable")]
            self.bounds = np.searchsorted(np.sort(homes), np.arange(int(worlds.max(initial=-1)) + 3))

    def draw(self, random: np.random.Generator, old: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a value for each old one, of its world; an old value stays where its world has none."""
        if self.worlds is None:
            return random.choice(self.values, size=len(old)).astype(old.dtype)
        home = self.worlds[old] + 1
        first, behind = self.bounds[home], self.bounds[home + 1]
        drawn = np.minimum(first + (random.random(len(old)) * (behind - first)).astype(np.int64), len(self.values) - 1)
        return np.where(behind > first, self.values[drawn], old).astype(old.dtype)


Loss = Literal["margin", "logistic", "ranking"]
Corruption = Literal["type", "examples", "closed"]


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
    corruption: Corruption = "type"
    positions: tuple[int, ...] | None = None
    sparsity: float = 0.0
    hide: bool = True
    seed: int = 0


def pair_loss(loss: Loss, positive: Tensor, negative: Tensor, present: Tensor, margin: float) -> Tensor:
    """Return the mean loss of positives ``[n]`` and their negatives ``[n, k]``, of which only those ``present`` count.

    * margin: ``max(0, γ − ψ⁺ + ψ⁻)``
    * logistic: ``log(1 + e^((½ − ψ⁺)/γ)) + log(1 + e^((ψ⁻ − ½)/γ))``
    * ranking: ``−log e^(ψ⁺/γ) / (e^(ψ⁺/γ) + Σ e^(ψ⁻/γ))``

    >>> one, none = torch.tensor([1.0]), torch.tensor([[0.0]])
    >>> pair_loss("margin", one, none, none == 0, 1.0).item(), pair_loss("margin", one, none + 1, none == 0, 1.0).item()
    (0.0, 1.0)
    """
    if loss == "ranking":
        scores = torch.cat([positive[:, None], negative.masked_fill(~present, -torch.inf)], dim=1) / margin
        return (scores.logsumexp(dim=1) - scores[:, 0]).mean()
    if loss == "margin":
        losses = (margin - positive[:, None] + negative).clamp(min=0)
    else:
        losses = softplus((0.5 - positive[:, None]) / margin) + softplus((negative - 0.5) / margin)
    return losses.masked_fill(~present, 0).sum() / present.sum().clamp(min=1)


@dataclass(frozen=True)
class TemplateJob:
    """All that training one target takes, to be sent to another process."""

    target: str
    templates: RuleSet
    kb: KnowledgeBase
    types: tuple[str, ...]
    positives: Columns
    false: Columns | None
    valid: Columns | None
    network: NetworkOptions
    training: TrainingOptions
    inverses: Mapping[str, str]
    min_truth: float = 0.5
    max_disagreement: float = MAX_DISAGREEMENT
    folder: str | None = None
    memory_limit: int | str | None = None


@dataclass(frozen=True)
class TrainedTemplate:
    """What training one target gave: the operators' values, their crisp reading, and how it went."""

    target: str
    values: Mapping[str, tuple[float, ...]]
    reading: CrispReading
    losses: tuple[float, ...]
    scores: tuple[float, ...]
    best_epoch: int
    examples: int
    reachable: int
    without_negatives: int
    partly_hidden: tuple[str, ...]
    is_cut: bool


def train(job: TemplateJob, progress: Progress | None = None, seconds: float | None = None) -> TrainedTemplate:
    """Train one target; with a folder, every epoch is saved there and training goes on where it stopped.

    After so many ``seconds`` training ends, with the best epoch so far; where the groundings alone take longer, that is
    a `TimeLimitError`.
    """
    budget = TimeBudget(seconds)
    options = job.training
    program = resolve(job.templates, job.kb, job.target)
    network = TemplateNetwork(program, job.network)
    load_parameters(network, job.templates)
    with time_limit(seconds):
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
        budget=budget,
    ).run()
    return TrainedTemplate(
        job.target,
        {key: network.operator(key).values() for key in network.operators},
        write_crisp_rules(
            network,
            batches.grounding,
            facts=batches.rows[0],
            min_truth=job.min_truth,
            max_disagreement=job.max_disagreement,
        ),
        tuple(float(epoch.losses["loss"]) for epoch in result.history),
        tuple(float(epoch.score or 0.0) for epoch in result.history),
        result.best_epoch,
        batches.train.positives,
        batches.reachable,
        batches.train.without,
        batches.grounding.partly_hidden,
        result.is_cut,
    )


def train_alone(job: TemplateJob, seconds: float | None = None) -> TrainedTemplate:
    """Train one target in a process of its own, on one thread."""
    torch.set_num_threads(1)
    return train(job, seconds=seconds)


class _Batches:
    """The examples of one target over one grounding, and the loss of any of them."""

    def __init__(self, job: TemplateJob, network: TemplateNetwork) -> None:
        self.options, self.network = job.training, network
        known = [job.kb.columns(job.target)] if job.target in job.kb.predicates else []
        if job.valid is not None:
            known.append(job.valid)
        ranges = _find_ranges(job)
        positions = self.options.positions or tuple(range(len(ranges)))
        if any(position not in range(len(ranges)) for position in positions):
            raise DataError(f"positions of {job.target} lie in 0 … {len(ranges) - 1}, got {list(positions)}")

        def draw(positives: Columns, seed: int, false: Columns | None) -> TemplateExamples:
            return draw_examples(
                job.target,
                positives,
                [job.positives, *known],
                ranges,
                false=false,
                count=self.options.negatives,
                positions=positions,
                worlds=_find_worlds(job),
                seed=seed,
            )

        false = job.false
        if self.options.corruption == "closed" or (self.options.corruption == "type" and job.target in job.kb.closed):
            given = ground(network.program, job.kb, hide=False, memory_limit=job.memory_limit).facts
            is_known = find_rows([np.concatenate(c) for c in zip(job.positives, *known, strict=True)], given) >= 0
            unknown = tuple(column[~is_known] for column in given)
            false = unknown if false is None else tuple(map(np.concatenate, zip(false, unknown, strict=True)))
        self.train = draw(job.positives, self.options.seed, false)
        if self.train.without == self.train.positives:
            raise DataError(_describe_no_negatives(job, positions))
        self.valid = None
        if job.valid is not None and len(job.valid[0]):
            self.valid = draw(job.valid, self.options.seed + 1, None)
        parts = [examples.columns for examples in (self.train, self.valid) if examples is not None]
        wanted = tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))
        self.grounding = ground(
            network.program,
            job.kb,
            wanted=distinct_rows(wanted)[0],
            hide=self.options.hide,
            inverses=job.inverses,
            memory_limit=job.memory_limit,
        )
        self.rows = [torch.cat([self.grounding.find(columns), torch.tensor([-1])]) for columns in parts]
        self.reachable = int((self.rows[0][: self.train.positives] >= 0).sum())

    def _loss(self, which: int, examples: TemplateExamples, batch: Sequence[int]) -> Tensor:
        values = self.network(self.grounding)
        values = torch.cat([values, values.new_zeros(1)])[self.rows[which]]
        chosen = torch.as_tensor(np.asarray(batch))
        negatives = torch.from_numpy(examples.negatives)[chosen]
        return pair_loss(self.options.loss, values[chosen], values[negatives], negatives >= 0, self.options.margin)

    def losses(self, batch: Sequence[int], position: StepPosition) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
        self.network.project_()
        loss = self._loss(0, self.train, batch)
        price = self.network.penalty() + self.options.sparsity * self.network.leaf_weights()
        yield loss + price, {"loss": loss}

    def score(self) -> float:
        """Return the negative loss on valid, or else on train; through the leaky clamp, which tells more apart."""
        self.network.project_()
        self.network.train()
        which, examples = (0, self.train) if self.valid is None else (1, self.valid)
        with torch.no_grad():
            loss = self._loss(which, examples, range(examples.positives))
        self.network.eval()
        return -float(loss)


def _find_ranges(job: TemplateJob) -> list[npt.NDArray[Any]]:
    """Return what each argument of a negative may be: entities of its type, or what examples have there.

    Of numbers there is no list, so they are those of the examples in any case.
    """
    given = [columns for columns in (job.positives, job.false) if columns is not None]
    ranges = []
    for parts, type_name in zip(zip(*given, strict=True), job.types, strict=True):
        if job.training.corruption == "examples" or type_name == NUMBER_TYPE:
            ranges.append(np.unique(np.concatenate(parts)))
        else:
            domain = job.kb.domains[type_name]
            ranges.append(np.arange(domain.start, domain.start + len(domain)))
    return ranges


def _find_worlds(job: TemplateJob) -> npt.NDArray[np.int32] | None:
    """Return the worlds of entities where negatives stay in them: a fact between two worlds is false anyway."""
    is_between_entities = len(job.types) > 1 and NUMBER_TYPE not in job.types
    return job.kb.entity_worlds if is_between_entities and job.training.corruption != "examples" else None


def _describe_no_negatives(job: TemplateJob, positions: Sequence[int]) -> str:
    """Say that nothing false is known of a target, and what to do about it."""
    by_examples = job.training.corruption == "examples"
    shown = " or ".join(str(position + 1) for position in positions)
    others = "one of another example" if by_examples else "another entity of its type"
    way_out = "set corruption='type' for all entities of the type, " if by_examples else ""
    return (
        f"{job.target} has {len(job.positives[0]):,} positive examples and no negative one: with argument {shown} "
        f"changed to {others} each is a known fact too, and no fact of {job.target} is observed to be false; {way_out}"
        f"give false facts (!{job.target}(…). in a .facts file, truth=False in Python) or learn another target"
    )


def _file_name(target: str) -> str:
    return "".join(char if char.isalnum() or char in "-_" else f"%{ord(char):02x}" for char in target)
