"""The experiments of neural logic inductive learning, on what can be had without data sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rulewright.errors import UnknownNameError
from rulewright.papers.catalogue import find_experiment, load_run, with_settings
from rulewright.papers.nlil.even import run
from rulewright.papers.report_page import write_report

pytestmark = pytest.mark.slow


def test_even_numbers_are_solved_exactly(tmp_path: Path) -> None:
    told: list[str] = []
    found = run(find_experiment("nlil/even_successor_10"), seed=0, folder=tmp_path, tell=told.append)
    assert found["exact"] is True
    assert found["zero"] is True
    assert found["rows"]["derived from zero"] == {"precision": 1.0, "recall": 1.0}
    assert len(found["rules"]) == len(told) == 2
    assert found["untrained"]["read"] > 0
    assert found["untrained"]["core_seconds"] > 0


def test_an_unknown_task_is_named() -> None:
    experiment = with_settings(find_experiment("nlil/even_successor_10"), {"task": "odd"})
    with pytest.raises(UnknownNameError, match="odd"):
        load_run(experiment)


def test_the_page_is_renewed_from_the_runs_of_a_folder(tmp_path: Path) -> None:
    even = run(find_experiment("nlil/even_successor_10"), seed=0, folder=tmp_path / "run", tell=lambda _: None)
    (tmp_path / "nlil_even_successor_10_0.json").write_text(json.dumps(even), encoding="utf-8")
    scores = {"r@1": 0.5, "r@5": 0.75, "r@1 top 50": 0.5, "r@5 top 50": 0.75}
    scenes: dict[str, Any] = {
        "experiment": "nlil/vrd",
        "seed": 0,
        "rows": {"ours": scores, "untrained": scores, "frequency vote": scores, "naive Bayes": {"r@1": 0.4}},
        "images": 3,
        "read": 70,
        "core_seconds": 8.0,
        "untrained": {"read": 90, "core_seconds": 2.0},
        "readable": {"person": ["person(X) :- wear(X, Z1)."]},
        "doubtful": ["0.1 :: bush(X) :- by(X, Z1)."],
    }
    (tmp_path / "nlil_vrd_0.json").write_text(json.dumps(scenes), encoding="utf-8")
    for seed, ahead in ((0, 0.01), (1, 0.03)):
        vote = {**scores, "r@1": 0.5 - ahead}
        drawn = {**scenes, "experiment": "nlil/vrd_1", "seed": seed, "rows": {**scenes["rows"], "frequency vote": vote}}
        (tmp_path / f"nlil_vrd_1_{seed}.json").write_text(json.dumps(drawn), encoding="utf-8")
    found = write_report("nlil", tmp_path)
    page = (tmp_path / "nlil.md").read_text(encoding="utf-8")
    assert found.runs == ("nlil/even_successor_10 seed 0", "nlil/vrd seed 0", "nlil/vrd_1 seed 0", "nlil/vrd_1 seed 1")
    assert "nlil/wn18 seed 0" in found.missing
    assert "| Even and successor, 0 … 10: ours | 1 of 1 |" in page
    assert "| Even and successor, 0 … 10: untrained |" in page
    assert "ours | 0.500 | 0.750 | 0.500 | 0.750 | 3 | 70 | 8 |" in page
    assert "untrained | 0.500 | 0.750 | 0.500 | 0.750 | 3 | 90 | 2 |" in page
    assert "ours less frequency vote | +0.020 ± 0.010 | 2 of 2 | +0.000 ± 0.000 | 0 of 2 |" in page
    assert "person(X) :- wear(X, Z1)." in page
    assert "0.1 :: bush(X) :- by(X, Z1)." in page
