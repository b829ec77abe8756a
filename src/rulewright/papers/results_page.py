"""Pages of results: what runs have written, as tables and plots between the marks of a hand-written page."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rulewright.errors import DataError, FileError, MissingExtraError
from rulewright.files import read_text, write_text
from rulewright.io.json_shape import load
from rulewright.papers.catalogue import experiments

Run = dict[str, Any]
Runs = Mapping[str, Sequence[Run]]
NOTHING = "–"
ABSENT = "No run is here yet."


@dataclass(frozen=True)
class Report:
    """What a report was made of, which runs it misses, and the files it wrote."""

    runs: tuple[str, ...]
    missing: tuple[str, ...]
    written: tuple[Path, ...]

    def as_dict(self) -> dict[str, object]:
        """Return everything, for JSON."""
        return {"runs": self.runs, "missing": self.missing, "written": [str(each) for each in self.written]}


def read_runs(folder: Path, family: str) -> dict[str, list[Run]]:
    """Read the files ``FAMILY_NAME_SEED.json`` of a folder: by experiment in the catalogue's order, then by seed."""
    if not folder.is_dir():
        raise FileError(f"cannot read {folder}: not a folder")
    found: dict[str, list[Run]] = {}
    for name in family_of(family):
        stem = name.replace("/", "_")
        files = [each for each in folder.glob(f"{stem}_*.json") if re.fullmatch(rf"{stem}_\d+", each.stem)]
        runs = sorted((_run(each, name) for each in files), key=lambda run: int(run["seed"]))
        if runs:
            found[name] = runs
    return found


def family_of(family: str) -> list[str]:
    """Return the names of a family's experiments.

    >>> family_of("milr")[0]
    'milr/dwie_atlop'
    """
    return [name for name, each in experiments().items() if each.family == family]


def of_task(runs: Runs, family: str, task: str) -> list[tuple[str, Sequence[Run]]]:
    """Return the runs of a family's experiments with one ``task`` in their settings, in the catalogue's order."""
    chosen = [name for name in family_of(family) if experiments()[name].settings.get("task") == task]
    return [(name, runs[name]) for name in chosen if name in runs]


def run_list(runs: Runs, family: str) -> str:
    """Write which runs a page is made of, and which experiments have none."""
    lines = [
        f"- `{name}`: seeds {', '.join(str(run['seed']) for run in found)}; {found[0].get('machine', '')}"
        for name, found in runs.items()
    ]
    absent = [f"`{name}`" for name in family_of(family) if name not in runs]
    if absent:
        lines.append(f"- not here: {', '.join(absent)}")
    return "\n".join(lines)


def reported(runs: Runs, family: str, written: Iterable[Path]) -> Report:
    """Return what a page was made of and what was written."""
    return Report(
        tuple(f"{name} seed {run['seed']}" for name, found in runs.items() for run in found),
        tuple(f"{name} seed {seed}" for name, seed in missing_runs(family, runs)),
        tuple(written),
    )


def _run(path: Path, name: str) -> Run:
    run: Any = load(path).value
    for key in ("experiment", "seed", "rows"):
        if not isinstance(run, dict) or key not in run:
            raise DataError(f"{path}: has no {key!r}; write it with: rulewright run {name} --seed SEED -o {path}")
    if run["experiment"] != name:
        raise DataError(f"{path}: holds a run of {run['experiment']}, but its name says {name}")
    return dict(run)


def missing_runs(family: str, found: Mapping[str, Sequence[Run]]) -> list[tuple[str, int]]:
    """Return the experiments and seeds that are not there, of all seeds that some experiment has; 0 always counts.

    >>> missing_runs("milr", {name: [{"seed": 0}] for name in family_of("milr")})
    []
    """
    seeds = sorted({0, *(run["seed"] for runs in found.values() for run in runs)})
    present = {(name, run["seed"]) for name, runs in found.items() for run in runs}
    return [(name, seed) for name in family_of(family) for seed in seeds if (name, seed) not in present]


def with_blocks(page: str, blocks: Mapping[str, str], *, file: str) -> str:
    """Put new text between the marks of every block.

    >>> page = "Before. <!-- begin main --> old <!-- end main --> After."
    >>> print(with_blocks(page, {"main": "new"}, file="a.md"))
    Before. <!-- begin main -->
    <BLANKLINE>
    new
    <BLANKLINE>
    <!-- end main --> After.
    """
    for name, text in blocks.items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
            raise DataError(f"{file}: needs one line {begin} and after it one line {end}, for the text in between")
        before, rest = page.split(begin)
        page = f"{before}{begin}\n\n{text}\n\n{end}{rest.split(end)[1]}"
    return page


def write_page(path: Path, title: str, blocks: Mapping[str, str]) -> None:
    """Put blocks into a page; where there is no page, one is made with nothing but them."""
    if path.exists():
        page = read_text(path)
    else:
        marks = (f"<!-- begin {name} -->\n<!-- end {name} -->\n" for name in blocks)
        page = "\n".join([f"# {title}\n", *marks])
    write_text(path, with_blocks(page, blocks, file=str(path)))


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table.

    >>> print(markdown_table(("", "F1"), [("plain", "63.20")]))
    |  | F1 |
    |---|---|
    | plain | 63.20 |
    """
    lines = [columns, *rows]
    shown = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
    return "\n".join([shown[0], "|" + "---|" * len(columns), *shown[1:]])


def mean_and_sd(values: Iterable[float | None], *, scale: float = 100.0, digits: int = 2) -> str:
    """Write the mean of values and, of two or more, their sample standard deviation; what is unknown is left out.

    >>> mean_and_sd([0.5, 0.6]), mean_and_sd([0.5]), mean_and_sd([None])
    ('55.00 ± 7.07', '50.00', '–')
    """
    known = [scale * each for each in values if each is not None and not math.isnan(each)]
    if not known:
        return NOTHING
    middle = f"{mean(known):,.{digits}f}"
    return middle if len(known) == 1 else f"{middle} ± {stdev(known):,.{digits}f}"


def figure_of(rows: Iterable[Mapping[str, Any]], key: str) -> str:
    """Write the mean of a figure between 0 and 1 over rows, to three digits; rows may lack it.

    >>> figure_of([{"mrr": 0.5}, {"mrr": 0.5}, {}], "mrr")
    '0.500 ± 0.000'
    """
    return mean_and_sd((row.get(key) for row in rows), scale=1, digits=3)


def new_figure(width: float, height: float) -> Any:
    """Make an empty figure of matplotlib, which the extra ``viz`` brings; sizes are in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("plots need matplotlib: pip install -c constraints.txt 'rulewright[viz]'") from None
    return Figure(figsize=(width, height), layout="constrained")
