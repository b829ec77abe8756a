"""Counting the chain rules of a length, all relations at once, in a few portable statements.

A path walks facts forwards and backwards: the table ``edge`` has every fact twice, once for each step of its relation
(`logic.chain`). The statements do not list all paths. How many paths two steps have is the sum over their middle
entities of (edges in) × (edges out); and a head closes a path of two edges to a triangle, of which there are few:
triangles are found from their corner of least degree, so that a hub is never joined with itself. Only where all paths
are few are they walked. What is large stays in tables of the engine; only counts of steps, bodies and rules come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import permutations

import numpy as np
import numpy.typing as npt

from rulewright.data import FactTable
from rulewright.data.index import Ids
from rulewright.engine.sql import Column, SQLEngine, table_name
from rulewright.logic import count_steps, encode_step, invert_step, is_inverse, write_inverse, write_step

_FACTS = table_name("ee")
_SUM = "CAST(SUM(n) AS BIGINT)"

MARK_PRIMES = 2**31 - 1, 2**31 - 19
"""Marks of sets of pairs are sums modulo these: products of two numbers below them are integers of any database."""

MIDDLE_TABLES = ("joined", "degree", "up", "triangle", "walk", "closing", "first_step", "both_steps", "closed")
"""What counting supports makes on its way."""


def edges(facts: FactTable, *, inverses: bool = True) -> dict[str, Column]:
    """Return the facts as columns of steps: each fact, and where ``inverses`` are wanted each walked backwards."""
    (before, after), forwards = facts.columns, encode_step(facts.predicate)
    if not inverses:
        return {"p": forwards, "a0": before, "a1": after}
    return {
        "p": np.concatenate([forwards, invert_step(forwards)]),
        "a0": np.concatenate([before, after]),
        "a1": np.concatenate([after, before]),
    }


def name_steps(length: int) -> list[str]:
    """Return the names of the columns that hold the steps of a body."""
    return [f"p{position}" for position in range(length)]


def _select_edges(*, inverses: bool) -> str:
    forwards = f"SELECT {write_step('p')} AS p, a0, a1 FROM {_FACTS}"
    backwards = f"SELECT {write_step('p', inverse=True)} AS p, a1 AS a0, a0 AS a1 FROM {_FACTS}"
    return f"{forwards} UNION ALL {backwards}" if inverses else forwards


def write_mark(column: str, seed: int = 0) -> str:
    """Return the SQL for a number that looks drawn at random for every entity, below the first of `MARK_PRIMES`.

    It is ``((x + s)² + 181243325)² mod P`` with a shift s that the seed gives: a number linear in the index would give
    the same sums wherever sums of indices are the same.

    >>> write_mark("x")
    '(((x + 12345701) * (x + 12345701) % 2147483647 + 181243325) * ((x + 12345701) * (x + 12345701) % 2147483647 \
+ 181243325) % 2147483647)'
    """
    shifted = f"({column} + {(12_345_701 + 7_654_321 * seed) % 500_000_000})"
    square = f"({shifted} * {shifted} % {MARK_PRIMES[0]} + 181243325)"
    return f"({square} * {square} % {MARK_PRIMES[0]})"


def _write_marks(column: str, seed: int) -> tuple[str, str]:
    """Return the SQL for the two numbers of an entity, one below each of `MARK_PRIMES`."""
    mark = write_mark(f"CAST({column} AS BIGINT)", seed)
    return mark, f"(({mark} * 1103515245 + 12345) % {MARK_PRIMES[1]})"


class ChainTables:
    """The tables that chains are counted from, and what they count; all results are columns with a row for each body.

    ``edge`` has the steps ``p`` from ``a0`` to ``a1``; ``leaving`` and ``arriving`` count (``n``) the edges of each
    step ``p`` at each entity ``y``, in ``w`` each of them shared with the other such edges of its other end. Bodies
    are columns p0, p1, … of steps.

    >>> from rulewright.data import KnowledgeBase
    >>> from rulewright.engine import Engine
    >>> kb = KnowledgeBase.from_triples([("ann", "knows", "bob"), ("bob", "knows", "ann"), ("bob", "knows", "cid")])
    >>> with Engine(kb) as engine:
    ...     counts = ChainTables(engine, 1).count_single_supports()
    >>> [(name, counts[name].tolist()) for name in ("h", "p0", "n")]
    [('h', [0]), ('p0', [1]), ('n', [2])]
    """

    def __init__(self, engine: SQLEngine, relations: int, *, inverses: bool = True) -> None:
        self.engine, self.relations, self.inverses = engine, relations, inverses
        engine.create("edge", _select_edges(inverses=inverses))
        for table, near, far in (("leaving", "a0", "a1"), ("arriving", "a1", "a0")):
            if table == "arriving" and inverses:
                engine.create("arriving", f"SELECT y, {write_inverse('p')} AS p, n, w FROM leaving")
                continue
            degree = f"(SELECT {far} AS y, p, COUNT(*) AS n FROM edge GROUP BY {far}, p) AS d"
            engine.create(
                table,
                f"SELECT e.{near} AS y, e.p AS p, COUNT(*) AS n, SUM(1 / CAST(d.n AS DOUBLE)) AS w FROM edge AS e "
                f"JOIN {degree} ON d.y = e.{far} AND d.p = e.p GROUP BY e.{near}, e.p",
            )
        self._has_triangles = False

    def drop(self) -> None:
        """Let go of the tables."""
        self.engine.drop("edge", "leaving", "arriving", "sampled_edge", "start", "head", "rule", "body", *MIDDLE_TABLES)

    # What is asked of single steps

    @cached_property
    def _steps(self) -> dict[str, Column]:
        """For every step its edges, its loops, and the two marks of the pairs that it joins."""
        starts, ends = _write_marks("a0", 0), _write_marks("a1", 1)
        marks = ", ".join(
            f"CAST(SUM({start} * {end} % {prime}) AS BIGINT) % {prime} AS m{index}"
            for index, (start, end, prime) in enumerate(zip(starts, ends, MARK_PRIMES, strict=True))
        )
        loops = "CAST(SUM(CASE WHEN a0 = a1 THEN 1 ELSE 0 END) AS BIGINT) AS loops"
        rows = self.engine.run(
            f"SELECT p, COUNT(*) AS n, {loops}, {marks} FROM ({_select_edges(inverses=True)}) AS steps GROUP BY p"
        )
        columns = {}
        for name in ("n", "loops", "m0", "m1"):
            column = columns[name] = np.zeros(count_steps(self.relations), dtype=np.int64)
            column[rows["p"]] = rows[name]
        return columns

    @property
    def _walked(self) -> npt.NDArray[np.bool_]:
        """Which steps there are edges of."""
        walked = self._steps["n"] > 0
        return walked if self.inverses else walked & (is_inverse(np.arange(len(walked))) == 0)

    def count_facts(self) -> Ids:
        """Return how many facts each relation has."""
        facts: Ids = self._steps["n"][encode_step(np.arange(self.relations))]
        return facts

    def find_symmetric(self) -> npt.NDArray[np.bool_]:
        """Tell for every relation whether its facts are those of its inverse: whether their marks are."""
        there = encode_step(np.arange(self.relations))
        back = invert_step(there)
        return np.asarray(
            (self._steps["m0"][there] == self._steps["m0"][back])
            & (self._steps["m1"][there] == self._steps["m1"][back])
        )

    @cached_property
    def most_leaving(self) -> Ids:
        """For every step how often it leaves one entity at most."""
        rows = self.engine.run("SELECT p, MAX(n) AS n FROM leaving GROUP BY p")
        most = np.zeros(count_steps(self.relations), dtype=np.int64)
        most[rows["p"]] = rows["n"]
        return most

    def count_walks(self, length: int) -> int:
        """Count the walks of two steps or three: every grounding of every body."""
        totals = {
            "i": "(SELECT y, SUM(n) AS n FROM arriving GROUP BY y) AS i",
            "o": "(SELECT y, SUM(n) AS n FROM leaving GROUP BY y) AS o",
        }
        joined = {
            2: f"{totals['i']} JOIN {totals['o']} ON o.y = i.y",
            3: f"edge JOIN {totals['i']} ON i.y = edge.a0 JOIN {totals['o']} ON o.y = edge.a1",
        }[length]
        rows = self.engine.run(f"SELECT SUM(CAST(i.n AS DOUBLE) * o.n) AS n FROM {joined}")
        return int(np.nan_to_num(np.asarray(rows["n"], dtype=np.float64))[0])

    # What is asked of bodies

    @cached_property
    def _meetings(self) -> dict[str, Column]:
        """How many facts of relation ``h`` another step ``t`` joins the ends of too: all, and those that are ``apart``.

        A fact and the step that walks it forwards always meet, and are left out.
        """
        rows = self.engine.run(
            f"SELECT f.p AS h, e.p AS t, COUNT(*) AS n, "
            f"CAST(SUM(CASE WHEN f.a0 <> f.a1 THEN 1 ELSE 0 END) AS BIGINT) AS apart FROM {_FACTS} AS f "
            f"JOIN ({_select_edges(inverses=True)}) AS e ON e.a0 = f.a0 AND e.a1 = f.a1 AND e.p <> {write_step('f.p')} "
            "GROUP BY f.p, e.p ORDER BY f.p, e.p"
        )
        return {name: column.astype(np.int64) for name, column in rows.items()}

    def count_single_supports(self, targets: Sequence[int] | None = None) -> dict[str, Column]:
        """Count the facts of every head that every other single step joins too, loops apart.

        None of these is circular: only a fact that joins an entity to itself is its own inverse.
        """
        rows = self._meetings
        keep = (rows["apart"] > 0) & self._walked[rows["t"]]
        if targets is not None:
            keep &= np.isin(rows["h"], targets)
        head, step, count = (rows[name][keep] for name in ("h", "t", "apart"))
        return {"h": head, "p0": step, "n": count, "pairs": count}

    def count_bodies(self, length: int, *, first: str = "edge") -> dict[str, Column]:
        """Count the groundings of every body, and the ``middles`` of two steps.

        ``first`` is the table that first steps of more than two are taken from: ``edge``, or ``sampled_edge``.
        """
        if length == 1:
            steps = np.flatnonzero(self._walked)
            return {"p0": steps, "n": self._steps["n"][steps]}
        if self.engine.is_planned:
            self._expect_bodies(length)
        return self.engine.run(body_counts(length, first=first))

    def _expect_bodies(self, length: int) -> None:
        """Tell how many rows counting bodies will list: for every middle, its steps in times its steps out."""
        steps = {
            table: f"(SELECT y, COUNT(*) AS c FROM {table} GROUP BY y) AS {table}_steps"
            for table in ("arriving", "leaving")
        }
        edge = "" if length == 2 else "edge JOIN "
        on = (
            "leaving_steps.y = arriving_steps.y"
            if length == 2
            else "arriving_steps.y = edge.a0 JOIN {leaving} ON leaving_steps.y = edge.a1".format(**steps)
        )
        first = f"{steps['arriving']} JOIN {steps['leaving']}" if length == 2 else steps["arriving"]
        product = "CAST(arriving_steps.c AS DOUBLE) * leaving_steps.c"
        rows = self.engine.run(f"SELECT SUM({product}) AS n, MAX({product}) AS largest FROM {edge}{first} ON {on}")
        n, largest = (float(np.nan_to_num(np.asarray(rows[name], dtype=np.float64))[0]) for name in ("n", "largest"))
        if length == 4:  # another edge between
            n *= float(self._steps["n"].sum()) / max(1, float(self.count_entities()))
        way_out = "a shorter max_length (--max-length) or a sample (--sample) counts less"
        self.engine.expect(f"bodies of {length} steps", n, largest, way_out=way_out)

    def count_entities(self) -> int:
        """Return how many entities an edge leaves."""
        return int(self.engine.run("SELECT COUNT(*) AS n FROM (SELECT DISTINCT y FROM leaving) AS starts")["n"][0])

    def count_loops(self, length: int, *, first: str = "edge") -> dict[str, Column]:
        """Count the groundings of every body that end where they began."""
        if length == 1:
            steps = np.flatnonzero(self._walked & (self._steps["loops"] > 0))
            return {"p0": steps, "n": self._steps["loops"][steps]}
        if length > 2:
            return self.engine.run(loop_counts(length, first=first))
        # From x along a fact to y, and along another step back: that step's inverse joins x and y as the fact does
        rows, steps = self._meetings, np.flatnonzero(self._walked)
        there, other, count = encode_step(rows["h"]), rows["t"], rows["n"]
        parts = [
            (steps, invert_step(steps), self._steps["n"][steps]),
            (there, invert_step(other), count),
            (invert_step(there), other, count),
        ]
        first_step, second_step, counts = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        keep = self._walked[first_step] & self._walked[second_step]
        return {"p0": first_step[keep], "p1": second_step[keep], "n": counts[keep]}

    def draw_starts(self, count: int, seed: int) -> int | None:
        """Draw so many first entities at random, the table ``start``, and take their edges, ``sampled_edge``.

        Returns of how many they are drawn; None where there are no more than that.
        """
        total = self.count_entities()
        if count >= total:
            return None
        mark = write_mark("CAST(y AS BIGINT)", 2 + seed)
        self.engine.create(
            "start", f"SELECT y AS a FROM (SELECT DISTINCT y FROM leaving) AS starts ORDER BY {mark}, y LIMIT {count}"
        )
        self.engine.create("sampled_edge", "SELECT edge.* FROM edge JOIN start ON start.a = edge.a0")
        return total

    # What is asked of rules

    def count_supports(
        self,
        length: int,
        *,
        targets: Sequence[int] | None = None,
        sampled: bool = False,
        few_paths: bool = False,
        circular: bool = False,
        loops: bool = False,
    ) -> dict[str, Column]:
        """Count the groundings of every body, of two relations or more, whose head holds.

        Columns: ``h`` (the head's relation), p0 …, ``n`` (groundings) and ``pairs`` (different ends), loops apart.
        Unless they are ``circular``, groundings whose body uses the head's own fact are not in these: how many there
        are says ``circular``, and ``hidden_pairs`` how many ends have no other grounding, both of loops too where
        ``loops`` are wanted. ``targets`` are the head relations of interest, and where ``sampled`` heads start from
        the entities drawn. ``few_paths`` walks all paths of two edges.
        """
        engine, names = self.engine, ", ".join(name_steps(length))
        engine.create("head", _select_heads(targets, sampled=sampled, loops=loops))
        if length == 2 and not few_paths:
            self._close_triangles()
        selects = [_closed_paths(length, few_paths=few_paths)]
        if not circular and (length > 2 or self._steps["loops"].any()):
            selects += _circular_paths(length, inverses=self.inverses)
        engine.create(
            "closed",
            f"SELECT h, {names}, x, z, {_SUM} AS n, CAST(SUM(used) AS BIGINT) AS used "
            f"FROM ({' UNION ALL '.join(selects)}) AS paths GROUP BY h, {names}, x, z",
        )
        return engine.run(
            f"SELECT h, {names}, CAST(SUM(CASE WHEN x <> z THEN n ELSE 0 END) AS BIGINT) AS n, "
            "CAST(SUM(CASE WHEN x <> z AND n > 0 THEN 1 ELSE 0 END) AS BIGINT) AS pairs, "
            "CAST(SUM(used) AS BIGINT) AS circular, "
            "CAST(SUM(CASE WHEN n = 0 THEN 1 ELSE 0 END) AS BIGINT) AS hidden_pairs "
            f"FROM closed GROUP BY h, {names}"
        )

    def _find_triangles(self) -> None:
        """List the triangles of the graph without directions, u < v < w by degree, and all walks that they hold.

        ``walk`` has every x → y → z whose ends are joined; where an entity is joined to itself, it may stay on it.
        """
        engine = self.engine
        low, high = "CASE WHEN a0 < a1 THEN a0 ELSE a1 END", "CASE WHEN a0 < a1 THEN a1 ELSE a0 END"
        engine.create("joined", f"SELECT DISTINCT {low} AS u, {high} AS v FROM {_FACTS} WHERE a0 <> a1")
        ends = "SELECT u AS v FROM joined UNION ALL SELECT v FROM joined"
        engine.create("degree", f"SELECT v, COUNT(*) AS d FROM ({ends}) AS ends GROUP BY v")
        is_up = "du.d < dv.d OR (du.d = dv.d AND joined.u < joined.v)"
        engine.create(
            "up",
            f"SELECT CASE WHEN {is_up} THEN joined.u ELSE joined.v END AS u, "
            f"CASE WHEN {is_up} THEN joined.v ELSE joined.u END AS v, "
            f"CASE WHEN {is_up} THEN dv.d ELSE du.d END AS d FROM joined "
            "JOIN degree AS du ON du.v = joined.u JOIN degree AS dv ON dv.v = joined.v",
        )
        if engine.is_planned:
            corners = engine.run(
                "SELECT SUM(CAST(c AS DOUBLE) * (c - 1) / 2) AS n, MAX(CAST(c AS DOUBLE) * (c - 1) / 2) AS largest "
                "FROM (SELECT COUNT(*) AS c FROM up GROUP BY u) AS corners"
            )
            n, largest = (
                float(np.nan_to_num(np.asarray(corners[name], dtype=np.float64))[0]) for name in ("n", "largest")
            )
            engine.expect("triangles", n, largest, way_out="max_length=1 (--max-length 1) needs none")
        engine.create(
            "triangle",
            "SELECT a.u AS u, a.v AS v, b.v AS w FROM up AS a "
            "JOIN up AS b ON b.u = a.u AND (a.d < b.d OR (a.d = b.d AND a.v < b.v)) "
            "JOIN up AS c ON c.u = a.v AND c.v = b.v",
        )
        self._has_triangles = True

    def _close_triangles(self) -> None:
        """List the steps of all walks of two edges whose ends are those of a head, one join after the other.

        Left to choose, a database may join the edges to each other first, which are all paths of two edges; tables
        between the joins leave it no choice.
        """
        if not self._has_triangles:
            self._find_triangles()
        engine = self.engine
        walks = [f"SELECT {x} AS x, {y} AS y, {z} AS z FROM triangle" for x, y, z in _ORDERS]
        if self._steps["loops"].any():
            loop = f"(SELECT DISTINCT a0 AS v FROM {_FACTS} WHERE a0 = a1) AS loop"
            both = "(SELECT u, v FROM joined UNION ALL SELECT v, u FROM joined) AS pair"
            walks += [
                f"SELECT loop.v AS x, loop.v AS y, pair.v AS z FROM {loop} JOIN {both} ON pair.u = loop.v",
                f"SELECT pair.u AS x, loop.v AS y, loop.v AS z FROM {loop} JOIN {both} ON pair.v = loop.v",
                f"SELECT loop.v AS x, pair.v AS y, loop.v AS z FROM {loop} JOIN {both} ON pair.u = loop.v",
                f"SELECT v AS x, v AS y, v AS z FROM {loop}",
            ]
        engine.create(
            "closing",
            f"SELECT walk.x AS x, walk.y AS y, walk.z AS z FROM ({' UNION ALL '.join(walks)}) AS walk "
            "JOIN (SELECT DISTINCT x, z FROM head) AS pair ON pair.x = walk.x AND pair.z = walk.z",
        )
        engine.create(
            "first_step",
            "SELECT closing.x AS x, closing.y AS y, closing.z AS z, e.p AS p0 FROM closing "
            "JOIN edge AS e ON e.a0 = closing.x AND e.a1 = closing.y",
        )
        engine.create(
            "both_steps",
            "SELECT s.x AS x, s.z AS z, s.p0 AS p0, e.p AS p1 FROM first_step AS s "
            "JOIN edge AS e ON e.a0 = s.y AND e.a1 = s.z",
        )

    def count_ends(
        self, rules: dict[str, Column], length: int, *, loops: bool = False, first: str = "edge"
    ) -> dict[str, Column]:
        """Count the different ends of some rules, given as columns h, p0, …, and return columns in their order.

        ``pairs`` counts the different ends of the body, ``known`` those of them whose first entity has the head
        relation to something: what the body says where the head is not silent. With ``loops``, ends may coincide.
        ``mark0`` and ``mark1`` tell sets of ends apart: ``Σ u(x) v(z) mod P`` for the two primes P of `MARK_PRIMES`
        and numbers u and v of the entities. Two sets that differ have both in common with a chance of about
        ``(2 / P)²``, less than 10⁻¹⁷.
        """
        self._put_rules(rules, length)
        if length == 1 and not self._steps["loops"].any():
            return self._count_single_ends(rules)
        rows = self.engine.run(end_counts(length, loops=loops, first=first))
        order = np.argsort(rows["r"])
        return {name: column[order] for name, column in rows.items() if name != "r"}

    def _count_single_ends(self, rules: dict[str, Column]) -> dict[str, Column]:
        """Count the ends of single steps of which none is a loop: all edges are different pairs."""
        rows = self.engine.run(
            "SELECT rule.r AS r, CAST(SUM(l.n) AS BIGINT) AS n FROM rule JOIN body ON body.b = rule.b "
            "JOIN leaving AS l ON l.p = body.p0 "
            f"JOIN leaving AS subject ON subject.p = {write_step('rule.h')} AND subject.y = l.y GROUP BY rule.r"
        )
        known = np.zeros(len(rules["h"]), dtype=np.int64)
        known[rows["r"]] = rows["n"]
        steps = {name: self._steps[name][rules["p0"]] for name in ("n", "m0", "m1")}
        return {"pairs": steps["n"], "known": known, "mark0": steps["m0"], "mark1": steps["m1"]}

    def count_starts(
        self, rules: dict[str, Column], length: int, *, loops: bool = False, first: str = "edge"
    ) -> dict[str, Column]:
        """Sum over first entities what rules count there, from which the error of a sample of these follows.

        It follows `count_supports` of that length. Columns, in the order of the rules: ``starts`` (first entities from
        which the body leads anywhere), ``support_squares``, ``body_squares`` and ``products``: the sums over them of
        support², body² and support × body.
        """
        self._put_rules(rules, length)
        rows = self.engine.run(start_counts(length, loops=loops, first=first))
        order = np.argsort(rows["r"])
        return {name: column[order] for name, column in rows.items() if name != "r"}

    def _put_rules(self, rules: dict[str, Column], length: int) -> None:
        """Hold the rules (``rule``: r, h, b) and their different bodies (``body``: b, p0, …)."""
        steps = np.stack([rules[name] for name in name_steps(length)])
        bodies, body = np.unique(steps, axis=1, return_inverse=True)
        columns = {"r": np.arange(len(rules["h"])), "h": rules["h"], "b": body.reshape(-1)}
        self.engine.put("rule", {name: column.astype(np.int32) for name, column in columns.items()})
        columns = {"b": np.arange(bodies.shape[1]), **dict(zip(name_steps(length), bodies, strict=True))}
        self.engine.put("body", {name: column.astype(np.int32) for name, column in columns.items()})


_ORDERS = tuple(permutations(("u", "v", "w")))


def _select_heads(targets: Sequence[int] | None, *, sampled: bool, loops: bool) -> str:
    """Return the facts that rules are to give: relation ``h``, from ``x`` to ``z``, and the steps that walk the fact.

    Facts with x = z are there for ``loops`` only.
    """
    forwards, backwards = write_step("p"), write_step("p", inverse=True)
    conditions = [] if loops else ["a0 <> a1"]
    if targets is not None:
        conditions.append(f"p IN ({', '.join(map(str, targets))})")
    if sampled:
        conditions.append("a0 IN (SELECT a FROM start)")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    columns = f"p AS h, a0 AS x, a1 AS z, {forwards} AS forwards, {backwards} AS backwards"
    return f"SELECT {columns} FROM {_FACTS}{where}"


def body_counts(length: int, *, first: str = "edge") -> str:
    """Count the groundings of every body of two relations or more: columns p0 … and ``n``; of two also ``middles``.

    A pair (x, z) has at most as many groundings of two steps as the first leaves x, or the second arrives at z. So the
    sums over all groundings of one over these, ``least0`` and ``least1``, are no more than the pairs. ``first`` is the
    table that first steps of more than two are taken from.
    """
    names = ", ".join(name_steps(length))
    if length == 2:
        return (
            "SELECT s.p AS p0, o.p AS p1, CAST(SUM(CAST(s.n AS BIGINT) * o.n) AS BIGINT) AS n, COUNT(*) AS middles, "
            "SUM(s.w * o.n) AS least0, SUM(s.n * o.w) AS least1 "
            "FROM arriving AS s JOIN leaving AS o ON o.y = s.y GROUP BY s.p, o.p"
        )
    start = "arriving"
    if first != "edge":
        start = f"(SELECT a1 AS y, p, COUNT(*) AS n FROM {first} GROUP BY a1, p)"
    joins, reached = [f"{start} AS s"], "s.y"
    columns = ["s.p AS p0"]
    for middle in range(1, length - 1):
        joins.append(f"JOIN edge AS e{middle} ON e{middle}.a0 = {reached}")
        columns.append(f"e{middle}.p AS p{middle}")
        reached = f"e{middle}.a1"
    joins.append(f"JOIN leaving AS o ON o.y = {reached}")
    columns.append(f"o.p AS p{length - 1}")
    inner = f"SELECT {', '.join(columns)}, CAST(s.n AS BIGINT) * o.n AS n FROM {' '.join(joins)}"
    return f"SELECT {names}, {_SUM} AS n FROM ({inner}) AS paths GROUP BY {names}"


def loop_counts(length: int, *, first: str = "edge") -> str:
    """Count the groundings of every body of three relations or four that end where they began: p0 … and ``n``."""
    columns, joined = {
        3: (
            "t.p0 AS p0, t.p1 AS p1, e.p AS p2, t.n AS n",
            "twostep AS t JOIN edge AS e ON e.a0 = t.m AND e.a1 = t.x",
        ),
        4: (
            "t.p0 AS p0, t.p1 AS p1, s.p0 AS p2, s.p1 AS p3, t.n * s.n AS n",
            "twostep AS t JOIN laststep AS s ON s.x = t.m AND s.m = t.x",
        ),
    }[length]
    names, parts = ", ".join(name_steps(length)), ["twostep"] if length == 3 else ["twostep", "laststep"]
    two_steps = [
        f"{part} AS (SELECT a.a0 AS x, a.p AS p0, b.p AS p1, b.a1 AS m, COUNT(*) AS n FROM {table} AS a "
        "JOIN edge AS b ON b.a0 = a.a1 GROUP BY a.a0, a.p, b.p, b.a1)"
        for part, table in zip(parts, (first, "edge"), strict=False)
    ]
    inner = f"SELECT {columns} FROM {joined}"
    return f"WITH {', '.join(two_steps)} SELECT {names}, {_SUM} AS n FROM ({inner}) AS loops GROUP BY {names}"


def _closed_paths(length: int, *, few_paths: bool) -> str:
    """Return the statement that lists each head fact with each body that joins its ends, and ``n`` groundings of it."""
    if length == 2 and few_paths:
        return (
            "SELECT head.h AS h, path.p0 AS p0, path.p1 AS p1, head.x AS x, head.z AS z, path.n AS n, 0 AS used "
            "FROM head JOIN (SELECT pair.x AS x, pair.z AS z, a.p AS p0, b.p AS p1, COUNT(*) AS n "
            "FROM (SELECT DISTINCT x, z FROM head) AS pair JOIN edge AS a ON a.a0 = pair.x "
            "JOIN edge AS b ON b.a0 = a.a1 AND b.a1 = pair.z GROUP BY pair.x, pair.z, a.p, b.p) AS path "
            "ON path.x = head.x AND path.z = head.z"
        )
    if length == 2:
        return (
            "SELECT head.h AS h, s.p0 AS p0, s.p1 AS p1, head.x AS x, head.z AS z, 1 AS n, 0 AS used "
            "FROM both_steps AS s JOIN head ON head.x = s.x AND head.z = s.z"
        )
    two_steps = (
        "(SELECT a.a0 AS x, a.p AS p0, b.p AS p1, b.a1 AS m, COUNT(*) AS n FROM edge AS a "
        "JOIN (SELECT DISTINCT x FROM head) AS starts ON starts.x = a.a0 JOIN edge AS b ON b.a0 = a.a1 "
        "GROUP BY a.a0, a.p, b.p, b.a1)"
    )
    if length == 3:
        last, columns, weight = "edge AS e ON e.a0 = t.m AND e.a1 = head.z", "e.p AS p2", "t.n"
    else:
        last_steps = (
            "(SELECT a.a0 AS m, a.p AS p2, b.p AS p3, b.a1 AS z, COUNT(*) AS n FROM edge AS a "
            "JOIN edge AS b ON b.a0 = a.a1 JOIN (SELECT DISTINCT z FROM head) AS ends ON ends.z = b.a1 "
            "GROUP BY a.a0, a.p, b.p, b.a1)"
        )
        last, columns = f"{last_steps} AS s ON s.m = t.m AND s.z = head.z", "s.p2 AS p2, s.p3 AS p3"
        weight = "t.n * s.n"
    return (
        f"SELECT head.h AS h, t.p0 AS p0, t.p1 AS p1, {columns}, head.x AS x, head.z AS z, {weight} AS n, "
        f"0 AS used FROM head JOIN {two_steps} AS t ON t.x = head.x JOIN {last}"
    )


def _circular_paths(length: int, *, inverses: bool) -> list[str]:
    """Return statements that list, each once and with ``n`` = −1, the groundings whose body uses the head's own fact.

    One statement lists those whose first step along the fact has one position and one direction: the fact stands
    there, and edges are joined for the other steps. Of two steps the other one leads from an entity to itself.
    """
    edge = "edge" if length > 2 else "(SELECT p, a0, a1 FROM edge WHERE a0 = a1)"
    directions = ("forwards", "backwards") if inverses else ("forwards",)

    def along(position: int, step: str) -> str:
        x, z = ("x", "z") if step == "forwards" else ("z", "x")
        return f"e{position}.p = head.{step} AND e{position}.a0 = head.{x} AND e{position}.a1 = head.{z}"

    def list_paths(place: int, direction: str) -> str:
        start, end = ("head.x", "head.z") if direction == "forwards" else ("head.z", "head.x")
        known = {0: "head.x", length: "head.z"}
        conditions = []
        for node, entity in ((place, start), (place + 1, end)):
            if known.setdefault(node, entity) != entity:
                conditions.append("head.x = head.z")
        sources = ["head"]
        for position in range(length):
            if position == place:
                continue
            sources.append(f"{edge} AS e{position}")
            before = known.get(position, f"e{position - 1}.a1")
            conditions.append(f"e{position}.a0 = {before}")
            if position + 1 in known:
                conditions.append(f"e{position}.a1 = {known[position + 1]}")
        conditions += [f"NOT ({along(before, way)})" for before in range(place) for way in directions]
        steps = [f"head.{direction}" if position == place else f"e{position}.p" for position in range(length)]
        columns = ", ".join(f"{step} AS p{position}" for position, step in enumerate(steps))
        return (
            f"SELECT head.h AS h, {columns}, head.x AS x, head.z AS z, -1 AS n, 1 AS used FROM {', '.join(sources)} "
            f"WHERE {' AND '.join(conditions)}"
        )

    return [list_paths(place, direction) for place in range(length) for direction in directions]


def _walk_bodies(length: int, first: str) -> str:
    """Return the joins that walk every body from its first entity, ``e0.a0``, to its last."""
    steps = [f"body JOIN {first} AS e0 ON e0.p = body.p0"]
    steps += [f"JOIN edge AS e{i} ON e{i}.p = body.p{i} AND e{i}.a0 = e{i - 1}.a1" for i in range(1, length)]
    return " ".join(steps)


def end_counts(length: int, *, loops: bool = False, first: str = "edge") -> str:
    """Count and mark the different ends of the rules in ``rule``; see `ChainTables.count_ends`."""
    where = "" if loops else f" WHERE e0.a0 <> e{length - 1}.a1"
    distinct = "DISTINCT " if length > 1 else ""  # facts are
    primes = list(enumerate(MARK_PRIMES))
    starts, ends = _write_marks("x", 0), _write_marks("z", 1)
    sums = ", ".join(f"CAST(SUM({ends[i]}) AS BIGINT) % {prime} AS s{i}" for i, prime in primes)
    products = ", ".join(f"{starts[i]} * s{i} % {prime} AS w{i}" for i, prime in primes)
    parts = [
        f"reached AS (SELECT {distinct}body.b AS b, e0.a0 AS x, e{length - 1}.a1 AS z "
        f"FROM {_walk_bodies(length, first)}{where})",
        f"ends AS (SELECT b, x, COUNT(*) AS k, {sums} FROM reached GROUP BY b, x)",
        f"start_of AS (SELECT b, x, k, {products} FROM ends)",
    ]
    known = "CASE WHEN subject.y IS NULL THEN 0 ELSE start_of.k END"
    totals = f"CAST(SUM(start_of.k) AS BIGINT) AS pairs, CAST(SUM({known}) AS BIGINT) AS known"
    totals += "".join(f", CAST(SUM(start_of.w{i}) AS BIGINT) % {prime} AS mark{i}" for i, prime in primes)
    return (
        f"WITH {', '.join(parts)} SELECT rule.r AS r, {totals} FROM rule JOIN start_of ON start_of.b = rule.b "
        f"LEFT JOIN leaving AS subject ON subject.p = {write_step('rule.h')} AND subject.y = start_of.x GROUP BY rule.r"
    )


def start_counts(length: int, *, loops: bool = False, first: str = "edge") -> str:
    """Sum what the rules in ``rule`` count at each first entity; see `ChainTables.count_starts`."""
    names = ", ".join(name_steps(length))
    where = "" if loops else f" WHERE e0.a0 <> e{length - 1}.a1"
    same = " AND ".join(f"held.{name} = body.{name}" for name in name_steps(length))
    parts = [
        f"start_of AS (SELECT body.b AS b, e0.a0 AS x, COUNT(*) AS n FROM {_walk_bodies(length, first)}{where} "
        "GROUP BY body.b, e0.a0)",
        f"held AS (SELECT h, {names}, x, SUM(CASE WHEN x <> z THEN n ELSE 0 END) AS n, SUM(used) AS used "
        f"FROM closed GROUP BY h, {names}, x)",
    ]
    at_start = (
        "SELECT rule.r AS r, CAST(COALESCE(held.n, 0) AS DOUBLE) AS s, "
        "CAST(start_of.n - COALESCE(held.used, 0) AS DOUBLE) AS b "
        "FROM rule JOIN body ON body.b = rule.b JOIN start_of ON start_of.b = rule.b "
        f"LEFT JOIN held ON held.h = rule.h AND held.x = start_of.x AND {same}"
    )
    totals = "COUNT(*) AS starts, SUM(s * s) AS support_squares, SUM(b * b) AS body_squares, SUM(s * b) AS products"
    return f"WITH {', '.join(parts)} SELECT r, {totals} FROM ({at_start}) AS at_start WHERE b > 0 GROUP BY r"
