"""The page of LogicMP's results, from made-up runs."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra viz)")

from rulewright.errors import FileError
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
