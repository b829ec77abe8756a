"""Reading, mining, applying and explaining by SQL for DuckDB that is written by hand, for the graph of `made_graph`.

It is the best that we know: it joins no two edges that it need not, and no step of it holds more than a part of the
graph. What it leaves out, to be quicker: the pairs that a head is known to be silent about, rules that say the same,
facts that join an entity to itself, rules of other lengths, and a journal.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
from made_graph import PlantedRule, choose_rules

Note = tuple[str, str, float, float, int]
"""A stage, a table that it makes, its seconds, the seconds of all cores, and its rows."""


class Stopwatch:
    """Runs statements and notes what each table that they make takes."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection
        self.notes: list[Note] = []

    @contextmanager
    def time(self, stage: str, table: str) -> Iterator[None]:
        """Time what makes a table, in one transaction."""
        start, start_of_cores = time.perf_counter(), time.process_time()
        self.connection.begin()
        yield
        self.connection.commit()
        seconds, seconds_of_cores = time.perf_counter() - start, time.process_time() - start_of_cores
        (rows,) = self.fetch(f"SELECT count(*) FROM {table}")[0]
        self.notes.append((stage, table, seconds, seconds_of_cores, rows))

    def make(self, stage: str, table: str, query: str) -> None:
        """Make a table of a query."""
        with self.time(stage, table):
            self.connection.execute(f"CREATE TABLE {table} AS {query}")

    def fetch(self, query: str) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        return self.connection.execute(query).fetchall()

    def drop(self, *tables: str) -> None:
        """Drop tables that are not needed any more, and give their place in the file free."""
        for table in tables:
            self.connection.execute(f"DROP TABLE {table}")


PART = 16_000_000
"""About how many rows of a table are joined at once: a hash table of them stays well within the limit of memory."""


def read_by_hand(watch: Stopwatch, path: Path) -> int:
    """Number the labels in their order, which is the row of each in its table, and the facts by them: ``fact``.

    The labels are read twice and not stored: to compress 10⁷ facts as text takes longer than to read them four times.
    A fact is sorted as one integer, after which the same ones follow each other: a window without an order streams.
    Return how many bits of that integer an entity has.
    """
    if path.is_dir():
        source = f"read_parquet('{path}/*.parquet')"
    else:
        columns = "{'h': 'VARCHAR', 'r': 'VARCHAR', 't': 'VARCHAR'}"
        form = f"delim = '\t', header = false, quote = '', escape = '', auto_detect = false, columns = {columns}"
        source = f"read_csv('{path}', {form})"
    watch.connection.execute(f"CREATE VIEW raw AS SELECT h, r, t FROM {source}")
    watch.make("read", "entity", "SELECT DISTINCT unnest([h, t]) AS label FROM raw ORDER BY label")
    watch.make("read", "relation", "SELECT DISTINCT r AS label FROM raw ORDER BY label")
    bits = int(watch.fetch("SELECT count(*) FROM entity")[0][0]).bit_length()
    mask = (1 << bits) - 1
    sorted_keys = (
        f"SELECT (relation.rowid << {2 * bits}) | (a.rowid << {bits}) | b.rowid AS key FROM raw "
        "JOIN relation ON raw.r = relation.label JOIN entity AS a ON raw.h = a.label "
        "JOIN entity AS b ON raw.t = b.label ORDER BY key"
    )
    watch.make(
        "encode",
        "fact",
        f"SELECT (key >> {2 * bits})::SMALLINT AS r, (key >> {bits} & {mask})::INTEGER AS h, "
        f"(key & {mask})::INTEGER AS t FROM (SELECT key, lag(key) OVER () AS before FROM ({sorted_keys})) "
        "WHERE key IS DISTINCT FROM before",
    )
    return bits


def mine_by_hand(watch: Stopwatch, bits: int) -> None:
    """Count all chains of one or two relations, ends that are one entity apart: ``rule1`` and ``rule2``.

    That is for graphs in which no fact joins an entity to itself. A body of two steps is written by the steps that
    leave its middle: ``q0`` to x and ``q1`` to z, so that its path is (q0 backwards, q1); and as it has the same
    pairs when read from its other end, once, with q0 <= q1.
    """
    count_bodies(watch)
    pair_entities(watch, bits)
    find_triangles(watch)
    count_supports(watch)
    count_ends(watch, bits)


