"""What every command shares: tables, JSON, progress, and errors on one line."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rulewright import files
from rulewright.checks import Progress
from rulewright.errors import ParseError

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

    from rulewright.data import KnowledgeBase
    from rulewright.logic import Rule

# Written out here, since the table of formats would have to be loaded for every --help.
FACT_FORMAT_NAMES = (
    "facts, triples, jsonl, rdf, parquet, table, neo4j, prolog, alchemy, mln-folder, docred, scenes, vrd, gqa, "
    "visual-genome, funsd, conll"
)
RULE_FORMAT_NAMES = "rules, mln, mln-rules, milr-rules, anyburl, amie, prolog-rules, jsonl-rules"
OUTPUT_FORMAT_NAMES = (
    "facts, triples, jsonl, rdf, parquet, prolog, alchemy; "
    "rules, mln, anyburl, amie, prolog-rules, jsonl-rules, latex, english"
)
FactFormat = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="FORMAT",
        help=f"The format of the facts where name and content do not tell: {FACT_FORMAT_NAMES}.",
    ),
]
FactColumns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="ROLE,…",
        help="What the columns of the facts are, in order: head, relation, tail, world, or _ to pass one over; or by "
        "their names in the header, such as head=subject,relation=predicate,tail=object.",
    ),
]
LabelFile = Annotated[
    str | None,
    typer.Option(
        "--labels", metavar="FILE", help="Labels to show for names: a table with a name and its label a line."
    ),
]
CalibrationFile = Annotated[
    str | None,
    typer.Option(
        "--calibration", metavar="FILE", help="Show probabilities too, by what evaluate kbc --calibration wrote."
    ),
]
EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="ADDRESS",
        help="Where the facts stay and the work is done: duckdb, or Spark: local[2], spark://host:7077, sc://host.",
    ),
]
DatabaseFile = Annotated[
    str | None,
    typer.Option("--database", metavar="FILE", help="Keep the facts in this DuckDB file; memory may be smaller."),
]
TableFolder = Annotated[
    str | None,
    typer.Option(
        "--folder", metavar="DIR", help="Keep Spark's tables here; the same call goes on where it was stopped."
    ),
]
MemoryLimitText = Annotated[
    str | None, typer.Option("--memory-limit", "--memory", help="Memory for the joins, such as 2GB.")
]
_LOGGER = logging.getLogger("rulewright.cli")
_TELL_EVERY = 10.0
_SHOW_EVERY = 15.0  # seconds between two lines where no bar can move
_PIPE_WIDTH = 160  # a pipe has no width of its own; tables should not be squeezed into a terminal's 80

Row = Sequence[object]


def console() -> Console:
    """Return the console for results: colours and the real width on a terminal, plain and wide in a pipe."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH, soft_wrap=False)


def print_line(text: str = "") -> None:
    """Print a line as it is: no markup, no wrapping inside words."""
    console().print(escape(text), soft_wrap=True)


def print_json(value: object) -> None:
    """Print a value for machines, on standard output."""
    json.dump(value, sys.stdout, ensure_ascii=False, indent=2)
    sys.stdout.write("\n")


def print_table(columns: Sequence[str], rows: Sequence[Row], *, title: str = "", total: Row | None = None) -> None:
    """Print rows; numbers are set to the right. ``total`` is a last row below a line."""
    console().print(_table(columns, rows, title=title, total=total))


