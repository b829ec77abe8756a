"""With ``--database`` or ``--engine`` every command says what it says of facts in memory."""

from __future__ import annotations

import json
import random

import pytest
from typer.testing import CliRunner

from rulewright.cli import app
from rulewright.errors import RulewrightError

RULES = """
0.9 :: back(X, Y) :- r0(Y, X).
0.5 :: r2(X, Z) :- r0(X, Y), r1(Y, Z).
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    chance = random.Random(0)
    draws = ((chance.randrange(12), chance.randrange(3), chance.randrange(12)) for _ in range(90))
    facts = {(f"e{head}", f"r{relation}", f"e{tail}") for head, relation, tail in draws}
    facts |= {(tail, "back", head) for head, relation, tail in facts if relation == "r0" and chance.random() < 0.8}
    lines = ["\t".join(fact) + "\n" for fact in sorted(facts)]
    (tmp_path / "graph.tsv").write_text("".join(lines))
    (tmp_path / "some.rules").write_text(RULES)
    (tmp_path / "split").mkdir()
    held_out = set(chance.sample(lines, 12))
    (tmp_path / "split" / "train.tsv").write_text("".join(line for line in lines if line not in held_out))
    (tmp_path / "split" / "test.tsv").write_text("".join(sorted(held_out)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*args: str):
    result = CliRunner().invoke(app, list(args))
    assert result.exit_code == 0, result.output
    return result


COMMANDS = {
    "learn": ["learn", "{}", "--max-length", "2", "--no-constants", "--no-unary"],
    "apply": ["apply", "some.rules", "{}", "--rounds", "0"],
    "explain": ["explain", "back(e1, e2)", "some.rules", "{}"],
    "rank": ["rank", "some.rules", "{}", "back(e1, X)"],
    "complete": ["complete", "some.rules", "{}"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_database_gives_what_memory_gives(folder, command):
    words = [*COMMANDS[command], "--json"]
    in_memory = run(*(word.format("graph.tsv") for word in words)).stdout
    stored = run(*(word.format("graph.tsv") for word in words), "--database", "graph.duckdb").stdout
    again = run(*(word.format("graph.duckdb") for word in words)).stdout
    assert stored == again
    assert json.loads(stored.replace("graph.duckdb", "graph.tsv")) == json.loads(in_memory)


def test_a_split_is_evaluated_in_a_database(folder):
    words = ["evaluate", "some.rules", "split", "--json"]
    in_memory, stored = (json.loads(run(*words, *more).stdout) for more in ([], ["--database", "split.duckdb"]))
    assert stored["mrr"] > 0
    for name in {*stored, *in_memory} - {"seconds_ranking"}:
        assert stored[name] == in_memory[name]


def test_what_is_inferred_is_written_in_parts(folder):
    run("apply", "some.rules", "graph.tsv", "--engine", "duckdb", "--partition", "-o", "new.parquet")
    run("apply", "some.rules", "graph.tsv", "-o", "new.tsv")
    relations = {line.split("\t")[1] for line in (folder / "new.tsv").read_text().splitlines()[1:]}
    assert {part.name for part in (folder / "new.parquet").iterdir()} == {f"relation={name}" for name in relations}


def test_what_is_to_come_is_said_before(folder):
    errors = run("learn", "graph.tsv", "--max-length", "2", "--database", "graph.duckdb").stderr
    assert "to come: bodies of 2 steps: about" in errors and "rules that name entities were not looked for" in errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["apply", "some.rules", "graph.tsv", "--folder", "kept"], "keeps the tables of Spark"),
        (["learn", "graph.tsv", "--engine", "oracle"], "engine must be 'duckdb', an address of Spark"),
        (["learn", "graph.tsv", "--engine", "local[1]", "--database", "x.duckdb"], "Spark keeps tables in a folder"),
        (["learn", "graph.tsv", "--learner", "lnn", "--database", "x.duckdb"], "--database"),
        (["learn", "nothing.duckdb"], "nothing.duckdb: no such file"),
        (["apply", "some.rules", "graph.tsv", "--partition", "-o", "x.parquet"], "--engine or --database"),
        (["learn", "graph.tsv", "--from", "prolog", "--engine", "duckdb"], "--from is not for it"),
    ],
)
def test_options_that_do_not_fit_are_refused(folder, words, message):
    result = CliRunner().invoke(app, words)
    assert result.exit_code in (1, 2) and message in f"{result.output} {result.exception}"
    assert isinstance(result.exception, (SystemExit, RulewrightError))
    assert not [*folder.glob("*.duckdb*")]
