"""Tables for people: data frames of pandas or Polars, and HTML for notebooks."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from itertools import islice
from typing import Any, Literal

from rulewright.checks import OneOf, check_parameter
from rulewright.errors import MissingExtraError

FrameLibrary = Literal["pandas", "polars"]


def build_frame(columns: Mapping[str, Sequence[object]], library: FrameLibrary | None = None) -> Any:
    """Build a data frame of pandas or Polars; without a choice, of pandas where it is installed, else of Polars.

    >>> build_frame({"rule": ["p(X) :- q(X)."], "support": [3]}, "polars").shape
    (1, 2)
    """
    check_parameter("library", library, OneOf("pandas", "polars", None))
    if library != "polars":
        try:
            return import_module("pandas").DataFrame(dict(columns))
        except ImportError:
            if library == "pandas":
                raise MissingExtraError(
                    "this data frame needs pandas: pip install -c constraints.txt 'rulewright[frames]'"
                ) from None
    try:
        # Not strict: a column may hold 1 beside 0.5
        return import_module("polars").DataFrame(dict(columns), strict=False)
    except ImportError:
        raise MissingExtraError(
            "data frames need Polars: pip install -c constraints.txt 'rulewright[frames]'"
        ) from None


def html_table(columns: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "", limit: int = 100) -> str:
    """Write a table in HTML, everything escaped: the first ``limit`` rows, and how many more there are.

    >>> print(html_table(["rule", "share"], [("p(X) :- q(X, '<b>').", 0.5)]))
    <table><thead><tr><th>rule</th><th>share</th></tr></thead>
    <tbody><tr><td style="text-align: left">p(X) :- q(X, &#x27;&lt;b&gt;&#x27;).</td><td>0.5</td></tr></tbody></table>
    """
    from html import escape

    remaining = iter(rows)
    lines = ["<tr>" + "".join(map(_cell, row)) + "</tr>" for row in islice(remaining, limit)]
    more = sum(1 for _ in remaining)
    if more:
        lines.append(f'<tr><td colspan="{len(columns)}" style="text-align: left">… and {more:,} more</td></tr>')
    heading = "".join(f"<th>{escape(column)}</th>" for column in columns)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    body = "\n".join(lines)
    return f"<table>{title}<thead><tr>{heading}</tr></thead>\n<tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    """Write one cell: text to the left; numbers to the right, of four digits where they are no whole ones."""
    if value is None:
        return "<td></td>"
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return f"<td>{int(value):,}</td>" if isinstance(value, numbers.Integral) else f"<td>{float(value):.4g}</td>"
    from html import escape

    return f'<td style="text-align: left">{escape(str(value))}</td>'
