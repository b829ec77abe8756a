"""Object classes from scene graphs, on scenes that were made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from rulewright.data import KnowledgeBase, KnowledgeBaseBuilder
from rulewright.logic import PredicateDeclaration
from rulewright.papers.catalogue import find_experiment, with_settings
from rulewright.papers.nlil import scenes


def made_up_scenes(count: int) -> KnowledgeBase:
    """Return images in which a person wears a hat and rides a bike."""
    builder = KnowledgeBaseBuilder(
        [PredicateDeclaration(name, ("entity",)) for name in ("person", "hat", "bike")]
        + [PredicateDeclaration(name, ("entity", "entity")) for name in ("wears", "rides")]
    )
    for number in range(count):
        who, hat, bike = (f"{number}{letter}" for letter in "phb")
        for name, args in (
            ("person", [who]),
            ("hat", [hat]),
            ("bike", [bike]),
            ("wears", [who, hat]),
            ("rides", [who, bike]),
        ):
            builder.add(name, args, world=f"w{number}")
    return builder.build()


def test_a_run_has_rules_of_a_trained_and_of_an_untrained_generator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb = made_up_scenes(60)
    kept, test = (kb.in_worlds([f"w{number}" for number in part]) for part in (range(40), range(40, 60)))
    monkeypatch.setattr(scenes.datasets, "load", lambda name: kept.with_splits({"test": test}))
    options = {"steps": 1, "levels": 0, "layers": 1, "slots": 4, "epochs": 2, "rounds": 1, "samples": 4}
    experiment = with_settings(find_experiment("nlil/vrd_10"), {"share": 0.5, "options": options})
    found = scenes.run(experiment, seed=0, folder=tmp_path, tell=lambda _: None)
    assert found["images"] == 20
    assert found["questions"] == 60
    for row, figures in (("ours", found), ("untrained", found["untrained"])):
        assert found["rows"][row]["r@1"] == 1.0
        assert figures["read"] > 0
        assert figures["rules"] + figures["against"] > 0
        assert figures["core_seconds"] >= 0
