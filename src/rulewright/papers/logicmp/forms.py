"""LogicMP on forms: which words stand in one block, by a network alone and with the rule that blocks are transitive.

All networks start from the same weights and see the forms in the same order. ``plain`` predicts every pair on its own;
``slrelax`` adds a penalty of violated groundings to the loss. ``layer`` and ``both`` put the rules behind these two
networks as a layer; ``end_to_end`` trains a network through the layer, whose weight is learned and whose messages come
in over the share ``layer_warmup`` of the steps. Names that end in ``mean`` and ``block`` have mean messages in place of
sums, see `TransitiveLayer`. A pair coexists where that is more probable than not, as in the paper; ``tuned`` has the
figures at a threshold chosen on forms held out of the training forms, which also choose the epoch, and the weight and
iterations of a layer that was not trained. The test forms are scored once.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from rulewright.datasets import locate
from rulewright.datasets.download import cache_folder
from rulewright.errors import MissingExtraError, unknown_name
from rulewright.files import write_bytes
from rulewright.inject import ConsistencyLoss, LogicLayer
from rulewright.io import funsd
from rulewright.logic import RuleSet, parse_rules
from rulewright.papers.catalogue import Experiment
from rulewright.papers.logicmp.blocks import (
    COUNTS,
    LONG,
    Blocks,
    FloatArray,
    best_threshold,
    block_figures,
    block_intervals,
    blocks_above,
    compare_blocks,
    count_blocks,
)
from rulewright.papers.logicmp.form_layer import Averaging, TransitiveLayer, usual_size
from rulewright.papers.logicmp.form_network import (
    FormBatch,
    FormFeatures,
    FormNetwork,
    FormOutput,
    collate_forms,
    form_features,
    form_losses,
    pretrained_vectors,
    vary,
)
from rulewright.papers.report_page import new_figure
from rulewright.training.loop import StepPosition, TrainingLoop, TrainingProgress, TrainingResult, TrainingSettings


def draw_matrices(
    path: str | os.PathLike[str], matrices: Mapping[str, npt.NDArray[Any]], *, title: str = "", dots: int = 150
) -> None:
    """Draw matrices ``[N, N]`` of probabilities, one panel each with its name, and save them as PNG."""
    figure = new_figure(3.2 * len(matrices), 3.6)
    panels = np.atleast_1d(figure.subplots(1, len(matrices)))
    for panel, (name, matrix) in zip(panels, matrices.items(), strict=True):
        panel.imshow(np.asarray(matrix, dtype=float), cmap="Greys", vmin=0, vmax=1, interpolation="nearest")
        panel.set_title(name)
        panel.set_xticks([])
        panel.set_yticks([])
    if title:
        figure.suptitle(title)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dots)
    write_bytes(path, buffer.getvalue())


Tell = Callable[[str], None]
VARIANTS = {
    "plain": "plain",
    "slrelax": "slrelax",
    "layer": "plain",
    "layer_mean": "plain",
    "layer_block": "plain",
    "both": "slrelax",
    "end_to_end": "end_to_end",
    "end_to_end_mean": "end_to_end_mean",
    "end_to_end_block": "end_to_end_block",
}
"""The network of each variant, by the way it is trained."""

BEHIND: Mapping[str, Averaging] = {"layer": "sum", "layer_mean": "words", "layer_block": "block", "both": "sum"}
"""The variants whose layer stands behind a network that was trained without it, with how messages are averaged."""

THROUGH: Mapping[str, Averaging] = {"end_to_end": "sum", "end_to_end_mean": "words", "end_to_end_block": "block"}
"""The ways to train a network through the layer."""

UNTRAINED = ("variants", "layer_weights", "mean_weights", "layer_iterations", "thresholds", "paper")
"""The settings that come after training."""

PICTURED = ("plain", "slrelax", "layer", "end_to_end")
HELD_OUT = (4, 10)  # of every ten training forms by name, the fifth
PICTURE = "matrices.png"


@dataclass(frozen=True)
class FormTask:
    """Forms to train on, to select by, and to test on."""

    training: tuple[FormFeatures, ...]
    selection: tuple[FormFeatures, ...]
    test: tuple[FormFeatures, ...]


class FormSystem(nn.Module):
    """The network and, by the variant, the layer behind it and the penalty beside it."""

    def __init__(
        self, network: FormNetwork, layer: TransitiveLayer | None = None, penalty: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.network, self.layer, self.penalty = network, layer, penalty

    def forward(self, batch: FormBatch) -> FormOutput:
        """Score pairs of words, through the layer where there is one."""
        output: FormOutput = self.network(batch)
        if self.layer is None:
            return output
        return replace(output, coexist=self.layer(output.coexist, batch.mask))

    def loss(
        self, forms: Sequence[FormFeatures], *, label_weight: float, penalty_weight: float
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """``L = L_pairs + λ_l · L_labels + λ_p · penalty``, and its parts."""
        batch = collate_forms([vary(form) for form in forms])
        output: FormOutput = self(batch)
        parts = form_losses(output, batch)
        total = parts["pairs"] + label_weight * parts["labels"]
        if self.penalty is not None:
            parts["penalty"] = self.penalty({"coexist": output.coexist}, mask={"token": batch.mask})
            total = total + penalty_weight * parts["penalty"]
        return total, parts


@dataclass(frozen=True)
class FormPredictions:
    """What a system predicts for forms: log-odds ``[N, N]`` of pairs and the label of each word."""

    logits: tuple[FloatArray, ...]
    labels: tuple[Any, ...]


def run(experiment: Experiment, *, seed: int, folder: Path, tell: Tell) -> dict[str, Any]:
    """Run an experiment, or go on with it where it was stopped, and return its figures."""
    settings: Any = experiment.settings
    task = load_task(settings["set"], encoder=settings["encoder"], order=settings["order"])
    tell(f"{len(task.training)} forms to train on, {len(task.selection)} to select by, {len(task.test)} to test on")
    truths = _truths(task.test)
    rows: dict[str, Any] = {}
    counts: dict[str, FloatArray] = {}
    pictured = _choose_picture(task.test)
    matrices = {"truth": collate_forms([task.test[pictured]]).coexist[0].numpy()}
    systems: dict[str, tuple[FormSystem, TrainingResult]] = {}
    for variant in settings["variants"]:
        if variant not in VARIANTS:
            raise unknown_name("variant", variant, VARIANTS)
        trained = VARIANTS[variant]
        if trained not in systems:
            system = build_system(trained, task, settings, seed=seed)
            systems[trained] = (system, _train(system, trained, task, settings, seed, folder, tell))
        system, result = systems[trained]
        if variant in BEHIND:
            system = with_layer(system, task, BEHIND[variant], settings, tell)
        selected, predicted = predict_forms(system, task.selection), predict_forms(system, task.test)
        counts[variant] = _count_blocks(predicted, truths, settings["threshold"])
        held_out = _count_blocks(selected, _truths(task.selection), settings["threshold"])
        chosen, _ = best_threshold(selected.logits, selected.labels, _truths(task.selection), settings["thresholds"])
        tuned = _count_blocks(predicted, truths, chosen)
        rows[variant] = {
            **_figures(counts[variant].sum(axis=0, keepdims=True)),
            "intervals": {
                name: list(bounds)
                for name, bounds in block_intervals(counts[variant]).items()
                if not np.isnan(bounds[0])
            },
            "selection": _figures(held_out.sum(axis=0, keepdims=True)),
            "tuned": {"threshold": chosen, **_figures(tuned.sum(axis=0, keepdims=True))},
            **_training_figures(system, result),
        }
        full, tuned_full = rows[variant]["full"], rows[variant]["tuned"]["full"]
        tell(f"{variant}: F1 {full:.4f}, at the threshold {chosen} {tuned_full:.4f}")
        if variant in PICTURED:
            matrices[variant] = 1 / (1 + np.exp(-predicted.logits[pictured]))
    _draw(folder, matrices, task.test[pictured].name, tell)
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "seed": seed,
        "forms": [len(task.training), len(task.selection), len(task.test)],
        "rows": rows,
        "columns": list(block_figures(np.zeros((0, len(COUNTS))))),
        "against_plain": {
            name: {figure: compared.as_dict() for figure, compared in compare_blocks(table, counts["plain"]).items()}
            for name, table in counts.items()
            if name != "plain" and "plain" in counts
        },
        "names": [form.name for form in task.test],
        "count_columns": list(COUNTS),
        "counts": {name: table.astype(int).tolist() for name, table in counts.items()},
        "paper": settings.get("paper"),
    }


def load_task(name: str, *, encoder: str, order: Any) -> FormTask:
    """Read the forms of a set with the vectors of their words; a tenth of the training forms is held out."""
    forms = funsd.read(locate(name))
    vectors = partial(pretrained_vectors, name=encoder, folder=cache_folder() / "vectors")
    features = form_features(forms, vectors, order=order)
    train = [tensors for tensors, form in zip(features, forms, strict=True) if form.split == "train"]
    test = [tensors for tensors, form in zip(features, forms, strict=True) if form.split == "test"]
    return split_task(train, test)


def split_task(train: Sequence[FormFeatures], test: Sequence[FormFeatures]) -> FormTask:
    """Hold out every tenth form by name."""
    ordered = sorted(train, key=lambda form: form.name)
    first, step = HELD_OUT
    return FormTask(
        tuple(form for index, form in enumerate(ordered) if index % step != first),
        tuple(ordered[first::step]),
        tuple(test),
    )


def build_system(trained: str, task: FormTask, settings: Mapping[str, Any], *, seed: int) -> FormSystem:
    """Make an untrained system; the seed decides the network, which is the same in all of them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = FormNetwork(
            task.training[0].vectors.shape[1],
            **{name: settings[name] for name in ("size", "layers", "pair_size", "dropout", "vector_dropout")},
        )
    rules = parse_rules(settings["rules"])
    if trained in THROUGH:
        weight, iterations = settings["initial_weight"], settings["iterations"]
        return FormSystem(network, _make_layer(rules, task, THROUGH[trained], weight=weight, iterations=iterations))
    penalty = ConsistencyLoss(rules, form="violation") if trained == "slrelax" else None
    return FormSystem(network, penalty=penalty)


