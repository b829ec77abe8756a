"""Facts in Parquet files and in data frames of pandas, Polars or Arrow.

A graph is one table with the columns head, relation and tail, under these names or those that a TSV's header may have
(subject, predicate, object, …); other columns are passed over. Facts of any arity are one table a predicate: a column
of numbers holds numbers, every other column names. Integers in the columns of a graph are names, as in a TSV.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rulewright.data import ENTITY_TYPE, KnowledgeBase, signature
from rulewright.data.facts import Column
from rulewright.data.vocabulary import lay_out_domains
from rulewright.errors import DataError, FileError, ParseError, unknown_name
from rulewright.files import STDIO, file_error
from rulewright.io.columns import FACT_ROLES, choose_columns, describe_columns, read_header
from rulewright.io.formats import refuse_all_but_true_facts
from rulewright.io.table import read_typed
from rulewright.io.triples import encode_triples
from rulewright.io.values import format_number
from rulewright.logic import NUMBER_TYPE, PredicateDeclaration

RESULT_KEY = "rulewright"
"""The name under which the metadata of a Parquet file says how its facts were inferred."""

_OTHER_SHAPES = "for other shapes there is frames.from_tables"
_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
_REAL = ("FLOAT", "DOUBLE")


def from_frame(
    frame: Any, *, format: Literal["triples", "table"] = "triples", columns: Sequence[str] | None = None
) -> KnowledgeBase:
    """Read a graph from a data frame (pandas, Polars, Arrow) or a mapping of NumPy columns.

    ``format`` table is for frames with a row for each entity; ``columns`` says what the columns are where their names
    do not. Both mean what they mean for `read_facts`.

    >>> frame = {"head": np.array(["ann"]), "relation": np.array(["parent_of"]), "tail": np.array(["bob"])}
    >>> from_frame(frame).tuples("parent_of")
    [('ann', 'bob')]
    >>> from_frame({"name": np.array(["ann"]), "age": np.array([42])}, format="table").tuples("age")
    [('ann', 42.0)]
    """
    with _registered(frame) as connection:
        readers = {"triples": _read_graph, "table": read_typed}
        if format not in readers:
            raise unknown_name("format of a frame", format, readers)
        return readers[format](connection, "the frame", columns)


def from_tables(tables: Mapping[str, Any]) -> KnowledgeBase:
    """Read facts of any arity: under each predicate's name a data frame with one column an argument, in order.

    >>> from_tables({"age": {"who": np.array(["ann"]), "years": np.array([42])}}).tuples("age")
    [('ann', 42.0)]
    """
    arguments = {name: _argument_columns(name, frame) for name, frame in tables.items()}
    names = [column for columns in arguments.values() for column in columns if column.dtype == object]
    labels, codes = np.unique(np.concatenate([np.empty(0, dtype=object), *names]), return_inverse=True)
    entity_columns = iter(np.split(codes.astype(np.int32), np.cumsum([len(column) for column in names])))
    predicates, encoded = [], {}
    for name, columns in arguments.items():
        types = tuple(ENTITY_TYPE if column.dtype == object else NUMBER_TYPE for column in columns)
        predicates.append(PredicateDeclaration(name, types))
        encoded[name] = [next(entity_columns) if column.dtype == object else column for column in columns]
    return KnowledgeBase.from_columns(lay_out_domains([(ENTITY_TYPE, labels, None)]), predicates, encoded)


def read_parquet(path: str | os.PathLike[str], *, columns: Sequence[str] | None = None) -> KnowledgeBase:
    """Read a graph from a Parquet file; ``columns`` says what they are where their names do not."""
    import duckdb

    name = os.fspath(path)
    if not Path(name).is_file():
        raise FileError(f"cannot read {name}: no such file")
    with contextlib.closing(duckdb.connect()) as connection:
        try:
            connection.read_parquet(name).create_view("file")
            inferred, note = _is_result(connection, name), ""
            if inferred:
                [(passed,)] = connection.execute(
                    "SELECT COUNT(*) FROM file WHERE status IN ('known', 'false')"
                ).fetchall()
                note = f"{Path(name).name}: the new facts of apply; {passed:,} that they were inferred from passed over"
            new = "SELECT * EXCLUDE (status, score, round, rules, rule_scores, indices) FROM file WHERE status = 'new'"
            connection.execute(f"CREATE VIEW frame AS {new if inferred else 'SELECT * FROM file'}")
            kb = _read_graph(connection, name, columns)
            return kb.with_notes([note]) if note else kb
        except duckdb.Error as error:
            raise ParseError(f"not a Parquet file: {_first_line(error)}", file=name) from None


def _is_result(connection: Any, name: str) -> bool:
    """Return whether a file is what `rulewright apply` wrote."""
    keys = connection.execute("SELECT key FROM parquet_kv_metadata(?)", [name]).fetchall()
    return (RESULT_KEY.encode(),) in keys


def write_parquet(kb: KnowledgeBase, path: str | os.PathLike[str]) -> None:
    """Write a graph as a Parquet file with the columns head, relation and tail."""
    import duckdb

    if os.fspath(path) == STDIO:
        raise DataError("a Parquet file cannot go to standard output; name a file")
    target = Path(path)
    columns = _triple_columns(kb)
    temporary = target.with_name(f".{target.name}.writing")
    with contextlib.closing(duckdb.connect()) as connection:
        try:
            connection.register("incoming", columns)
            texts = ", ".join(f"CAST({role} AS VARCHAR) AS {role}" for role in FACT_ROLES)  # even of no rows
            connection.execute(f"CREATE TABLE frame AS SELECT {texts} FROM incoming")
            connection.table("frame").write_parquet(str(temporary))
            temporary.replace(target)
        except (duckdb.Error, OSError) as error:
            temporary.unlink(missing_ok=True)
            raise file_error("write", str(target), OSError(_first_line(error))) from None


def _read_graph(connection: Any, name: str, columns: Sequence[str] | None) -> KnowledgeBase:
    """Read the table ``frame``, whose columns name a head, a relation and a tail."""
    described = connection.execute("DESCRIBE frame").fetchall()
    fields, types = [row[0] for row in described], [row[1] for row in described]
    try:
        roles = read_header(fields) if columns is None else choose_columns(columns, fields)
    except DataError as error:
        raise ParseError(str(error), file=name) from None
    if roles is None:
        raise ParseError(
            f"found the columns {', '.join(fields) or 'none'}, expected head, relation and tail; say which by "
            "--columns, such as head=who,relation=does,tail=whom; a table with a row for each entity is read by "
            f"--from table, and {_OTHER_SHAPES}",
            file=name,
        )
    positions = {("tail" if role == "name" else role): position for position, role in enumerate(roles) if role != "_"}
    selected = []
    for role in (*FACT_ROLES, "world"):
        if role not in positions:
            selected.append(f"NULL AS {role}")
            continue
        field, sql_type = fields[positions[role]], types[positions[role]]
        if not _holds_text(sql_type) and sql_type not in _WHOLE:
            raise ParseError(
                f"column {field} holds {sql_type}, expected text or whole numbers; {_OTHER_SHAPES}", file=name
            )
        quoted = field.replace('"', '""')
        selected.append(f'CAST("{quoted}" AS VARCHAR) AS {role}')
    connection.execute(f"CREATE TABLE plain AS SELECT {', '.join(selected)} FROM frame")
    connection.execute("CREATE VIEW raw AS SELECT 0 AS split, * FROM plain")
    empty, rows = connection.execute("""
        SELECT COUNT(*) FILTER (COALESCE(head, '') = '' OR COALESCE(relation, '') = '' OR COALESCE(tail, '') = ''),
        COUNT(*) FROM plain
    """).fetchone()
    if empty or not rows:
        problem = f"{empty:,} of {rows:,} rows have an empty head, relation or tail" if empty else "no facts"
        raise ParseError(problem, file=name)
    note = describe_columns(roles, fields) if columns is None else ""
    kb = encode_triples(connection, [""], attributes="name" not in roles)
    return kb.with_notes([f"{Path(name).name}: {note}"] if note else [])


@contextlib.contextmanager
def _registered(frame: Any) -> Iterator[Any]:
    """Give a connection on which ``frame`` is a table."""
    import duckdb

    if isinstance(frame, Mapping):  # NumPy's own strings would need pandas
        columns = {name: np.asarray(column) for name, column in frame.items()}
        frame = {name: part.astype(object) if part.dtype.kind == "U" else part for name, part in columns.items()}
    with contextlib.closing(duckdb.connect()) as connection:
        try:
            connection.register("frame", frame)
            connection.execute("DESCRIBE frame")
        except (duckdb.Error, TypeError, UnicodeError) as error:
            raise DataError(f"not a data frame that can be read: {_first_line(error)}") from None
        yield connection


def _argument_columns(name: str, frame: Any) -> list[Column]:
    with _registered(frame) as connection:
        values = connection.execute("SELECT * FROM frame").fetchnumpy()
        types = [row[1] for row in connection.execute("DESCRIBE frame").fetchall()]
    columns: list[Column] = []
    for (field, column), sql_type in zip(values.items(), types, strict=True):
        if np.ma.is_masked(column) or None in column.tolist():
            raise DataError(f"column {field} of {name} has empty cells; every argument of a fact is known")
        is_number = sql_type in (*_WHOLE, *_REAL)
        if not is_number and not _holds_text(sql_type):
            raise DataError(f"column {field} of {name} holds {sql_type}, expected text or numbers")
        columns.append(np.asarray(column, dtype=np.float64 if is_number else object))
    if not columns:
        raise DataError(f"{name} has no columns; a predicate needs at least one argument")
    return columns


def _triple_columns(kb: KnowledgeBase) -> dict[str, Column]:
    refuse_all_but_true_facts(kb, "a table of triples", "e[en]")
    parts: dict[str, list[Column]] = {role: [np.empty(0, dtype=object)] for role in FACT_ROLES}
    for name, declaration in kb.predicates.items():
        letters, columns = signature(declaration), kb.columns(name)
        if letters not in ("ee", "en"):
            continue
        head = kb.domains[declaration.types[0]].labels_of(columns[0])
        if letters == "ee":
            tail = kb.domains[declaration.types[1]].labels_of(columns[1])
        else:
            tail = np.array([*map(format_number, columns[1].tolist())], dtype=object)
        for role, column in zip(FACT_ROLES, (head, np.full(len(head), name, dtype=object), tail), strict=True):
            parts[role].append(column)
    triples = {role: np.concatenate(columns) for role, columns in parts.items()}
    if any((column == "").any() for column in triples.values()):
        raise DataError("a table of triples has no place for an empty name; write a .facts or .jsonl file instead")
    return triples


def _holds_text(sql_type: str) -> bool:
    return sql_type == "VARCHAR" or sql_type.startswith("ENUM")


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
