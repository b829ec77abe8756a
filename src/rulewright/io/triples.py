"""Triples in columns: TSV, CSV or any other delimiter, compressed or not, with or without a header.

DuckDB scans the file and gives every label its index; Python sees only columns of indices and the list of labels. What
a field says stays text: ``NA``, ``null`` and ``007`` are names like any other.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rulewright.data import ENTITY_TYPE, FactTable, KnowledgeBase, Value
from rulewright.data.vocabulary import lay_out_domains
from rulewright.errors import DataError, ParseError
from rulewright.files import STDIO, decode, file_error, read_bytes, write_text
from rulewright.io.formats import plain_suffix, refuse_all_but_true_facts, split_files
from rulewright.logic import PredicateDeclaration

ROLES = ("head", "relation", "tail", "world", "_")
"""What a column can be: ``_`` is passed over; ``world`` names the document or image the fact belongs to."""

_HEADERS = {
    "head": ("head", "h", "subject", "s", "subj", "source", "from", "head_id", "subject_id"),
    "relation": ("relation", "r", "rel", "predicate", "p", "pred", "relation_id", "predicate_id", "edge", "label"),
    "tail": ("tail", "t", "object", "o", "obj", "target", "to", "tail_id", "object_id"),
    "world": ("world", "document", "image", "doc"),
}
_DELIMITERS = {".tsv": "\t", ".csv": ",", ".txt": None, ".tab": "\t"}
_MISSING = "\x02"  # what DuckDB should read as NULL: nothing that a text holds


class _Layout(NamedTuple):
    """What the columns of a file are. Fields may stand in double quotes; not in TSV, where a quote is a character."""

    delimiter: str
    roles: tuple[str, ...]
    header: bool


def read(
    path: str | os.PathLike[str],
    *,
    delimiter: str | None = None,
    columns: Sequence[str] | None = None,
    header: bool | None = None,
) -> KnowledgeBase:
    r"""Read a file of triples, ``-`` for standard input, or a folder with a file for each split.

    ``delimiter``, ``columns`` (the role of each, see `ROLES`) and ``header`` are found from the name and the first
    line where they are not given.

    >>> _ = (folder / "family.tsv").write_text("ann\tparent_of\tbob\nbob\tparent_of\tNA\n")
    >>> read(folder / "family.tsv").tuples("parent_of")
    [('ann', 'bob'), ('bob', 'NA')]
    """
    paths = split_files(Path(path), (".tsv", ".txt", ".csv")) if Path(path).is_dir() else {"": path}
    return read_splits(paths, delimiter=delimiter, columns=columns, header=header)


def read_splits(
    paths: Mapping[str, str | os.PathLike[str]],
    *,
    delimiter: str | None = None,
    columns: Sequence[str] | None = None,
    header: bool | None = None,
) -> KnowledgeBase:
    """Read several files over the same entities: the main facts under the name ``""``, splits under their own."""
    import duckdb

    if columns is not None:
        counts = {role: list(columns).count(role) for role in ROLES}
        if not set(columns) <= set(ROLES) or any(counts[role] != 1 for role in ROLES[:3]) or counts["world"] > 1:
            raise DataError(
                f"columns must name head, relation and tail once and may name world and _, got {list(columns)}"
            )
    with contextlib.closing(duckdb.connect()) as connection, contextlib.ExitStack() as stack:
        connection.execute("SET preserve_insertion_order = false")
        for split_index, path in enumerate(paths.values()):
            name, file = os.fspath(path), stack.enter_context(_plain_file(path))
            _scan(connection, file, name, _find_layout(file, name, delimiter, columns, header), split_index)
        parts = " UNION ALL ".join(f"SELECT {index} AS split, * FROM raw_{index}" for index in range(len(paths)))
        connection.execute(f"CREATE VIEW raw AS {parts}")
        return encode_triples(connection, list(paths))


def write(kb: KnowledgeBase, path: str | os.PathLike[str], *, delimiter: str | None = None) -> None:
    """Write the true facts of a graph of binary predicates; what a triple cannot say is refused."""
    refuse_all_but_true_facts(kb, "a file of triples", "ee")
    rows = [(str(values[0]), name, str(values[1])) for name, values in kb.facts()]
    _write_rows(rows, path, delimiter)


def write_scored(
    facts: Iterable[tuple[str, Sequence[Value], str, str]],
    path: str | os.PathLike[str],
    *,
    delimiter: str | None = None,
) -> None:
    """Write facts (predicate, arguments, score, rules) below a header; `read` takes the first three columns."""
    rows: list[tuple[str, ...]] = [("head", "relation", "tail", "score", "rules")]
    for name, args, score, rules in facts:
        if len(args) != 2:
            raise DataError(f"{name} has {len(args)} arguments and a triple two; write a .facts file instead")
        rows.append((str(args[0]), name, str(args[1]), score, rules))
    _write_rows(rows, path, delimiter)


def _write_rows(rows: Sequence[tuple[str, ...]], path: str | os.PathLike[str], delimiter: str | None) -> None:
    delimiter = delimiter or _DELIMITERS.get(plain_suffix(path).lower()) or "\t"
    buffer = io.StringIO()
    if delimiter == "\t":
        for label in (label for row in rows for label in row[:3]):
            if not label or any(character in label for character in "\t\n\r\x00"):
                raise DataError(f"the name {label!r} cannot stand in a TSV file; write a .facts file instead")
        buffer.writelines("\t".join(row) + "\n" for row in rows)
    else:
        csv.writer(buffer, delimiter=delimiter, lineterminator="\n").writerows(rows)
    write_text(path, buffer.getvalue())


@contextlib.contextmanager
def _plain_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a file that DuckDB can read as it is: on disk, UTF-8 and either plain or gzip with its proper ending."""
    name = os.fspath(path)
    start = b""
    try:
        if name != STDIO:
            with Path(name).open("rb") as opened:
                start = opened.read(8192)
    except OSError as error:
        raise file_error("read", name, error) from None
    compressed = start[:2] == b"\x1f\x8b"
    foreign = start[:2] in (b"\xff\xfe", b"\xfe\xff") or start[:3] == b"\xef\xbb\xbf"
    if name != STDIO and not foreign and compressed == name.endswith(".gz"):
        if not compressed and b"\x00" in start:
            raise ParseError("a binary file, not text", file=name)
        yield Path(name)
        return
    text = decode(read_bytes(path), file=name)
    with tempfile.TemporaryDirectory(prefix="rulewright-") as folder:
        copy = Path(folder, "facts.txt")
        copy.write_bytes(text.encode())
        yield copy


