"""What every command takes: -v, --log-file and --config."""

from __future__ import annotations

import json
import logging

import pytest
from typer.testing import CliRunner

from rulewright.cli import app

FACTS = "ann\tparent_of\tbob\nbob\tparent_of\tcid\n"
RULES = "0.9 :: grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).\nchild_of(X, Y) :- parent_of(Y, X).\n"
APPLY = ["apply", "family.rules", "family.tsv"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "family.tsv").write_text(FACTS)
    (tmp_path / "family.rules").write_text(RULES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*args: str):
    return CliRunner().invoke(app, list(args))


@pytest.mark.parametrize("args", [["-v", *APPLY], [*APPLY, "-v"], [*APPLY, "--verbose"]])
def test_what_is_done_is_said_on_standard_error(folder, args):
    quiet, told = run(*APPLY), run(*args)
    assert told.stdout == quiet.stdout and quiet.stderr == ""
    assert "read family.rules as rules in " in told.stderr and "read family.tsv as triples in " in told.stderr
    assert "SELECT" not in told.stderr
    assert " ended after " in told.stderr.splitlines()[-1] and "MB" in told.stderr.splitlines()[-1]
    assert run(*APPLY).stderr == ""  # a later command is quiet again
    assert logging.getLogger("rulewright").level == logging.NOTSET


def test_twice_verbose_shows_sql(folder):
    told = run(*APPLY, "-vv").stderr
    assert " s: CREATE OR REPLACE TEMP TABLE fact_ee" in told


def test_a_log_file_has_everything_and_grows(folder):
    for _ in range(2):
        result = run(*APPLY, "-o", "new.tsv", "--log-file", "log.txt")
    assert result.stderr.splitlines() == ["3 new facts from 2 rules and 2 facts, written to new.tsv"]
    text = (folder / "log.txt").read_text()
    assert text.count("DEBUG rulewright.engine.duckdb: ") > 2
    assert text.count("WARNING rulewright.cli: 3 new facts") == 2
    assert run("apply", "none.rules", "family.tsv", "--log-file", "log.txt").exit_code == 1
    assert (
        "FileError: cannot read none.rules: No such file or directory; ended after" in (folder / "log.txt").read_text()
    )


def test_what_is_said_once_is_not_said_again_when_verbose(folder):
    assert run(*APPLY, "-o", "new.tsv", "-v").stderr.count("3 new facts") == 1


def test_a_log_file_that_cannot_be_written_is_refused(folder):
    assert str(run(*APPLY, "--log-file", "none/log.txt").exception).startswith("cannot write none/log.txt: there is no")


def configured(folder, text: str, *args: str):
    (folder / "settings.toml").write_text(text)
    return run(*args, "--config", "settings.toml")


def scores(result) -> list[float]:
    return [fact["score"] for fact in json.loads(result.stdout)["facts"]]


def test_settings_have_the_names_of_the_flags(folder):
    settings = "json = true\n[apply]\nmin-score = 0.95\n[learn]\nmin_support = 3\n"
    assert scores(configured(folder, settings, *APPLY)) == [1.0, 1.0]
    assert scores(run("--config", "settings.toml", *APPLY)) == [1.0, 1.0]
    assert scores(run(*APPLY, "--config", "settings.toml", "--min-score", "0.5")) == [1.0, 1.0, 0.9]  # flags win
    assert scores(configured(folder, "json = true\nmin-score = 0.95\n[apply]\nmin_score = 0.8\n", *APPLY)) == [
        1,
        1,
        0.9,
    ]


def test_settings_of_lists_flags_and_inner_commands(folder):
    settings = '[learn]\ntarget = "parent_of"\nno-inverses = true\nfrom = "triples"\n[evaluate.kbc]\nties = "mean"\n'
    assert configured(folder, settings, "learn", "family.tsv").exit_code == 0
    many = settings.replace('"parent_of"', '["parent_of", "nothing"]')
    assert "nothing" in str(configured(folder, many, "learn", "family.tsv").exception)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("min-scor = 1", "settings.toml: unknown setting 'min-scor'; did you mean 'min-score'"),
        ("[apply]\nmin_length = 1", "settings.toml: unknown setting in [apply] 'min_length'"),
        ("[aply]\nlimit = 1", "settings.toml: unknown command 'aply'; did you mean 'apply'?"),
        ("[apply]\njson = 3", "settings.toml: json takes true or false, found 3"),
        ("[apply]\nlimit = true", "settings.toml: limit takes a value, found True"),
        ("[apply]\nlimit = [1, 2]", "settings.toml: limit takes one value, found a list of 2"),
        ("limit = ", "settings.toml: not TOML: Invalid value"),
    ],
)
def test_settings_that_no_command_has_are_refused(folder, settings, message):
    assert str(configured(folder, settings, *APPLY).exception).startswith(message)
    if "scor" in settings:
        assert str(configured(folder, settings, "demo").exception).startswith(message)


def test_values_out_of_range_are_refused_as_on_the_command_line(folder):
    result = configured(folder, "[apply]\nlimit = -7", *APPLY)
    assert result.exit_code == 2 and "Invalid value for '--limit'" in result.output
    assert str(run(*APPLY, "--config", "none.toml").exception) == "cannot read none.toml: No such file or directory"


def test_every_command_takes_them():
    for command in (["learn"], ["apply"], ["evaluate", "kbc"], ["data", "ls"], ["serve"], []):
        text = run(*command, "--help").stdout
        assert all(flag in text for flag in ("--verbose", "--log-file", "--config"))