def _make_layer(
    rules: RuleSet, task: FormTask, averaging: Averaging, *, weight: float, iterations: int
) -> TransitiveLayer:
    messages = LogicLayer(rules, iterations=1, initial_weight=weight)
    usual = usual_size(task.training, averaging)
    return TransitiveLayer(messages, iterations=iterations, averaging=averaging, usual=usual)


def with_layer(
    system: FormSystem, task: FormTask, averaging: Averaging, settings: Mapping[str, Any], tell: Tell
) -> FormSystem:
    """Put the rules behind a trained network, with the weight and iterations that are best on the held-out forms."""
    rules, truths = parse_rules(settings["rules"]), _truths(task.selection)
    best, chosen = -1.0, system
    weights = settings["layer_weights" if averaging == "sum" else "mean_weights"]
    for weight, iterations in product(weights, settings["layer_iterations"]):
        layer = _make_layer(rules, task, averaging, weight=weight, iterations=iterations)
        candidate = FormSystem(system.network, layer)
        counts = _count_blocks(predict_forms(candidate, task.selection), truths, settings["threshold"])
        full = _full(counts)
        if full > best:
            best, chosen = full, candidate
            message = f"the layer of weight {weight} and {iterations} iterations gives F1 {full:.4f} on held-out forms"
    tell(message)
    return chosen


