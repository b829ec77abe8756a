"""The page of neural logic inductive learning: tables of all runs in a folder, put into ``nlil.md`` there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rulewright.io.json_shape import load
from rulewright.papers.report_page import (
    ABSENT,
    NOTHING,
    PageContent,
    Run,
    Runs,
    code_block,
    list_runs,
    markdown_table,
    mean_and_sd,
    mean_figure,
    runs_of_task,
)

TITLE = "NLIL: transformers that write rules"
BENCHMARK = "nlil_benchmark.json"
SCENE_FIGURES = ("r@1", "r@5", "r@1 top 50", "r@5 top 50")


def build_page(runs: Runs, results: Path, pages: Path) -> PageContent:
    """Write the tables of ``nlil.md``."""
    blocks = {
        "runs": list_runs(runs, "nlil"),
        "even": even_table(runs),
        "completion": completion_table(runs),
        "scenes": scene_table(runs),
        "margins": margin_table(runs),
        "rules": printed_rules(runs),
        "cost": cost_tables(results / BENCHMARK),
    }
    return PageContent(TITLE, blocks)


def even_table(runs: Runs) -> str:
    """Even and successor: how many seeds are exact, and how long it took (Figure 5a), trained and untrained."""
    lines = []
    for title, task_runs in runs_of_task(runs, "even"):
        for row, figures in _learned(task_runs).items():
            exact = sum(bool(run["exact"] and run["zero"]) for run in figures)
            lines.append(
                (
                    f"{title}: {row}",
                    f"{exact} of {len(figures)}",
                    *(
                        mean_and_sd((run.get(key) for run in figures), scale=1, digits=digits)
                        for key, digits in (("rounds", 1), ("read", 0), ("core_seconds", 1))
                    ),
                )
            )
    return markdown_table(("", "exact, zero too", "rounds", "rules read", "s of one core"), lines)


def completion_table(runs: Runs) -> str:
    """Filtered ranks by the extracted rules, ties in expectation, beside the paper (Table 1)."""
    lines = []
    for title, task_runs in runs_of_task(runs, "kbc"):
        for row in task_runs[0]["rows"]:
            rows = [run["rows"][row] for run in task_runs]
            ours = row.startswith("ours")
            lines.append(
                (
                    f"{title}: {row}",
                    *(mean_figure(rows if ours else rows[:1], key) for key in ("mrr", "hits@1", "hits@3", "hits@10")),
                    _mean([run["core_seconds"]["learning"] for run in task_runs]) if ours else NOTHING,
                    _mean([run["rules"] for run in task_runs]) if ours else NOTHING,
                )
            )
    head = ("", "MRR", "Hits@1", "Hits@3", "Hits@10", "learning, s of one core", "rules")
    return markdown_table(head, lines)


def scene_table(runs: Runs) -> str:
    """Object classification by the extracted rules (Table 3), and with fewer images (Figure 5c)."""
    lines = []
    for title, task_runs in runs_of_task(runs, "scenes"):
        for row in task_runs[0]["rows"]:
            rows = [run["rows"][row] for run in task_runs]
            learned = _learned(task_runs).get(row)
            measured = learned is not None or row == "frequency vote"
            lines.append(
                (
                    f"{title}: {row}",
                    *(mean_figure(rows if measured else rows[:1], key) for key in SCENE_FIGURES),
                    _mean([run["images"] for run in task_runs]) if measured else NOTHING,
                    *(
                        _mean([run.get(key) for run in learned]) if learned else NOTHING
                        for key in ("read", "core_seconds")
                    ),
                )
            )
    head = ("", "R@1", "R@5", "R@1, top 50", "R@5, top 50", "images", "rules read", "s of one core")
    return markdown_table(head, lines)


def margin_table(runs: Runs) -> str:
    """How far ours is ahead where images were drawn several times: means of the differences within each draw."""
    lines = []
    for title, task_runs in runs_of_task(runs, "scenes"):
        if len(task_runs) < 2:
            continue
        for other in [row for row in ("frequency vote", "untrained") if row in task_runs[0]["rows"]]:
            cells = []
            for key in ("r@1", "r@5"):
                ahead = np.array([run["rows"]["ours"][key] - run["rows"][other][key] for run in task_runs])
                error = ahead.std(ddof=1) / math.sqrt(len(ahead))
                cells += [f"{ahead.mean():+.3f} ± {error:.3f}", f"{int((ahead > 0).sum())} of {len(ahead)}"]
            lines.append((f"{title}: ours less {other}", *cells))
    return markdown_table(("", "R@1 ± s.e.", "draws ahead", "R@5 ± s.e.", "draws ahead"), lines) if lines else ABSENT


def printed_rules(runs: Runs) -> str:
    """The rules of the most frequent classes (Table 4), and those a reader should distrust (Table 5)."""
    vrd_runs = runs.get("nlil/vrd")
    if not vrd_runs:
        return ABSENT
    rules = [rule for written in vrd_runs[0]["readable"].values() for rule in written[:2]]
    parts = ["Of the most frequent classes:", code_block(rules), "The least precise of the weightiest:"]
    return "\n\n".join([*parts, code_block(vrd_runs[0]["doubtful"])])


def cost_tables(path: Path) -> str:
    """What `benchmarks/nlil.py` has measured (Figure 5b)."""
    if not path.exists():
        return ABSENT
    measured: Any = load(path).value
    tables = [
        f"{table['title']}\n\n{markdown_table(table['columns'], [_cells(row) for row in table['rows']])}"
        for table in measured["tables"]
    ]
    return "\n\n".join([f"`{measured['command']}`, {measured['machine']}", *tables])


def _cells(row: Sequence[object]) -> list[str]:
    return [f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row]


def _learned(runs: Sequence[Run]) -> dict[str, Sequence[Run]]:
    """Return the figures of learning by the row that they stand in."""
    return {"ours": runs, "untrained": [run["untrained"] for run in runs if "untrained" in run]}


def _mean(values: Sequence[float | None]) -> str:
    return mean_and_sd(values, scale=1, digits=0)
