"""A knowledge base whose facts stay in an engine: a DuckDB file larger than memory, or tables of a Spark cluster.

Labels become integers there, by statements; only what is asked for comes to Python: the names of relations, counts, and
the labels of single entities.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
import numpy.typing as npt

from rulewright.data import ENTITY_TYPE, Domain, KnowledgeBase, Value, signature
from rulewright.data.facts import FactTable
from rulewright.data.vocabulary import format_count
from rulewright.engine.fact_files import (
    FactFiles,
    describe_folder,
    describe_sources,
    find_fact_files,
    read_by_duckdb,
    read_by_spark,
)
from rulewright.engine.spark import SparkEngine, is_spark
from rulewright.engine.sql import SQLEngine, declare_columns, table_name
from rulewright.errors import DataError, FileError, ParseError, UnknownNameError
from rulewright.io.formats import shorten_list
from rulewright.logic import PredicateDeclaration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_LABELS = 5_000
"""So many entities are looked up in one statement by their numbers; more are joined."""


class _InEngine(Mapping[str, FactTable]):
    """Stands where columns of facts would be, and says that they are elsewhere."""

    def _refuse(self) -> NoReturn:
        raise DataError(
            "these facts stay in an engine, and this needs them as columns in Python; mining, apply, complete, rank, "
            "evaluate and explain run in the engine, and read_facts reads facts that fit into memory"
        )

    def __getitem__(self, key: str) -> FactTable:
        self._refuse()

    def __iter__(self) -> Iterator[str]:
        self._refuse()

    def __len__(self) -> int:
        self._refuse()


class StoredDomain(Domain):
    """Entities whose labels are in the table ``entity`` of an engine; those that are asked for are kept."""

    def __init__(self, engine: SQLEngine, size: int) -> None:
        self.name, self.start, self.worlds = ENTITY_TYPE, 0, None
        self._engine, self._size = engine, size
        self._found: dict[str, int | None] = {}
        self._labels: dict[int, str] = {}

    @property
    def labels(self) -> npt.NDArray[Any]:  # type: ignore[override]
        """All labels, which are not in Python."""
        raise DataError(f"the {self._size:,} labels stay in the engine; labels_of looks up some of them")

    def __len__(self) -> int:
        return self._size

    def __contains__(self, label: str) -> bool:
        return self.find(label) is not None

    def find(self, label: str) -> int | None:
        """Return the index of an entity, or None where there is no such entity."""
        self._look_up([label])
        return self._found[label]

    def find_all(self, labels: Iterable[str]) -> npt.NDArray[np.int64]:
        """Return the index of each of several entities, −1 where there is no such entity."""
        wanted = list(labels)
        self._look_up(wanted)
        found = (self._found[label] for label in wanted)
        return np.array([-1 if index is None else index for index in found], dtype=np.int64)

    def _look_up(self, labels: Sequence[str]) -> None:
        new = [label for label in dict.fromkeys(labels) if label not in self._found]
        for start in range(0, len(new), _MOST_LABELS):
            part = new[start : start + _MOST_LABELS]
            listed = ", ".join(map(self._engine.quote_text, part))
            rows = self._engine.look_up(f"SELECT label, id FROM entity WHERE label IN ({listed})")
            self._found |= dict.fromkeys(part)
            self._found |= dict(zip(map(str, rows["label"].tolist()), rows["id"].tolist(), strict=True))

    def index_of(self, label: str) -> int:
        """Return the index of an entity; an unknown label is an error with some that begin alike."""
        index = self.find(label)
        if index is None:
            start = label[:3].replace("%", "").replace("_", "")
            like = self._engine.quote_text(f"{start}%")
            rows = self._engine.look_up(f"SELECT label FROM entity WHERE label LIKE {like} ORDER BY label LIMIT 3")
            near = f"; some begin alike: {', '.join(map(repr, map(str, rows['label'].tolist())))}" if start else ""
            raise UnknownNameError(f"unknown {self.name} {label!r} among {self._size:,}{near}")
        return index

    def labels_of(self, entities: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return the labels of entities, given by index."""
        wanted = np.asarray(entities, dtype=np.int64)
        new = np.array([index for index in np.unique(wanted).tolist() if index not in self._labels], dtype=np.int64)
        for start in range(0, len(new), _MOST_LABELS):
            listed = ", ".join(map(str, new[start : start + _MOST_LABELS].tolist()))
            rows = self._engine.look_up(f"SELECT label, id FROM entity WHERE id IN ({listed})")
            self._labels |= dict(zip(rows["id"].tolist(), map(str, rows["label"].tolist()), strict=True))
        labels = np.empty(wanted.shape, dtype=object)
        labels.reshape(-1)[:] = [self._labels[index] for index in wanted.reshape(-1).tolist()]
        return labels if wanted.shape else labels[()]

    def members(self, world: int | None = None) -> NoReturn:
        """Refuse to list all entities."""
        raise DataError(f"the {self._size:,} entities stay in the engine")


