"""The engine on DuckDB: in memory or on a file, spilling to disk within a memory limit."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import count
from types import TracebackType
from typing import Any

import duckdb
import numpy as np

from rulewright.checks import read_memory_limit
from rulewright.data import KnowledgeBase, signature
from rulewright.engine.sql import Column, SQLEngine, declare_columns, table_name
from rulewright.errors import DataError, MemoryLimitError
from rulewright.interrupts import run_interruptibly, time_limit

_LOGGER = logging.getLogger(__name__)


class Engine(SQLEngine, AbstractContextManager["Engine"]):
    """Runs rule bodies over a knowledge base on DuckDB.

    ``memory_limit`` (bytes, or text such as ``"2GB"``) bounds what DuckDB holds; beyond it intermediate results go to
    disk. ``path`` keeps the tables in a file instead of memory. Ctrl-C ends a statement at once, a time limit in time;
    the engine stays usable after either.

    >>> from rulewright.logic import parse_rule
    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob"), ("bob", "parent_of", "cid")])
    >>> rule = parse_rule("grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).")
    >>> with Engine(kb) as engine:
    ...     engine.count(rule.body)
    1
    """

    def __init__(
        self,
        kb: KnowledgeBase,
        *,
        memory_limit: int | str | None = None,
        threads: int | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        self.kb = kb
        limit = read_memory_limit(memory_limit)
        self._spill = tempfile.TemporaryDirectory(prefix="rulewright-", ignore_cleanup_errors=True)
        settings: dict[str, Any] = {"temp_directory": self._spill.name}
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
            self._load(kb)
        except BaseException:  # Ctrl-C, or a time limit
            self.close()
            raise

    def _load(self, kb: KnowledgeBase) -> None:
        """Put the facts into tables."""
        signatures = sorted({signature(declaration) for declaration in kb.predicates.values()})
        for truth in (True, False):
            for fact_signature in signatures:
                name, table = table_name(fact_signature, truth=truth), kb.tables(truth=truth).get(fact_signature)
                self._execute(f"CREATE OR REPLACE TABLE {name} ({declare_columns(fact_signature)})")
                if table is not None and len(table):
                    columns = {"p": table.predicate}
                    columns |= {f"a{position}": column for position, column in enumerate(table.columns)}
                    self._execute(f"INSERT INTO {name} SELECT {', '.join(columns)} FROM incoming", columns)

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
        finally:
            if incoming is not None:
                self._connection.unregister("incoming")

    def run(self, statement: str) -> dict[str, Column]:
        """Run a statement and return its columns by name."""
        return {name: np.asarray(column) for name, column in self._execute(statement).items()}

    def stream(self, statement: str, batch_size: int) -> Iterator[dict[str, Column]]:
        """Run a statement and yield its columns in batches; the result itself waits in DuckDB, on disk if need be."""
        name = f"result_{next(self._results)}"
        self._execute(f"CREATE TEMP TABLE {name} AS {statement}")
        try:
            rows = int(self.run(f"SELECT COUNT(*) AS n FROM {name}")["n"][0])
            for start in range(0, rows, batch_size):
                yield self.run(f"SELECT * FROM {name} WHERE rowid >= {start} AND rowid < {start + batch_size}")
        finally:
            self._connection.execute(f"DROP TABLE IF EXISTS {name}")  # past a time limit too

    def put(self, name: str, columns: Mapping[str, Column]) -> None:
        """Hold a table of numbers beside the facts, for statements to join; in place of an earlier one of that name."""
        self._execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM incoming", columns)

    def time_limit(self, seconds: float | None) -> AbstractContextManager[None]:
        """Stop what runs inside after so many seconds; see `rulewright.interrupts.time_limit`."""
        return time_limit(seconds)

    def close(self) -> None:
        """Let go of the database and its files."""
        self._connection.close()
        self._spill.cleanup()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
