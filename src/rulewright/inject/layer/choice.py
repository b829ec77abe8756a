"""Whether to send messages to all atoms or to candidates only, by what both cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch

from rulewright.inject.layer.plan import Plan, format_bytes, usual_limit
from rulewright.inject.layer.rates import format_seconds
from rulewright.inject.layer.sparse import SparsePlan

GroundingWay: TypeAlias = Literal["dense", "sparse", "blockwise"]
"""Messages to all atoms; to candidates, with their ground clauses held; or with these joined anew in each iteration."""

TIME_LIMIT = 20.0
"""The seconds up to which all atoms are worth their time."""


@dataclass(frozen=True, slots=True)
class GroundingChoice:
    """The way that is chosen, why, and about what a call costs; ``is_over`` where it takes more than the time limit."""

    grounding: GroundingWay
    reason: str
    seconds: float
    memory: int
    is_over: bool

    def __str__(self) -> str:
        return f"{self.grounding}: {self.reason}"


def choose_grounding(
    dense: Plan,
    sparse: SparsePlan,
    *,
    iterations: int = 5,
    training: bool = False,
    memory_limit: int | None = None,
    time_limit: float = TIME_LIMIT,
) -> GroundingChoice:
    """Choose all atoms where they fit into memory and a call takes no longer than the limit, or than over candidates.

    All atoms are worth more: none of them rests. ``sparse`` may be an estimate (`LogicLayer.plan` with candidates). A
    memory limit of None is half of what the machine has.

    >>> from rulewright.inject import LogicLayer
    >>> layer = LogicLayer("1.0 r(A, B) & r(B, C) => r(A, C).", {"entity": 100_000})
    >>> path = torch.stack([torch.arange(99), torch.arange(1, 100)], 1)
    >>> sparse = layer.plan(candidates={"r": path}, rest=float("-inf"))
    >>> choice = choose_grounding(layer.plan(), sparse)
    >>> choice.grounding, choice.reason
    ('sparse', 'all atoms need 298.0 GB of memory and the limit is ...; 99 candidates with about ...')
    """
    limit = usual_limit(torch.device("cpu")) if memory_limit is None else memory_limit
    all_memory = dense.memory(iterations=iterations, training=training)
    all_seconds = dense.seconds(iterations=iterations, training=training)
    memory = sparse.memory(iterations=iterations, training=training)
    seconds = sparse.seconds(iterations=iterations, training=training)
    text = f"{format_bytes(all_memory)} and about {format_seconds(all_seconds)} a call"
    if all_memory <= limit and all_seconds <= max(time_limit, seconds):
        is_over = all_seconds > time_limit
        return GroundingChoice("dense", f"all atoms need {text}", all_seconds, all_memory, is_over)
    if all_memory > limit:
        obstacle = f"all atoms need {format_bytes(all_memory)} of memory and the limit is {format_bytes(limit)}"
    else:
        obstacle = f"all atoms need {text}, and the limit is {format_seconds(time_limit)}"
    atoms = sum(map(len, sparse.candidates.values()))
    cost = f"{atoms:,} candidates with about {sparse.ground_clauses:,} ground clauses need {format_bytes(memory)}"
    way: GroundingWay = "sparse"
    if sparse.is_blockwise or sparse.joined_memory > limit // 2:
        way = "blockwise"
        seconds = sparse.seconds(iterations=iterations, training=training, blockwise=True)
        cost += f", of which clauses take {format_bytes(sparse.joined_memory)}, so that each iteration joins them anew"
    reason = f"{obstacle}; {cost} and about {format_seconds(seconds)} a call"
    return GroundingChoice(way, reason, seconds, memory, seconds > time_limit)
