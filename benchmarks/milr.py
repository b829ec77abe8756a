"""Mining, decoding and the consistency loss, each beside its baseline: python benchmarks/milr.py.

To reach: mining at most 2× the bare SQL joins, on DWIE and for all rules of length ≤ 2 of fb15k237.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import duckdb
import numpy as np
from measure import best_of, in_turns, machine, print_table, save

from rulewright import KnowledgeBase, RuleMiner, read_facts
from rulewright.data.generators import random_graph

DATA = Path(os.environ.get("RULEWRIGHT_DATA", "../shared/data"))
JOINS = (
    "SELECT p, count(*) FROM edge GROUP BY ALL",
    "SELECT f.p, e.p, count(*) FROM fact f JOIN edge e ON e.a0 = f.a0 AND e.a1 = f.a1 WHERE f.a0 <> f.a1 GROUP BY ALL",
    "SELECT a.p, b.p, count(*) FROM edge a JOIN edge b ON b.a0 = a.a1 WHERE a.a0 <> b.a1 GROUP BY ALL",
    "SELECT f.p, a.p, b.p, count(*) FROM edge a JOIN edge b ON b.a0 = a.a1 JOIN fact f ON f.a0 = a.a0 AND f.a1 = b.a1 "
    "WHERE f.a0 <> f.a1 GROUP BY ALL",
)


def bare_joins(kb: KnowledgeBase) -> None:
    """Count all bodies and supports of length 1 and 2 with joins written by hand."""
    table = kb.tables()["ee"]
    head, tail = table.columns
    facts = {"p": table.predicate, "a0": head, "a1": tail}
    both = {
        "p": np.concatenate([2 * table.predicate, 2 * table.predicate + 1]),
        "a0": np.concatenate([head, tail]),
        "a1": np.concatenate([tail, head]),
    }
    with duckdb.connect() as connection:
        for name, columns in (("fact", facts), ("edge", both)):
            connection.register("incoming", columns)
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM incoming")
            connection.unregister("incoming")
        for statement in JOINS:
            connection.execute(statement).fetchnumpy()


def mining(name: str, kb: KnowledgeBase, runs: int, **options: object) -> tuple[object, ...]:
    miner = RuleMiner(**options)  # type: ignore[arg-type]
    bare, ours = in_turns(runs, lambda: bare_joins(kb), lambda: miner.fit(kb))
    return name, kb.n_facts, len(miner.rules_), bare, ours, ours / bare


def growth(runs: int) -> list[tuple[object, ...]]:
    rows = []
    for facts in (10_000, 100_000, 1_000_000):
        declarations = " ".join(f"predicate r{number}(entity, entity)." for number in range(50))
        kb = random_graph({"entity": facts // 5}, declarations, facts=facts, seed=0).kb
        miner = RuleMiner(min_confidence=0.01)
        rows.append((f"random graph, {facts:,} facts", best_of(runs, lambda miner=miner, kb=kb: miner.fit(kb))))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--save", metavar="FILE", help="write the tables as JSON")
    options = parser.parse_args()
    print(machine())
    if DATA.is_dir():
        dwie = read_facts(DATA / "dwie" / "train_annotations_notext.json")
        fb15k237 = read_facts(DATA / "kbc" / "fb15k237")
        rows = [
            mining("dwie, preset milr", dwie, options.runs, preset="milr", min_confidence=0.98),
            mining("dwie, all rules", dwie, options.runs, min_confidence=0.0),
            mining("fb15k237, confidence ≥ .1", fb15k237, options.runs, min_confidence=0.1),
            mining("fb15k237, all rules", fb15k237, options.runs, min_confidence=0.0),
        ]
        columns = ("mining, length ≤ 2", "facts", "rules", "bare joins, s", "ours, s", "ratio")
        print_table(f"mining, best of {options.runs}", columns, rows)
    else:
        print(f"no data at {DATA}; set RULEWRIGHT_DATA")
    print_table(f"mining as the facts grow, best of {options.runs}", ("", "s"), growth(options.runs))
    save(options.save)


if __name__ == "__main__":
    main()
