"""The page of LNN's results."""

import json

import pytest

pytest.importorskip("matplotlib")

from rulewright.errors import FileError
from rulewright.papers.report_page import write_report

pytestmark = pytest.mark.slow


def write(folder, name, seed, **found):
    run = {"experiment": f"lnn/{name}", "seed": seed, "machine": "a machine", **found}
    (folder / f"lnn_{name}_{seed}.json").write_text(json.dumps(run))


def ranks(mrr):
    return {"mrr": mrr, "hits@1": 0.5, "hits@3": 0.7, "hits@10": 0.9}


def test_the_page_has_ranks_rules_countries_and_curves(tmp_path):
    for seed, mrr in ((0, 0.8), (1, 0.9)):
        write(
            tmp_path,
            "umls",
            seed,
            rows={"ours, valid": ranks(0.1), "ours, test": ranks(mrr), "anyburl": {"mrr": 0.955}},
            seconds={"learning": 20.0, "ranking": 2.0},
            rules=1200,
            readable={"isa": ["0.5 :: isa(X, Y) :- isa(X, Z), isa(Z, Y)."], "causes": []},
        )
    write(
        tmp_path,
        "countries_s2",
        0,
        rows={"ours": {"auc_pr": 0.92}},
        reduction="sum",
        by_reduction={"max": {"auc_pr": 0.88, "train_auc_pr": 0.7}, "sum": {"auc_pr": 0.92, "train_auc_pr": 0.6}},
        crisp="l(X, Y) :- n(X, Z), l(Z, Y).",
        paper={"ours": {"auc_pr": 0.923}},
    )
    curve = {f"after_{point}": 0.5 for point in (1, 5, 10, 20, 30)}
    share = {"share_of_ideal_after_20": 0.75, "share_if_half_true_after_20": 1.0}
    row = {**curve, **share, "curve": [[0, 0.1], [20, 0.5]]}
    ideal = {"after_20": 0.7, "share_of_ideal_after_20": 1.0}
    write(tmp_path, "gridworld", 4, rows={"lnn": row, "neural_lp": row, "ideal": ideal})
    found = write_report("lnn", tmp_path)
    assert "lnn/umls seed 1" in found.runs and "lnn/wn18rr seed 0" in found.missing
    page = (tmp_path / "lnn.md").read_text()
    assert "| UMLS, path mixture, ours | 0.850 ± 0.071 | 0.500 ± 0.000 | 0.700 ± 0.000 |" in page
    assert "| 20 ± 0 | 2 ± 0 | 1,200 ± 0 |" in page
    assert "| UMLS, path mixture, AnyBURL, two cores | 0.955 | – | – | – | – | – | – |" in page
    assert "0.5 :: isa(X, Y) :- isa(X, Z), isa(Z, Y)." in page and "causes" not in page
    assert "| Countries S2 | 0.920 | sum | 0.880 | 0.700 | 0.920 | 0.600 | 0.923 |" in page
    assert "| LNN | 0.500 | 0.500 | 0.500 | 0.500 | 0.500 | 75.0 | 100.0 |" in page
    assert "| ideal rule | – | – | – | 0.700 | – | 100.0 | – |" in page
    assert (tmp_path / "lnn_curves.png").read_bytes().startswith(b"\x89PNG")
    assert write_report("lnn", tmp_path).runs == found.runs, "a second report finds the marks of the first"


def test_without_runs_the_page_says_so(tmp_path):
    assert write_report("lnn", tmp_path).runs == ()
    assert "No run is here yet." in (tmp_path / "lnn.md").read_text()
    with pytest.raises(FileError):
        write_report("lnn", tmp_path / "nowhere")
