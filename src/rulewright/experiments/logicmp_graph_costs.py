"""What an iteration costs: contractions in a good order and in none, and groundings one by one.

The two sequential ways are LogicMP without parallel einsum, and without leaving out what the one premise makes
superfluous: they are timed on a sample of groundings, and the time of all is computed from that.
"""

from __future__ import annotations

import random
from functools import partial
from itertools import product
from math import prod
from time import perf_counter
from typing import Any

import torch

from rulewright.data import KnowledgeBase
from rulewright.errors import MemoryLimitError
from rulewright.inject.layer import LogicLayer
from rulewright.learn.markov_facts import GroundFacts, typed_rules
from rulewright.logic import RuleSet

GROUNDINGS = 3000
"""The groundings that are timed one by one."""

REPEATS = 5

MOST_FLOPS = 10**12
"""The operations of an iteration above which a way is not timed."""

MEMORY = 2**31
"""The bytes that a way may take."""


def iteration_costs(rules: RuleSet, kb: KnowledgeBase, *, seed: int) -> dict[str, Any]:
    """Return seconds an iteration over the whole open world for each way of sending messages."""
    facts = GroundFacts(kb, typed_rules(rules, kb), ())
    world = facts.worlds()[0]
    domains = {kind: kb.domains[kind].labels_of(ids).tolist() for kind, ids in world.items()}
    logits = {name: torch.zeros([len(world[kind]) for kind in each.types]) for name, each in facts.declared.items()}
    evidence = facts.evidence(world)
    found: dict[str, Any] = {}
    for name, optimize, share in (
        ("contractions, ordered and shared", True, True),
        ("contractions, ordered", True, False),
        ("contractions", False, False),
    ):
        layer = LogicLayer(facts.rules, domains, 1, optimize=optimize, share=share, memory_limit=MEMORY)
        try:
            flops = layer.plan().flops
            if flops > MOST_FLOPS:
                raise MemoryLimitError(f"{flops:.1e} operations an iteration would take too long")
            found[name] = _seconds(partial(layer, logits, evidence))
        except MemoryLimitError as error:
            found[name] = None
            found[f"{name}: why not"] = str(error)
    layer = LogicLayer(facts.rules, domains, 1)
    plan = layer.plan()
    clauses = [
        (len(clause.literals), part.groundings(plan.sizes))
        for part in layer.grounding.formulas
        for clause in part.clauses
    ]
    groundings = sum(count for _, count in clauses)
    draw = random.Random(seed)
    sizes = draw.choices([size for size, _ in clauses], weights=[count for _, count in clauses], k=GROUNDINGS)
    sample = [[draw.random() for _ in range(size)] for size in sizes]
    for name, message in (
        ("groundings one by one", _one_premise),
        ("groundings one by one, all assignments", _all_assignments),
    ):
        start = perf_counter()
        for probabilities in sample:
            for place in range(len(probabilities)):
                message(probabilities, place)
        found[name] = (perf_counter() - start) / GROUNDINGS * groundings
    return {"groundings": groundings, "seconds": found}


def _seconds(call: Any) -> float:
    call()  # plans once
    best = float("inf")
    for _ in range(REPEATS):
        start = perf_counter()
        call()
        best = min(best, perf_counter() - start)
    return best


def _one_premise(false: list[float], place: int) -> float:
    """Return a clause's message to one of its atoms: how probable it is that all other literals are false."""
    return prod(each for other, each in enumerate(false) if other != place)


def _all_assignments(false: list[float], place: int) -> float:
    """Return the same as the difference of two expectations over all assignments of the other atoms."""
    others = [each for other, each in enumerate(false) if other != place]
    totals = []
    for mine in (True, False):
        total = 0.0
        for values in product((False, True), repeat=len(others)):
            weight = prod(1 - each if value else each for each, value in zip(others, values, strict=True))
            total += weight * (mine or any(values))
        totals.append(total)
    return totals[0] - totals[1]
