"""Facts in Parquet files and in data frames of pandas, Polars or Arrow.

A graph is one table with the columns head, relation and tail, under these names or those that a TSV's header may have
(subject, predicate, object, …); other columns are passed over. Facts of any arity are one table a predicate: a column
of numbers holds numbers, every other column names. Integers in the columns of a graph are names, as in a TSV.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rulewright.data import ENTITY_TYPE, KnowledgeBase, signature
from rulewright.data.facts import Column
from rulewright.data.vocabulary import lay_out_domains
from rulewright.errors import DataError, FileError, MissingExtraError, ParseError
from rulewright.files import STDIO, file_error
from rulewright.io.formats import refuse_all_but_true_facts
from rulewright.io.triples import encoded, roles_of_header
from rulewright.logic import NUMBER_TYPE, PredicateDeclaration, RuleSet

_ROLES = ("head", "relation", "tail")
_OTHER_SHAPES = "for other shapes there is frames.from_tables"
_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
_REAL = ("FLOAT", "DOUBLE")


def from_frame(frame: Any) -> KnowledgeBase:
    """Read a graph from a data frame (pandas, Polars, Arrow) or a mapping of NumPy columns.

    >>> columns = {"head": np.array(["ann"]), "relation": np.array(["parent_of"]), "tail": np.array(["bob"])}
    >>> from_frame(columns).tuples("parent_of")
    [('ann', 'bob')]
    """
    with _registered(frame) as connection:
        return _graph(connection, "the frame")


def to_frame(kb: KnowledgeBase) -> Any:
    """Return a graph as a Polars data frame with the columns head, relation and tail."""
    return _polars().DataFrame({name: column.tolist() for name, column in _triple_columns(kb).items()})


def from_tables(tables: Mapping[str, Any]) -> KnowledgeBase:
    """Read facts of any arity: under each predicate's name a data frame with one column an argument, in order.

    >>> from_tables({"age": {"who": np.array(["ann"]), "years": np.array([42])}}).tuples("age")
    [('ann', 42.0)]
    """
    found = {name: _argument_columns(name, frame) for name, frame in tables.items()}
    everything = [
        np.asarray(column, dtype=object) for parts in found.values() for column in parts if _holds_names(column)
    ]
    labels, codes = np.unique(np.concatenate([np.empty(0, dtype=object), *everything]), return_inverse=True)
    starts = iter(np.cumsum([0, *map(len, everything)]).tolist())
    predicates, columns = [], {}
    for name, parts in found.items():
        coded: list[Column] = []
        for column in parts:
            if _holds_names(column):
                start = next(starts)
                coded.append(codes[start : start + len(column)].astype(np.int32))
            else:
                coded.append(np.asarray(column, dtype=np.float64))
        types = tuple(ENTITY_TYPE if _holds_names(column) else NUMBER_TYPE for column in parts)
        predicates.append(PredicateDeclaration(name, types))
        columns[name] = coded
    return KnowledgeBase.from_columns(lay_out_domains([(ENTITY_TYPE, labels, None)]), predicates, columns)


def to_tables(kb: KnowledgeBase) -> dict[str, Any]:
    """Return facts of any arity as Polars data frames, one a predicate, with the columns ``arg1``, ``arg2``, …"""
    polars = _polars()
    refuse_all_but_true_facts(kb, "a data frame")
    tables = {}
    for name, declaration in kb.predicates.items():
        columns = zip(declaration.types, kb.columns(name), strict=True)
        tables[name] = polars.DataFrame(
            {
                f"arg{place}": column if kind == NUMBER_TYPE else kb.domains[kind].labels_of(column).tolist()
                for place, (kind, column) in enumerate(columns, start=1)
            },
            schema={
                f"arg{place}": polars.Float64 if kind == NUMBER_TYPE else polars.String
                for place, kind in enumerate(declaration.types, start=1)
            },
        )
    return tables


def rules_frame(rules: RuleSet) -> Any:
    """Return the rules of a set as a Polars data frame: rule, head, length, confidence and every annotation."""
    return _polars().DataFrame(rules.columns(), strict=False)


def read_parquet(path: str | os.PathLike[str]) -> KnowledgeBase:
    """Read a graph from a Parquet file."""
    import duckdb

    name = os.fspath(path)
    if not Path(name).is_file():
        raise FileError(f"cannot read {name}: no such file")
    with contextlib.closing(duckdb.connect()) as connection:
        try:
            connection.read_parquet(name).create_view("frame")
            return _graph(connection, name)
        except duckdb.Error as error:
            raise ParseError(f"not a Parquet file: {_first_line(error)}", file=name) from None


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
            connection.execute("CREATE TABLE frame AS SELECT head, relation, tail FROM incoming")
            connection.table("frame").write_parquet(str(temporary))
            temporary.replace(target)
        except (duckdb.Error, OSError) as error:
            temporary.unlink(missing_ok=True)
            raise file_error("write", str(target), OSError(_first_line(error))) from None


def _graph(connection: Any, name: str) -> KnowledgeBase:
    """Read the table ``frame``, whose columns name a head, a relation and a tail."""
    described = connection.execute("DESCRIBE frame").fetchall()
    fields, types = [row[0] for row in described], [row[1] for row in described]
    roles = roles_of_header(fields)
    if roles is None:
        raise ParseError(
            f"found the columns {', '.join(fields) or 'none'}, expected head, relation and tail; {_OTHER_SHAPES}",
            file=name,
        )
    chosen = []
    for role in (*_ROLES, "world"):
        if role not in roles:
            chosen.append(f"NULL AS {role}")
            continue
        place = roles.index(role)
        if types[place] != "VARCHAR" and types[place] not in _WHOLE and not types[place].startswith("ENUM"):
            raise ParseError(
                f"column {fields[place]} holds {types[place]}, expected text or whole numbers; {_OTHER_SHAPES}",
                file=name,
            )
        chosen.append(f"CAST({_quoted(fields[place])} AS VARCHAR) AS {role}")
    connection.execute(f"CREATE TABLE plain AS SELECT {', '.join(chosen)} FROM frame")
    apart = "" if "world" not in roles else " || '@' || world"  # the same name in two worlds is two entities
    connection.execute(
        f"CREATE VIEW raw AS SELECT 0 AS split, head{apart} AS head, relation, tail{apart} AS tail, world FROM plain"
    )
    empty, rows = connection.execute("""
        SELECT COUNT(*) FILTER (COALESCE(head, '') = '' OR COALESCE(relation, '') = '' OR COALESCE(tail, '') = ''),
        COUNT(*) FROM plain
    """).fetchone()
    if empty or not rows:
        problem = f"{empty:,} of {rows:,} rows have an empty head, relation or tail" if empty else "no facts"
        raise ParseError(problem, file=name)
    return encoded(connection, [""])


@contextlib.contextmanager
def _registered(frame: Any) -> Iterator[Any]:
    """Give a connection on which ``frame`` is a table."""
    import duckdb

    if isinstance(frame, Mapping):  # NumPy's own strings would need pandas
        columns = {name: np.asarray(column) for name, column in frame.items()}
        frame = {name: each.astype(object) if each.dtype.kind == "U" else each for name, each in columns.items()}
    with contextlib.closing(duckdb.connect()) as connection:
        try:
            connection.register("frame", frame)
            connection.execute("DESCRIBE frame")
        except (duckdb.Error, TypeError, UnicodeError) as error:
            raise DataError(f"not a data frame that can be read: {_first_line(error)}") from None
        yield connection


def _argument_columns(name: str, frame: Any) -> list[Column]:
    with _registered(frame) as connection:
        found = connection.execute("SELECT * FROM frame").fetchnumpy()
        types = [row[1] for row in connection.execute("DESCRIBE frame").fetchall()]
    columns: list[Column] = []
    for (field, column), kind in zip(found.items(), types, strict=True):
        if np.ma.is_masked(column) or any(each is None for each in column.tolist()):
            raise DataError(f"column {field} of {name} has empty cells; every argument of a fact is known")
        if kind != "VARCHAR" and kind not in (*_WHOLE, *_REAL) and not kind.startswith("ENUM"):
            raise DataError(f"column {field} of {name} holds {kind}, expected text or numbers")
        columns.append(np.asarray(column, dtype=np.float64 if kind in (*_WHOLE, *_REAL) else object))
    if not columns:
        raise DataError(f"{name} has no columns; a predicate needs at least one argument")
    return columns


def _holds_names(column: Column) -> bool:
    return column.dtype == object


def _triple_columns(kb: KnowledgeBase) -> dict[str, Column]:
    refuse_all_but_true_facts(kb, "a table of triples", "ee")
    parts: dict[str, list[Column]] = {role: [np.empty(0, dtype=object)] for role in _ROLES}
    for name, declaration in kb.predicates.items():
        if signature(declaration) != "ee":
            continue
        head, tail = (
            kb.domains[kind].labels_of(column) for kind, column in zip(declaration.types, kb.columns(name), strict=True)
        )
        relation = np.full(len(head), name, dtype=object)
        for role, column in zip(_ROLES, (head, relation, tail), strict=True):
            parts[role].append(column)
    found = {role: np.concatenate(columns) for role, columns in parts.items()}
    if any((column == "").any() for column in found.values()):
        raise DataError("a table of triples has no place for an empty name; write a .facts or .jsonl file instead")
    return found


def _polars() -> Any:
    try:
        import polars
    except ImportError:
        raise MissingExtraError(
            "data frames need Polars: pip install -c constraints.txt 'rulewright[frames]'"
        ) from None
    return polars


def _quoted(field: str) -> str:
    return '"' + field.replace('"', '""') + '"'


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
