"""The page of the matrix: for each data set, learners down and uses across, put into ``matrix.md``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rulewright.papers.catalogue import experiments
from rulewright.papers.matrix.run import LEARNERS, USES
from rulewright.papers.results_page import (
    Report,
    Run,
    family_of,
    markdown_table,
    mean_and_sd,
    read_runs,
    reported,
    write_page,
)

TITLE = "Every learner in every use"
MEASURES = {"f1": "F1", "consistency": "consistency with gold rules", "own_consistency": "consistency with own rules"}


def report(folder: str | os.PathLike[str]) -> Report:
    """Read every ``matrix_NAME_SEED.json`` of a folder and renew the tables of its ``matrix.md``."""
    place = Path(folder)
    runs = read_runs(place, "matrix")
    blocks = {name.partition("/")[2]: _section(name, runs.get(name, ())) for name in family_of("matrix")}
    write_page(place / "matrix.md", TITLE, blocks)
    return reported(runs, "matrix", (place / "matrix.md",))


def _section(name: str, runs: Sequence[Run]) -> str:
    title = experiments()[name].title
    if not runs:
        return f"## {title}\n\nNo run is here yet."
    parts = [f"## {title}", _about(runs)]
    for measure, spoken in MEASURES.items():
        rows = [(learner, *(_cell(runs, f"{learner}, {use}", measure) for use in USES)) for learner in LEARNERS]
        alone = _cell(runs, "network alone", measure)
        parts.append(f"**{spoken}**, in percent; network alone: {alone}")
        parts.append(markdown_table(("rules of", *USES), rows))
    commands = "\n".join(f"    {run['command']}    # {run['machine']}" for run in runs if "command" in run)
    return "\n\n".join([*parts, *([commands] if commands else [])])


def _about(runs: Sequence[Run]) -> str:
    first = runs[0]
    rules = ", ".join(
        f"{name} {count} ({first['refused'][name]} of them not over pairs)" for name, count in first["rules"].items()
    )
    train, select, test = first["worlds"]
    seeds = ", ".join(str(run["seed"]) for run in runs)
    return (
        f"Worlds: {train} to train on, {select} to select on, {test} to test on; {len(first['targets'])} targets; "
        f"{first['gold_rules']} gold rules; seed {seeds}. Rules learned: {rules}."
    )


def _cell(runs: Sequence[Run], row: str, measure: str) -> str:
    return mean_and_sd(run["rows"].get(row, {}).get(measure) for run in runs)
