"""Settings that every test shares, and the Spark that some do."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from engine.spark import (
    FIXTURES,
    SMALL_DATA,
    SPARK_MARKS,
    SparkDriver,
    local_settings,
    open_session,
    skip_without_spark,
)
from hypothesis import settings
from spark_cluster import ClusterError, SparkCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The same examples on every run and no time limit for one of them, so that a slow machine fails no test.
settings.register_profile("rulewright", deadline=None, derandomize=True)
settings.load_profile("rulewright")

# What a shell starts in the background does not hear Ctrl-C, nor do its children; tests of Ctrl-C need it heard.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before others choose tests by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    for item in items:
        if item.get_closest_marker("soak") and not os.environ.get("RULEWRIGHT_SOAK"):
            item.add_marker(pytest.mark.skip(reason="takes minutes; make soak runs it"))
        if FIXTURES.intersection(getattr(item, "fixturenames", ())):
            for mark in SPARK_MARKS:
                item.add_marker(mark)
    yield
    # Under --dist loadgroup the scheduler reads a test's group behind its id. pytest-xdist 3.8 writes it where pytest
    # 9.2 no longer looks (pytest-dev/pytest-xdist#1386), and each process would start a Spark of its own.
    if getattr(config.option, "loadgroup", False):
        for item in items:
            mark = item.get_closest_marker("xdist_group")
            if mark is not None and not item.nodeid.endswith(f"@{mark.args[0]}") and hasattr(item, "_id"):
                item._id = type(item._id).parse(f"{item.nodeid}@{mark.args[0]}")


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark within this process's own Java, on two cores."""
    skip_without_spark()
    manager = open_session(local_settings(tmp_path_factory.mktemp("spark")))
    try:
        session = manager.__enter__()
    except Exception as error:
        pytest.skip(f"Spark does not start here: {error}")
    yield session
    manager.__exit__(None, None, None)


@pytest.fixture(scope="session")
def spark_cluster() -> Iterator[SparkCluster]:
    """A master and two workers, on which tests run applications by ``spark_driver``, and kill what they like."""
    skip_without_spark()
    cluster = SparkCluster(workers=2, cores=1, memory="700m")
    try:
        cluster.start()
    except ClusterError as error:
        pytest.skip(f"Spark does not start here: {error}")
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def spark_driver(spark_cluster: SparkCluster) -> Iterator[SparkDriver]:
    """The one application that runs on ``spark_cluster``."""
    driver = SparkDriver(SMALL_DATA | spark_cluster.driver_settings())
    yield driver
    driver.close()
