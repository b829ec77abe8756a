from __future__ import annotations

import dataclasses
import json

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from rulewright.cli import app
from rulewright.cli.infer import RENAMED
from rulewright.errors import RulewrightError
from rulewright.learn.markov.learner import MarkovLogic

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
    result = json.loads(run("infer", files / "a.mln", files / "facts.db", *options).stdout)
    marginals = result["atoms"]
    assert result["options"]["iterations"] == 20
    assert [scope["way"] for scope in result["scopes"]] == ["dense"]
    assert "average precision" in result["choice"]["reason"]
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


def test_every_parameter_has_its_option():
    """With the default that Python has, where options are not chosen."""
    command = next(command for name, command in get_command(app).commands.items() if name == "infer")
    options = {parameter.name: parameter for parameter in command.params}
    for field in dataclasses.fields(MarkovLogic):
        if field.name in ("rules", "progress"):
            continue
        option = options[RENAMED.get(field.name, field.name)]
        chosen = {"iterations", "messages", "draws", "observed_odds", "closed", "prior", "scaling", "scaling_power"}
        if field.name not in chosen:
            assert option.default == field.default, field.name


def test_given_options_hold_while_others_are_chosen(files):
    command = ["infer", files / "a.mln", files / "facts.db", "--queries", "Cancer"]
    result = json.loads(run(*command, "--json", "--closed", "Friends", "--prior", "-1", "--iterations", "7").stdout)
    assert result["options"]["closed"] == ["Friends"]
    assert result["options"]["prior"] == -1
    assert result["options"]["iterations"] == 7
    assert {tuple(tried["options"]["closed"]) for tried in result["choice"]["tried"]} == {("Friends",)}
    shown = run(*command, "--no-choose")
    assert "taken without a comparison" in shown.stderr
    assert "inferred all atoms of" in shown.stderr


def test_a_grounding_that_is_too_large_is_refused_with_the_way_out(files):
    options = ("--queries", "Cancer", "--no-choose", "--time", "0.0000001", "--scaling", "none")
    with pytest.raises(RulewrightError, match=r"all atoms would take about .* raise time_limit"):
        run("infer", files / "a.mln", files / "facts.db", *options)


def test_queries_of_a_file_of_their_own_may_name_new_entities(tmp_path):
    texts = {"predicates": "p(t)\nq(t)", "facts": "p(a)\n!p(b)", "rules": "1.0 !p(x) v q(x)", "ask.db": "q(a)\nq(c)"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    found = json.loads(run("infer", tmp_path, tmp_path, "--queries", tmp_path / "ask.db", "--json").stdout)
    assert {tuple(atom["args"]) for atom in found["atoms"]} == {("a",), ("c",)}
