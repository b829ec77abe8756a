"""The benchmark of rules beside calibrated networks: what rules must bring where three of ten facts are hidden."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

FILE = Path(__file__).parents[1] / "benchmarks" / "rules_that_pay.py"


@pytest.fixture(scope="module")
def benchmark():
    found = importlib.util.spec_from_file_location("rules_that_pay", FILE)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_rules_find_what_is_hidden_from_a_network(benchmark):
    counts = benchmark.run(0, "a pair alone", test=60, selection=30)["counts"]
    assert set(counts) == {"network", "calibrated", *benchmark.USES}
    f1 = {name: benchmark.f1_of(sums.sum(0)) for name, sums in counts.items()}
    for use in ("apply", "hard decoder", "soft decoder", "layer"):
        assert f1[use] > f1["calibrated"] + 0.02
    wanted = {int(sums[:, 2].sum()) for sums in counts.values()}
    assert len(wanted) == 1


def test_nothing_is_used_that_is_not_better(benchmark):
    _, gold = benchmark.make_documents(20, 0, "a pair alone")
    gold = gold.numpy()
    half = gold & (np.random.default_rng(0).random(gold.shape) < 0.5)
    assert benchmark.best_of([(half, "alone"), (gold, "better")], gold) == "better"
    assert benchmark.best_of([(gold, "alone"), (half, "worse")], gold) == "alone"
    assert benchmark.best_of([(half, "alone"), (half.copy(), "as good")], gold) == "alone"
