"""Which atoms to make candidates: those that are observed or asked for, and what formulas reach from them.

An open atom that no one lists is taken to rest at false. A formula *reaches* it where it may raise it: where all other
literals of a clause that are false at rest may be true, by closed predicates' facts or by candidates. What would still
be moved, one formula further, is the *pull* on what rests (`measure_pull`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from rulewright.checks import Whole, check_parameter
from rulewright.data.index import Ids
from rulewright.engine.duckdb import Engine
from rulewright.errors import MemoryLimitError
from rulewright.inject.layer.grounding import FALSE, TRUE, ClauseLiteral, GroundFormula, Grounding, Pattern
from rulewright.inject.layer.plan import ORDERS
from rulewright.logic import Rule, Variable, WeightedFormula

AtomRows: TypeAlias = Mapping[str, npt.NDArray[np.integer]]
"""Atoms by predicate, ``[n, arity]`` entity indices."""

MOST_CANDIDATES = 50_000_000
"""How many candidates are listed."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Candidates by predicate, ``[n, arity]`` in order: the observed and asked atoms, and those reached.

    ``reached`` are how many each hop added; ``unbounded`` says which formulas reach atoms of any entity, so that none
    of these is listed.
    """

    candidates: Mapping[str, Ids]
    reached: tuple[int, ...]
    unbounded: tuple[str, ...]

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {len(rows):,}" for name, rows in self.candidates.items())
        hops = " + ".join(f"{count:,}" for count in self.reached) or "0"
        lines = [f"candidates: {counts}; reached in {len(self.reached)} hops: {hops}"]
        return "\n".join(lines + [f"not listed, since it reaches any entity: {text}" for text in self.unbounded])


@dataclass(frozen=True, slots=True)
class Pull:
    """What the atoms of a predicate that rest would be told: how many a formula moves, and the messages' sizes.

    ``largest_atom`` has the largest message. ``is_bound`` where candidates without probabilities counted as true.
    """

    predicate: str
    atoms: int
    mean: float
    largest: float
    largest_atom: tuple[int, ...]
    is_bound: bool

    def __str__(self) -> str:
        most = "at most " if self.is_bound else ""
        return (
            f"{self.predicate}: {self.atoms:,} resting atoms would be raised by {most}{self.mean:.3g} in the mean and "
            f"{self.largest:.3g} at the most, {self.predicate}{self.largest_atom}"
        )


def reach_candidates(
    grounding: Grounding,
    *,
    true: AtomRows,
    false: AtomRows | None = None,
    asked: AtomRows | None = None,
    hops: int = 1,
    most: int = MOST_CANDIDATES,
) -> Reach:
    """Return the observed and asked atoms of open predicates, and those that formulas reach from them.

    ``true`` and ``false`` are observed, those of closed predicates too. Order comparisons are not looked at. More than
    ``most`` candidates are refused.

    >>> grounding = Grounding("1.0 r(A, B) & r(B, C) => r(A, C).", domains={"entity": 9})
    >>> reach = reach_candidates(grounding, true={"r": np.array([[0, 1], [1, 2], [2, 3]])}, hops=2)
    >>> reach.candidates["r"].tolist(), reach.reached
    ([[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]], (2, 1))
    """
    check_parameter("hops", hops, Whole(0))
    with _AtomTables(grounding) as tables:
        for name, rows in true.items():
            tables.add(name, rows, may_be_true=True)
        for name, rows in (false or {}).items():
            tables.add(name, rows, may_be_true=False)
        for name, rows in (asked or {}).items():
            tables.add(name, rows, may_be_true=True)
        reached: list[int] = []
        for _ in range(hops):
            reached.append(tables.reach(most))
            if not reached[-1]:
                break
        candidates = {name: tables.list_atoms(name) for name in sorted(grounding.used - grounding.closed)}
        return Reach(candidates, tuple(reached), tuple(dict.fromkeys(tables.unbounded)))


def measure_pull(
    grounding: Grounding,
    *,
    true: AtomRows,
    candidates: AtomRows,
    probabilities: Mapping[str, npt.NDArray[np.floating]] | None = None,
    weights: Sequence[float] | None = None,
) -> tuple[Pull, ...]:
    """Return how strongly formulas would raise the atoms of each predicate that are no candidates, in one iteration.

    The message is ``Σ_f w_f Σ_g Π P(atom)`` over the other atoms of each grounding that are false at rest; literals
    that are true of what rests count 1. ``probabilities`` are those of candidates, in their order; without any, each
    counts 1, and the pull is a bound. ``weights`` are those of statements; without any, their own, 1 where learned.

    >>> grounding = Grounding("1.5 r(A, B) & r(B, C) => r(A, C).", domains={"entity": 9})
    >>> path = np.array([[0, 1], [1, 2], [2, 3]])
    >>> print(*measure_pull(grounding, true={"r": path}, candidates={"r": path}))
    r: 2 resting atoms would be raised by at most 1.5 in the mean and 1.5 at the most, r(0, 2)
    """
    with _AtomTables(grounding) as tables:
        for name, rows in candidates.items():
            given = (probabilities or {}).get(name)
            tables.add(name, rows, may_be_true=True, probabilities=given)
        for name, rows in true.items():
            tables.add(name, rows, may_be_true=True)
        return tables.pull(weights, is_bound=probabilities is None)


class _AtomTables:
    """The atoms of each predicate as tables of the engine: columns c0, …, t (may be true) and m (its probability)."""

    def __init__(self, grounding: Grounding) -> None:
        self._grounding = grounding
        self._names = {name: f"atoms_{index}" for index, name in enumerate(sorted(grounding.predicates))}
        self._engine = Engine()
        self.unbounded: list[str] = []
        for name, table in self._names.items():
            columns = {column: np.empty(0, dtype=np.int32) for column in self._columns(name)}
            columns["t"] = np.empty(0, dtype=np.int32)
            self._engine.put(table, {**columns, "m": np.empty(0)})

    def __enter__(self) -> _AtomTables:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.close()

    def _columns(self, name: str) -> list[str]:
        return [f"c{position}" for position in range(max(1, self._grounding.predicates[name].arity))]

    def add(
        self,
        name: str,
        rows: npt.NDArray[np.integer],
        *,
        may_be_true: bool,
        probabilities: npt.NDArray[np.floating] | None = None,
    ) -> None:
        """Add atoms that are not there yet."""
        columns = self._columns(name)
        given: dict[str, npt.NDArray[np.generic]] = {
            column: np.ascontiguousarray(rows[:, position], dtype=np.int32)
            if rows.shape[1]
            else np.zeros(len(rows), dtype=np.int32)
            for position, column in enumerate(columns)
        }
        given["m"] = np.ones(len(rows)) if probabilities is None else np.asarray(probabilities, dtype=np.float64)
        self._engine.put("given", given)
        listed = ", ".join(f"g.{column}" for column in columns)
        equal = " AND ".join(f"a.{column} = g.{column}" for column in columns)
        table = self._names[name]
        self._engine.append(
            table,
            f"SELECT {listed}, {int(may_be_true)} AS t, MAX(g.m) AS m FROM given AS g LEFT JOIN {table} AS a "
            f"ON {equal} WHERE a.t IS NULL GROUP BY {listed}",
        )

    def list_atoms(self, name: str) -> Ids:
        """Return the atoms of a predicate in order."""
        columns = ", ".join(self._columns(name))
        found = self._engine.run(f"SELECT {columns} FROM {self._names[name]} ORDER BY {columns}")
        arity = self._grounding.predicates[name].arity
        rows = np.stack([np.asarray(column, dtype=np.int64) for column in found.values()], 1)
        return rows[:, :arity]

    def reach(self, most: int) -> int:
        """Add what formulas reach from the atoms that are there, and return how many there are."""
        found: dict[str, list[str]] = {}
        for _, pattern, position, _ in self._heads():
            select = self._join(pattern, position)
            if select is not None:
                found.setdefault(pattern.literals[position].predicate, []).append(select)
        added = 0
        for name, selects in found.items():
            columns = ", ".join(self._columns(name))
            new = " UNION ALL ".join(f"SELECT {columns} FROM ({select}) AS j{i}" for i, select in enumerate(selects))
            table = self._names[name]
            select = f"SELECT DISTINCT {columns} FROM ({new}) AS n EXCEPT SELECT {columns} FROM {table}"
            self._engine.create(f"new_{table}", f"SELECT * FROM ({select}) AS e LIMIT {most + 1}")
            added += int(self._engine.run(f"SELECT COUNT(*) AS n FROM new_{table}")["n"][0])
            if added > most:
                raise MemoryLimitError(
                    f"formulas reach more than {most:,} candidates of {name}; take fewer hops, or raise most"
                )
        for name in found:
            columns = ", ".join(self._columns(name))
            table = self._names[name]
            self._engine.append(table, f"SELECT {columns}, 1 AS t, 1.0 AS m FROM new_{table}")
            self._engine.drop(f"new_{table}")
        return added

    def pull(self, weights: Sequence[float] | None, *, is_bound: bool) -> tuple[Pull, ...]:
        """Return the pull on the atoms of each predicate that are not there."""
        found: dict[str, list[str]] = {}
        for formula, pattern, position, weight in self._heads(weights):
            select = self._join(pattern, position)
            if select is not None:
                factor = abs(weight) * pattern.coefficient
                columns = ", ".join(self._columns(pattern.literals[position].predicate))
                scaled = f"SELECT {columns}, {factor!r} * m AS m FROM ({select}) AS s{formula.statement_index}"
                found.setdefault(pattern.literals[position].predicate, []).append(scaled)
        pulls = []
        for name, selects in found.items():
            names = self._columns(name)
            columns, table = ", ".join(f"n.{column}" for column in names), self._names[name]
            equal = " AND ".join(f"a.{column} = n.{column}" for column in names)
            self._engine.create(
                "pulled",
                f"SELECT {columns}, SUM(n.m) AS m FROM ({' UNION ALL '.join(selects)}) AS n LEFT JOIN {table} AS a "
                f"ON {equal} WHERE a.t IS NULL GROUP BY {columns}",
            )
            total = self._engine.run("SELECT COUNT(*) AS n, AVG(m) AS mean, MAX(m) AS largest FROM pulled")
            if int(total["n"][0]):
                listed = ", ".join(names)
                first = self._engine.run(f"SELECT {listed} FROM pulled ORDER BY m DESC, {listed} LIMIT 1")
                arity = self._grounding.predicates[name].arity
                atom = tuple(int(first[column][0]) for column in names)[:arity]
                sizes = float(total["mean"][0]), float(total["largest"][0])
                pulls.append(Pull(name, int(total["n"][0]), *sizes, atom, is_bound))
            self._engine.drop("pulled")
        return tuple(pulls)

    def _heads(self, weights: Sequence[float] | None = None) -> list[tuple[GroundFormula, Pattern, int, float]]:
        """Return the literals that formulas may raise, with the weight."""
        heads = []
        for formula in self._grounding.formulas:
            own = self._own_weight(formula.statement_index)
            weight = own if weights is None else weights[formula.statement_index]
            for pattern in formula.patterns:
                for position, literal in enumerate(pattern.literals):
                    if literal.predicate in ORDERS or literal.predicate in self._grounding.closed:
                        continue
                    classes = self._grounding.predicates[literal.predicate].classes
                    is_raised = weight is None or classes is not None or (TRUE in literal.classes) == (weight > 0)
                    # Patterns that are subtracted are of groundings that another pattern has
                    if is_raised and pattern.coefficient > 0:
                        heads.append((formula, pattern, position, 1.0 if weight is None else weight))
        return heads

    def _own_weight(self, statement_index: int) -> float | None:
        """Return a statement's weight; None where it is learned, and may have either sign."""
        statement = self._grounding.rules.statements[statement_index]
        if isinstance(statement, Rule):
            return statement.annotations.number("weight") or 1.0
        if isinstance(statement, WeightedFormula) and statement.kind == "soft":
            return statement.weight
        return 20.0 if isinstance(statement, WeightedFormula) and statement.kind == "hard" else None

    def _join(self, pattern: Pattern, head_position: int) -> str | None:
        """Return the statement that lists heads with the product of the others; None where an entity may be any."""
        head = pattern.literals[head_position]
        first: dict[Variable, str] = {}
        sources: list[str] = []
        conditions: list[str] = []
        for position, literal in enumerate(pattern.literals):
            if position == head_position or not self._rests_true(literal):
                continue
            alias = f"t{len(sources)}"
            sources.append(f"{self._names[literal.predicate]} AS {alias}")
            conditions.append(f"{alias}.t = 1")
            types = self._grounding.predicates[literal.predicate].types
            for place, (term, type_name) in enumerate(zip(literal.args, types, strict=True)):
                column = f"{alias}.c{place}"
                if not isinstance(term, Variable):
                    conditions.append(f"{column} = {self._grounding.constant_index(term, type_name)}")
                elif term in first:
                    conditions.append(f"{first[term]} = {column}")
                else:
                    first[term] = column
        types = self._grounding.predicates[head.predicate].types
        selected: list[str] = []
        for term, type_name in zip(head.args, types, strict=True):
            if not isinstance(term, Variable):
                selected.append(str(self._grounding.constant_index(term, type_name)))
            elif term in first:
                selected.append(first[term])
            else:
                self.unbounded.append(f"{head.predicate}({', '.join(map(str, head.args))}) of {pattern_text(pattern)}")
                return None
        for pair in pattern.apart:
            one, other = sorted(pair, key=str)
            if one in first and other in first:
                conditions.append(f"{first[one]} <> {first[other]}")
        columns = ", ".join(f"{value} AS c{place}" for place, value in enumerate(selected or ["0"]))
        product = " * ".join(f"t{index}.m" for index in range(len(sources))) or "1.0"
        if not sources:
            return f"SELECT {columns}, {product} AS m"
        return f"SELECT {columns}, {product} AS m FROM {', '.join(sources)} WHERE {' AND '.join(conditions)}"

    def _rests_true(self, literal: ClauseLiteral) -> bool:
        """Return whether a literal is true of an atom that rests at false, so that groundings need another atom."""
        if literal.predicate in ORDERS or self._grounding.predicates[literal.predicate].classes is not None:
            return False
        return FALSE in literal.classes


def pattern_text(pattern: Pattern) -> str:
    """Write a pattern as a clause."""
    parts = [
        f"{'!' if literal.classes == {FALSE} else ''}{literal.predicate}({', '.join(map(str, literal.args))})"
        for literal in pattern.literals
    ]
    return " | ".join(parts)
