"""The engines that must pass the shared suite: DuckDB, and SQLite to show that the statements are portable."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping

import numpy as np

from rulewright.data import KnowledgeBase, signature
from rulewright.engine import Engine, SQLEngine
from rulewright.engine.sql import Column, table_name


class SQLiteEngine(SQLEngine):
    def __init__(self, kb: KnowledgeBase) -> None:
        super().__init__(kb)
        self.connection = sqlite3.connect(":memory:")
        for truth in (True, False):
            for kind in {signature(each) for each in kb.predicates.values()}:
                name = table_name(kind, truth=truth)
                columns = ", ".join(f"a{place}" for place in range(len(kind)))
                self.connection.execute(f"CREATE TABLE {name} (p, {columns})")
                table = kb.tables(truth=truth).get(kind)
                if table is not None:
                    rows = list(zip(table.predicate.tolist(), *(each.tolist() for each in table.columns), strict=True))
                    self.connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * (len(kind) + 1))})", rows)

    def run(self, statement: str) -> dict[str, Column]:
        cursor = self.connection.execute(statement)
        names = [each[0] for each in cursor.description]
        rows = cursor.fetchall()
        if not rows:
            return {name: np.empty(0, dtype=np.int64) for name in names}
        return {name: np.array([row[place] for row in rows]) for place, name in enumerate(names)}

    def stream(self, statement: str, batch_size: int) -> Iterator[dict[str, Column]]:
        found = self.run(statement)
        size = len(next(iter(found.values())))
        for start in range(0, size, batch_size):
            yield {name: column[start : start + batch_size] for name, column in found.items()}

    def put(self, name: str, columns: Mapping[str, Column]) -> None:
        self.connection.execute(f"DROP TABLE IF EXISTS {name}")
        self.connection.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
        rows = list(zip(*(each.tolist() for each in columns.values()), strict=True))
        self.connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", rows)

    def close(self) -> None:
        self.connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


ENGINES = {"duckdb": Engine, "sqlite": SQLiteEngine}