def _table(columns: Sequence[str], rows: Sequence[Row], *, title: str = "", total: Row | None = None) -> Table:
    table = Table(
        title=escape(title) if title else None, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    for position, column in enumerate(columns):
        numeric = all(isinstance(row[position], int | float) for row in rows) and bool(rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold", no_wrap=numeric)
    for row in rows:
        table.add_row(*map(_cell, row))
    if total is not None:
        table.add_section()
        table.add_row(*map(_cell, total), style="bold")
    return table


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else escape(str(value))


@contextmanager
def progress(title: str = "") -> Iterator[Progress]:
    """Show a bar with the stage and an estimate of the time left while work goes on.

    In a pipe a line says the same now and then, and nothing of work that is soon done. Yields the callback to be handed
    on; ``title`` stands there until it is called.
    """
    if not sys.stderr.isatty():
        yield ProgressLog(show=_print_progress)
        return
    with _make_bar() as bar:
        yield _report_to(bar, title)


def _print_progress(text: str) -> None:
    Console(stderr=True, highlight=False).print(escape(text), soft_wrap=True)


class ProgressLog:
    """Logs every new stage of the work and every few seconds how far it has come; ``show`` is given it less often.

    >>> seconds = iter([0, 20, 35, 40, 50])
    >>> report = ProgressLog(show=print, clock=lambda: next(seconds))
    >>> for done in range(4):
    ...     report("learning likes", done, 4)
    learning likes: 0 of 4
    learning likes: 1 of 4, about 45 s left
    learning likes: 3 of 4, about 10 s left
    """

    def __init__(
        self, *, show: Callable[[str], None] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._show, self._clock = show, clock
        self._stage, self._told, self._shown = "", 0.0, clock()
        self._first = (0.0, 0)  # time and count where the count that runs began
        self._latest = (0, 0)  # the last count, and of how many

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Take note of how far the work has come, and tell it where it is time to."""
        now = self._clock()
        # A new stage may go on with the count of the one before, as where each relation is one
        if stage != self._stage and (total != self._latest[1] or done < self._latest[0] or not self._stage):
            self._first = (now, done)
        if stage != self._stage:
            self._stage, self._told = stage, 0.0
        self._latest = (done, total)
        is_shown = self._show is not None and now - self._shown >= _SHOW_EVERY
        if not is_shown and now - self._told <= _TELL_EVERY:
            return
        self._told = now
        began, first = self._first
        left = (now - began) / (done - first) * (total - done) if first < done < total else 0.0
        text = f"{stage}: {done:,} of {total:,}" + (f", about {_format_duration(left)} left" if left else "")
        if is_shown and self._show is not None:
            self._shown = now
            self._show(text)
        _LOGGER.info(text, extra={"is_shown": True} if is_shown else None)


def _format_duration(seconds: float) -> str:
    """Write a time as roughly as it is known.

    >>> [_format_duration(seconds) for seconds in (7.2, 200, 9000)]
    ['7 s', '3 min', '2.5 h']
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _make_bar() -> RichProgress:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    parts = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return RichProgress(*parts, console=Console(stderr=True), transient=True)


def _report_to(bar: RichProgress, title: str) -> Progress:
    task, log = bar.add_task(escape(title), total=None), ProgressLog()

    def report(stage: str, done: int, total: int) -> None:
        log(stage, done, total)
        bar.update(task, description=escape(stage), completed=done, total=total)

    return report


@contextmanager
def live_rules(title: str, limit: int = 10) -> Iterator[tuple[Progress, Callable[[Sequence[Rule]], None]]]:
    """Show a bar and below it the best rules so far while a learner works; in a pipe a line now and then.

    Yields ``report(stage, done, total)`` and ``show(rules)``, which takes rules as they come.
    """
    if not sys.stderr.isatty():
        yield ProgressLog(show=_print_progress), lambda rules: None
        return
    from rich.console import Group
    from rich.live import Live

    bar = _make_bar()
    best: list[Rule] = []
    count = 0
    with Live(bar, console=bar.console, transient=True) as live:

        def show(rules: Sequence[Rule]) -> None:
            nonlocal best, count
            count += len(rules)
            best = sorted([*best, *rules], key=lambda rule: (-rule.confidence, -(rule.support or 0)))[:limit]
            rows = [
                (rule.confidence, rule.support or "", f"{rule.head} :- {', '.join(map(str, rule.body))}")
                for rule in best
            ]
            table = _table(("confidence", "support", "rule"), rows, title=f"{count:,} rules so far, the best of them:")
            live.update(Group(bar, table), refresh=True)

        yield _report_to(bar, title), show


def show_probability(probability: float | None) -> str:
    """Return a probability as text.

    >>> show_probability(0.98765), show_probability(2e-7), show_probability(None)
    ('0.988', '<0.001', '—')
    """
    if probability is None:
        return "—"
    return f"{probability:.3f}" if probability >= 0.001 or probability == 0 else "<0.001"


def warn(text: str) -> None:
    """Say something beside the result, on standard error and in a log file."""
    _LOGGER.warning(text, extra={"is_shown": True})
    Console(stderr=True, highlight=False).print(escape(text), style="yellow", soft_wrap=True)


def read_facts_of(
    path: str,
    format: FactFormat = None,
    columns: FactColumns = None,
    *,
    context: typer.Context | None = None,
) -> KnowledgeBase:
    """Read the facts that a command is given, and say on standard error what is to know of how they were read.

    With the options ``--engine`` or ``--database`` of the command they stay there until it ends.
    """
    from rulewright.errors import DataError
    from rulewright.io import read_facts

    options = {} if context is None else context.params
    engine, database = options.get("engine"), options.get("database")
    if engine is None and database is None and not path.endswith(".duckdb"):
        if context is not None and "learner" not in options:  # learners keep other things there
            refuse_options(context, "it keeps the tables of Spark (--engine)", "folder")
        kb = read_facts(path, format=format, columns=columns)
    else:
        from rulewright.engine import store_facts

        if format is not None:
            raise DataError("an engine reads Parquet, TSV, CSV and N-Triples by their endings; --from is not for it")
        stored = store_facts(
            path,
            engine=engine or "duckdb",
            database=database,
            folder=options.get("folder"),
            memory_limit=options.get("memory_limit"),
            columns=columns,
        )
        if context is not None:
            context.call_on_close(stored.close)
        stored.engine.on_expectation = lambda expectation: warn(f"to come: {expectation}")
        kb = stored
    for note in kb.notes:
        warn(note)
    return kb


def check_output(
    path: str | None,
    inputs: Sequence[str | None],
    contents: Literal["facts", "rules"] | None = None,
    format: str | None = None,
) -> None:
    """Refuse, before the work, an output that cannot be written, has no known format, or is one of the ``inputs``.

    Of a folder that is read, every file is an input that facts could be in.
    """
    from rulewright.io.formats import RULE_FORMATS, find_output_format, plain_suffix

    if path is None:
        return
    if contents is not None:
        find_output_format(path, contents, format)
    sources = [source for source in inputs if source is not None]
    rule_endings = {ending for format in RULE_FORMATS.values() for ending in format.endings}
    target = Path(path).resolve()
    if target.is_file() and (contents == "facts" or plain_suffix(target) not in rule_endings):
        sources += [path for source in sources if Path(source).resolve() in target.parents]
    files.check_output(path, inputs=sources)


def refuse_options(context: typer.Context, reason: str, *names: str) -> None:
    """End with exit code 2 where one of these parameters stands in the command: the chosen mode would ignore it."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(reason, param_hint=f"'{max(parameter.opts, key=len)}'")


class Labels(dict[str, str]):
    """Labels of names, to be shown with them.

    >>> labels = Labels({"Q42": "Douglas Adams", "P27": "country"})
    >>> print(labels.show("'P27'('Q42', X)."), labels.name("Q42"), labels.name("Q1"))
    country [P27](Douglas Adams [Q42], X). Douglas Adams [Q42] Q1
    """

    def name(self, name: str) -> str:
        """Return a name with its label."""
        return f"{self[name]} [{name}]" if name in self else name

    def show(self, text: str) -> str:
        """Return a text of the rule language with the labels of the names in it, for a person to read."""

        def label(match: re.Match[str]) -> str:
            quoted, plain = match.groups()
            name = plain if quoted is None else quoted.replace("\\'", "'").replace("\\\\", "\\")
            return self.name(name) if name in self else match[0]

        return re.sub(r"'((?:[^'\\]|\\.)*)'|(\w+)", label, text) if self else text


def read_labels(path: str | None) -> Labels:
    """Read names and their labels from a table: TSV, or CSV by its ending; further columns are passed over."""
    if path is None:
        return Labels()
    import csv

    from rulewright.files import read_text
    from rulewright.io.formats import plain_suffix

    lines = read_text(path).splitlines()
    rows = csv.reader(lines) if plain_suffix(path) == ".csv" else (line.split("\t") for line in lines)
    labels = Labels()
    for number, row in enumerate(rows, start=1):
        if len(row) < 2 and any(row):
            raise ParseError("expected a name and its label, separated by a tab", file=path, line=number)
        if any(row):
            labels.setdefault(row[0].strip(), row[1].strip())
    return labels


def experiment_names(incomplete: str) -> list[str]:
    """Return the experiments, and their families, that begin so."""
    from rulewright.papers.catalogue import experiments

    by_name = experiments()
    names = {*by_name, *(experiment.family for experiment in by_name.values())}
    return sorted(name for name in names if name.startswith(incomplete))


def dataset_names(incomplete: str) -> list[str]:
    """Return the data sets that begin so.

    >>> dataset_names("uml")
    ['umls']
    """
    from rulewright.datasets import catalogue

    return sorted(name for name in catalogue() if name.startswith(incomplete))
