"""The page of LogicMP's results, from made-up runs."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra viz)")

from rulewright.errors import FileError
from rulewright.papers.logicmp import report
from rulewright.papers.report_page import write_report

pytestmark = pytest.mark.slow


def form_run(seed: int) -> dict[str, object]:
    def row(full: float) -> dict[str, object]:
        return {"full": full, "long": None, "full_labelled": full / 2, "tuned": {"full": full + 0.01}}

    rows = {"plain": row(0.70 + 0.01 * seed), "layer": row(0.73 + 0.02 * seed)}
    return {"experiment": "logicmp/funsd", "seed": seed, "rows": rows, "paper": {"plain": {"full": 82.0}}}


def test_the_page_has_means_gains_and_the_paper(tmp_path):
    for seed in (0, 1):
        (tmp_path / f"logicmp_funsd_{seed}.json").write_text(json.dumps(form_run(seed)))
    found = write_report("logicmp", tmp_path)
    assert found.runs == ("logicmp/funsd seed 0", "logicmp/funsd seed 1")
    assert "logicmp/conll seed 0" in found.missing
    page = (tmp_path / "logicmp.md").read_text()
    assert "| network alone | 70.50 ± 0.71 | – | 35.25 ± 0.35 | 71.50 ± 0.71 | – | 82.0 | – |" in page
    assert "| with the layer | 74.00 ± 1.41 | – | 37.00 ± 0.71 | 75.00 ± 1.41 | +3.50 ± 1.00 (2 of 2 seeds) |" in page
    assert "logicmp_forms.png" in page
    assert (tmp_path / "logicmp_forms.png").read_bytes().startswith(b"\x89PNG")
    assert write_report("logicmp", tmp_path).runs == found.runs, "a second report finds the marks of the first"


def test_without_runs_the_page_says_so(tmp_path):
    assert write_report("logicmp", tmp_path).runs == ()
    assert "No run is here yet." in (tmp_path / "logicmp.md").read_text()
    with pytest.raises(FileError):
        write_report("logicmp", tmp_path / "nowhere")


def test_variants_are_compared_seed_by_seed():
    runs = {"logicmp/funsd": [form_run(seed) for seed in range(3)]}
    assert "| with the layer − network alone | 3 | +4.00 ± 0.58 | 0.020 | 0.250 | – | – | – |" in report.paired_table(
        runs
    )
    runs["logicmp/funsd"] = runs["logicmp/funsd"][:1]
    assert report.paired_table(runs) == "No run is here yet."


def test_a_variant_that_some_seeds_lack_says_so():
    runs = [form_run(seed) for seed in range(3)]
    del runs[1]["rows"]["layer"]
    lines = report.form_table({"logicmp/funsd": runs}).splitlines()
    assert [line.split("|")[1].strip() for line in lines[4:]] == ["network alone", "with the layer (2 of 3 seeds)"]


def graph_run(**costs: object) -> dict[str, object]:
    rows = {"layer": {"auc_pr": 0.5, "parts": {"ai": {"auc_pr": 0.5, "seconds": 0.25}}}}
    found = {"experiment": "logicmp/uw_cse", "seed": 0, "rows": rows, "iterations": []}
    return {**found, "costs": {"part": "ai", "groundings": 1200, "seconds": costs}}


def test_costs_are_shown_and_what_was_too_long_is_a_dash():
    runs = {"logicmp/uw_cse": [graph_run(together=0.002, **{"one by one": None, "one by one: why not": "too long"})]}
    lines = report.cost_table(runs).splitlines()
    assert lines[0] == "|  | UW-CSE, ai |"
    assert lines[2:] == ["| groundings | 1,200 |", "| together | 0.002 s |", "| one by one | – |"]
    assert report.inference_table(runs).splitlines()[-1] == "| UW-CSE, ai | – | – | – | – | – | 0.25 |"
    assert report.cost_table({}) == report.inference_table({}) == "No run is here yet."


def test_tables_of_benchmarks_are_read_from_their_files(tmp_path):
    table = {"title": "One iteration as the domain grows", "columns": ["", "ms"], "rows": [["N = 2", 0.1234]]}
    saved = {"command": "python x.py", "machine": "one", "tables": [table, {**table, "title": "Another"}]}
    path = tmp_path / "saved.json"
    path.write_text(json.dumps(saved))
    assert report.size_tables(path).count("| N = 2 | 0.123 |") == 1
    assert report.benchmark_table(path).startswith("`python x.py` (one)")
    assert report.size_tables(tmp_path / "none.json") == report.benchmark_table(tmp_path / "none.json")
