"""What every command shares: tables, JSON, progress, and errors on one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

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
    table = Table(
        title=escape(title) if title else None, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    for place, column in enumerate(columns):
        numeric = all(isinstance(row[place], int | float) for row in rows) and bool(rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold", no_wrap=numeric)
    for row in rows:
        table.add_row(*map(_cell, row))
    if total is not None:
        table.add_section()
        table.add_row(*map(_cell, total), style="bold")
    console().print(table)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else escape(str(value))


@contextmanager
def progress(text: str) -> Iterator[Callable[..., None]]:
    """Show a bar with an estimate of the time left while work goes on; nothing where no one watches.

    Yields ``advance(done, total)``.
    """
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    parts = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*parts, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=None)

        def advance(done: int, total: int, *_: Any) -> None:
            bar.update(task, completed=done, total=total)

        yield advance


def warn(text: str) -> None:
    """Say something beside the result, on standard error."""
    Console(stderr=True, highlight=False).print(escape(text), style="yellow", soft_wrap=True)
