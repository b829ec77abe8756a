"""Rules of growing length, batches on growing graphs, and memory: python benchmarks/nlil.py [--save FILE].

Time of one epoch of training against the number of atoms that a rule can have: with L levels of combinations over paths
of T operators, ``n = T · 2^L``; beside it a chain-only learner (NeuralLP's form: one chain of n operators, walked
with the same frontiers). Then the cost of a batch against the entities of the graph and against the steps that the
batch touches, and the memory that training on WN18 takes.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time

import numpy as np
import torch
from measure import best_of, machine, peak_memory, print_table, save

from rulewright import KnowledgeBase, datasets
from rulewright.data import Domain
from rulewright.errors import RulewrightError
from rulewright.learn.nlil.choices import RuleShape, choose_predicates
from rulewright.learn.nlil.facts import FactGraph
from rulewright.learn.nlil.generator import Generator, score_questions
from rulewright.learn.nlil.questions import LearningTask
from rulewright.logic import PredicateDeclaration

STEPS = 2
LENGTHS = (2, 4, 8, 16, 32)


def graph_of(entities: int, degree: float = 3.0, relations: int = 10, seed: int = 0) -> KnowledgeBase:
    """Return a random graph with a unary target and a unary predicate beside it."""
    random = np.random.default_rng(seed)
    facts = round(entities * degree / relations)
    columns = {
        f"r{relation}": [random.integers(entities, size=facts, dtype=np.int32) for _ in range(2)]
        for relation in range(relations)
    }
    columns |= {name: [random.permutation(entities)[: entities // 5].astype(np.int32)] for name in ("target", "mark")}
    declared = [PredicateDeclaration(name, ("entity",) * len(arguments)) for name, arguments in columns.items()]
    names = [f"e{entity}" for entity in range(entities)]
    return KnowledgeBase.from_columns({"entity": Domain("entity", names)}, declared, columns)


class Epoch:
    """One epoch of training a generator, as the learner does it."""

    def __init__(self, kb: KnowledgeBase, shape: RuleShape, questions: int = 1024, batch: int = 256) -> None:
        torch.manual_seed(0)
        self.task = LearningTask.for_targets(FactGraph(kb), ("target",))
        every = self.task.all_questions()
        some = np.sort(np.random.default_rng(0).permutation(len(every))[:questions])
        self.questions = every.take(some)
        self.batch = batch
        weights = np.ones(self.questions.truth.shape)
        choices = choose_predicates(
            self.task, self.questions, weights, shape, slots=1, seeds=0, most=30, max_edges=None, seed=0
        )
        self.generator = Generator(choices, shape)
        self.builder = choices.builder(self.task, shape)
        self.optimizer = torch.optim.Adam(self.generator.parameters())
        self.touched = 0

    def __call__(self) -> None:
        """Run it."""
        self.touched = 0
        for low in range(0, len(self.questions), self.batch):
            rows = np.arange(low, min(low + self.batch, len(self.questions)))
            evidence = self.builder.build(self.questions.take(rows).arguments, self.task.hidden)
            self.touched += evidence.n_touched
            odds = self.generator.log_odds(score_questions(self.generator(), evidence))
            truth = torch.from_numpy(self.questions.truth[rows]).float()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(odds, truth)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


def lengths(runs: int) -> None:
    """Print the time of an epoch for rules of growing length, by levels and by one longer chain."""
    kb = graph_of(400, degree=2.0)
    rows = []
    first: list[float] = []
    for length in LENGTHS:
        levels = math.ceil(math.log2(length / STEPS))
        ours = Epoch(kb, RuleShape(steps=STEPS, levels=levels, combinations=4))
        chain = Epoch(kb, RuleShape(steps=length, levels=0))
        ours()
        chain()
        times = [best_of(runs, ours), best_of(runs, chain)]
        first = first or times
        rows.append((length, levels, times[0], times[0] / first[0], times[1], times[1] / first[1]))
    columns = ("atoms", "levels", "s an epoch", "times the first", "chain only, s", "times the first")
    print_table(f"Rules of growing length; {machine()}", columns, rows)


def batches(runs: int) -> None:
    """Print the cost of an epoch on growing graphs of one degree, and on one graph of growing degree."""
    shape = RuleShape(steps=2, levels=1)
    rows = []
    for entities, degree in ((10_000, 3.0), (100_000, 3.0), (1_000_000, 3.0), (10_000, 6.0), (10_000, 12.0)):
        epoch = Epoch(graph_of(entities, degree), shape)
        epoch()
        seconds = best_of(runs, epoch)
        rows.append((f"{entities:,}", degree, epoch.touched, seconds, 1e6 * seconds / epoch.touched))
    columns = ("entities", "facts an entity", "steps touched", "s an epoch", "µs a step")
    print_table("1,024 questions on growing graphs", columns, rows)


def memory() -> None:
    """Print the memory that learning one relation of WN18 takes, in a process of its own."""
    found = subprocess.run(
        [sys.executable, __file__, "--only-memory"], capture_output=True, text=True, check=True
    ).stdout
    print_table("WN18, the rules of '_hypernym'", ("what", "MB or s"), list(json.loads(found).items()))


def measured_memory() -> dict[str, float]:
    from rulewright.learn.nlil.completion import NLILCompletion
    from rulewright.learn.nlil.learner import NLILLearner

    try:
        kb = datasets.load("wn18")
    except RulewrightError as error:
        return {f"not measured: {error}": 0.0}
    before, began = peak_memory(), time.perf_counter()
    learner = NLILLearner(steps=1, levels=0, slots=7, layers=1, epochs=4, max_edges=30, max_facts=500)
    NLILCompletion(learner=learner, targets=["_hypernym"]).fit(kb)
    return {
        "peak memory with the facts read": before,
        "peak memory after learning": peak_memory(),
        "seconds": time.perf_counter() - began,
        "entities × predicates as one dense batch of 256, for comparison": 256 * kb.n_entities * 18 * 4 / 2**20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--save", metavar="FILE")
    parser.add_argument("--only-memory", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.only_memory:
        print(json.dumps(measured_memory()))
        return
    lengths(options.runs)
    batches(options.runs)
    memory()
    save(options.save)


if __name__ == "__main__":
    main()
