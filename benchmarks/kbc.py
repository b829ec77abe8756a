"""Completing generated graphs as they grow, and real ones beside PyKEEN: python benchmarks/kbc.py [--sizes N …].

Time (of one core) and memory of finding paths, learning weights and ranking, for graphs of 10^4, 10^5, 10^6 facts
(10^7 by --sizes). Where PyKEEN is installed, --pykeen trains one of its models for as long as ours learned, and the
same evaluator ranks.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time

import numpy as np
from measure import machine, peak_memory, print_table, save

from rulewright import KnowledgeBase, datasets
from rulewright.data import Domain
from rulewright.engine.walks import Graph, HiddenEdges
from rulewright.evaluate.ranking import evaluate_ranking
from rulewright.learn.path_mixture.learner import PathMixture
from rulewright.learn.path_mixture.paths import find_paths
from rulewright.logic import PredicateDeclaration

QUESTIONS = 200


def generated(facts: int, relations: int = 20, seed: int = 0) -> KnowledgeBase:
    """Return a random graph in which the last relation is the composition of the first two, nine times in ten."""
    random = np.random.default_rng(seed)
    entities = max(facts // 5, 50)
    each = facts // relations
    columns = {
        f"r{number}": [random.integers(entities, size=each, dtype=np.int32) for _ in range(2)]
        for number in range(relations - 1)
    }
    first, second = columns["r0"], columns["r1"]
    order = np.argsort(second[0], kind="stable")
    place = np.minimum(np.searchsorted(second[0][order], first[1]), each - 1)
    meets = second[0][order][place] == first[1]
    head, tail = first[0][meets], second[1][order][place][meets]
    noise = random.random(len(tail)) < 0.1
    tail = np.where(noise, random.integers(entities, size=len(tail), dtype=np.int32), tail)
    columns[f"r{relations - 1}"] = [head, tail]
    domain = Domain("entity", [f"e{number}" for number in range(entities)])
    declared = [PredicateDeclaration(name, ("entity", "entity")) for name in columns]
    return KnowledgeBase.from_columns({"entity": domain}, declared, columns)


def growing(facts: int) -> dict[str, float]:
    whole = generated(facts)
    name = list(whole.predicates)[-1]
    kept, hidden = whole.hold_out(min(0.1, QUESTIONS / whole.count(name)), predicates=[name])
    kb = kept.with_splits({"test": hidden})
    graph = Graph(kb)
    before, after = graph.edges(2 * kb.predicate_index(name))
    start = time.process_time()
    found = find_paths(
        graph, HiddenEdges(2 * kb.predicate_index(name), before[:1000], after[:1000]), max_length=3, max_edges=100
    )
    paths = time.process_time()
    mixture = PathMixture(targets=[name], queries=500).fit(kb)
    learned = time.process_time()
    scores = evaluate_ranking(mixture, kb, memory_limit=2**27)
    ranked = time.process_time()
    return {
        "facts": whole.n_facts,
        "paths": len(found.paths),
        "finding": paths - start,
        "learning": learned - paths,
        "ranking": ranked - learned,
        "questions": len(scores),
        "mrr": scores.mrr,
        "memory": peak_memory(),
    }


class PyKEENScorer:
    """A trained model of PyKEEN behind our evaluator."""

    def __init__(self, model: object) -> None:
        self.model = model

    def scores(self, relation: str, entities: np.ndarray, *, inverse: bool = False) -> np.ndarray:
        """Return a row for each entity asked about."""
        import torch

        ids = torch.as_tensor(entities, dtype=torch.long)
        number = torch.full_like(ids, self.relations[relation])
        pairs = torch.stack([number, ids] if inverse else [ids, number], dim=1)
        score = self.model.score_h if inverse else self.model.score_t
        with torch.no_grad():  # every candidate takes a vector of its own, so a few questions at a time
            return torch.cat([score(each) for each in pairs.split(16)]).numpy().astype(float)

    relations: dict[str, int]


def pykeen(kb: KnowledgeBase, seconds: float, name: str) -> dict[str, float]:
    """Train one of PyKEEN's models for some seconds and rank with our evaluator."""
    import torch
    from pykeen.models import model_resolver
    from pykeen.training import SLCWATrainingLoop
    from pykeen.triples import CoreTriplesFactory

    facts = kb.tables()["ee"]
    columns = (facts.columns[0], facts.predicate, facts.columns[1])
    triples = torch.as_tensor(np.stack(columns, axis=1).astype(np.int64))
    factory = CoreTriplesFactory(triples, num_entities=kb.n_entities, num_relations=len(kb.predicates))
    model = model_resolver.make(name, triples_factory=factory, random_seed=0)
    loop = SLCWATrainingLoop(model=model, triples_factory=factory, optimizer=torch.optim.Adam(model.parameters(), 0.01))
    start = time.process_time()
    epochs = 0
    while time.process_time() - start < seconds:
        epochs += 1
        loop.train(
            triples_factory=factory,
            num_epochs=epochs,
            use_tqdm=False,
            batch_size=512,
            clear_optimizer=False,
            continue_training=epochs > 1,
        )
    scorer = PyKEENScorer(model.eval())
    scorer.relations = {each: kb.predicate_index(each) for each in kb.predicates}
    return evaluate_ranking(scorer, kb).figures()


def beside(dataset: str, name: str) -> list[tuple[object, ...]]:
    kb = datasets.load(dataset)
    start = time.process_time()
    mixture = PathMixture(max_length=2, constants=0).fit(kb)
    seconds = time.process_time() - start
    rows: list[tuple[object, ...]] = [
        (f"{dataset}, ours", round(seconds), *evaluate_ranking(mixture, kb).figures().values())
    ]
    if importlib.util.find_spec("pykeen") is None:
        print("PyKEEN is not installed; pip install pykeen sets it beside ours")
        return rows
    return [*rows, (f"{dataset}, {name}", round(seconds), *pykeen(kb, seconds, name).values())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[10**4, 10**5, 10**6], help="facts of the graphs")
    parser.add_argument("--sets", nargs="*", default=["umls"], help="data sets to rank beside PyKEEN")
    parser.add_argument("--pykeen", default="RotatE", help="the model of PyKEEN")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--save", metavar="FILE", help="write the tables as JSON")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(growing(options.one)))
        return
    print(machine())
    rows: list[tuple[object, ...]] = []
    for size in options.sizes:  # a process for each, for memory once held counts to its end
        command = [sys.executable, __file__, "--one", str(size)]
        rows.append(
            tuple(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout).values())
        )
    columns = ("facts", "paths", "finding, s", "learning, s", "ranking, s", "questions", "MRR", "memory, MB")
    print_table("one relation of a generated graph: paths up to length 3, learning, ranking", columns, rows)
    figures = ("MRR", "Hits@1", "Hits@3", "Hits@10")
    rows = [row for each in options.sets for row in beside(each, options.pykeen)]
    print_table("filtered ranks on test, equal time", ("", "s", *figures), rows)
    save(options.save)


if __name__ == "__main__":
    main()