class StoredFacts(KnowledgeBase):
    """A graph in an engine, of entities of one type; everything that runs in the engine takes it as a knowledge base.

    ``key`` says which facts these are, for the journal. As a context it lets go of the engine at the end.

    >>> _ = (folder / "family.tsv").write_text("ann\\tparent_of\\tbob\\nbob\\tparent_of\\tcid\\n")
    >>> with store_facts(folder / "family.tsv") as kb:
    ...     kb, kb.count("parent_of"), kb.contains("parent_of", "ann", "bob")
    (StoredFacts(3 entities, 1 predicate, 2 facts in DuckDB), 2, True)
    """

    def __init__(
        self,
        engine: SQLEngine,
        entities: StoredDomain,
        counts: Mapping[str, int],
        *,
        key: str,
        predicates: Iterable[PredicateDeclaration] = (),
        splits: Mapping[str, StoredFacts] | None = None,
        facts_table: str = table_name("ee"),
        notes: Iterable[str] = (),
        duplicates: int = 0,
    ) -> None:
        relations = [PredicateDeclaration(name, (ENTITY_TYPE, ENTITY_TYPE)) for name in counts]
        super().__init__(
            {ENTITY_TYPE: entities}, [*relations, *predicates], {}, splits=splits, notes=notes, duplicates=duplicates
        )
        self._tables = {True: _InEngine(), False: _InEngine()}
        self._counts, self._further = dict(counts), tuple(predicates)
        self.engine, self.key, self.facts_table = engine, key, facts_table
        engine.kb, engine.is_planned = self, True

    @property
    def n_facts(self) -> int:
        """The number of true facts."""
        return sum(self._counts.values())

    @property
    def n_false_facts(self) -> int:
        """The number of facts observed to be false: a file of triples has none."""
        return 0

    def signatures(self, *, truth: bool = True) -> frozenset[str]:
        """Return the signatures that have facts."""
        return frozenset({"ee"} if truth and self.n_facts else ())

    def count(self, name: str, *, truth: bool = True) -> int:
        """Return the number of a predicate's facts."""
        self.predicate(name)
        return self._counts.get(name, 0) if truth else 0

    def holds(self, key: Sequence[float], *, truth: bool = True) -> bool:
        """Return whether a fact is known, given by its predicate's index and its arguments'."""
        name = list(self.predicates)[int(key[0])]
        if not truth or name not in self._counts:
            return False
        conditions = " AND ".join(
            f"{column} = {int(value)}" for column, value in zip(("p", "a0", "a1"), key, strict=True)
        )
        return bool(
            len(self.engine.look_up(f"SELECT 1 AS one FROM {self.facts_table} WHERE {conditions} LIMIT 1")["one"])
        )

    def contains(self, name: str, *args: Value, truth: bool = True) -> bool:
        """Return whether a fact is known."""
        indices = self.domains[ENTITY_TYPE].find_all(map(str, args)).tolist()
        return min(indices) >= 0 and self.holds((self.predicate_index(name), *indices), truth=truth)

    def with_predicates(self, predicates: Iterable[PredicateDeclaration]) -> StoredFacts:
        """Return the same facts with further predicates, which have none."""
        further = [*self._further, *predicates]
        domain = self.domains[ENTITY_TYPE]
        assert isinstance(domain, StoredDomain)
        stored = StoredFacts(
            self.engine,
            domain,
            self._counts,
            key=self.key,
            predicates=further,
            facts_table=self.facts_table,
            notes=self.notes,
        )
        for letters in sorted({signature(declaration) for declaration in further} - {"ee"}):
            for truth in (True, False):
                self.engine.declare(table_name(letters, truth=truth), declare_columns(letters))
        return stored

    def with_notes(self, notes: Iterable[str]) -> StoredFacts:
        """Return the same facts with further notes on how they were read."""
        self.notes = (*self.notes, *notes)
        return self

    def begin(self, what: str) -> None:
        """Begin a section of work on these facts, known by ``what`` says all that it depends on."""
        self.engine.begin("work", f"{what} of {self.key}")

    @classmethod
    def of(cls, kb: KnowledgeBase, engine: SQLEngine) -> StoredFacts:
        """Hold the facts of a graph in an engine, which has them already or is given them here."""
        engine.load(kb)
        labels = np.concatenate([np.empty(0, dtype=object), *(domain.labels for domain in kb.domains.values())])
        engine.put("entity", {"label": labels.astype(str), "id": np.arange(len(labels), dtype=np.int32)})
        counts = {name: kb.count(name) for name in kb.predicates}
        return cls(engine, StoredDomain(engine, len(labels)), counts, key="")

    def __repr__(self) -> str:
        parts = [
            format_count(self.n_entities, "entity", "entities"),
            format_count(len(self.predicates), "predicate", "predicates"),
            f"{format_count(self.n_facts, 'fact', 'facts')} in {name_engine(self.engine)}",
        ]
        parts += [f"{name}: {split.n_facts:,}" for name, split in self.splits.items()]
        return f"StoredFacts({', '.join(parts)})"

    def close(self) -> None:
        """Let go of the engine."""
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def name_engine(engine: SQLEngine) -> str:
    """Return what to call an engine."""
    return f"Spark at {engine.address}" if isinstance(engine, SparkEngine) else "DuckDB"


