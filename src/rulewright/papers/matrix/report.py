"""The page of the matrix: for each data set, learners down and uses across, put into ``matrix.md``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from rulewright.papers.matrix.run import LEARNERS, USES
from rulewright.papers.report_page import (
    ABSENT,
    NOTHING,
    PageContent,
    Run,
    Runs,
    family_names,
    join_seeds,
    markdown_table,
    mean_and_sd,
    title_of,
)

TITLE = "Every learner in every use"
MEASURES = {"f1": "F1", "consistency": "consistency with gold rules", "own_consistency": "consistency with own rules"}


def build_page(runs: Runs, results: Path, pages: Path) -> PageContent:
    """Write the tables of ``matrix.md``, a block for each data set."""
    blocks = {name.partition("/")[2]: _section(name, runs.get(name, ())) for name in family_names("matrix")}
    return PageContent(TITLE, blocks)


def _section(name: str, runs: Sequence[Run]) -> str:
    title = title_of(name)
    if not runs:
        return f"## {title}\n\n{ABSENT}"
    parts = [f"## {title}", _about(runs)]
    for measure, spoken in MEASURES.items():
        rows = [(learner, *(_cell(runs, f"{learner}, {use}", measure) for use in USES)) for learner in LEARNERS]
        alone, raw = (_cell(runs, row, measure) for row in ("network alone", "uncalibrated"))
        at_half = "" if raw == NOTHING else f"; uncalibrated: {raw}"
        parts.append(f"**{spoken}**, in percent; network alone: {alone}{at_half}")
        parts.append(markdown_table(("rules of", *USES), rows))
        if measure == "f1":
            parts.append(_count_cells(runs))
    commands = "\n".join(f"    {run['command']}    # {run['machine']}" for run in runs if "command" in run)
    return "\n\n".join([*parts, *([commands] if commands else [])])


def _count_cells(runs: Sequence[Run]) -> str:
    """Say how many cells are above the network alone, in the mean of the seeds, and by how much the lowest is below."""
    alone = mean(run["rows"]["network alone"]["f1"] for run in runs)
    gains = [
        mean(run["rows"][f"{learner}, {use}"]["f1"] for run in runs) - alone for learner in LEARNERS for use in USES
    ]
    above = sum(gain > 0 for gain in gains)
    return f"Above the network alone: {above} of {len(gains)}; the least gain is {100 * min(gains):+.2f}."


def _about(runs: Sequence[Run]) -> str:
    first = runs[0]
    rules = ", ".join(
        f"{name} {count} ({first['refused'][name]} of them not over pairs)" for name, count in first["rules"].items()
    )
    train, select, test = first["worlds"]
    return (
        f"Worlds: {train} to train on, {select} to select on, {test} to test on; {len(first['targets'])} targets; "
        f"{first['gold_rules']} gold rules; seed {join_seeds(runs)}. Rules learned: {rules}."
    )


def _cell(runs: Sequence[Run], row: str, measure: str) -> str:
    return mean_and_sd(run["rows"].get(row, {}).get(measure) for run in runs)
