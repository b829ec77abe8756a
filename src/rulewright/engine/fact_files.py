"""Files of triples that an engine reads by itself, row by row into a table: Parquet, TSV and CSV, N-Triples.

One file, all files that a pattern matches (``graph/*.parquet``), a folder of parts, or a folder with a file for each
split. The rows come as texts into a table with the columns head, relation and tail.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rulewright.errors import DataError, FileError, ParseError
from rulewright.io.columns import FACT_ROLES, choose_columns, describe_columns, is_by_name, read_header
from rulewright.io.delimited import find_delimiter, open_sheet
from rulewright.io.folders import lay_out_folder, split_files
from rulewright.io.formats import plain_suffix

if TYPE_CHECKING:
    from rulewright.engine.duckdb import Engine
    from rulewright.engine.spark import SparkEngine

FileFormat = Literal["parquet", "delimited", "nt"]
_FORMATS: Mapping[str, FileFormat] = {
    ".parquet": "parquet",
    ".tsv": "delimited",
    ".txt": "delimited",
    ".csv": "delimited",
    ".nt": "nt",
}
_TRIPLE = r'^\s*(<[^>]*>|_:\S+)\s+<([^>]*)>\s+(<[^>]*>|_:\S+|".*"\S*)\s*\.\s*(#.*)?$'


@dataclass(frozen=True)
class FactFiles:
    """Files of one format whose rows belong together."""

    paths: tuple[str, ...]
    file_format: FileFormat

    def fingerprint(self) -> list[object]:
        """Return what changes when the files do: names, sizes and times; of addresses the names alone."""
        stats = [(path, Path(path).stat()) for path in self.paths if "://" not in path]
        known = [[os.path.realpath(path), stat.st_size, stat.st_mtime_ns] for path, stat in stats]
        return [self.file_format, *known, *(path for path in self.paths if "://" in path)]


def find_fact_files(path: str) -> dict[str, FactFiles]:
    """Find the files of a path, a pattern, a folder or an address: the main facts under ``""``, splits by name.

    >>> _ = (folder / "train.tsv").write_text("a\\tr\\tb\\n"), (folder / "test.tsv").write_text("b\\tr\\tc\\n")
    >>> {split: len(files.paths) for split, files in find_fact_files(str(folder)).items()}
    {'': 1, 'test': 1}
    """
    if "://" in path:
        return {"": FactFiles((path,), _FORMATS.get(plain_suffix(path), "parquet"))}
    if glob.has_magic(path) and not Path(path).exists():
        return {"": _group_files(path, _match_pattern(path))}
    if Path(path).is_dir():
        if split_files(Path(path), tuple(_FORMATS)):
            layout = lay_out_folder(Path(path), tuple(_FORMATS))
            return {split: _group_files(path, [*map(str, files)]) for split, files in layout.files.items()}
        files = (file for file in sorted(Path(path).rglob("*")) if not file.name.startswith((".", "_")))
        return {"": _group_files(path, [str(file) for file in files if plain_suffix(file) in _FORMATS])}
    if not Path(path).exists():
        raise FileError(f"cannot read {path}: no such file or folder, and no file fits it as a pattern")
    return {"": _group_files(path, [path])}


def describe_folder(path: str) -> list[str]:
    """Return what is to say of a folder with splits: which files together are the main facts, which are left out."""
    if "://" in path or not Path(path).is_dir() or not split_files(Path(path), tuple(_FORMATS)):
        return []
    return [*lay_out_folder(Path(path), tuple(_FORMATS)).notes]


def _match_pattern(path: str) -> list[str]:
    """Return the files that fit a pattern, in order; not those that Spark and others write beside data."""
    parts = Path(path).parts
    first = next(position for position, part in enumerate(parts) if glob.has_magic(part))
    files = (file for file in Path(*parts[:first]).glob(str(Path(*parts[first:]))) if file.is_file())
    return sorted(str(file) for file in files if file.name[0] not in "._" or parts[-1].startswith(file.name[0]))


def _group_files(path: str, files: Sequence[str]) -> FactFiles:
    formats = {_FORMATS.get(plain_suffix(file)) for file in files}
    if not files or None in formats or len(formats) > 1:
        found = ", ".join(sorted({plain_suffix(file) or "no ending" for file in files})) or "no files"
        raise DataError(
            f"{path}: an engine reads files of one format by itself, {', '.join(_FORMATS)} (.gz where it is text); "
            f"found {found}; convert others first: rulewright convert FILE graph.parquet"
        )
    (file_format,) = formats
    assert file_format is not None
    return FactFiles(tuple(files), file_format)


def describe_sources(sources: Mapping[str, FactFiles], columns: Sequence[str] | None) -> str:
    """Return the splits and a digest of what is read and how, as JSON."""
    told = json.dumps([{split: files.fingerprint() for split, files in sources.items()}, columns])
    digest = hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()
    return json.dumps({"splits": [*sources], "digest": digest})


def _choose_roles(fields: Sequence[str], columns: Sequence[str] | None, name: str) -> tuple[tuple[str, ...], bool]:
    """Return the role of each column, and whether its name says so."""
    clear = read_header(fields)
    if columns is not None:
        return choose_columns(columns, fields), is_by_name(columns) or clear is not None
    if clear is not None:
        return clear, True
    if len(fields) < 3:
        raise ParseError(f"found {len(fields)} columns, expected 3 (head, relation, tail)", file=name)
    return (*FACT_ROLES, *["_"] * (len(fields) - 3)), False


def _place_roles(roles: Sequence[str], name: str) -> dict[str, int]:
    positions = {("tail" if role == "name" else role): position for position, role in enumerate(roles) if role != "_"}
    if "world" in positions:
        raise DataError(f"{name}: facts that stay in an engine are one graph; worlds are for read_facts")
    return positions


def select_triples(line: str, source: str, quote_text: Callable[[str], str]) -> tuple[str, str]:
    """Return the statements for the triples in lines of N-Triples, and for lines that are none."""
    pattern = quote_text(_TRIPLE)

    def part(index: int) -> str:
        text = f"REGEXP_EXTRACT({line}, {pattern}, {index})"
        return f"CASE WHEN {text} LIKE '<%' THEN SUBSTR({text}, 2, LENGTH({text}) - 2) ELSE {text} END"

    is_triple = f"REGEXP_EXTRACT({line}, {pattern}, 2) <> ''"
    is_said = f"TRIM({line}) <> '' AND NOT TRIM({line}) LIKE '#%'"
    triples = f"SELECT {part(1)} AS head, {part(2)} AS relation, {part(3)} AS tail FROM {source} WHERE {is_triple}"
    return triples, f"SELECT {line} AS line FROM {source} WHERE {is_said} AND NOT ({is_triple}) LIMIT 1"


# By DuckDB


def read_by_duckdb(engine: Engine, table: str, files: FactFiles, columns: Sequence[str] | None) -> list[str]:
    """Make a table of the triples of files; return what is to say of how they were read."""
    import duckdb

    connection, notes = engine.connection, list[str]()
    listed = ", ".join(engine.quote_text(path) for path in files.paths)
    # A table that is read two or three times and then let go: to compress its texts takes longer than to read them
    connection.execute("SET force_compression = 'uncompressed'")
    try:
        if files.file_format == "delimited":
            notes = _read_sheets(connection, table, files, columns)
        elif files.file_format == "nt":
            rows = (
                f"read_csv([{listed}], columns = {{'line': 'VARCHAR'}}, auto_detect = false, delim = '\x01', "
                "quote = '', escape = '', header = false, nullstr = '\x02')"
            )
            triples, others = select_triples("line", rows, engine.quote_text)
            if bad := connection.execute(others).fetchone():
                raise ParseError(f"not N-Triples: {bad[0][:80]!r}", file=files.paths[0])
            engine._execute(f"CREATE OR REPLACE TABLE {table} AS {triples}")
        else:
            fields = [
                row[0] for row in connection.execute(f"DESCRIBE SELECT * FROM read_parquet([{listed}])").fetchall()
            ]
            roles, _ = _choose_roles(fields, columns, files.paths[0])
            notes.append(describe_columns(roles, fields))
            selected = ", ".join(
                f'CAST("{fields[place]}" AS VARCHAR) AS {role}' for role, place in _place_roles(roles, table).items()
            )
            engine._execute(f"CREATE OR REPLACE TABLE {table} AS SELECT {selected} FROM read_parquet([{listed}])")
    except duckdb.Error as error:
        raise ParseError(str(error).splitlines()[0][:300], file=files.paths[0]) from None
    connection.execute("RESET force_compression")  # after an error the engine is closed
    refuse_empty(connection.execute(count_empty(table)).fetchone(), files.paths[0])
    return [note for note in notes if note]


def _read_sheets(connection: Any, table: str, files: FactFiles, columns: Sequence[str] | None) -> list[str]:
    from rulewright.io.triples import read_sheet

    notes: dict[str, None] = {}
    connection.execute(f"DROP TABLE IF EXISTS {table}")
    for index, path in enumerate(files.paths):
        part = table if index == 0 else f"{table}_part"
        connection.execute(f"DROP TABLE IF EXISTS {part}")
        with open_sheet(path, None) as sheet:
            notes |= dict.fromkeys(read_sheet(connection, sheet, part, columns, None))
        if index:
            connection.execute(f"INSERT INTO {table} SELECT * FROM {part}")
            connection.execute(f"DROP TABLE {part}")
    return [*notes]


def count_empty(table: str) -> str:
    """Return the statement that counts rows in which something is missing."""
    missing = " OR ".join(f"{role} IS NULL OR {role} = ''" for role in FACT_ROLES)
    return f"SELECT COUNT(*) AS n, MIN(CONCAT_WS(' ', head, relation, tail)) AS example FROM {table} WHERE {missing}"


def refuse_empty(row: Sequence[Any] | None, name: str) -> None:
    """Refuse facts without a head, a relation or a tail."""
    if row is not None and row[0]:
        raise ParseError(f"{row[0]:,} rows lack a head, a relation or a tail, such as {row[1]!r}", file=name)


# By Spark


def read_by_spark(engine: SparkEngine, table: str, files: FactFiles, columns: Sequence[str] | None) -> list[str]:
    """Make a table of the triples of files; return what is to say of how they were read."""
    from pyspark.sql.functions import col

    notes: list[str] = []
    reader, paths = engine.session.read, [_name_file(path) for path in files.paths]
    if files.file_format == "nt":
        reader.text(paths).createOrReplaceTempView("lines_of_text")
        triples, others = select_triples("value", "lines_of_text", engine.quote_text)
        bad = engine._work(lambda: engine.session.sql(others).collect())
        if bad:
            raise ParseError(f"not N-Triples: {bad[0]['line'][:80]!r}", file=files.paths[0])
        frame = engine.session.sql(triples)
    elif files.file_format == "parquet":
        frame = reader.parquet(*paths)
        roles, _ = _choose_roles(frame.columns, columns, files.paths[0])
        notes.append(describe_columns(roles, frame.columns))
        places = _place_roles(roles, table)
        frame = frame.select(*(col(f"`{frame.columns[place]}`").cast("string").alias(r) for r, place in places.items()))
    else:
        first = engine._work(lambda: reader.text(paths[0]).first())
        if first is None:
            raise ParseError("no facts: the file is empty", file=files.paths[0])
        line = first[0].removeprefix("\ufeff")
        delimiter = find_delimiter(line, files.paths[0])
        fields = line.split(delimiter)
        roles, header = _choose_roles([field.strip('"') for field in fields], columns, files.paths[0])
        notes.append(describe_columns(roles, fields if header else None))
        names = [f"c{position}" for position in range(len(fields))]
        frame = reader.csv(
            paths,
            schema=", ".join([*(f"{name} STRING" for name in names), "is_bad STRING"]),
            sep=delimiter,
            header=header,
            enforceSchema=True,
            quote="" if delimiter == "\t" and not line.startswith('"') else '"',
            escape='"',
            nullValue="\x02",
            emptyValue="",
            columnNameOfCorruptRecord="is_bad",
        )
        places = _place_roles(roles, table)
        frame = frame.select(
            *(col(f"c{place}").alias(role) for role, place in places.items()), col("is_bad").alias("is_bad")
        )
        engine._write(table, frame)
        counts = engine._run(f"SELECT COUNT(*) AS n, MIN(is_bad) AS example FROM {table} WHERE is_bad IS NOT NULL")
        if counts["n"][0]:
            raise ParseError(
                f"{counts['n'][0]:,} lines have not {len(fields)} columns, such as {str(counts['example'][0])[:60]!r}",
                file=files.paths[0],
            )
        frame = engine.select(f"SELECT head, relation, tail FROM {table}")
    engine._write(table, frame)
    refuse_empty([*(column[0] for column in engine._run(count_empty(table)).values())], files.paths[0])
    return [note for note in notes if note]


def _name_file(path: str) -> str:
    return path if "://" in path else str(Path(path).resolve())
