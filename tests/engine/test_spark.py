"""Spark gives what DuckDB gives: counts, rules, what follows from them, and files; here, and on two workers."""

from __future__ import annotations

import random
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
import pytest
from engine import test_chain_counts, test_engine
from engine.engines import SQLiteEngine, store
from engine.spark import SparkDriver, skip_without_spark
from engine.test_stored_facts import WRITERS, collect, list_triples, make_triples, mine, random_triples, write_tsv
from real_data import DATA, needs_data
from reason import test_stored_ranking
from reason.programs import recursive_rules
from spark_cluster import SparkCluster

import rulewright as rw
from rulewright.engine.spark import SparkEngine
from rulewright.errors import DataError, ParseError
from rulewright.logic import parse_rules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RULES = parse_rules("""
0.9 :: r0(X, Y) :- r1(X, Y).
0.5 :: r2(X, Z) :- r0(X, Y), r3(Y, Z).
0.8 :: r3(X, Y) :- r2(Y, X), !back(Y, X).
0.7 :: r1(X, e3) :- r0(X, Y), r3(Y, e5).
0.6 :: linked(X) :- r2(X, Y), r2(Y, X).
""")


# What every engine must pass, beside an oracle: the tests of DuckDB and SQLite, each with one example or a few
SHARED = [
    (test_engine.test_counts_and_bindings_equal_the_oracle, {}),
    (test_engine.test_support_equals_the_oracle, {}),
    (test_engine.test_counting_by_predicate_equals_filling_every_predicate_in, {}),
    (test_chain_counts.test_the_statements_count_what_a_walk_counts, {"inverses": True}),
    (test_chain_counts.test_supports_and_ends_are_those_of_a_walk, {"loops": "skip", "inverses": True}),
    (test_chain_counts.test_supports_and_ends_are_those_of_a_walk, {"loops": "against", "inverses": False}),
    (test_stored_ranking.test_ranks_are_those_of_facts_in_memory, {"aggregation": "max-plus"}),
    (test_stored_ranking.test_the_best_candidates_are_those_of_facts_in_memory, {"aggregation": "noisy-or"}),
]


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 7))])
@pytest.mark.parametrize(("check", "options"), SHARED)
def test_the_shared_suite(spark_session: SparkSession, check: Any, options: dict[str, object], seed: int) -> None:
    check.hypothesis.inner_test(make=partial(SparkEngine, spark_session), seed=seed, **options)


def mine_on_spark(spark: SparkSession, path: Path) -> str:
    with rw.store_facts(path, engine=spark) as kb:
        return mine(kb)


def test_rules_are_byte_identical_on_every_engine(
    spark_session: SparkSession, spark_driver: SparkDriver, tmp_path: Path
) -> None:
    path = write_tsv(tmp_path / "graph.tsv", make_triples())
    kb = rw.read_facts(path)
    with rw.store_facts(path) as stored, SQLiteEngine(kb) as engine:
        expected = mine(stored)
        assert mine(kb) == mine(store(kb, engine)) == expected
    assert "back(V0, V1) :- r1(V1, V0)" in expected
    future = spark_driver.submit(mine_on_spark, path)  # on two workers, at the same time
    assert mine_on_spark(spark_session, path) == expected
    assert future.result(timeout=300) == expected


@pytest.mark.soak
@pytest.mark.xdist_group("spark")
def test_spark_connect_learns_the_same_from_the_command_line(tmp_path: Path) -> None:
    skip_without_spark()
    write_tsv(tmp_path / "graph.tsv", make_triples())
    words = ["learn", "graph.tsv", "--max-length", "2", "-o"]
    with SparkCluster(workers=1, connect=True) as cluster:
        for target, engine in (("expected.rules", "duckdb"), ("connect.rules", cluster.connect_address)):
            command = [sys.executable, "-m", "rulewright", *words, target, "--engine", engine]
            subprocess.run(command, cwd=tmp_path, check=True, timeout=300)
    assert (tmp_path / "connect.rules").read_bytes() == (tmp_path / "expected.rules").read_bytes()


@needs_data
@pytest.mark.soak
def test_rules_of_a_real_graph_are_byte_identical(spark_session: SparkSession) -> None:
    path = DATA / "kbc" / "umls" / "train.tsv"
    kb = rw.read_facts(path)
    expected = mine(kb)
    with SQLiteEngine(kb) as engine:
        assert mine(store(kb, engine)) == expected
    assert mine_on_spark(spark_session, path) == expected


@pytest.mark.soak
def test_sampled_rules_of_three_steps_are_the_same(spark_session: SparkSession, tmp_path: Path) -> None:
    path = write_tsv(tmp_path / "graph.tsv", make_triples(5, 80))
    results = []
    for engine in ("duckdb", spark_session):
        with rw.store_facts(path, engine=engine) as kb:
            miner = rw.RuleMiner(max_length=3, sample=20, seed=3, constants=False, unary=False, thresholds=False)
            results.append((str(miner.fit(kb).rules_), miner.note_))
    assert results[0] == results[1] and results[0][0]


def apply_on(engine: str | SparkSession, path: Path, rules: rw.RuleSet, **options: object) -> tuple[object, ...]:
    with rw.store_facts(path, engine=engine) as kb:
        inferred = rw.apply(rules, kb, **options)
        return collect(inferred), inferred.rounds, inferred.exact, [round(fact.score, 9) for fact in inferred[:9]]


