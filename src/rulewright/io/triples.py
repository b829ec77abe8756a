"""Triples in columns: TSV, CSV or any other delimiter, compressed or not, with or without a header.

DuckDB scans the file and gives every label its index; Python sees only columns of indices and the list of labels. What
a field says stays text: ``NA``, ``null`` and ``007`` are names like any other. Only a relation that is plainly an
attribute has numbers for tails: see `find_attributes`.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rulewright.data import ENTITY_TYPE, FactTable, KnowledgeBase, Value
from rulewright.data.facts import distinct_rows
from rulewright.data.index import Ids
from rulewright.data.vocabulary import format_count, lay_out_domains
from rulewright.errors import DataError, ParseError
from rulewright.files import write_text
from rulewright.io.columns import (
    FACT_ROLES,
    choose_columns,
    describe_columns,
    guess_roles,
    has_header_word,
    is_by_name,
    lacks_relation,
    read_header,
)
from rulewright.io.delimited import Sheet, are_quoted, delimiter_of, open_sheet, scan
from rulewright.io.folders import lay_out_folder
from rulewright.io.formats import refuse_all_but_true_facts, shorten_list
from rulewright.io.values import DATES_NOTE, format_number, number_sql, seconds_sql, to_years
from rulewright.logic import NUMBER_TYPE, PredicateDeclaration

_ENDINGS = (".tsv", ".txt", ".csv")
_MIN_VALUES = 6  # different numbers that make an attribute; fewer may be codes or grades
_MIN_FACTS = 10  # of a relation, on average: then a first line that shares no name with the others stands out


def read(
    path: str | os.PathLike[str],
    *,
    delimiter: str | None = None,
    columns: Sequence[str] | None = None,
    header: bool | None = None,
) -> KnowledgeBase:
    r"""Read a file of triples, ``-`` for standard input, or a folder of them.

    Which files of a folder are main facts and which are splits `io.folders` says. ``delimiter``, ``columns`` (the role
    of each, in order or by the header's names as in ``head=subject``) and ``header`` are found from the name and the
    first line where they are not given.

    >>> _ = (folder / "family.tsv").write_text("ann\tparent_of\tbob\nbob\tparent_of\tNA\n")
    >>> read(folder / "family.tsv").tuples("parent_of")
    [('ann', 'bob'), ('bob', 'NA')]
    """
    if not Path(path).is_dir():
        return _read_files([("", path)], delimiter, columns, header)
    layout = lay_out_folder(Path(path), _ENDINGS)
    if not layout.files:
        raise DataError(f"{os.fspath(path)}: there is no file of triples here ({', '.join(_ENDINGS)})")
    files = [(split, file) for split, of_split in layout.files.items() for file in of_split]
    kb = _read_files(files, delimiter, columns, header)
    return kb.with_notes([*layout.notes, *_describe_leaks(kb, Path(path).name)])


def _describe_leaks(kb: KnowledgeBase, name: str) -> list[str]:
    """Say how many facts of each split are among the main facts as well, where some are."""
    notes = []
    tables = kb.tables()
    main = None if "ee" not in tables else _encode_facts(kb, tables["ee"])
    for split, part in kb.splits.items():
        # Beside a graph, train asks about facts of it: there it is meant
        if main is not None and split != "train" and "ee" in part.tables():
            shared = int(np.isin(_encode_facts(kb, part.tables()["ee"]), main).sum())
            if shared:
                notes.append(
                    f"{name}: {shared:,} of the {part.n_facts:,} facts of {split} are main facts too, so to ask for "
                    "them is no test"
                )
    return notes


def _encode_facts(kb: KnowledgeBase, table: FactTable) -> Ids:
    head, tail = (column.astype(np.int64) for column in table.columns)
    return (table.predicate.astype(np.int64) * kb.n_entities + head) * kb.n_entities + tail


def read_splits(
    paths: Mapping[str, str | os.PathLike[str]],
    *,
    delimiter: str | None = None,
    columns: Sequence[str] | None = None,
    header: bool | None = None,
) -> KnowledgeBase:
    """Read several files over the same entities: the main facts under the name ``""``, splits under their own."""
    return _read_files([*paths.items()], delimiter, columns, header)


def _read_files(
    files: Sequence[tuple[str, str | os.PathLike[str]]],
    delimiter: str | None,
    columns: Sequence[str] | None,
    header: bool | None,
) -> KnowledgeBase:
    """Read files, each with the split that it belongs to."""
    import duckdb

    titles: dict[str, list[str]] = {}  # what is to say → of which files
    splits = [*dict.fromkeys(split for split, _ in files)]
    with contextlib.closing(duckdb.connect()) as connection:
        connection.execute("SET preserve_insertion_order = false")
        for file_index, (_, path) in enumerate(files):
            with open_sheet(path, delimiter) as sheet:
                for note in read_sheet(connection, sheet, f"raw_{file_index}", columns, header):
                    titles.setdefault(note, []).append(sheet.title)
        parts = (
            f"SELECT {splits.index(split)} AS split, head, relation, tail, world FROM raw_{file_index}"
            for file_index, (split, _) in enumerate(files)
        )
        connection.execute(f"CREATE VIEW raw AS {' UNION ALL '.join(parts)}")
        has_names = any(column.partition("=")[0] == "name" for column in columns or ())
        kb = encode_triples(connection, splits, attributes=not has_names)
    return kb.with_notes(f"{', '.join(names)}: {note}" for note, names in titles.items())


def write(kb: KnowledgeBase, path: str | os.PathLike[str], *, delimiter: str | None = None) -> None:
    """Write the true facts of a graph, numbers as numerals; what a triple cannot say is refused."""
    refuse_all_but_true_facts(kb, "a file of triples", "e[en]")
    rows = [(str(head), name, _write_value(tail)) for name, (head, tail) in kb.facts()]
    _write_rows(rows, path, delimiter)


def write_scored(
    facts: Iterable[tuple[str, Sequence[Value], str, str]],
    path: str | os.PathLike[str],
    probabilities: Sequence[str] | None = None,
    *,
    delimiter: str | None = None,
) -> None:
    """Write facts (predicate, arguments, score, rules) below a header; `read` takes the first three columns.

    ``probabilities`` are a last column, a text for each fact.
    """
    rows: list[tuple[str, ...]] = [("head", "relation", "tail", "score", "rules")]
    for name, args, score, rules in facts:
        if len(args) != 2:
            raise DataError(f"{name} has {len(args)} arguments and a triple two; write a .facts file instead")
        rows.append((str(args[0]), name, _write_value(args[1]), score, rules))
    if probabilities is not None:
        columns = zip(rows, ["probability", *probabilities], strict=True)
        rows = [(*row, probability) for row, probability in columns]
    _write_rows(rows, path, delimiter)


def _write_value(value: Value) -> str:
    return value if isinstance(value, str) else format_number(float(value))


def _write_rows(rows: Sequence[tuple[str, ...]], path: str | os.PathLike[str], delimiter: str | None) -> None:
    delimiter = delimiter or delimiter_of(path)
    buffer = io.StringIO()
    if delimiter == "\t":
        if rows and are_quoted(rows[0]):
            raise DataError(f"quotes around all names of a TSV's first line are lost: {rows[0]}; write a .facts file")
        for label in (label for row in rows for label in row[:3]):
            if not label or any(character in label for character in "\t\n\r\x00"):
                raise DataError(f"the name {label!r} cannot stand in a TSV file; write a .facts file instead")
        buffer.writelines("\t".join(row) + "\n" for row in rows)
    else:
        csv.writer(buffer, delimiter=delimiter, lineterminator="\n").writerows(rows)
    write_text(path, buffer.getvalue())


def read_sheet(
    connection: Any, sheet: Sheet, table: str, columns: Sequence[str] | None, header: bool | None
) -> list[str]:
    """Make a table of the facts of a file; return what is to say of how it was read."""
    clear = read_header(sheet.fields)
    if columns is not None:
        try:
            roles = choose_columns(columns, sheet.fields)
        except DataError as error:
            raise sheet.fault(str(error), 1) from None
        header = True if is_by_name(columns) else header
    elif clear is not None and header is not False:
        roles = clear
    elif lacks_relation(sheet.fields) and len(sheet.fields) < 3:
        raise _unclear_header(sheet)
    elif len(sheet.fields) < 3:
        raise sheet.fault(
            f"found {format_count(len(sheet.fields), 'column', 'columns')} separated by {sheet.delimiter!r}, expected "
            "3 (head, relation, tail); a table with a row for each entity is read by --from table",
            1,
        )
    else:
        roles = (*FACT_ROLES, *["_"] * (len(sheet.fields) - 3))
    is_settled = header is not None or clear is not None
    header = clear is not None if header is None else header
    positions = {("tail" if role == "name" else role): position for position, role in enumerate(roles) if role != "_"}
    selected = {role: f"c{positions[role]}" if role in positions else "NULL" for role in (*FACT_ROLES, "world")}
    required = {position: role for role, position in positions.items()}
    try:
        scan(connection, sheet, table, selected, header=header, required=required)
    except ParseError:
        if columns is None and not is_settled and has_header_word(sheet.fields):
            raise _unclear_header(sheet) from None  # what seems wrong with the facts may come from that
        raise
    cells = [sheet.fields[positions[role]] for role in FACT_ROLES]
    notes = []
    if not is_settled and _looks_like_header(connection, table, cells, sheet.fields):
        if columns is None:
            raise _unclear_header(sheet)
        _delete_triple(connection, table, cells)
        notes.append(f"the first line is passed over as a header: {', '.join(sheet.fields)}")
    elif header and (repeats := _delete_triple(connection, table, cells)):
        notes.append(f"the header stands {format_count(repeats, 'more time', 'more times')} below, passed over")
    if columns is None:
        notes.append(describe_columns(roles, sheet.fields if header else None))
    return [note for note in notes if note]


def _looks_like_header(connection: Any, table: str, cells: Sequence[str], fields: Sequence[str]) -> bool:
    """Tell whether a first line that was read as a fact looks like a header.

    It does where its head, relation and tail occur nowhere else in the file, and it has a word that headers have or
    the relations below have ten facts on average.
    """
    rows, *counts = connection.execute(
        f"""SELECT COUNT(*), COUNT(*) FILTER (head = $1 OR tail = $1), COUNT(*) FILTER (relation = $2),
        COUNT(*) FILTER (head = $3 OR tail = $3) FROM {table}""",
        [*cells],
    ).fetchone()
    if rows == 1 or counts != [1, 1, 1]:
        return False
    if has_header_word(fields):
        return True
    (others,) = connection.execute(f"SELECT COUNT(DISTINCT relation) - 1 FROM {table}").fetchone()
    return bool(rows - 1 >= _MIN_FACTS * others)


def _delete_triple(connection: Any, table: str, cells: Sequence[str]) -> int:
    """Delete the rows that are this triple; return how many."""
    statement = f"DELETE FROM {table} WHERE head = ? AND relation = ? AND tail = ?"
    return int(connection.execute(statement, [*cells]).fetchone()[0])


def _unclear_header(sheet: Sheet) -> ParseError:
    if lacks_relation(sheet.fields):
        return sheet.fault(
            f"the header names a head and a tail but no relation: {', '.join(sheet.fields)}; add a column for it, "
            "such as relation",
            1,
        )
    roles = guess_roles(sheet.fields)
    named = zip(roles, sheet.fields, strict=True)
    by_name = ",".join(f"{role}={field.strip()}" for role, field in named if role != "_")
    return sheet.fault(
        "the first line looks like a header but does not say which columns are head, relation and tail: "
        f"{', '.join(field.strip() for field in sheet.fields)}; say it in order, such as --columns {','.join(roles)}, "
        f"or by name, such as --columns '{by_name}'; a table with a row for each entity is read by --from table",
        1,
    )


def find_attributes(connection: Any) -> dict[str, Literal["number", "date"]]:
    """Find the relations of ``raw`` whose tails are numbers or dates.

    A relation is an attribute where all its tails are numerals (or all dates), six different ones at least and one for
    each head, while no head in the graph is made of digits (or is a date) and no tail is that of a relation of names.
    """
    connection.execute("""
        CREATE TABLE candidate AS SELECT relation, ANY_VALUE(tail) AS tail FROM raw GROUP BY relation
        HAVING BOOL_AND(ascii(tail) BETWEEN 48 AND 57 OR ascii(tail) = 45)
    """)  # a digit or a minus comes first
    attributes: dict[str, Literal["number", "date"]] = {}
    kinds: tuple[tuple[Literal["number", "date"], str, str], ...] = (
        ("number", number_sql("tail"), "[0-9]+"),
        ("date", seconds_sql("tail"), "[0-9]{4}-[0-9]{2}-[0-9]{2}.*"),
    )
    for kind, value, pattern in kinds:
        (candidates,) = connection.execute(f"SELECT list(relation) FROM candidate WHERE {value} IS NOT NULL").fetchone()
        if not candidates:
            continue
        is_name = connection.execute("SELECT 1 FROM raw WHERE regexp_full_match(head, ?) LIMIT 1", [pattern])
        if is_name.fetchone():
            continue
        found = connection.execute(
            f"""SELECT relation FROM (SELECT DISTINCT relation, head, world, {value} AS value FROM raw
            WHERE list_contains($1, relation)) GROUP BY relation
            HAVING COUNT(value) = COUNT(*) AND COUNT(*) = COUNT(DISTINCT (head, world))
            AND COUNT(DISTINCT value) >= $2""",
            [candidates, _MIN_VALUES],
        ).fetchall()
        attributes |= {relation: kind for (relation,) in found}
    while attributes:
        shared = connection.execute(
            """SELECT DISTINCT relation FROM raw WHERE list_contains($1, relation) AND tail IN
            (SELECT tail FROM raw WHERE NOT list_contains($1, relation))""",
            [[*attributes]],
        ).fetchall()
        if not shared:
            break
        for (relation,) in shared:
            del attributes[relation]
    return attributes


def encode_triples(connection: Any, splits: Sequence[str], *, attributes: bool = True) -> KnowledgeBase:
    """Turn the view ``raw`` (split, head, relation, tail, world) into a knowledge base and its splits.

    Relations and entities have indices in the order of their labels; repeated facts are dropped. Where ``attributes``
    are wanted, the relations that `find_attributes` finds have numbers for tails.
    """
    in_worlds = connection.execute("SELECT COUNT(world) FROM raw").fetchone()[0] > 0
    kinds = find_attributes(connection) if attributes else {}
    apart = " || '@' || raw.world" if in_worlds else ""  # the same name in two worlds is two entities
    connection.execute("CREATE TABLE attribute (relation VARCHAR, is_date BOOLEAN)")
    if kinds:
        rows = [(relation, kind == "date") for relation, kind in kinds.items()]
        connection.executemany("INSERT INTO attribute VALUES (?, ?)", rows)
    is_attribute = "relation IN (SELECT relation FROM attribute)" if kinds else "FALSE"
    connection.execute(f"""
        CREATE VIEW link AS SELECT split, head{apart} AS head, relation, tail{apart} AS tail, world
        FROM raw WHERE NOT {is_attribute}
    """)
    world = ", world" if in_worlds else ""
    named = f"SELECT head AS label{world} FROM link UNION SELECT tail{world} FROM link"
    if kinds:
        named += f" UNION SELECT head{apart}{world} FROM raw WHERE {is_attribute}"
    if in_worlds:
        named = f"SELECT label, MIN(world) AS world FROM ({named}) GROUP BY label"
    index = "CAST(row_number() OVER (ORDER BY label) - 1 AS INTEGER) AS id"
    for table, labels in (("entity", named), ("relation", "SELECT DISTINCT relation AS label FROM raw")):
        connection.execute(f"CREATE TABLE {table} AS SELECT *, {index} FROM ({labels})")
    entities = connection.execute("SELECT label FROM entity ORDER BY id").fetchnumpy()["label"]
    names = connection.execute("SELECT label FROM relation ORDER BY id").fetchnumpy()["label"].tolist()
    worlds, entity_worlds = _find_worlds(connection) if in_worlds else ([], None)
    domains = lay_out_domains([(ENTITY_TYPE, entities, entity_worlds)])
    predicates = [
        PredicateDeclaration(name, (ENTITY_TYPE, NUMBER_TYPE if name in kinds else ENTITY_TYPE)) for name in names
    ]
    # A fact as one number sorts fastest: relation, head and tail side by side.
    width = max(len(entities) - 1, 1).bit_length()
    if 2 * width + len(names).bit_length() > 63:
        raise DataError(f"{len(entities):,} entities and {len(names):,} relations are more than one graph can hold")
    connection.execute(f"""
        CREATE TABLE coded AS
        SELECT split, (CAST(relation.id AS BIGINT) * {1 << width} + h.id) * {1 << width} + t.id AS fact
        FROM link JOIN relation ON link.relation = relation.label
        JOIN entity AS h ON link.head = h.label JOIN entity AS t ON link.tail = t.label
    """)
    bases = {}
    for split_index, split in enumerate(splits):
        rows = connection.execute(f"SELECT fact FROM coded WHERE split = {split_index}").fetchnumpy()["fact"]
        codes = np.asarray(rows)
        codes.sort()
        is_new = codes[1:] != codes[:-1]
        if not is_new.all():
            codes = codes[np.append(True, is_new)]
        mask = (1 << width) - 1
        relation, head, tail = codes >> (2 * width), (codes >> width) & mask, codes & mask
        repeated = len(rows) - len(codes)
        tables = {"ee": FactTable("ee", relation.astype(np.int32), (head.astype(np.int32), tail.astype(np.int32)))}
        if kinds:
            tables["en"], repeated_values = _encode_values(connection, split_index, apart)
            repeated += repeated_values
        bases[split] = KnowledgeBase(domains, predicates, tables, worlds=worlds, duplicates=repeated)
    main = bases.pop("").with_notes([*_describe_attributes(kinds), *_describe_blanks(connection)])
    return main.with_splits(bases) if bases else main


def _encode_values(connection: Any, split_index: int, apart: str) -> tuple[FactTable, int]:
    """Return the facts of attributes in a split, and how many were repeated."""
    columns = connection.execute(f"""
        SELECT relation.id AS relation, entity.id AS head,
        CASE WHEN is_date THEN {seconds_sql("tail")} ELSE {number_sql("tail")} END AS value, is_date
        FROM raw JOIN attribute ON raw.relation = attribute.relation JOIN relation ON raw.relation = relation.label
        JOIN entity ON raw.head{apart} = entity.label WHERE split = {split_index} ORDER BY 1, 2, 3
    """).fetchnumpy()
    relation, head, value, is_date = (np.asarray(column) for column in columns.values())
    relation, head, value = distinct_rows([relation, head, np.where(is_date, to_years(value), value)])
    return FactTable("en", relation, (head, value)), len(is_date) - len(head)


def _describe_attributes(kinds: Mapping[str, Literal["number", "date"]]) -> list[str]:
    notes = []
    for kind, words in (("number", "numbers"), ("date", DATES_NOTE)):
        names = sorted(name for name, found in kinds.items() if found == kind)
        if names:
            notes.append(
                f"the tails of {shorten_list(names)} are {words}; --columns head,relation,name makes them names"
            )
    return notes


def _describe_blanks(connection: Any) -> list[str]:
    count, example = connection.execute("""
        SELECT COUNT(*), MIN(label) FROM (SELECT label FROM entity UNION ALL SELECT label FROM relation)
        WHERE label <> trim(label)
    """).fetchone()
    if not count:
        return []
    return [f"{format_count(count, 'name begins or ends', 'names begin or end')} with a blank, such as {example!r}"]


def _find_worlds(connection: Any) -> tuple[list[str], Any]:
    rows = connection.execute("SELECT world FROM entity ORDER BY id").fetchnumpy()
    names, indices = np.unique(rows["world"].astype(str), return_inverse=True)
    return names.tolist(), indices.astype(np.int32)
