"""The same rules and the same new facts from every engine: python benchmarks/agreement.py [made dense umls …].

Chains are mined and the best of them applied, on DuckDB in memory and on a file, on SQLite (the engine of the
tests), on Spark in this process and on a standalone cluster of two workers; of real graphs, of a made-up one with
hubs, and of a dense random one in which entities are joined to themselves. To reach: the `.rules` files are the same
byte for byte, and so are the new facts with their rules, rounds and scores to nine digits.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import sys
import tempfile
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from made_graph import write_graph
from measure import machine, print_table, save

import rulewright as rw
from rulewright.engine import StoredFacts, store_facts

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "examples"))
ENGINES = ("memory", "file", "sqlite", "local[2]", "cluster")
MOST_RULES = 40
"""So many of the best rules are applied."""
GRAPHS = ("made", "dense", "umls", "wn18rr", "fb15k237")


def find_graph(name: str, folder: Path) -> Path:
    """Return the files of a graph: made here, or those of a real one."""
    if name == "made":
        write_graph(folder / "made.tsv", 20_000)
    elif name == "dense":
        chance = random.Random(0)
        facts = {
            (f"e{chance.randrange(60)}", f"r{chance.randrange(6)}", f"e{chance.randrange(60)}") for _ in range(3000)
        }
        facts |= {(tail, "back", head) for head, relation, tail in facts if relation == "r0"}
        facts |= {(f"e{index}", "self", f"e{index}") for index in range(0, 60, 2)}
        (folder / "dense.tsv").write_text("".join("\t".join(fact) + "\n" for fact in sorted(facts)))
    else:
        return Path(os.environ.get("RULEWRIGHT_DATA", HERE.parent.parent / "shared" / "data"), "kbc", name)
    return folder / f"{name}.tsv"


def open_facts(engine: str, path: Path, folder: Path, address: str) -> rw.KnowledgeBase:
    """Return the facts of a graph in an engine."""
    if engine == "sqlite":
        # by its file: a benchmark has the name of the folder that it is in
        tested = spec_from_file_location("tested_engines", HERE.parent / "tests" / "engine" / "engines.py")
        assert tested is not None and tested.loader is not None
        engines = module_from_spec(tested)
        tested.loader.exec_module(engines)
        kb = rw.read_facts(path)
        return StoredFacts.of(kb, engines.SQLiteEngine(kb))
    if engine in ("memory", "file"):
        return store_facts(path, database=folder / "graph.duckdb" if engine == "file" else None)
    return store_facts(path, engine=address if engine == "cluster" else engine)


def measure(engine: str, path: Path, address: str, least: float, rounds: int) -> tuple[object, ...]:
    """Return what an engine found, as digests, and the seconds that it took."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        kb = open_facts(engine, path, Path(folder), address)
        read = time.perf_counter()
        rules = (
            rw.RuleMiner(max_length=2, min_confidence=least, constants=False, unary=False, thresholds=False)
            .fit(kb)
            .rules_
        )
        mined = time.perf_counter()
        best = rw.RuleSet(rules.rules[:MOST_RULES])
        inferred = rw.apply(best, kb, max_rounds=rounds)
        facts = sorted(f"{fact} {fact.score:.9f} {fact.round} {sorted(fact.numbers)}" for fact in inferred)
        applied = time.perf_counter()
        kb.close()  # type: ignore[attr-defined]
    digests = [hashlib.sha256(text.encode()).hexdigest()[:12] for text in (str(rules), "\n".join(facts))]
    return len(rules), digests[0], len(facts), digests[1], read - start, mined - read, applied - mined


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="*", default=GRAPHS)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--least", type=float, default=0.1, help="the confidence of rules")
    parser.add_argument("--rounds", type=int, default=2, help="of rules; one spares SQLite hours on real graphs")
    parser.add_argument("--save", metavar="FILE", help="write the tables as JSON")
    options = parser.parse_args()
    print(machine())
    columns = ("engine", "rules", "digest", "new facts", "digest", "read, s", "mine, s", "apply, s")
    from spark_cluster import SparkCluster

    with tempfile.TemporaryDirectory() as folder:
        for graph in options.graphs:
            path = find_graph(graph, Path(folder))
            rows: list[tuple[object, ...]] = []
            for engine in options.engines:
                if engine == "cluster":
                    with SparkCluster(workers=2) as cluster:
                        rows.append((engine, *measure(engine, path, cluster.address, options.least, options.rounds)))
                else:
                    rows.append((engine, *measure(engine, path, "", options.least, options.rounds)))
                print(graph, *rows[-1], flush=True)
            print_table(graph, columns, rows)
            save(options.save)
            assert len({row[2] for row in rows}) == len({row[4] for row in rows}) == 1, "the engines differ"


if __name__ == "__main__":
    main()
