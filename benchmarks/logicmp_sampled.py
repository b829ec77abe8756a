"""Sampled training of MarkovLogic: python benchmarks/logicmp_sampled.py [--save FILE] [--steps N].

What a step costs, a batch of 1,024 groundings, over random graphs with five friends each; and what drawing a grounding
costs beside drawing them one by one in Python. Only the atoms of a batch are scored, so a step must not grow with the
graph; what is done once for a graph, such as sorting its facts, is counted too. Times are of the processor.
"""

from __future__ import annotations

import argparse
import random
import time

import numpy as np
from measure import machine, peak_memory, print_table, save

import rulewright as rw
from rulewright.learn.markov.facts import GroundFacts, declare_types
from rulewright.learn.markov.sampled import GroundingSampler

RULES = rw.parse_rules("""
    1.0 friend(X, Y) & friend(Y, Z) => friend(X, Z).
    2.0 smokes(X) & friend(X, Y) => smokes(Y).
    0.5 friend(X, Y) => friend(Y, X).
""")
BATCH = 1024


def make_graph(size: int) -> rw.KnowledgeBase:
    """Return a random graph in which everyone has five friends and one in ten smokes."""
    draw = np.random.default_rng(0)
    facts = [("friend", f"p{one}", f"p{other}") for one, other in draw.integers(size, size=(5 * size, 2))]
    return rw.KnowledgeBase.from_facts([*facts, *(("smokes", f"p{one}") for one in range(0, size, 10))])


def draw_by_hand(kb: rw.KnowledgeBase, count: int) -> float:
    """Draw groundings of transitivity one by one, with facts found by dictionaries; return seconds for an open one."""
    pairs = kb.tuples("friend")
    known = set(pairs)
    by_first: dict[object, list[object]] = {}
    by_second: dict[object, list[object]] = {}
    for one, other in pairs:
        by_first.setdefault(one, []).append(other)
        by_second.setdefault(other, []).append(one)
    people = kb.domains["entity"].labels.tolist()
    seen = set()
    start = time.process_time()
    for _ in range(count):
        values: dict[str, object] = {}
        atoms = [("X", "Y"), ("Y", "Z"), ("X", "Z")]
        random.shuffle(atoms)
        for first, second in atoms:
            if first in values and second in values:
                continue
            if random.random() < 0.9:
                if first in values and by_first.get(values[first]):
                    values[second] = random.choice(by_first[values[first]])
                elif second in values and by_second.get(values[second]):
                    values[first] = random.choice(by_second[values[second]])
                elif first not in values and second not in values:
                    values[first], values[second] = random.choice(pairs)
            for name in (first, second):
                values.setdefault(name, random.choice(people))
        x, y, z = values["X"], values["Y"], values["Z"]
        if (x, z) not in known and not ((x, y) in known and (y, z) in known and (x, z) in known):
            seen.add((x, y, z))
    return (time.process_time() - start) / len(seen)


def measure_steps(steps: int) -> list[list[object]]:
    """Return what training costs, by encoder and size of the graph."""
    rows: list[list[object]] = []
    rw.MarkovLogic(RULES, encoder="embedding", training="sampled", epochs=1).fit(make_graph(100))  # loads what it needs
    for size in (1_000, 10_000, 100_000):
        kb = make_graph(size)
        for encoder, width in (("none", 16), ("embedding", 16), ("embedding", 128)):
            start = time.process_time()
            rw.MarkovLogic(RULES, encoder=encoder, size=width, training="sampled", prior=-2.0, epochs=steps // 100).fit(
                kb
            )
            spent = time.process_time() - start
            name = encoder if encoder == "none" else f"{encoder}, {width}"
            rows.append([size, name, 1000 * spent / steps, peak_memory()])
    return rows


def measure_drawing() -> list[list[object]]:
    """Return what drawing costs, together and one by one."""
    rows: list[list[object]] = []
    transitive = rw.RuleSet(RULES.statements[:1])
    for size in (1_000, 100_000):
        kb = make_graph(size)
        facts = GroundFacts(kb, declare_types(transitive, kb))
        sampler = GroundingSampler(facts, transitive, batch_size=BATCH, bias=0.9, seed=0)
        sampler.batches(0)
        start = time.process_time()
        drawn = sum(batch.drawn for batch in sampler.batches(1))
        together = (time.process_time() - start) / drawn
        alone = draw_by_hand(kb, 20_000)
        rows.append([size, 1e6 * together, 1e6 * alone, alone / together])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", metavar="FILE", help="write the figures here, as JSON")
    parser.add_argument("--steps", type=int, default=200, help="the steps of training, in hundreds")
    arguments = parser.parse_args()
    print(machine())
    print_table(
        "a step of sampled training",
        ["entities", "encoder", "ms a step", "MB held so far"],
        measure_steps(arguments.steps),
    )
    print_table(
        "drawing, to a finished batch", ["entities", "us a grounding", "us one by one", "ratio"], measure_drawing()
    )
    save(arguments.save)


if __name__ == "__main__":
    main()
