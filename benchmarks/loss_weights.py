"""Which weight of a consistency loss is a good start: a grid of weights for each form, on three problems.

The problems are those of ``peers_networks.py``: a hierarchy of labels, BIO tags, and a transitive relation in graphs of
different sizes. A cell is the mean over seeds of the metric of validation samples, and how often their labels break a
rule in a sample.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from measure import machine, print_table, save
from peers import ours
from peers.problems import EXCLUSIVE, NEXT, PARENT, PROBLEMS, START, Problem, Split
from peers.training import Part, train
from torch import Tensor

import rulewright as rw

WEIGHTS = (0.01, 0.1, 1.0, 10.0, 100.0)
VARIANTS: Sequence[tuple[Literal["hinge", "violation", "log"], Literal["grounding", "sample"]]] = (
    ("hinge", "sample"),
    ("hinge", "grounding"),
    ("violation", "grounding"),
    ("log", "grounding"),
)


def make_part(
    problem: str, form: Literal["hinge", "violation", "log"], per: Literal["grounding", "sample"]
) -> Callable[[Tensor, Split], Tensor]:
    """Return the loss of a problem's rules."""
    known = {"hierarchy": {"parent": PARENT, "apart": EXCLUSIVE}, "bio": {"next": NEXT, "start": START}}
    rules = getattr(ours, f"{problem}_rules")()
    relations = ["same"] if problem == "graphs" else None
    loss = rw.ConsistencyLoss(rules, form=form, per=per, relations=relations, evidence=known.get(problem))
    if problem == "hierarchy":
        return lambda logits, split: loss({"label": logits})
    if problem == "bio":
        return lambda logits, split: loss({"tag": logits}, mask={"token": split.mask})
    return lambda logits, split: loss(logits.unsqueeze(-1), split.mask)


def try_weight(problem: Problem, part: Part | None, weight: float, seeds: int) -> tuple[float, float]:
    """Return the metric and the violations of validation samples, means over seeds."""
    found = []
    for seed in range(seeds):
        training, validation, _ = problem.make_splits(seed)

        def loss(logits: Tensor, split: Split) -> Tensor:
            task = problem.task_loss(logits, split)
            return task if part is None else task + weight * part(logits, split)

        network = train(problem, training, seed, loss)
        with torch.no_grad():
            labels = problem.predict(network(validation.features))
        found.append((problem.validate(labels, validation), problem.count_violations(labels, validation)))
    return statistics.mean(value for value, _ in found), statistics.mean(count for _, count in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = ("hierarchy", "bio", "graphs")
    parser.add_argument("--problems", nargs="+", choices=names, default=names)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--save", metavar="FILE", help="write the tables as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(machine())
    for name in options.problems:
        problem = PROBLEMS[name]
        alone = try_weight(problem, None, 0.0, options.seeds)
        rows = []
        for form, per in VARIANTS:
            part = make_part(name, form, per)
            cells = [alone, *(try_weight(problem, part, weight, options.seeds) for weight in WEIGHTS)]
            rows.append((f"{form}, per {per}", *(f"{value:.3f} ({count:.2f})" for value, count in cells)))
        columns = ("metric (violations)", "alone", *(f"weight {weight:g}" for weight in WEIGHTS))
        print_table(problem.title, columns, rows)
    save(options.save)


if __name__ == "__main__":
    main()
