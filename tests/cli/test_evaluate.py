from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from rulewright.cli import app
from rulewright.errors import RulewrightError

DOCUMENTS = [
    {
        "title": "Bonn",
        "sents": [["Bonn", "lies", "in", "Germany", "."], ["Germany", "is", "in", "the", "EU", "."]],
        "vertexSet": [
            [{"name": "Bonn", "pos": [0, 1], "sent_id": 0, "type": "LOC"}],
            [
                {"name": "Germany", "pos": [3, 4], "sent_id": 0, "type": "LOC"},
                {"name": "Germany", "pos": [0, 1], "sent_id": 1, "type": "LOC"},
            ],
            [{"name": "EU", "pos": [4, 5], "sent_id": 1, "type": "ORG"}],
        ],
        "labels": [
            {"r": "lies_in", "h": 0, "t": 1},
            {"r": "lies_in", "h": 1, "t": 2},
            {"r": "lies_in", "h": 0, "t": 2},
            {"r": "member_of", "h": 1, "t": 2},
        ],
    },
    {"title": "Rome", "vertexSet": [], "labels": []},
]
PREDICTED = [("lies_in", 0, 1), ("lies_in", 1, 2), ("member_of", 1, 2), ("member_of", 0, 2)]
RULES = "lies_in(X, Z) :- lies_in(X, Y), lies_in(Y, Z).\nlies_in(X, Y) :- member_of(X, Y).\n"


def records(facts) -> str:
    return json.dumps([{"title": "Bonn", "h_idx": head, "t_idx": tail, "r": name} for name, head, tail in facts])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gold.json").write_text(json.dumps(DOCUMENTS))
    (tmp_path / "pred.json").write_text(records(PREDICTED))
    (tmp_path / "other.json").write_text(records(PREDICTED[2:]))
    (tmp_path / "train.fact").write_text('[["Bonn", "Germany", "lies_in"], ["Ann", "Bob", "knows"]]')
    (tmp_path / "gold.rules").write_text(RULES)
    (tmp_path / "rel2id.json").write_text('{"Na": 0, "lies_in": 1, "member_of": 2}')
    return tmp_path


def run(*args: str, stdin: str | None = None):
    return CliRunner().invoke(app, ["evaluate", "docre", *args], input=stdin, catch_exceptions=False)


@pytest.mark.parametrize(
    ("task", "own", "foreign"),
    [("docre", "--by-rule", "--ties"), ("kbc", "--ties", "--by-rule"), ("classification", "--json", "--split")],
)
def test_each_task_has_its_own_options_and_an_example(task, own, foreign):
    text = CliRunner().invoke(app, ["evaluate", task, "--help"]).stdout
    assert f"Example: rulewright evaluate {task}" in text
    assert "--json" in text and own in text and foreign not in text


def test_without_a_task_the_tasks_are_listed():
    text = CliRunner().invoke(app, ["evaluate", "--help"]).stdout
    assert all(task in text for task in ("docre", "kbc", "classification"))
    assert CliRunner().invoke(app, ["evaluate", "guess"]).exit_code == 2


def test_the_plain_command(folder):
    lines = run("pred.json", "gold.json").stdout.splitlines()
    assert lines[0] == "4 facts are predicted for 2 documents that have 4 gold facts; 3 are correct"
    assert lines[3].split()[:3] == ["precision", "75.00", "%"]
    assert lines[5].split()[:3] == ["F1", "75.00", "%"]
    assert len(lines) == 6


def test_all_tables(folder):
    result = run(
        *("pred.json", "gold.json", "--train", "train.fact", "--rules", "gold.rules", "--against", "other.json"),
        *("--by-relation", "--by-distance", "--distance-bounds", "0,4", "--by-rule", "--resamples", "50"),
    )
    rows = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert any(
        row.startswith(
            "Ign F1 (docred) 70.59 % F1 with what training has seen left out of the precision (correct facts: 1)"
        )
        for row in rows
    )
    assert any(
        row.startswith("Ign F1 (logire) 70.59 % F1 with what training has seen left out of the recall (gold facts: 1)")
        for row in rows
    )
    assert any(row.startswith("Logic 25.00 %") and "2 of 2 rules, which fire 3 times" in row for row in rows)
    assert "lies_in 3 2 2 100.00 % 66.67 % 80.00 %" in rows
    assert "0 to 3 3 3 3 100.00 % 100.00 % 100.00 % 100.00 % 100.00 %" in rows
    assert "4 and more 1 1 0 0.00 % 0.00 % 0.00 % 0.00 % 0.00 %" in rows
    assert "lies_in(X, Z) :- lies_in(X, Y), lies_in(Y, Z). 1 0 0.00 % 1" in rows
    assert "figure pred.json other.json difference 95% interval p" in rows
    assert any(row.startswith("F1 75.00 % 33.33 % +41.67") for row in rows)
    assert rows[-1].endswith("50 resamples, seed 0.")


