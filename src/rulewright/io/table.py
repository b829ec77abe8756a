"""Wide tables: a row for each entity, a column for each thing that is known of it.

One column has the names of the entities; what another says depends on what all its filled cells are:

| cells | facts |
|---|---|
| numerals | an attribute, ``age(ann, 42)`` |
| dates | an attribute in years, ``born(ann, 1950.5)`` |
| true and false | a predicate of one argument: ``retired(ann)`` is true, or observed false |
| anything else | a relation, ``city(ann, bonn)`` |

An empty cell says nothing. A column whose name ends in *id*, such as ``manager_id``, has names even where they are
numerals. In a Parquet file the types of the columns decide, and text is names.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rulewright.data import ENTITY_TYPE, FactTable, KnowledgeBase
from rulewright.data.vocabulary import format_count, lay_out_domains
from rulewright.errors import DataError, FileError, ParseError, unknown_name
from rulewright.io.columns import find_field, is_by_name
from rulewright.io.delimited import open_sheet, scan
from rulewright.io.formats import plain_suffix, shorten_list
from rulewright.io.values import DATES_NOTE, number_sql, seconds_sql, to_years
from rulewright.logic import NUMBER_TYPE, PredicateDeclaration

Kind = Literal["name", "number", "date", "truth"]
_SIGNATURES: dict[Kind, str] = {"name": "ee", "number": "en", "date": "en", "truth": "e"}
_SQL_TYPES: dict[Kind, str] = {"name": "VARCHAR", "number": "DOUBLE", "date": "DOUBLE", "truth": "BOOLEAN"}
_TYPES = {"ee": (ENTITY_TYPE, ENTITY_TYPE), "en": (ENTITY_TYPE, NUMBER_TYPE), "e": (ENTITY_TYPE,)}
_ROLES = ("head", "tail", "_")
_ID = re.compile(r"(?i:(.*[_ -])?id)|.*[a-z]I[dD]")
_SQL_NUMBERS = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|DECIMAL.*")
_DESCRIPTIONS: dict[Kind, str] = {
    "name": "relations",
    "number": "numbers",
    "date": DATES_NOTE,
    "truth": "true or false",
}


def read(path: str | os.PathLike[str], *, columns: Sequence[str] | None = None) -> KnowledgeBase:
    r"""Read a table with a header, from TSV, CSV or Parquet; its first column names the entities.

    ``columns`` says by name what is otherwise: ``head=name`` names the entities, ``tail=column`` has names whatever
    they look like, ``_=column`` is passed over.

    >>> _ = (folder / "people.csv").write_text("name,age,city,retired\nann,71,bonn,true\nbob,42,,false\n")
    >>> kb = read(folder / "people.csv")
    >>> kb.tuples("age"), kb.tuples("city"), kb.tuples("retired"), kb.tuples("retired", truth=False)
    ([('ann', 71.0), ('bob', 42.0)], [('ann', 'bonn')], [('ann',)], [('bob',)])
    """
    import duckdb

    name = os.fspath(path)
    with contextlib.closing(duckdb.connect()) as connection:
        if plain_suffix(path) == ".parquet":
            if not Path(name).is_file():
                raise FileError(f"cannot read {name}: no such file")
            try:
                connection.read_parquet(name).create_view("frame")
            except duckdb.Error as error:
                raise ParseError(f"not a Parquet file: {str(error).splitlines()[0]}", file=name) from None
            return read_typed(connection, name, columns)
        with open_sheet(path) as sheet:
            fields = [field.strip() for field in sheet.fields]
            roles = _choose_roles(columns, fields, name)
            selected = {f"c{position}": f"NULLIF(c{position}, '')" for position in range(len(fields))}
            required = {roles.index("head"): f"name ({fields[roles.index('head')]})"}
            scan(connection, sheet, "sheet", selected, header=True, required=required)
        return _read_sheet(connection, Path(name).name, fields, roles, find_kinds(connection, "sheet", fields))


def read_typed(connection: Any, name: str, columns: Sequence[str] | None) -> KnowledgeBase:
    """Read the table ``frame`` of a connection, whose columns have types."""
    described = connection.execute("DESCRIBE frame").fetchall()
    fields = [str(row[0]) for row in described]
    roles = _choose_roles(columns, fields, name)
    quoted = (f'"{field.replace(chr(34), chr(34) * 2)}" AS c{position}' for position, field in enumerate(fields))
    connection.execute(f"CREATE VIEW sheet AS SELECT {', '.join(quoted)} FROM frame")
    kinds = [_kind_of_type(field, str(row[1])) for field, row in zip(fields, described, strict=True)]
    return _read_sheet(connection, Path(name).name, fields, roles, kinds)


def _read_sheet(
    connection: Any, title: str, fields: Sequence[str], roles: Sequence[str], kinds: Sequence[Kind | None]
) -> KnowledgeBase:
    """Read the table ``sheet``, whose columns are ``c0``, ``c1``, … of these kinds."""
    head = f"CAST(c{roles.index('head')} AS VARCHAR)"
    facts = FactQueries(connection)
    facts.add_entities(f"SELECT {head} FROM sheet")
    read_kinds: dict[str, Kind | None] = {}
    for position, (field, role, kind) in enumerate(zip(fields, roles, kinds, strict=True)):
        if role in ("tail", "") and field:
            kind = "name" if role == "tail" and kind is not None else kind
            read_kinds[field] = kind
            if kind is not None:
                facts.add(kind, field, head, value_sql(f"c{position}", kind), "sheet")
    note = _describe(fields[roles.index("head")], read_kinds, len(fields) - 1 - len(read_kinds))
    return facts.encode().with_notes([f"{title}: {note}"])


def _choose_roles(columns: Sequence[str] | None, fields: Sequence[str], name: str) -> list[str]:
    """Return for each column head, tail, ``_`` or nothing; the first is the head where none is given."""
    named = [field for field in fields if field]
    if len(set(named)) < len(named):
        twice = next(field for field in named if named.count(field) > 1)
        raise ParseError(f"two columns have the name {twice!r}; every column of a table has its own", file=name, line=1)
    roles = [""] * len(fields)
    if columns is not None and not is_by_name(columns):
        raise DataError(
            "the columns of a table are given by name: head=NAME for the entities, tail=NAME for one that holds names, "
            f"_=NAME for one to pass over; got {','.join(columns)}"
        )
    for column in columns or ():
        role, _, field = column.partition("=")
        if role not in _ROLES:
            raise unknown_name("role of a column", role, _ROLES)
        try:
            roles[find_field(field, fields)] = role
        except DataError as error:
            raise ParseError(str(error), file=name, line=1) from None
    if "head" not in roles:
        roles[roles.index("")] = "head"
    if roles.count("head") > 1:
        raise DataError(f"one column of a table names the entities, got {','.join(columns or ())}")
    return roles


def _kind_of_type(field: str, sql_type: str) -> Kind | None:
    if sql_type == "VARCHAR" or sql_type.startswith("ENUM"):
        return "name"
    if _SQL_NUMBERS.fullmatch(sql_type):
        return "name" if _ID.fullmatch(field) else "number"
    if sql_type == "DATE" or sql_type.startswith("TIMESTAMP"):
        return "date"
    return "truth" if sql_type == "BOOLEAN" else None


def find_kinds(connection: Any, table: str, fields: Sequence[str]) -> list[Kind | None]:
    """Tell by its texts what each column ``c0``, ``c1``, … holds; None where it is empty."""
    tests = (number_sql, seconds_sql, lambda column: f"NULLIF(lower({column}) IN ('true', 'false'), FALSE)")
    counts = [
        count
        for position in range(len(fields))
        for count in (f"COUNT(c{position})", *(f"COUNT({test(f'c{position}')})" for test in tests))
    ]
    figures = connection.execute(f"SELECT {', '.join(counts)} FROM {table}").fetchone()
    kinds: list[Kind | None] = []
    for position, field in enumerate(fields):
        filled, *matching = figures[4 * position : 4 * position + 4]
        all_kinds: tuple[Kind, ...] = ("number", "date", "truth")
        found = (kind for kind, count in zip(all_kinds, matching, strict=True) if count == filled)
        kinds.append(None if not filled else "name" if _ID.fullmatch(field) else next(found, "name"))
    return kinds


def value_sql(column: str, kind: Kind) -> str:
    """Return the SQL for the value of a column, be it text or typed."""
    text = f"CAST({column} AS VARCHAR)"
    if kind == "truth":
        return f"lower({text}) = 'true'"
    if kind == "number":
        return f"CASE WHEN isfinite(TRY_CAST({column} AS DOUBLE)) THEN TRY_CAST({column} AS DOUBLE) END"
    return seconds_sql(text) if kind == "date" else text


def _describe(head: str, kinds: dict[str, Kind | None], more: int) -> str:
    parts = [f"a table about {head or 'its first column'}"]
    for kind, words in _DESCRIPTIONS.items():
        names = [name for name, found in kinds.items() if found == kind]
        if names:
            parts.append(f"{words}: {shorten_list(names)}")
    unread = [name for name, kind in kinds.items() if kind is None]
    if unread:
        parts.append(f"empty or of a type that is not read: {shorten_list(unread)}")
    if more:
        parts.append(f"{format_count(more, 'more column', 'more columns')} passed over")
    return "; ".join(parts)


class FactQueries:
    """Facts as SQL queries over the tables of a connection, and how they become a knowledge base.

    A predicate is of one kind; a name that was added under another is refused.
    """

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._queries: dict[Kind, list[str]] = {kind: [] for kind in _SIGNATURES}
        self._entities: list[str] = []

    def add_entities(self, query: str) -> None:
        """Add entities by a query that selects their names, whether or not they have facts."""
        self._entities.append(query)

    def add(self, kind: Kind, predicate: str, head: str, value: str, source: str) -> None:
        """Add a predicate's facts: SQL for the heads and for the values, NULL where there is no fact."""
        text = predicate.replace("'", "''")
        self.add_query(kind, f"SELECT '{text}' AS predicate, {head} AS head, {value} AS value FROM {source}")

    def add_query(self, kind: Kind, query: str) -> None:
        """Add facts by a query that selects predicate, head and value."""
        self._queries[kind].append(query)

    def encode(self) -> KnowledgeBase:
        """Run the queries and build the knowledge base; repeated facts are dropped."""
        run = self.connection.execute
        for kind, queries in self._queries.items():
            union = " UNION ALL ".join(queries) or "SELECT '' AS predicate, '' AS head, NULL AS value WHERE FALSE"
            filled = "value <> ''" if kind == "name" else "value IS NOT NULL"
            run(
                f"CREATE TABLE facts_{kind} AS SELECT predicate, head, CAST(value AS {_SQL_TYPES[kind]}) AS value "
                f"FROM ({union}) WHERE head <> '' AND {filled}"
            )
        heads = [f"SELECT head FROM facts_{kind}" for kind in _SIGNATURES]
        labels = " UNION ".join([*self._entities, *heads, "SELECT value FROM facts_name"])
        names = " UNION ".join(f"SELECT predicate, '{kind}' FROM facts_{kind}" for kind in _SIGNATURES)
        index = "CAST(row_number() OVER (ORDER BY label) - 1 AS INTEGER) AS id"
        run(f"CREATE TABLE entity AS SELECT label, {index} FROM ({labels}) AS named(label) WHERE label <> ''")
        run(f"CREATE TABLE predicate AS SELECT label, kind, {index} FROM ({names}) AS named(label, kind)")
        entities = run("SELECT label FROM entity ORDER BY id").fetchnumpy()["label"]
        kinds: dict[str, Kind] = {}
        for name, kind in run("SELECT label, kind FROM predicate ORDER BY id").fetchall():
            if name in kinds:
                raise DataError(f"{name} has a {kinds[name]} here and a {kind} there; a predicate has one meaning")
            kinds[name] = kind
        both = run("""
            SELECT predicate, head FROM facts_truth GROUP BY predicate, head HAVING COUNT(DISTINCT value) > 1 LIMIT 1
        """).fetchone()
        if both:
            raise DataError(f"contradictory facts: {both[0]}({both[1]}) is both true and false")
        tables = {letters: self._encode_facts(letters) for letters in ("ee", "en", "e")}
        kept = sum(len(true) + len(false) for true, false in tables.values())
        total = sum(run(f"SELECT COUNT(*) FROM facts_{kind}").fetchone()[0] for kind in _SIGNATURES)
        return KnowledgeBase(
            lay_out_domains([(ENTITY_TYPE, entities, None)]),
            [PredicateDeclaration(name, _TYPES[_SIGNATURES[kind]]) for name, kind in kinds.items()],
            {letters: true for letters, (true, _) in tables.items() if len(true)},
            {letters: false for letters, (_, false) in tables.items() if len(false)},
            duplicates=total - kept,
        )

    def _encode_facts(self, letters: str) -> tuple[FactTable, FactTable]:
        """Return the facts of a signature, true and false."""
        parts = []
        for kind in (kind for kind, signature in _SIGNATURES.items() if signature == letters):
            value, join = ("t.id", "JOIN entity AS t ON value = t.label") if kind == "name" else ("value", "")
            rows = self.connection.execute(f"""
                SELECT DISTINCT predicate.id AS predicate, h.id AS head, {value} AS value FROM facts_{kind}
                JOIN predicate ON predicate = predicate.label JOIN entity AS h ON head = h.label {join}
            """).fetchnumpy()
            predicate, head, values = (np.asarray(column) for column in rows.values())
            parts.append((predicate, head, to_years(values) if kind == "date" else values))
        predicate, head, values = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.lexsort((values, head, predicate))
        predicate, head, values = predicate[order].astype(np.int32), head[order].astype(np.int32), values[order]
        if letters == "e":
            true = values.astype(bool)
            table = FactTable("e", predicate, (head,))
            return table.keep_rows(true), table.keep_rows(~true)
        dtype = np.float64 if letters == "en" else np.int32
        table = FactTable(letters, predicate, (head, values.astype(dtype)))
        return table, table.keep_rows(np.zeros(len(table), dtype=bool))
