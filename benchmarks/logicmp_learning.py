"""How Markov logic's encoders learn, AUC-PR by seconds of training: python benchmarks/logicmp_learning.py.

The paper's Figures 8 and 17 on the parts of UW-CSE that are public, in the mean over them. A graph network is trained
through the layer and, beside it, on grounding scores, each anew for every number of epochs and with the options that
the experiment chose by observed facts, from ``results``. Nothing is chosen by these figures.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from measure import machine, print_table, save

import rulewright as rw
from rulewright.evaluate.classification import evaluate_classification
from rulewright.papers.catalogue import find_experiment

RESULTS = Path(__file__).parents[1] / "results"
QUERIES = "queries"
EPOCHS = (0, 1, 2, 5, 10, 20, 40, 80)
WAYS: dict[str, dict[str, Any]] = {
    "encoder with the layer": {"training": "distill"},
    "encoder trained on grounding scores": {"training": "scores", "iterations": 0},
}


def learned(name: str, part: str, options: dict[str, Any]) -> tuple[float, float]:
    """Return the AUC-PR of a part's queries and the seconds of training."""
    kb = rw.datasets.load(name, part)
    gold = kb.split(QUERIES)
    started = time.perf_counter()
    model = rw.MarkovLogic(rw.datasets.rules_of(name, part), **options).fit(kb.with_splits({}))
    seconds = time.perf_counter() - started
    scores = {(answer.predicate, tuple(map(str, answer.args))): answer.logit for answer in model.predict(gold)}
    return evaluate_classification(scores, gold).auc_pr, seconds


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", default="uw_cse", choices=("kinship", "uw_cse", "cora"))
    parser.add_argument("--epochs", type=int, nargs="+", default=EPOCHS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(machine(), "1 thread")
    settings: Any = find_experiment(f"logicmp/{given.set}").settings
    chosen = json.loads((RESULTS / f"logicmp_{given.set}_0.json").read_text())["options"]
    learned(settings["set"], settings["parts"][0], chosen)  # so that nothing is loaded while training is timed
    rows: list[list[object]] = []
    for epochs in given.epochs:
        row: list[object] = [f"{epochs} epochs"]
        for changes in WAYS.values():
            asked = {**changes, "epochs": epochs, "encoder": "gnn", "seed": given.seed}
            options = {**chosen, **settings["encoder"], **asked}
            figures = [learned(settings["set"], part, options) for part in settings["parts"]]
            row += [mean(seconds for _, seconds in figures), mean(score for score, _ in figures)]
        rows.append(row)
        print(*row, flush=True)
    columns = ["", *(f"{way}: {figure}" for way in WAYS for figure in ("s", "AUC-PR"))]
    print_table(f"{settings['set']}, AUC-PR by seconds of training, seed {given.seed}", columns, rows)
    save(given.save)
