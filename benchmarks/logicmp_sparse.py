"""The layer over candidate atoms, beside the bare join of its ground clauses: python benchmarks/logicmp_sparse.py.

Random graphs of mean degree 5, each size in a process of its own. Candidates are the edges and the pairs that one rule
step reaches, all of them open; all other atoms rest at false. Bare are DuckDB's join of the same columns and, for each
iteration, one pass over the ground clauses: gather the values of each clause, multiply, and scatter the products.

WN18RR, where its files are, is inferred with mined rules from end to end.

To reach: at 10^5 entities at most twice the bare way, and seconds and memory that grow as ground clauses do; and in
dense transitivity at N = 512 at most 1.3× the bare products.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time

import duckdb
import numpy as np
import torch
from measure import in_turns, machine, peak_memory, print_table, save
from torch import Tensor

import rulewright as rw
from rulewright.inject import LogicLayer

DEGREE = 5
ITERATIONS = 5
RULES = {
    "two-hop Horn rule": "1.0 p(A, B) & q(B, C) => r(A, C).",
    "transitivity": "1.0 r(A, B) & r(B, C) => r(A, C).",
}
Pairs = tuple[np.ndarray, np.ndarray]


def random_edges(entities: int, chance: np.random.Generator) -> Pairs:
    """Return different edges between different entities, `DEGREE` for each on average."""
    keys = np.unique(chance.integers(0, entities * entities, entities * DEGREE))
    head, tail = np.divmod(keys, entities)
    return head[head != tail], tail[head != tail]


def two_hops(first: Pairs, second: Pairs, entities: int) -> Pairs:
    """Return the different pairs that two edges lead to."""
    connection = duckdb.connect()
    connection.register("one", {"a": first[0], "b": first[1]})
    connection.register("other", {"b": second[0], "c": second[1]})
    select = "SELECT DISTINCT a, c FROM one JOIN other USING (b) WHERE a <> c ORDER BY a, c"
    found = connection.execute(select).fetchnumpy()
    connection.close()
    return found["a"], found["c"]


def as_index(pairs: Pairs) -> Tensor:
    return torch.from_numpy(np.stack(pairs, 1))


def make_candidates(rules: str, entities: int) -> dict[str, Tensor]:
    chance = np.random.default_rng(0)
    edges = random_edges(entities, chance)
    if rules == "transitivity":
        reached = two_hops(edges, edges, entities)
        keys = np.unique(np.concatenate([edges[0] * entities + edges[1], reached[0] * entities + reached[1]]))
        return {"r": as_index(np.divmod(keys, entities))}
    others = random_edges(entities, chance)
    return {"p": as_index(edges), "q": as_index(others), "r": as_index(two_hops(edges, others, entities))}


def bare_join(indices: list[Tensor]) -> list[Tensor]:
    """Join the candidates of the three literals; return where each ground clause's atoms stand."""
    connection = duckdb.connect()
    for name, index in zip("xyz", indices, strict=True):
        one, other = index.numpy().T.astype(np.int32)
        columns = {"a": one, "b": other, "p": np.arange(len(one), dtype=np.int32)}
        connection.register("columns", columns)
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM columns")
    select = "SELECT x.p AS x, y.p AS y, z.p AS z FROM x, y, z WHERE x.b = y.a AND z.a = x.a AND z.b = y.b"
    if indices[0] is indices[1]:
        select += " AND x.a <> x.b AND y.a <> y.b"
    found = connection.execute(select).fetchnumpy()
    connection.close()
    return [torch.from_numpy(np.asarray(found[name])) for name in "xyz"]


def bare_pass(columns: list[Tensor], values: list[Tensor]) -> list[Tensor]:
    """Send the messages of all ground clauses to their three atoms."""
    totals = [torch.zeros(len(value)) for value in values]
    x, y, z = (value.index_select(0, column) for value, column in zip(values, columns, strict=True))
    totals[0].index_add_(0, columns[0], y * z)
    totals[1].index_add_(0, columns[1], x * z)
    totals[2].index_add_(0, columns[2], x * y)
    return totals


def measure(rules: str, entities: int, way: str) -> dict[str, float]:
    """Ground and run one way, and return what it took."""
    torch.set_num_threads(1)
    candidates = make_candidates(rules, entities)
    gc.collect()
    before = peak_memory()
    found: dict[str, float] = {"candidates": float(sum(map(len, candidates.values())))}
    start, work = time.perf_counter(), time.process_time()
    if way == "bare":
        indices = [candidates["r"]] * 3 if rules == "transitivity" else [candidates[name] for name in "pqr"]
        columns = bare_join(indices)
        found["grounding"] = time.perf_counter() - start
        values = [torch.rand(len(index)) for index in indices]
        start = time.perf_counter()
        for _ in range(ITERATIONS):
            bare_pass(columns, values)
        found["iteration"] = (time.perf_counter() - start) / ITERATIONS
        found["work"] = time.process_time() - work
        found["clauses"] = float(len(columns[0]))
    else:
        layer = LogicLayer(RULES[rules], {"entity": entities}, ITERATIONS, damping=0.5)
        layer.has_warned = True
        torch.manual_seed(0)
        logits = {name: (index, torch.randn(len(index)) - 2) for name, index in candidates.items()}
        with torch.no_grad():
            layer(logits, rest=float("-inf"))
            first, found["work"] = time.perf_counter() - start, time.process_time() - work
            start = time.perf_counter()
            layer(logits, rest=float("-inf"))
            again = time.perf_counter() - start
        found["grounding"], found["iteration"] = first - again, again / ITERATIONS
        (plan,) = layer.sparse_planner.kept
        found["clauses"] = float(plan.ground_clauses)
        found["memory"] = peak_memory()
        found["stated"], found["stated memory"] = plan.seconds(iterations=ITERATIONS), plan.memory() / 2**20
        return {**found, "candidates' memory": before}
    found["memory"] = peak_memory()
    found["candidates' memory"] = before
    return found


