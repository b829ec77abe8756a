"""The engine on DuckDB: in memory or on a file, spilling to disk within a memory limit."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb
import numpy as np

from rulewright.checks import read_memory_limit
from rulewright.data import KnowledgeBase
from rulewright.engine.journal import Journal, JournalStep, pack_columns, unpack_columns
from rulewright.engine.sql import Column, SQLEngine
from rulewright.errors import DataError, EngineError, MemoryLimitError
from rulewright.files import file_error
from rulewright.interrupts import run_interruptibly

_LOGGER = logging.getLogger(__name__)


class Engine(SQLEngine, AbstractContextManager["Engine"]):
    """Runs rule bodies over a knowledge base on DuckDB.

    ``memory_limit`` (bytes, or text such as ``"2GB"``) bounds what DuckDB holds; beyond it intermediate results go to
    disk. ``path`` keeps the tables in a file instead of memory, and a journal with them. Without a knowledge base the
    engine has no facts yet: `rulewright.engine.stored_facts` reads some into it. Ctrl-C ends a statement at once, a
    time limit in time; the engine stays usable after either.

    >>> from rulewright.logic import parse_rule
    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob"), ("bob", "parent_of", "cid")])
    >>> rule = parse_rule("grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).")
    >>> with Engine(kb) as engine:
    ...     engine.count(rule.body)
    1
    """

    def __init__(
        self,
        kb: KnowledgeBase | None = None,
        *,
        memory_limit: int | str | None = None,
        threads: int | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        limit = read_memory_limit(memory_limit)
        self.path = None if path is None else Path(path)
        # what is too large for memory goes beside the file, where there is room for large files
        self._spill = tempfile.TemporaryDirectory(
            prefix="rulewright-",
            dir=None if self.path is None or not self.path.parent.is_dir() else self.path.parent,
            ignore_cleanup_errors=True,
        )
        settings: dict[str, Any] = {"temp_directory": self._spill.name, "preserve_insertion_order": self.path is None}
        if limit is not None:
            settings["memory_limit"] = f"{limit}B"
        if threads is not None:
            settings["threads"] = threads
        try:
            self._connection = duckdb.connect(":memory:" if path is None else os.fspath(path), config=settings)
        except duckdb.Error as error:
            self._spill.cleanup()
            raise DataError(f"cannot start DuckDB: {_first_line(error)}") from None
        self._results = count()
        try:
            if kb is not None:
                self.kb = kb
                self.load(kb)
        except BaseException:  # Ctrl-C, or a time limit
            self.close()
            raise

    def _open_journal(self, section: str) -> Journal | None:
        return None if self.path is None else DuckDBJournal(self._connection, section)

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The connection, for what only DuckDB reads and writes."""
        return self._connection

    def _execute(self, statement: str, incoming: Mapping[str, Column] | None = None) -> dict[str, Column]:
        """Run a statement, which may read columns of NumPy as ``incoming``, and return its columns by name."""
        if incoming is not None:
            self._connection.register("incoming", {name: np.ascontiguousarray(incoming[name]) for name in incoming})
        began = time.monotonic()
        try:
            columns: dict[str, Column] = run_interruptibly(
                lambda: self._connection.execute(statement).fetchnumpy(), self._connection.interrupt
            )
            _LOGGER.debug("%.3f s: %s", time.monotonic() - began, statement)
            return columns
        except duckdb.OutOfMemoryException as error:
            raise MemoryLimitError(
                f"the query does not fit into the memory limit, even with disk: {_first_line(error)}; "
                "raise memory_limit, or ask for shorter or more selective bodies"
            ) from None
        except duckdb.IOException as error:
            raise EngineError(f"DuckDB cannot read or write its files: {_first_line(error)}") from None
        finally:
            if incoming is not None:
                self._connection.unregister("incoming")

    def _run(self, statement: str) -> dict[str, Column]:
        return {name: np.asarray(column) for name, column in self._execute(statement).items()}

    def stream(self, statement: str, batch_size: int) -> Iterator[dict[str, Column]]:
        """Run a statement and yield its columns in batches; the result itself waits in DuckDB, on disk if need be."""
        name = f"result_{next(self._results)}"
        self._execute(f"CREATE TEMP TABLE {name} AS {statement}")
        try:
            rows = int(self._run(f"SELECT COUNT(*) AS n FROM {name}")["n"][0])
            for start in range(0, rows, batch_size):
                yield self._run(f"SELECT * FROM {name} WHERE rowid >= {start} AND rowid < {start + batch_size}")
        finally:
            self._connection.execute(f"DROP TABLE IF EXISTS {name}")  # past a time limit too

    @property
    def _table(self) -> str:
        """How a table is created: on a file it outlives the process, else it goes with it."""
        return "TEMP TABLE" if self.path is None else "TABLE"

    def _put(self, name: str, columns: Mapping[str, Column]) -> None:
        self._execute(f"CREATE OR REPLACE {self._table} {name} AS SELECT * FROM incoming", columns)

    def _create(self, name: str, select: str) -> None:
        self._execute(f"CREATE OR REPLACE {self._table} {name} AS {select}")

    def _append(self, name: str, select: str) -> None:
        self._execute(f"INSERT INTO {name} {select}")

    def _drop(self, name: str) -> None:
        self._execute(f"DROP TABLE IF EXISTS {name}")

    @contextmanager
    def joins_as_written(self) -> Iterator[None]:
        """Have statements inside look the rows of the first table up in the next ones, one after the other."""
        self._connection.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
        try:
            yield
        finally:
            with suppress(duckdb.Error):
                self._connection.execute("RESET disabled_optimizers")

    def write_files(self, select: str, path: str, file_format: str, *, partition: str | None = None) -> None:
        """Write the rows of a statement to a file, or in parts to a folder; it gets its name when it is complete."""
        target = Path(path)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.partial")
        options = {"parquet": "FORMAT parquet", "tsv": "FORMAT csv, DELIMITER '\t', HEADER, QUOTE ''", "csv": "HEADER"}
        parts = f", PARTITION_BY ({partition})" if partition else ""
        try:
            self._execute(f"COPY ({select}) TO {self.quote_text(str(temporary))} ({options[file_format]}{parts})")
            if target.is_dir():
                shutil.rmtree(target)
            temporary.replace(target)
        except (duckdb.Error, OSError, EngineError) as error:
            raise file_error("write", str(target), OSError(_first_line(error))) from None
        finally:
            if temporary.is_dir():
                shutil.rmtree(temporary, ignore_errors=True)
            else:
                temporary.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the database and its files."""
        self._connection.close()
        self._spill.cleanup()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class DuckDBJournal(Journal):
    """A journal in the database itself: what a statement does and that it is done are one transaction."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, section: str) -> None:
        super().__init__()
        self._connection, self._section = connection, section
        connection.execute("CREATE TABLE IF NOT EXISTS journal_section (section VARCHAR, key VARCHAR)")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS journal_step (section VARCHAR, i INTEGER, digest VARCHAR, action VARCHAR, "
            "name VARCHAR, result BLOB)"
        )
        row = connection.execute("SELECT key FROM journal_section WHERE section = ?", [section]).fetchone()
        if row is not None:
            self.key = row[0]
            steps = connection.execute(
                "SELECT digest, action, name, result FROM journal_step WHERE section = ? ORDER BY i", [section]
            ).fetchall()
            self.steps = [JournalStep(step[0], step[1], step[2], unpack_columns(step[3])) for step in steps]

    def _clear(self, key: str) -> None:
        with self._transaction():
            self._connection.execute("DELETE FROM journal_step WHERE section = ?", [self._section])
            self._connection.execute("DELETE FROM journal_section WHERE section = ?", [self._section])
            self._connection.execute("INSERT INTO journal_section VALUES (?, ?)", [self._section, key])

    def _write(self, step: JournalStep) -> None:
        row = [self._section, len(self.steps), step.digest, step.action, step.table, pack_columns(step.result)]
        self._connection.execute("INSERT INTO journal_step VALUES (?, ?, ?, ?, ?, ?)", row)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN TRANSACTION")
        try:
            yield
        except BaseException:
            with suppress(duckdb.Error):  # a statement that failed may have ended the transaction
                self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
