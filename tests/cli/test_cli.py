from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from rulewright import __version__, read_facts, read_rules
from rulewright.cli import app

FACTS = "ann\tparent_of\tbob\nbob\tparent_of\tcid\n"
RULES = "0.9 :: grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).\nchild_of(X, Y) :- parent_of(Y, X).\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "family.tsv").write_text(FACTS)
    (tmp_path / "family.rules").write_text(RULES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RULEWRIGHT_DATA", raising=False)
    return tmp_path


def run(*args: str, stdin: str | None = None):
    return CliRunner().invoke(app, list(args), input=stdin, catch_exceptions=False)


def process(*args: str, stdin: str = ""):
    """Run the command as a shell would, for exit codes and for what goes where."""
    command = [sys.executable, "-m", "rulewright", *args]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)


def test_every_command_has_help_with_an_example():
    assert "demo" in run("--help").stdout
    for command in (
        ["demo"],
        ["learn"],
        ["evaluate", "docre"],
        ["evaluate", "kbc"],
        ["evaluate", "classification"],
        ["apply"],
        ["explain"],
        ["convert"],
        ["data", "ls"],
        ["data", "show"],
        ["data", "get"],
    ):
        text = run(*command, "--help").stdout
        assert "Example: rulewright" in text
        assert "--json" in text


def test_version():
    assert run("--version").stdout == f"rulewright {__version__}\n"


@pytest.mark.slow
def test_demo_ends_with_a_table_and_a_sentence():
    lines = run("demo", "--people", "60").stdout.strip().splitlines()
    assert any(line.split() == ["predicate", "hidden", "inferred", "correct", "precision", "recall"] for line in lines)
    assert any("because" in line for line in lines)
    assert lines[-1].startswith("Of ") and lines[-1].endswith("are true.")
    steps = [line.split(":")[0] for line in lines if line[1:2] == "."]
    assert steps == ["1. Learn", "2. Correct", "3. Complete", "4. Explain", "5. Inject"]


@pytest.mark.slow
def test_demo_tells_of_wrong_facts():
    found = json.loads(run("demo", "--people", "200", "--noise", "0.02", "--json").stdout)
    assert found["wrong"] > 0 and sum(found["broken"].values()) > 0


@pytest.mark.slow
def test_demo_as_json_is_repeatable_and_right():
    first, second = (json.loads(run("demo", "--people", "200", "--json").stdout) for _ in range(2))
    assert first == second
    assert first["precision"] > 0.9
    assert first["recall"] > 0.8
    assert first["struck"] > 0 and first["uncorrected_precision"] < first["precision"]
    assert first["injected"]["f1_decoded"] > first["injected"]["f1_alone"] and first["injected"]["because"]
    assert first["hidden"] == sum(row["hidden"] for row in first["predicates"])
    assert all(each["because"] for each in first["sample"])


def test_apply_shows_a_table(folder):
    text = run("apply", "family.rules", "family.tsv").stdout
    assert "0.900" in text and "grandparent_of(ann, cid)" in text
    assert text.splitlines()[-1] == "3 new facts from 2 rules and 2 facts"
    assert "1 are shown" in run("apply", "family.rules", "family.tsv", "--limit", "1").stdout


def test_apply_as_json(folder):
    found = json.loads(run("apply", "family.rules", "family.tsv", "--json", "--min-score", "0.95").stdout)
    expected = {"predicate": "child_of", "args": ["bob", "ann"], "score": 1.0, "rules": [2], "round": 1}
    assert found["facts"][0] == expected
    assert len(found["facts"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["new.tsv", "new.csv", "new.facts", "new.tsv.gz"])
def test_apply_writes_what_can_be_read_again(folder, name):
    assert run("apply", "family.rules", "family.tsv", "-o", name).stdout == ""
    assert read_facts(name).n_facts == 3
    run("apply", "family.rules", "family.tsv", "-o", name, "--complete")
    assert read_facts(name).n_facts == 5


def test_scores_stand_beside_the_new_facts(folder):
    run("apply", "family.rules", "family.tsv", "-o", "new.tsv")
    lines = (folder / "new.tsv").read_text().splitlines()
    assert lines[0] == "head\trelation\ttail\tscore\trules"
    assert "ann\tgrandparent_of\tcid\t0.9\t1" in lines


def test_broken_constraints_are_told_beside_the_result(folder):
    (folder / "more.rules").write_text("hard !(parent_of(X, Y) & parent_of(Y, Z)).")
    result = run("apply", "more.rules", "family.tsv", "--json")
    assert json.loads(result.stdout)["violations"] == [
        {"formula": "hard !(parent_of(X, Y) & parent_of(Y, Z)).", "groundings": 1}
    ]
    assert "broken 1 times" in result.stderr


@pytest.mark.slow
def test_pipes(folder):
    result = process("apply", "-", "family.tsv", "-o", "-", stdin=RULES)
    assert result.returncode == 0
    assert "grandparent_of(ann, cid).  % score 0.9, by rule 1" in result.stdout.splitlines()
    assert result.stderr.startswith("3 new facts")
    for text in (FACTS, "parent_of(ann, bob).\nparent_of(bob, cid).\n"):
        assert process("apply", "family.rules", "-", stdin=text).stdout.endswith(
            "3 new facts from 2 rules and 2 facts\n"
        )
    converted = process("convert", "-", "-", "--from", "rules", stdin=RULES)
    assert converted.stdout == RULES
    assert converted.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["apply", "none.rules", "family.tsv"], 1, "cannot read none.rules: No such file or directory"),
        (["apply", "bad.rules", "family.tsv"], 1, "bad.rules:2:6: found ':', expected ':-' or 'in'"),
        (["apply", "unknown.rules", "family.tsv"], 1, "unknown predicate 'parent_off'; did you mean 'parent_of'?"),
        (["apply", "family.rules", "bad.tsv"], 1, "bad.tsv:2: found 1 columns, expected 3: 'x'"),
        (["apply", "family.rules", "picture.tsv"], 1, "picture.tsv: a binary file, not text"),
        (["convert", "family.tsv", "family.xyz"], 1, "cannot tell the format of family.xyz; name it .facts"),
        (["convert", "-", "x.facts"], 1, "standard input has no name; say what it holds with --from"),
        (["data", "show", "umsl"], 1, "no file umsl, and unknown data set 'umsl'; did you mean 'umls'?"),
        (["data", "get", "vrd"], 1, "which is local only"),
        (["apply", "family.rules"], 2, "Missing argument"),
        (["demo", "--people", "many"], 2, "Invalid value for '--people'"),
        (["nothing"], 2, "No such command 'nothing'"),
    ],
)
def test_errors_are_one_line_with_the_right_exit_code(folder, monkeypatch, args, code, message):
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    (folder / "bad.rules").write_text("p(X) :- q(X).\np(X) : q(X).\n")
    (folder / "unknown.rules").write_text("p(X) :- parent_off(X, Y).\n")
    (folder / "bad.tsv").write_text("a\tr\tb\nx\n")
    (folder / "picture.tsv").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00")
    result = process(*args)
    assert result.returncode == code
    assert message in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    if code == 1:
        assert len(result.stderr.splitlines()) == 1
        assert result.stderr.startswith("rulewright: ")


