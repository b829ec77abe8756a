"""Does training pay? NLIL trained, untrained with as many draws, and untrained with as much time.

    python benchmarks/nlil_training.py [--sets …] [--seeds N] [--save FILE] [--checkpoints FOLDER]

The same options and seeds throughout. "As much time" draws in more rounds, by how much longer the trained run took, and
so ends a little before or after. Figures are means ± standard errors over the seeds; CPU seconds are of learning alone.
Runs that are done are kept and not repeated. Sets other than even numbers need ``RULEWRIGHT_DATA``.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import measure

from rulewright import datasets
from rulewright.data.generators import even_successor
from rulewright.evaluate.ranking import evaluate_ranking
from rulewright.learn.nlil.completion import NLILCompletion
from rulewright.learn.nlil.learner import NLILLearner
from rulewright.learn.path_mixture.learner import PathMixture
from rulewright.papers.nlil.scenes import choose_images


def solve_even(seed: int, options: Mapping[str, Any]) -> tuple[float, float]:
    """Return whether both rules of even numbers were found, and the CPU seconds."""
    kb = even_successor(50).kb
    began = time.process_time()
    learner = NLILLearner(
        targets="even", levels=0, seeds=0, held_out=0, min_support=1, min_precision=1.0, seed=seed, **options
    ).fit(kb)
    spent = time.process_time() - began
    wanted = {"even(X0) :- zero(X0).", "even(X0) :- even(X1), succ(X1, X2), succ(X2, X0)."}
    return float({str(rule.canonical()) for rule in learner.rules_.rules} == wanted), spent


def complete_graph(name: str, weighing: Mapping[str, Any]) -> Callable[[int, Mapping[str, Any]], tuple[float, float]]:
    """Return what completes a graph: MRR on valid."""

    def complete(seed: int, options: Mapping[str, Any]) -> tuple[float, float]:
        kb = datasets.load(name)
        began = time.process_time()
        learner = NLILLearner(levels=0, seeds=1, seed=seed, **options)
        completion = NLILCompletion(learner=learner, mixture=PathMixture(seed=seed, **weighing)).fit(kb)
        spent = time.process_time() - began
        return evaluate_ranking(completion, kb, split="valid").mrr, spent

    return complete


def classify_objects(seed: int, options: Mapping[str, Any]) -> tuple[float, float]:
    """Return R@1 of VRD's test objects, learned from a tenth of the training images."""
    kb = datasets.load("vrd")
    train = choose_images(kb, 0.1, seed)
    classes = [name for name in train.predicates if len(train.predicate(name).types) == 1 and train.count(name)]
    began = time.process_time()
    learner = NLILLearner(
        targets=classes,
        exclusive=True,
        max_predicates=20,
        max_length=6,
        max_rules=1000,
        refit=True,
        seed=seed,
        **options,
    ).fit(train)
    spent = time.process_time() - began
    return learner.classify(kb.split("test")).recall(1), spent


SETS: Mapping[str, tuple[str, Callable[[int, Mapping[str, Any]], tuple[float, float]], Mapping[str, Any]]] = {
    "even numbers": ("found", solve_even, {"layers": 1, "slots": 13, "rounds": 12}),
    "vrd, few draws": ("R@1", classify_objects, {"layers": 1, "levels": 0, "rounds": 3, "samples": 10}),
    "vrd, combined": ("R@1", classify_objects, {"layers": 1, "levels": 1, "rounds": 4, "samples": 20}),
    "umls, few draws": (
        "MRR",
        complete_graph("umls", {"queries": 300, "candidates": 135}),
        {"steps": 1, "layers": 1, "slots": 8, "rounds": 2, "samples": 15, "max_facts": 200, "max_edges": 30},
    ),
    "umls": (
        "MRR",
        complete_graph("umls", {"queries": 300, "candidates": 135}),
        {"steps": 1, "layers": 1, "slots": 16, "rounds": 3, "samples": 40, "max_facts": 200, "max_edges": 30},
    ),
    "wn18rr": (
        "MRR",
        complete_graph("wn18rr", {"queries": 1000, "candidates": 300}),
        {"steps": 2, "layers": 1, "slots": 16, "rounds": 2, "samples": 20, "max_facts": 400, "max_edges": 30},
    ),
}


def run_kept(
    path: Path, run: Callable[[int, Mapping[str, Any]], tuple[float, float]], seed: int, options: Mapping[str, Any]
) -> tuple[float, float]:
    """Return the figures of a run, from its file where it was done before."""
    if not path.exists():
        figure, seconds = run(seed, options)
        path.write_text(json.dumps([figure, seconds]))
    figure, seconds = json.loads(path.read_text())
    return figure, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=[*SETS], choices=[*SETS])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--checkpoints", type=Path, default=Path("build/nlil_training"))
    parser.add_argument("--save", help="where to write the table as JSON")
    arguments = parser.parse_args()
    arguments.checkpoints.mkdir(parents=True, exist_ok=True)
    rows: list[list[object]] = []
    for name in arguments.sets:
        figure, run, options = SETS[name]
        found: dict[str, list[tuple[float, float]]] = {}
        for seed in range(arguments.seeds):
            file = arguments.checkpoints / f"{name.replace(',', '').replace(' ', '_')}_{seed}"
            trained = run_kept(file.with_suffix(".trained"), run, seed, options)
            drawn = run_kept(file.with_suffix(".drawn"), run, seed, {**options, "epochs": 0})
            longer = {**options, "epochs": 0, "rounds": max(1, round(options["rounds"] * trained[1] / drawn[1]))}
            timed = run_kept(file.with_suffix(".timed"), run, seed, longer)
            for row, pair in (("trained", trained), ("untrained", drawn), ("untrained, as much time", timed)):
                found.setdefault(row, []).append(pair)
        for row, pairs in found.items():
            figures, seconds = zip(*pairs, strict=True)
            error = statistics.stdev(figures) / math.sqrt(len(figures)) if len(figures) > 1 else 0.0
            mean = f"{statistics.mean(figures):.4f} ± {error:.4f}"
            rows.append([name, row, figure, mean, f"{statistics.mean(seconds):.1f}"])
    columns = ["set", "generator", "figure", "mean ± s.e.", "CPU s"]
    measure.print_table(f"training NLIL, {arguments.seeds} seeds", columns, rows)
    measure.save(arguments.save)


if __name__ == "__main__":
    main()