LONG = pytest.mark.soak


@pytest.mark.soak  # 39 rounds
@pytest.mark.parametrize("aggregation", ["max", "noisy-or", "max-plus"])
def test_a_fixed_point_is_the_same(spark_session: SparkSession, tmp_path: Path, aggregation: str) -> None:
    path = write_tsv(tmp_path / "graph.tsv", make_triples(4, 60))
    options = {"aggregation": aggregation, "max_rounds": None}
    expected = apply_on("duckdb", path, RULES, **options)
    assert len(expected[0]) > 20 and expected[1] > 1
    assert apply_on(spark_session, path, RULES, **options) == expected


@pytest.mark.soak
def test_random_programs_give_the_same(spark_session: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(11)
    path = write_tsv(tmp_path / "graph.tsv", random_triples(chance))
    rules = recursive_rules(chance)
    assert apply_on(spark_session, path, rules) == apply_on("duckdb", path, rules)


def close_on_cluster(spark: SparkSession, path: Path) -> tuple[object, ...]:
    return apply_on(spark, path, RULES, max_rounds=None)


@pytest.mark.soak
def test_a_fixed_point_is_the_same_on_two_workers(spark_driver: SparkDriver, tmp_path: Path) -> None:
    path = write_tsv(tmp_path / "graph.tsv", make_triples(4, 60))
    assert spark_driver.run(close_on_cluster, path) == apply_on("duckdb", path, RULES, max_rounds=None)


@pytest.mark.soak
def test_explanations_are_the_same(spark_session: SparkSession, tmp_path: Path) -> None:
    path = write_tsv(tmp_path / "graph.tsv", make_triples(4, 60))
    fact = next(fact for fact in rw.apply(RULES, rw.read_facts(path), max_rounds=2) if fact.round == 2)
    told = []
    for engine in ("duckdb", spark_session):
        with rw.store_facts(path, engine=engine) as kb:
            told += [[rw.explain(RULES, kb, str(fact), k=2, depth=depth).as_dict() for depth in (1, 2)]]
    assert told[0] == told[1] and told[0][1]["status"] == "inferred"


@pytest.mark.parametrize(
    "name", ["graph.tsv", pytest.param("graph.parquet", marks=LONG), pytest.param("graph.nt", marks=LONG)]
)
def test_files_are_read_as_duckdb_reads_them(spark_session: SparkSession, tmp_path: Path, name: str) -> None:
    facts = make_triples(6, 60)
    if name != "graph.nt":
        facts += [
            ("it's", "it's", 'say "so"'),
            ("back\\slash", "r0", "日本"),
            (" spaced ", "r0", "\\"),
            ("é", "r0", "#"),
        ]
    path = WRITERS[name](tmp_path / name, facts)
    with rw.store_facts(path) as expected, rw.store_facts(path, engine=spark_session) as kb:
        assert list(kb.predicates) == list(expected.predicates)
        assert (kb.n_facts, kb.n_entities, kb.duplicates) == (
            expected.n_facts,
            expected.n_entities,
            expected.duplicates,
        )
        assert kb.domains["entity"].labels_of(range(kb.n_entities)).tolist() == (
            expected.domains["entity"].labels_of(range(kb.n_entities)).tolist()
        )
        assert list_triples(kb) == list_triples(expected)


@pytest.mark.parametrize(
    ("name", "text"),
    [("hole.tsv", "a\tr\tb\na\t\tb\n"), ("short.tsv", "a\tr\tb\na\tr\n"), ("empty.tsv", ""), ("bad.nt", "nonsense\n")],
)
def test_what_cannot_be_read_is_one_line(spark_session: SparkSession, tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ParseError) as caught:
        rw.store_facts(tmp_path / name, engine=spark_session)
    assert "\n" not in str(caught.value) and name in str(caught.value)


def test_new_facts_are_written_in_parts_and_a_folder_is_kept(spark_session: SparkSession, tmp_path: Path) -> None:
    path, target = write_tsv(tmp_path / "graph.tsv", make_triples(4, 60)), tmp_path / "new.parquet"
    rules = parse_rules("0.9 :: r0(X, Y) :- r1(X, Y). 0.5 :: r2(X, Z) :- r0(X, Y), r3(Y, Z).")
    expected = {(fact.args[0], fact.predicate, fact.args[1]) for fact in rw.apply(rules, rw.read_facts(path))}
    with pytest.raises(DataError, match="Spark keeps tables in a folder"):
        rw.store_facts(path, engine="local[2]", database=tmp_path / "graph.duckdb")
    for _ in range(2):  # the second time from the journal
        with rw.store_facts(path, engine=spark_session, folder=tmp_path / "kept") as kb:
            inferred = rw.apply(rules, kb)
            inferred.write(str(target), partition=True)
        table = pyarrow.parquet.read_table(target)
        columns = (table[column].to_pylist() for column in ("head", "relation", "tail"))
        assert set(zip(*columns, strict=True)) == expected
        parts = sorted(part.name for part in target.iterdir() if part.is_dir())
        assert parts == sorted({f"relation={relation}" for _, relation, _ in expected})
        assert not [*tmp_path.glob("*.partial")]
