from __future__ import annotations

import random

import pytest

import rulewright as rw
from rulewright.data.builder import KnowledgeBaseBuilder
from rulewright.errors import RulewrightError
from rulewright.papers.catalogue import Experiment, find_experiment
from rulewright.papers.logicmp import graphs as logicmp_graphs
from rulewright.papers.logicmp.graphs import _all_assignments, _one_premise, iteration_costs

pytestmark = pytest.mark.slow

RULES = rw.parse_rules("1.0 parent(X, Y) => elder(X, Y). 1.0 !(elder(X, Y) & elder(Y, X)).")


def family() -> rw.KnowledgeBase:
    builder = KnowledgeBaseBuilder()
    for number in range(4):
        builder.add("parent", [f"a{number}", f"b{number}"])
        builder.add("elder", [f"a{number}", f"b{number}"], split="queries")
        builder.add("elder", [f"b{number}", f"a{number}"], truth=False, split="queries")
    return builder.build()


def experiment(**changes) -> Experiment:
    settings = {
        **find_experiment("logicmp/smoke").settings,
        "encoder": {"epochs": 3, "size": 4},
        "iterations_compared": [0, 2],
    }
    return Experiment("logicmp/smoke", "a small family", {**settings, **changes})


def test_a_run_and_its_second_start(tmp_path, monkeypatch):
    monkeypatch.setattr(logicmp_graphs, "load", lambda name, part: family())
    monkeypatch.setattr(logicmp_graphs, "rules_of", lambda name, part: RULES)
    told: list[str] = []
    found = logicmp_graphs.run(experiment(), seed=1, folder=tmp_path, tell=told.append)
    assert found["rows"]["layer"]["auc_pr"] == 1
    assert set(found["rows"]) == {"encoder", "encoder_scores", "layer", "encoder_layer"}
    assert len(found["selection"]["scores"]) == 20
    assert [each["iterations"] for each in found["iterations"]] == [0, 2, 0, 2]
    assert found["iterations"][1]["auc_pr"] == 1
    monkeypatch.setattr(logicmp_graphs, "_select", None)  # what was saved is not made again
    assert logicmp_graphs.run(experiment(), seed=1, folder=tmp_path, tell=told.append)["rows"] == found["rows"]
    with pytest.raises(RulewrightError, match="unknown variant 'large'"):
        logicmp_graphs.run(experiment(variants=["large"]), seed=1, folder=tmp_path, tell=told.append)


def test_costs():
    found = iteration_costs(RULES, family().with_splits({}), seed=0)
    assert found["groundings"] == 2 * 8**2
    assert all(each > 0 for each in found["seconds"].values())


def test_one_premise_is_the_expectation_over_all_assignments():
    draw = random.Random(0)
    for size in range(1, 6):
        false = [draw.random() for _ in range(size)]
        for place in range(size):
            assert _one_premise(false, place) == pytest.approx(_all_assignments(false, place))


@pytest.mark.parametrize("name", ["smoke", "kinship", "uw_cse", "cora"])
def test_the_catalogue_has_them(name):
    assert find_experiment(f"logicmp/{name}").settings["task"] == "graphs"