def in_own_processes(rules: str, entities: int, runs: int) -> list[dict[str, float]]:
    """Measure both ways in turns, each in new processes, and return the best of each figure."""
    results: dict[str, list[dict[str, float]]] = {"bare": [], "layer": []}
    for _ in range(runs):
        for way, measured in results.items():
            command = [sys.executable, __file__, "--measure", rules, str(entities), way]
            measured.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    return [{name: min(result[name] for result in measured) for name in measured[0]} for measured in results.values()]


def growth(sizes: list[int], runs: int) -> None:
    """Measure size by size; Ctrl-C ends it, and what was measured is shown. At 10^5 the best of several runs counts."""
    rows: dict[str, list[tuple[object, ...]]] = {rules: [] for rules in RULES}
    try:
        for entities in sizes:
            for rules in RULES:
                bare, ours = in_own_processes(rules, entities, runs if entities == 100_000 else 1)
                assert bare["clauses"] == ours["clauses"]
                rows[rules].append(_write_row(entities, bare, ours))
                print(rules, *rows[rules][-1], sep="\t", file=sys.stderr)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
    columns = (
        "entities",
        "candidates",
        "ground clauses",
        "join, s",
        "grounding, s",
        "pass, s",
        "iteration, s",
        f"call of {ITERATIONS}, times bare",
        "by processor time",
        "call, s",
        "stated, s",
        "µs a clause",
        "MB beside candidates",
        "MB, bare",
    )
    for rules, measured in rows.items():
        print_table(f"{rules}: {RULES[rules]}", columns, measured)


def _write_row(entities: int, bare: dict[str, float], ours: dict[str, float]) -> tuple[object, ...]:
    whole = [way["grounding"] + ITERATIONS * way["iteration"] for way in (bare, ours)]
    return (
        f"{entities:,}",
        f"{ours['candidates']:,.0f}",
        f"{ours['clauses']:,.0f}",
        bare["grounding"],
        ours["grounding"],
        bare["iteration"],
        ours["iteration"],
        whole[1] / whole[0],
        ours["work"] / bare["work"],
        whole[1],
        ours["stated"],
        1e6 * whole[1] / ours["clauses"],
        ours["memory"] - ours["candidates' memory"],
        bare["memory"] - bare["candidates' memory"],
    )


def infer_mined(name: str) -> dict[str, object]:
    """Mine the rules of a data set, choose options by hidden facts, infer what test asks for, and say what it took."""
    kb = rw.datasets.load(name)
    facts, start = kb.with_splits({}), time.perf_counter()
    rules = rw.RuleMiner(max_length=3, min_confidence=0.5).fit(facts).rules_
    mined = time.perf_counter()
    choice = rw.choose_options(rules, facts, seconds=60)
    chosen = time.perf_counter()
    (scope,) = rw.MarkovLogic(rules, **choice.options).fit(facts).predict(kb.split("test")).scopes
    return {
        "entities": f"{facts.n_entities:,}",
        "rules": len(rules),
        "candidates": f"{sum(scope.candidates.values()):,}",
        "at rest": f"{sum(scope.resting.values()):,}",
        "tried": len(choice.scores),
        "mining, s": mined - start,
        "choosing, s": chosen - mined,
        "inference, s": time.perf_counter() - chosen,
        "peak MB": peak_memory(),
    }


def known_graph(name: str) -> None:
    """Measure a data set from its facts to its answers, in a process of its own; at most 8 GB."""
    rw.datasets.locate(name)
    command = [sys.executable, "-W", "ignore", __file__, "--measure", "mined", name, "all"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    print_table(f"{name} with mined rules, end to end", tuple(found), [tuple(found.values())])


def dense(runs: int) -> None:
    torch.set_num_threads(1)
    size = 512
    layer = LogicLayer(RULES["transitivity"], iterations=ITERATIONS)
    logits, one, other = torch.randn(size, size), torch.rand(size, size), torch.rand(size, size)

    def products() -> None:
        for _ in range(3 * ITERATIONS):
            one @ other

    with torch.no_grad():
        bare, ours = in_turns(runs, products, lambda: layer({"r": logits}))
    rows = [(f"N = {size}", bare * 1e3, ours * 1e3, ours / bare, "at most 1.3")]
    print_table("Dense transitivity, 5 iterations (ms)", ("", "bare products", "layer", "ratio", "to reach"), rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--save")
    parser.add_argument("--measure", nargs=3, metavar=("RULES", "ENTITIES", "WAY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        what, size, way = options.measure
        print(json.dumps(infer_mined(size) if what == "mined" else measure(what, int(size), way)))
        sys.exit()
    print(machine(), "1 thread of torch, seed 0")
    dense(10 * options.runs)
    try:
        known_graph("wn18rr")
    except rw.RulewrightError:
        print("wn18rr is not here: rulewright data get wn18rr")
    growth(options.sizes, options.runs)
    save(options.save)
