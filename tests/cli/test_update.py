"""``rulewright apply --update``: what changed since an earlier application."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from rulewright.cli import app
from rulewright.errors import DataError, RulewrightError

RULES = "0.9 :: p(X, Y) :- e(X, Y).\n0.5 :: p(X, Y) :- e(Y, X).\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "a.rules").write_text(RULES)
    (tmp_path / "old.tsv").write_text("a\te\tb\nb\te\tc\n")
    (tmp_path / "new.tsv").write_text("b\te\tc\nc\te\td\nb\tp\tc\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*args: str):
    return CliRunner().invoke(app, list(args), catch_exceptions=False)


def test_what_changed_is_told_and_the_file_is_brought_up_to_date(folder):
    assert run("apply", "a.rules", "old.tsv", "-o", "old.parquet").exit_code == 0
    result = run("apply", "a.rules", "new.tsv", "--update", "old.parquet")
    assert "2 facts follow newly (+), 2 no longer (-), 1 are known now (=); 3 new facts in all" in result.output
    assert "p(c, d)" in result.output and "p(a, b)" in result.output
    result = run("apply", "a.rules", "new.tsv", "--update", "old.parquet", "--json")
    found = json.loads(result.stdout)
    assert [fact["args"] for fact in found["added"]] == [["c", "d"], ["d", "c"]] and found["facts"] == 3
    assert [fact["args"] for fact in found["confirmed"]] == [["b", "c"]]
    # what is written equals what a fresh application writes, and can be updated in turn
    run("apply", "a.rules", "new.tsv", "--update", "old.parquet", "-o", "updated.tsv")
    run("apply", "a.rules", "new.tsv", "-o", "fresh.tsv")
    assert (folder / "updated.tsv").read_text() == (folder / "fresh.tsv").read_text()
    assert run("apply", "a.rules", "new.tsv", "--update", "old.parquet", "-o", "new.parquet").exit_code == 0
    result = run("apply", "a.rules", "new.tsv", "--update", "new.parquet")
    assert "0 facts follow newly (+), 0 no longer (-)" in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rounds", "0"], "old.parquet was written with --rounds 1, got 0; give the same, or apply anew"),
        (["--min-score", "0.5"], "was written with --min-score 0.0, got 0.5"),
        (["--aggregation", "noisy-or"], "was written with --aggregation max, got noisy-or"),
    ],
)
def test_other_options_are_refused_by_name(folder, options, message):
    run("apply", "a.rules", "old.tsv", "-o", "old.parquet")
    with pytest.raises(DataError, match=message):
        run("apply", "a.rules", "new.tsv", "--update", "old.parquet", *options)


def test_other_rules_and_other_files_are_refused(folder):
    run("apply", "a.rules", "old.tsv", "-o", "old.parquet")
    (folder / "a.rules").write_text(RULES.replace("0.5", "0.6"))
    with pytest.raises(DataError, match="was inferred by other rules"):
        run("apply", "a.rules", "new.tsv", "--update", "old.parquet")
    run("convert", "old.tsv", "graph.parquet")
    with pytest.raises(DataError, match="not one that apply wrote"):
        run("apply", "a.rules", "new.tsv", "--update", "graph.parquet")


def test_what_is_updated_is_not_overwritten(folder):
    run("apply", "a.rules", "old.tsv", "-o", "old.parquet")
    content = (folder / "old.parquet").read_bytes()
    with pytest.raises(RulewrightError, match=r"cannot write \./old.parquet: it is what is read, and would be lost"):
        run("apply", "a.rules", "new.tsv", "--update", "old.parquet", "-o", "./old.parquet")
    assert (folder / "old.parquet").read_bytes() == content


def test_changes_are_shown_with_labels(folder):
    run("apply", "a.rules", "old.tsv", "-o", "old.parquet")
    (folder / "labels.tsv").write_text("d\tDora\n")
    result = run("apply", "a.rules", "new.tsv", "--update", "old.parquet", "--labels", "labels.tsv")
    assert "p(c, Dora [d])" in result.output


def test_memory_for_joins_is_refused(folder):
    run("apply", "a.rules", "old.tsv", "-o", "old.parquet")
    result = run("apply", "a.rules", "new.tsv", "--update", "old.parquet", "--memory-limit", "1GB")
    assert result.exit_code == 2 and "Invalid value for '--memory-limit': an update has no joins" in result.output
