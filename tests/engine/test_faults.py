"""What is killed at work is done again: results are the same, and nothing is half-written. See benchmarks/faults.py."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from engine.spark import SparkDriver
from engine.test_stored_facts import make_triples, mine, write_tsv
from spark_cluster import ClusterError, SparkCluster

import rulewright as rw

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHILD = """
import json, sys
import rulewright as rw
from rulewright.engine.journal import Journal

path, database, target = sys.argv[1:]
follow, ran = Journal.follow, 0

def count(self, *args):
    global ran
    step = follow(self, *args)
    ran += step is None
    print("step", flush=True)
    return step

Journal.follow = count
with rw.store_facts(path, database=database) as kb:
    miner = rw.RuleMiner(max_length=2, constants=False, unary=False, thresholds=False)
    rules = miner.fit(kb).rules_
    inferred = rw.apply(rules, kb, max_rounds=None, min_score=0.3)
    inferred.write(target)
    print(json.dumps([str(rules), ran, len(inferred), inferred.rounds]), flush=True)
"""


def write_large(path: Path, facts: int) -> Path:
    """Write a graph in which some relations follow from others."""
    chance, entities = random.Random(0), facts // 5
    rows = [
        (f"e{chance.randrange(entities)}", f"r{chance.randrange(8)}", f"e{chance.randrange(entities)}")
        for _ in range(facts * 4 // 5)
    ]
    rows += [
        (tail, "back", head) for head, relation, tail in rows if relation in ("r0", "r1") and chance.random() < 0.8
    ]
    return write_tsv(path, rows)


def start(path: Path, database: Path, target: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, str(path), str(database), str(target)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finish(child: subprocess.Popen[str]) -> list[object]:
    output, _ = child.communicate(timeout=600)
    assert child.returncode == 0
    return json.loads(output.splitlines()[-1])


@pytest.mark.slow
def test_a_driver_that_is_killed_goes_on(tmp_path: Path) -> None:
    path, database = write_large(tmp_path / "graph.tsv", 50_000), tmp_path / "graph.duckdb"
    rules, ran, *others = finish(start(path, tmp_path / "anew.duckdb", tmp_path / "anew.parquet"))
    assert ran > 20 and others[0] > 0
    target = tmp_path / "out" / "new.parquet"
    target.parent.mkdir()
    child = start(path, database, target)
    assert child.stdout is not None
    for _ in range(int(ran * 0.4)):
        child.stdout.readline()
    child.kill()  # SIGKILL, in a statement or between two
    child.communicate()
    assert not [*target.parent.iterdir()]
    resumed = finish(start(path, database, target))
    assert [resumed[0], *resumed[2:]] == [rules, *others]
    assert 0 < resumed[1] < ran * 0.7
    assert [file.name for file in target.parent.iterdir()] == ["new.parquet"]
    with rw.store_facts(target, columns="head,relation,tail,_,_,_") as kb:
        assert kb.n_facts == others[0]


def mine_in_memory(spark: SparkSession, path: Path) -> str:
    with rw.store_facts(path, engine=spark) as kb:
        return mine(kb)


@pytest.mark.soak
def test_an_executor_that_is_killed_changes_no_rule(
    spark_cluster: SparkCluster, spark_driver: SparkDriver, tmp_path: Path
) -> None:
    path = write_tsv(tmp_path / "graph.tsv", make_triples())
    expected = mine(rw.read_facts(path))
    assert spark_driver.run(mine_in_memory, path) == expected  # an executor is there from now on
    future = spark_driver.submit(mine_in_memory, path)
    time.sleep(2)
    for index in range(2):
        try:
            spark_cluster.kill_executor(index)
            break
        except ClusterError:  # both may stand on one worker
            continue
    else:
        raise AssertionError("there was no executor to kill")
    assert future.result(timeout=300) == expected
    assert None not in spark_cluster.workers
