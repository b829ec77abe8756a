from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from rulewright import RankingCalibration
from rulewright.cli import app
from rulewright.errors import DataError, FileError, ParseError

RULES = """
0.9 :: uncle(X, Z) :- parent(X, Y), brother(Y, Z).
0.4 :: uncle(X, Z) :- parent(X, Y), friend(Y, Z).
0.3 :: father(Y) :- parent(X, Y).
"""


@pytest.fixture
def folder(tmp_path):
    rows = {name: list[str]() for name in ("train", "valid", "test")}
    for n in range(48):
        rows["train"] += [f"child{n}\tparent\tfather{n}\n", f"father{n}\tbrother\tuncle{n}\n"]
        if n % 3:
            rows["train"] += [f"father{n}\tfriend\tuncle{n}\n", f"father{n}\tfriend\tuncle{(n + 1) % 48}\n"]
        rows["train" if n < 16 else "valid" if n < 40 else "test"].append(f"child{n}\tuncle\tuncle{n}\n")
    (tmp_path / "graph").mkdir()
    for name, lines in rows.items():
        (tmp_path / "graph" / f"{name}.tsv").write_text("".join(lines))
    (tmp_path / "graph.rules").write_text(RULES)
    return tmp_path


def run(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


def fit(folder, *options):
    done = run(
        "evaluate", "kbc", folder / "graph.rules", folder / "graph", "--calibration", folder / "c.json", *options
    )
    assert done.exit_code == 0, (done.output, done.exception)
    return done


@pytest.mark.slow
def test_a_calibration_and_its_plot_are_written(folder):
    pytest.importorskip("matplotlib")
    done = fit(folder, "--reliability", folder / "plot.svg")
    calibration = RankingCalibration.read(folder / "c.json")
    assert calibration.fitted_on == "valid, 24 facts" and calibration.aggregation == "max-plus"
    assert f"how probable scores are, fitted to valid, 24 facts, is written to {folder / 'c.json'}" in " ".join(
        done.stderr.split()
    )
    assert (folder / "plot.svg").read_bytes().startswith(b"<?xml")
    lines = [line.split() for line in done.stdout.splitlines()]
    shown = next(position for position, line in enumerate(lines) if line[:2] == ["calibration", "error"])
    words = ("r(h, ?)", "r(?, t)", "new facts")
    for line, word, part in zip(lines[shown + 1 :], words, ("forward", "backward", "fact"), strict=False):
        judged = calibration.judged[part]
        figures = [judged.before.error, judged.before.error_from(0.1), judged.after.error, judged.after.error_from(0.1)]
        assert line == [*word.split(), *(f"{figure:.4f}" for figure in figures)]
    assert "the error is of the other half" in done.stdout
    as_json = json.loads(fit(folder, "--json").stdout)
    assert as_json["calibration"] == calibration.as_dict()


def test_without_a_valid_split_half_of_the_queries_are_fitted(folder):
    (folder / "graph" / "valid.tsv").unlink()
    done = fit(folder)
    assert RankingCalibration.read(folder / "c.json").fitted_on == "half the queries of held-out facts, 8 facts"
    assert "there is no split valid, so the calibration is fitted to half of the queries (test)" in done.stderr
    fit(folder, "--holdout", "0.5", "--predicate", "uncle")
    assert RankingCalibration.read(folder / "c.json").fitted_on.startswith("half the queries of held-out facts, ")


def test_answers_are_shown_with_their_probability(folder):
    fit(folder)
    calibration = RankingCalibration.read(folder / "c.json")
    command = ["rank", folder / "graph.rules", folder / "graph"]
    for query, part, best in (
        ("uncle(child46, X)", "forward", "uncle46"),
        ("uncle(X, uncle46)", "backward", "child46"),
    ):
        shown = run(*command, query, "--calibration", folder / "c.json")
        assert shown.exit_code == 0, shown.output
        lines = [line.split() for line in shown.stdout.splitlines()]
        probability = calibration.probabilities("uncle", [0.9], part)[0]
        assert lines[1] == ["score", "probability"]
        assert lines[2][:4] == ["1", "0.9", f"{probability:.3f}", best]
        found = json.loads(run(*command, query, "--calibration", folder / "c.json", "--json").stdout)
        scores = [answer["score"] for answer in found["answers"]]
        expected = calibration.probabilities("uncle", scores, part).tolist()
        assert [answer["probability"] for answer in found["answers"]] == expected
    plain = run(*command, "uncle(child46, X)", "--json")
    assert "probability" not in plain.stdout


def test_new_facts_are_shown_with_their_probability(folder):
    fit(folder)
    calibration = RankingCalibration.read(folder / "c.json")
    command = ["complete", folder / "graph.rules", folder / "graph", "--calibration", folder / "c.json"]
    shown = run(*command)
    assert shown.exit_code == 0, shown.output
    lines = [line.split() for line in shown.stdout.splitlines()]
    probability = f"{calibration.probabilities('uncle', [0.9], 'fact')[0]:.3f}"
    assert lines[0] == ["score", "probability"]
    assert lines[1][:3] == ["1", "0.9", probability] and lines[1][3].startswith("uncle(child")
    assert any(line[1:3] == ["0.3", "—"] and line[3].startswith("father(") for line in lines if len(line) == 4)
    found = json.loads(run(*command, "--json").stdout)["facts"]
    by_score = {score: calibration.probabilities("uncle", [score], "fact")[0] for score in (0.9, 0.4)}
    assert {fact["score"] for fact in found} == {0.9, 0.4, 0.3}
    for fact in found:
        assert fact["probability"] == (None if fact["predicate"] == "father" else by_score[fact["score"]])


def test_probabilities_go_to_files(folder):
    fit(folder)
    command = ["complete", folder / "graph.rules", folder / "graph", "--calibration", folder / "c.json"]
    command += ["--predicate", "uncle", "-o"]
    calibration = RankingCalibration.read(folder / "c.json")
    for name in ("new.tsv", "new.jsonl", "new.facts"):
        assert run(*command, folder / name).exit_code == 0
    header, *rows = (line.split("\t") for line in (folder / "new.tsv").read_text().splitlines())
    assert header == ["head", "relation", "tail", "score", "rules", "probability"]
    for row in rows:
        assert row[5] == f"{calibration.probabilities('uncle', [float(row[3])], 'fact')[0]:.6g}"
    records = [json.loads(line) for line in (folder / "new.jsonl").read_text().splitlines()]
    facts = [record for record in records if "predicate" in record]
    assert sorted(f"{fact['probability']:.6g}" for fact in facts) == sorted(row[5] for row in rows)
    assert (folder / "new.facts").read_text().count("probability ") == len(rows)


def test_other_rules_and_other_scores_are_told(folder):
    fit(folder)
    (folder / "few.rules").write_text(RULES.split("\n")[1] + "\n")
    for command in (["rank", folder / "few.rules", folder / "graph", "uncle(child46, X)"],
                    ["complete", folder / "few.rules", folder / "graph"]):  # fmt: skip
        noted = run(*command, "--calibration", folder / "c.json")
        assert noted.exit_code == 0 and "fitted to scores of 3 statements, and these are of 1" in noted.stderr
        refused = run(*command, "--calibration", folder / "c.json", "--aggregation", "max")
        assert refused.exit_code == 1 and isinstance(refused.exception, DataError)
        assert "is of scores by 'max-plus', and these are by 'max'" in str(refused.exception)


@pytest.mark.slow
def test_a_bad_file_is_one_line_of_error(folder):
    bad = folder / "bad.json"
    bad.write_text('{"format": "other"}')
    commands = (
        ["rank", folder / "graph.rules", folder / "graph", "uncle(child46, X)", "--calibration"],
        ["complete", folder / "graph.rules", folder / "graph", "--calibration"],
    )
    for command in commands:
        refused = run(*command, bad)
        assert refused.exit_code == 1 and isinstance(refused.exception, ParseError)
        missing = run(*command, folder / "none.json")
        assert missing.exit_code == 1 and isinstance(missing.exception, FileError)
        assert not refused.stdout and not missing.stdout
    program = [sys.executable, "-m", "rulewright", *map(str, commands[0]), str(bad)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == (
        f"rulewright: {bad}: format must be 'rulewright ranking calibration 1', got the string 'other'\n"
    )


def test_bad_options_are_refused(folder):
    command = ["evaluate", "kbc", folder / "graph.rules", folder / "graph"]
    alone = run(*command, "--reliability", folder / "plot.svg")
    assert alone.exit_code == 2 and "it draws what --calibration fits" in alone.stderr
    for options, message in (
        (["--calibration", folder / "none" / "c.json"], "there is no folder"),
        (["--calibration", folder / "graph.rules"], "it is what is read"),
        (["--calibration", folder / "graph" / "train.tsv"], "it is what is read"),
        (["--calibration", folder / "c.json", "--reliability", folder / "graph"], "it is what is read"),
    ):
        refused = run(*command, *options)
        assert refused.exit_code == 1 and message in str(refused.exception)
    assert not (folder / "c.json").exists() and not (folder / "plot.svg").exists()
    assert (folder / "graph.rules").read_text() == RULES


def test_a_bad_ending_is_refused_before_the_work(folder):
    command = ["evaluate", "kbc", folder / "graph.rules", folder / "graph", "--calibration", folder / "c.json"]
    refused = run(*command, "--reliability", folder / "plot.txt")
    assert refused.exit_code == 1 and "a plot is a .png, .svg or .pdf file" in str(refused.exception)
    assert not (folder / "c.json").exists()


def test_a_calibration_is_written_beside_predictions_that_are_piped(folder):
    fit(folder, "--predictions", "-")
    assert (folder / "c.json").exists()


def test_a_calibration_and_figures_cannot_both_be_piped(folder):
    command = ["evaluate", "kbc", folder / "graph.rules", folder / "graph", "--calibration", "-"]
    assert run(*command, "--json").exit_code == 2