def count_bodies(watch: Stopwatch) -> None:
    """Count what leaves each entity by each step, ``leaving``, and from that the groundings of bodies, ``body``.

    A pair (x, z) has at most as many groundings as there are edges of the first step at x, or of the last at z: where
    that is one, pairs need not be listed to be told apart. Of the ``n`` edges of a step that leave y, ``m`` lead to
    an entity that several lead to, and ``w`` is the sum of 1 over how many do. So a body has at least ``least`` pairs,
    the larger of Σ w₀ n₁ and Σ n₀ w₁, and only ``listed`` groundings, Σ m₀ m₁, are to be listed: those of ``shared``.
    """
    execute = watch.connection.execute
    execute("CREATE TABLE shared (p SMALLINT, y INTEGER, x INTEGER)")
    execute("CREATE TABLE counted (p SMALLINT, y INTEGER, n INTEGER, m INTEGER, w FLOAT)")
    with watch.time("bodies", "counted"):  # the facts of a relation stand together: small hash tables with small keys
        for first, last in _split(watch.fetch("SELECT r, count(*) FROM fact GROUP BY r ORDER BY r"), PART // 32):
            also = "" if first == last else "r, "
            execute(
                "CREATE OR REPLACE TEMP TABLE sized AS SELECT r, h, t, leaving, arriving FROM fact "
                f"JOIN (SELECT {also}h, count(*)::INTEGER AS leaving FROM fact WHERE r BETWEEN {first} AND {last} "
                f"GROUP BY {also}h) USING ({also}h) "
                f"JOIN (SELECT {also}t, count(*)::INTEGER AS arriving FROM fact WHERE r BETWEEN {first} AND {last} "
                f"GROUP BY {also}t) USING ({also}t) WHERE r BETWEEN {first} AND {last}"
            )
            for step, y, x, back in (("2 * r", "h", "t", "arriving"), ("2 * r + 1", "t", "h", "leaving")):
                execute(
                    f"INSERT INTO counted SELECT any_value({step}), {y}, count(*), count_if({back} > 1), "
                    f"sum(1 / {back}) FROM sized GROUP BY {also}{y}"
                )
                execute(f"INSERT INTO shared SELECT {step}, {y}, {x} FROM sized WHERE {back} > 1")
        execute("DROP TABLE sized")
    watch.make("bodies", "leaving", "SELECT * FROM counted ORDER BY y")
    watch.drop("counted")
    watch.make("bodies", "step", "SELECT p, sum(n)::BIGINT AS n, count(*) AS starts FROM leaving GROUP BY p")
    execute(
        "CREATE TABLE part_body (q0 SMALLINT, q1 SMALLINT, middles BIGINT, n DOUBLE, listed DOUBLE, "
        "w0 DOUBLE, w1 DOUBLE)"
    )
    sizes = watch.fetch("SELECT y >> 10 AS block, count(*) FROM leaving GROUP BY block ORDER BY block")
    execute("SET perfect_ht_threshold = 20")  # two steps are one place in an array of sums
    with watch.time("bodies", "part_body"):
        for first, last in _split(sizes, PART // 4):
            part = (
                "(SELECT p, y, n::DOUBLE AS n, m::DOUBLE AS m, w FROM leaving "
                f"WHERE y BETWEEN {first << 10} AND {(last + 1 << 10) - 1})"
            )
            execute(
                "INSERT INTO part_body SELECT a.p, b.p, count(*), sum(a.n * b.n), sum(a.m * b.m), sum(a.w * b.n), "
                f"sum(a.n * b.w) FROM {part} AS a JOIN {part} AS b ON a.y = b.y AND a.p <= b.p GROUP BY a.p, b.p"
            )
    execute("RESET perfect_ht_threshold")
    watch.make(
        "bodies",
        "body",
        "SELECT q0, q1, sum(middles)::BIGINT AS middles, sum(n)::BIGINT AS n, sum(listed)::BIGINT AS listed, "
        "greatest(sum(w0), sum(w1)) AS least FROM part_body GROUP BY q0, q1",
    )


def _split(sizes: Sequence[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """Return the first and last index of parts, in order, that have up to so many rows, or one index more."""
    parts: list[tuple[int, int]] = []
    held = 0
    for index, size in sizes:
        if not parts or held + size > most:
            parts.append((index, index))
            held = 0
        parts[-1] = (parts[-1][0], index)
        held += size
    return parts


def pair_entities(watch: Stopwatch, bits: int) -> None:
    """Join each two entities that facts join once, from the one of lower degree, with their set of steps: ``up``.

    Entities are numbered by their degree for that, ``ranked``. Two entities and a step are sorted as one integer,
    after which the steps of two entities follow each other. There are few different sets, ``set_step``, and most have
    one step: of 2 R steps, the set {p} is p, {p, q} is (p + 1) 2 R + q, and larger ones are numbered after these.
    """
    watch.make("pairs", "ranked", "SELECT y FROM (SELECT y, sum(n) AS d FROM leaving GROUP BY y) ORDER BY d, y")
    watch.drop("leaving", "part_body")
    steps = 2 * watch.fetch("SELECT count(*) FROM relation")[0][0]
    step_bits, mask = steps.bit_length(), (1 << bits) - 1
    step_mask = (1 << step_bits) - 1
    watch.make(
        "pairs",
        "joined",
        f"SELECT ((least(a.rowid, b.rowid) << {bits} | greatest(a.rowid, b.rowid)) << {step_bits}) | "
        "(CASE WHEN a.rowid < b.rowid THEN 2 * r ELSE 2 * r + 1 END) AS code FROM fact "
        "JOIN ranked AS a ON a.y = fact.h JOIN ranked AS b ON b.y = fact.t ORDER BY code",
    )
    rows = (
        f"SELECT code >> {step_bits} AS pair, code & {step_mask} AS p, lag(code >> {step_bits}) OVER () AS before, "
        f"lead(code) OVER () AS next, lead(code >> {step_bits}, 2) OVER () AS third FROM joined"
    )
    several = f"SELECT pair FROM ({rows}) WHERE pair IS DISTINCT FROM before AND third = pair"
    watch.make(
        "pairs",
        "large",
        f"SELECT pair, steps, (dense_rank() OVER (ORDER BY steps) + {(steps + 1) * steps})::INTEGER AS s FROM ("
        f"SELECT code >> {step_bits} AS pair, list(code & {step_mask} ORDER BY code)::SMALLINT[] AS steps FROM joined "
        f"WHERE code >> {step_bits} IN ({several}) GROUP BY pair)",
    )
    watch.make(
        "pairs",
        "up",
        f"SELECT (pair >> {bits})::INTEGER AS u, (pair & {mask})::INTEGER AS v, (CASE WHEN third = pair THEN large.s "
        f"WHEN next >> {step_bits} = pair THEN (p + 1) * {steps} + (next & {step_mask}) ELSE p END)::INTEGER AS s "
        f"FROM ({rows}) LEFT JOIN large USING (pair) WHERE pair IS DISTINCT FROM before",
    )
    watch.make("pairs", "set_count", "SELECT s, count(*) AS n FROM up GROUP BY s")
    watch.make(
        "pairs",
        "set_step",
        f"SELECT s, unnest(CASE WHEN s < {steps} THEN [s] ELSE [s // {steps} - 1, s % {steps}] END)::SMALLINT AS p "
        f"FROM set_count WHERE s < {(steps + 1) * steps} UNION ALL "
        "SELECT s, unnest(any_value(steps)) FROM large GROUP BY s",
    )
    watch.drop("joined", "large")


def find_triangles(watch: Stopwatch) -> None:
    """Find each triangle once, from its corner of least degree, u < v < w: the sets of its edges, and their rows.

    Edges are joined as written, and to those only whose v is in a range, so that both hash tables are small.
    """
    execute = watch.connection.execute
    execute("CREATE TABLE triangle (uv INTEGER, uw INTEGER, vw INTEGER, s_uv INTEGER, s_uw INTEGER, s_vw INTEGER)")
    with watch.time("triangles", "triangle"):
        sizes = watch.fetch(
            "SELECT block, sum(n)::BIGINT FROM (SELECT u >> 10 AS block, count(*) AS n FROM up GROUP BY ALL UNION ALL "
            "SELECT v >> 10, count(*) FROM up GROUP BY ALL) GROUP BY block ORDER BY block"
        )
        execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
        for first, last in _split(sizes, 2 * PART):
            within = f"BETWEEN {first << 10} AND {(last + 1 << 10) - 1}"
            execute(
                "INSERT INTO triangle SELECT a.e, b.rowid, c.e, a.s, b.s, c.s FROM up AS b "
                f"JOIN (SELECT rowid AS e, u, v, s FROM up WHERE v {within}) AS a ON a.u = b.u AND a.v < b.v "
                f"JOIN (SELECT rowid AS e, u, v, s FROM up WHERE u {within}) AS c ON c.u = a.v AND c.v = b.v"
            )
        execute("RESET disabled_optimizers")


def count_supports(watch: Stopwatch) -> None:
    """Count the groundings that give a fact of each head: ``support1`` of one step, ``support2`` of two.

    All steps between two entities are in their set, so sets are counted and then read. A triangle is a path of two
    edges in three ways, by its middle, whose ends the third edge joins. ``closed`` counts for each set of the ends
    and each body the groundings and the pairs of ends, ``both`` the pairs that two steps join.
    """
    execute = watch.connection.execute
    watch.make(
        "supports",
        "support1",
        "SELECT a.p >> 1 AS h, CASE WHEN a.p & 1 = 0 THEN b.p ELSE xor(b.p, 1) END AS p0, sum(n)::BIGINT AS support "
        "FROM set_step AS a JOIN set_step AS b ON a.s = b.s AND a.p <> b.p JOIN set_count AS c ON c.s = a.s "
        "GROUP BY ALL",
    )
    (rows,) = watch.fetch("SELECT count(*) FROM triangle")[0]
    (edges,) = watch.fetch("SELECT count(*) FROM up")[0]
    parts = 3 * rows // PART + 1
    # The ends; from the middle to the lower end; from it to the higher. Steps upwards are turned at their higher end.
    ways = (("uv", "uw", 1, "vw", 1), ("uw", "uv", 1, "vw", 0), ("vw", "uv", 0, "uw", 0))
    execute("CREATE TABLE closed (s INTEGER, q0 SMALLINT, q1 SMALLINT, support BIGINT, pairs BIGINT)")
    with watch.time("supports", "closed"):
        for part in range(parts):
            first, last = part * edges // parts, (part + 1) * edges // parts - 1
            paths = " UNION ALL ".join(
                f"SELECT {ends} AS ends, s_{ends} AS s, xor(a.p, {turn0}) AS q0, xor(b.p, {turn1}) AS q1 FROM triangle "
                f"JOIN set_step AS a ON a.s = s_{low} JOIN set_step AS b ON b.s = s_{high} "
                f"WHERE {ends} BETWEEN {first} AND {last}"
                for ends, low, turn0, high, turn1 in ways
            )
            execute(
                "INSERT INTO closed SELECT s, q0, q1, sum(n), count(*) FROM (SELECT ends, any_value(s) AS s, q0, q1, "
                f"count(*) AS n FROM ({paths}) GROUP BY ends, q0, q1) GROUP BY s, q0, q1"
            )
    watch.make(
        "supports",
        "support2",
        "SELECT h, p0, p1, least(xor(p0, 1), p1) AS q0, greatest(xor(p0, 1), p1) AS q1, "
        "sum(support)::BIGINT AS support, sum(pairs)::BIGINT AS pairs FROM (SELECT head.p >> 1 AS h, "
        "CASE WHEN head.p & 1 = 0 THEN xor(q0, 1) ELSE xor(q1, 1) END AS p0, "
        "CASE WHEN head.p & 1 = 0 THEN q1 ELSE q0 END AS p1, support, pairs "
        "FROM closed JOIN set_step AS head USING (s)) GROUP BY ALL",
    )


def count_ends(watch: Stopwatch, bits: int, min_support: int = 2, min_confidence: float = 0.01) -> None:
    """Count the different ends of the bodies of rules that may be confident enough, and so the rules.

    Ends that are one entity are those of a step and itself backwards, or of two steps that join the same pair.
    """
    execute = watch.connection.execute
    watch.make(
        "ends",
        "set_both",
        "SELECT s, turned, least(q0, q1) AS q0, greatest(q0, q1) AS q1 FROM (SELECT a.s AS s, turned, "
        "xor(a.p, turned) AS q0, xor(b.p, turned) AS q1 FROM set_step AS a "
        "JOIN set_step AS b ON a.s = b.s AND a.p < b.p CROSS JOIN (VALUES (0::SMALLINT), (1::SMALLINT)) AS t (turned))",
    )
    watch.make(
        "ends",
        "looped",
        "SELECT q0, q1, sum(n)::BIGINT AS n, sum(n)::BIGINT AS most FROM set_both JOIN set_count USING (s) "
        "GROUP BY q0, q1 UNION ALL SELECT a.p, a.p, a.n, b.starts FROM step AS a JOIN step AS b ON b.p = xor(a.p, 1)",
    )
    watch.make(
        "ends",
        "wanted",
        "SELECT q0, q1, any_value(body.n) AS n, any_value(listed) AS listed FROM support2 JOIN body USING (q0, q1) "
        f"LEFT JOIN looped USING (q0, q1) WHERE support2.support >= {min_support} GROUP BY q0, q1 "
        f"HAVING max(pairs) >= {min_confidence} * any_value(least - coalesce(most, 0))",
    )
    execute("CREATE TABLE ended (q0 SMALLINT, q1 SMALLINT, pairs BIGINT)")
    with watch.time("ends", "ended"):
        bodies = watch.fetch("SELECT q0, q1, listed FROM wanted WHERE listed > 0 ORDER BY listed")
        for first, last in _split([(index, listed) for index, (_, _, listed) in enumerate(bodies)], PART // 32):
            part = [(q0, q1) for q0, q1, _ in bodies[first : last + 1]]
            ends = f"(a.x::BIGINT << {bits}) | b.x"
            if len(part) == 1:  # the edges of a step stand together: no more than those of two steps are read
                execute(
                    f"INSERT INTO ended SELECT {part[0][0]}, {part[0][1]}, count(DISTINCT {ends}) FROM shared AS a "
                    f"JOIN shared AS b ON a.y = b.y WHERE a.p = {part[0][0]} AND b.p = {part[0][1]}"
                )
            else:
                execute(
                    f"INSERT INTO ended SELECT q0, q1, count(*) FROM (SELECT DISTINCT q0, q1, {ends} AS ends "
                    f"FROM (VALUES {str(part)[1:-1]}) AS body (q0, q1) JOIN shared AS a ON a.p = q0 "
                    "JOIN shared AS b ON b.p = q1 AND b.y = a.y) GROUP BY q0, q1"
                )
    watch.make(
        "ends",
        "looped_pair",
        "SELECT q0, q1, count(DISTINCT CASE WHEN turned = 0 THEN v ELSE u END) AS pairs FROM up JOIN "
        "(SELECT * FROM set_both SEMI JOIN wanted USING (q0, q1)) AS set_both USING (s) GROUP BY q0, q1 "
        "UNION ALL SELECT q0, q1, most FROM looped WHERE q0 = q1",
    )
    watch.make(
        "ends",
        "rule2",
        "SELECT h, p0, p1, support, n - loops AS body, support2.pairs AS support_pairs, body_pairs FROM support2 JOIN "
        "(SELECT wanted.q0, wanted.q1, wanted.n, coalesce(looped.n, 0) AS loops, wanted.n - wanted.listed "
        "+ coalesce(ended.pairs, 0) - coalesce(looped_pair.pairs, 0) AS body_pairs FROM wanted "
        "LEFT JOIN ended USING (q0, q1) LEFT JOIN looped USING (q0, q1) LEFT JOIN looped_pair USING (q0, q1)) "
        f"USING (q0, q1) WHERE support >= {min_support} AND support2.pairs >= {min_confidence} * body_pairs",
    )
    watch.make(
        "ends",
        "rule1",
        f"SELECT h, p0, support, step.n AS body FROM support1 JOIN step ON step.p = p0 WHERE support >= {min_support} "
        f"AND support >= {min_confidence} * step.n",
    )


def apply_by_hand(watch: Stopwatch, rules: Sequence[PlantedRule], bits: int) -> None:
    """Apply rules once: the new facts, ``inferred``."""
    watch.connection.execute("CREATE TABLE inferred (r SMALLINT, h INTEGER, t INTEGER)")
    relations = {str(label): index for label, index in watch.fetch("SELECT label, rowid FROM relation")}
    bodies: dict[str, list[str]] = {}
    for rule in rules:
        steps = [
            f"(SELECT {'t AS a0, h AS a1' if inverse else 'h AS a0, t AS a1'} FROM fact WHERE r = {relations[name]})"
            for name, inverse in rule.body
        ]
        if len(steps) == 1:
            body = f"SELECT (a0::BIGINT << {bits}) | a1 AS ends FROM {steps[0]}"
        else:
            body = (
                f"SELECT (a.a0::BIGINT << {bits}) | b.a1 FROM {steps[0]} AS a JOIN {steps[1]} AS b ON b.a0 = a.a1 "
                "WHERE a.a0 <> b.a1"
            )
        bodies.setdefault(rule.head, []).append(body)
    mask = (1 << bits) - 1
    with watch.time("apply", "inferred"):
        for head, queries in bodies.items():
            known = f"SELECT (h::BIGINT << {bits}) | t FROM fact WHERE r = {relations[head]}"
            watch.connection.execute(
                f"INSERT INTO inferred SELECT {relations[head]}, ends >> {bits}, ends & {mask} FROM "
                f"(({' UNION ALL '.join(queries)}) EXCEPT {known}) AS new (ends)"
            )


def explain_by_hand(watch: Stopwatch, rule: PlantedRule, x: str, z: str) -> list[str]:
    """Return the middle entities by which a rule of two relations infers a fact of x and z, all by label.

    Only the facts of the two relations are read, as they stand together.
    """
    relations = {str(label): index for label, index in watch.fetch("SELECT label, rowid FROM relation")}
    start, end = (watch.fetch(f"SELECT rowid FROM entity WHERE label = '{label}'")[0][0] for label in (x, z))
    (first, first_inverse), (second, second_inverse) = rule.body
    a0, a1 = ("t", "h") if first_inverse else ("h", "t")
    b0, b1 = ("t", "h") if second_inverse else ("h", "t")
    rows = watch.fetch(
        f"SELECT label FROM entity WHERE rowid IN (SELECT a.{a1} FROM fact AS a JOIN fact AS b ON b.{b0} = a.{a1} "
        f"WHERE a.r = {relations[first]} AND a.{a0} = {start} AND b.r = {relations[second]} AND b.{b1} = {end})"
    )
    return [str(label) for (label,) in rows]


def run_by_hand(path: Path, folder: Path, seed: int, megabytes: int) -> list[Note]:
    """Do all of it with SQL written by hand."""
    # What DuckDB and Python hold beside its buffers is a tenth of these, or less
    limit, spilled = f"{megabytes * 7 // 8}MB", str(folder / "spilled")
    with duckdb.connect(
        folder / "graph.duckdb", config={"memory_limit": limit, "temp_directory": spilled}
    ) as connection:
        watch = Stopwatch(connection)
        bits = read_by_hand(watch, path)
        mine_by_hand(watch, bits)
        rules = choose_rules(seed)
        apply_by_hand(watch, rules, bits)
        new = f"SELECT h, t FROM inferred JOIN relation ON r = relation.rowid WHERE label = '{rules[0].head}'"
        ends = watch.fetch(
            f"SELECT a.label, b.label FROM ({new} ORDER BY h, t LIMIT 1) JOIN entity AS a ON a.rowid = h "
            "JOIN entity AS b ON b.rowid = t"
        )[0]
        start, start_of_cores = time.perf_counter(), time.process_time()
        middles = explain_by_hand(watch, rules[0], *ends)
        taken = time.perf_counter() - start, time.process_time() - start_of_cores
        watch.notes.append(("explain", "middle", *taken, len(middles)))
        assert middles, "the fact that was explained follows from the rule"
    return watch.notes
