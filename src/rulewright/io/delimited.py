"""Delimited text, scanned by DuckDB: TSV, CSV or any other delimiter, compressed or not.

What a field says stays text: ``NA``, ``null`` and ``007`` are texts like any other. Fields may stand in double quotes;
in TSV only where all those of the first line do, else every character but tab and line break belongs to the field.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rulewright.errors import DataError, ParseError
from rulewright.files import STDIO, decode, file_error, read_bytes, write_text
from rulewright.io.formats import plain_suffix

_DELIMITERS = {".tsv": "\t", ".csv": ",", ".tab": "\t"}
_MISSING = "\x02"  # what DuckDB should read as NULL: nothing that a text holds


def delimiter_of(path: str | os.PathLike[str]) -> str:
    """Return the delimiter that a file to be written has by its name: tabs where that does not tell."""
    return _DELIMITERS.get(plain_suffix(path).lower(), "\t")


def write_columns(path: str | os.PathLike[str], header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    r"""Write rows of texts below a header, in one step: TSV, or CSV by the ending; ``-`` is standard output.

    >>> write_columns(folder / "ranks.csv", ["asked", "rank"], [["Rome, Italy", "1"]])
    >>> (folder / "ranks.csv").read_text()
    'asked,rank\n"Rome, Italy",1\n'
    """
    delimiter = delimiter_of(path)
    buffer = io.StringIO()
    if delimiter != "\t":
        csv.writer(buffer, delimiter=delimiter, lineterminator="\n").writerows([header, *rows])
    else:
        for row in (header, *rows):
            for cell in row:
                if any(character in cell for character in "\t\n\r\x00"):
                    raise DataError(f"the text {cell!r} cannot stand in a TSV file; write a .csv file instead")
            buffer.write("\t".join(row) + "\n")
    write_text(path, buffer.getvalue())


@dataclass(frozen=True)
class Sheet:
    """A file on disk that DuckDB reads as it is, the name to call it by, and what its first line tells."""

    file: Path
    name: str
    delimiter: str
    has_quotes: bool
    fields: tuple[str, ...]

    @property
    def title(self) -> str:
        """The file's name without its folder."""
        return "standard input" if self.name == STDIO else Path(self.name).name

    def fault(self, message: str, line: int | None = None) -> ParseError:
        """Build an error that names the file."""
        return ParseError(message, file=self.name, line=line)


@contextlib.contextmanager
def open_sheet(path: str | os.PathLike[str], delimiter: str | None = None) -> Iterator[Sheet]:
    """Give a file that DuckDB can read as it is: on disk, UTF-8 and either plain or gzip with its proper ending."""
    name = os.fspath(path)
    with _plain_file(name) as file:
        line = _first_line(file, name)
        if delimiter is None:
            delimiter = find_delimiter(line, name)
        fields = line.split(delimiter)
        has_quotes = delimiter != "\t" or are_quoted(fields)
        if has_quotes:
            with contextlib.suppress(csv.Error):
                fields = next(csv.reader([line], delimiter=delimiter))
        yield Sheet(file, name, delimiter, has_quotes, tuple(fields))


def are_quoted(fields: Sequence[str]) -> bool:
    """Tell whether all fields of a line stand in double quotes.

    >>> are_quoted(['"ann"', '"knows"', '"bob"']), are_quoted(['"ann"', "knows", "bob"])
    (True, False)
    """
    return all(len(field) > 1 and field[0] == field[-1] == '"' for field in fields)


@contextlib.contextmanager
def _plain_file(name: str) -> Iterator[Path]:
    start = b""
    try:
        if name != STDIO:
            with Path(name).open("rb") as opened:
                start = opened.read(8192)
    except (OSError, ValueError) as error:
        raise file_error("read", name, error) from None
    compressed = start[:2] == b"\x1f\x8b"
    foreign = start[:2] in (b"\xff\xfe", b"\xfe\xff") or start[:3] == b"\xef\xbb\xbf"
    if name != STDIO and not foreign and compressed == name.endswith(".gz"):
        if not compressed and b"\x00" in start:
            raise ParseError("a binary file, not text", file=name)
        yield Path(name)
        return
    text = decode(read_bytes(name), file=name)
    with tempfile.TemporaryDirectory(prefix="rulewright-") as folder:
        copy = Path(folder, "facts.txt")
        copy.write_bytes(text.encode())
        yield copy


