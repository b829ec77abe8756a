"""A graph of your own without a flag, beside mining tuned for it: python benchmarks/own_graph.py [--graphs NAME …].

For each graph, written to a file of triples: ``rulewright learn``, ``rulewright evaluate --holdout 0.1`` and
``rulewright complete``, each a process of its own, with its seconds and its peak memory. Beside them the mean
reciprocal rank on the same held-out facts of mining with the options that rank best on other facts, held out of what
is left: lengths, cut-offs, constants and aggregations are tried one by one, the held-out facts are asked once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from measure import print_table, save

import rulewright as rw
from rulewright.data.generators import encyclopedia, family, nations
from rulewright.datasets import load
from rulewright.evaluate.ranking import evaluate_ranking
from rulewright.reason.ranking import RuleRanker

GRAPHS = ("family", "nations", "encyclopedia", "umls", "wn18rr", "fb15k237")
HOLDOUT = 0.1
MOST_QUERIES = 2000  # that options are chosen on
LENGTH_TWO = ("nations", "fb15k237")  # graphs with too many walks of three steps to try these


def make_graph(name: str) -> rw.KnowledgeBase:
    """Return a generated graph, or all facts of a data set: a filter can only know the facts that are in the file."""
    match name:
        case "family":
            return family(3000, missing=0.1, noise=0.02, seed=1).kb
        case "nations":
            return nations(seed=1).kb
        case "encyclopedia":
            return encyclopedia(3000, missing=0.1, noise=0.02, seed=1).kb
    whole = load(name)
    for part in whole.splits.values():
        whole = whole.add(part)
    return whole


def write_relations(kb: rw.KnowledgeBase, path: Path) -> None:
    """Write the facts that are triples; a file of triples has no unary facts."""
    rows = (
        f"{values[0]}\t{name}\t{values[1]}\n"
        for name, declaration in kb.predicates.items()
        if declaration.arity == 2
        for values in kb.tuples(name)
    )
    path.write_text("".join(rows), encoding="utf-8")


def measure(*command: str) -> tuple[float, float, str]:
    """Run a command; return its seconds, its peak memory in megabytes and what it printed."""
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen([sys.executable, "-m", "rulewright", *command], stdout=output)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        printed = output.read()
    if process.returncode:
        raise SystemExit(f"rulewright {' '.join(command)} ended with {process.returncode}")
    return time.perf_counter() - start, usage.ru_maxrss / 1024, printed


TRIALS: Mapping[str, Sequence[Any]] = {
    "max_length": (2, 1, 3),
    "constants": (True, False),
    "min_confidence": (0.05, 0.01, 0.2),
    "min_support": (2, 5),
    "confidence": ("beta", "pairs"),
    "aggregation": ("max-plus", "noisy-or", "max"),
}
"""The values to try, in this order; the first of each is where the search begins."""


def rank_held_out(options: Mapping[str, Any], kept: rw.KnowledgeBase, out: rw.KnowledgeBase) -> float:
    """Mine what is kept and return the mean reciprocal rank of what is held out."""
    mining = {name: value for name, value in options.items() if name != "aggregation"}
    ranker = RuleRanker.of(rw.RuleMiner(**mining).fit(kept).rules_, kept, aggregation=options["aggregation"])
    return float(evaluate_ranking(ranker, kept.with_splits({"test": out})).mrr)


def tune(kb: rw.KnowledgeBase, longest: int) -> tuple[float, str]:
    """Choose options on a second hold-out; return the rank of the first, and what was chosen."""
    kept, out = kb.hold_out(HOLDOUT, predicates=list(kb.predicates), keep_names=True)  # as evaluate does
    fewer, chosen_on = kept.hold_out(HOLDOUT, seed=1, keep_names=True)
    if chosen_on.n_facts > MOST_QUERIES:
        chosen_on = chosen_on.hold_out(MOST_QUERIES / chosen_on.n_facts)[1]
    best = {name: values[0] for name, values in TRIALS.items()}
    best_rank = rank_held_out(best, fewer, chosen_on)
    for name, values in TRIALS.items():
        for value in values[1:]:
            if name == "max_length" and value > longest:
                continue
            rank = rank_held_out({**best, name: value}, fewer, chosen_on)
            if rank > best_rank:
                best, best_rank = {**best, name: value}, rank
    text = ", ".join(f"{name} {value}" for name, value in best.items())
    return rank_held_out(best, kept, out), text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="*", default=GRAPHS, choices=GRAPHS)
    parser.add_argument("--no-tuning", action="store_true", help="leave out the tuned mining")
    parser.add_argument("--save", help="write the tables here as JSON")
    arguments = parser.parse_args()
    rows, tuned = [], []
    for name in arguments.graphs:
        kb = make_graph(name)
        with tempfile.TemporaryDirectory() as folder:
            facts, rules = Path(folder, "graph.tsv"), Path(folder, "graph.rules")
            write_relations(kb, facts)
            kb = rw.read_facts(facts)
            learning = measure("learn", str(facts), "-o", str(rules))
            evaluating = measure("evaluate", str(facts), "--holdout", str(HOLDOUT), "--json")
            completing = measure("complete", str(rules), str(facts), "--json")
        mrr = json.loads(evaluating[2])["mrr"]
        seconds = (round(run[0], 1) for run in (learning, evaluating, completing))
        memory = round(max(run[1] for run in (learning, evaluating, completing)))
        rows.append((name, kb.n_facts, *seconds, memory, mrr))
        print_table(name, ("graph", "facts", "learn s", "evaluate s", "complete s", "peak MB", "MRR"), rows[-1:])
        if not arguments.no_tuning:
            best, text = tune(kb, 2 if name in LENGTH_TWO else 3)
            tuned.append((name, mrr, best, mrr - best, text))
            print_table(name, ("graph", "bare", "tuned", "difference", "options"), tuned[-1:])
    print_table("all", ("graph", "facts", "learn s", "evaluate s", "complete s", "peak MB", "MRR"), rows)
    if tuned:
        print_table("all", ("graph", "bare", "tuned", "difference", "options"), tuned)
    save(arguments.save)


if __name__ == "__main__":
    main()
