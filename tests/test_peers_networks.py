"""The four problems of ``benchmarks/peers_networks.py``: their answers keep the rules, and rows run once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.mark.parametrize("name", ["hierarchy", "bio", "graphs", "digits"])
def test_right_answers_break_nothing_and_score_1(name, benchmarks):
    from peers.problems import PROBLEMS

    problem = PROBLEMS[name]
    _, _, test = problem.make_splits(3)
    right = test.targets.bool() if test.targets.is_floating_point() else test.targets
    assert problem.count_violations(right, test) == 0
    assert problem.score(right, test) == (1.0, 1.0)
    again = problem.make_splits(3)[2]
    assert torch.equal(again.features, test.features)


def test_violations_are_counted_as_the_rules_say(benchmarks):
    from peers.problems import BIO, GRAPHS, HIERARCHY, Split

    labels = torch.zeros(1, 40, dtype=torch.bool)
    labels[0, [2, 3]] = True  # two leaves that exclude each other, both without their parent
    assert HIERARCHY.count_violations(labels, Split(labels, labels, labels)) == 3
    tags = torch.tensor([[2, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0]])  # I-PER at the start, I-LOC after O
    assert BIO.count_violations(tags, Split(tags, tags, torch.ones_like(tags).bool())) == 2
    same = torch.zeros(1, 8, 8, dtype=torch.bool)
    same[0, 0, 1] = same[0, 1, 0] = same[0, 1, 2] = same[0, 2, 1] = True
    assert GRAPHS.count_violations(same, Split(same, same, torch.ones(1, 8).bool())) == 2


def multiply(one, other):
    """Multiply."""
    # a comment

    product = one * other
    return product


def test_lines_are_those_of_code(benchmarks):
    from peers_networks import count_lines

    assert count_lines([multiply]) == 2


@pytest.mark.slow
def test_rows_run_and_are_not_run_again(tmp_path):
    command = [sys.executable, str(BENCHMARKS / "peers_networks.py"), "--seeds", "1", "--problems", "hierarchy"]
    command += ["--systems", "network alone", "LogicLayer, mean-field", "DeepProbLog"]
    command += ["--checkpoints", str(tmp_path), "--save", str(tmp_path / "table.json")]
    first = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "LogicLayer, mean-field, seed 0" in first.stderr
    second = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not second.stderr and second.stdout == first.stdout
    (table,) = json.loads((tmp_path / "table.json").read_text())["tables"]
    assert [row[0] for row in table["rows"]] == ["network alone", "LogicLayer, mean-field", "DeepProbLog"]
    assert table["rows"][-1][-1] == "its queries take no constraints as evidence"
