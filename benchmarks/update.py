"""Updating what rules gave after a small change, beside applying them anew: python benchmarks/update.py [--save FILE].

To reach: with 1 % of the facts of fb15k237 changed (half gone, half new), an update takes at most a tenth of a fresh
application, after one round and at a fixed point that ends. Reading the facts is counted for neither; writing the old
result to Parquet and reading it again are measured by themselves. Both results must be equal. Times are of the
processor, of all threads, since a database uses several and an update one.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from measure import machine, print_table, save

from rulewright import KnowledgeBase, RuleMiner, RuleSet, apply, read_facts, update
from rulewright.reason import Inferred
from rulewright.reason.stored import read_inferred, write_inferred

Value = TypeVar("Value")


def measure(runs: int, work: Callable[[], Value]) -> tuple[float, Value]:
    """Return the least processor time of some runs, and what the last one gave."""
    times = []
    for _ in range(runs):
        start = time.process_time()
        value = work()
        times.append(time.process_time() - start)
    return min(times), value


def are_equal(one: Inferred, other: Inferred) -> bool:
    """Compare facts, scores and rules."""
    return list(one.derived) == list(other.derived) and all(
        all((left == right).all() for left, right in zip(facts.columns, other.derived[name].columns, strict=True))
        and (facts.scores == other.derived[name].scores).all()
        and (facts.source_indices == other.derived[name].source_indices).all()
        for name, facts in one.derived.items()
    )


def compare(
    name: str, rules: RuleSet, before: KnowledgeBase, after: KnowledgeBase, runs: int, max_rounds: int | None
) -> list[object]:
    """Measure an update beside a fresh application."""
    old = apply(rules, before, max_rounds=max_rounds, max_facts=50_000_000)
    anew, fresh = measure(runs, lambda: apply(rules, after, max_rounds=max_rounds, max_facts=50_000_000))
    changing, changed = measure(runs, lambda: update(old, after))
    assert are_equal(changed.inferred, fresh), "an update must equal a fresh application"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "old.parquet")
        writing, _ = measure(1, lambda: write_inferred(old, path))
        reading, _ = measure(1, lambda: read_inferred(path, rules))
    counts = f"+{len(changed.added):,} −{len(changed.removed):,}"
    return [name, len(rules), len(fresh), counts, anew, changing, changing / anew, writing, reading]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--share", type=float, default=0.01, help="of the facts that changes")
    parser.add_argument("--min-confidence", type=float, default=0.1)
    parser.add_argument("--min-support", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", metavar="FILE", help="write the tables as JSON")
    options = parser.parse_args()
    graph = Path(os.environ.get("RULEWRIGHT_DATA", "../shared/data"), "kbc", "fb15k237")
    if not graph.exists():
        raise SystemExit(f"fb15k237 is not at {graph}; set RULEWRIGHT_DATA to where it is")
    print(machine())
    kb = read_facts(graph).with_splits({})
    rules = (
        RuleMiner(
            max_length=2,
            min_confidence=options.min_confidence,
            min_support=options.min_support,
            confidence="groundings",
            unary=False,
            constants=False,
        )
        .fit(kb)
        .rules_
    )
    certain = RuleSet([rule for rule in rules.rules if rule.confidence >= 0.8])
    kept, gone = kb.hold_out(options.share / 2, seed=options.seed)
    kept, new = kept.hold_out(options.share / 2, seed=options.seed + 1)
    before, after = kept.add(gone), kept.add(new)
    rows = [
        compare("one round", rules, before, after, options.runs, 1),
        compare("fixed point", certain, before, after, options.runs, None),
    ]
    print_table(
        f"{options.share:.0%} of {kb.n_facts:,} facts of fb15k237 changed, seed {options.seed}; processor seconds",
        ["", "rules", "new facts", "changed", "apply", "update", "ratio", "write", "read"],
        rows,
    )
    save(options.save)


if __name__ == "__main__":
    main()