def test_json_has_everything(folder):
    options = ("--train", "gold.json", "--rules", "gold.rules", "--against", "other.json", "--resamples", "50")
    found = json.loads(run("pred.json", "gold.json", *options, "--distance-unit", "sentences", "--json").stdout)
    assert (found["task"], found["predictions"], found["gold"]) == ("docre", "pred.json", "gold.json")
    assert (found["f1"], found["correct_in_train"], found["ign_f1_docred"]) == (0.75, 3, 0)
    assert found["logic"]["value"] == 0.25 and found["gold_logic"]["value"] == 1
    assert found["by_relation"]["member_of"]["precision"] == 0.5
    assert [each["low"] for each in found["by_distance"]] == [0, 1, 2, 4]
    assert found["against"]["predictions"] == "other.json"
    assert found["against"]["f1"]["difference"] == pytest.approx(0.75 - 1 / 3)
    assert found["against"]["logic"]["resamples"] <= 50


def test_predictions_from_standard_input(folder):
    found = json.loads(run("-", "gold.json", "--json", stdin=records(PREDICTED[:2])).stdout)
    assert (found["precision"], found["recall"]) == (1, 0.5)
    assert "standard input" in run("-", "gold.json", "--against", "pred.json", stdin=records(PREDICTED)).stdout


def test_rules_that_never_fire_have_no_score(folder):
    result = run("pred.json", "gold.json", "--rules", "gold.rules", "--by-rule")
    assert "—" not in result.stdout
    (folder / "never.rules").write_text("lies_in(X, Y) :- capital_of(X, Y).")
    result = run("pred.json", "gold.json", "--rules", "never.rules", "--by-rule", "--against", "other.json")
    rows = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "Logic — — — — —" in rows
    assert "lies_in(X, Y) :- capital_of(X, Y). 0 0 — 0" in rows
    assert result.stderr.strip() == "relations without a gold fact: capital_of"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("none.json", "gold.json"), "cannot read none.json: No such file or directory"),
        (
            ("title.json", "gold.json"),
            "title.json: prediction 1 (title 'Bon', head 0, relation 'lies_in', tail 1): unknown",
        ),
        (
            ("far.json", "gold.json"),
            "far.json: prediction 2 (title 'Bonn', head 0, relation 'lies_in', tail 9): the tail is",
        ),
        (("pred.json", "gold.json", "--against", "far.json"), "far.json: prediction 2"),
        (("odd.json", "gold.json", "--train", "train.fact"), "unknown relation 'lies_inn'; did you mean 'lies_in'?"),
        (("odd.json", "gold.json", "--relations", "rel2id.json"), "odd.json: prediction 1 (title 'Bonn', head 0, rel"),
        (("pred.json", "unlabelled.json"), "unlabelled.json: no document has a gold fact"),
        (("pred.json", "gold.json", "--train", "pred.json"), "has no 'vertexSet'"),
        (("pred.json", "gold.json", "--rules", "bad.rules"), "needs chain rules"),
        (("pred.json", "gold.json", "--relations", "train.fact"), "must be an object, got a list"),
    ],
)
def test_errors_are_one_line(folder, args, message):
    (folder / "title.json").write_text(records([("lies_in", 0, 1)]).replace("Bonn", "Bon"))
    (folder / "far.json").write_text(records([("lies_in", 0, 1), ("lies_in", 0, 9)]))
    (folder / "odd.json").write_text(records([("lies_inn", 0, 1)]))
    (folder / "unlabelled.json").write_text('[{"title": "Bonn", "vertexSet": []}]')
    (folder / "bad.rules").write_text("lies_in(X, Y) :- lies_in(X, Z), lies_in(Y, W).")
    with pytest.raises(RulewrightError) as caught:
        run(*args)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("pred.json", "-"), "only the first argument, what was predicted, can be standard input"),
        (("pred.json", "gold.json", "--by-rule"), "'--by-rule': it needs --rules"),
        (("pred.json", "gold.json", "--distance-bounds", "0,x"), "must be whole numbers with commas, got '0,x'"),
        (("pred.json", "gold.json", "--distance-bounds", "5,9"), "must start at 0 and increase, got 5, 9"),
        (("pred.json", "gold.json", "--ties", "mean"), "No such option: --ties"),
        (("pred.json",), "Missing argument"),
    ],
)
def test_wrong_usage(folder, args, message):
    result = run(*args)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""
