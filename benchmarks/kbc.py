"""Completing generated graphs as they grow, and real ones beside PyKEEN: python benchmarks/kbc.py [--sizes N …].

Time (of one core) and memory of finding paths, learning weights and ranking, for graphs of 10^4, 10^5, 10^6 facts
(10^7 by --sizes), and of dense graphs and of hubs by the defaults. Where PyKEEN is installed, --pykeen trains one of
its models for as long as ours learned, and the same evaluator ranks. --before COMMIT learns and ranks real sets by the
code of another commit too, with the options of its `papers/lnn/experiments.toml`, and by ours with the same; what our
own options cost, the runs in `results` say.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
from measure import machine, peak_memory, print_table, save

from rulewright import KnowledgeBase, datasets
from rulewright.data import Domain
from rulewright.data.generators import nations
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


LEARN_AND_RANK = """
import json, resource, sys, time
from pathlib import Path
from rulewright import datasets
from rulewright.evaluate.ranking import evaluate_ranking
from rulewright.learn.path_mixture.learner import PathMixture

def used():
    parts = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in parts)

if __name__ == "__main__":
    name, options = sys.argv[1], json.loads(sys.argv[2])
    kb = datasets.load(name)
    cpu, start = used(), time.perf_counter()
    mixture = PathMixture(processes=2, **options).fit(kb)
    mrr = evaluate_ranking(mixture, kb, "test").mrr
    cpu, seconds = used() - cpu, time.perf_counter() - start
    status = Path("/proc/self/status").read_text().splitlines()
    own = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    memory = max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) / 1024
    rules = sum(len(target.table) for target in mixture.learned_.values())
    print(json.dumps([cpu, seconds, memory, mrr, rules]))
"""
AS_BEFORE = {"conjunctions": 0, "popularity": False, "drawn": 0, "missing": 0.0}
"""What was not there before."""
SETTINGS = "src/rulewright/papers/lnn/experiments.toml"


def learn_and_rank(dataset: str, options: dict[str, Any], source: Path) -> tuple[float, ...]:
    """Return CPU seconds of all processes, seconds, the largest process in MB, test MRR and rules, by a tree's code."""
    with tempfile.TemporaryDirectory() as folder:  # processes of a pool read the program anew, so it is a file
        program = Path(folder, "learn_and_rank.py")
        program.write_text(LEARN_AND_RANK, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(source / "src"), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(program), dataset, json.dumps(options)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return tuple(json.loads(done.stdout.splitlines()[-1]))


def against(commit: str, sets: list[str]) -> list[tuple[object, ...]]:
    """Return a row for the code of a commit and one for ours, by the options that it has for each set."""
    here = Path(__file__).resolve().parent.parent
    rows: list[tuple[object, ...]] = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "before")
        subprocess.run(["git", "-C", str(here), "worktree", "add", "--detach", str(tree), commit], check=True)
        try:
            theirs = tomllib.loads((tree / SETTINGS).read_text(encoding="utf-8"))
            learn_and_rank("umls", {"max_length": 1}, here)  # compiles once, for all that follow
            for dataset in sets:
                options = theirs[dataset]["options"]
                before = learn_and_rank(dataset, options, tree)
                same = learn_and_rank(dataset, {**options, **AS_BEFORE}, here)
                for label, row in (("before", before), ("now", same)):
                    rows.append((f"{dataset}, {label}", row[0], row[0] / before[0], *row[1:]))
                    print(*rows[-1], flush=True)
        finally:
            subprocess.run(["git", "-C", str(here), "worktree", "remove", "--force", str(tree)], check=True)
    return rows


def of_hubs(spokes: int = 20_000, hubs: int = 5, seed: int = 0) -> KnowledgeBase:
    """Return a graph in which nearly all facts are about a few entities."""
    random = np.random.default_rng(seed)
    facts = [(f"s{i}", f"r{k}", f"h{random.integers(hubs)}") for i in range(spokes) for k in range(3)]
    facts += [(f"s{i}", "next", f"s{(i + 1) % spokes}") for i in range(spokes)]
    return KnowledgeBase.from_triples(facts)


SHAPES = {"dense": lambda: nations(seed=1).kb, "hubs": of_hubs}


def by_defaults(shape: str) -> dict[str, float]:
    """Learn a generated graph without options, and rank a tenth of it that was held out."""
    whole = SHAPES[shape]()
    kept, hidden = whole.hold_out(min(0.1, 500 / whole.n_facts))
    kb = kept.with_splits({"test": hidden})
    start = time.perf_counter()
    mixture = PathMixture().fit(kb)
    learned = time.perf_counter()
    scores = evaluate_ranking(mixture, kb)
    ranked = time.perf_counter()
    return {
        "entities": kb.n_entities,
        "relations": len(kb.predicates),
        "facts": kb.n_facts,
        "learning": learned - start,
        "ranking": ranked - learned,
        "mrr": scores.mrr,
        "memory": peak_memory(),
    }


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
    parser.add_argument("--before", metavar="COMMIT", help="learn and rank by the code of this commit too")
    parser.add_argument(
        "--before-sets", nargs="*", default=["umls", "kinship", "wn18rr", "fb15k237"], help="which sets"
    )
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--shape", choices=list(SHAPES), help=argparse.SUPPRESS)
    parser.add_argument("--save", metavar="FILE", help="write the tables as JSON")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(growing(options.one)))
        return
    if options.shape:
        print(json.dumps(by_defaults(options.shape)))
        return
    print(machine())
    if options.before:
        columns = ("", "CPU, s", "of before", "s", "largest process, MB", "MRR", "rules")
        title = f"learning and ranking test, two processes, beside {options.before}"
        print_table(title, columns, against(options.before, options.before_sets))
    rows: list[tuple[object, ...]] = []
    for size in options.sizes:  # a process for each, for memory once held counts to its end
        command = [sys.executable, __file__, "--one", str(size)]
        rows.append(
            tuple(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout).values())
        )
    columns = ("facts", "paths", "finding, s", "learning, s", "ranking, s", "questions", "MRR", "memory, MB")
    print_table("one relation of a generated graph: paths up to length 3, learning, ranking", columns, rows)
    rows = []
    for shape in SHAPES:
        command = [sys.executable, __file__, "--shape", shape]
        figures = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        rows.append((shape, *figures.values()))
    columns = ("", "entities", "relations", "facts", "learning, s", "ranking, s", "MRR", "memory, MB")
    print_table("by the defaults, all relations, one process", columns, rows)
    figures = ("MRR", "Hits@1", "Hits@3", "Hits@10")
    rows = [row for each in options.sets for row in beside(each, options.pykeen)]
    print_table("filtered ranks on test, equal time", ("", "s", *figures), rows)
    save(options.save)


if __name__ == "__main__":
    main()
