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


def test_complete_gives_the_best_with_reasons(folder):
    text = run("complete", "family.rules", "family.tsv", "--top", "2").stdout
    assert text.splitlines()[:3] == [
        "   1  1        ancestor_of(ann, bob)",
        "      by rule 1: ancestor_of(X, Y) :- parent_of(X, Y).",
        "      since parent_of(ann, bob)",
    ]
    assert "the best 2 new facts by 2 rules and 3 facts; equally good ones are left out" in text
    told = json.loads(run("complete", "family.rules", "family.tsv", "--predicate", "ancestor_of", "--json").stdout)
    assert [fact["args"] for fact in told["facts"]] == [["ann", "bob"], ["bob", "cid"], ["cid", "dan"]]
    assert told["facts"][0]["reason"]["premises"][0]["fact"] == "parent_of(ann, bob)"


def test_rules_keep_their_numbers_where_others_are_switched_off(folder):
    (folder / "family.rules").write_text(
        "% mine\n%off 0.5 :: likes(X, Y) :- parent_of(X, Y).\n%off 0.4 :: likes(X, Y) :-\n%off     parent_of(Y, X).\n"
        "0.9 :: child_of(X, Y) :- parent_of(Y, X).\n%off p(X) :- q(X).\n0.8 :: child_of(X, Y) :- parent_of(Y, X).\n"
    )
    applied = json.loads(run("apply", "family.rules", "family.tsv", "--json").stdout)
    assert applied["facts"][0]["rules"] == [3, 5]
    asked = json.dumps(applied["facts"][0])
    assert json.loads(explain(asked, "--json"))["proofs"][0]["number"] == 3
    completed = json.loads(run("complete", "family.rules", "family.tsv", "--json").stdout)
    assert completed["facts"][0]["reason"]["number"] == 3
    assert "3: 0.9 :: child_of(X, Y) :- parent_of(Y, X). and 5" in run("apply", "family.rules", "family.tsv").stdout
    run("apply", "family.rules", "family.tsv", "-o", "new.tsv")
    assert (folder / "new.tsv").read_text().splitlines()[1] == "bob\tchild_of\tann\t0.9\t3 5"


@pytest.mark.parametrize("name", ["new.tsv", "new.csv", "new.jsonl", "new.facts", "new.nt"])
def test_scores_survive_or_it_is_said_that_they_do_not(folder, name):
    (folder / "more.rules").write_text(
        RULES + "0.7 :: old(X) :- parent_of(X, Y).\n" * (name in ("new.jsonl", "new.facts"))
    )
    done = run("apply", "more.rules", "family.tsv", "-o", name, "--rounds", "0")
    text = (folder / name).read_text()
    assert ("0.81" in text) == (name != "new.nt")
    assert ("has no scores" in done.stderr) == (name == "new.nt")
    assert "0.7" in text or name in ("new.tsv", "new.csv", "new.nt")
    from rulewright import read_facts

    assert read_facts(name).count("ancestor_of") == 6


@pytest.mark.parametrize("how", [["-o", "-"], ["--json"], ["-o", "new.tsv"], ["-o", "new.jsonl"]])
def test_explain_takes_what_apply_gives(folder, how):
    given = run("apply", "family.rules", "family.tsv", *how).stdout
    if how[-1].startswith("new"):
        given = (folder / how[-1]).read_text()
    told = CliRunner().invoke(app, ["explain", "-", "family.rules", "family.tsv", "--json"], input=given)
    assert [explanation["status"] for explanation in json.loads(told.stdout)] == ["inferred"] * 3
    text = CliRunner().invoke(app, ["explain", "-", "family.rules", "family.tsv"], input=given).stdout
    assert text.count("└─ by ancestor_of(X, Y) :- parent_of(X, Y).") == 3


@pytest.mark.parametrize(
    "fact",
    ["ancestor_of(ann, bob)", "ancestor_of(ann, bob).", "'ancestor_of'('ann', bob)", "ann\tancestor_of\tbob\t1\t1"],
)
def test_a_fact_may_be_written_in_many_ways(folder, fact):
    assert explain(fact).startswith("ancestor_of(ann, bob)  1\n")


def test_names_need_no_quotes_where_they_are_known(folder):
    (folder / "wiki.tsv").write_text("Q1\tP22\tQ2\nNew York\tP22\tQ2\n")
    (folder / "wiki.rules").write_text("0.9 :: 'P40'(X, Y) :- 'P22'(Y, X).")
    for fact in ("P40(Q2, Q1)", "P40(Q2, New York)", "'P40'('Q2', 'New York')"):
        assert "P22" in run("explain", fact, "wiki.rules", "wiki.tsv").stdout


def test_standard_input_is_one_thing(folder):
    assert run("explain", "-", "-", "family.tsv").exit_code == 2


def test_labels_are_shown_beside_names(folder):
    (folder / "labels.tsv").write_text("ann\tAnn Lee\nancestor_of\tis an ancestor of\n")
    for command in (["apply"], ["complete"], ["explain", "ancestor_of(ann, bob)"]):
        shown = run(*command, "family.rules", "family.tsv", "--labels", "labels.tsv").stdout
        assert "is an ancestor of [ancestor_of](Ann Lee [ann], bob)" in shown


def test_without_rules_they_are_mined_first(folder):
    facts = [f"a{i}\tparent_of\tb{i}" for i in range(30)] + [f"b{i}\tchild_of\ta{i}" for i in range(28)]
    (folder / "graph.tsv").write_text("\n".join(facts) + "\n")
    text = run("complete", "graph.tsv", "--top", "2").stdout
    assert "child_of(b28, a28)" in text and "child_of(b29, a29)" in text
    assert "since parent_of(a28, b28)" in text
