"""The page of results from runs that are made up: with none, some and older ones, and where plots cannot be drawn."""

from __future__ import annotations

import json
import random
import sys

import pytest

from rulewright.errors import DataError, FileError, MissingExtraError, ParseError
from rulewright.papers.report_page import write_report

pytestmark = pytest.mark.slow

VARIANTS = ("plain", "loss", "decoder", "both")
BOUNDS = ((0, 100), (100, 200), (200, 400), (400, None))


@pytest.fixture(autouse=True)
def _needs_matplotlib(request):
    if "without_matplotlib" not in request.node.name:
        pytest.importorskip("matplotlib", reason="plots need the extra viz")


def scores(chance: random.Random, logic: float | None) -> dict[str, object]:
    values = {key: chance.uniform(0.3, 0.6) for key in ("precision", "recall", "f1", "ign_f1_docred", "ign_f1_logire")}
    return {"predicted": 10, **values, "logic": logic, "logic_mined": chance.uniform(0.8, 1.0)}


def a_run(name: str, seed: int, *, f1: float | None = None) -> dict[str, object]:
    chance = random.Random(f"{name} {seed}")
    rows: dict[str, dict[str, object]] = {}
    logic = None if "redocred" in name else 0.9
    for variant in VARIANTS:
        rows[variant] = scores(chance, logic)
        if f1 is not None:
            rows[variant]["f1"] = f1
        rows[variant]["by_distance"] = [
            {"low": low, "high": high, "wanted": 0 if low == 400 else 100 - low // 4, **scores(chance, None)}
            for low, high in BOUNDS
        ]
        if variant in ("plain", "loss"):
            rows[variant] |= {"parameters": 1234567, "epochs": 9, "seconds_per_epoch": 2.5, "selection_f1": 0.5}
        else:
            error = {"count": 7, "repaired": 5, "introduced": 2}
            rows[variant] |= {"tau": 0.8, "k": 0.5, "errors": {"missing_heads": error, "wrong_bodies": error}}
            rows[variant]["without_rules"] = scores(chance, logic)
    method = {"documents": 99, "constraints": 8.0, "violations": 0, "seconds": 0.01, "f1": 0.5, "ign_f1_docred": 0.4}
    change = {
        "atom": "in0('Bonn', 'Germany')",
        "added": True,
        "right": True,
        "rule": "in0(X, Z) :- in2(X, Y), in0(Y, Z).",
        "where": {"X": "Bonn", "Y": "Rhineland", "Z": "Germany"},
    }
    helped = {"title": "DW_1", "entities": 5, "changes": 2, "right": 2, "wrong": 0, "shown": [change]}
    difference = {"difference": 0.012, "low": -0.001, "high": 0.025, "p": 0.04}
    part = {"documents": 80, "entities": 2000, "facts": 1500}
    return {
        "experiment": name,
        "seed": seed,
        "rules": 90,
        "sizes": {"training": part, "selection": part, "test": part},
        "methods": {
            "all": {"exact": method, "simplified": method | {"violations": 3}},
            "small": {each: method | {"documents": 4} for each in ("exact", "simplified", "full")},
            "small_entities": 10,
            "agrees": True,
        },
        "cases": {"helped": helped, "harmed": None},
        "rows": rows,
        "against_plain": {
            each: {"f1": difference, "ign_f1_docred": difference | {"p": 0.0002}} for each in VARIANTS[1:]
        },
        "machine": "made up",
    }


def save(folder, name: str, seed: int, **options) -> dict[str, object]:
    run = a_run(name, seed, **options)
    (folder / f"{name.replace('/', '_')}_{seed}.json").write_text(json.dumps(run), encoding="utf-8")
    return run


def test_the_page_and_the_plots(tmp_path):
    save(tmp_path, "milr/dwie_atlop", 0, f1=0.5)
    save(tmp_path, "milr/dwie_atlop", 1, f1=0.6)
    save(tmp_path, "milr/redocred_atlop", 0)
    found = write_report("milr", tmp_path)
    assert found.runs == ("milr/dwie_atlop seed 0", "milr/dwie_atlop seed 1", "milr/redocred_atlop seed 0")
    assert "milr/redocred_atlop seed 1" in found.missing
    assert "milr/dwie_gain seed 0" in found.missing
    assert "milr/dwie_atlop seed 1" not in found.missing
    assert {each.name for each in found.written} == {
        "milr.md",
        "milr_variants.png",
        "milr_distance.png",
        "milr_precision_recall.png",
    }
    for each in found.written[1:]:
        assert each.read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "milr.md").read_text(encoding="utf-8")
    assert "55.00 ± 7.07" in page  # the mean of two seeds and its standard deviation
    assert "76.51" in page and "44.72" in page  # the paper's
    assert "+1.20 [-0.10, +2.50], p 0.040" in page and "p < 0.001" in page
    assert "+ in0('Bonn', 'Germany')   (right)" in page and "Y = Rhineland" in page and "… and 1 more" in page
    assert "![F1 by the distance of the two entities](milr_distance.png)" in page
    assert "`milr/dwie_gain` seed 0" in page