def _train(
    system: FormSystem,
    variant: str,
    task: FormTask,
    settings: Mapping[str, Any],
    seed: int,
    folder: Path,
    tell: Tell,
) -> TrainingResult:
    names = ("epochs", "patience", "batch_size", "rate", "weight_decay")
    options = TrainingSettings(**{name: settings[name] for name in names}, seed=seed, epsilon=1e-8)
    truths = _truths(task.selection)

    def score() -> float:
        if system.layer is not None:
            system.layer.share = 1.0
        counts = _count_blocks(predict_forms(system, task.selection), truths, settings["threshold"])
        return _full(counts)

    def losses(batch: Sequence[FormFeatures], position: StepPosition) -> Iterator[tuple[Tensor, Mapping[str, Tensor]]]:
        if system.layer is not None:
            system.layer.share = position.ramp(settings["layer_warmup"])
        yield system.loss(batch, label_weight=settings["label_weight"], penalty_weight=settings["slrelax_weight"])

    def report(progress: TrainingProgress) -> None:
        if record := progress.record:
            means = ", ".join(f"{name} {value:.4f}" for name, value in record.losses.items())
            best = f"best F1 {progress.best_score:.4f}"
            tell(f"{variant}: epoch {record.epoch} of {progress.epochs}, {means}, {best}, {record.seconds:.1f} s")

    return TrainingLoop(
        system,
        task.training,
        losses,
        lengths=[form.words for form in task.training],
        settings=options,
        identity={"variant": variant, **{name: value for name, value in settings.items() if name not in UNTRAINED}},
        score=score,
        folder=folder / variant,
        progress=report,
    ).run()


