"""``examples/spark_cluster.py``: a cluster that computes, loses its workers, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import spark_cluster as script
from engine.spark import SparkDriver, skip_without_spark
from spark_cluster import ClusterError, Daemon, SparkCluster, list_members, list_processes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def add_up(spark: SparkSession, count: int) -> int:
    """Sum in four tasks and a shuffle."""
    rows = spark.range(0, count, 1, 4).selectExpr("id % 7 AS rest", "id").groupBy("rest").sum("id").collect()
    return sum(row[1] for row in rows)


def add_up_slowly(spark: SparkSession, count: int) -> int:
    """Sum in tasks of half a second, in Python."""

    def wait(number: int) -> int:
        import time

        time.sleep(0.5)
        return number

    return spark.sparkContext.parallelize(range(count), count).map(wait).sum()


@pytest.fixture
def whole_cluster(spark_cluster: SparkCluster) -> Iterator[SparkCluster]:
    yield spark_cluster
    spark_cluster.restart_dead_workers()


def test_a_worker_that_dies_changes_no_result(whole_cluster: SparkCluster, spark_driver: SparkDriver) -> None:
    assert spark_driver.run(add_up, 1000) == 499_500
    before = whole_cluster.workers
    pids = [before[0], *whole_cluster.list_executors(0)]
    assert len(pids) >= 2  # the worker and its executor
    whole_cluster.kill_worker(0)
    assert not {row.pid for row in list_processes()}.intersection(pids)
    assert whole_cluster.workers == [None, before[1]]
    assert spark_driver.run(add_up, 1000) == 499_500
    whole_cluster.restart_worker(0)
    assert None not in whole_cluster.workers and whole_cluster.workers[0] != before[0]
    assert spark_driver.run(add_up, 1000) == 499_500


def test_a_worker_or_an_executor_that_dies_at_work_changes_no_result(
    whole_cluster: SparkCluster, spark_driver: SparkDriver
) -> None:
    assert spark_driver.run(add_up_slowly, 2) == 1
    future = spark_driver.submit(add_up_slowly, 8)
    time.sleep(1)
    whole_cluster.kill_executor(0)
    whole_cluster.kill_worker(1)
    assert future.result(timeout=300) == 28
    assert whole_cluster.workers[0] is not None


def test_a_session_in_this_process_gives_the_same(spark_session: SparkSession, spark_driver: SparkDriver) -> None:
    assert add_up(spark_session, 1000) == spark_driver.run(add_up, 1000) == 499_500
    assert add_up_slowly(spark_session, 2) == 1
    java = spark_session.sparkContext._gateway.proc.pid
    assert listening_addresses(java) == {"127.0.0.1"}


def test_only_this_machine_can_reach_it(whole_cluster: SparkCluster, spark_driver: SparkDriver) -> None:
    assert spark_driver.run(add_up_slowly, 2) == 1  # all kinds of processes run now
    pids = whole_cluster.list_pids()
    assert len(pids) >= 6
    addresses = {address for pid in pids for address in listening_addresses(pid)}
    assert addresses == {"127.0.0.1"}


def listening_addresses(pid: int) -> set[str]:
    """Return the addresses at which a process accepts connections."""
    sockets = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(str(path.readlink()))
        except FileNotFoundError:  # closed meanwhile
            continue
    addresses = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                code = bytes.fromhex(fields[1].partition(":")[0])
                words = struct.unpack(f"={len(code) // 4}I", code)  # Linux prints each word as the machine stores it
                packed = struct.pack(f">{len(words)}I", *words)
                name = socket.inet_ntop(socket.AF_INET if table == "tcp" else socket.AF_INET6, packed)
                addresses.add(name.removeprefix("::ffff:"))
    return addresses


def run_script(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, script.__file__, *words], capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_the_commands_start_and_stop_it_and_no_process_stays(tmp_path: Path) -> None:
    skip_without_spark()
    options = ["--folder", str(tmp_path)]
    started = run_script("start", *options, "--workers", "1", "--memory", "600m")
    try:
        assert started.returncode == 0, started.stderr
        cluster = SparkCluster.find(tmp_path)
        assert started.stdout == cluster.address + "\n"
        pids = cluster.list_pids()
        assert len(pids) == 2 and pids[1:] == cluster.workers
        again = run_script("start", *options)
        assert again.returncode == 1 and "runs already" in again.stderr and again.stderr.count("\n") == 1
        os.kill(pids[1], signal.SIGKILL)
        status = run_script("status", *options).stdout
        assert f"master   {pids[0]} runs\n" in status and f"worker-0 {pids[1]} has ended\n" in status
    finally:
        stopped = run_script("stop", *options)
    assert stopped.returncode == 0, stopped.stderr
    assert not {row.pid for row in list_processes()}.intersection(pids)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["master.log", "worker-0.log"]
    assert run_script("status", *options).stderr == f"spark_cluster: no cluster was started in {tmp_path}\n"


class BrokenCluster(SparkCluster):
    """Starts a master, and workers that are none; ``seen`` has the processes of both."""

    def _start_worker(self, name: str) -> None:
        self._launch(name, ["spark-class", "no.such.Worker"], {})
        self.seen = list(self._daemons.values())


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_a_start_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without_spark()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cluster = BrokenCluster(workers=1)
    with pytest.raises(ClusterError, match=r"^Spark's worker-0 ended while it started; its log says: .*$") as caught:
        cluster.start()
    assert "no.such.Worker" in str(caught.value)
    assert len(cluster.seen) == 2 and not list_members(cluster.seen)
    assert not list(tmp_path.glob("spark-cluster-*"))


@pytest.mark.xdist_group("spark")
def test_one_process_alone_starts_spark(request: pytest.FixtureRequest) -> None:
    groups = getattr(request.config.option, "loadgroup", False)  # as `make test` asks for
    assert request.node.nodeid.endswith("@spark") == groups


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ClusterError, match="at least one worker"):
        SparkCluster(workers=0)
    for memory in ("a lot", "1t", "500m", "0g"):
        with pytest.raises(ClusterError, match=f"not {memory}$"):
            SparkCluster(memory=memory)


def test_what_is_missing_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match=r"^Spark needs Java 17 or newer, and there is none: apt-get install .*$"):
        SparkCluster().start()
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)
    with pytest.raises(ClusterError, match=r"^Spark needs Java 17 or newer, and .*java is 8: apt-get install .*$"):
        SparkCluster().start()
    monkeypatch.setattr(script, "find_spec", lambda name: None)
    with pytest.raises(ClusterError, match=r"^Spark comes with .* not installed: pip install -c constraints.txt .*$"):
        script.find_spark()


def test_a_pid_that_was_given_again_is_not_ours() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True) as process:
        [row] = [row for row in list_processes() if row.pid == process.pid]
        assert row.session == process.pid
        assert list_members([Daemon(row.pid, row.started)]) == [row]
        assert list_members([Daemon(row.pid, row.started + 1)]) == []
        process.kill()