def test_only_what_is_between_the_marks_changes(tmp_path):
    save(tmp_path, "milr/dwie_atlop", 0)
    write_report("milr", tmp_path)
    page = tmp_path / "milr.md"
    first = page.read_text(encoding="utf-8")
    page.write_text(first.replace("<!-- begin main -->", "By hand.\n\n<!-- begin main -->"), encoding="utf-8")
    save(tmp_path, "milr/dwie_atlop", 1)
    write_report("milr", tmp_path)
    second = page.read_text(encoding="utf-8")
    assert "By hand.\n\n<!-- begin main -->" in second
    assert "±" in second and "±" not in first
    write_report("milr", tmp_path)
    assert page.read_text(encoding="utf-8") == second


def test_without_any_run(tmp_path):
    found = write_report("milr", tmp_path)
    assert found.runs == () and "milr/dwie_lstm seed 0" in found.missing
    assert [each.name for each in found.written] == ["milr.md"]
    assert "No run is here yet." in (tmp_path / "milr.md").read_text(encoding="utf-8")


def test_runs_of_an_older_version_give_what_they_have(tmp_path):
    run = a_run("milr/dwie_atlop", 0)
    for key in ("methods", "cases", "sizes"):
        del run[key]
    for row in run["rows"].values():  # type: ignore[attr-defined]
        del row["by_distance"]
        row.pop("without_rules", None)
    (tmp_path / "milr_dwie_atlop_0.json").write_text(json.dumps(run), encoding="utf-8")
    (tmp_path / "milr_benchmark.json").write_text(
        json.dumps({"machine": "m", "tables": [{"title": "decoding", "columns": ["s"], "rows": [[0.25]]}]}),
        encoding="utf-8",
    )
    found = write_report("milr", tmp_path)
    assert "milr_variants.png" in {each.name for each in found.written}
    page = (tmp_path / "milr.md").read_text(encoding="utf-8")
    assert "an older version wrote them: `milr/dwie_atlop` seed 0" in page
    assert "| 0.25 |" in page


def test_faults_are_named(tmp_path):
    with pytest.raises(FileError, match="not a folder"):
        write_report("milr", tmp_path / "nowhere")
    file = tmp_path / "milr_dwie_atlop_0.json"
    file.write_text("{", encoding="utf-8")
    with pytest.raises(ParseError, match=r"milr_dwie_atlop_0\.json"):
        write_report("milr", tmp_path)
    file.write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match="has no 'experiment'; write it with: rulewright run milr/dwie_atlop"):
        write_report("milr", tmp_path)
    file.write_text(json.dumps(a_run("milr/dwie_gain", 0)), encoding="utf-8")
    with pytest.raises(DataError, match="its name says milr/dwie_atlop"):
        write_report("milr", tmp_path)
    file.unlink()
    (tmp_path / "milr.md").write_text("# By hand, without marks\n", encoding="utf-8")
    with pytest.raises(DataError, match="needs one line <!-- begin runs -->"):
        write_report("milr", tmp_path)


def test_without_matplotlib(tmp_path, monkeypatch):
    save(tmp_path, "milr/dwie_atlop", 0)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"rulewright\[viz\]"):
        write_report("milr", tmp_path)
    assert not (tmp_path / "milr.md").exists()


def test_the_command(tmp_path):
    from typer.testing import CliRunner

    from rulewright.cli import app
    from rulewright.errors import UnknownNameError

    save(tmp_path, "milr/dwie_atlop", 0)
    result = CliRunner().invoke(app, ["run", "milr", "--report", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "1 runs: milr/dwie_atlop seed 0" in result.output and "missing: " in result.output
    found = json.loads(CliRunner().invoke(app, ["run", "milr", "--report", str(tmp_path), "--json"]).stdout)
    assert found["runs"] == ["milr/dwie_atlop seed 0"]
    assert CliRunner().invoke(app, ["run", "--report", str(tmp_path)]).exit_code == 2
    unknown = CliRunner().invoke(app, ["run", "nothing", "--report", str(tmp_path)])
    assert isinstance(unknown.exception, UnknownNameError)
