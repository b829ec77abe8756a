"""Updating what rules gave after a small change, beside applying them anew: python benchmarks/update.py [--save FILE].

To reach: with 1 % of the facts of fb15k237 changed (half gone, half new), an update takes at most a tenth of a fresh
application, after one round and at a fixed point that ends. Reading the facts is counted for neither. The old result
is at hand ("update"), or read from Parquet first as the command line does ("read", "then update"), which "ratio from
file" counts together. Both results must be equal. Times are of the processor, of all threads, since a database uses
several and an update one; the second table has those of the clock.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from measure import machine, print_table, save

from rulewright import KnowledgeBase, RuleMiner, RuleSet, apply, read_facts, update
from rulewright.reason import Inferred
from rulewright.reason.stored import read_inferred, write_inferred

Value = TypeVar("Value")


def measure(runs: int, work: Callable[[], Value]) -> tuple[npt.NDArray[np.float64], Value]:
    """Return the least time of some runs, of the processor and of the clock, and what the last one gave."""
    times = []
    for _ in range(runs):
        start = time.process_time(), time.perf_counter()
        value = work()
        times.append((time.process_time() - start[0], time.perf_counter() - start[1]))
    return np.min(times, axis=0), value


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
) -> list[list[object]]:
    """Measure an update beside a fresh application: a row of the processor's times, and one of the clock's."""
    old = apply(rules, before, max_rounds=max_rounds, max_facts=50_000_000)
    anew, fresh = measure(runs, lambda: apply(rules, after, max_rounds=max_rounds, max_facts=50_000_000))
    changing, changed = measure(runs, lambda: update(old, after))
    assert are_equal(changed.inferred, fresh), "an update must equal a fresh application"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "old.parquet")
        writing, _ = measure(1, lambda: write_inferred(old, path))
        reading, _ = measure(runs, lambda: read_inferred(path, rules))
        changing_read = np.full(2, np.inf)
        for _ in range(runs):
            again = read_inferred(path, rules)  # anew each time, for an update keeps what it has looked up
            changing_read = np.minimum(changing_read, measure(1, partial(update, again, after))[0])
        assert are_equal(update(again, after).inferred, fresh), "also where the old result was read"
    counts = f"+{len(changed.added):,} −{len(changed.removed):,}"
    from_file = (reading + changing_read) / anew
    times = [anew, changing, changing / anew, writing, reading, changing_read, from_file]
    return [[name, len(rules), len(fresh), counts, *map(float, row)] for row in zip(*times, strict=True)]


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
    columns = ["", "rules", "new facts", "changed", "apply", "update", "ratio"]
    for kind, part in zip(("processor", "wall"), zip(*rows, strict=True), strict=True):
        print_table(
            f"{options.share:.0%} of {kb.n_facts:,} facts of fb15k237 changed, seed {options.seed}; {kind} seconds",
            [*columns, "write", "read", "then update", "ratio from file"],
            part,
        )
    save(options.save)


if __name__ == "__main__":
    main()