def _find_layout(
    file: Path, name: str, delimiter: str | None, columns: Sequence[str] | None, header: bool | None
) -> _Layout:
    """Tell from the name and the first line what was not given."""
    opener: Any = gzip.open if file.name.endswith(".gz") else open
    try:
        with opener(file, "rb") as opened:
            line = decode(next((line for line in opened if line.strip()), b""), file=name).rstrip("\r\n")
    except (OSError, EOFError) as error:
        raise ParseError(f"not a complete gzip file: {error}", file=name) from None
    if not line:
        raise ParseError("no facts: the file is empty", file=name)
    if delimiter is None:
        delimiter = _DELIMITERS.get(plain_suffix(name).lower()) or _likeliest_delimiter(line, name)
    fields = line.split(delimiter)
    if delimiter != "\t":
        with contextlib.suppress(csv.Error):
            fields = next(csv.reader([line], delimiter=delimiter))
    roles = read_header(fields)
    if header is None:
        header = roles is not None
    if columns is None and header and roles:
        columns = roles
    elif columns is None:
        if len(fields) < 3:
            raise ParseError(
                f"found {len(fields)} columns separated by {delimiter!r}, expected 3 (head, relation, tail)",
                file=name,
                line=1,
            )
        columns = [*ROLES[:3], *["_"] * (len(fields) - 3)]
    if len(fields) != len(columns):
        raise ParseError(
            f"found {len(fields)} columns, expected {len(columns)} ({', '.join(columns)}); "
            "give the delimiter and columns of this file",
            file=name,
            line=1,
        )
    return _Layout(delimiter, tuple(columns), header)


def _likeliest_delimiter(line: str, name: str) -> str:
    for delimiter in ("\t", ",", ";", "|", " "):
        if line.count(delimiter) >= 2:
            return delimiter
    raise ParseError(
        "no triples: the first line has fewer than three columns separated by tab, comma, ';', '|' or space",
        file=name,
        line=1,
    )


def read_header(fields: Sequence[str]) -> tuple[str, ...] | None:
    """Read the first line as a header where its words name a head, a relation and a tail."""
    known = {word: role for role, words in _HEADERS.items() for word in words}
    roles = [known.get(field.strip().lower().lstrip("#: "), "_") for field in fields]
    return tuple(roles) if all(roles.count(role) == 1 for role in ROLES[:3]) else None


