"""``benchmarks/planted.py``: its rows run once, and what it measures is what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


TWICE = """
import sys
import planted

sys.argv = ["planted.py", "--quick", *sys.argv[1:]]
for _ in range(2):
    planted.main()
    print("once", file=sys.stderr)
"""


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=True)


def test_rows_run_and_are_not_run_again(tmp_path: Path) -> None:
    options = ["--seeds", "1", "--shapes", "negation", "disjunction", "--learners", "RuleMiner", "NLIL untrained"]
    options += ["--limit", "1", "--checkpoints", str(tmp_path / "rows"), "--save", str(tmp_path / "table.json")]
    done = run(TWICE, *options)
    first, second, rest = done.stderr.split("once\n")
    assert first.count("uniform") == 4 and "uniform" not in second + rest
    half = len(done.stdout) // 2
    assert done.stdout[:half] == done.stdout[half:]
    tables = json.loads((tmp_path / "table.json").read_text())["tables"]
    assert [row[1] for table in tables for row in table["rows"]] == ["RuleMiner", "NLIL untrained"] * 4
    row = json.loads((tmp_path / "rows" / "disjunction_uniform_RuleMiner_0.json").read_text())
    assert row["fact_recall"] > 0.8 and 0 < row["rule_recall"] <= 1


CHECK = """
import doctest, planted
from rulewright.logic import RuleSet, parse_rules
assert doctest.testmod(planted).failed == 0
right = planted.planted("absence", missing=0, noise=0, entities=60, groundings=10)
true = set(right.kb.tuples("target"))
assert set(planted.derive(right.rules, right.kb)) == true
assert planted.write_forms(right.rules) == planted.write_forms(RuleSet(reversed(right.rules.rules)))
halves = parse_rules("0.5 :: target(X) :- mark_0(X). 0.9 :: target(X) :- mark_1(X).")
assert len(planted.keep_from(halves, 0.6).rules) == 1
assert planted.choose_threshold({}, true) == float("inf")
row = planted.summarise("one", [{"reason": "late"}, dict.fromkeys(planted.MEASURED, 0.5)])
assert row[1] == "0.50 ± 0.00" and row[-1] == "1 of 2 seeds: late"
"""


def test_what_is_measured() -> None:
    run(CHECK)


@pytest.mark.slow
def test_the_other_learners_run(tmp_path: Path) -> None:
    options = ["--seeds", "1", "--shapes", "absence", "conjunction", "--learners", "LNNLearner", "NLIL trained"]
    done = run(TWICE, *options, "--limit", "1", "--checkpoints", str(tmp_path))
    assert "failed" not in done.stdout and "refused" not in done.stdout
    assert len([*tmp_path.glob("*.json")]) == 4
