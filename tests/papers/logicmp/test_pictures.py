"""Pictures of the page: they are drawn, and Smoke's facts are where they belong."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra viz)")

import rulewright as rw
from rulewright.papers.logicmp import pictures
from rulewright.papers.logicmp.pictures import draw_curves, draw_smoke, has_curve

pytestmark = pytest.mark.slow

PNG = b"\x89PNG"


def people() -> rw.KnowledgeBase:
    builder = rw.data.KnowledgeBaseBuilder()
    builder.add("smoke", ["ann"])
    builder.add("friend", ["ann", "bob"])
    builder.add("friend", ["bob", "bob"], truth=False)
    builder.add("friend", ["bob", "ann"], split="queries")
    return builder.build()


def test_smoke_is_drawn_and_what_is_given_stays(tmp_path, monkeypatch):
    drawn = {}
    draw = pictures.draw_grids
    monkeypatch.setattr(pictures, "load", lambda name: people())
    monkeypatch.setattr(pictures, "rules_of", lambda name: rw.parse_rules("2.0 friend(A, B) => friend(B, A)."))
    monkeypatch.setattr(
        pictures, "draw_grids", lambda path, grids, rings: drawn.update(grids) or draw(path, grids, rings)
    )
    path = draw_smoke(tmp_path / "smoke.png", {"prior": 0.0}, iterations=(0, 1))
    assert path.read_bytes().startswith(PNG)
    assert list(drawn) == ["facts", "0 iterations", "1 iteration"]
    facts, before, after = (grids["friend"] for grids in drawn.values())
    assert np.array_equal(facts, [[np.nan, 1], [np.nan, 0]], equal_nan=True)
    assert np.allclose(before, [[0.5, 1], [0.5, 0]])
    assert after[1, 0] > 0.5
    assert after[0, 1] == 1
    assert after[1, 1] == 0


def test_curves_of_a_network_that_is_trained_once_are_drawn_once(tmp_path):
    runs = [{"rows": {"plain": {"curve": [[0.5, 1.0], [0.6, 1.0]]}, "layer": {"curve": [[0.5, 1.0], [0.6, 1.0]]}}}]
    assert has_curve(runs)
    assert not has_curve([{"rows": {"plain": {}}}])
    names = {"plain": "network", "layer": "with a layer", "both": "absent"}
    assert draw_curves(tmp_path / "curves.png", {"forms": runs}, names).read_bytes().startswith(PNG)