def _scan(connection: Any, file: Path, name: str, layout: _Layout, split_index: int) -> None:
    import duckdb

    fields = {f"c{position}": "VARCHAR" for position in range(len(layout.roles))}
    columns = {role: f"c{layout.roles.index(role)}" if role in layout.roles else "NULL" for role in ROLES[:4]}
    if "world" in layout.roles:  # the same name in two worlds is two entities
        columns |= {role: f"{columns[role]} || '@' || {columns['world']}" for role in ("head", "tail")}
    selected = ", ".join(f"{column} AS {role}" for role, column in columns.items())
    mark = "'\"'" if layout.delimiter != "\t" else "''"
    statement = (
        f"CREATE TABLE raw_{split_index} AS SELECT {selected} FROM read_csv(?, columns = {fields}, "
        f"auto_detect = false, delim = ?, header = {str(layout.header).lower()}, quote = {mark}, escape = {mark}, "
        f"nullstr = ?, compression = '{'gzip' if file.name.endswith('.gz') else 'none'}', store_rejects = true)"
    )
    try:
        connection.execute(statement, [str(file), layout.delimiter, _MISSING])
    except duckdb.Error as error:
        raise _first_fault(file, name, layout) or ParseError(str(error).splitlines()[0], file=name) from None
    bad, rows = connection.execute(f"""
        SELECT (SELECT COUNT(*) FROM reject_errors) + COUNT(*) FILTER (head = '' OR relation = '' OR tail = ''),
        COUNT(*) FROM raw_{split_index}
    """).fetchone()
    if bad:
        raise _first_fault(file, name, layout) or ParseError(f"{bad} lines cannot be read", file=name)
    if not rows:
        raise ParseError("no facts below the header" if layout.header else "no facts", file=name)


def _first_fault(file: Path, name: str, layout: _Layout) -> ParseError | None:
    """Read the file again, slowly, for the line and the reason of its first fault."""
    text = decode(read_bytes(file), file=name)
    reader = None
    if layout.delimiter != "\t":
        reader = csv.reader(io.StringIO(text), delimiter=layout.delimiter, strict=True)
    number = 0
    try:
        for count, fields in enumerate(reader or (line.split("\t") for line in text.split("\n")), start=1):
            number = reader.line_num if reader is not None else count
            if fields in ([], [""]):
                continue
            if len(fields) != len(layout.roles):
                shown = layout.delimiter.join(fields)
                return ParseError(
                    f"found {len(fields)} columns, expected {len(layout.roles)}: {shown[:60]!r}", file=name, line=number
                )
            for field, role in zip(fields, layout.roles, strict=True):
                if role != "_" and not field:
                    return ParseError(f"the {role} is empty", file=name, line=number)
    except csv.Error as error:
        return ParseError(f"{error}", file=name, line=number + 1)
    return None


def encode_triples(connection: Any, splits: Sequence[str]) -> KnowledgeBase:
    """Turn the view ``raw`` (split, head, relation, tail, world) into a knowledge base and its splits.

    Relations and entities have indices in the order of their labels; repeated facts are dropped.
    """
    in_worlds = connection.execute("SELECT COUNT(world) FROM raw").fetchone()[0] > 0
    index = "CAST(row_number() OVER (ORDER BY label) - 1 AS INTEGER) AS id"
    for table, labels in (
        ("entity", "SELECT head AS label FROM raw UNION SELECT tail FROM raw"),
        ("relation", "SELECT DISTINCT relation AS label FROM raw"),
    ):
        connection.execute(f"CREATE TABLE {table} AS SELECT label, {index} FROM ({labels})")
    entities = connection.execute("SELECT label FROM entity ORDER BY id").fetchnumpy()["label"]
    names = connection.execute("SELECT label FROM relation ORDER BY id").fetchnumpy()["label"].tolist()
    worlds, entity_worlds = _find_worlds(connection) if in_worlds else ([], None)
    domains = lay_out_domains([(ENTITY_TYPE, entities, entity_worlds)])
    predicates = [PredicateDeclaration(name, (ENTITY_TYPE, ENTITY_TYPE)) for name in names]
    # A fact as one number sorts fastest: relation, head and tail side by side.
    width = max(len(entities) - 1, 1).bit_length()
    if 2 * width + len(names).bit_length() > 63:
        raise DataError(f"{len(entities):,} entities and {len(names):,} relations are more than one graph can hold")
    connection.execute(f"""
        CREATE TABLE coded AS
        SELECT split, (CAST(relation.id AS BIGINT) * {1 << width} + h.id) * {1 << width} + t.id AS fact
        FROM raw JOIN relation ON raw.relation = relation.label
        JOIN entity AS h ON raw.head = h.label JOIN entity AS t ON raw.tail = t.label
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
        facts = FactTable("ee", relation.astype(np.int32), (head.astype(np.int32), tail.astype(np.int32)))
        repeated = len(rows) - len(codes)
        bases[split] = KnowledgeBase(domains, predicates, {"ee": facts}, worlds=worlds, duplicates=repeated)
    main = bases.pop("")
    return main.with_splits(bases) if bases else main


def _find_worlds(connection: Any) -> tuple[list[str], Any]:
    rows = connection.execute("""
        SELECT entity.id AS id, MIN(world) AS world FROM entity
        JOIN (SELECT head AS label, world FROM raw UNION SELECT tail, world FROM raw) AS seen USING (label)
        GROUP BY entity.id ORDER BY entity.id
    """).fetchnumpy()
    names, indices = np.unique(rows["world"].astype(str), return_inverse=True)
    return names.tolist(), indices.astype(np.int32)