@torch.no_grad()
def predict_forms(system: FormSystem, forms: Sequence[FormFeatures]) -> FormPredictions:
    """Run a system on forms, one at a time."""
    system.eval()
    outputs = [system(collate_forms([form])) for form in forms]
    return FormPredictions(
        tuple(output.coexist[0].double().numpy() for output in outputs),
        tuple(output.labels[0].argmax(-1).numpy() for output in outputs),
    )


def _count_blocks(predicted: FormPredictions, truths: Sequence[Blocks], threshold: float) -> FloatArray:
    """Count the blocks of each form that are right, where a pair coexists above a threshold."""
    rows = zip(predicted.logits, predicted.labels, truths, strict=True)
    return np.array([count_blocks(blocks_above(logits, labels, threshold), truth) for logits, labels, truth in rows])


def _full(counts: FloatArray) -> float:
    return float(block_figures(counts.sum(axis=0, keepdims=True))["full"][0])


def _truths(forms: Sequence[FormFeatures]) -> list[Blocks]:
    return [Blocks(form.block.numpy(), form.label.numpy()) for form in forms]


def _figures(counts: FloatArray) -> dict[str, float | None]:
    values = {name: float(value[0]) for name, value in block_figures(counts).items()}
    return {name: None if np.isnan(value) else value for name, value in values.items()}


def _training_figures(system: FormSystem, result: TrainingResult) -> dict[str, Any]:
    own = [] if system.layer is None else [weights.detach().flatten().tolist() for weights in system.layer.parameters()]
    return {
        "parameters": sum(weights.numel() for weights in system.parameters()),
        "rule_weights": [value for values in own for value in values],
        "iterations": None if system.layer is None else system.layer.iterations,
        "epochs": len(result.history),
        "best_epoch": result.best_epoch,
        "curve": [[round(record.score or 0.0, 4), round(record.seconds, 2)] for record in result.history],
        "seconds_per_epoch": round(float(np.mean([epoch.seconds for epoch in result.history])), 2),
    }


def _choose_picture(forms: Sequence[FormFeatures]) -> int:
    """The form with the most long blocks, the first of equals."""
    long = [int((torch.bincount(form.block) > LONG).sum()) for form in forms]
    return long.index(max(long))


def _draw(folder: Path, matrices: Mapping[str, Any], name: str, tell: Tell) -> None:
    try:
        draw_matrices(folder / PICTURE, matrices, title=f"form {name}")
    except MissingExtraError as error:
        tell(f"no picture: {error}")
    else:
        tell(f"the matrices of form {name} are drawn in {folder / PICTURE}")
