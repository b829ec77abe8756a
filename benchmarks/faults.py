"""Kills of what works on a graph, and whether results are those of a run that nobody disturbed.

On a Spark cluster of two workers an executor, or a worker with it, is killed at a random moment, of mining and of a
fixed point of rules. Drivers are killed too, of Spark with a folder and of DuckDB with a database file; the same call
then goes on until it ends. At last all workers go for good: the call must end with an error, and write nothing.

    python benchmarks/faults.py --kills 20 --save results/faults.json
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from made_graph import write_graph
from measure import machine, print_table, save

import rulewright as rw
from rulewright.engine import spark as spark_engine
from rulewright.engine.journal import Journal
from rulewright.errors import RulewrightError

sys.path.append(str(Path(__file__).parents[1] / "examples"))
from spark_cluster import LOOPBACK, QUICK_START, ClusterError, SparkCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEMORY = "700MB"
PATIENCE = 5.0
"""Seconds without workers that a child waits."""


def mine(kb: rw.StoredFacts) -> rw.RuleSet:
    miner = rw.RuleMiner(max_length=2, min_confidence=0.1, constants=False, unary=False, thresholds=False)
    return miner.fit(kb).rules_


def close_under(rules: rw.RuleSet, kb: rw.StoredFacts) -> Any:
    return rw.apply(rules, kb, max_rounds=None, min_score=0.2)


def digest_rules(rules: rw.RuleSet) -> str:
    return hashlib.sha256(str(rules).encode()).hexdigest()[:16]


def digest_facts(inferred: Any) -> str:
    """Return a digest of all new facts with their scores, to nine digits, and rounds."""
    rows = inferred.engine.look_up("SELECT p, a0, a1, s, k FROM inferred_ee")
    order = np.lexsort((rows["a1"], rows["a0"], rows["p"]))
    columns = [rows[name][order].astype(np.int64) for name in ("p", "a0", "a1", "k")]
    columns.append(np.round(rows["s"][order] * 1e9).astype(np.int64))
    told = hashlib.sha256(b"".join(column.tobytes() for column in columns))
    return f"{told.hexdigest()[:16]} {len(inferred)} facts {inferred.rounds} rounds"


# Executors and workers


@contextmanager
def open_session(cluster: SparkCluster) -> Iterator[SparkSession]:
    """Give a session in this process, on the cluster."""
    from pyspark.sql import SparkSession

    os.environ |= {"SPARK_LOCAL_IP": LOOPBACK, "PYSPARK_PYTHON": sys.executable}
    settings = cluster.driver_settings() | {
        "spark.log.level": "OFF",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": QUICK_START,
        "spark.executor.extraJavaOptions": QUICK_START,
    }
    session = SparkSession.builder.appName("faults").config(map=settings).getOrCreate()
    try:
        yield session
    finally:
        session.stop()


@dataclass
class Killer:
    """Kills an executor, or a worker with its executor, of a cluster after some seconds."""

    cluster: SparkCluster
    victim: str
    worker: int
    delay: float
    moment: float | None = None
    _stopped: bool = False

    def run(self) -> None:
        """Wait, kill, and start dead workers anew."""
        end = time.monotonic() + self.delay
        while not self._stopped and self.moment is None:
            time.sleep(0.05)
            if time.monotonic() < end:
                continue
            try:  # just after an earlier kill there may be no executor yet
                if self.victim == "executor":
                    self.cluster.kill_executor(self.worker)
                elif self.cluster.list_executors(self.worker):
                    self.cluster.kill_worker(self.worker)
                else:
                    continue
                self.moment = time.monotonic()
            except ClusterError:
                continue
        self.cluster.restart_dead_workers()

    def around(self, work: Callable[[], str]) -> tuple[str, float]:
        """Do something, kill meanwhile, and return what it gave and the seconds it took."""
        thread = threading.Thread(target=self.run)
        start = time.monotonic()
        thread.start()
        try:
            return work(), time.monotonic() - start
        finally:
            self._stopped = True
            thread.join()


def kill_workers(cluster: SparkCluster, path: Path, kills: int, deadline: float, chance: random.Random) -> rw.RuleSet:
    """Kill executors and workers while rules are mined and applied; return the rules."""
    rows: list[tuple[object, ...]] = []
    with open_session(cluster) as session, rw.store_facts(path, engine=session) as kb:
        rules = rw.RuleSet([rule for rule in mine(kb) if rule.confidence >= 0.3])
        works: dict[str, Callable[[], str]] = {
            "mining": lambda: digest_rules(mine(kb)),
            "fixed point": lambda: digest_facts(close_under(rules, kb)),
        }
        expected, durations = {}, {}
        for name, work in works.items():
            start = time.monotonic()
            expected[name] = work()
            durations[name] = time.monotonic() - start
            rows.append((name, "nobody", "", durations[name], "", expected[name]))
            print(*rows[-1], flush=True)
        for number in range(kills):
            name, victim = [*works][number % 2], ("executor", "worker")[number // 2 % 2]
            if time.monotonic() > deadline:
                print(f"{kills - number} kills are left out: time is up")
                break
            killer = Killer(cluster, victim, chance.randrange(2), chance.uniform(0.05, 0.9) * durations[name])
            try:
                digest, seconds = killer.around(works[name])
            except RulewrightError as error:
                digest, seconds = f"{type(error).__name__}: {error}", 0.0
            told = "ended before" if killer.moment is None else killer.delay
            rows.append((name, victim, told, seconds, digest == expected[name], digest))
            print(*rows[-1], flush=True)
    columns = ("work", "killed", "after s", "seconds", "same result", "result")
    print_table(f"{kb.n_facts:,} facts on a cluster of two workers", columns, rows)
    return rules


# Drivers


def run_child(told: dict[str, Any]) -> None:
    """Work on a graph, from its files on, in this process; print the result and how many statements were run."""
    counts = {"ran": 0, "known": 0}
    follow = Journal.follow

    def count(self: Journal, *args: str) -> Any:
        step = follow(self, *args)
        counts["ran" if step is None else "known"] += 1
        return step

    Journal.follow = count  # type: ignore[method-assign]
    spark_engine.PATIENCE = PATIENCE
    place = {told["keep"]: told["place"]} if told["keep"] else {}
    limit = MEMORY if told["engine"].startswith("spark://") else None
    print("begun", flush=True)
    try:
        with rw.store_facts(told["path"], engine=told["engine"], memory_limit=limit, **place) as kb:
            if told["work"] == "mining":
                result = digest_rules(mine(kb))
            else:
                inferred = close_under(rw.read_rules(told["rules"]), kb)
                result = digest_facts(inferred)
                if told["out"]:
                    inferred.write(told["out"])
    except RulewrightError as error:
        result = f"{type(error).__name__}: {error}"
    print(json.dumps({"result": result, **counts}), flush=True)


class Child:
    """A process that works on a graph."""

    def __init__(self, told: dict[str, Any]) -> None:
        command = [sys.executable, __file__, "--child", json.dumps(told)]
        environment = os.environ | {"SPARK_LOCAL_IP": LOOPBACK, "PYSPARK_PYTHON": sys.executable}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()
        self.began = time.monotonic()

    def kill(self) -> bool:
        """Kill it; return whether it was still at work."""
        self.process.send_signal(signal.SIGKILL)
        output, _ = self.process.communicate()
        return not output.strip()

    def finish(self) -> tuple[dict[str, Any], float]:
        """Wait for its end; return what it said, and the seconds it took."""
        output, _ = self.process.communicate(timeout=900)
        lines = output.strip().splitlines()
        said = json.loads(lines[-1]) if lines else {"result": "nothing", "ran": 0, "known": 0}
        return said, time.monotonic() - self.began


def kill_drivers(folder: Path, path: Path, rules: Path, kills: int, chance: random.Random) -> None:
    """Kill processes that mine and apply, and begin them again until they end."""
    rows: list[tuple[object, ...]] = []
    for engine, keep in (("duckdb", "database"), ("local[2]", "folder")):
        for work in ("mining", "fixed point"):
            told = {"path": str(path), "engine": engine, "keep": keep, "work": work, "rules": str(rules), "out": ""}
            anew, undisturbed = Child(told | {"place": str(folder / f"{keep}-{len(rows)}-anew.duckdb")}).finish()
            rows.append((engine, work, "nobody", "", undisturbed, anew["ran"], anew["known"], "", anew["result"]))
            print(*rows[-1], flush=True)
            told["place"] = str(folder / f"{keep}-{len(rows)}.duckdb")
            for _ in range(kills):
                child = Child(told)
                delay = chance.uniform(0.3, 0.9) * undisturbed
                time.sleep(delay)
                killed = "driver" if child.kill() else "nobody in time"
                rows.append((engine, work, killed, delay, delay, "", "", "", ""))
                print(*rows[-1], flush=True)
            said, seconds = Child(told).finish()
            is_same = said["result"] == anew["result"] and said["ran"] < anew["ran"]
            rows.append((engine, work, "resumed", "", seconds, said["ran"], said["known"], is_same, said["result"]))
            print(*rows[-1], flush=True)
    columns = ("engine", "work", "killed", "after s", "seconds", "run", "known", "same, by fewer", "result")
    print_table("Drivers killed, and the same call again", columns, rows)


# All workers


def kill_all_workers(cluster: SparkCluster, folder: Path, path: Path, rules: Path, seconds: float) -> None:
    """Kill all workers while rules are applied, and start none."""
    out = folder / "out.parquet"
    told = {"path": str(path), "engine": cluster.address, "keep": "folder", "place": str(folder / "gone")}
    child = Child(told | {"work": "fixed point", "rules": str(rules), "out": str(out)})
    time.sleep(seconds)
    for worker in range(cluster.worker_count):
        cluster.kill_worker(worker)
    killed = time.monotonic()
    said, _ = child.finish()
    waited = time.monotonic() - killed
    rows = [(seconds, waited, said["result"].startswith("EngineError"), not any(folder.glob("*out*")), said["result"])]
    columns = ("killed after s", "ended after s", "an EngineError", "nothing written", "result")
    print_table(f"All workers killed for good, with a patience of {PATIENCE:.0f} s", columns, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="of executors and workers")
    parser.add_argument("--minutes", type=float, default=60.0, help="after which no executor or worker is killed")
    parser.add_argument("--driver-kills", type=int, default=2, help="of each of the four drivers")
    parser.add_argument("--facts", type=int, default=20_000, help="size of the graph")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", metavar="FILE", help="write the tables as JSON")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        run_child(json.loads(options.child))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the cluster ends with it
    print(machine())
    start = time.monotonic()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path, rules_file = folder / "graph.tsv", folder / "mined.rules"
        write_graph(path, options.facts, options.seed)
        with SparkCluster(workers=2, cores=1, memory="700m") as cluster:
            rules = kill_workers(cluster, path, options.kills, start + 60 * options.minutes, chance)
            save(options.save)
            rw.write_rules(rules, rules_file)
            kill_all_workers(cluster, folder, path, rules_file, 15.0)
        save(options.save)
        kill_drivers(folder, path, rules_file, options.driver_kills, chance)
    save(options.save)


if __name__ == "__main__":
    main()
