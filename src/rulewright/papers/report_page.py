"""Pages of results: the saved runs of a family, as tables and plots between the marks of a hand-written page."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple, Protocol

from rulewright.errors import DataError, FileError, MissingExtraError, unknown_name
from rulewright.files import read_text, write_text
from rulewright.io.json_shape import load
from rulewright.papers.catalogue import TASKS, experiments

Run = dict[str, Any]
Runs = Mapping[str, Sequence[Run]]
NOTHING = "–"
ABSENT = "No run is here yet."


class PageContent(NamedTuple):
    """The text of each block of a page, and the pictures that were drawn for it."""

    title: str
    blocks: Mapping[str, str]
    pictures: Sequence[Path] = ()


class BuildPage(Protocol):
    """What the ``report`` module of every family has as ``build_page``."""

    def __call__(self, runs: Runs, results: Path, pages: Path) -> PageContent:
        """Write the tables of the runs, which were read from ``results``, and draw pictures into ``pages``."""
        ...


@dataclass(frozen=True)
class PageReport:
    """What a page was made of, which runs it misses, and the files that were written."""

    runs: tuple[str, ...]
    missing: tuple[str, ...]
    written: tuple[Path, ...]

    def as_dict(self) -> dict[str, object]:
        """Return everything, for JSON."""
        return {"runs": self.runs, "missing": self.missing, "written": [str(path) for path in self.written]}


def write_report(
    family: str, results: str | os.PathLike[str], pages: str | os.PathLike[str] | None = None
) -> PageReport:
    """Read every ``FAMILY_NAME_SEED.json`` in ``results`` and renew the family's page and its plots in ``pages``.

    It works with the runs that there are; ``missing`` names the others. Pages are in ``results`` unless given.
    """
    if family not in TASKS:
        raise unknown_name("family with a page of results", family, TASKS)
    results_folder, pages_folder = Path(results), Path(results if pages is None else pages)
    runs = read_runs(results_folder, family)
    build: BuildPage = import_module(f"rulewright.papers.{family}.report").build_page
    content = build(runs, results_folder, pages_folder)
    page = pages_folder / f"{family.replace('_', '-')}.md"
    write_page(page, content.title, content.blocks)
    return PageReport(
        tuple(f"{name} seed {run['seed']}" for name, seeds in runs.items() for run in seeds),
        tuple(f"{name} seed {seed}" for name, seed in missing_runs(family, runs)),
        (page, *content.pictures),
    )


def read_runs(folder: Path, family: str) -> dict[str, list[Run]]:
    """Read the files ``FAMILY_NAME_SEED.json`` of a folder: by experiment in the catalogue's order, then by seed."""
    if not folder.is_dir():
        raise FileError(f"cannot read {folder}: not a folder")
    by_name: dict[str, list[Run]] = {}
    for name in family_names(family):
        stem = name.replace("/", "_")
        files = [path for path in folder.glob(f"{stem}_*.json") if re.fullmatch(rf"{stem}_\d+", path.stem)]
        if runs := sorted((_read_run(path, name) for path in files), key=lambda run: int(run["seed"])):
            by_name[name] = runs
    return by_name


def _read_run(path: Path, name: str) -> Run:
    run: Any = load(path).value
    for key in ("experiment", "seed", "rows"):
        if not isinstance(run, dict) or key not in run:
            raise DataError(f"{path}: has no {key!r}; write it with: rulewright run {name} --seed SEED -o {path}")
    if run["experiment"] != name:
        raise DataError(f"{path}: holds a run of {run['experiment']}, but its name says {name}")
    return dict(run)


def family_names(family: str) -> list[str]:
    """Return the names of a family's experiments, without one on a user's own data.

    >>> family_names("milr")[0]
    'milr/dwie_atlop'
    """
    members = [experiment for experiment in experiments().values() if experiment.family == family]
    return [experiment.name for experiment in members if not experiment.needs_data]


def title_of(name: str) -> str:
    """Return an experiment's title."""
    return experiments()[name].title


def runs_of_task(runs: Runs, task: str) -> list[tuple[str, Sequence[Run]]]:
    """Return the runs of the experiments with one ``task`` in their settings, with the title of each experiment."""
    return [(title_of(name), runs[name]) for name in runs if experiments()[name].settings.get("task") == task]


def missing_runs(family: str, runs: Runs) -> list[tuple[str, int]]:
    """Return the experiments and seeds that are not there, of all seeds that some experiment has; 0 always counts.

    >>> missing_runs("milr", {name: [{"seed": 0}] for name in family_names("milr")})
    []
    """
    present = {(name, run["seed"]) for name, seeds in runs.items() for run in seeds}
    seeds = sorted({0, *(seed for _, seed in present)})
    return [(name, seed) for name in family_names(family) for seed in seeds if (name, seed) not in present]


def list_runs(runs: Runs, family: str) -> str:
    """Write which runs a page is made of, and which experiments have none."""
    lines = [f"- `{name}`: seeds {join_seeds(seeds)}; {seeds[0].get('machine', '')}" for name, seeds in runs.items()]
    absent = [f"`{name}`" for name in family_names(family) if name not in runs]
    if absent:
        lines.append(f"- not here: {', '.join(absent)}")
    return "\n".join(lines)


def join_seeds(runs: Sequence[Run]) -> str:
    """Write the seeds of runs.

    >>> join_seeds([{"seed": 0}, {"seed": 3}])
    '0, 3'
    """
    return ", ".join(str(run["seed"]) for run in runs)


def replace_blocks(page: str, blocks: Mapping[str, str], *, file: str) -> str:
    """Put new text between the marks of every block.

    >>> page = "Before. <!-- begin main --> old <!-- end main --> After."
    >>> print(replace_blocks(page, {"main": "new"}, file="a.md"))
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
    write_text(path, replace_blocks(page, blocks, file=str(path)))


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table; without rows, that there is no run.

    >>> print(markdown_table(("", "F1"), [("plain", "63.20")]))
    |  | F1 |
    |---|---|
    | plain | 63.20 |
    """
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in (columns, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(columns), *lines[1:]]) if len(lines) > 1 else ABSENT


def code_block(lines: Iterable[str]) -> str:
    """Write lines as they are."""
    return "\n".join(["```text", *lines, "```"])


def mean_and_sd(values: Iterable[float | None], *, scale: float = 100.0, digits: int = 2) -> str:
    """Write the mean of values and, of two or more, their sample standard deviation; what is unknown is left out.

    >>> mean_and_sd([0.5, 0.6]), mean_and_sd([0.5]), mean_and_sd([None])
    ('55.00 ± 7.07', '50.00', '–')
    """
    known = [scale * value for value in values if value is not None and not math.isnan(value)]
    if not known:
        return NOTHING
    middle = f"{mean(known):,.{digits}f}"
    return middle if len(known) == 1 else f"{middle} ± {stdev(known):,.{digits}f}"


def mean_figure(rows: Iterable[Mapping[str, Any]], key: str) -> str:
    """Write the mean of a figure between 0 and 1 over rows, to three digits; rows may lack it.

    >>> mean_figure([{"mrr": 0.5}, {"mrr": 0.5}, {}], "mrr")
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


def save_figure(figure: Any, path: Path) -> Path:
    """Write a plot as PNG; the same runs give the same bytes."""
    figure.savefig(path, dpi=100, metadata={"Software": None})
    return path
