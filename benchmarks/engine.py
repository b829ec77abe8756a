"""Reading a large TSV and counting rule bodies, beside DuckDB by hand: python benchmarks/engine.py [--lines N].

To reach: reading at most 2× DuckDB's scan and dictionary encoding; counting all bodies of length 2 and their supports
on fb15k237 at most 1.5× the SQL written by hand; memory under the limit that was set.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb
import numpy as np
from measure import in_turns, machine, peak_memory, print_table, save

from rulewright import Engine, KnowledgeBase, read_facts
from rulewright.data.generators import random_graph
from rulewright.logic import parse_rule, parse_template


def write_graph(path: Path, lines: int, seed: int = 0) -> None:
    """Write a graph of the usual shape: a tenth as many entities as facts, some of them far more popular."""
    random = np.random.default_rng(seed)
    entities = max(lines // 10, 10)
    step = 1_000_000
    with path.open("w") as file:
        for start in range(0, lines, step):
            count = min(step, lines - start)
            heads = random.integers(0, entities, count).tolist()
            tails = (random.zipf(1.3, count) % entities).tolist()
            relations = random.integers(0, 200, count).tolist()
            file.writelines(
                f"/m/{h:07x}\t/some/relation_{r}\t/m/{t:07x}\n" for h, r, t in zip(heads, relations, tails, strict=True)
            )


def scan_by_hand(path: Path) -> None:
    """Scan the file and replace every label by a number, with DuckDB alone."""
    with duckdb.connect() as connection:
        columns = "{'h': 'VARCHAR', 'r': 'VARCHAR', 't': 'VARCHAR'}"
        for statement in (
            f"CREATE TABLE raw AS SELECT * FROM read_csv('{path}', delim = '\t', header = false, quote = '', "
            f"auto_detect = false, columns = {columns})",
            "CREATE TABLE entity AS SELECT label, row_number() OVER (ORDER BY label) AS id "
            "FROM (SELECT h AS label FROM raw UNION SELECT t FROM raw)",
            "CREATE TABLE relation AS SELECT r AS label, row_number() OVER (ORDER BY r) AS id FROM raw GROUP BY r",
            "CREATE TABLE coded AS SELECT relation.id AS r, a.id AS h, b.id AS t FROM raw "
            "JOIN relation ON raw.r = relation.label JOIN entity a ON raw.h = a.label JOIN entity b ON raw.t = b.label",
        ):
            connection.execute(statement)


def reading(lines: int, runs: int) -> list[tuple[object, ...]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "graph.tsv")
        write_graph(path, lines)
        hand, ours = in_turns(runs, lambda: scan_by_hand(path), lambda: read_facts(path))
    return [(f"read {lines:,} lines", hand, ours, ours / hand)]


BODIES = {
    "forward": "template h(X, Z) :- ?P(X, Y), ?Q(Y, Z) where ?P in *, ?Q in *.",
    "with head": "template h(X, Z) :- ?P(X, Y), ?Q(Y, Z), ?H(X, Z) where ?P in *, ?Q in *, ?H in *.",
}
BY_HAND = {
    "forward": "SELECT a.r, b.r, count(*) FROM f a JOIN f b ON a.t = b.h GROUP BY ALL",
    "with head": "SELECT a.r, b.r, c.r, count(*) FROM f a JOIN f b ON a.t = b.h JOIN f c ON c.h = a.h AND c.t = b.t "
    "GROUP BY ALL",
}


def counting(name: str, kb: KnowledgeBase, runs: int, memory_limit: str | None = None) -> list[tuple[object, ...]]:
    table = kb.tables()["ee"]
    facts = {"r": table.predicate, "h": table.columns[0], "t": table.columns[1]}
    settings = {} if memory_limit is None else {"memory_limit": memory_limit}
    rows = []
    with Engine(kb, memory_limit=memory_limit) as engine, duckdb.connect(config=settings) as connection:
        connection.register("incoming", facts)
        connection.execute("CREATE TABLE f AS SELECT * FROM incoming ORDER BY r")
        bodies = {each: parse_template(text).body for each, text in BODIES.items()}
        hand, ours = in_turns(
            runs,
            lambda: [connection.execute(statement).fetchnumpy() for statement in BY_HAND.values()],
            lambda: [engine.count_by_predicate(body) for body in bodies.values()],
        )
        for each, body in bodies.items():
            expected = connection.execute(f"SELECT sum(n) FROM ({BY_HAND[each].replace('count(*)', 'count(*) AS n')})")
            assert engine.count_by_predicate(body)["n"].sum() == expected.fetchone()[0]
        rows.append((name, hand, ours, ours / hand))
    return rows


def graph_of(facts: int, relations: int, per_entity: int) -> KnowledgeBase:
    declarations = " ".join(f"predicate r{number}(entity, entity)." for number in range(relations))
    return random_graph({"entity": facts // per_entity}, declarations, facts=facts, seed=0).kb


def stream_within(limit: str, facts: int) -> None:
    """Stream all bindings of a chain under a memory limit, and tell how many there were and what was held."""
    kb = graph_of(facts, relations=2, per_entity=20)
    before = peak_memory()
    body = parse_rule("h(X, Z) :- r0(X, Y), r1(Y, Z).").body
    with Engine(kb, memory_limit=limit) as engine:
        rows = sum(len(next(iter(batch.values()))) for batch in engine.bindings(body))
    print(rows, before, peak_memory())


def streaming(limit: str, facts: int) -> tuple[object, ...]:
    """Do it in a process of its own, for memory once held by a process counts to its end."""
    command = [sys.executable, __file__, "--stream", str(facts), "--limit", limit]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    rows, before, peak = (float(each) for each in told)
    return f"{facts:,} facts, {rows:,.0f} bindings", limit, round(before), round(peak), round(peak - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=5_000_000, help="lines of the TSV to read")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--stream", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--limit", default="300MB", help="the memory limit under which bindings are streamed")
    parser.add_argument("--save", metavar="FILE", help="write the tables as JSON")
    options = parser.parse_args()
    if options.stream:
        stream_within(options.limit, options.stream)
        return
    print(machine())
    columns = ("", "by hand, s", "ours, s", "ratio")
    print_table(f"reading, best of {options.runs}", columns, reading(options.lines, options.runs))
    graph = Path(os.environ.get("RULEWRIGHT_DATA", "../shared/data"), "kbc", "fb15k237")
    rows: list[tuple[object, ...]] = []
    if graph.exists():
        rows += counting("fb15k237", read_facts(graph), options.runs)
    else:
        print(f"\nfb15k237 is not at {graph}; set RULEWRIGHT_DATA to count on it")
    for size in (10_000, 100_000, 1_000_000):
        kb = graph_of(size, relations=50, per_entity=5)
        rows += counting(f"random graph, {size:,} facts", kb, options.runs)
    print_table(f"counting all bodies of length 2 and their supports, best of {options.runs}", columns, rows)
    print_table(
        "memory, MB",
        ("streamed bindings", "limit", "before", "peak", "added"),
        [streaming(options.limit, facts) for facts in (250_000, 1_000_000, 4_000_000)],
    )
    save(options.save)


if __name__ == "__main__":
    main()
