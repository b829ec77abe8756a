"""What rules did to a batch, against sums over atoms one by one."""

from __future__ import annotations

import pytest
import torch

import rulewright as rw
from rulewright.inject import LogicLayer, batch_reports
from rulewright.inject.atoms.reports import read_reports, write_reports

RULES = """
    predicate r(t, t). predicate l(t) in {x, y, z}.
    1.2 r(A, B) & r(B, C) => r(A, C).
    0.9 l(A) in {x} & r(A, B) => l(B) in {x, y}.
    hard !(r(A, B) & l(B) in {z}).
"""


def call(inference: str) -> tuple[LogicLayer, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    layer = LogicLayer(RULES, inference=inference)
    layer.has_warned = True
    torch.manual_seed(3)
    size = 4 if inference == "mean-field" else 3
    logits = {"r": torch.randn(3, size, size, dtype=torch.float64), "l": torch.randn(3, size, 3, dtype=torch.float64)}
    mask = torch.ones(3, size, dtype=torch.bool)
    mask[2, -1] = False
    return layer, logits, layer(logits, mask={"t": mask})


@pytest.mark.parametrize("inference", ["mean-field", "exact"])
def test_effects_are_those_of_atoms_one_by_one(inference):
    layer, logits, output = call(inference)
    explanation = layer.explain_batch()
    assert (explanation.rows, explanation.atoms) == (3, logits["r"].numel() + logits["l"][..., 0].numel())
    size = logits["r"].shape[-1]
    moves: dict[tuple[str, str], list[float]] = {}
    turned: dict[tuple[str, str], int] = {}
    for row in range(3):
        exists = size if row < 2 else size - 1
        for a in range(exists):
            for b in range(exists):
                parts = layer.explain(f"r({a}, {b})", row=row, top=9).formulas
                for part in parts:
                    moves.setdefault((str(part.statement), "r"), []).append(part.moved)
                before, after = (tensor["r"][row, a, b].item() > 0 for tensor in (logits, output))
                if before != after:
                    best = max(parts, key=lambda part: part.moved if after else -part.moved)
                    key = (str(best.statement), "r")
                    turned[key] = turned.get(key, 0) + 1
    found = {(effect.rule, effect.predicate): effect for effect in explanation.effects if effect.predicate == "r"}
    for key, of_key in moves.items():
        large = [abs(move) for move in of_key if abs(move) > 0.01]
        if not large:
            continue
        effect = found[key]
        assert effect.atoms == len(large)
        assert effect.mean == pytest.approx(sum(large) / len(large))
        assert abs(effect.largest) == pytest.approx(max(large))
        assert effect.turned_true + effect.turned_false == turned.get(key, 0)
        assert layer.explain(effect.atom, row=effect.row).now == pytest.approx(
            output["r"][effect.row][tuple(map(int, effect.atom[2:-1].split(", ")))].item()
        )
    labels = sum(effect.turned_class for effect in explanation.effects)
    assert labels == int((logits["l"].argmax(-1) != output["l"].argmax(-1)).sum())


def test_a_table_a_frame_and_a_picture():
    layer, _, _ = call("mean-field")
    explanation = layer.explain_batch(top=2)
    assert len(explanation.effects) == 2
    assert list(explanation.columns())[:3] == ["rule", "predicate", "atoms"]
    assert explanation.to_frame("polars").shape == (2, 10)
    html = explanation._repr_html_()
    assert html.count("<rect") == 4 and "<table>" in html and "=&gt;" in html
    assert "3 rows" in str(explanation)


def test_reports_of_a_batch_are_saved(tmp_path):
    layer, _, _ = call("mean-field")
    reports = batch_reports(layer, top=3)
    assert [report.title for report in reports] == ["the whole batch", "row 0", "row 1", "row 2"]
    assert reports[0].effects and all(len(report.changes) == 3 for report in reports[1:])
    write_reports(reports, tmp_path / "report.json")
    assert list(read_reports(tmp_path / "report.json")) == reports


def test_exact_explanations_say_what_leaving_out_would_change():
    rules = "2.0 p(X) => q(X). 1.0 q(X) => s(X)."
    layer = LogicLayer(rules, domains={"entity": ["ann", "bob"]}, inference="exact")
    logits = {name: torch.tensor([1.5, -0.5], dtype=torch.float64) for name in "pqs"}
    now = layer(logits)["q"][0].item()
    explanation = layer.explain("q(ann)")
    assert "leaving each out" in str(explanation)
    assert explanation.now == pytest.approx(now)
    for part, left in zip(explanation.formulas, ("1.0 q(X) => s(X).", "2.0 p(X) => q(X)."), strict=True):
        without = LogicLayer(
            "predicate p(entity). predicate q(entity). predicate s(entity). " + left, inference="exact"
        )
        assert part.moved == pytest.approx(now - without(logits)["q"][0].item())
        assert part.groundings[0].moved == pytest.approx(part.moved)
    assert explanation.formulas[0].groundings[0].grounding == "p(ann) => q(ann)"
    assert rw.parse_formula(explanation.formulas[1].groundings[0].grounding)
