"""What a text says: a number, a date or neither, in SQL that DuckDB runs over whole columns.

Numbers are numerals without leading zeros and with at most 15 digits before the point: ``007`` and ids that a double
cannot hold are names. Dates are those of ISO 8601, with or without a time of day. They become years with a fraction, so
that a year, a date and a time can be compared: the start of 2020 is 2020, noon of 2 July 2019 is 2019.5.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_NUMERAL = r"-?(0|[1-9][0-9]{0,14})(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?"
_OFFSET = r"(Z|[+-][0-9]{2}:[0-9]{2})"
_DATE = rf"-?[0-9]{{4,6}}-[0-9]{{2}}-[0-9]{{2}}([T ][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}(\.[0-9]+)?)?)?{_OFFSET}?"
DATES_NOTE = "dates in years (2 July 2020 is 2020.5)"


def number_sql(column: str) -> str:
    """Return the SQL for the number that a text is, NULL where it is none."""
    return (
        f"CASE WHEN regexp_full_match({column}, '{_NUMERAL}') AND isfinite(TRY_CAST({column} AS DOUBLE)) "
        f"THEN TRY_CAST({column} AS DOUBLE) END"
    )


def seconds_sql(column: str) -> str:
    """Return the SQL for the seconds from 1970 to a date, for `to_years`; NULL where a text is none."""
    date = f"CASE WHEN regexp_full_match({column}, '{_DATE}') THEN regexp_replace({column}, '{_OFFSET}$', '') END"
    sign, hours, minutes = (f"regexp_extract({column}, '([+-])([0-9]{{2}}):([0-9]{{2}})$', {i})" for i in (1, 2, 3))
    parts = (f"TRY_CAST({sign} || {part} AS INTEGER) * {length}" for part, length in ((hours, 3600), (minutes, 60)))
    return f"epoch(TRY_CAST({date} AS TIMESTAMP)) - COALESCE({' + '.join(parts)}, 0)"


def to_years(seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the years, with a fraction, of points in time given as seconds from 1970.

    >>> to_years(np.array([0.0, 43200.0 * 365, np.nan])).tolist()
    [1970.0, 1970.5, nan]
    """
    is_time = np.isfinite(seconds)
    times = np.where(is_time, seconds * 1e6, 0).round().astype(np.int64).view("datetime64[us]")
    years = times.astype("datetime64[Y]")
    start, end = years.astype(times.dtype), (years + 1).astype(times.dtype)
    return np.where(is_time, 1970 + years.astype(np.int64) + (times - start) / (end - start), np.nan)


def read_years(texts: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return the years that dates are, NaN for texts that are none.

    >>> read_years(["2020-07-02", "2019-07-02T14:00:00+02:00", "1900-01-01", "yesterday", "2020-02-30"]).tolist()
    [2020.5, 2019.5, 1900.0, nan, nan]
    """
    import duckdb

    column: npt.NDArray[Any] = np.empty(len(texts), dtype=object)
    column[:] = texts
    with contextlib.closing(duckdb.connect()) as connection:
        connection.register("texts", {"text": column})
        seconds = connection.execute(f"SELECT {seconds_sql('text')} AS seconds FROM texts").fetchnumpy()["seconds"]
    return to_years(np.ma.filled(np.ma.asarray(seconds, dtype=np.float64), np.nan))


def format_number(value: float) -> str:
    """Write a number as a numeral that reads back as it is, without a point where it is whole.

    >>> format_number(42.0), format_number(0.1)
    ('42', '0.1')
    """
    if abs(value) >= 1e15:
        return f"{value:.16e}"
    return str(int(value)) if value.is_integer() else repr(value)
