"""Counting the chain rules of a length, all relations at once, in a few portable statements.

A path walks facts forwards and backwards: the table ``edge``, which the engine is given first, has every fact twice,
once for each step of its relation (`logic.chain`). The statements do not list all paths. How many paths two steps have
is the sum over their middle entities of (edges in) × (edges out); and a head closes a path of two edges to a triangle,
of which there are few: triangles are found from their corner of least degree. Only where all paths are few are they
walked. Single steps are counted by `Incidence`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy import sparse

from rulewright.data import FactTable
from rulewright.data.index import Ids, look_up
from rulewright.engine.sql import Column, table_name
from rulewright.logic import count_steps, encode_step, invert_step

_FACTS = table_name("ee")
_SUM = "CAST(SUM(n) AS BIGINT)"
_STEPS = {length: ", ".join(f"p{position}" for position in range(length)) for length in (2, 3, 4)}

MARK_PRIMES = 2**31 - 1, 2**31 - 19
"""Marks of sets of pairs are sums modulo these: products of two numbers below them are integers of any database."""

FEW_PATHS = 500_000
"""Up to so many paths of two edges, walking them is as quick as looking for triangles, quicker where these abound."""


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


def heads(
    facts: FactTable, *, targets: Sequence[int] | None = None, starts: Ids | None = None, loops: bool = False
) -> dict[str, Column]:
    """Return the columns of ``head``, the facts that rules are to give: relation ``h``, from ``x`` to ``z``.

    ``forwards`` and ``backwards`` are the steps that walk the fact. ``targets`` are the relations of interest and
    ``starts`` the entities that x may be, None for all; facts with x = z are there for ``loops`` only.
    """
    x, z = facts.columns
    chosen = np.full(len(x), fill_value=True) if loops else x != z
    if targets is not None:
        chosen &= np.isin(facts.predicate, targets)
    if starts is not None:
        chosen &= np.isin(x, starts)
    h = facts.predicate[chosen]
    forwards = encode_step(h)
    return {"h": h, "x": x[chosen], "z": z[chosen], "forwards": forwards, "backwards": invert_step(forwards)}


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
    " UNION ALL SELECT joined.a0 AS x, loop.v AS y, loop.v AS z FROM loop JOIN joined ON joined.a1 = loop.v"
    " UNION ALL SELECT loop.v AS x, joined.a1 AS y, loop.v AS z FROM loop JOIN joined ON joined.a0 = loop.v"
    " UNION ALL SELECT v AS x, v AS y, v AS z FROM loop)",
]
# The steps of these walks, one join after the other: left to choose, a database may join the edges to each other first,
# which are all paths of two edges. Each table is materialized so that it cannot.
_CLOSED_WALKS = [
    "closing AS MATERIALIZED (SELECT walk.x AS x, walk.y AS y, walk.z AS z FROM walk "
    "JOIN (SELECT DISTINCT x, z FROM head) AS pair ON pair.x = walk.x AND pair.z = walk.z)",
    "first_step AS MATERIALIZED (SELECT closing.x AS x, closing.y AS y, closing.z AS z, e.p AS p0 FROM closing "
    "JOIN edge AS e ON e.a0 = closing.x AND e.a1 = closing.y)",
    "both_steps AS MATERIALIZED (SELECT s.x AS x, s.z AS z, s.p0 AS p0, e.p AS p1 FROM first_step AS s "
    "JOIN edge AS e ON e.a0 = s.y AND e.a1 = s.z)",
]


def body_counts(length: int, *, first: str = "edge") -> str:
    """Count the groundings of every body of two relations or more: columns p0 … and ``n``.

    ``first`` is the table that first steps are taken from: ``edge``, or one like it with a part of the starts.
    """
    parts = [
        f"arriving AS (SELECT a1 AS y, p, COUNT(*) AS n FROM {first} GROUP BY a1, p)",
        "leaving AS (SELECT a0 AS y, p, COUNT(*) AS n FROM edge GROUP BY a0, p)",
    ]
    joins, reached = ["arriving AS s"], "s.y"
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


def loop_counts(length: int, *, first: str = "edge") -> str:
    """Count the groundings of every body of two relations or more that end where they began: columns p0 … and ``n``."""
    columns, joined = {
        2: ("a.p AS p0, b.p AS p1, 1 AS n", f"{first} AS a JOIN edge AS b ON b.a0 = a.a1 AND b.a1 = a.a0"),
        3: (
            "t.p0 AS p0, t.p1 AS p1, e.p AS p2, t.n AS n",
            "twostep AS t JOIN edge AS e ON e.a0 = t.m AND e.a1 = t.x",
        ),
        4: (
            "t.p0 AS p0, t.p1 AS p1, s.p0 AS p2, s.p1 AS p3, t.n * s.n AS n",
            "twostep AS t JOIN laststep AS s ON s.x = t.m AND s.m = t.x",
        ),
    }[length]
    names, parts = _STEPS[length], {3: ["twostep"], 4: ["twostep", "laststep"]}.get(length, [])
    two_steps = [
        f"{part} AS (SELECT a.a0 AS x, a.p AS p0, b.p AS p1, b.a1 AS m, COUNT(*) AS n FROM {table} AS a "
        "JOIN edge AS b ON b.a0 = a.a1 GROUP BY a.a0, a.p, b.p, b.a1)"
        for part, table in zip(parts, (first, "edge"), strict=False)
    ]
    before = f"WITH {', '.join(two_steps)} " if two_steps else ""
    inner = f"SELECT {columns} FROM {joined}"
    return f"{before}SELECT {names}, {_SUM} AS n FROM ({inner}) AS loops GROUP BY {names}"


def support_counts(length: int, *, few_paths: bool = False, circular: bool = False) -> str:
    """Count the groundings of every body, of two relations or more, whose head holds.

    The engine is given the table `heads` as ``head`` first. Columns: ``h`` (the head's relation), p0 …, ``n``
    (groundings) and ``pairs`` (different ends), loops apart. Unless they are ``circular``, groundings whose body uses
    the head's own fact are not in these: how many there are says ``circular``, and ``hidden_pairs`` how many ends have
    no other grounding, both with loops where ``head`` has some. ``few_paths`` walks all paths of two edges.
    """
    names = _STEPS[length]
    parts = _closed_paths(length, few_paths=few_paths, circular=circular)
    totals = (
        "CAST(SUM(CASE WHEN x <> z THEN n ELSE 0 END) AS BIGINT) AS n, "
        "CAST(SUM(CASE WHEN x <> z AND n > 0 THEN 1 ELSE 0 END) AS BIGINT) AS pairs, "
        "CAST(SUM(used) AS BIGINT) AS circular, CAST(SUM(CASE WHEN n = 0 THEN 1 ELSE 0 END) AS BIGINT) AS hidden_pairs"
    )
    return f"WITH {', '.join(parts)} SELECT h, {names}, {totals} FROM closed GROUP BY h, {names}"


def _closed_paths(length: int, *, few_paths: bool = False, circular: bool = False) -> list[str]:
    """Return the tables that end in ``closed``: each head fact with each body that joins its ends.

    ``n`` counts the groundings, without the ``used`` ones, whose body uses the head fact.
    """
    names = _STEPS[length]
    parts: list[str] = []
    if length == 2 and few_paths:
        parts += _WALKED
        select = (
            "SELECT head.h AS h, path.p0 AS p0, path.p1 AS p1, head.x AS x, head.z AS z, path.n AS n, 0 AS used "
            "FROM head JOIN path ON path.x = head.x AND path.z = head.z"
        )
    elif length == 2:
        parts += [*_WALKS, *_CLOSED_WALKS]
        select = (
            "SELECT head.h AS h, s.p0 AS p0, s.p1 AS p1, head.x AS x, head.z AS z, 1 AS n, 0 AS used "
            "FROM both_steps AS s JOIN head ON head.x = s.x AND head.z = s.z"
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
            f"SELECT head.h AS h, t.p0 AS p0, t.p1 AS p1, {columns}, head.x AS x, head.z AS z, {weight} AS n, "
            f"0 AS used FROM head JOIN twostep AS t ON t.x = head.x JOIN {last}"
        )
    selects = [select] if circular else [select, *_circular_paths(length)]
    rows = " UNION ALL ".join(selects)
    return [
        *parts,
        f"closed AS (SELECT h, {names}, x, z, {_SUM} AS n, CAST(SUM(used) AS BIGINT) AS used "
        f"FROM ({rows}) AS paths GROUP BY h, {names}, x, z)",
    ]


def _circular_paths(length: int) -> list[str]:
    """Return statements that list, each once and with ``n`` = −1, the groundings whose body uses the head's own fact.

    One statement lists those whose first step along the fact has one position and one direction.
    """
    edge_tables = ", ".join(f"edge AS e{position}" for position in range(length))
    columns = ", ".join(f"e{position}.p AS p{position}" for position in range(length))
    path = [f"e{position}.a0 = e{position - 1}.a1" for position in range(1, length)]
    path += ["e0.a0 = head.x", f"e{length - 1}.a1 = head.z"]

    def along(position: int, step: str) -> str:
        x, z = ("x", "z") if step == "forwards" else ("z", "x")
        edge = f"e{position}"
        return f"{edge}.p = head.{step} AND {edge}.a0 = head.{x} AND {edge}.a1 = head.{z}"

    directions = ("forwards", "backwards")
    return [
        f"SELECT head.h AS h, {columns}, head.x AS x, head.z AS z, -1 AS n, 1 AS used FROM head, {edge_tables} WHERE "
        + " AND ".join(
            [
                along(position, direction),
                *path,
                *(f"NOT ({along(before, way)})" for before in range(position) for way in directions),
            ]
        )
        for position in range(length)
        for direction in directions
    ]


def end_counts(length: int, *, loops: bool = False, first: str = "edge", marked: bool = False) -> str:
    """Count the different ends of some rules, which the engine is given first: ``rule`` with columns r, h, p0, ….

    Columns: ``r`` (the rule's index), ``pairs`` (different ends of the body) and ``known``, those of them whose first
    entity has the head relation to something: what the body says where the head is not silent. With ``loops``, ends
    may coincide. ``marked`` adds ``mark0`` and ``mark1``, by which sets of ends are told apart; ``edge`` has a column
    ``mark`` for that, and the engine is given ``start_mark``: `Incidence.mark_ends`, `Incidence.start_marks`.
    """
    names = _STEPS[length]
    steps = [f"body JOIN {first} AS e0 ON e0.p = body.p0"]
    steps += [f"JOIN edge AS e{i} ON e{i}.p = body.p{i} AND e{i}.a0 = e{i - 1}.a1" for i in range(1, length)]
    where = "" if loops else f" WHERE e0.a0 <> e{length - 1}.a1"
    columns = ", ".join(f"body.p{i} AS p{i}" for i in range(length))
    same = " AND ".join(f"start.p{i} = rule.p{i}" for i in range(length))
    end = "mark" if marked else "a1"  # no two entities have the same mark
    parts = [
        f"body AS (SELECT DISTINCT {names} FROM rule)",
        f"reached AS (SELECT DISTINCT {columns}, e0.a0 AS x, e{length - 1}.{end} AS z FROM {' '.join(steps)}{where})",
        f"subject AS (SELECT DISTINCT p AS h, a0 AS x FROM {_FACTS})",
    ]
    known = "CASE WHEN subject.x IS NULL THEN 0 ELSE start.k END"
    totals = f"CAST(SUM(start.k) AS BIGINT) AS pairs, CAST(SUM({known}) AS BIGINT) AS known"
    if marked:
        primes = list(enumerate(MARK_PRIMES))
        sums = ", ".join(f"CAST(SUM(z % {prime}) AS BIGINT) % {prime} AS s{i}" for i, prime in primes)
        products = ", ".join(f"start_mark.mark % {prime} * ends.s{i} % {prime} AS w{i}" for i, prime in primes)
        parts += [
            f"ends AS (SELECT {names}, x, COUNT(*) AS k, {sums} FROM reached GROUP BY {names}, x)",
            f"start AS (SELECT {names}, x, k, {products} FROM ends JOIN start_mark ON start_mark.a = ends.x)",
        ]
        totals += "".join(f", CAST(SUM(start.w{i}) AS BIGINT) % {prime} AS mark{i}" for i, prime in primes)
    else:
        parts.append(f"start AS (SELECT {names}, x, COUNT(*) AS k FROM reached GROUP BY {names}, x)")
    return (
        f"WITH {', '.join(parts)} SELECT rule.r AS r, {totals} FROM rule JOIN start ON {same} "
        "LEFT JOIN subject ON subject.h = rule.h AND subject.x = start.x GROUP BY rule.r"
    )


def start_counts(length: int, *, loops: bool = False, circular: bool = False, first: str = "edge") -> str:
    """Sum over first entities what rules count there, from which the error of a sample of these follows.

    The engine is given ``head`` and ``rule`` first. Columns: ``r`` (the rule's index), ``starts`` (first entities from
    which the body leads anywhere), ``support_squares``, ``body_squares`` and ``products``: the sums over them of
    support², body² and support × body.
    """
    names, parts = _STEPS[length], _closed_paths(length, circular=circular)
    steps = [f"body JOIN {first} AS e0 ON e0.p = body.p0"]
    steps += [f"JOIN edge AS e{i} ON e{i}.p = body.p{i} AND e{i}.a0 = e{i - 1}.a1" for i in range(1, length)]
    where = "" if loops else f" WHERE e0.a0 <> e{length - 1}.a1"
    columns = ", ".join(f"body.p{i}" for i in range(length))
    named = ", ".join(f"body.p{i} AS p{i}" for i in range(length))
    parts += [
        f"body AS (SELECT DISTINCT {names} FROM rule)",
        f"start AS (SELECT {named}, e0.a0 AS x, COUNT(*) AS n FROM {' '.join(steps)}{where} GROUP BY {columns}, e0.a0)",
        f"held AS (SELECT h, {names}, x, SUM(CASE WHEN x <> z THEN n ELSE 0 END) AS n, SUM(used) AS used "
        f"FROM closed GROUP BY h, {names}, x)",
    ]
    same = " AND ".join(f"start.p{i} = rule.p{i}" for i in range(length))
    same_held = " AND ".join(f"held.p{i} = rule.p{i}" for i in range(length))
    at_start = (
        "SELECT rule.r AS r, CAST(COALESCE(held.n, 0) AS DOUBLE) AS s, "
        "CAST(start.n - COALESCE(held.used, 0) AS DOUBLE) AS b "
        f"FROM rule JOIN start ON {same} LEFT JOIN held ON held.h = rule.h AND held.x = start.x AND {same_held}"
    )
    totals = "COUNT(*) AS starts, SUM(s * s) AS support_squares, SUM(b * b) AS body_squares, SUM(s * b) AS products"
    return f"WITH {', '.join(parts)} SELECT r, {totals} FROM ({at_start}) AS at_start WHERE b > 0 GROUP BY r"


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

    def count_walks(self, length: int) -> int:
        """Count the walks of so many steps: every grounding of every body."""
        walks = np.ones(self._n_entities, dtype=np.float64)
        for _ in range(length):
            weights = walks[self._after]
            walks = np.zeros_like(walks)
            np.add.at(walks, self._before, weights)
        return int(walks.sum())

    def find_symmetric(self) -> npt.NDArray[np.bool_]:
        """Tell for every relation whether its facts are those of its inverse."""
        there = self._facts * np.int64(self._n_pairs) + self._fact_pair
        back = self._facts * np.int64(self._n_pairs) + self._pair_back[: len(self._facts)]
        one_sided = np.bincount(self._facts[~np.isin(there, back)], minlength=self._n_heads)
        return np.asarray(one_sided == 0)

    def most_leaving(self) -> Ids:
        """Return for every step how often it leaves one entity at most."""
        leaving, counts = np.unique(self._step * self._n_entities + self._before, return_counts=True)
        most = np.zeros(self._n_steps, dtype=np.int64)
        np.maximum.at(most, leaving // self._n_entities, counts)
        return most

    def support(self, targets: Sequence[int] | None = None) -> dict[str, Column]:
        """Count the facts of every head that every single relation joins too, loops apart.

        None of these is circular: only a fact that joins an entity to itself is its own inverse.
        """
        chosen = self._apart[: len(self._facts)]
        if targets is not None:
            chosen = chosen & np.isin(self._facts, targets)
        heads = self._fact_pair[chosen], self._facts[chosen]
        sizes = self._n_steps, self._n_pairs, self._n_heads
        step, head, count = _count_joins((self._step, self._pair), heads, sizes)
        return {"h": head, "p0": step, "n": count, "pairs": count}

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

    @cached_property
    def _marks(self) -> tuple[Ids, Ids]:
        """Numbers u and v drawn for every entity, no two the same, by which sets of pairs are told apart.

        A set of pairs has the marks ``Σ u(x) v(z) mod P`` for the two primes P of `MARK_PRIMES`. Two sets that differ
        have both in common with a chance of about ``(2 / P)²``, less than 10⁻¹⁷.
        """
        chance, below = np.random.default_rng(0), MARK_PRIMES[0] * MARK_PRIMES[1]
        while True:
            marks: Ids = chance.integers(0, below, (2, self._n_entities))
            if all(len(np.unique(column)) == self._n_entities for column in marks):
                return marks[0], marks[1]

    def start_marks(self) -> dict[str, Column]:
        """Return the columns of ``start_mark``: the number ``mark`` of every entity ``a`` that a path starts from."""
        return {"a": np.arange(self._n_entities), "mark": self._marks[0]}

    def mark_ends(self) -> dict[str, Column]:
        """Return the columns of ``edge`` with the number ``mark`` of the entity that each edge leads to."""
        return {**self.edge, "mark": self._marks[1][self._after]}

    def mark_steps(self, *, loops: bool) -> list[Ids]:
        """Return the two marks of the pairs that each step joins."""
        chosen = slice(None) if loops else self._apart
        step, starts, ends = (
            self._step[chosen],
            self._marks[0][self._before[chosen]],
            self._marks[1][self._after[chosen]],
        )
        totals = []
        for prime in MARK_PRIMES:
            total = np.zeros(self._n_steps, dtype=np.int64)
            np.add.at(total, step, starts % prime * (ends % prime) % prime)
            totals.append(total % prime)
        return totals

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
