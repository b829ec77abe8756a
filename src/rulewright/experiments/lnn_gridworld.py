"""Gridworld: a rule for each move, learned from rewards, beside attention with the product t-norm (NeuralLP)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor, nn

from rulewright.data.generators.grids import DIRECTIONS
from rulewright.errors import MissingExtraError
from rulewright.experiments.catalogue import Experiment
from rulewright.experiments.gridworld import GridWorlds
from rulewright.learn.lnn import ready
from rulewright.learn.lnn.grounding import Grounding, ground
from rulewright.learn.lnn.network import NetworkOptions, TemplateNetwork
from rulewright.learn.lnn.reading import crisp_rules
from rulewright.learn.lnn.template import resolve

Tell = Callable[[str], None]
GATE_RATE = 0.1


class MovePolicy(nn.Module):
    """The networks of all moves; ``policy(groundings)`` is ``[cells, moves]``."""

    def __init__(self, grids: GridWorlds, options: NetworkOptions) -> None:
        super().__init__()
        templates = ready.gridworld()
        programs = {way: resolve(templates, grids.kb, f"move_{way}") for way in DIRECTIONS}
        self.networks = nn.ModuleDict({way: TemplateNetwork(each, options) for way, each in programs.items()})

    def network(self, way: str) -> TemplateNetwork:
        """Return the network of one move."""
        found = self.networks[way]
        assert isinstance(found, TemplateNetwork)
        return found

    def forward(self, world: SeenGrids) -> Tensor:
        """Return how true each move is in each cell."""
        values = []
        for way in DIRECTIONS:
            grounding = world.groundings[way]
            found = self.network(way)(grounding)
            values.append(torch.cat([found, found.new_zeros(1)])[world.places[way]])
        return torch.stack(values, dim=1)


class SeenGrids:
    """Grids as the policy sees them: a grounding for each move, over all cells."""

    def __init__(self, policy: MovePolicy, grids: GridWorlds) -> None:
        self.grids = grids
        self.groundings: dict[str, Grounding] = {
            way: ground(policy.network(way).program, grids.kb) for way in DIRECTIONS
        }
        self.places = {way: each.find(grids.columns) for way, each in self.groundings.items()}
        self.rewards = torch.from_numpy(grids.rewards)

    def values(self, policy: MovePolicy) -> npt.NDArray[Any]:
        """Return how true the hard policy holds each move."""
        policy.eval()
        with torch.no_grad():
            found: npt.NDArray[Any] = policy(self).numpy()
        policy.train()
        return found


def expected_reward(values: Tensor, rewards: Tensor) -> Tensor:
    """Return ``Σ_moves reward · ψ(move)``, the mean over cells; ψ beyond [0, 1] (the clamp leaks) earns nothing more.

    >>> expected_reward(torch.tensor([[1.2, -0.3]]), torch.tensor([[1.0, -2.0]])).item()
    1.0
    """
    within = torch.where(rewards > 0, values.clamp(max=1), values.clamp(min=0))
    return (within * rewards).sum(dim=1).mean()


def learning_curve(
    options: NetworkOptions,
    train: GridWorlds,
    test: GridWorlds,
    *,
    points: Sequence[int],
    steps: int,
    rate: float,
    sparsity: float = 0.0,
) -> tuple[dict[int, npt.NDArray[Any]], MovePolicy]:
    """Show one training grid after the other; return the values of all test cells' moves at some points.

    ``loss = −expected reward + sparsity · Σ w`` over all cells shown so far; so many steps of Adagrad follow every
    new grid, in which connectives move a tenth as fast as leaves.
    """
    policy = MovePolicy(train, options).train()
    seen, tested = SeenGrids(policy, train), SeenGrids(policy, test)
    gates = [each for name, each in policy.named_parameters() if name.endswith("rates")]
    leaves = [each for name, each in policy.named_parameters() if not name.endswith("rates")]
    groups: list[dict[str, Any]] = [{"params": gates, "lr": rate * GATE_RATE}, {"params": leaves}]
    optimizer = torch.optim.Adagrad(groups, lr=rate)
    cells = train.cells_a_grid
    curve = {0: tested.values(policy)} if 0 in points else {}
    for done in range(1, max(points) + 1):
        here = slice(0, done * cells)
        for _ in range(steps):
            optimizer.zero_grad()
            loss = -expected_reward(policy(seen)[here], seen.rewards[here])
            for way in DIRECTIONS:
                loss = loss + policy.network(way).penalty() + sparsity * policy.network(way).leaf_weights()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            for way in DIRECTIONS:
                policy.network(way).project_()
        if done in points:
            curve[done] = tested.values(policy)
    return curve, policy.eval()


def run(experiment: Experiment, *, seed: int, folder: Path, tell: Tell) -> dict[str, Any]:
    """Draw the learning curves of all variants, and what was learned; beside them what the ideal rule earns."""
    settings: Any = experiment.settings
    folder.mkdir(parents=True, exist_ok=True)
    train = GridWorlds.made(settings["grids"], size=settings["size"], obstacles=settings["obstacles"], seed=seed)
    test = GridWorlds.made(
        settings["test_grids"], size=settings["size"], obstacles=settings["test_obstacles"], seed=1000 + seed
    )
    ideal = test.reward(test.ideal())
    tell(f"the ideal rule earns {ideal:.3f} a cell")
    rows: dict[str, Any] = {}
    policies: dict[str, MovePolicy] = {}
    for name, options in settings["variants"].items():
        began = time.monotonic()
        values, policies[name] = learning_curve(
            NetworkOptions(**options),
            train,
            test,
            points=settings["points"],
            steps=settings["steps"],
            rate=settings["rate"],
            sparsity=settings["sparsity"],
        )
        curve = {point: test.reward(each) for point, each in values.items()}
        rows[name] = {
            **{f"after_{point}": value for point, value in curve.items()},
            "share_of_ideal_after_20": curve[20] / ideal,
            "share_if_half_true_after_20": test.reward(values[20], fires=0.5) / ideal,
            "curve": [[point, value] for point, value in curve.items()],
            "rules": [str(each) for way in DIRECTIONS for each in crisp_rules(policies[name].network(way))],
            "seconds": round(time.monotonic() - began, 1),
        }
        tell(f"{name}: {curve[20]:.3f} after 20 grids, {100 * curve[20] / ideal:.1f} % of the ideal rule's")
    pictures = _draw(rows, ideal, policies, test, folder, tell)
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "seed": seed,
        "rows": {**rows, "ideal": {"after_20": ideal, "share_of_ideal_after_20": 1.0}},
        "columns": [
            "after_1",
            "after_5",
            "after_10",
            "after_20",
            "after_30",
            "share_of_ideal_after_20",
            "share_if_half_true_after_20",
        ],
        "pictures": pictures,
    }


def _draw(
    rows: Mapping[str, Any],
    ideal: float,
    policies: Mapping[str, MovePolicy],
    test: GridWorlds,
    folder: Path,
    tell: Tell,
) -> list[str]:
    from rulewright.experiments import lnn_pictures as pictures

    curves = {name: dict(map(tuple, row["curve"])) for name, row in rows.items()}
    first = next(iter(policies))
    network = policies[first].network("south")
    files = [folder / name for name in ("curves.png", "rule.png", "conjunction.png", "policy.png")]
    try:
        pictures.draw_curves(files[0], curves, ideal=ideal, across="training grids", up="mean reward")
        pictures.draw_rule_tree(files[1], network)
        key = next(key for key, each in network.program.neurons.items() if each.kind == "and" and each.learned)
        pictures.draw_surfaces(files[2], {"LNN-∧ of move_south": network.operator(key)})
        pictures.draw_policy(files[3], test, SeenGrids(policies[first], test).values(policies[first]))
    except MissingExtraError as error:
        tell(f"no pictures: {error}")
        return []
    return [each.name for each in files]
