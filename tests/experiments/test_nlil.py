"""The experiments of neural logic inductive learning, on what can be had without data sets."""

from __future__ import annotations

from pathlib import Path

import pytest

from rulewright.errors import UnknownNameError
from rulewright.experiments import find, with_settings
from rulewright.experiments.nlil import run


def test_even_numbers_are_solved_exactly(tmp_path: Path) -> None:
    told: list[str] = []
    found = run(find("nlil/even_successor_10"), seed=0, folder=tmp_path, tell=told.append)
    assert found["exact"] is True
    assert found["zero"] is True
    assert found["rows"]["derived from zero"] == {"precision": 1.0, "recall": 1.0}
    assert len(found["rules"]) == len(told) == 2


def test_an_unknown_task_is_named(tmp_path: Path) -> None:
    experiment = with_settings(find("nlil/even_successor_10"), {"task": "odd"})
    with pytest.raises(UnknownNameError, match="odd"):
        run(experiment, seed=0, folder=tmp_path, tell=print)
