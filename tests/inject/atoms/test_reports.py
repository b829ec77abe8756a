"""Reports name every change of a decoder, and the largest of a layer with the formulas that made it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import rulewright as rw
from rulewright.inject.atoms.reports import decoder_report, layer_report, read_reports, write_reports


def test_a_decoder(tmp_path):
    rules = rw.parse_rules("parent_of(X, Z) :- spouse_of(X, Y), parent_of(Y, Z). @{support: 3}")
    random = np.random.default_rng(0)
    decoded = rw.RuleDecoder(rules, relations=["spouse_of", "parent_of"])(random.normal(0, 2, (4, 4, 2)))
    names = ["Ann", "<b>", "it's", "d"]
    report = decoder_report(decoded, names, title="doc")
    assert [(change.before, change.after) for change in report.changes] == [
        (float(change.before), float(change.after)) for change in decoded.changes
    ]
    assert len(report.changes) > 0
    for change, given in zip(report.changes, decoded.changes, strict=True):
        assert change.args == tuple(names[entity] for entity in given.args)
        assert "@{" not in change.reasons[0].rule
    write_reports([report], tmp_path / "a.json")
    assert read_reports(tmp_path / "a.json") == (report,)
    assert decoder_report(decoded).changes[0].args == tuple(map(str, decoded.changes[0].args))


def test_a_layer_with_classes_and_a_batch():
    rules = rw.parse_rules("""
        predicate label(token) in {b, e, o}.
        3.0 label(T) in {b} & next(T, U) => label(U) in {e}.
        1.0 big(T) => label(T) in {o}.
        closed next.
    """)
    layer = rw.LogicLayer(rules, domains={"token": ["t1", "t2", "t3"]})
    generator = torch.Generator().manual_seed(0)
    given = {
        "label": torch.randn(2, 3, 3, generator=generator),
        "big": torch.randn(2, 3, generator=generator),
    }
    follows = torch.zeros(2, 3, 3, dtype=torch.bool)
    follows[:, 0, 1] = follows[:, 1, 2] = True
    result = layer(given, evidence={"next": follows})
    report = layer_report(layer, given, result, row=1, top=4)
    assert len(report.changes) == 4
    moved = []
    for name in given:
        before, after = (
            (logits[name][1].softmax(-1) if name == "label" else logits[name][1].sigmoid())
            for logits in (given, result)
        )
        moved += (after - before).abs().flatten().tolist()
    assert [abs(change.after - change.before) for change in report.changes] == pytest.approx(
        sorted(moved, reverse=True)[:4]
    )
    labels = [change for change in report.changes if change.predicate == "label"]
    assert all(change.value in ("b", "e", "o") for change in labels) and labels
    assert any(change.reasons and change.reasons[0].moved for change in report.changes)
