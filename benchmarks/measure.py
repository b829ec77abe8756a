"""What the benchmarks share: the best of several timed runs, the machine, and one form of table."""

from __future__ import annotations

import itertools
import json
import os
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path


def best_of(runs: int, work: Callable[[], object]) -> float:
    """Return the shortest time of several runs, in seconds."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def in_turns(runs: int, *works: Callable[[], object]) -> list[float]:
    """Time several ways to do one thing in turns, so that a busy moment of the machine hits all of them."""
    best = [float("inf")] * len(works)
    for _ in range(runs):
        for place, work in enumerate(works):
            best[place] = min(best[place], best_of(1, work))
    return best


def peak_memory() -> float:
    """Return the most memory this process has held so far, in megabytes."""
    status = Path("/proc/self/status")
    if status.exists():  # unlike getrusage, it does not count what the parent process held
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def held_at_most(work: Callable[[], object]) -> int:
    """Return the most bytes that torch's tensors on the CPU hold at one time while something runs."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    steps = sorted((event["ts"], event["args"]["Bytes"]) for event in events if event.get("name") == "[memory]")
    return max(itertools.accumulate(size for _, size in steps), default=0)


def machine() -> str:
    """Describe the machine in a line."""
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def _asked() -> list[str]:
    """Return the options but for where the tables are saved."""
    given = sys.argv[1:]
    if "--save" in given:
        place = given.index("--save")
        del given[place : place + 2]
    return given


_TABLES: list[dict[str, object]] = []


def save(path: str | None) -> None:
    """Write the tables printed so far as JSON, with the command and the machine, where a path is given."""
    if path is not None:
        found = {
            "command": " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *_asked()]),
            "machine": machine(),
            "tables": _TABLES,
        }
        Path(path).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table of plain text, and keep it for `save`."""
    _TABLES.append({"title": title, "columns": list(columns), "rows": [list(row) for row in rows]})
    cells = [
        list(columns),
        *[[f"{each:.3f}" if isinstance(each, float) else str(each) for each in row] for row in rows],
    ]
    widths = [max(len(row[place]) for row in cells) for place in range(len(columns))]
    print(f"\n{title}")
    for row in cells:
        print(
            "  ".join(
                cell.ljust(width) if place == 0 else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
        )
