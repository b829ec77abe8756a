from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from rulewright.cli import app

FACTS = "ann\tparent_of\tbob\nbob\tparent_of\tcid\ncid\tparent_of\tdan\n"
RULES = (
    "ancestor_of(X, Y) :- parent_of(X, Y).\n"
    "0.9 :: ancestor_of(X, Z) :- parent_of(X, Y), ancestor_of(Y, Z). @{support: 3}\n"
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "family.tsv").write_text(FACTS)
    (tmp_path / "family.rules").write_text(RULES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*args: str):
    return CliRunner().invoke(app, list(args), catch_exceptions=False)


def explain(fact: str, *options: str) -> str:
    return run("explain", fact, "family.rules", "family.tsv", *options).stdout


def test_a_proof_as_text_and_as_json(folder):
    text = explain("ancestor_of(ann, dan)")
    assert text.splitlines()[0] == "ancestor_of(ann, dan)  0.81"
    assert "rests on parent_of(ann, bob), parent_of(bob, cid), parent_of(cid, dan)" in text
    assert "support" not in text
    told = json.loads(explain("ancestor_of(ann, dan)", "--json"))
    assert told["status"] == "inferred" and told["proofs"][0]["score"] == pytest.approx(0.81)
    assert told["proofs"][0]["premises"][1]["fact"] == "ancestor_of(bob, dan)"


def test_how_many_and_how_deep(folder):
    assert "does not follow" in explain("ancestor_of(ann, dan)", "--depth", "2")
    assert len(json.loads(explain("parent_of(ann, bob)", "--all", "--json"))["proofs"]) == 1
    assert len(json.loads(explain("ancestor_of(ann, bob)", "-k", "5", "--json"))["proofs"]) == 1


def test_why_not(folder):
    text = explain("ancestor_of(dan, ann)")
    assert text.startswith("ancestor_of(dan, ann) does not follow\nnearest:\n")
    assert "parent_of(dan, ann) is missing" in text
    told = json.loads(explain("ancestor_of(dan, ann)", "--json"))
    assert told["why_not"][0]["missing"] == ["parent_of(dan, ann)"]


@pytest.mark.slow
def test_a_drawing(folder):
    explain("ancestor_of(ann, cid)", "--svg", "why.svg")
    assert (folder / "why.svg").read_text().startswith("<svg ")
    assert explain("ancestor_of(ann, cid)", "--svg", "-").startswith("<svg ")
    run("explain", "ancestor_of(cid, ann)", "family.rules", "family.tsv", "--svg", "none.svg")
    assert not (folder / "none.svg").exists()


@pytest.mark.slow
def test_apply_chains_within_its_limits(folder):
    everything = json.loads(run("apply", "family.rules", "family.tsv", "--rounds", "0", "--json").stdout)
    assert (len(everything["facts"]), everything["rounds"], everything["note"]) == (6, 3, "")
    bare = run("apply", "family.rules", "family.tsv", "--json")
    once = json.loads(bare.stdout)
    assert [fact["round"] for fact in once["facts"]] == [1, 1, 1]
    assert once["note"] == "every rule was applied once; a further round would give 2 more facts"
    assert bare.stderr == f"{once['note']}; --rounds 0 goes on until nothing is new\n"
    few = run("apply", "family.rules", "family.tsv", "--rounds", "0", "--max-facts", "4", "--json")
    assert len(json.loads(few.stdout)["facts"]) == 4
    assert "max_facts=4" in few.stderr and "lower bounds" in few.stderr


@pytest.mark.slow
def test_errors_are_one_line(folder):
    command = [sys.executable, "-m", "rulewright", "explain", "ancestor_off(ann, bob)", "family.rules", "family.tsv"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 1 and "did you mean 'ancestor_of'?" in found.stderr
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [("rulewright expl", "explain"), ("rulewright data show uml", "umls"), ("rulewright run mil", "milr")],
)
def test_shells_complete_commands_and_names(words, expected):
    asked = {"_RULEWRIGHT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    command = [sys.executable, "-c", "import sys; sys.argv[0] = 'rulewright'; from rulewright.cli import app; app()"]
    found = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=False)
    assert expected in found.stdout.split()


def test_rules_are_shown_as_they_come_on_a_terminal_only(folder, monkeypatch, capsys):
    from rulewright.cli.console import live_rules
    from rulewright.logic import parse_rules

    rules = parse_rules(RULES).rules
    with live_rules("mining") as (report, show):
        report("rules of length 1", 1, 2)
        show(rules)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with live_rules("mining", limit=1) as (report, show):
        report("rules of length 1", 1, 2)
        show(rules)
    shown = capsys.readouterr().err
    assert "rules of length 1" in shown
    assert "2 rules so far" in shown and "ancestor_of(X, Y) :- parent_of(X, Y)" in shown
