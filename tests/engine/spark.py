"""Spark for tests: what it needs here, sessions that suit small data, and applications in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import pytest
from spark_cluster import LOOPBACK, QUICK_START, ClusterError, find_java, find_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

P = ParamSpec("P")
T = TypeVar("T")

# Tests that ask for one of these fixtures run in one process of pytest-xdist, which alone starts Spark (conftest.py).
FIXTURES = frozenset({"spark_session", "spark_cluster", "spark_driver"})
# For tests that get Spark otherwise, such as one parameter of many: pytest.param("spark", marks=SPARK_MARKS).
SPARK_MARKS = (pytest.mark.slow, pytest.mark.xdist_group("spark"))

# Small data: few tasks, and plans that are compiled once and run once, for which the optimising compiler only costs.
SMALL_DATA = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": QUICK_START,
    "spark.executor.extraJavaOptions": QUICK_START,
}


def skip_without_spark() -> None:
    """Skip a test, with the reason, where Java or pyspark is missing."""
    try:
        find_java()
        find_spark()
    except ClusterError as error:
        pytest.skip(str(error))


def local_settings(folder: Path) -> dict[str, str]:
    """Return the settings of a session whose driver does all work, on two cores; files go to ``folder``."""
    return SMALL_DATA | {
        "spark.master": "local[2]",
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }


@contextmanager
def open_session(settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Give a session, and end it with its Java process."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    # Java takes the environment as it is when it starts. Another Spark on this machine must not change what tests do.
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_"))]:
            patch.delenv(name)
        patch.setenv("SPARK_LOCAL_IP", LOOPBACK)
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = SparkSession.builder.appName("tests").config(map=dict(settings)).getOrCreate()
    gateway = SparkContext._gateway
    assert gateway is not None
    try:
        yield session
    finally:
        session.stop()
        # Spark keeps its Java process for another session; it ends when its input does.
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
        SparkContext._gateway = SparkContext._jvm = None


class SparkDriver:
    """A Spark application in a process of its own: a process can have only one, and ``spark_session`` may be it.

    ``run(function, ...)`` calls ``function(spark, ...)`` there. Functions must be importable, as those of a test file
    are, or picklable; what they return must be picklable. ``submit`` does not wait, for tests that kill meanwhile.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)
        self._pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))

    def submit(
        self, function: Callable[Concatenate[SparkSession, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        return self._pool.submit(_call_with_session, self._settings, function, args, kwargs)

    def run(self, function: Callable[Concatenate[SparkSession, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        # Without workers Spark waits for ever; a test must not.
        return self.submit(function, *args, **kwargs).result(timeout=300)

    def close(self) -> None:
        self._pool.submit(_close_session).result(timeout=60)
        self._pool.shutdown()


_opened: list[tuple[Any, Any]] = []  # in the process of a SparkDriver: its context manager and its session


def _call_with_session(
    settings: dict[str, str], function: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]
) -> T:
    if not _opened:
        manager = open_session(settings)
        _opened.append((manager, manager.__enter__()))
    return function(_opened[0][1], *args, **kwargs)


def _close_session() -> None:
    while _opened:
        _opened.pop()[0].__exit__(None, None, None)
