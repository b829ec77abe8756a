from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from rulewright.cli import app
from rulewright.errors import RulewrightError

MLN = """
Smokes(person)
Cancer(person)
Friends(person, person)
1.5 Smokes(x) => Cancer(x)
3.0 Smokes(x) ^ Friends(x, y) => Smokes(y)
"""
DB = "Friends(Anna, Bob)\nFriends(Bob, Cid)\nSmokes(Anna)\n!Smokes(Dee)\n"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "a.mln").write_text(MLN)
    (tmp_path / "facts.db").write_text(DB)
    (tmp_path / "queries.db").write_text("Cancer(Anna)\n!Cancer(Dee)\nSmokes(Bob)\n!Cancer(Eve)\n")
    return tmp_path


def run(*args: str, stdin: str | None = None):
    return CliRunner().invoke(app, list(map(str, args)), input=stdin, catch_exceptions=False)


def test_infer_and_evaluate(files):
    rules, facts, queries, out = (files / name for name in ("a.mln", "facts.db", "queries.db", "out.tsv"))
    shown = run("infer", rules, facts, "--queries", queries)
    assert shown.exit_code == 0
    assert "Cancer" in shown.stdout
    assert "4 atoms from 2 rules and 4 facts" in shown.stdout
    run("infer", rules, facts, "--queries", queries, "-o", out, "--prior", "-1", "--closed", "Friends")
    assert len(out.read_text().splitlines()) == 5
    scored = json.loads(run("evaluate", "classification", out, queries, "--json").stdout)
    assert scored["atoms"] == 4
    assert scored["by_predicate"]["Cancer"] == {"atoms": 3, "true": 1, "auc_pr": 1}
    assert "all, pooled" in run("evaluate", "classification", out, queries).stdout


def test_json_predicates_and_atoms(files):
    options = ("--queries", "Cancer", "--queries", "'Smokes'('Bob')", "--json")
    marginals = json.loads(run("infer", files / "a.mln", files / "facts.db", *options).stdout)
    assert {marginal["predicate"] for marginal in marginals} == {"Cancer", "Smokes"}
    assert len(marginals) == 5
    assert marginals[0]["probability"] >= marginals[-1]["probability"]


def test_learned_weights_are_written(files):
    learned = files / "learned.rules"
    options = ("--queries", "Cancer", "--learn-weights", "--learned", learned, "--closed", "listed")
    assert run("infer", files / "a.mln", files / "facts.db", *options).exit_code == 0
    assert "Smokes" in learned.read_text()


def test_a_folder_brings_its_queries(tmp_path):
    texts = {"predicates": "p(t)\nq(t)", "facts": "p(a)\n!p(b)", "queries": "q(a)\n!q(b)", "rules": "1.0 !p(x) v q(x)"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    out = tmp_path / "out.tsv"
    assert run("infer", tmp_path, tmp_path, "-o", out).exit_code == 0
    assert json.loads(run("evaluate", "classification", out, tmp_path, "--json").stdout)["auc_pr"] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--queries", "Cancr"), "unknown predicate 'Cancr'"),
        ((), "nothing is asked for"),
        (("--queries", "Smokes", "--closed", "Nothing"), "unknown predicate 'Nothing'"),
    ],
)
def test_errors(files, options, message):
    with pytest.raises(RulewrightError, match=message):
        run("infer", files / "a.mln", files / "facts.db", *options)


def test_errors_name_file_and_line(files):
    (files / "bad.db").write_text("Smokes(Anna)\nSmoke(Bob)\n")
    with pytest.raises(RulewrightError, match=r"bad.db:2:1: unknown predicate 'Smoke'"):
        run("infer", files / "a.mln", files / "facts.db", "--queries", files / "bad.db")
    assert run("infer", files / "a.mln", files / "facts.db", "--queries", "Smokes", "--prior", "low").exit_code == 2
    out = files / "out.tsv"
    run("infer", files / "a.mln", files / "facts.db", "--queries", "Cancer", "-o", out)
    with pytest.raises(RulewrightError, match=r"out.tsv: no score for Cancer\(Eve\)"):
        run("evaluate", "classification", out, files / "queries.db")
