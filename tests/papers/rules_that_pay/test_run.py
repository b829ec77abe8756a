"""A whole experiment on documents that are made up: networks by folds, calibration, rules in every use; go on."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from rulewright.io.docred import Document, Entity, Fact, Mention
from rulewright.logic import parse_rules
from rulewright.papers.catalogue import Experiment, experiments
from rulewright.papers.documents import write_names_as_text
from rulewright.papers.milr.predictions import DocumentPrediction, Predictions
from rulewright.papers.milr.tasks import MilrTask
from rulewright.papers.rules_that_pay import crossing, teaching
from rulewright.papers.rules_that_pay import run as family
from rulewright.papers.rules_that_pay.crossing import Crossing
from rulewright.papers.rules_that_pay.documents import PayTask, _draw, mine
from rulewright.papers.rules_that_pay.report import build_page
from rulewright.papers.rules_that_pay.uses import Judge, off_diagonal

pytestmark = pytest.mark.slow

RULES = parse_rules("0.99 :: child_of(X, Y) :- parent_of(Y, X). 0.99 :: parent_of(X, Y) :- child_of(Y, X).")
SETTINGS = {
    "set": "x",
    "backbone": "lstm",
    "frozen": False,
    "folds": 3,
    "share": 1.0,
    "batch": 4,
    "weight_decay": 0.01,
    "pretraining_epochs": 1,
    "pretraining_rate": 1e-3,
    "epochs": 2,
    "rate": 1e-3,
    "thresholds": "shared",
    "min_confidence": 0.9,
    "candidate_confidence": 0.5,
    "candidate_preset": False,
    "rounds": 2,
    "rounds_epochs": 1,
    "confident": 0.5,
    "loss_weight": 0.1,
    "loss_warmup": 0.5,
    "loss_rules": "hard",
    "loss_eta": {"1": 0.05, "2": 0.01},
}


def documents(count: int, chance: random.Random, *, text: bool = True) -> tuple[Document, ...]:
    """Sentences that say who is whose parent and child."""
    result = []
    for _ in range(count):
        names = chance.sample(["ann", "bob", "cid", "dee", "eve"], 3)
        tokens = [names[0], "raised", names[1], ".", names[2], "sings", "."]
        mentions = [
            Mention(name, "PER", 0, at, at + 1, (9 * at, 9 * at + 3)) for name, at in zip(names, (0, 2, 4), strict=True)
        ]
        facts = (Fact(0, "parent_of", 1), Fact(1, "child_of", 0))
        sentences = (tuple(tokens),) if text else ()
        entities = tuple(Entity((mention,)) for mention in mentions)
        result.append(Document(f"d{chance.random()}", sentences, entities, facts))
    return tuple(result)


@pytest.fixture
def task() -> PayTask:
    chance = random.Random(0)
    training, selection, test, unlabelled = (documents(count, chance) for count in (9, 3, 6, 3))
    textless = tuple(map(write_names_as_text, documents(4, chance, text=False)))
    labelled = (*training, *selection)
    milr = MilrTask("made up", labelled, selection, test, ("parent_of", "child_of"), RULES, frozenset(), RULES)
    return PayTask(milr, labelled, labelled, textless, unlabelled)


def test_a_run_from_end_to_end(task, monkeypatch, tmp_path):
    monkeypatch.setattr(family, "load_pay_task", lambda *_, **__: task)
    experiment = Experiment("rules_that_pay/dwie_atlop", "made up", SETTINGS)
    told: list[str] = []
    found = family.run(experiment, seed=0, folder=tmp_path / "run", tell=told.append)
    assert {"network", "threshold", "calibrated", "hard", "soft", "layer", "chosen"} <= set(found["rows"])
    for row in found["rows"].values():
        assert 0 <= row["f1"] <= 1
        assert len(row["counts"]) == len(task.test)
        correct, given, wanted = np.sum(row["counts"], axis=0)
        assert row["f1"] == pytest.approx(2 * correct / (given + wanted))
    assert found["rows"]["hard"]["logic"] in (None, 1.0), "nothing that must hold is broken"
    best = max(found["rows"][name]["selection_f1"] for name in ("calibrated", "hard", "soft", "layer", "hard and soft"))
    assert found["rows"]["chosen"]["selection_f1"] == best
    assert best >= found["rows"]["calibrated"]["selection_f1"]
    for way in ("again", "again with rules"):
        numbers = [row["round"] for row in found[f"rounds, {way}"]]
        assert numbers in ([0, 1], [0, 1, 2])
        assert found["rows"][way]["f1"] in [row["test_f1"] for row in found[f"rounds, {way}"]]
    assert {"thresholds", "rules", "both"} <= set(found["ceiling"])
    assert any("without text: epoch 1 of 1" in line for line in told)
    again: list[str] = []
    repeated = family.run(experiment, seed=0, folder=tmp_path / "run", tell=again.append)
    assert repeated["rows"] == found["rows"]
    assert not any("epoch" in line for line in again), "what is trained is not trained again"
    json.dumps(found)
    content = build_page({"rules_that_pay/dwie_atlop": [found]}, tmp_path, tmp_path)
    assert "+ soft decoder" in content.blocks["main"]
    assert all(picture.exists() for picture in content.pictures)


def test_every_form_of_the_loss_is_trained_and_scored(task, monkeypatch, tmp_path):
    monkeypatch.setattr(teaching, "load_pay_task", lambda *_, **__: task)
    forms = experiments()["rules_that_pay/dwie_teaching"].settings["forms"]
    experiment = Experiment("rules_that_pay/dwie_teaching", "made up", {**SETTINGS, "epochs": 1, "forms": forms})
    found = teaching.run(experiment, seed=0, folder=tmp_path / "run", tell=lambda line: None)
    left_out = {name for name in ("none", *forms) if name not in found["rows"]}
    assert left_out <= {"beta", "fitted"}, "forms without rules, of so few documents"
    assert ("fitted" in left_out) == (found["rules"]["kept"] == 0)
    for row in found["rows"].values():
        correct, given, wanted = np.sum(row["counts"], axis=0)
        assert row["f1"] == pytest.approx(2 * correct / (given + wanted))
    table = build_page({"rules_that_pay/dwie_teaching": [found]}, tmp_path, tmp_path).blocks["teaching"]
    assert "taught by the hard decoder" in table


def test_published_labels_are_log_odds(monkeypatch, tmp_path):
    chance = random.Random(1)
    dev, test = documents(2, chance), documents(1, chance)
    folder = tmp_path / "dwie" / "reference_predictions"
    folder.mkdir(parents=True)
    for part, found in (("dev", dev), ("test", test)):
        record = [{"title": found[0].title, "h_idx": 1, "t_idx": 0, "r": "child_of"}]
        (folder / f"result_ATLOP_{part}.json").write_text(json.dumps(record))
    monkeypatch.setattr(crossing, "locate", lambda name: tmp_path / name)
    milr = MilrTask("made up", dev, (), test, ("parent_of", "child_of"), RULES, frozenset(), RULES)
    published = crossing.read_published(PayTask(milr, dev, dev, (), ()))
    first, second = published.held_out.documents
    assert np.argwhere(first.logits == 1).tolist() == [[1, 0, 1]] and (second.logits == -1).all()
    assert [document.title for document in published.test.documents] == [test[0].title]


def test_every_document_is_predicted_by_networks_that_did_not_see_it(task, monkeypatch, tmp_path):
    seen: list[set[str]] = []
    asked: list[set[str]] = []

    def train(model, chosen, **options):
        seen.append({document.title for document in chosen})
        return type("Result", (), {"seconds": 0.0})()

    def predict(model, chosen):
        asked.append({document.title for document in chosen})
        logits = [np.zeros((len(document.entities),) * 2 + (2,), np.float32) for document in chosen]
        rows = tuple(DocumentPrediction(document.title, table) for document, table in zip(chosen, logits, strict=True))
        return Predictions(task.relations, rows)

    monkeypatch.setattr(crossing, "train_extractor", train)
    monkeypatch.setattr(crossing, "predict", predict)
    settings = {**SETTINGS, "pretraining_epochs": 0}
    folder = tmp_path / "run"
    folder.mkdir()
    found = Crossing(task, settings, 1, folder, lambda _: None).train("plain")
    held = [titles for titles in asked if titles <= {document.title for document in task.labelled}]
    assert len(seen) == len(held) == 3
    for learned, predicted in zip(seen, held, strict=True):
        assert not learned & predicted
        assert learned | predicted == {document.title for document in task.labelled}
    assert [document.title for document in found.held_out.documents] == [each.title for each in task.labelled]


def test_a_share_of_documents(task):
    chosen, others = _draw(task.labelled, 0.25)
    assert len(chosen) == 3 and len(others) == 9
    assert not {each.title for each in chosen} & {each.title for each in others}
    assert _draw(task.labelled, 0.25) == (chosen, others)
    assert _draw(task.labelled, 1) == (task.labelled, ())


def test_rules_are_mined_from_annotations():
    rules = mine(documents(60, random.Random(1)), min_confidence=0.9, preset=False).rules
    assert {str(rule.head.predicate) for rule in rules} == {"parent_of", "child_of"}


def test_the_judge_counts_facts(task):
    judge = Judge(task, task.test)
    gold = judge.gold()
    assert judge.f1(gold) == 1.0
    assert judge.f1([table & False for table in gold]) == 0.0
    assert judge.count(gold)[0] == [2, 2, 2]
    assert not off_diagonal([np.ones((2, 2, 1))])[0][0, 0].any()


def test_the_catalogue_has_the_experiments():
    names = {name for name in experiments() if name.startswith("rules_that_pay/")}
    assert {"rules_that_pay/dwie_atlop", "rules_that_pay/redocred_atlop"} <= names
