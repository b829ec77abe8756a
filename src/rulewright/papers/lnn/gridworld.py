"""Gridworld: a rule for each move, learned from rewards, beside attention with the product t-norm (NeuralLP)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from rulewright.data import KnowledgeBase
from rulewright.data.facts import group_by_signature
from rulewright.data.generators import gridworld
from rulewright.data.generators.grids import DIRECTIONS
from rulewright.errors import MissingExtraError
from rulewright.learn.lnn import ready
from rulewright.learn.lnn.grounding import TemplateGrounding, ground
from rulewright.learn.lnn.network import NetworkOptions, TemplateNetwork
from rulewright.learn.lnn.reading import write_crisp_rules
from rulewright.learn.lnn.template import resolve
from rulewright.logic import PredicateDeclaration
from rulewright.papers.catalogue import Experiment

TOWARDS, AWAY, BLOCKED = 1.0, -1.0, -2.0

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class GridWorlds:
    """Grids, their facts with ``cell(X, Y)`` for every cell, and the rewards ``[cells, moves]`` in order of DIRECTIONS.

    A move earns +1 towards the target, −1 away from it, −2 onto an obstacle or off the grid; who stays earns 0.

    >>> grids = GridWorlds.made(2, seed=1)
    >>> grids.kb.count("cell"), grids.rewards.shape, float(grids.rewards.max())
    (50, (50, 4), 1.0)
    """

    kb: KnowledgeBase
    size: int
    columns: tuple[Array, Array]

    @classmethod
    def made(cls, grids: int, *, size: int = 5, obstacles: int = 3, seed: int = 0) -> GridWorlds:
        """Draw grids."""
        kb = gridworld(grids, size=size, obstacles=obstacles, seed=seed).kb
        grid, column, row = (index.ravel() for index in np.indices((grids, size, size)))
        columns = (
            (kb.domains["column"].start + grid * size + column).astype(np.int32),
            (kb.domains["row"].start + grid * size + row).astype(np.int32),
        )
        declared = {**kb.predicates, "cell": PredicateDeclaration("cell", ("column", "row"))}
        facts = {name: kb.columns(name) for name in kb.predicates} | {"cell": columns}
        tables = group_by_signature(declared, facts)
        with_cells = KnowledgeBase(kb.domains, declared.values(), tables, closed=kb.closed, worlds=kb.worlds)
        return cls(with_cells, size, columns)

    def holds(self, name: str) -> Array:
        """Tell for every cell whether a predicate holds of it."""
        size = self.kb.domains["row"].start + len(self.kb.domains["row"])
        keys = [column.astype(np.int64) * size + row for column, row in (self.columns, self.kb.columns(name))]
        holds: Array = np.isin(keys[0], keys[1])
        return holds

    @cached_property
    def rewards(self) -> Array:
        """What each move earns in each cell."""
        earned = []
        for way in DIRECTIONS:
            towards = np.where(self.holds(f"has_target_{way}"), TOWARDS, AWAY)
            earned.append(np.where(self.holds(f"has_obstacle_{way}"), BLOCKED, towards))
        return np.stack(earned, axis=1)

    @property
    def cells_a_grid(self) -> int:
        """The number of cells of one grid; a grid's cells stand one after the other."""
        return self.size**2

    def reward(self, values: Array, *, fires: float = 1e-9) -> float:
        """Return the mean reward over all cells of who makes the truest move, any of equally true ones.

        Who has no move that is at least as true as ``fires`` stays; by default every move that is not false counts.

        >>> grids = GridWorlds.made(3)
        >>> grids.reward(np.zeros((75, 4)))
        0.0
        """
        best = values.max(axis=1, keepdims=True)
        chosen = (values >= best - 1e-9) & (best >= fires)
        return float((np.where(chosen, self.rewards, 0.0).sum(axis=1) / np.maximum(chosen.sum(axis=1), 1)).mean())

    def ideal(self) -> Array:
        """Return the values of the ideal rule: the target lies in a direction, and no obstacle there."""
        values: Array = (self.rewards == TOWARDS).astype(np.float64)
        return values


Tell = Callable[[str], None]
GATE_RATE = 0.1


