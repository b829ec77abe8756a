from __future__ import annotations

import json
import random

import pytest
from typer.testing import CliRunner

import rulewright as rw
from rulewright.cli import app
from rulewright.data.builder import KnowledgeBaseBuilder
from rulewright.errors import RulewrightError
from rulewright.learn.markov.selection import default_candidates
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
        "encoder": {
            "facts": {"epochs": 3, "size": 4},
            "sampled": {"epochs": 2, "size": 4, "batch_size": 50},
            "scores": {"batch_size": 5},
        },
        "iterations_compared": [0, 2],
    }
    return Experiment("logicmp/smoke", "a small family", {**settings, **changes})


def test_a_run_and_its_second_start(tmp_path, monkeypatch):
    monkeypatch.setattr(logicmp_graphs, "load", lambda name, part: family())
    monkeypatch.setattr(logicmp_graphs, "rules_of", lambda name, part: RULES)
    told: list[str] = []
    found = logicmp_graphs.run(experiment(), seed=1, folder=tmp_path, tell=told.append)
    assert found["rows"]["layer"]["auc_pr"] == 1
    assert set(found["rows"]) == {*experiment().settings["variants"]} >= {"layer", "encoder_distilled", "table_layer"}
    assert len(found["selection"]["scores"]) == len(default_candidates())
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


def test_an_experiment_runs_on_a_folder_and_on_a_folder_of_such(tmp_path):
    texts = {
        "predicates": "p(t)\nq(t)",
        "facts": "p(a)\n!p(b)\np(c)",
        "queries": "q(a)\n!q(b)",
        "rules": "1.0 !p(x) v q(x)",
    }
    for part in ("one", "two"):
        (tmp_path / part).mkdir()
        for name, text in texts.items():
            (tmp_path / part / name).write_text(text)
    results = {}
    for name, data in (("one", tmp_path / "one"), ("all", tmp_path)):
        command = ["run", "logicmp", "--data", data, "--folder", tmp_path / f"run_{name}", "--json", "--threads", 1]
        answer = CliRunner().invoke(app, [*map(str, command)], catch_exceptions=False)
        assert answer.exit_code == 0, answer.stderr
        results[name] = json.loads(answer.stdout)
    assert results["one"]["rows"]["layer"]["auc_pr"] == 1
    assert [*results["all"]["rows"]["layer"]["parts"]] == ["one", "two"]
    assert "--data" in results["one"]["command"]
    with pytest.raises(RulewrightError, match="there are no rules here"):
        CliRunner().invoke(app, ["run", "logicmp", "--data", str(tmp_path / "run_one")], catch_exceptions=False)
    with pytest.raises(RulewrightError, match="which data"):
        CliRunner().invoke(app, ["run", "logicmp/folder"], catch_exceptions=False)
    assert CliRunner().invoke(app, ["run", "milr", "--data", str(tmp_path)]).exit_code == 2
