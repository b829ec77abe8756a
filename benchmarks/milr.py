"""Mining, decoding and the consistency loss, each beside its baseline: python benchmarks/milr.py.

To reach: mining at most 2× the bare SQL joins, on DWIE and for all rules of length ≤ 2 of fb15k237; exact decoding at
most 1.5× the simplified form and at least 300× faster than full enumeration on a document of 24 entities, and where
rules may be broken at most 2× exact decoding; the loss, forward and backward, at most 3× one pass, forward and
backward, over the same broadcast tensor.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import duckdb
import numpy as np
import torch
from measure import best_of, in_turns, machine, peak_memory, print_table, save

from rulewright import ConsistencyLoss, KnowledgeBase, RuleDecoder, RuleMiner, read_facts
from rulewright.data.generators import random_graph
from rulewright.io.docred import Document, read_documents
from rulewright.logic import Chain, RuleSet, Step
from rulewright.logic.chain import encode_step

DATA = Path(os.environ.get("RULEWRIGHT_DATA", "../shared/data"))
JOINS = (
    "SELECT p, count(*) FROM edge GROUP BY ALL",
    "SELECT f.p, e.p, count(*) FROM fact f JOIN edge e ON e.a0 = f.a0 AND e.a1 = f.a1 WHERE f.a0 <> f.a1 GROUP BY ALL",
    "SELECT a.p, b.p, count(*) FROM edge a JOIN edge b ON b.a0 = a.a1 WHERE a.a0 <> b.a1 GROUP BY ALL",
    "SELECT f.p, a.p, b.p, count(*) FROM edge a JOIN edge b ON b.a0 = a.a1 JOIN fact f ON f.a0 = a.a0 AND f.a1 = b.a1 "
    "WHERE f.a0 <> f.a1 GROUP BY ALL",
)


def bare_joins(kb: KnowledgeBase) -> None:
    """Count all bodies and supports of length 1 and 2 with joins written by hand."""
    table = kb.tables()["ee"]
    head, tail = table.columns
    facts = {"p": table.predicate, "a0": head, "a1": tail}
    both = {
        "p": np.concatenate([encode_step(table.predicate), encode_step(table.predicate, inverse=True)]),
        "a0": np.concatenate([head, tail]),
        "a1": np.concatenate([tail, head]),
    }
    with duckdb.connect() as connection:
        for name, columns in (("fact", facts), ("edge", both)):
            connection.register("incoming", columns)
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM incoming")
            connection.unregister("incoming")
        for statement in JOINS:
            connection.execute(statement).fetchnumpy()


def mining(name: str, kb: KnowledgeBase, runs: int, **options: object) -> tuple[object, ...]:
    miner = RuleMiner(**options)  # type: ignore[arg-type]
    bare, ours = in_turns(runs, lambda: bare_joins(kb), lambda: miner.fit(kb))
    return name, kb.n_facts, len(miner.rules_), bare, ours, ours / bare


def growth(runs: int) -> list[tuple[object, ...]]:
    rows = []
    for facts in (10_000, 100_000, 1_000_000):
        declarations = " ".join(f"predicate r{index}(entity, entity)." for index in range(50))
        kb = random_graph({"entity": facts // 5}, declarations, facts=facts, seed=0).kb
        miner = RuleMiner(min_confidence=0.01, unary=False, constants=False)
        rows.append((f"random graph, {facts:,} facts", best_of(runs, lambda miner=miner, kb=kb: miner.fit(kb))))
    return rows


def noisy_logits(document: Document, relations: list[str], seed: int = 0) -> np.ndarray:
    """Logits that a fair extractor might give: gold facts high, others low, all with noise."""
    relation_index = {name: index for index, name in enumerate(relations)}
    size = len(document.entities)
    logits = np.random.default_rng(seed).normal(-7.0, 2.0, (size, size, len(relations)))
    for fact in document.facts:
        logits[fact.head, fact.tail, relation_index[fact.relation]] += 10.0
    return logits


def decoding(rules: RuleSet, relations: list[str], documents: list[Document]) -> None:
    """Time the three methods on one document of 24 entities; the quick two, and rules that may be broken, on all."""
    nearest = min(documents, key=lambda document: abs(len(document.entities) - 24))
    logits = noisy_logits(nearest, relations)
    decoders = {name: RuleDecoder(rules, relations=relations, method=name) for name in ("exact", "simplified", "full")}
    quick = in_turns(5, *(lambda decoder=decoders[name]: decoder(logits) for name in ("exact", "simplified")))
    times = dict(zip(("exact", "simplified"), quick, strict=True)) | {
        "full": best_of(1, lambda: decoders["full"](logits))
    }
    results = {name: decoder(logits) for name, decoder in decoders.items() if name != "full"}
    rows = [
        (name, times[name], times["exact"] / times[name], results[name].constraints if name in results else "all")
        for name in times
    ]
    columns = ("method", "s", "exact / this", "constraints")
    print_table(f"decoding one document of {len(nearest.entities)} entities, {len(rules)} rules", columns, rows)
    every = [noisy_logits(document, relations, seed) for seed, document in enumerate(documents)]
    soft = {
        f"exact, rule_costs={cost}": RuleDecoder(rules, relations=relations, rule_costs=cost) for cost in (0.1, 1.0)
    }
    shown = {name: decoders[name] for name in ("exact", "simplified")} | soft
    taken = in_turns(3, *(lambda decoder=decoder: [decoder(x) for x in every] for decoder in shown.values()))
    rows = []
    for (name, decoder), seconds in zip(shown.items(), taken, strict=True):
        answers = [decoder(x) for x in every]
        changes = sum(len(answer.changes) for answer in answers)
        broken = sum(rule.count for answer in answers for rule in answer.broken)
        rows.append((name, seconds / len(every), taken[0] / seconds, changes, broken))
    columns = ("method", "s a document", "exact / this", "changes", "broken groundings")
    print_table(f"decoding {len(every)} documents", columns, rows)


def chain_rules(count: int, relations: int, seed: int = 0) -> RuleSet:
    random = np.random.default_rng(seed)
    steps = [
        [Step(f"r{relation}", bool(random.integers(2))) for relation in random.integers(relations, size=2)]
        for _ in range(count)
    ]
    return RuleSet(Chain(f"r{random.integers(relations)}", tuple(path)).rule(0.9) for path in steps)


def losses(runs: int) -> None:
    """Time the loss beside one pass over the same broadcast tensors, forward and backward."""
    torch.set_num_threads(1)
    rows = []
    relations = [f"r{index}" for index in range(20)]
    for size, count in ((26, 67), (60, 90), (100, 60), (200, 40), (200, 500)):
        rules = chain_rules(count, len(relations))
        logits = torch.randn(1, size, size, len(relations), requires_grad=True)
        loss = ConsistencyLoss(rules, relations=relations)

        def ours(loss: ConsistencyLoss = loss, logits: torch.Tensor = logits) -> None:
            logits.grad = None
            loss(logits).backward()

        parts = [torch.randn(size, size, requires_grad=True) for _ in range(3)]

        def one_pass(parts: list[torch.Tensor] = parts) -> None:
            first, second, head = parts
            torch.relu(first[:, :, None] + second[None] - head[:, None, :]).sum().backward()

        before = peak_memory()
        bare, taken = in_turns(runs, one_pass, ours)
        distinct = len(set(rules.rules))
        rows.append(
            (
                f"{size} entities, {distinct} rules",
                bare * distinct,
                taken,
                taken / (bare * distinct),
                round(peak_memory() - before),
            )
        )
    columns = ("", "one pass a rule, s", "ours, s", "ratio", "memory added, MB")
    print_table(f"consistency loss, forward and backward, one thread, best of {runs}", columns, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--save", metavar="FILE", help="write the tables as JSON")
    options = parser.parse_args()
    print(machine())
    losses(options.runs)  # first, for the peak of memory is that of the process
    if DATA.is_dir():
        dwie = read_facts(DATA / "dwie" / "train_annotations_notext.json")
        fb15k237 = read_facts(DATA / "kbc" / "fb15k237")
        rows = [
            mining("dwie, preset milr", dwie, options.runs, preset="milr", min_confidence=0.98),
            mining("dwie, all rules", dwie, options.runs, min_confidence=0.0),
            mining("fb15k237, confidence ≥ .1", fb15k237, options.runs, min_confidence=0.1),
            mining("fb15k237, all rules", fb15k237, options.runs, min_confidence=0.0),
        ]
        columns = ("mining, length ≤ 2", "facts", "rules", "bare joins, s", "ours, s", "ratio")
        print_table(f"mining, best of {options.runs}", columns, rows)
        rules = RuleMiner(preset="milr", min_confidence=0.98).fit(dwie).rules_
        documents = list(read_documents(DATA / "dwie" / "test.json"))
        relations = {*dwie.predicates, *(fact.relation for document in documents for fact in document.facts)}
        decoding(rules, sorted(relations), documents)
    else:
        print(f"no data at {DATA}; set RULEWRIGHT_DATA")
    print_table(f"mining as the facts grow, best of {options.runs}", ("", "s"), growth(options.runs))
    save(options.save)


if __name__ == "__main__":
    main()
