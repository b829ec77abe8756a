"""The matrix of learners and uses: on worlds made up here, and its page from made-up runs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from rulewright.cli import app
from rulewright.io.json_shape import load
from rulewright.logic import parse_rules
from rulewright.papers.catalogue import Experiment, experiments
from rulewright.papers.matrix import run as matrix
from rulewright.papers.matrix import worlds as matrix_worlds
from rulewright.papers.matrix.run import LEARNERS
from rulewright.papers.matrix.worlds import Setting, World, facts_to_labels, worlds_to_facts
from rulewright.papers.report_page import write_report

pytestmark = pytest.mark.slow

RELATIONS = ("child_of", "parent_of", "grandchild_of")


def made_up(seed: int) -> Setting:
    random = np.random.default_rng(seed)

    def world(places: int) -> World:
        gold = np.zeros((places, places, 3), dtype=bool)
        for place in range(places - 2):
            gold[place, place + 1, 0] = gold[place + 1, place, 1] = gold[place, place + 2, 2] = True
        gold[places - 2, places - 1, 0] = gold[places - 1, places - 2, 1] = True
        features = tuple((f"place {place}",) for place in range(places))
        return World(features, gold & (random.random(gold.shape) < 0.2), gold)

    training = tuple(world(4) for _ in range(6))
    kb = worlds_to_facts(training, [each.gold for each in training], RELATIONS)
    gold = parse_rules("parent_of(X, Y) :- child_of(Y, X). grandchild_of(X, Z) :- child_of(X, Y), child_of(Y, Z).")
    return Setting(RELATIONS, training, (world(4),), (world(4),), kb, gold)


def test_every_cell_is_filled_and_a_second_run_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(matrix, "load", lambda name: made_up(0))
    settings = {
        **experiments()["matrix/umls"].settings,
        "targets": 2,
        "precisions": [0.9],
        "network": {
            "least": 1,
            "width": 8,
            "epochs": 2,
            "batch": 2,
            "rate": 0.05,
            "repeat": 2,
            "sample": 4,
            "loss_weight": 1.0,
        },
        "RuleMiner": {"max_length": 2, "min_confidence": 0.5, "min_support": 2},
        "LNNLearner": {"relations": 3, "epochs": 3, "min_truth": 0.1},
    }
    nlil = {**settings["NLILLearner"], "epochs": 1, "slots": 1, "width": 8, "heads": 1, "min_support": 1, "held_out": 0}
    experiment = Experiment("matrix/umls", "made up", {**settings, "NLILLearner": nlil})
    told: list[str] = []
    found = matrix.run(experiment, seed=0, folder=tmp_path, tell=told.append)
    assert [*found["rows"]] == [
        "uncalibrated",
        "network alone",
        *(f"{learner}, {use}" for learner in LEARNERS for use in matrix.USES),
    ]
    for row in found["rows"].values():
        assert 0 <= row["f1"] <= 1
        if row is not found["rows"]["uncalibrated"]:
            assert row["selection_f1"] >= found["rows"]["network alone"]["selection_f1"]
    assert (tmp_path / "RuleMiner.rules").exists()
    again = matrix.run(experiment, seed=0, folder=tmp_path, tell=told.append)
    assert _without_times(again["rows"]) == _without_times(found["rows"])


def _without_times(rows):
    return {name: {key: value for key, value in row.items() if key != "seconds"} for name, row in rows.items()}


def test_labels_become_facts_and_labels_again():
    setting = made_up(1)
    labels = [world.gold for world in setting.training]
    kb = worlds_to_facts(setting.training, labels, RELATIONS)
    for before, after in zip(labels, facts_to_labels(kb, setting.training, RELATIONS), strict=True):
        assert (before == after).all()


def test_the_graph_setting_gives_what_came_before(monkeypatch):
    from rulewright.data import KnowledgeBase

    triples = [(f"n{i}", "next", f"n{i + 1}") for i in range(8)]
    whole = KnowledgeBase.from_triples(triples)
    kept, hidden = whole.hold_out(0.5)
    kb = kept.with_splits({"valid": hidden, "test": kept.with_facts({})})
    monkeypatch.setattr(matrix_worlds.datasets, "load", lambda name: kb)
    setting = matrix_worlds.load("some graph")
    assert setting.training[0].gold.sum() == 4 and setting.selection[0].gold.sum() == 4
    assert (setting.test[0].known == (setting.training[0].gold | setting.selection[0].gold)).all()
    assert not setting.test[0].queried[setting.test[0].known].any()


def test_the_page_has_learners_down_and_uses_across(tmp_path):
    rows = {"network alone": {"f1": 0.5, "consistency": 0.7, "own_consistency": None}}
    rows |= {
        f"{name}, {use}": {"f1": 0.6, "consistency": 0.9, "own_consistency": 1.0}
        for name in LEARNERS
        for use in matrix.USES
    }
    run = {
        "experiment": "matrix/umls",
        "seed": 0,
        "rows": rows,
        "rules": dict.fromkeys(LEARNERS, 9),
        "refused": dict.fromkeys(LEARNERS, 1),
        "worlds": [1, 1, 1],
        "targets": ["isa"],
        "gold_rules": 3,
        "command": "rulewright run matrix/umls",
        "machine": "one",
    }
    (tmp_path / "matrix_umls_0.json").write_text(json.dumps(run))
    found = write_report("matrix", tmp_path)
    assert found.runs == ("matrix/umls seed 0",) and found.missing == ("matrix/dwie seed 0",)
    page = (tmp_path / "matrix.md").read_text()
    assert "| rules of | apply | layer | decoder | loss |" in page
    assert "| NLILLearner | 60.00 | 60.00 | 60.00 | 60.00 |" in page
    assert "network alone: 50.00" in page and "No run is here yet." in page


def test_a_family_runs_all_its_experiments(tmp_path, monkeypatch):
    monkeypatch.setattr(matrix, "run", lambda experiment, **_: {"title": experiment.title, "rows": {}, "columns": []})
    found = CliRunner().invoke(
        app, ["run", "matrix", "-o", str(tmp_path), "--folder", str(tmp_path)], catch_exceptions=False
    )
    assert found.exit_code == 0
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["matrix_dwie_0.json", "matrix_umls_0.json"]
    run = load(tmp_path / "matrix_umls_0.json")  # refuses what is no JSON, as infinite numbers are
    assert run["settings"]["scales"].value == [0.25, 1.0, "inf"]
    assert run["version"].text().startswith("0.")


@pytest.mark.parametrize("name", ["matrix/dwie", "matrix/umls"])
def test_settings_are_complete(name):
    settings = experiments()[name].settings
    assert {"set", "network", "decoder", "scales", "loss", *LEARNERS} <= set(settings)
