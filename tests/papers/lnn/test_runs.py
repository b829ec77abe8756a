from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from real_data import needs_data

from rulewright.data.generators.grids import DIRECTIONS
from rulewright.errors import UnknownNameError
from rulewright.learn.lnn.network import NetworkOptions
from rulewright.learn.lnn.operators import LNNAnd, LNNOr, ProductAnd
from rulewright.logic import parse_rule
from rulewright.papers.catalogue import find_experiment, load_run
from rulewright.papers.lnn import countries as lnn_countries
from rulewright.papers.lnn import gridworld as lnn_gridworld
from rulewright.papers.lnn.gridworld import GridWorlds

pytestmark = pytest.mark.slow


def test_rewards_are_those_of_walking():
    grids = GridWorlds.made(4, obstacles=5, seed=2)
    blocked, target = (grids.holds(name).reshape(4, 5, 5) for name in ("obstacle", "target"))
    rewards = grids.rewards.reshape(4, 5, 5, 4)
    for grid, column, row in np.ndindex(4, 5, 5):
        (goal,) = np.argwhere(target[grid])
        for place, (right, up) in enumerate(DIRECTIONS.values()):
            after = (column + right, row + up)
            if not all(0 <= each < 5 for each in after) or blocked[grid][after]:
                wanted = -2.0
            else:
                before = abs(goal - (column, row)).sum()
                wanted = 1.0 if abs(goal - after).sum() < before else -1.0
            assert rewards[grid, column, row, place] == wanted


def test_the_policy_takes_the_truest_move_and_stays_where_none_is_true():
    grids = GridWorlds.made(1, obstacles=3, seed=0)
    values = np.zeros((25, 4))
    assert grids.reward(values) == 0
    values[7, 2] = 0.4
    assert grids.reward(values) == grids.rewards[7, 2] / 25
    values[7, 1] = 0.4
    assert grids.reward(values) == pytest.approx((grids.rewards[7, 2] + grids.rewards[7, 1]) / 50)
    assert (
        0.6 < GridWorlds.made(50, obstacles=12, seed=5).reward(GridWorlds.made(50, obstacles=12, seed=5).ideal()) < 0.8
    )


def test_the_ideal_rule_is_in_the_template():
    grids = GridWorlds.made(3, obstacles=4, seed=1)
    policy = lnn_gridworld.MovePolicy(grids, NetworkOptions(alpha=0.8)).eval()
    for way in DIRECTIONS:
        network = policy.network(way)
        for key, neuron in network.program.neurons.items():
            if neuron.operation == "pred":
                chosen = (f"no_obstacle_{way}", f"has_target_{way}")
                network.operator(key).load_values([1.0, *(float(each in chosen) for each in neuron.inputs)])
    with torch.no_grad():
        values = policy(lnn_gridworld.SeenGrids(policy, grids)).numpy()
    np.testing.assert_array_equal(values, grids.ideal())


def test_learning_moves_from_rewards(tmp_path):
    settings = {
        **find_experiment("lnn/gridworld").settings,
        "grids": 20,
        "test_grids": 10,
        "steps": 4,
        "points": [0, 2, 20],
    }
    experiment = dataclasses.replace(find_experiment("lnn/gridworld"), settings=settings)
    found = lnn_gridworld.run(experiment, seed=0, folder=tmp_path / "new", tell=lambda _: None)
    ours, theirs = found["rows"]["lnn"], found["rows"]["neural_lp"]
    assert ours["after_20"] > theirs["after_20"] and ours["after_0"] > theirs["after_0"]
    assert ours["share_of_ideal_after_20"] == ours["after_20"] / found["rows"]["ideal"]["after_20"]
    pytest.importorskip("matplotlib")
    assert len(found["pictures"]) == 4
    for each in found["pictures"]:
        assert (tmp_path / "new" / each).read_bytes().startswith(b"\x89PNG")


def test_surfaces_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    from rulewright.papers.lnn.pictures import draw_surfaces

    draw_surfaces(
        tmp_path / "surfaces.png", {"LNN-∧": LNNAnd(2, alpha=0.7), "LNN-∨": LNNOr(2), "xy": ProductAnd(2)}, points=5
    )
    assert (tmp_path / "surfaces.png").stat().st_size > 1000


@needs_data
@pytest.mark.parametrize(
    ("number", "least", "rule"),
    [
        (1, 1.0, "locatedIn(X, Z) :- locatedIn(X, Y), locatedIn(Y, Z)."),
        (2, 0.92, "locatedIn(X, Z) :- neighborOf(X, Y), locatedIn(Y, Z)."),
        (3, 0.905, "locatedIn(X, Z) :- neighborOf(X, U), locatedIn(U, Y), locatedIn(Y, Z)."),
    ],
)
def test_countries(number, least, rule, tmp_path, monkeypatch):
    from real_data import DATA

    monkeypatch.setenv("RULEWRIGHT_DATA", str(DATA))
    told = []
    found = lnn_countries.run(find_experiment(f"lnn/countries_s{number}"), seed=0, folder=tmp_path, tell=told.append)
    assert found["rows"]["ours"]["auc_pr"] >= least
    assert found["crisp"] == str(parse_rule(rule).canonical())


def test_area_under_a_curve_of_ties():
    scores, truth = np.array([2.0, 1.0, 1.0, 0.0]), np.array([True, True, False, False])
    assert lnn_countries.trapezoid_auc_pr(scores, truth) == pytest.approx(0.5 + 0.5 * (1 + 2 / 3) / 2)


def test_an_unknown_task_is_named():
    experiment = dataclasses.replace(find_experiment("lnn/countries_s1"), settings={"task": "chess"})
    with pytest.raises(UnknownNameError, match="unknown task 'chess'"):
        load_run(experiment)
