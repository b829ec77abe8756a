"""``rulewright serve``: what stops it before it listens."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from rulewright.cli import app
from rulewright.errors import RulewrightError


def serve(*args):
    return CliRunner().invoke(app, ["serve", *map(str, args)])


def test_files_that_cannot_be_read_are_told_in_a_line(tmp_path):
    rules, facts, none = tmp_path / "a.rules", tmp_path / "a.tsv", tmp_path / "none.tsv"
    rules.write_text("p(X, Y) : q(X, Y).\n")
    facts.write_text("a\tq\tb\n")
    good = tmp_path / "good.rules"
    good.write_text("p(X, Y) :- q(X, Y).\n")
    for args, message in [
        ((rules, facts), "a.rules:1:9: found ':'"),
        ((tmp_path / "none.rules", facts), "none.rules"),
        ((rules, none), "none.tsv"),
        ((good, facts, "--report", facts), "a.tsv"),
    ]:
        done = serve(*args)
        assert isinstance(done.exception, RulewrightError)
        assert message in str(done.exception) and "\n" not in str(done.exception)


@pytest.mark.parametrize("args", [["only.rules"], ["a.rules", "a.tsv", "--rounds", "0"], ["a", "b", "--port", "x"]])
def test_wrong_usage(args):
    assert serve(*args).exit_code == 2


def test_help():
    assert "Example: rulewright serve family.rules family.tsv" in serve("--help").output