def _first_line(file: Path, name: str) -> str:
    opener: Any = gzip.open if file.name.endswith(".gz") else open
    try:
        with opener(file, "rb") as opened:
            line = decode(next((line for line in opened if line.strip()), b""), file=name).strip("\r\n").split("\r")[0]
    except (OSError, EOFError) as error:
        raise ParseError(f"not a complete gzip file: {error}", file=name) from None
    if not line:
        raise ParseError("no facts: the file is empty", file=name)
    return line


def find_delimiter(line: str, name: str) -> str:
    """Tell from the name and the first line what separates columns; the line wins where the name cannot be right."""
    usual = _DELIMITERS.get(plain_suffix(name).lower())
    if usual is not None and usual in line:
        return usual
    others = ("\t", ",", ";", "|") if usual is not None else ("\t", ",", ";", "|", " ")
    for delimiter in others:
        if line.count(delimiter) >= 2:
            return delimiter
    if usual is not None:
        return usual
    raise ParseError(
        "no triples: the first line has fewer than three columns separated by tab, comma, ';', '|' or space",
        file=name,
        line=1,
    )


def scan(
    connection: Any, sheet: Sheet, table: str, selected: Mapping[str, str], *, header: bool, required: Mapping[int, str]
) -> int:
    """Make a table of a file and return how many rows it has; the file's columns are ``c0``, ``c1``, …

    ``selected`` are SQL expressions by the name of the column they make; ``required`` says by position, and in a word,
    which fields may not be empty.
    """
    import duckdb

    fields = {f"c{position}": "VARCHAR" for position in range(len(sheet.fields))}
    expressions = ", ".join(f'{expression} AS "{name}"' for name, expression in selected.items())
    empty = "".join(f" OR c{position} = ''" for position in required)
    mark = "'\"'" if sheet.has_quotes else "''"
    statement = (
        f"CREATE TABLE {table} AS SELECT {expressions}, FALSE{empty} AS is_bad FROM read_csv(?, columns = {fields}, "
        f"auto_detect = false, delim = ?, header = {str(header).lower()}, quote = {mark}, escape = {mark}, "
        f"nullstr = ?, compression = '{'gzip' if sheet.file.name.endswith('.gz') else 'none'}', store_rejects = true)"
    )
    try:
        connection.execute(statement, [str(sheet.file), sheet.delimiter, _MISSING])
    except duckdb.Error as error:
        fault = _first_fault(sheet, required, header=header)
        raise fault or sheet.fault(str(error).splitlines()[0]) from None
    bad, rows = connection.execute(
        f"SELECT (SELECT COUNT(*) FROM reject_errors) + COUNT(*) FILTER (is_bad), COUNT(*) FROM {table}"
    ).fetchone()
    if bad:
        raise _first_fault(sheet, required, header=header) or sheet.fault(f"{bad} lines cannot be read")
    if not rows:
        raise sheet.fault("no facts below the header" if header else "no facts")
    return int(rows)


def _first_fault(sheet: Sheet, required: Mapping[int, str], *, header: bool) -> ParseError | None:
    """Read the file again, slowly, for the line and the reason of its first fault."""
    text = decode(read_bytes(sheet.file), file=sheet.name).replace("\r", "\n")
    reader = None
    if sheet.has_quotes:
        reader = csv.reader(io.StringIO(text), delimiter=sheet.delimiter, strict=True)
    number, is_first = 0, True
    try:
        for count, fields in enumerate(reader or (line.split("\t") for line in text.split("\n")), start=1):
            number = reader.line_num if reader is not None else count
            if fields in ([], [""]):
                continue
            if len(fields) != len(sheet.fields):
                return sheet.fault(
                    f"found {len(fields)} columns, expected {len(sheet.fields)}: {sheet.delimiter.join(fields)[:60]!r}",
                    number,
                )
            for position, role in required.items():
                if not fields[position] and not (header and is_first):
                    return sheet.fault(f"the {role} is empty", number)
            is_first = False
    except csv.Error as error:
        return sheet.fault(f"{error}", number + 1)
    return None
