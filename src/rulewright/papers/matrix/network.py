"""The network of the matrix: small enough to be trained once for each learner's rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from rulewright.inject import ConsistencyLoss
from rulewright.papers.matrix.worlds import World
from rulewright.training.loop import StepPosition, TrainingLoop, TrainingSettings

Logits = npt.NDArray[np.float32]
UNKNOWN = 0


class PairNetwork(nn.Module):
    """Log-odds of every relation between two entities, from the bags of their features.

    ``logit_r(i, j) = Σ_k c_rk a_ik b_jk + u_r·a_i + v_r·b_j + d_r``; a, b are of an entity as first and second place.
    """

    def __init__(self, features: Sequence[str], relations: int, width: int) -> None:
        super().__init__()
        self.numbers = {name: place for place, name in enumerate(features, start=UNKNOWN + 1)}
        self.vectors = nn.EmbeddingBag(len(features) + 1, width, mode="mean")
        self.first, self.second = (nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(2))
        self.relation = nn.Parameter(torch.randn(relations, width) / width**0.5)
        self.of_first, self.of_second = (nn.Linear(width, relations) for _ in range(2))

    def forward(self, world: World) -> Tensor:
        """Return ``logits[n, n, R]`` of a world."""
        bags = [[self.numbers.get(name, UNKNOWN) for name in each] or [UNKNOWN] for each in world.features]
        flat = torch.tensor([number for bag in bags for number in bag])
        starts = torch.tensor([0, *np.cumsum([len(bag) for bag in bags])[:-1].tolist()])
        entities = self.vectors(flat, starts)
        first, second = self.first(entities), self.second(entities)
        together = torch.einsum("ik,rk,jk->ijr", first, self.relation, second)
        logits: Tensor = together + self.of_first(first)[:, None] + self.of_second(second)[None]
        return logits


def features_of(worlds: Sequence[World], least: int) -> list[str]:
    """Return the features that occur often enough, sorted."""
    counts: dict[str, int] = {}
    for world in worlds:
        for bag in world.features:
            for name in bag:
                counts[name] = counts.get(name, 0) + 1
    return sorted(name for name, count in counts.items() if count >= least)


def trained(
    training: Sequence[World],
    relations: int,
    settings: Any,
    *,
    seed: int,
    folder: Path,
    score: Callable[[PairNetwork], float],
    consistency: ConsistencyLoss | None = None,
) -> PairNetwork:
    """Train a network, with a consistency loss where one is given; it keeps the weights with the best score."""
    torch.manual_seed(seed)
    model = PairNetwork(features_of(training, settings["least"]), relations, settings["width"])

    def losses(batch: Sequence[World], position: StepPosition) -> Iterator[tuple[Tensor, Mapping[str, Tensor]]]:
        total, broken = torch.zeros(()), torch.zeros(())
        for world in batch:
            logits = model(world)
            asked = torch.from_numpy(world.asked)
            gold = torch.from_numpy(world.gold).float()
            total = total + nn.functional.binary_cross_entropy_with_logits(logits[asked], gold[asked], reduction="sum")
            if consistency is not None:
                some = torch.randperm(len(logits))[: settings["sample"]].sort().values
                broken = broken + consistency(logits[some][:, some][None])
        parts = {"labels": total, "rules": settings["loss_weight"] * broken}
        yield (parts["labels"] + parts["rules"]) / len(batch), {name: part / len(batch) for name, part in parts.items()}

    options = TrainingSettings(
        epochs=settings["epochs"], batch_size=settings["batch"], rate=settings["rate"], clip=1e3, seed=seed
    )
    examples = [*training] * settings["repeat"]
    identity = {"rules": 0 if consistency is None else len(consistency.clauses), "width": settings["width"]}
    TrainingLoop(
        model,
        examples,
        losses,
        lengths=[len(world.features) for world in examples],
        settings=options,
        identity=identity,
        score=lambda: score(model),
        folder=folder,
    ).run()
    return model


def logits_of(model: PairNetwork, worlds: Sequence[World]) -> list[Logits]:
    """Return what a network says of worlds."""
    model.eval()
    with torch.inference_mode():
        found: list[Logits] = [model(world).numpy() for world in worlds]
    model.train()
    return found
