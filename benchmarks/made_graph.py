"""A made-up graph of any size for benchmarks: typed entities, power-law degrees, relations that follow from others."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb

TYPE_SHARES = (0.25, 0.20, 0.15, 0.12, 0.10, 0.08, 0.06, 0.04)
"""The share of the entities that each type has."""

BLOCK = 1000
"""Facts are made in blocks; of each block a relation has as many facts as its weight says, and all have these."""


@dataclass(frozen=True)
class MadeRelation:
    """A relation of the made-up graph, and how its facts come about.

    Fact ``i`` of ``first`` joins two entities, from its second to its first where ``flipped``; where there is a
    ``second``, one of its facts leads on from there. ``noise`` is the share of facts whose last entity is any one.
    """

    index: int
    domain: int
    range: int
    weight: int
    out_skew: float = 1.0
    in_skew: float = 2.0
    first: int = -1
    second: int = -1
    flipped: bool = False
    symmetric: bool = False
    noise: float = 0.0

    @property
    def name(self) -> str:
        """Return the label of the relation."""
        return f"/type{self.domain}/relation_{self.index}"


@dataclass(frozen=True)
class PlantedRule:
    """``head(x, z) ← body``, a chain of one or two relations, each with whether it is walked backwards."""

    head: str
    body: tuple[tuple[str, bool], ...]


def make_relations(seed: int) -> list[MadeRelation]:
    """Draw 60 relations: 36 free ones, 15 that are compositions of two, 4 inverses, 4 parts of others, a symmetric one.

    The weights, which are facts in a thousand, add up to `BLOCK`.
    """
    draw = random.Random(seed)
    types = range(len(TYPE_SHARES))
    relations: list[MadeRelation] = []
    for domain in types:  # a function: an entity has one value at most, and most have one
        weight = int(90 * TYPE_SHARES[domain])
        relations.append(MadeRelation(len(relations), domain, draw.choice(types), weight))
    for position in range(28):
        domain, range_ = position % len(types), draw.choice(types)
        out_skew, in_skew = draw.choice((1.2, 1.5, 2.0)), draw.choice((1.2, 1.5, 2.0, 2.0))
        weight = round(240 / (position + 8)) + 6
        relations.append(MadeRelation(len(relations), domain, range_, weight, out_skew=out_skew, in_skew=in_skew))
    functions, free = relations[: len(types)], relations[len(types) :]
    for position in range(15):
        flipped = position % 3 == 2
        while True:
            first = draw.choice(free)
            middle, start = (first.domain, first.range) if flipped else (first.range, first.domain)
            second = functions[middle] if position % 2 == 0 else draw.choice(free)
            if second.domain == middle and second is not first:
                break
        ends = start, second.range
        composed = MadeRelation(len(relations), *ends, 12, first=first.index, second=second.index, flipped=flipped)
        relations.append(replace(composed, noise=0.1))
    for position in range(8):
        first, flipped = free[3 * position + 1], position % 2 == 0
        ends = (first.range, first.domain) if flipped else (first.domain, first.range)
        weight = first.weight * 3 // 4
        relations.append(
            MadeRelation(len(relations), *ends, weight, first=first.index, flipped=flipped, noise=(position + 1) / 40)
        )
    rest = BLOCK - sum(relation.weight for relation in relations)
    relations.append(MadeRelation(len(relations), 0, 0, rest, symmetric=True))
    assert rest > 0, f"the other relations have {BLOCK - rest} facts in {BLOCK}"
    return relations


def plant_rules(relations: Sequence[MadeRelation]) -> list[PlantedRule]:
    """Return the rules by which relations follow from others."""
    rules = []
    for relation in relations:
        body = []
        if relation.first >= 0:
            body.append((relations[relation.first].name, relation.flipped))
        if relation.second >= 0:
            body.append((relations[relation.second].name, False))
        if relation.symmetric:
            body.append((relation.name, True))
        if body:
            rules.append(PlantedRule(relation.name, tuple(body)))
    return rules


def write_graph(path: Path, facts: int, seed: int = 0, parts: int = 16) -> None:
    """Write so many facts, a multiple of 1,000: a TSV, or where the path has no suffix a folder of Parquet files.

    There are a tenth as many entities. An entity's rank in its type says how popular it is: of ``n`` facts of a
    relation over ``s`` entities, the one of rank ``k`` has about ``n ((k + 1) / s)^(1 / skew) − n (k / s)^(1 / skew)``.
    With skew 2 the most popular has ``n / √s``, so hubs grow as the root of the graph, and pairs of edges that meet as
    the graph times its logarithm. The first entities of a relation's facts are in the order of their ranks, so that
    the facts of an entity are known from its rank; compositions are made with that and not with a join.

    The facts depend on their number, the seed and DuckDB's ``hash``; no fact joins an entity to itself.
    """
    if facts % BLOCK:
        raise ValueError(f"{facts:,} facts are not a multiple of {BLOCK:,}")
    with duckdb.connect() as connection:
        _list_slots(connection, make_relations(seed), facts)
        if path.suffix == ".tsv":
            connection.execute(
                f"COPY ({_facts_between(0, facts, facts, seed)}) TO '{path}' (DELIMITER '\t', HEADER false)"
            )
            return
        path.mkdir(parents=True, exist_ok=True)
        for part in range(parts):
            start, end = part * facts // parts, (part + 1) * facts // parts
            target = path / f"part-{part:02d}.parquet"
            connection.execute(f"COPY ({_facts_between(start, end, facts, seed)}) TO '{target}' (FORMAT parquet)")


def _list_slots(connection: duckdb.DuckDBPyConnection, relations: Sequence[MadeRelation], facts: int) -> None:
    """Make the table of what the facts of a block are: one row for each of them."""
    sizes = [int(share * facts / 10) for share in TYPE_SHARES]
    offsets = [sum(sizes[:position]) for position in range(len(sizes))]
    blocks = facts // BLOCK
    columns = (
        "slot INTEGER, r INTEGER, label VARCHAR, weight INTEGER, position INTEGER, flipped BOOLEAN, mirrored BOOLEAN, "
        "noise DOUBLE, same BOOLEAN, x_offset INTEGER, z_offset INTEGER, z_size INTEGER, "
        "first INTEGER, n1 BIGINT, d1 INTEGER, r1 INTEGER, out1 DOUBLE, in1 DOUBLE, "
        "second INTEGER, n2 BIGINT, d2 INTEGER, r2 INTEGER, out2 DOUBLE, in2 DOUBLE"
    )

    def parent(index: int) -> tuple[object, ...]:
        relation = relations[index]
        n = blocks * relation.weight // (2 if relation.symmetric else 1)
        skews = relation.out_skew, relation.in_skew
        return index, n, sizes[relation.domain], sizes[relation.range], *skews

    rows: list[tuple[object, ...]] = []
    for relation in relations:
        first = parent(relation.first if relation.first >= 0 else relation.index)
        second = parent(relation.second) if relation.second >= 0 else (-1, 1, 1, 1, 1.0, 1.0)
        ends = offsets[relation.domain], offsets[relation.range], sizes[relation.range]
        for position in range(relation.weight):
            rows.append(
                (
                    *(len(rows), relation.index, relation.name, relation.weight, position),
                    *(relation.flipped, relation.symmetric, relation.noise, relation.domain == relation.range),
                    *(*ends, *first, *second),
                )
            )
    connection.execute(f"CREATE TABLE slot ({columns})")
    values = ", ".join(str(row) for row in rows)  # numbers, truth values and names: as Python writes them so does SQL
    connection.execute(f"INSERT INTO slot VALUES {values}")


def _find_coprime(number: int, share: float) -> int:
    """Return a number near a share of another that has no factor in common with it."""
    return next(other for other in itertools.count(int(share * number)) if math.gcd(other, number) == 1)


def _facts_between(start: int, end: int, facts: int, seed: int) -> str:
    """Return the statement that lists the labels of some facts of the graph."""
    entities = facts // 10
    stride, scatter = _find_coprime(facts, 0.618), _find_coprime(entities, 0.382)  # so they come in no order at all

    def chance(*values: str) -> str:
        return f"((hash({', '.join(values)}, {seed}) >> 12) / 4503599627370496.0)"

    def rank(size: str, chance: str, skew: str) -> str:
        return f"least(floor({size} * pow({chance}, {skew})), {size} - 1)::BIGINT"

    def label(entity: str) -> str:
        return f"'/m/0' || lower(to_base(({entity}) * {scatter} % {entities}, 32, 5))"

    next_fact = "low + (hash(i, r, 3) % greatest(high - low, 1)::UBIGINT)::BIGINT"
    second_fact = "ceil(n2 * pow({} / d2, 1 / out2))::BIGINT"
    return f"""
        WITH numbered AS (SELECT (range * {stride} + 1) % {facts} AS k FROM range({start}, {end})),
        placed AS (SELECT k // {BLOCK} * weight + position AS i, slot.* FROM numbered
            JOIN slot ON slot.slot = k % {BLOCK}),
        chosen AS (SELECT *, CASE WHEN mirrored THEN i // 2 ELSE i % n1 END AS f,
            flipped OR (mirrored AND i % 2 = 1) AS turned FROM placed),
        walked AS (SELECT *, {rank("d1", "(f::DOUBLE / n1)", "out1")} AS a,
            {rank("r1", chance("f", "first"), "in1")} AS b FROM chosen),
        first_step AS (SELECT * REPLACE (CASE WHEN mirrored AND a = b THEN (b + 1) % r1 ELSE b END AS b) FROM walked),
        directed AS (SELECT *, CASE WHEN turned THEN b ELSE a END AS x, CASE WHEN turned THEN a ELSE b END AS y
            FROM first_step),
        spread AS (SELECT *, {second_fact.format("y")} AS low, {second_fact.format("(y + 1)")} AS high FROM directed),
        reached AS (SELECT r, label, x, same, x_offset, z_offset, z_size, CASE
            WHEN (NOT mirrored AND {chance("i", "r", "1")} < noise) OR (second >= 0 AND low >= high)
                THEN {rank("z_size", chance("i", "r", "2"), "2")}
            WHEN second < 0 THEN y
            ELSE {rank("r2", chance(next_fact, "second"), "in2")}
            END AS z FROM spread),
        apart AS (SELECT * REPLACE (CASE WHEN same AND x = z THEN (z + 1) % z_size ELSE z END AS z) FROM reached)
        SELECT {label("x_offset + x")} AS h, label AS r, {label("z_offset + z")} AS t FROM apart"""


def choose_rules(seed: int) -> list[PlantedRule]:
    """Return the ten rules that are applied: six of two relations, two inverses and two parts."""
    rules = [rule for rule in plant_rules(make_relations(seed)) if rule.body[0][0] != rule.head]
    by_length = {length: [rule for rule in rules if len(rule.body) == length] for length in (1, 2)}
    return by_length[2][:6] + by_length[1][:4]
