"""What rules infer from facts that stay in an engine: tables there, of which what is asked for comes to Python."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from rulewright.checks import Progress
from rulewright.data import KnowledgeBase
from rulewright.engine.sql import Column, argument_columns, declare_columns
from rulewright.engine.stored_facts import StoredFacts
from rulewright.errors import DataError
from rulewright.logic import NUMBER_TYPE, RuleSet
from rulewright.reason.apply import NOISY_OR, ForwardChaining
from rulewright.reason.inferred import Aggregation, Inferred, InferredFact, Violation
from rulewright.reason.program import RuleProgram

BATCH = 50_000
"""How many facts come to Python at a time."""
_FORMATS = {".parquet": "parquet", ".tsv": "tsv", ".csv": "csv", "": "parquet"}


class StoredInferred(Inferred):
    """The new facts of an application to stored facts: all of them, in tables of the engine, best score first.

    ``len`` counts them, slices and iteration fetch some, `write` has the engine write all. The tables are there until
    other work begins on the facts.
    """

    def __init__(
        self,
        program: RuleProgram,
        heads: Sequence[str],
        *,
        aggregation: Aggregation,
        min_score: float,
        violations: Sequence[Violation],
        rounds: int,
        note: str,
        exact: bool,
    ) -> None:
        assert isinstance(program.kb, StoredFacts)
        super().__init__(
            program.kb,
            program.sources,
            {},
            violations,
            numbers=program.numbers,
            rounds=rounds,
            note=note,
            exact=exact,
            by_lists=aggregation == "max-plus",
        )
        self.stored, self._heads = program.kb, tuple(heads)
        engine = self.engine = program.kb.engine
        score = NOISY_OR if aggregation == "noisy-or" else "MAX(s)"
        code = "CAST(CAST(ROUND(s * 1000000000) AS BIGINT) + 10000000000 AS STRING)"
        ranked = engine.join_sorted(code) if aggregation == "max-plus" else "''"
        for head in self._heads:
            key = ", ".join(["p", *argument_columns(head)])
            rules = f"SELECT {key}, n, MAX(s) AS s, MIN(k) AS k FROM given_{head} GROUP BY {key}, n"
            engine.create(
                f"inferred_{head}",
                f"SELECT * FROM (SELECT {key}, {score} AS s, MIN(k) AS k, {ranked} AS rank_key FROM ({rules}) AS given "
                f"GROUP BY {key}) AS facts WHERE s >= {min_score!r}",
            )
        sizes = [int(engine.run(f"SELECT COUNT(*) AS n FROM inferred_{head}")["n"][0]) for head in self._heads]
        self._sizes = dict(zip(self._heads, sizes, strict=True))

    def __len__(self) -> int:
        return sum(self._sizes.values())

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            positions = range(len(self))[index]
            low, high = (min(positions), max(positions) + 1) if positions else (0, 0)
            fetched = list(self._fetch(low, high))
            return [fetched[position - low] for position in positions]
        position = range(len(self))[index]
        return next(self._fetch(position, position + 1))

    def __iter__(self) -> Iterator[InferredFact]:
        for start in range(0, len(self), BATCH):
            yield from self._fetch(start, min(start + BATCH, len(self)))

    def _fetch(self, start: int, stop: int) -> Iterator[InferredFact]:
        """Yield the facts at some positions, with the rules that gave them."""
        if stop <= start:
            return
        width = max(map(len, self._heads))
        parts = []
        for index, head in enumerate(self._heads):
            columns = [*argument_columns(head), *["CAST(NULL AS INTEGER)"] * (width - len(head))]
            listed = ", ".join(f"CAST({column} AS DOUBLE) AS b{place}" for place, column in enumerate(columns))
            parts.append(f"SELECT {index} AS g, p, {listed}, s, k, rank_key FROM inferred_{head}")
        key = ", ".join(["g", "p", *(f"b{place}" for place in range(width))])
        order = f"ROUND(s, 12) DESC, rank_key DESC, {key}"
        # the first ones, sorted: a number for each row would have one task of Spark sort them all
        rows = self.engine.look_up(
            f"SELECT * FROM ({' UNION ALL '.join(parts)}) AS facts ORDER BY {order} LIMIT {stop - start} OFFSET {start}"
        )
        names = list(self.kb.predicates)
        found: dict[int, InferredFact] = {}
        for group, head in enumerate(self._heads):
            chosen = np.flatnonzero(rows["g"] == group)
            if not len(chosen):
                continue
            args: list[Column] = [rows[f"b{place}"][chosen] for place in range(len(head))]
            predicates = rows["p"][chosen].astype(np.int64)
            sources = self._find_sources(head, predicates, args)
            labels = self._label(head, names[int(predicates[0])], args)
            for row, position in enumerate(chosen.tolist()):
                given = sources[row]
                found[position] = InferredFact(
                    names[int(predicates[row])],
                    tuple(column[row] for column in labels),
                    float(rows["s"][position]),
                    tuple(self.sources[index] for index in given),
                    int(rows["k"][position]),
                    tuple(self.numbers[index] for index in given),
                )
        for position in range(len(rows["s"])):
            yield found[position]

    def _label(self, head: str, name: str, args: Sequence[Column]) -> list[list[Any]]:
        """Return the labels of arguments, numbers as they are; stored facts have entities of one type."""
        types = self.kb.predicate(name).types
        return [
            column.tolist()
            if type_name == NUMBER_TYPE
            else self.kb.domains[self.kb.usual_type].labels_of(column.astype(np.int64)).tolist()
            for column, type_name in zip(args, types, strict=False)
        ]

    def _find_sources(self, head: str, predicates: Column, args: Sequence[Column]) -> list[list[int]]:
        """Return for facts of a signature the sources that gave them, strongest first."""
        columns = ["p", *argument_columns(head)]
        wanted = {"row": np.arange(len(predicates)), "p": predicates}
        wanted |= {
            name: column if letter == "n" else column.astype(np.int64)
            for name, column, letter in zip(argument_columns(head), args, head, strict=True)
        }
        self.engine.put("wanted_fact", {name: np.asarray(column) for name, column in wanted.items()})
        same = " AND ".join(f"g.{name} = w.{name}" for name in columns)
        rows = self.engine.look_up(
            f"SELECT w.row AS i, g.n AS n, MAX(g.s) AS s FROM wanted_fact AS w JOIN given_{head} AS g ON {same} "
            "GROUP BY w.row, g.n"
        )
        sources: list[list[int]] = [[] for _ in range(len(predicates))]
        for row in np.lexsort((rows["n"], -rows["s"], rows["i"])).tolist():
            sources[int(rows["i"][row])].append(int(rows["n"][row]))
        return sources

    def columns(self, name: str) -> NoReturn:
        """Refuse to bring all new facts of a predicate to Python."""
        raise DataError("the new facts stay in the engine; take a slice of them, or write them to files")

    @property
    def facts(self) -> KnowledgeBase:
        """The new facts alone, which stay in the engine."""
        self.columns("")

    @property
    def completed(self) -> KnowledgeBase:
        """All facts, which stay in the engine."""
        self.columns("")

    def write(self, path: str, *, complete: bool = False, partition: bool = False) -> None:
        """Have the engine write the new facts: head, relation, tail, score, round and the numbers of their rules.

        As Parquet, TSV or CSV by the ending, one file from DuckDB and a folder of them from Spark; with ``partition``
        a folder with a part for each relation. ``complete`` writes the known facts too, without scores. The name
        appears when all is written.
        """
        if not self._sizes.get("ee"):
            self.engine.declare("inferred_ee", f"{declare_columns('ee')}, s DOUBLE, k INTEGER, rank_key STRING")
            self.engine.declare("given_ee", f"{declare_columns('ee')}, n INTEGER, s DOUBLE, k INTEGER")
        file_format = next((name for ending, name in _FORMATS.items() if ending and path.endswith(ending)), "parquet")
        others = [head for head in self._heads if head != "ee" and self._sizes[head]]
        if others:
            raise DataError("files of triples hold relations alone, and some rules give facts of another kind")
        self.engine.put(
            "rule_number",
            {"n": np.arange(len(self.numbers), dtype=np.int32), "number": np.array(self.numbers, dtype=np.int64)},
        )
        names = np.array([*self.kb.predicates])
        self.engine.put("predicate_name", {"id": np.arange(len(names), dtype=np.int32), "label": names})
        listed = self.engine.join_sorted("CAST(r.number AS STRING)", " ", descending=False, order="r.number")
        given = (
            f"SELECT g.p AS p, g.a0 AS a0, g.a1 AS a1, {listed} AS rules "
            "FROM (SELECT DISTINCT p, a0, a1, n FROM given_ee) AS g JOIN rule_number AS r ON r.n = g.n "
            "GROUP BY g.p, g.a0, g.a1"
        )
        facts = (
            "SELECT i.p AS p, i.a0 AS a0, i.a1 AS a1, i.s AS score, i.k AS round, given.rules AS rules "
            f"FROM inferred_ee AS i JOIN ({given}) AS given ON given.p = i.p AND given.a0 = i.a0 AND given.a1 = i.a1"
        )
        if complete:
            facts = f"SELECT p, a0, a1 FROM {self.stored.facts_table} UNION ALL SELECT p, a0, a1 FROM inferred_ee"
        further = "" if complete else ", facts.score AS score, facts.round AS round, facts.rules AS rules"
        self.engine.write_files(
            f"SELECT h.label AS head, r.label AS relation, t.label AS tail{further} FROM ({facts}) AS facts "
            "JOIN predicate_name AS r ON r.id = facts.p JOIN entity AS h ON h.id = facts.a0 "
            "JOIN entity AS t ON t.id = facts.a1",
            path,
            file_format,
            partition="relation" if partition else None,
        )


def apply_stored(
    rules: RuleSet,
    kb: StoredFacts,
    *,
    aggregation: Aggregation,
    min_score: float,
    max_rounds: int | None,
    time_limit: float | None,
    progress: Progress | None,
) -> StoredInferred:
    """Apply rules to stored facts, in their engine; see `rulewright.reason.apply.apply`. Nothing is cut off."""
    if aggregation == "weight":
        raise DataError("rules that add up their weights are applied to facts of read_facts; choose aggregation='max'")
    told = hashlib.sha256(str(rules).encode("utf-8", "surrogatepass")).hexdigest()
    kb.begin(f"applying {told} {aggregation} {min_score} {max_rounds}")
    try:
        program = RuleProgram.of(rules, kb)
        chaining = ForwardChaining(
            program,
            kb.engine,
            aggregation,
            min_score=min_score,
            max_rounds=max_rounds,
            max_facts=None,
            progress=progress,
        )
        with kb.engine.time_limit(time_limit):
            chaining.run()
        if chaining.timed_out:
            kb.engine.end()  # what follows is of what there is so far, and no step of a run that goes on
        counts = [(constraint.formula, chaining.count_broken(constraint)) for constraint in program.constraints]
        note = chaining.note
        if max_rounds == 1 and not chaining.timed_out and chaining.changed and chaining.may_go_on:
            note = "every rule was applied once; a further round may give more"
        return StoredInferred(
            program,
            chaining.heads,
            aggregation=aggregation,
            min_score=min_score,
            violations=[Violation(formula, count) for formula, count in counts if count],
            rounds=chaining.rounds,
            note=note,
            exact=chaining.exact,
        )
    finally:
        kb.engine.end()
