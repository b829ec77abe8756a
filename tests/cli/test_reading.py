"""Every command that reads facts takes their format and columns, and says how they were read."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from rulewright.cli import app
from rulewright.cli.console import read_facts_of
from rulewright.data import KnowledgeBase

RULES = "0.9 :: grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z)."
BACKWARDS = "bob,parent_of,ann,1\ncid,parent_of,bob,2\n"  # tail, relation, head and something else
COLUMNS = "tail,relation,head,_"

runner = CliRunner()


@pytest.fixture
def files(tmp_path):
    (tmp_path / "a.rules").write_text(RULES)
    (tmp_path / "facts.dat").write_text(BACKWARDS)
    return tmp_path


def run(*args):
    result = runner.invoke(app, [str(arg) for arg in args])
    assert result.exit_code == 0, result.output
    return result


def test_every_command_takes_the_format_and_the_columns(files):
    facts, rules, options = files / "facts.dat", files / "a.rules", ("--from", "triples", "--columns", COLUMNS)
    new = json.loads(run("apply", rules, facts, *options, "--json").stdout)["facts"]
    assert [fact["args"] for fact in new] == [["ann", "cid"]]
    assert "rests on parent_of(ann, bob)" in run("explain", "grandparent_of(ann, cid)", rules, facts, *options).stdout
    run("learn", facts, *options, "--json")
    assert "parent_of" in run("data", "show", facts, *options).stdout
    run("convert", facts, files / "again.tsv", *options)
    assert sorted((files / "again.tsv").read_text().splitlines()) == ["ann\tparent_of\tbob", "bob\tparent_of\tcid"]
    answers = json.loads(run("infer", rules, facts, *options, "--queries", "grandparent_of(ann, cid)", "--json").stdout)
    assert [atom["args"] for atom in answers["atoms"]] == [["ann", "cid"]]


def test_columns_are_for_tables_of_facts(files):
    (files / "a.facts").write_text("p(a, b).")
    for source in ("a.facts", "a.rules"):
        result = runner.invoke(app, ["convert", str(files / source), str(files / "b.jsonl"), "--columns", COLUMNS])
        assert result.exit_code != 0
        assert not (files / "b.jsonl").exists()


def test_notes_go_to_standard_error(monkeypatch, capsys):
    noted = KnowledgeBase.from_triples([("a", "p", "b")]).with_notes(["graph.csv: 2 more columns ignored"])
    monkeypatch.setattr("rulewright.io.read_facts", lambda path, format, columns: noted)
    read_facts_of("graph.csv")
    captured = capsys.readouterr()
    assert captured.err == "graph.csv: 2 more columns ignored\n"
    assert captured.out == ""


def test_notes_stay_with_the_facts():
    kb = KnowledgeBase.from_triples([("a", "p", "b")]).with_notes(["read so"])
    assert kb.with_facts(kb.tables()).notes == kb.with_splits({"test": kb}).notes == kb.hold_out(0.5)[0].notes
