"""Outputs are checked before the work, inputs are never overwritten, and no option is silently ignored."""

from __future__ import annotations

import os

import pytest
from typer.testing import CliRunner

from rulewright.cli import app

FACTS = "ann\tparent_of\tbob\nbob\tparent_of\tcid\n"
RULES = "0.9 :: grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "family.tsv").write_text(FACTS)
    (tmp_path / "family.rules").write_text(RULES)
    (tmp_path / "split").mkdir()
    (tmp_path / "split" / "train.tsv").write_text(FACTS)
    (tmp_path / "split" / "test.tsv").write_text("ann\tparent_of\tbob\n")
    (tmp_path / "link.tsv").symlink_to("family.tsv")
    os.link(tmp_path / "family.tsv", tmp_path / "twin.tsv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*args: str):
    return CliRunner().invoke(app, list(args))


@pytest.fixture
def nothing_is_read(monkeypatch):
    """Fail where a command begins its work."""

    def read(*args: object, **options: object) -> None:
        raise AssertionError("the work has begun")

    for name in ("read_facts", "read_rules"):
        monkeypatch.setattr(f"rulewright.io.{name}", read)


COMMANDS = {
    "learn": ["learn", "family.tsv", "-o"],
    "apply": ["apply", "family.rules", "family.tsv", "-o"],
    "infer": ["infer", "family.rules", "family.tsv", "--queries", "grandparent_of", "-o"],
    "infer, its rules": ["infer", "family.rules", "family.tsv", "--queries", "grandparent_of", "--learned"],
    "explain": ["explain", "grandparent_of(ann, cid)", "family.rules", "family.tsv", "--svg"],
    "convert": ["convert", "family.tsv"],
}
ENDINGS = {"learn": "rules", "infer, its rules": "rules", "explain": "svg"}


@pytest.mark.parametrize("command", COMMANDS)
def test_an_output_that_cannot_be_written_is_refused_before_the_work(folder, nothing_is_read, command):
    ending = ENDINGS.get(command, "tsv")
    for path, reason in {
        f"missing/new.{ending}": f"there is no folder {folder / 'missing'}",
        f"family.tsv/new.{ending}": f"{folder / 'family.tsv'} is not a folder",
        f"folder.{ending}": "it is a folder; name a file in it",
    }.items():
        (folder / f"folder.{ending}").mkdir(exist_ok=True)
        result = run(*COMMANDS[command], path)
        assert result.exit_code == 1
        assert str(result.exception) == f"cannot write {path}: {reason}"


@pytest.mark.parametrize("command", ["learn", "apply", "infer, its rules", "convert"])
def test_an_output_of_no_known_format_is_refused_before_the_work(folder, nothing_is_read, command):
    result = run(*COMMANDS[command], "new.xyz")
    assert str(result.exception).startswith("cannot tell the format of new.xyz; name it ")


@pytest.mark.parametrize("path", ["family.tsv", "./family.tsv", "split/../family.tsv", "link.tsv", "twin.tsv"])
@pytest.mark.parametrize("command", ["apply", "infer", "convert"])
def test_an_input_is_never_overwritten(folder, nothing_is_read, command, path):
    result = run(*COMMANDS[command], path)
    assert result.exit_code == 1
    assert str(result.exception) == f"cannot write {path}: it is what is read, and would be lost; name another file"
    assert (folder / "family.tsv").read_text() == FACTS


def test_rules_are_inputs_too(folder):
    for args in (["infer", "family.rules", "family.tsv", "--queries", "parent_of", "--learned", "family.rules"],):
        assert "it is what is read" in str(run(*args).exception)
    assert (folder / "family.rules").read_text() == RULES


def test_the_files_of_a_folder_are_inputs_and_its_rules_are_not(folder):
    for path in ("split/train.tsv", "split/test.tsv"):
        assert "it is what is read" in str(run("apply", "family.rules", "split", "-o", path).exception)
    assert run("apply", "family.rules", "split", "-o", "split/new.tsv").exit_code == 0
    for _ in range(2):
        assert run("learn", "split", "-o", "split/learned.rules").exit_code == 0


@pytest.mark.parametrize(
    ("args", "option", "reason"),
    [
        (["learn", "family.tsv", "--queries", "9"], "queries", "it is for --learner paths; mine would ignore it"),
        (["learn", "family.tsv", "--folder", "kept"], "folder", "mining keeps tables in a folder for --engine"),
        (["learn", "family.tsv", "--learner", "paths", "--prune"], "prune", "it is for --learner mine; paths"),
        (["learn", "family.tsv", "--json", "--limit", "3"], "limit", "only the table"),
        (
            ["apply", "family.rules", "family.tsv", "--complete"],
            "complete",
            "only a file (-o) can hold the known facts",
        ),
        (["apply", "family.rules", "family.tsv", "-o", "-", "--limit", "20"], "limit", "only the table"),
        (["explain", "p(a)", "family.rules", "family.tsv", "--all", "-k", "2"], "-k", "--all shows all proofs"),
        (["infer", "family.rules", "family.tsv", "--limit", "3", "--json"], "limit", "only the table"),
        (["evaluate", "docre", "a.json", "b.json", "--by-rule"], "by-rule", "it needs --rules"),
        (["evaluate", "docre", "a.json", "b.json", "--seed", "1"], "seed", "it needs --against"),
        (["run", "--seed", "1"], "seed", "without the name of an experiment nothing is run"),
        (["run", "milr", "--pages", "docs"], "pages", "only --report writes pages"),
        (["run", "milr", "--report", "results", "--threads", "1"], "threads", "--report runs nothing"),
        (["convert", "family.rules", "-", "--columns", "head"], "columns", "only facts have columns"),
    ],
)
def test_options_that_would_be_ignored_are_refused(folder, args, option, reason):
    result = run(*args)
    assert result.exit_code == 2
    hint = option if option.startswith("-") else f"--{option}"
    assert f"Invalid value for '{hint}': {reason}" in result.output


def test_the_formats_that_help_names_are_all_there_are():
    from rulewright.cli import console
    from rulewright.io import FACT_FORMATS, RULE_FORMATS

    def list_names(formats, attribute: str) -> str:
        return ", ".join(name for name, format in formats.items() if getattr(format, attribute))

    assert list_names(FACT_FORMATS, "read") == console.FACT_FORMAT_NAMES
    assert list_names(RULE_FORMATS, "read") == console.RULE_FORMAT_NAMES
    assert f"{list_names(FACT_FORMATS, 'write')}; {list_names(RULE_FORMATS, 'write')}" == console.OUTPUT_FORMAT_NAMES


@pytest.mark.parametrize("command", ["apply", "complete"])
@pytest.mark.parametrize("output", ["new.tsv", "new.csv"])
def test_triples_of_heads_with_other_than_two_arguments_are_refused_before_the_work(
    folder, monkeypatch, command, output
):
    def apply(*args: object, **options: object) -> None:
        raise AssertionError("the work has begun")

    (folder / "family.rules").write_text(f"{RULES}0.5 :: parent(X) :- parent_of(X, Y).\n")
    with monkeypatch.context() as patched:
        patched.setattr(f"rulewright.reason.{command}", apply)
        error = run(command, "family.rules", "family.tsv", "-o", output).exception
    message = f"{output} would have triples, and the rules give parent, which has 1 argument; write a .facts file"
    assert message in str(error) and not (folder / output).exists()
    assert run(command, "family.rules", "family.tsv", "-o", "new.facts").exit_code == 0
    assert "parent(ann)" in (folder / "new.facts").read_text()


def test_heads_that_are_not_asked_for_may_have_any_number_of_arguments(folder):
    (folder / "family.rules").write_text(f"{RULES}0.5 :: parent(X) :- parent_of(X, Y).\n")
    options = ("--predicate", "grandparent_of", "-o", "new.tsv")
    assert run("complete", "family.rules", "family.tsv", *options).exit_code == 0