def test_a_failed_command_leaves_the_output_alone(folder):
    (folder / "out.facts").write_text("kept")
    (folder / "bad.rules").write_text("p(X) :- ")
    assert process("apply", "bad.rules", "family.tsv", "-o", "out.facts").returncode == 1
    assert (folder / "out.facts").read_text() == "kept"


def test_convert_facts_and_rules(folder):
    assert json.loads(run("convert", "family.tsv", "family.facts", "--json").stdout)["facts"] == 2
    assert read_facts("family.facts").tuples("parent_of") == read_facts("family.tsv").tuples("parent_of")
    (folder / "smoke.mln").write_text("Smokes(person)\nCancer(person)\n1.5 Smokes(x) => Cancer(x)\n")
    assert "1 formulas" in run("convert", "smoke.mln", "smoke.rules").stderr
    assert len(read_rules("smoke.rules").formulas) == 1


def test_data_commands(folder):
    assert any(line.startswith("umls ") for line in run("data", "ls").stdout.splitlines())
    assert {each["name"] for each in json.loads(run("data", "ls", "--json").stdout)} >= {"umls", "vrd", "conll2003"}
    shown = run("data", "show", "family.tsv").stdout
    assert "parent_of(entity, entity)" in shown
    assert json.loads(run("data", "show", "family.tsv", "--json").stdout)["facts"] == 2
    assert "licence" in run("data", "show", "kinship_mln").stdout
    assert "kinship_mln/PART" in run("data", "show", "kinship_mln").stdout


@pytest.mark.slow
def test_a_closed_pipe_is_no_crash(folder):
    command = f"{sys.executable} -m rulewright apply family.rules family.tsv --json | head -n 1"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_learn_mines_and_writes_rules(folder):
    run_demo = run("learn", "family.tsv", "--min-confidence", "0").stdout
    assert run_demo.splitlines()[-1].startswith("0 rules")
    (folder / "graph.tsv").write_text("".join(f"a{i}\tspouse_of\tb{i}\nb{i}\tspouse_of\ta{i}\n" for i in range(5)))
    text = run("learn", "graph.tsv", "--max-length", "1").stdout
    assert "spouse_of(V0, V1) :- spouse_of(V1, V0)" in text
    assert text.splitlines()[-1] == "1 rules from 10 facts"
    assert run("learn", "graph.tsv", "--max-length", "1", "-o", "graph.rules").stdout == ""
    assert read_rules("graph.rules").rules[0].support == 10
    found = json.loads(run("learn", "graph.tsv", "--max-length", "1", "--json").stdout)
    assert found[0]["confidence"] == pytest.approx(0.829, abs=1e-3), "the cautious bound of ten pairs of ten"
    assert (found[0]["pairs"], found[0]["body_pairs"], found[0]["coverage"]) == (1, 10, 1)
    assert run("learn", "graph.tsv", "--top", "1").stdout.splitlines()[-1].startswith("1 of ")
    assert process("learn", "graph.tsv", "--max-length", "9").returncode == 2
    assert process("learn", "graph.tsv", "--target", "spouse").stderr.count("\n") == 1


def test_a_saved_run_names_the_command_and_no_place(tmp_path, monkeypatch):
    import rulewright.papers.lnn.gridworld

    figures = {"title": "made up", "columns": [], "rows": {}}
    monkeypatch.setattr(rulewright.papers.lnn.gridworld, "run", lambda *args, **options: dict(figures))
    saved = tmp_path / "run.json"
    options = ["--seed", "3", "--threads", "1", "--set", "points=[0, 20]", "--folder", str(tmp_path / "kept")]
    run("run", "lnn/gridworld", *options, "-o", str(saved))
    found = json.loads(saved.read_text(encoding="utf-8"))
    assert found["command"] == "rulewright run lnn/gridworld --seed 3 --threads 1 --set 'points=[0, 20]'"
    assert found["changed_settings"] == {"points": [0, 20]}


@pytest.mark.slow
def test_run_refuses_settings_that_an_experiment_does_not_have():
    wrong = process("run", "milr/dwie_atlop", "--set", "epoch=3")
    assert wrong.returncode == 1
    assert "did you mean 'epochs'" in wrong.stderr
    assert process("run", "milr/dwie_atlop", "--set", "epochs").returncode == 2