@contextmanager
def use_engine(kb: KnowledgeBase, *, memory_limit: int | str | None = None) -> Iterator[SQLEngine]:
    """Give the engine that has the facts of a knowledge base: its own, or DuckDB in memory for as long as needed."""
    if isinstance(kb, StoredFacts):
        yield kb.engine
        return
    from rulewright.engine.duckdb import Engine

    with Engine(kb, memory_limit=memory_limit) as engine:
        yield engine


def store_facts(
    path: str | os.PathLike[str],
    *,
    engine: str | SparkSession | SQLEngine = "duckdb",
    database: str | os.PathLike[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
    memory_limit: int | str | None = None,
    columns: str | Sequence[str] | None = None,
) -> StoredFacts:
    """Read a graph into an engine, where it stays: for facts that do not fit into memory, or onto one machine.

    ``path`` is a file of triples, a folder of parts or of splits, a pattern such as ``graph/*.parquet``, or an address
    that Spark can read; in Parquet, TSV, CSV or N-Triples. ``engine`` is ``"duckdb"``, embedded, or Spark:
    ``"local[2]"``, ``"spark://host:7077"``, a Spark Connect address ``"sc://…"`` or a ``SparkSession``. ``database``
    is the DuckDB file to keep tables in, ``folder`` the folder of Spark's; with neither they are temporary. What is
    kept is not read again unless the files have changed, and ``path`` may be the database itself. Work that was
    killed goes on after its last finished statement when it is called again. ``memory_limit`` is that of DuckDB, or of
    each of Spark's executors. ``columns`` says what the columns are, as for `read_facts`.

    All tails are names: what looks like an attribute is said in ``notes``.

    >>> _ = (folder / "family.tsv").write_text("ann\\tparent_of\\tbob\\nbob\\tparent_of\\tcid\\n")
    >>> with store_facts(folder / "family.tsv", database=folder / "family.duckdb") as kb:
    ...     print(kb)
    StoredFacts(3 entities, 1 predicate, 2 facts in DuckDB)
    """
    name = os.fspath(path)
    if isinstance(engine, SQLEngine):
        made = engine
    elif is_spark(engine):
        if database is not None:
            raise DataError("a database is a file of DuckDB; Spark keeps tables in a folder")
        made = SparkEngine(engine, folder=folder, memory_limit=memory_limit)
    elif engine == "duckdb":
        if folder is not None:
            raise DataError("a folder keeps the tables of Spark; DuckDB keeps them in a database file")
        from rulewright.engine.duckdb import Engine

        if name.endswith(".duckdb") and database is None:
            if not Path(name).is_file():
                raise FileError(
                    f"cannot read {name}: no such file; --database {name} makes one of the graph it is given"
                )
            database = name
        made = Engine(path=database, memory_limit=memory_limit)
    else:
        raise DataError(
            f"engine must be 'duckdb', an address of Spark such as local[2] or spark://host:7077, or a SparkSession; "
            f"got {engine!r}"
        )
    try:
        chosen = columns.split(",") if isinstance(columns, str) else columns
        return _read_into(made, name, chosen, is_open=database is not None and Path(name) == Path(database))
    except BaseException:
        made.close()
        raise


def _read_into(engine: SQLEngine, path: str, columns: Sequence[str] | None, *, is_open: bool) -> StoredFacts:
    """Read files into an engine, or go on with what it has of them."""
    notes: list[str] = []
    sources: Mapping[str, FactFiles | None]
    if is_open:
        key = engine.find_key("facts")
        if not key:
            raise DataError(f"{path} holds no facts yet; read some into it with --database {path}")
        sources = dict.fromkeys(json.loads(key)["splits"])
    else:
        found = find_fact_files(path)
        sources, key = found, describe_sources(found, columns)
        notes += describe_folder(path)
    engine.begin("facts", key)
    tables = {split: f"raw_{index}" for index, split in enumerate(sources)}

    def read(table: str, files: FactFiles | None) -> None:
        if files is None:
            raise DataError(f"reading facts into {path} was not finished; name the files again, and --database {path}")
        reader: Any = read_by_spark if isinstance(engine, SparkEngine) else read_by_duckdb
        notes.extend(reader(engine, table, files, columns))

    for split, files in sources.items():
        engine.read_files(tables[split], key, partial(read, files=files))
    raw = {split: f"SELECT head, relation, tail FROM {table}" for split, table in tables.items()}
    every = " UNION ALL ".join(raw.values())
    engine.number("relation", f"SELECT relation AS label FROM ({every}) AS raw")
    engine.number("entity", f"SELECT head AS label FROM ({every}) AS raw UNION ALL SELECT tail FROM ({every}) AS raw2")
    numbers = "', '".join("-0123456789")
    seeming = engine.run(
        f"SELECT relation FROM ({raw['']}) AS raw GROUP BY relation "
        f"HAVING MIN(CASE WHEN SUBSTR(tail, 1, 1) IN ('{numbers}') THEN 1 ELSE 0 END) = 1 ORDER BY relation"
    )["relation"].tolist()
    size = int(engine.run("SELECT COUNT(*) AS n FROM entity")["n"][0])
    rows = int(engine.run(f"SELECT COUNT(*) AS n FROM ({raw['']}) AS raw")["n"][0])
    if not rows:
        raise ParseError("no facts", file=path)
    if size > np.iinfo(np.int32).max:
        raise DataError(f"{size:,} entities are more than the 2,147,483,647 that indices can count")
    if isinstance(engine, SparkEngine):
        engine.set_size(rows)
    encoded = {}
    for split, select in raw.items():
        encoded[split] = table_name("ee") if not split else f"{split}_ee"
        engine.create(
            encoded[split],
            "SELECT DISTINCT r.id AS p, h.id AS a0, t.id AS a1 "
            f"FROM ({select}) AS raw JOIN relation AS r ON r.label = raw.relation "
            "JOIN entity AS h ON h.label = raw.head JOIN entity AS t ON t.label = raw.tail"
            + ("" if isinstance(engine, SparkEngine) else " ORDER BY p, a0"),  # DuckDB passes over parts of other p
        )
    engine.drop(*tables.values())
    engine.declare(table_name("ee", truth=False), declare_columns("ee"))
    labels = list(map(str, engine.run("SELECT label FROM relation ORDER BY id")["label"].tolist()))
    counts = {}
    for split, table in encoded.items():
        sizes = engine.run(f"SELECT p, COUNT(*) AS n FROM {table} GROUP BY p")
        by_index = dict(zip(sizes["p"].tolist(), sizes["n"].tolist(), strict=True))
        counts[split] = {label: int(by_index.get(index, 0)) for index, label in enumerate(labels)}
    engine.end()
    if seeming:
        notes.append(
            f"the tails of {shorten_list(list(map(str, seeming)))} look like numbers and are names here; read_facts, "
            "without an engine, makes numbers of attributes"
        )
    domain = StoredDomain(engine, size)
    splits = {
        split: StoredFacts(engine, domain, counts[split], key=key, facts_table=encoded[split])
        for split in encoded
        if split
    }
    repeated = rows - sum(counts[""].values())
    return StoredFacts(engine, domain, counts[""], key=key, splits=splits, notes=notes, duplicates=repeated)
