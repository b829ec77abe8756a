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
            rows={"ours, valid": ranks(0.1), "ours, test": ranks(mrr)},
            seconds={"learning": 20.0, "ranking": 2.0},
            rules=1200,
            readable={
                "isa": [
                    "0.654054 :: isa(X, Y) :- isa(X, Z), isa(Z, Y). @{weight: 1.8, coverage: 0.3, share: 0.25}",
                    "0.0007 :: isa(X, Y) :- affects(X, Z), affects(Y, Z). @{weight: 6.5}",
                ],
                "causes": [],
            },
        )
    for seed in range(3):
        write(
            tmp_path,
            "umls_leaf",
            seed,
            rows={"ours, valid": ranks(0.1), "ours, test": ranks(0.6)},
            seconds={"learning": 10.0, "ranking": 1.0},
            rules=92,
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
    lines = page.splitlines()
    start = lines.index("|  | MRR | Hits@1 | Hits@3 | Hits@10 | seeds | learning, s | ranking, s | rules |") + 2
    ours, leaf, published, neural_lp, drum, ctp, rnnlogic, anyburl = lines[start : start + 8]
    assert ours.startswith("| **UMLS, path mixture, ours** | 0.850 ± 0.071 | 0.500 ± 0.000 | 0.700 ± 0.000 |")
    assert ours.endswith("| 2 | 20 ± 0 | 2 ± 0 | 1,200 ± 0 |")
    assert leaf.startswith("| **UMLS, leaf mixture, ours** | 0.600 ± 0.000 |") and "| 3 | 10 ± 0 |" in leaf
    assert published == "| UMLS, LNN, path mixture, as published | 0.900 | – | 0.983 | 0.994 | – | – | – | – |"
    assert neural_lp.startswith("| UMLS, NeuralLP | 0.553 |") and drum.startswith("| UMLS, DRUM | 0.618 |")
    assert ctp.startswith("| UMLS, CTP | 0.801 |") and rnnlogic.startswith("| UMLS, RNNLogic, rules alone | 0.710 |")
    assert anyburl == "| UMLS, AnyBURL, two cores | 0.955 | – | – | 0.990 | – | – | – | – |"
    assert "| x —isa→ y | x —isa→ a —isa→ y | 0.654 | 0.3 | 0.25 |" in page
    assert "causes" not in page and "affects" not in page, "a rule that is hardly ever right is not shown"
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
