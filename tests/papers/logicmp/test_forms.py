"""The experiment on forms that are made up, with stand-ins for the layer and the penalty; stop and go on."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from papers.logicmp.tiny_forms import tiny_forms
from real_data import DATA, needs_data
from torch import nn

from rulewright.errors import MissingExtraError, UnknownNameError
from rulewright.io import funsd
from rulewright.papers.catalogue import Experiment, find_experiment, load_run
from rulewright.papers.logicmp import forms as family
from rulewright.papers.logicmp.blocks import COUNTS, block_figures
from rulewright.papers.logicmp.forms import draw_matrices

pytestmark = pytest.mark.slow

SMALL = {"size": 16, "layers": 1, "pair_size": 4, "epochs": 4, "batch_size": 4, "thresholds": [0.3, 0.5, 0.7]}
SMALL |= {"variants": list(family.VARIANTS)}


class Layer(nn.Module):
    """Adds a learnable weight to all log-odds of words."""

    def __init__(self, rules, *, iterations, initial_weight):
        super().__init__()
        self.iterations = iterations
        self.weight = nn.Parameter(torch.tensor(initial_weight))

    def forward(self, logits, *, mask):
        assert mask["token"].shape == logits["coexist"].shape[:2]
        return {"coexist": logits["coexist"] + self.weight}


class Penalty(nn.Module):
    """The mean probability of all pairs."""

    def __init__(self, rules, form):
        super().__init__()
        assert form == "violation"

    def forward(self, logits, *, mask):
        both = mask["token"][:, :, None] & mask["token"][:, None, :]
        return logits["coexist"].sigmoid()[both].mean()


@pytest.fixture
def experiment(monkeypatch):
    task = family.split_task(tiny_forms(20), tiny_forms(6, start=100))
    monkeypatch.setattr(family, "load_task", lambda *_, **__: task)
    monkeypatch.setattr(family, "LogicLayer", Layer)
    monkeypatch.setattr(family, "ConsistencyLoss", Penalty)
    return Experiment("logicmp/x", "made up", {**find_experiment("logicmp/funsd").settings, **SMALL})


def test_a_run_from_end_to_end(experiment, tmp_path):
    told: list[str] = []
    found = family.run(experiment, seed=0, folder=tmp_path, tell=told.append)
    assert list(found["rows"]) == SMALL["variants"]
    assert found["forms"] == [18, 2, 6]
    assert any("plain: epoch 4 of 4" in line for line in told)
    for name, row in found["rows"].items():
        counts = np.array(found["counts"][name], dtype=float)
        assert counts.shape == (6, len(COUNTS))
        assert row["full"] == block_figures(counts.sum(axis=0, keepdims=True))["full"][0]
        assert row["long"] is None, "no generated block is long"
        low, high = row["intervals"]["full"]
        assert low <= row["full"] <= high
        assert len(row["rule_weights"]) == (name not in ("plain", "slrelax"))
        assert set(found["columns"]) <= set(row)
    assert set(found["against_plain"]) == set(family.VARIANTS) - {"plain"}
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    again: list[str] = []
    second = family.run(experiment, seed=0, folder=tmp_path, tell=again.append)
    assert second == found
    assert not any("epoch" in line for line in again), "what is trained is not trained again"


def test_variants_start_and_go_alike(experiment, tmp_path):
    task = family.load_task("funsd")
    systems = [family.build_system(name, task, experiment.settings, seed=3) for name in set(family.VARIANTS.values())]
    first = systems[0].network.state_dict()
    for system in systems[1:]:
        assert all(torch.equal(first[name], value) for name, value in system.network.state_dict().items())
    other = family.build_system("plain", task, experiment.settings, seed=4).network.state_dict()
    assert not all(torch.equal(first[name], value) for name, value in other.items())
    wrong = Experiment("logicmp/x", "x", {**experiment.settings, "variants": ["logic"]})
    with pytest.raises(UnknownNameError, match="unknown variant"):
        family.run(wrong, seed=0, folder=tmp_path, tell=print)


def test_an_unknown_task_is_an_error():
    with pytest.raises(UnknownNameError, match="unknown task 'form'"):
        load_run(Experiment("logicmp/x", "x", {"task": "form"}))


def test_the_network_learns_blocks_from_gaps(experiment, tmp_path):
    settings = {**experiment.settings, "epochs": 25, "batch_size": 1, "rate": 5e-3, "variants": ["plain"]}
    found = family.run(Experiment("logicmp/x", "x", settings), seed=0, folder=tmp_path, tell=lambda _: None)
    assert found["rows"]["plain"]["full"] > 0.8


def test_matrices_are_drawn(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra viz)")
    draw_matrices(tmp_path / "a.png", {"truth": np.eye(3, dtype=bool), "plain": np.full((3, 3), 0.5)}, title="form a")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"rulewright\[viz\]"):
        draw_matrices(tmp_path / "a.png", {"truth": np.eye(3)})


@needs_data
def test_the_forms(monkeypatch, tmp_path):
    monkeypatch.setenv("RULEWRIGHT_DATA", str(DATA))
    monkeypatch.setattr(family, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(family, "pretrained_vectors", lambda texts, **_: [torch.zeros(len(each), 2) for each in texts])
    task = family.load_task("funsd", encoder="minilm", order="file")
    assert [len(part) for part in (task.training, task.selection, task.test)] == [134, 15, 50]
    assert max(form.words for form in task.test) == 433
    forms = {form.name: form for form in funsd.read(DATA / "funsd")}
    for form in task.test:
        blocks = [each for each in forms[form.name].blocks if each.words]
        assert len(set(form.block.tolist())) == len(blocks)


@pytest.mark.parametrize("trained", ["slrelax", *family.THROUGH])
def test_the_layer_and_the_penalty_themselves(trained):
    forms = tiny_forms(20)
    task = family.split_task(forms, forms[:2])
    system = family.build_system(trained, task, {**find_experiment("logicmp/funsd").settings, **SMALL}, seed=0)
    loss, parts = system.loss(forms[:3], label_weight=0.5, penalty_weight=1.0)
    loss.backward()
    assert ("penalty" in parts) == (trained == "slrelax")
    assert 0 <= parts.get("penalty", 0.0) <= 1
    if trained != "slrelax":
        assert system.layer.layer.weights.learned.grad.abs().sum() > 0
    assert all(each.grad is not None for each in system.network.parameters())
