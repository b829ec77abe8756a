"""Exports of Neo4j: CSV files of nodes and of relationships, as ``neo4j-admin`` imports them, or one file of APOC.

What a column is stands in the header, ``id:ID(Person),name,age:int,:LABEL`` and ``:START_ID,role,:END_ID,:TYPE``:

| column | facts |
|---|---|
| ``:ID``, ``:START_ID``, ``:END_ID`` | the entities; ids of two spaces that coincide are kept apart as ``space:id`` |
| ``:LABEL`` | a predicate of one argument for each label, ``person(1)`` |
| ``:TYPE`` | the relation; without it the name of the file |
| properties of nodes | attributes for numbers and dates, relations for texts; booleans are true or observed false |
| properties of relationships, points, times and durations | none: a note names them |

APOC's file has the columns ``_id``, ``_labels``, ``_start``, ``_end`` and ``_type``; its properties have no types, and
what all their cells are decides, as in a table.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rulewright.data import KnowledgeBase
from rulewright.errors import DataError, ParseError
from rulewright.io.delimited import Sheet, open_sheet, scan
from rulewright.io.folders import name_unread_files
from rulewright.io.formats import neo4j_files, shorten_list
from rulewright.io.table import FactQueries, Kind, find_kinds, value_sql

_FIELD = re.compile(r"(?P<name>[^:]*)(?::(?P<type>[^({]+?)(?:\((?P<space>[^)]*)\))?(?:\{.*\})?)?")
_APOC = {"_id": "ID", "_labels": "LABEL", "_start": "START_ID", "_end": "END_ID", "_type": "TYPE"}
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("int", "long", "short", "byte", "float", "double"), "number"),
    **dict.fromkeys(("date", "datetime", "localdatetime"), "date"),
    **dict.fromkeys(("string", "char"), "name"),
    "boolean": "truth",
}


@dataclass(frozen=True)
class _Field:
    """A column: the name of a property, its type (in lower case; ``ID`` and its like in upper case), its id space."""

    position: int
    name: str
    type: str
    space: str

    @property
    def column(self) -> str:
        return f"c{self.position}"


@dataclass(frozen=True)
class _Export:
    """A file that has been scanned into ``table``."""

    table: str
    title: str
    stem: str
    fields: tuple[_Field, ...]
    is_apoc: bool

    def find(self, type_name: str) -> _Field | None:
        return next((field for field in self.fields if field.type == type_name), None)

    @property
    def properties(self) -> list[_Field]:
        return [field for field in self.fields if field.name and not field.type.isupper()]


def read(path: str | os.PathLike[str]) -> KnowledgeBase:
    r"""Read a file of relationships or of nodes, or a folder with files of both.

    >>> _ = (folder / "people.csv").write_text("id:ID,age:int,:LABEL\n1,42,Person\n2,39,Person;Boss\n")
    >>> _ = (folder / "links.csv").write_text(":START_ID,since,:END_ID,:TYPE\n1,2020,2,KNOWS\n")
    >>> kb = read(folder)
    >>> kb.tuples("Person"), kb.tuples("age"), kb.tuples("KNOWS")
    ([('1',), ('2',)], [('1', 42.0), ('2', 39.0)], [('1', '2')])
    >>> kb.notes
    ('links.csv: properties of relationships are not read: since',)
    """
    import duckdb

    folder = Path(path)
    if folder.is_dir():
        files = neo4j_files(folder)
        notes = name_unread_files(folder, files)
    else:
        files = [folder]
        beside = [file.name for file in neo4j_files(folder.parent) if file.name != folder.name]
        notes = (
            [f"not read, beside {folder.name}: {shorten_list(beside)}; name the folder to read all"] if beside else []
        )
    if not files:
        raise DataError(f"{os.fspath(path)}: no file here has a header of Neo4j, such as :START_ID,:END_ID,:TYPE")
    with contextlib.closing(duckdb.connect()) as connection:
        exports = []
        for index, file in enumerate(files):
            with open_sheet(file) as sheet:
                exports.append(_scan_export(connection, sheet, f"export_{index}"))
        prefixes = _find_prefixes(connection, exports)
        taken = _find_names(connection, exports)
        facts = FactQueries(connection)
        for export in exports:
            notes += _add_nodes(connection, facts, export, prefixes, taken)
            notes += _add_relationships(facts, export, prefixes)
        return facts.encode().with_notes(notes)


def _scan_export(connection: Any, sheet: Sheet, table: str) -> _Export:
    names = [field.strip() for field in sheet.fields]
    is_apoc = "_id" in names or "_start" in names
    fields = []
    for position, name in enumerate(names):
        match = _FIELD.fullmatch(name)
        if name in _APOC and is_apoc:
            fields.append(_Field(position, "", _APOC[name], ""))
        elif match is None:
            raise sheet.fault(f"expected a column such as name, age:int or :START_ID, got {name!r}", 1)
        else:
            type_name = (match["type"] or "string").strip()
            type_name = type_name.upper() if type_name.upper() in (*_APOC.values(), "IGNORE") else type_name.lower()
            fields.append(_Field(position, match["name"].strip(), type_name, (match["space"] or "").strip()))
    types = [field.type for field in fields]
    if "ID" not in types and not {"START_ID", "END_ID"} <= set(types):
        raise sheet.fault(f"expected a column :ID, or :START_ID and :END_ID, got {', '.join(names)}", 1)
    selected = {field.column: f"NULLIF({field.column}, '')" for field in fields}
    required = {} if is_apoc else {f.position: f.type for f in fields if f.type in ("ID", "START_ID", "END_ID")}
    scan(connection, sheet, table, selected, header=True, required=required)
    stem = sheet.title.removesuffix(".gz").rsplit(".", 1)[0]
    return _Export(table, sheet.title, stem, tuple(fields), is_apoc)


def _find_prefixes(connection: Any, exports: Sequence[_Export]) -> dict[str, str]:
    """Return what stands before the ids of each space: nothing, unless an id occurs in two spaces."""
    occurrences = [
        (field.space, f"SELECT {field.column} AS id, '{index}' AS space FROM {export.table}")
        for export in exports
        for field in export.fields
        for index in [_space_index(exports, field.space)]
        if field.type in ("ID", "START_ID", "END_ID")
    ]
    spaces = {space for space, _ in occurrences}
    union = " UNION ".join(query for _, query in occurrences)
    shared = connection.execute(f"SELECT 1 FROM ({union}) GROUP BY id HAVING COUNT(DISTINCT space) > 1 LIMIT 1")
    is_shared = shared.fetchone() is not None
    return {space: f"{space}:" if space and is_shared else "" for space in spaces}


def _space_index(exports: Sequence[_Export], space: str) -> int:
    return sorted({field.space for export in exports for field in export.fields}).index(space)


def _find_names(connection: Any, exports: Sequence[_Export]) -> set[str]:
    """Return the names of labels and of relationships, which properties give way to."""
    names = set()
    for export in exports:
        label, type_field = export.find("LABEL"), export.find("TYPE")
        if label is not None:
            rows = connection.execute(f"SELECT DISTINCT {_labels_sql(label, export)} FROM {export.table}").fetchall()
            names |= {name for (name,) in rows}
        if type_field is not None:
            rows = connection.execute(f"SELECT DISTINCT {type_field.column} FROM {export.table}").fetchall()
            names |= {name for (name,) in rows}
        elif export.find("START_ID") is not None:
            names.add(export.stem)
    return names


def _labels_sql(label: _Field, export: _Export) -> str:
    return f"trim(unnest(string_split({label.column}, '{':' if export.is_apoc else ';'}')))"


def _entity_sql(field: _Field, prefixes: dict[str, str]) -> str:
    prefix = prefixes[field.space].replace("'", "''")
    return f"'{prefix}' || {field.column}" if prefix else field.column


def _add_nodes(
    connection: Any, facts: FactQueries, export: _Export, prefixes: dict[str, str], taken: set[str]
) -> list[str]:
    id_field, label = export.find("ID"), export.find("LABEL")
    if id_field is None:
        return []
    head = _entity_sql(id_field, prefixes)
    nodes = f"(SELECT * FROM {export.table} WHERE {id_field.column} IS NOT NULL)"
    facts.add_entities(f"SELECT {head} FROM {nodes}")
    if label is not None:
        labels = _labels_sql(label, export)
        query = f"SELECT {labels} AS predicate, {head} AS head, TRUE AS value FROM {nodes}"
        facts.add_query("truth", f"SELECT * FROM ({query}) WHERE predicate <> ''")
    found = find_kinds(connection, nodes, [field.name for field in export.fields]) if export.is_apoc else []
    unread, renamed = [], []
    for field in export.properties:
        element = field.type.removesuffix("[]")
        kind = found[field.position] if export.is_apoc else _KINDS.get(element)
        if kind is None:
            unread.append(field.name)
            continue
        name = field.name
        while name in taken:
            name += "_value"
        if name != field.name:
            renamed.append(f"{field.name} is read as {name}")
        cell = field.column if element == field.type else f"unnest(string_split({field.column}, ';'))"
        cells = f"(SELECT {head} AS head, {cell} AS cell FROM {nodes})"
        value = value_sql("cell", kind)
        wrong = connection.execute(f"SELECT cell FROM {cells} WHERE cell <> '' AND {value} IS NULL LIMIT 1").fetchone()
        if wrong is not None:
            raise ParseError(f"the column {field.name}:{field.type} holds {wrong[0]!r}", file=export.title)
        facts.add(kind, name, "head", value, cells)
    notes = []
    if unread:
        notes.append(f"{export.title}: empty or of a type that is not read: {shorten_list(unread)}")
    if renamed:
        notes.append(f"{export.title}: {shorten_list(renamed)}, since a label or relationship has that name")
    return notes


def _add_relationships(facts: FactQueries, export: _Export, prefixes: dict[str, str]) -> list[str]:
    start, end, type_field = (export.find(name) for name in ("START_ID", "END_ID", "TYPE"))
    if start is None or end is None:
        return []
    stem = export.stem.replace("'", "''")
    relation = f"'{stem}'" if type_field is None else type_field.column
    head, tail = (_entity_sql(field, prefixes) for field in (start, end))
    facts.add_query(
        "name",
        f"SELECT {relation} AS predicate, {head} AS head, {tail} AS value "
        f"FROM {export.table} WHERE {start.column} IS NOT NULL AND {relation} <> ''",
    )
    notes = []
    if type_field is None:
        notes.append(f"{export.title}: no column is :TYPE; the relation is called {export.stem}")
    if export.properties and not export.is_apoc:
        names = [field.name for field in export.properties]
        notes.append(f"{export.title}: properties of relationships are not read: {shorten_list(names)}")
    return notes
