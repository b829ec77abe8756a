"""What part of a world is inferred together, and how: decided by cost before any work, and said beside the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from rulewright.checks import read_memory_limit
from rulewright.errors import MemoryLimitError, TimeLimitError
from rulewright.inject.inputs import InputShape
from rulewright.inject.layer.choice import TIME_LIMIT, choose_grounding
from rulewright.inject.layer.plan import Plan, format_bytes, usual_limit
from rulewright.inject.layer.rates import format_seconds
from rulewright.learn.markov.candidates import CandidateWorld
from rulewright.learn.markov.domains import cover_rows, fit_sizes, take_first
from rulewright.learn.markov.encoders import Atoms
from rulewright.learn.markov.facts import Members
from rulewright.learn.markov.network import MarkovNetwork

Way: TypeAlias = Literal["dense", "sparse", "blockwise", "sampled"]

BYTES_AN_ATOM = 10
"""What an atom takes beside the contractions: its potential and log-odds of 4 bytes, value and observed of 1."""


@dataclass(frozen=True)
class Scope:
    """What part of a world was inferred together, how, and why.

    ``entities`` are by type how many were taken, and of how many. ``candidates`` are by predicate how many atoms were
    observed, asked for or reached, ``resting`` how many stayed at their prior, and ``pulls`` how strongly formulas
    would move these; all are empty where all atoms were inferred. ``operations`` are those of an iteration,
    ``estimate`` the seconds that were foreseen for all, ``seconds`` those that it took.
    """

    way: Way
    reason: str
    entities: Mapping[str, tuple[int, int]]
    operations: int
    memory: int
    estimate: float
    seconds: float = 0.0
    candidates: Mapping[str, int] = field(default_factory=dict)
    resting: Mapping[str, int] = field(default_factory=dict)
    pulls: tuple[str, ...] = ()

    def __str__(self) -> str:
        some = ", ".join(f"{taken:,} of {total:,} of {name}" for name, (taken, total) in self.entities.items())
        cost = f"{format_seconds(self.seconds)}, {format_seconds(self.estimate)} foreseen"
        if self.way == "dense":
            return f"inferred all atoms of {some}: {cost}"
        if self.way == "sampled":
            return f"inferred samples of {some}, {self.reason}: {cost}"
        counts = f"{sum(self.candidates.values()):,} candidate atoms, while {sum(self.resting.values()):,} rest"
        lines = [f"inferred {counts}, as {self.reason}: {cost}", *self.pulls]
        return "\n".join(lines)


def plan_scope(network: MarkovNetwork, world: Members) -> Scope | None:
    """Say how all atoms of a world, or of samples of it, are inferred; None where they are too many, and may be.

    Samples are taken only where the parameters ask for them. What takes more memory or time than they allow is refused.
    """
    parameters = network.parameters
    sizes = {type_name: len(ids) for type_name, ids in world.items()}
    taken = fit_sizes(network, world)
    operations, memory, seconds = dense_cost(network, take_first(network, world, taken))
    entities = {name: (taken[name], size) for name, size in sizes.items()}
    if taken != sizes:
        _check_cost(network, "a sample", memory, seconds)
        return Scope("sampled", f"sample={parameters.sample}", entities, operations, memory, seconds)
    fits = memory <= _memory_limit(network) and seconds <= TIME_LIMIT
    if parameters.grounding == "sparse" or (parameters.grounding == "auto" and not fits):
        return None
    _check_cost(network, "all atoms", memory, seconds)
    return Scope("dense", "within memory and time" if fits else "as asked", entities, operations, memory, seconds)


def plan_candidates(candidates: CandidateWorld) -> Scope:
    """Say how a world is inferred over candidates; what takes more memory or time than allowed is refused."""
    network, world = candidates.network, candidates.world
    dense, sparse = dense_plan(network, world), candidates.plan()
    iterations = max(1, network.parameters.iterations)
    choice = choose_grounding(dense, sparse, iterations=iterations, memory_limit=_memory_limit(network))
    _check_cost(network, "candidate atoms", choice.memory, choice.seconds)
    sizes = {name: (len(ids), len(ids)) for name, ids in world.items()}
    way: Way = "blockwise" if choice.grounding == "blockwise" else "sparse"
    reason = "asked for" if network.parameters.grounding == "sparse" else choice.reason
    counts = candidates.count()
    resting = {name: network.facts.count_atoms(name, world) - count for name, count in counts.items()}
    return Scope(
        way, reason, sizes, sparse.operations, choice.memory, choice.seconds, candidates=counts, resting=resting
    )


def dense_plan(network: MarkovNetwork, members: Members) -> Plan:
    """Return the plan of a layer over all atoms of some entities."""
    layer = network.layer(members)
    shape = tuple((name, len(members[name])) for name in sorted(layer.grounding.types))
    return layer.planner.plan(InputShape(shape, observed=network.facts.closed))


def dense_cost(network: MarkovNetwork, members: Members) -> tuple[int, int, float]:
    """Return the operations of an iteration over all atoms of some entities, the bytes, and the seconds of all."""
    parameters, facts = network.parameters, network.facts
    plan, iterations = dense_plan(network, members), max(1, parameters.iterations)
    atoms = sum(facts.count_atoms(name, members) for name in facts.used)
    memory = BYTES_AN_ATOM * atoms + plan.memory(iterations=iterations, averaged=parameters.messages == "mean")
    return plan.flops, memory, plan.seconds(iterations=iterations)


def _memory_limit(network: MarkovNetwork) -> int:
    return read_memory_limit(network.parameters.memory_limit) or usual_limit(torch.device("cpu"))


def _check_cost(network: MarkovNetwork, what: str, memory: int, seconds: float) -> None:
    """Refuse work above the limits of the parameters, with what it would take and the way out."""
    limit, time_limit = _memory_limit(network), network.parameters.time_limit
    ways = {"candidate atoms": "fewer hops or atoms asked for, sample=… for some entities at a time"}
    way = ways.get(what, "grounding='auto' for candidate atoms, sample=… for fewer entities at a time")
    if memory > limit:
        raise MemoryLimitError(
            f"{what} would take {format_bytes(memory)} and the limit is {format_bytes(limit)}; take {way}, or raise "
            "memory_limit"
        )
    if time_limit is not None and seconds > time_limit:
        raise TimeLimitError(
            f"{what} would take about {format_seconds(seconds)} and the limit is {format_seconds(time_limit)}; take "
            f"{way}, fewer iterations, or raise time_limit"
        )


def infer_world(
    network: MarkovNetwork, world: Members, asked: Atoms, opened: str | None, random: np.random.Generator
) -> tuple[Scope, dict[str, Tensor]]:
    """Return how a world was inferred, and the log-odds of the atoms asked for.

    An atom that is in several samples gets the mean of its log-odds.
    """
    facts, scope, start = network.facts, plan_scope(network, world), perf_counter()
    if scope is None:
        candidates = CandidateWorld(network, world, asked, opened=opened)
        scope = plan_candidates(candidates)
        answers, pulls = candidates.infer()
        scope = replace(scope, seconds=perf_counter() - start, pulls=pulls)
        return scope, network.clamp(asked, answers, opened=opened)
    sums: dict[str, Tensor] = {}
    counts = {name: torch.zeros(len(columns[0]), dtype=torch.float64) for name, columns in asked.items()}
    for members in cover_rows(network, world, asked, random):
        logits = network.infer(members, network.potentials(members, opened=opened), opened=opened)
        for name, columns in asked.items():
            index, inside = facts.find_rows(name, columns, members)
            values, rows = logits[name][index].double(), torch.from_numpy(inside)
            if name not in sums:
                sums[name] = torch.zeros(len(inside), *values.shape[1:], dtype=torch.float64)
            sums[name][rows] += values
            counts[name][rows] += 1
    means = {name: total / counts[name].view(-1, *[1] * (total.ndim - 1)) for name, total in sums.items()}
    return replace(scope, seconds=perf_counter() - start), means
