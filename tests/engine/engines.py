"""The engines and executors that must pass the shared suite; SQLite is there to show that statements are portable."""

from __future__ import annotations

import itertools
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from rulewright.data import KnowledgeBase
from rulewright.engine import Engine, SQLEngine, StoredFacts
from rulewright.engine.batches import Derivation, FactIndex, batch_derivations, join_by_index
from rulewright.engine.sql import Column, literals
from rulewright.engine.walks import Graph, find_relation
from rulewright.logic import Atom, Chain, Literal, Rule, encode_path


class JoinSorted:
    """STRING_AGG(text, separator ORDER BY key), which SQLite has from 3.44 on."""

    def __init__(self) -> None:
        self.rows, self.separator, self.descending = [], "", False

    def step(self, text: object, key: object, separator: str, descending: int) -> None:
        self.rows.append((key, str(text)))
        self.separator, self.descending = separator, bool(descending)

    def finalize(self) -> str:
        return self.separator.join(text for _, text in sorted(self.rows, reverse=self.descending))


class SQLiteEngine(SQLEngine):
    def __init__(self, kb: KnowledgeBase) -> None:
        super().__init__()
        self.kb = kb
        self.connection = sqlite3.connect(":memory:")
        self.connection.create_aggregate("join_sorted", 4, JoinSorted)
        self.load(kb)

    def _run(self, statement: str) -> dict[str, Column]:
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

    def _put(self, name: str, columns: Mapping[str, Column]) -> None:
        self._drop(name)
        self.connection.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
        rows = list(zip(*(each.tolist() for each in columns.values()), strict=True))
        self.connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", rows)
        self._index(name)

    def _create(self, name: str, select: str) -> None:
        self.connection.execute(f"CREATE TABLE made_anew AS {select}")
        self._drop(name)
        self.connection.execute(f"ALTER TABLE made_anew RENAME TO {name}")
        self._index(name)

    def _index(self, name: str) -> None:
        """SQLite joins by an index or row by row: facts and edges have theirs, or real graphs would take hours."""
        columns = {row[1] for row in self.connection.execute(f"PRAGMA table_info({name})")}
        for key in ("p, a0", "p, a1", "a0, a1") if {"p", "a0", "a1"} <= columns else ():
            self.connection.execute(f"CREATE INDEX {name}_{key.replace(', ', '_')} ON {name} ({key})")
        self.connection.execute(f"ANALYZE {name}")  # which index says most

    def _append(self, name: str, select: str) -> None:
        self.connection.execute(f"INSERT INTO {name} {select}")

    def _drop(self, name: str) -> None:
        self.connection.execute(f"DROP TABLE IF EXISTS {name}")

    def join_sorted(self, text: str, separator: str = "", *, descending: bool = True, order: str | None = None) -> str:
        return f"JOIN_SORTED({text}, {order or text}, '{separator}', {int(descending)})"

    def close(self) -> None:
        self.connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def store(kb: KnowledgeBase, engine: SQLEngine) -> StoredFacts:
    """Hold a graph and its splits in an engine."""
    stored = StoredFacts.of(kb, engine)
    for name, split in kb.splits.items():
        table = split.tables()["ee"]
        engine.put(f"{name}_ee", {"p": table.predicate, "a0": table.columns[0], "a1": table.columns[1]})
    counts = {name: kb.count(name) for name in kb.predicates}
    domain = stored.domains["entity"]
    splits = {
        name: StoredFacts(
            engine, domain, {each: split.count(each) for each in counts}, key="", facts_table=f"{name}_ee"
        )
        for name, split in kb.splits.items()
    }
    return StoredFacts(engine, domain, counts, key="", splits=splits)


ENGINES = {"duckdb": Engine, "sqlite": SQLiteEngine}


class Executor(Protocol):
    """Counts for every head the groundings of a body; None where it cannot run such bodies."""

    def __call__(self, kb: KnowledgeBase, head: Atom, body: Sequence[Literal]) -> Counter[tuple[int, ...]] | None: ...


def count_by(make) -> Executor:
    def count(kb: KnowledgeBase, head: Atom, body: Sequence[Literal]) -> Counter[tuple[int, ...]]:
        with make(kb) as engine:
            return Counter(
                tuple(dict(zip(batch, row, strict=True))[term] for term in head.args)
                for batch in engine.bindings(body, list(dict.fromkeys(head.args)))
                for row in zip(*(column.tolist() for column in batch.values()), strict=True)
            )

    return count


def count_by_walks(kb: KnowledgeBase, head: Atom, body: Sequence[Literal]) -> Counter[tuple[int, ...]] | None:
    chain = Chain.read(head, [literal.formula() for literal in body])
    if chain is None or chain.apart or not chain.is_closed:
        return None
    path = encode_path(chain.steps, {step.relation: find_relation(kb, step.relation) for step in chain.steps})
    ways = Graph(kb).walk(np.arange(kb.n_entities), path).tocoo()
    rows = zip(ways.row.tolist(), ways.col.tolist(), ways.data.astype(int).tolist(), strict=True)
    return Counter({(start, end): count for start, end, count in rows})


def count_by_indexed_joins(kb: KnowledgeBase, head: Atom, body: Sequence[Literal]) -> Counter[tuple[int, ...]] | None:
    rule = Rule(head, tuple(literal.formula() for literal in body))
    (batch,) = batch_derivations([(0, Derivation(head, literals(body), rule, 0))], kb)
    if not batch.is_open:
        return None
    index, counts = FactIndex(kb), Counter()
    for args in itertools.product(range(kb.n_entities), repeat=len(head.args)):
        given = dict(zip(batch.head.args, args, strict=True))
        if all(given[term] == value for term, value in zip(batch.head.args, args, strict=True)):
            joined = join_by_index(index, batch, kb.predicate_index(str(head.predicate)), given, {})
            if joined is None:
                return None
            rules, premises = joined
            assert len(premises) == len(rules)
            counts[args] = len(rules)
    return +counts


EXECUTORS: dict[str, Executor] = {
    "duckdb": count_by(Engine),
    "sqlite": count_by(SQLiteEngine),
    "sparse walks": count_by_walks,
    "indexed joins": count_by_indexed_joins,
}