class MovePolicy(nn.Module):
    """The networks of all moves; ``policy(groundings)`` is ``[cells, moves]``."""

    def __init__(self, grids: GridWorlds, options: NetworkOptions) -> None:
        super().__init__()
        templates = ready.gridworld()
        programs = {way: resolve(templates, grids.kb, f"move_{way}") for way in DIRECTIONS}
        self.networks = nn.ModuleDict({way: TemplateNetwork(program, options) for way, program in programs.items()})

    def network(self, way: str) -> TemplateNetwork:
        """Return the network of one move."""
        network = self.networks[way]
        assert isinstance(network, TemplateNetwork)
        return network

    def forward(self, world: SeenGrids) -> Tensor:
        """Return how true each move is in each cell."""
        values = []
        for way in DIRECTIONS:
            grounding = world.groundings[way]
            truths = self.network(way)(grounding)
            values.append(torch.cat([truths, truths.new_zeros(1)])[world.rows[way]])
        return torch.stack(values, dim=1)


class SeenGrids:
    """Grids as the policy sees them: a grounding for each move, over all cells."""

    def __init__(self, policy: MovePolicy, grids: GridWorlds) -> None:
        self.grids = grids
        self.groundings: dict[str, TemplateGrounding] = {
            way: ground(policy.network(way).program, grids.kb) for way in DIRECTIONS
        }
        self.rows = {way: grounding.find(grids.columns) for way, grounding in self.groundings.items()}
        self.rewards = torch.from_numpy(grids.rewards)

    def values(self, policy: MovePolicy) -> npt.NDArray[Any]:
        """Return how true the hard policy holds each move."""
        policy.eval()
        with torch.no_grad():
            values: npt.NDArray[Any] = policy(self).numpy()
        policy.train()
        return values


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
    gates = [weights for name, weights in policy.named_parameters() if name.endswith("rates")]
    leaves = [weights for name, weights in policy.named_parameters() if not name.endswith("rates")]
    groups: list[dict[str, Any]] = [{"params": gates, "lr": rate * GATE_RATE}, {"params": leaves}]
    optimizer = torch.optim.Adagrad(groups, lr=rate)
    cells = train.cells_a_grid
    curve = {0: tested.values(policy)} if 0 in points else {}
    for done in range(1, max(points) + 1):
        shown = slice(0, done * cells)
        for _ in range(steps):
            optimizer.zero_grad()
            loss = -expected_reward(policy(seen)[shown], seen.rewards[shown])
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
        curve = {point: test.reward(truths) for point, truths in values.items()}
        rows[name] = {
            **{f"after_{point}": value for point, value in curve.items()},
            "share_of_ideal_after_20": curve[20] / ideal,
            "share_if_half_true_after_20": test.reward(values[20], fires=0.5) / ideal,
            "curve": [[point, value] for point, value in curve.items()],
            "rules": _read_rules(policies[name], train),
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


def _read_rules(policy: MovePolicy, grids: GridWorlds) -> list[str]:
    """Return the crisp rules of all moves, as they hold on grids."""
    groundings = SeenGrids(policy, grids).groundings
    readings = [write_crisp_rules(policy.network(way), groundings[way]) for way in DIRECTIONS]
    return [str(rule) for reading in readings for rule in reading.rules]


def _draw(
    rows: Mapping[str, Any],
    ideal: float,
    policies: Mapping[str, MovePolicy],
    test: GridWorlds,
    folder: Path,
    tell: Tell,
) -> list[str]:
    from rulewright.papers.lnn import pictures

    curves = {name: dict(map(tuple, row["curve"])) for name, row in rows.items()}
    first = next(iter(policies))
    network = policies[first].network("south")
    files = [folder / name for name in ("curves.png", "rule.png", "conjunction.png", "policy.png")]
    try:
        pictures.draw_curves(files[0], curves, ideal=ideal, across="training grids", up="mean reward")
        pictures.draw_rule_tree(files[1], network)
        key = next(
            key for key, neuron in network.program.neurons.items() if neuron.operation == "and" and neuron.learned
        )
        pictures.draw_surfaces(files[2], {"LNN-∧ of move_south": network.operator(key)})
        pictures.draw_policy(files[3], test, SeenGrids(policies[first], test).values(policies[first]))
    except MissingExtraError as error:
        tell(f"no pictures: {error}")
        return []
    return [path.name for path in files]
