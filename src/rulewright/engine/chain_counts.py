"""Counting the chain rules of a length, all relations at once, in a few portable statements.

A path walks facts forwards and backwards: the table ``edge``, which the engine is given first, has every fact twice,
once for each step of its relation (`logic.chain`). The statements do not list all paths. How many paths two steps have
is the sum over their middle entities of (edges in) × (edges out); and a head closes a path of two edges to a triangle,
of which there are few: triangles are found from their corner of least degree. Only where all paths are few are they
walked. Single steps are counted by `Incidence`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import sparse

from rulewright.data import FactTable
from rulewright.data.index import Ids, look_up
from rulewright.engine.sql import Column, table_name
from rulewright.logic import count_steps, encode_step, invert_step

_FACTS = table_name("ee")
_SUM = "CAST(SUM(n) AS BIGINT)"
_STEPS = {length: ", ".join(f"p{position}" for position in range(length)) for length in (2, 3, 4)}

FEW_PATHS = 500_000
"""Up to so many paths of two edges, walking them is as quick as looking for triangles, quicker where these abound."""


@dataclass(frozen=True)
class Sample:
    """One in ``share`` of all values, chosen by a remainder, so that every database chooses the same."""

    share: int
    seed: int = 0

    def of(self, *columns: str) -> str:
        """Return the condition that chooses rows by these columns."""
        factors = (7919, 104729, 1299709)
        mixed = " + ".join(
            f"CAST({column} AS BIGINT) * {factor}" for column, factor in zip(columns, factors, strict=False)
        )
        return f"({mixed} + {self.seed * 611953}) % 15485863 % {self.share} = 0"


def edges(facts: FactTable, *, inverses: bool = True) -> dict[str, Column]:
    """Return the columns of ``edge``: the facts, and where ``inverses`` are wanted the facts walked backwards."""
    (before, after), forwards = facts.columns, encode_step(facts.predicate)
    if not inverses:
        return {"p": forwards, "a0": before, "a1": after}
    return {
        "p": np.concatenate([forwards, invert_step(forwards)]),
        "a0": np.concatenate([before, after]),
        "a1": np.concatenate([after, before]),
    }


_DEGREES = [
    "arriving AS (SELECT a1 AS y, p, COUNT(*) AS n FROM edge GROUP BY a1, p)",
    "leaving AS (SELECT a0 AS y, p, COUNT(*) AS n FROM edge GROUP BY a0, p)",
]
_TWO_STEPS = (
    "twostep AS (SELECT a.a0 AS x, a.p AS p0, b.p AS p1, b.a1 AS m, COUNT(*) AS n FROM edge AS a "
    "JOIN edge AS b ON b.a0 = a.a1 GROUP BY a.a0, a.p, b.p, b.a1)"
)
_WALKED = [
    "pair AS (SELECT DISTINCT x, z FROM head)",
    "path AS (SELECT pair.x AS x, pair.z AS z, a.p AS p0, b.p AS p1, COUNT(*) AS n FROM pair "
    "JOIN edge AS a ON a.a0 = pair.x JOIN edge AS b ON b.a0 = a.a1 AND b.a1 = pair.z "
    "GROUP BY pair.x, pair.z, a.p, b.p)",
]
# Triangles of the graph without directions: u < v < w by degree. ``walk`` lists every x → y → z whose ends are joined;
# where an entity is joined to itself, the walk may stay on it.
_WALKS = [
    f"joined AS (SELECT a0, a1 FROM {_FACTS} WHERE a0 <> a1 UNION SELECT a1, a0 FROM {_FACTS} WHERE a0 <> a1)",
    "degree AS (SELECT a0 AS v, COUNT(*) AS d FROM joined GROUP BY a0)",
    "up AS (SELECT joined.a0 AS u, joined.a1 AS v FROM joined JOIN degree AS du ON du.v = joined.a0 "
    "JOIN degree AS dv ON dv.v = joined.a1 WHERE du.d < dv.d OR (du.d = dv.d AND joined.a0 < joined.a1))",
    "triangle AS (SELECT a.u AS u, a.v AS v, b.v AS w FROM up AS a JOIN up AS b ON b.u = a.u "
    "JOIN up AS c ON c.u = a.v AND c.v = b.v)",
    f"loop AS (SELECT DISTINCT a0 AS v FROM {_FACTS} WHERE a0 = a1)",
    "walk AS ("
    + " UNION ALL ".join(
        f"SELECT {x} AS x, {y} AS y, {z} AS z FROM triangle" for x, y, z in ("uvw", "uwv", "vuw", "vwu", "wuv", "wvu")
    )
    + " UNION ALL SELECT loop.v AS x, loop.v AS y, joined.a1 AS z FROM loop JOIN joined ON joined.a0 = loop.v"
    " UNION ALL SELECT joined.a0 AS x, loop.v AS y, loop.v AS z FROM loop JOIN joined ON joined.a1 = loop.v)",
]


def body_counts(length: int, *, sample: Sample | None = None) -> str:
    """Count the groundings of every body of two relations or more: columns p0 … and ``n``.

    A ``sample`` chooses a part of the first entities.
    """
    parts = [*_DEGREES]
    first = "arriving"
    if sample:
        first = "sampled"
        parts.append(f"sampled AS (SELECT a1 AS y, p, COUNT(*) AS n FROM edge WHERE {sample.of('a0')} GROUP BY a1, p)")
    joins, reached = [f"{first} AS s"], "s.y"
    columns = ["s.p AS p0"]
    for middle in range(1, length - 1):
        joins.append(f"JOIN edge AS e{middle} ON e{middle}.a0 = {reached}")
        columns.append(f"e{middle}.p AS p{middle}")
        reached = f"e{middle}.a1"
    joins.append(f"JOIN leaving AS o ON o.y = {reached}")
    columns.append(f"o.p AS p{length - 1}")
    inner = f"SELECT {', '.join(columns)}, s.n * o.n AS n FROM {' '.join(joins)}"
    names = _STEPS[length]
    return f"WITH {', '.join(parts)} SELECT {names}, {_SUM} AS n FROM ({inner}) AS paths GROUP BY {names}"


def loop_counts(length: int, *, sample: Sample | None = None) -> str:
    """Count the groundings of every body of two relations or more that end where they began: columns p0 … and ``n``."""
    columns, joined = {
        2: ("a.p AS p0, b.p AS p1, a.a0 AS x, 1 AS n", "edge AS a JOIN edge AS b ON b.a0 = a.a1 AND b.a1 = a.a0"),
        3: (
            "t.p0 AS p0, t.p1 AS p1, e.p AS p2, t.x AS x, t.n AS n",
            "twostep AS t JOIN edge AS e ON e.a0 = t.m AND e.a1 = t.x",
        ),
        4: (
            "t.p0 AS p0, t.p1 AS p1, s.p0 AS p2, s.p1 AS p3, t.x AS x, t.n * s.n AS n",
            "twostep AS t JOIN twostep AS s ON s.x = t.m AND s.m = t.x",
        ),
    }[length]
    names, first = _STEPS[length], f"WITH {_TWO_STEPS} " if length > 2 else ""
    where = f" WHERE {sample.of('x')}" if sample else ""
    inner = f"SELECT {columns} FROM {joined}"
    return f"{first}SELECT {names}, {_SUM} AS n FROM ({inner}) AS loops{where} GROUP BY {names}"


def support_counts(
    length: int, *, targets: Sequence[int] | None = None, few_paths: bool = False, sample: Sample | None = None
) -> str:
    """Count the groundings of every body, of two relations or more, whose head holds, loops apart.

    Columns: ``h`` (the head's relation), p0 …, ``n`` (groundings), ``pairs`` (different ends) and ``squares``, the
    sum over these pairs of the squared number of groundings, from which the error of a sample follows. ``few_paths``
    walks all paths of two edges. A ``sample`` chooses a part of the head facts.
    """
    wanted = ["a0 <> a1"]
    if targets is not None:
        wanted.append(f"p IN ({', '.join(map(str, targets))})")
    head = f"SELECT p AS h, a0 AS x, a1 AS z FROM {_FACTS} WHERE {' AND '.join(wanted)}"
    chosen = "" if sample is None else f" AND {sample.of('p', 'a0', 'a1')}"
    parts = [f"head AS ({head}{chosen})"]
    names = _STEPS[length]
    if length == 2 and few_paths:
        parts += _WALKED
        select = (
            "SELECT head.h AS h, path.p0 AS p0, path.p1 AS p1, head.x AS x, head.z AS z, path.n AS n FROM head "
            "JOIN path ON path.x = head.x AND path.z = head.z"
        )
    elif length == 2:
        parts += _WALKS
        select = (
            "SELECT head.h AS h, a.p AS p0, b.p AS p1, head.x AS x, head.z AS z, 1 AS n FROM walk "
            "JOIN head ON head.x = walk.x AND head.z = walk.z JOIN edge AS a ON a.a0 = walk.x AND a.a1 = walk.y "
            "JOIN edge AS b ON b.a0 = walk.y AND b.a1 = walk.z"
        )
    else:
        starts = "(SELECT DISTINCT x FROM head)"
        parts.append(
            "twostep AS (SELECT a.a0 AS x, a.p AS p0, b.p AS p1, b.a1 AS m, COUNT(*) AS n FROM edge AS a "
            f"JOIN {starts} AS starts ON starts.x = a.a0 JOIN edge AS b ON b.a0 = a.a1 "
            "GROUP BY a.a0, a.p, b.p, b.a1)"
        )
        if length == 3:
            last, columns, weight = "edge AS e ON e.a0 = t.m AND e.a1 = head.z", "e.p AS p2", "t.n"
        else:
            parts.append(
                "laststep AS (SELECT a.a0 AS m, a.p AS p2, b.p AS p3, b.a1 AS z, COUNT(*) AS n FROM edge AS a "
                "JOIN edge AS b ON b.a0 = a.a1 JOIN (SELECT DISTINCT z FROM head) AS ends ON ends.z = b.a1 "
                "GROUP BY a.a0, a.p, b.p, b.a1)"
            )
            last, columns, weight = "laststep AS s ON s.m = t.m AND s.z = head.z", "s.p2 AS p2, s.p3 AS p3", "t.n * s.n"
        select = (
            f"SELECT head.h AS h, t.p0 AS p0, t.p1 AS p1, {columns}, head.x AS x, head.z AS z, {weight} AS n "
            f"FROM head JOIN twostep AS t ON t.x = head.x JOIN {last}"
        )
    by_pair = f"SELECT h, {names}, x, z, {_SUM} AS n FROM ({select}) AS paths GROUP BY h, {names}, x, z"
    totals = f"{_SUM} AS n, COUNT(*) AS pairs, CAST(SUM(n * n) AS BIGINT) AS squares"
    return f"WITH {', '.join(parts)} SELECT h, {names}, {totals} FROM ({by_pair}) AS ends GROUP BY h, {names}"


def end_counts(length: int, *, loops: bool = False, sample: Sample | None = None) -> str:
    """Count the different ends of some rules, which the engine is given first: ``rule`` with columns r, h, p0, ….

    Columns: ``r`` (the rule's index), ``pairs`` (different ends of the body) and ``known``, those of them whose first
    entity has the head relation to something: what the body says where the head is not silent. With ``loops``, ends
    may coincide.
    """
    names = _STEPS[length]
    steps = ["body JOIN edge AS e0 ON e0.p = body.p0"]
    steps += [f"JOIN edge AS e{i} ON e{i}.p = body.p{i} AND e{i}.a0 = e{i - 1}.a1" for i in range(1, length)]
    conditions = [] if loops else [f"e0.a0 <> e{length - 1}.a1"]
    if sample is not None:
        conditions.append(sample.of("e0.a0"))
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    columns = ", ".join(f"body.p{i} AS p{i}" for i in range(length))
    same = " AND ".join(f"start.p{i} = rule.p{i}" for i in range(length))
    parts = [
        f"body AS (SELECT DISTINCT {names} FROM rule)",
        f"reached AS (SELECT DISTINCT {columns}, e0.a0 AS x, e{length - 1}.a1 AS z FROM {' '.join(steps)}{where})",
        f"start AS (SELECT {names}, x, COUNT(*) AS k FROM reached GROUP BY {names}, x)",
        f"subject AS (SELECT DISTINCT p AS h, a0 AS x FROM {_FACTS})",
    ]
    known = "CASE WHEN subject.x IS NULL THEN 0 ELSE start.k END"
    totals = f"CAST(SUM(start.k) AS BIGINT) AS pairs, CAST(SUM({known}) AS BIGINT) AS known"
    return (
        f"WITH {', '.join(parts)} SELECT rule.r AS r, {totals} FROM rule JOIN start ON {same} "
        "LEFT JOIN subject ON subject.h = rule.h AND subject.x = start.x GROUP BY rule.r"
    )


class Incidence:
    """The steps of `edges` beside the entities and the pairs of entities that they join.

    The counts come as columns, named as those of the statements above.

    >>> from rulewright.data import KnowledgeBase
    >>> kb = KnowledgeBase.from_triples([("ann", "knows", "bob"), ("bob", "knows", "ann"), ("bob", "knows", "cid")])
    >>> counts = Incidence(kb.tables()["ee"], 1).support()
    >>> [(name, counts[name].tolist()) for name in ("h", "p0", "n")]
    [('h', [0, 0]), ('p0', [0, 1]), ('n', [3, 2])]
    """

    def __init__(self, facts: FactTable, relations: int, *, inverses: bool = True) -> None:
        before, after = (column.astype(np.int64) for column in facts.columns)
        self.edge = edges(facts, inverses=inverses)
        self._step, self._before, self._after = self.edge.values()
        self._apart = self._before != self._after
        self._facts, self._fact_starts = facts.predicate, before
        self._n_heads, self._n_steps = relations, count_steps(relations)
        self._n_entities = int(max(before.max(initial=0), after.max(initial=0))) + 1
        keys = np.concatenate([before * self._n_entities + after, after * self._n_entities + before])
        pairs, pair_of_edge = np.unique(keys, return_inverse=True)
        there, back = np.split(pair_of_edge, 2)
        self._n_pairs = len(pairs)
        self._pair = pair_of_edge if inverses else there
        self._pair_back = np.concatenate([back, there]) if inverses else back
        self._fact_pair = there

    def support(self, targets: Sequence[int] | None = None) -> dict[str, Column]:
        """Count the facts of every head that every single relation joins too, loops apart."""
        chosen = self._apart[: len(self._facts)]
        if targets is not None:
            chosen = chosen & np.isin(self._facts, targets)
        heads = self._fact_pair[chosen], self._facts[chosen]
        sizes = self._n_steps, self._n_pairs, self._n_heads
        step, head, count = _count_joins((self._step, self._pair), heads, sizes)
        return {"h": head, "p0": step, "n": count, "pairs": count, "squares": count}

    def bodies(self, length: int) -> dict[str, Column]:
        """Count the groundings of every body of one relation or two, and the ``middles`` of two."""
        if length == 1:
            step, count = np.unique(self._step, return_counts=True)
            return {"p0": step, "n": count}
        arriving, leaving = (self._step, self._after), (self._before, self._step)
        sizes = self._n_steps, self._n_entities, self._n_steps
        first, second, count = _count_joins(arriving, leaving, sizes)
        # Both products are sorted and have the same entries: a body has a grounding where it has a middle.
        middles = _count_joins(arriving, leaving, sizes, distinct=(True, True))[2]
        return {"p0": first, "p1": second, "n": count, "middles": middles}

    def loops(self, length: int) -> dict[str, Column]:
        """Count the groundings of every body of one relation or two that end where they began."""
        if length == 1:
            step, count = np.unique(self._step[~self._apart], return_counts=True)
            return {"p0": step, "n": count}
        there, back = (self._step, self._pair), (self._pair_back, self._step)
        first, second, count = _count_joins(there, back, (self._n_steps, self._n_pairs, self._n_steps))
        return {"p0": first, "p1": second, "n": count}

    def known(self, heads: Column, steps: Column, *, loops: bool) -> Ids:
        """Count, for heads and single steps side by side, the pairs whose first entity has the head's relation."""
        chosen = slice(None) if loops else self._apart
        leaving, subjects = (self._step[chosen], self._before[chosen]), (self._fact_starts, self._facts)
        sizes = self._n_steps, self._n_entities, self._n_heads
        step, head, count = _count_joins(leaving, subjects, sizes, distinct=(False, True))
        return look_up(steps * self._n_heads + heads, step * self._n_heads + head, count)


def _count_joins(
    left: tuple[Column, Column],
    right: tuple[Column, Column],
    sizes: tuple[int, int, int],
    *,
    distinct: tuple[bool, bool] = (False, False),
) -> tuple[Ids, Ids, Ids]:
    """Join two lists of pairs (a, b) and (b, c), and count each (a, c), in order; ``distinct`` pairs count once."""
    matrices = []
    for (rows, columns), shape, is_distinct in zip((left, right), pairwise(sizes), distinct, strict=True):
        matrix = sparse.csr_array((np.ones(len(rows), dtype=np.int64), (rows, columns)), shape=shape)
        if is_distinct:
            matrix.data[:] = 1
        matrices.append(matrix)
    product = matrices[0] @ matrices[1]
    product.sort_indices()
    entries = product.tocoo()
    return entries.row.astype(np.int64), entries.col.astype(np.int64), entries.data
