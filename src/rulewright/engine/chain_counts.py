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

MIDDLE_TABLES = ("degree", "rank", "up", "triangle", "closed")
"""What counting supports makes on its way."""

_ENTITIES = 2**31
"""Indices of entities are below it: a number times this and an index are one number, in the order of both."""


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


def _select_steps() -> str:
    """Return every fact walked forwards and backwards: the step ``p`` from ``a0`` to ``a1``."""
    return (
        f"SELECT {write_step('p')} AS p, a0, a1 FROM {_FACTS} UNION ALL "
        f"SELECT {write_step('p', inverse=True)} AS p, a1 AS a0, a0 AS a1 FROM {_FACTS}"
    )


def _select_edges(*, inverses: bool) -> str:
    """Return the steps with how many of the same leave where it begins, ``near``, and arrive where it ends, ``far``."""
    columns = "f.p AS p, f.a0 AS a0, f.a1 AS a1, heads.n AS heads, tails.n AS tails"
    count = f"(SELECT p, {{0}}, CAST(COUNT(*) AS INTEGER) AS n FROM {_FACTS} GROUP BY p, {{0}}) AS {{1}}"
    sized = (
        f"SELECT {columns} FROM {_FACTS} AS f "
        f"JOIN {count.format('a0', 'heads')} ON heads.p = f.p AND heads.a0 = f.a0 "
        f"JOIN {count.format('a1', 'tails')} ON tails.p = f.p AND tails.a1 = f.a1"
    )
    if not inverses:
        return f"SELECT {write_step('p')} AS p, a0, a1, heads AS near, tails AS far FROM ({sized}) AS sized"
    turned = (("a0", "a1", "a0"), ("a1", "a0", "a1"), ("heads", "tails", "near"), ("tails", "heads", "far"))
    return (
        f"SELECT {write_step('sized.p')} + way.d AS p, "
        + ", ".join(f"CASE WHEN way.d = 0 THEN {there} ELSE {back} END AS {name}" for there, back, name in turned)
        + f" FROM ({sized}) AS sized CROSS JOIN (SELECT 0 AS d UNION ALL SELECT 1 AS d) AS way"
    )


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

    ``edge`` has the steps ``p`` from ``a0`` to ``a1``, with how many like it leave a0 (``near``) and arrive at a1
    (``far``). ``leaving`` counts the edges of each step ``p`` that leave each entity ``y``: all (``n``), those that end
    where others do (``m``), and in ``w`` each shared with the others that end there. Bodies are columns p0, p1, … of
    steps.

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
        engine.create("leaving", _count_at("a0", "far"))
        self._arriving = f"(SELECT y, {write_inverse('p')} AS p, n, m, w FROM leaving)"
        if not inverses:  # no step walks the same edges the other way
            engine.create("arriving", _count_at("a1", "near"))
            self._arriving = "arriving"
        self._has_degrees = self._has_triangles = False

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
            f"SELECT p, COUNT(*) AS n, {loops}, {marks} FROM ({_select_steps()}) AS steps GROUP BY p"
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
            "i": f"(SELECT y, SUM(n) AS n FROM {self._arriving} AS arriving GROUP BY y) AS i",
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
            f"JOIN ({_select_steps()}) AS e ON e.a0 = f.a0 AND e.a1 = f.a1 AND e.p <> {write_step('f.p')} "
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
        return self.engine.run(body_counts(length, self._arriving, first=first))

    def _expect_bodies(self, length: int) -> None:
        """Tell how many rows counting bodies will list: for every middle, its steps in times its steps out."""
        count = "(SELECT y, COUNT(*) AS c FROM {0} AS counted GROUP BY y) AS {1}"
        arriving, leaving = count.format(self._arriving, "i"), count.format("leaving", "o")
        product = "CAST(i.c AS DOUBLE) * o.c"
        if length > 2:
            joined = f"{arriving} JOIN edge ON edge.a0 = i.y JOIN {leaving} ON o.y = edge.a1"
        elif not self.inverses:
            joined = f"{arriving} JOIN {leaving} ON o.y = i.y"
        else:  # as many steps arrive as leave
            self._count_degrees()
            joined, product = "degree", "CAST(c AS DOUBLE) * c"
        rows = self.engine.run(f"SELECT SUM({product}) AS n, MAX({product}) AS largest FROM {joined}")
        n, largest = (float(np.nan_to_num(np.asarray(rows[name], dtype=np.float64))[0]) for name in ("n", "largest"))
        if length == 4:  # another edge between
            n *= float(self._steps["n"].sum()) / max(1, float(self.count_entities()))
        way_out = "a shorter max_length (--max-length) or a sample (--sample) counts less"
        self.engine.expect(f"bodies of {length} steps", n, largest, way_out=way_out)

    def _count_degrees(self) -> None:
        """Make the table ``degree``: of each entity ``y`` its edges ``d``, and the different steps ``c`` of these."""
        if not self._has_degrees:
            both = "(SELECT y, n FROM leaving UNION ALL SELECT y, n FROM arriving) AS both_ways"
            source = "leaving" if self.inverses else both
            self.engine.create("degree", f"SELECT y, {_cast_sum('n')} AS d, COUNT(*) AS c FROM {source} GROUP BY y")
            self._has_degrees = True

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
        by_triangles, has_loops = length == 2 and not few_paths, bool(self._steps["loops"].any())
        if not by_triangles or has_loops:
            engine.create("head", _select_heads(targets, sampled=sampled, loops=loops))
        if by_triangles:
            if not self._has_triangles:
                self._find_triangles()
            selects = _closed_triangles(targets, inverses=self.inverses) + (_closed_loops() if has_loops else [])
        else:
            selects = [_closed_paths(length)]
        if not circular and (length > 2 or has_loops):
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
        """List the triangles of edges that join three entities u < v < w by degree: the steps ``uv``, ``uw``, ``vw``.

        ``rank`` numbers the entities by degree, and ``up`` has every fact once, from its end of lower rank.
        """
        engine = self.engine
        self._count_degrees()
        engine.number("rank", f"SELECT d * {_ENTITIES} + y AS label FROM degree")
        engine.create("rank", f"SELECT CAST(label % {_ENTITIES} AS INTEGER) AS y, id FROM rank")
        step = write_step("f.p"), write_step("f.p", inverse=True)
        turned = (("a.id", "b.id", "u"), ("b.id", "a.id", "v"), (*step, "p"))
        columns = ", ".join(
            f"CASE WHEN a.id < b.id THEN {there} ELSE {back} END AS {name}" for there, back, name in turned
        )
        engine.create(
            "up",
            f"SELECT {columns} FROM {_FACTS} AS f "
            "JOIN rank AS a ON a.y = f.a0 JOIN rank AS b ON b.y = f.a1 WHERE f.a0 <> f.a1",
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
        # By parts of v, so that what is looked up in is small; that is the second table and the third
        parts = max(1, -(-int(self._steps["n"].sum()) // (4 * self.engine.rows_at_once)))
        for part in range(parts):
            some = [f"(SELECT * FROM up WHERE {corner} % {parts} = {part})" if parts > 1 else "up" for corner in "vu"]
            with engine.joins_as_written():
                (engine.append if part else engine.create)(
                    "triangle",
                    "SELECT a.u AS u, a.v AS v, b.v AS w, a.p AS uv, b.p AS uw, c.p AS vw FROM up AS b "
                    f"JOIN {some[0]} AS a ON a.u = b.u AND a.v < b.v JOIN {some[1]} AS c ON c.u = a.v AND c.v = b.v",
                )
        if self._steps["loops"].any():  # they are counted with others that are not ranks
            ranks = " ".join(f"JOIN rank AS rank_{corner} ON rank_{corner}.id = t.{corner}" for corner in "uvw")
            columns = ", ".join(f"rank_{corner}.y AS {corner}" for corner in "uvw")
            engine.create("triangle", f"SELECT {columns}, t.uv, t.uw, t.vw FROM triangle AS t {ranks}")
        self._has_triangles = True

    def count_ends(
        self, rules: dict[str, Column], length: int, *, loops: bool = False, first: str = "edge"
    ) -> dict[str, Column]:
        """Count the different ends of some rules, given as columns h, p0, …, and return columns in their order.

        ``pairs`` counts the different ends of the body, ``known`` those of them whose first entity has the head
        relation to something: what the body says where the head is not silent. With ``loops``, ends may coincide.
        """
        self._put_rules(rules, length)
        if length == 1 and not self._steps["loops"].any():
            return self._count_single_ends(rules)
        if length == 2 and first == "edge":
            start_of = count_two_step_ends(rules, loops=loops)
        else:
            start_of = (
                f"SELECT b, x, COUNT(*) AS k FROM ({_reach(length, first, loops=loops)}) AS reached GROUP BY b, x"
            )
        return self._sum_by_rule(
            f"SELECT rule.r AS r, {_cast_sum('start_of.k')} AS pairs, "
            f"{_cast_sum('CASE WHEN subject.y IS NULL THEN 0 ELSE start_of.k END')} AS known "
            f"FROM rule JOIN ({start_of}) AS start_of ON start_of.b = rule.b LEFT JOIN leaving AS subject "
            f"ON subject.p = {write_step('rule.h')} AND subject.y = start_of.x GROUP BY rule.r"
        )

    def count_marks(
        self, rules: dict[str, Column], length: int, *, loops: bool = False, first: str = "edge"
    ) -> dict[str, Column]:
        """Return ``mark0`` and ``mark1`` of some rules, which tell the sets of ends of their bodies apart.

        They are ``Σ u(x) v(z) mod P`` for the two primes P of `MARK_PRIMES` and numbers u and v of the entities. Two
        sets that differ have both in common with a chance of about ``(2 / P)²``, less than 10⁻¹⁷.
        """
        if length == 1 and not self._steps["loops"].any():
            return {f"mark{i}": self._steps[f"m{i}"][rules["p0"]] for i in range(2)}
        self._put_rules(rules, length)
        return self._sum_by_rule(end_marks(length, loops=loops, first=first))

    def _sum_by_rule(self, statement: str) -> dict[str, Column]:
        """Run a statement that gives a row for each rule ``r``, and return its columns in the order of the rules."""
        rows = self.engine.run(statement)
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
        return {"pairs": self._steps["n"][rules["p0"]], "known": known}

    def count_starts(
        self, rules: dict[str, Column], length: int, *, loops: bool = False, first: str = "edge"
    ) -> dict[str, Column]:
        """Sum over first entities what rules count there, from which the error of a sample of these follows.

        It follows `count_supports` of that length. Columns, in the order of the rules: ``starts`` (first entities from
        which the body leads anywhere), ``support_squares``, ``body_squares`` and ``products``: the sums over them of
        support², body² and support × body.
        """
        self._put_rules(rules, length)
        return self._sum_by_rule(start_counts(length, loops=loops, first=first))

    def _put_rules(self, rules: dict[str, Column], length: int) -> None:
        """Hold the rules (``rule``: r, h, b) and their different bodies (``body``: b, p0, …)."""
        steps = np.stack([rules[name] for name in name_steps(length)])
        bodies, body = np.unique(steps, axis=1, return_inverse=True)
        columns = {"r": np.arange(len(rules["h"])), "h": rules["h"], "b": body.reshape(-1)}
        self.engine.put("rule", {name: column.astype(np.int32) for name, column in columns.items()})
        columns = {"b": np.arange(bodies.shape[1]), **dict(zip(name_steps(length), bodies, strict=True))}
        if length == 2:
            looped = self.count_loops(2)
            keys = [
                first * count_steps(self.relations) + last for first, last in (bodies, (looped["p0"], looped["p1"]))
            ]
            columns["has_loops"] = np.isin(keys[0], keys[1])
        self.engine.put("body", {name: column.astype(np.int32) for name, column in columns.items()})


def _cast_sum(value: str) -> str:
    return f"CAST(SUM({value}) AS BIGINT)"


def _count_at(end: str, others: str) -> str:
    """Return the counts of the edges of each step at one of their ends; see `ChainTables`."""
    return (
        f"SELECT {end} AS y, p, COUNT(*) AS n, {_cast_sum(f'CASE WHEN {others} > 1 THEN 1 ELSE 0 END')} AS m, "
        f"SUM(1 / CAST({others} AS DOUBLE)) AS w FROM edge GROUP BY {end}, p"
    )


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


def body_counts(length: int, arriving: str, *, first: str = "edge") -> str:
    """Count the groundings of every body of two relations or more: columns p0 … and ``n``; of two also ``middles``.

    A pair (x, z) has at most as many groundings of two steps as the first leaves x, or the second arrives at z. So the
    sums over all groundings of one over these, ``least0`` and ``least1``, are no more than the pairs; and where either
    is one, the grounding is the only one of its pair: to tell the pairs apart the others are ``listed``. ``arriving``
    is ``leaving`` of the steps turned round, and ``first`` the table that first steps of more than two are taken from.
    """
    names = ", ".join(name_steps(length))
    if length == 2:
        return (
            f"SELECT s.p AS p0, o.p AS p1, {_cast_sum('CAST(s.n AS BIGINT) * o.n')} AS n, COUNT(*) AS middles, "
            f"SUM(s.w * o.n) AS least0, SUM(s.n * o.w) AS least1, {_cast_sum('CAST(s.m AS BIGINT) * o.m')} AS listed "
            f"FROM {arriving} AS s JOIN leaving AS o ON o.y = s.y GROUP BY s.p, o.p"
        )
    start = arriving
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


def _closed_triangles(targets: Sequence[int] | None, *, inverses: bool) -> list[str]:
    """Return statements that list each edge of each triangle, the fact that it is, and the path of the other two."""
    conditions = []
    if targets is not None:
        conditions.append(f"h IN ({', '.join(map(str, targets))})")
    if not inverses:
        conditions.append("p0 % 2 = 0 AND p1 % 2 = 0")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    selects = []
    for x, y, z in (("u", "w", "v"), ("u", "v", "w"), ("v", "u", "w")):
        # the step from one corner to another: edges are listed from the lower to the higher
        first, last, back_first, back_last = (
            one + other if one < other else write_inverse(other + one)
            for one, other in ((x, y), (y, z), (z, y), (y, x))
        )
        edge = x + z
        choices = ((first, back_first, "p0"), (last, back_last, "p1"), (x, z, "x"), (z, x, "z"))
        columns = ", ".join(
            f"CASE WHEN {edge} % 2 = 0 THEN {there} ELSE {back} END AS {name}" for there, back, name in choices
        )
        head = f"CAST(({edge} - {edge} % 2) / 2 AS INTEGER) AS h"
        selects.append(
            f"SELECT h, p0, p1, x, z, 1 AS n, 0 AS used FROM (SELECT {head}, {columns} FROM triangle) AS paths{where}"
        )
    return selects


def _closed_loops() -> list[str]:
    """Return statements that list the facts with the paths of two steps that stay on an entity, or come back to it."""
    loop, columns = "(SELECT p, a0 AS v FROM edge WHERE a0 = a1)", "head.x AS x, head.z AS z, 1 AS n, 0 AS used"
    here = "edge AS e ON e.a0 <> e.a1 AND e.{} = loop.v JOIN head ON head.x = e.a0 AND head.z = e.a1"
    return [
        f"SELECT head.h AS h, loop.p AS p0, e.p AS p1, {columns} FROM {loop} AS loop JOIN {here.format('a0')}",
        f"SELECT head.h AS h, e.p AS p0, loop.p AS p1, {columns} FROM {loop} AS loop JOIN {here.format('a1')}",
        f"SELECT head.h AS h, e.p AS p0, back.p AS p1, {columns} FROM (SELECT * FROM head WHERE x = z) AS head "
        "JOIN edge AS e ON e.a0 = head.x AND e.a1 <> e.a0 JOIN edge AS back ON back.a0 = e.a1 AND back.a1 = e.a0",
        f"SELECT head.h AS h, loop.p AS p0, again.p AS p1, {columns} FROM (SELECT * FROM head WHERE x = z) AS head "
        f"JOIN {loop} AS loop ON loop.v = head.x JOIN {loop} AS again ON again.v = head.x",
    ]


def _closed_paths(length: int) -> str:
    """Return the statement that lists each head fact with each body that joins its ends, and ``n`` groundings of it."""
    if length == 2:
        return (
            "SELECT head.h AS h, path.p0 AS p0, path.p1 AS p1, head.x AS x, head.z AS z, path.n AS n, 0 AS used "
            "FROM head JOIN (SELECT pair.x AS x, pair.z AS z, a.p AS p0, b.p AS p1, COUNT(*) AS n "
            "FROM (SELECT DISTINCT x, z FROM head) AS pair JOIN edge AS a ON a.a0 = pair.x "
            "JOIN edge AS b ON b.a0 = a.a1 AND b.a1 = pair.z GROUP BY pair.x, pair.z, a.p, b.p) AS path "
            "ON path.x = head.x AND path.z = head.z"
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


def _reach(length: int, first: str, *, loops: bool) -> str:
    """Return the statement that lists the different ends, ``x`` and ``z``, of the bodies ``b``."""
    where = "" if loops else f" WHERE e0.a0 <> e{length - 1}.a1"
    distinct = "DISTINCT " if length > 1 else ""  # facts are
    columns = f"body.b AS b, e0.a0 AS x, e{length - 1}.a1 AS z"
    return f"SELECT {distinct}{columns} FROM {_walk_bodies(length, first)}{where}"


def count_two_step_ends(rules: dict[str, Column], *, loops: bool) -> str:
    """Count the different ends of bodies of two steps without listing most: what adds up to ``k`` at each ``x``.

    A grounding is the only one of its pair where its first step alone leaves x, or its second alone arrives at z. Those
    are counted as they are; different ends are told apart among the others, as one number each. The steps stand in the
    statement, so that a database that keeps the edges of a step together reads no others.
    """
    first, last = (
        f"(SELECT * FROM edge WHERE p IN ({', '.join(map(str, np.unique(rules[name]).tolist()))}))"
        for name in name_steps(2)
    )
    parts = [
        "SELECT body.b AS b, e.a0 AS x, o.n - CASE WHEN e.near > 1 THEN o.m ELSE 0 END AS k FROM body "
        f"JOIN {first} AS e ON e.p = body.p0 JOIN leaving AS o ON o.p = body.p1 AND o.y = e.a1",
        f"SELECT b, CAST((pair - pair % {_ENTITIES}) / {_ENTITIES} AS INTEGER) AS x, 1 AS k FROM "
        f"(SELECT DISTINCT body.b AS b, CAST(e0.a0 AS BIGINT) * {_ENTITIES} + e1.a1 AS pair FROM body "
        f"JOIN {first} AS e0 ON e0.p = body.p0 AND e0.near > 1 "
        f"JOIN {last} AS e1 ON e1.p = body.p1 AND e1.a0 = e0.a1 AND e1.far > 1) AS listed",
    ]
    if not loops:  # ends that are one entity are taken off again
        turned = write_inverse("body.p0")
        back = (
            "SELECT body.b AS b, leaving.y AS x FROM body JOIN leaving ON leaving.p = body.p0 "
            f"WHERE body.p1 = {turned} UNION ALL SELECT DISTINCT body.b AS b, e0.a0 AS x FROM body "
            f"JOIN {first} AS e0 ON e0.p = body.p0 "
            f"JOIN {last} AS e1 ON e1.p = body.p1 AND e1.a0 = e0.a1 AND e1.a1 = e0.a0 "
            f"WHERE body.has_loops = 1 AND body.p1 <> {turned}"
        )
        parts.append(f"SELECT b, x, -1 AS k FROM ({back}) AS back")
    return " UNION ALL ".join(parts)


def end_marks(length: int, *, loops: bool = False, first: str = "edge") -> str:
    """Mark the different ends of the rules in ``rule``; see `ChainTables.count_marks`."""
    primes = list(enumerate(MARK_PRIMES))
    starts, ends = _write_marks("x", 0), _write_marks("z", 1)
    sums = ", ".join(f"{_cast_sum(ends[i])} % {prime} AS s{i}" for i, prime in primes)
    products = ", ".join(f"{starts[i]} * s{i} % {prime} AS w{i}" for i, prime in primes)
    parts = [
        f"reached AS ({_reach(length, first, loops=loops)})",
        f"ends AS (SELECT b, x, {sums} FROM reached GROUP BY b, x)",
        f"start_of AS (SELECT b, {products} FROM ends)",
    ]
    totals = ", ".join(f"{_cast_sum(f'start_of.w{i}')} % {prime} AS mark{i}" for i, prime in primes)
    return (
        f"WITH {', '.join(parts)} SELECT rule.r AS r, {totals} FROM rule JOIN start_of ON start_of.b = rule.b "
        "GROUP BY rule.r"
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
