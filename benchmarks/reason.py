"""Applying mined rules and proving what they give, on fb15k237: python benchmarks/reason.py [--save FILE].

To reach: applying all mined rules once at most 2× the bare SQL joins; the 95th percentile of a proof under 1 % of the
time of a full application. Two kinds of bare joins are measured: one hand-written SELECT DISTINCT for every rule, and
one for all rules of a shape over a table of rules, which is the strongest that we know to write by hand. Neither looks
up what is known, keeps scores, or brings the rules of a fact together.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections import defaultdict
from pathlib import Path

import duckdb
import numpy as np
from measure import in_turns, machine, print_table, save

from rulewright import KnowledgeBase, RuleMiner, RuleSet, apply, read_facts
from rulewright.logic import Chain
from rulewright.reason import Explainer
from rulewright.reason.proofs import fact_dict


def sides(steps: int, inverse: list[bool], apart: bool) -> tuple[str, str]:
    """Write the ends of a path over tables f0, f1, … and its joins, by hand."""
    near = [f"f{i}.{'t' if inverse[i] else 'h'}" for i in range(steps)]
    far = [f"f{i}.{'h' if inverse[i] else 't'}" for i in range(steps)]
    joins = [f"{far[i]} = {near[i + 1]}" for i in range(steps - 1)]
    joins += [f"{near[0]} <> {far[-1]}"] if apart else []
    return f"{near[0]} AS x, {far[-1]} AS z", " AND ".join(["true", *joins])


def chains(rules: RuleSet) -> list[Chain]:
    return [chain for rule in rules.rules if (chain := Chain.of(rule)) is not None and chain.is_closed]


def one_statement_each(connection: duckdb.DuckDBPyConnection, kb: KnowledgeBase, rules: RuleSet) -> int:
    rows = 0
    for chain in chains(rules):
        size = len(chain.steps)
        ends, joins = sides(size, [step.inverse for step in chain.steps], chain.apart)
        tables = ", ".join(f"f AS f{i}" for i in range(size))
        chosen = " AND ".join(
            f"f{place}.r = {kb.predicate_index(step.relation)}" for place, step in enumerate(chain.steps)
        )
        found = connection.execute(f"SELECT DISTINCT {ends} FROM {tables} WHERE {chosen} AND {joins}").fetchnumpy()
        rows += len(found["x"])
    return rows


def one_statement_a_shape(connection: duckdb.DuckDBPyConnection, kb: KnowledgeBase, rules: RuleSet) -> int:
    shapes: dict[tuple[tuple[bool, ...], bool], list[tuple[int, ...]]] = defaultdict(list)
    for index, chain in enumerate(chains(rules)):
        relations = (kb.predicate_index(step.relation) for step in chain.steps)
        shapes[tuple(step.inverse for step in chain.steps), chain.apart].append((index, *relations))
    rows = 0
    for (inverse, apart), listed in shapes.items():
        table = np.array(listed)
        connection.register("incoming", {f"c{place}": table[:, place] for place in range(table.shape[1])})
        connection.execute("CREATE OR REPLACE TABLE rule AS SELECT * FROM incoming")
        ends, joins = sides(len(inverse), [*inverse], apart)
        tables = ", ".join(f"f AS f{i}" for i in range(len(inverse)))
        chosen = " AND ".join(f"f{place}.r = rule.c{place + 1}" for place in range(len(inverse)))
        found = connection.execute(
            f"SELECT DISTINCT rule.c0 AS n, {ends} FROM rule, {tables} WHERE {chosen} AND {joins}"
        ).fetchnumpy()
        rows += len(found["x"])
    return rows


def proving(
    rules: RuleSet, kb: KnowledgeBase, count: int, runs: int, full: float, seed: int
) -> list[tuple[object, ...]]:
    """Time the best proof of facts that the rules give, and why others are not given.

    Every proof must rest on known facts. Times are the best of several runs, each with a new explainer.
    """
    inferred = apply(rules, kb, max_rounds=1)
    chance = random.Random(seed)
    facts = [inferred[index] for index in chance.sample(range(len(inferred)), count)]
    given = [(fact.predicate, *fact.args) for fact in facts]
    others = [(fact.predicate, facts[index - 1].args[0], fact.args[1]) for index, fact in enumerate(facts)]
    rows = []
    for name, goals in (("why a fact follows", given), ("why another may not", others)):
        times = np.full((runs, len(goals)), np.inf)
        for run in range(runs):
            with Explainer(rules, kb) as explainer:
                for index, goal in enumerate(goals):
                    start = time.perf_counter()
                    explanation = explainer.explain(goal, depth=1)
                    times[run, index] = time.perf_counter() - start
                    for proof in explanation.proofs if run == 0 else ():
                        leaves = map(fact_dict, proof.leaves())
                        assert all(kb.contains(leaf["predicate"], *leaf["args"]) for leaf in leaves)
        p50, p95, slowest = np.percentile(times.min(axis=0), [50, 95, 100]).tolist()
        rows.append((name, len(goals), p50, p95, slowest, 100 * p95 / full))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--proofs", type=int, default=200)
    parser.add_argument("--min-confidence", type=float, default=0.1)
    parser.add_argument("--min-support", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", metavar="FILE", help="write the tables as JSON")
    options = parser.parse_args()
    graph = Path(os.environ.get("RULEWRIGHT_DATA", "../shared/data"), "kbc", "fb15k237")
    if not graph.exists():
        raise SystemExit(f"fb15k237 is not at {graph}; set RULEWRIGHT_DATA to where it is")
    print(machine())
    kb = read_facts(graph)
    miner = RuleMiner(
        max_length=2, min_confidence=options.min_confidence, min_support=options.min_support, constants=False
    )
    rules = miner.fit(kb).rules_
    table = kb.tables()["ee"]
    with duckdb.connect() as connection:
        connection.register("incoming", {"r": table.predicate, "h": table.columns[0], "t": table.columns[1]})
        connection.execute("CREATE TABLE f AS SELECT * FROM incoming")
        assert one_statement_each(connection, kb, rules) == one_statement_a_shape(connection, kb, rules)
        each, shape, ours = in_turns(
            options.runs,
            lambda: one_statement_each(connection, kb, rules),
            lambda: one_statement_a_shape(connection, kb, rules),
            lambda: apply(rules, kb, max_rounds=1),
        )
    print_table(
        f"applying {len(rules):,} rules once to {kb.n_facts:,} facts of fb15k237, best of {options.runs}",
        ("bare SQL joins", "by hand, s", "ours, s", "ratio"),
        [
            ("a statement for each rule", each, ours, ours / each),
            ("a statement for each shape", shape, ours, ours / shape),
        ],
    )
    print_table(
        f"proofs one rule deep, best of {options.runs}, seed {options.seed}",
        ("", "facts", "median, s", "95 %, s", "slowest, s", "95 % of a full application, %"),
        proving(rules, kb, options.proofs, options.runs, ours, options.seed),
    )
    save(options.save)


if __name__ == "__main__":
    main()
