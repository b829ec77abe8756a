"""How fast this machine does what plans count, measured once in a process: what estimated times come from."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from rulewright.engine.duckdb import Engine

MEASURED = 0.04
"""The seconds that each is measured for, at least; the mean counts, so that a busy machine counts as one."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What is done in a second on a processor: ``products`` FLOPs of products of matrices, ``elements`` written
    elementwise, and ``positions`` of a ground clause gathered, multiplied and scattered."""

    products: float
    elements: float
    positions: float


@lru_cache(maxsize=1)
def measure_rates() -> Rates:
    """Measure for some tenths of a second, once in a process."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        size, length = 384, 2**20
        matrix, vector = torch.rand(size, size), torch.rand(length)
        chosen = torch.randint(length, (length,), dtype=torch.int32)
        total = torch.zeros(length)

        def send() -> None:
            total.index_add_(0, chosen, vector.index_select(0, chosen) * vector)

        return Rates(
            2 * size**3 / _time(lambda: matrix @ matrix),
            length / _time(lambda: vector * vector),
            length / _time(send),
        )


@lru_cache(maxsize=1)
def measure_join_rate() -> float:
    """Return how many pairs of rows the engine joins in a second, measured once in a process."""
    length = 2**18
    key = np.random.default_rng(0).integers(0, length // 4, length).astype(np.int32)
    position = np.arange(length, dtype=np.int32)
    with Engine() as engine:
        engine.put("rows", {"k": key, "p": position})
        statement = "SELECT a.p AS p0, b.p AS p1 FROM rows AS a, rows AS b WHERE a.k = b.k"
        pairs = len(engine.run(statement)["p0"])
        return pairs / _time(lambda: engine.run(statement))


def format_seconds(seconds: float) -> str:
    """Write a time for people.

    >>> format_seconds(0.0312), format_seconds(8000)
    ('0.031 s', '2.2 h')
    """
    if seconds < 0.005:
        return f"{seconds * 1e3:.1g} ms"
    if seconds < 100:
        return f"{seconds:.2g} s"
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.2g} {unit}" if seconds < 100 * length else f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.0f} s"


def _time(work: Callable[[], object]) -> float:
    work()
    runs, start = 0, time.perf_counter()
    while not runs or time.perf_counter() - start < MEASURED:
        work()
        runs += 1
    return max(time.perf_counter() - start, 1e-9) / runs
