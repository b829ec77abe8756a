"""A whole experiment on documents that are made up: train twice, decode, score, compare; stop and go on."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import numpy as np
import pytest
from real_data import DATA, needs_data

from rulewright.errors import UnknownNameError
from rulewright.inject import RuleDecoder
from rulewright.io.docred import Document, Entity, Fact, Mention
from rulewright.logic import parse_rules
from rulewright.papers.catalogue import Experiment, experiments, find_experiment
from rulewright.papers.milr import run as family
from rulewright.papers.milr.decoding import choose_cases
from rulewright.papers.milr.tasks import MilrTask, load_task

pytestmark = pytest.mark.slow

RULES = parse_rules("0.99 :: child_of(X, Y) :- parent_of(Y, X). 0.99 :: parent_of(X, Y) :- child_of(Y, X).")


def documents(count: int, chance: random.Random) -> tuple[Document, ...]:
    """Sentences that say who is whose parent, and now and then whose child."""
    result = []
    for number in range(count):
        names = chance.sample(["ann", "bob", "cid", "dee", "eve"], 3)
        tokens = [names[0], "raised", names[1], ".", names[2], "sings", "."]
        places = (0, 2, 4)
        entities = tuple(
            Entity((Mention(name, "PER", 0, place, place + 1),)) for name, place in zip(names, places, strict=True)
        )
        facts = (Fact(0, "parent_of", 1), Fact(1, "child_of", 0))
        result.append(Document(f"d{number}_{chance.random()}", (tuple(tokens),), entities, facts))
    return tuple(result)


@pytest.fixture
def task() -> MilrTask:
    chance = random.Random(0)
    parts = [documents(count, chance) for count in (8, 3, 4)]
    return MilrTask("made up", *parts, ("parent_of", "child_of"), RULES, frozenset(), RULES)


def test_a_run_from_end_to_end(task, monkeypatch, tmp_path):
    monkeypatch.setattr(family, "load_task", lambda *_, **__: task)
    settings = {
        "set": "x",
        "backbone": "lstm",
        "epochs": 2,
        "loss_weight": 1e-3,
        "loss_form": "published",
        "loss_eta": {"1": 0.05, "2": 0.01},
        "min_confidence": 0.9,
    }
    experiment = Experiment("milr/x", "made up", {**settings, "taus": [0.5, 1.0], "ks": [0.0, 1.0]})
    told: list[str] = []
    found = family.run(experiment, seed=0, folder=tmp_path, tell=told.append)
    assert set(found["rows"]) == {"plain", "loss", "decoder", "both"}
    for row in found["rows"].values():
        assert 0 <= row["f1"] <= 1
    for name in ("decoder", "both"):
        assert found["rows"][name]["optimal"]
        assert found["rows"][name]["logic"] in (None, 1.0)  # nothing that is decoded breaks a rule
        assert found["rows"][name]["logic_mined"] in (None, 1.0)
        assert 0 <= found["rows"][name]["without_rules"]["f1"] <= 1
    for row in found["rows"].values():
        assert sum(each["wanted"] for each in row["by_distance"]) == 8
        assert sum(each["given"] for each in row["by_distance"]) == row["predicted"]
    assert found["documents"] == [8, 3, 4]
    assert found["sizes"]["test"] == {"documents": 4, "entities": 12, "facts": 8}
    assert found["methods"]["agrees"], "every constraint written out gives the same optimum"
    assert found["methods"]["all"]["exact"]["f1"] == found["rows"]["both"]["f1"]
    assert any("epoch 2 of 2" in line for line in told)
    again: list[str] = []
    assert _without_times(family.run(experiment, seed=0, folder=tmp_path, tell=again.append)) == _without_times(found)
    assert not any("epoch" in line for line in again), "what is trained is not trained again"
    json.dumps(found)


def test_a_case_names_atom_rule_and_grounding(task):
    relations = task.relations
    margins = np.full((3, 3, 2), -5.0)
    margins[0, 1, 0], margins[1, 0, 1] = 4.0, -1.0  # parent_of(0, 1) without child_of(1, 0)
    results = [RuleDecoder(RULES, relations=relations)(margins) for _ in task.test]
    found = choose_cases(replace(task, labels={"child_of": "child of"}), results)
    assert found["harmed"] is None
    (shown,) = found["helped"]["shown"]
    names = [entity.name for entity in task.test[0].entities]
    assert shown["atom"] == f"'child of'({names[1]}, {names[0]})"
    assert shown["added"] and shown["right"]
    assert shown["rule"].startswith("0.99 :: 'child of'(X, Y) :- parent_of(Y, X).")
    assert shown["where"] == {"X": names[1], "Y": names[0]}
    margins[0, 1, 0], margins[0, 2, 0], margins[2, 0, 1] = (
        -5.0,
        4.0,
        -1.0,
    )  # a wrong fact, to which the decoder adds another
    harmed = choose_cases(task, [RuleDecoder(RULES, relations=relations)(margins) for _ in task.test])
    assert harmed["helped"] is None and harmed["harmed"]["wrong"] == 1
    assert (
        choose_cases(task, [RuleDecoder(RULES, relations=relations)(margins - 9) for _ in task.test])["helped"] is None
    )


def _without_times(found):
    """Leave out what a clock said, at any depth."""
    if isinstance(found, dict):
        return {key: _without_times(value) for key, value in found.items() if "seconds" not in key}
    return [_without_times(each) for each in found] if isinstance(found, list) else found


def test_the_catalogue():
    assert {"milr/dwie_atlop", "milr/redocred_atlop", "milr/dwie_lstm"} <= set(experiments())
    assert find_experiment("milr/dwie_gain").family == "milr"
    with pytest.raises(UnknownNameError, match="did you mean 'milr/dwie_atlop'"):
        find_experiment("milr/dwie_atlob")


@needs_data
def test_the_tasks(monkeypatch):
    monkeypatch.setenv("RULEWRIGHT_DATA", str(DATA))
    dwie, redocred = load_task("dwie", min_confidence=0.98), load_task("redocred", min_confidence=0.7)
    assert [len(part) for part in (dwie.training, dwie.selection, dwie.test)] == [80, 18, 99]
    assert [len(part) for part in (redocred.training, redocred.selection, redocred.test)] == [450, 50, 500]
    assert (len(dwie.rules), len(dwie.relations), len(redocred.relations)) == (90, 65, 96)
    assert not {each.title for each in redocred.training} & {each.title for each in redocred.selection}
    assert dwie.frequencies["gpe0"] > 0
    with pytest.raises(UnknownNameError, match="unknown task"):
        load_task("docred", min_confidence=0.7)
