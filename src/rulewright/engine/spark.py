"""The engine on Apache Spark: the same statements, on this machine's cores or on those of a cluster.

A table is a folder of Parquet files and a view of it, so that no statement repeats the work of earlier ones, however
many follow each other, and none is lost with the process that ran it. Only the rows that are asked for come here.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rulewright.checks import read_memory_limit
from rulewright.data import KnowledgeBase
from rulewright.engine.journal import Journal, JournalStep, pack_columns, unpack_columns
from rulewright.engine.sql import Column, SQLEngine
from rulewright.errors import EngineError, MissingExtraError
from rulewright.files import write_text
from rulewright.interrupts import run_interruptibly

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOGGER = logging.getLogger(__name__)
_Result = TypeVar("_Result")

SMALL_PUT = 50_000
"""Tables of columns up to so many rows go with the statements that read them; larger ones are written once."""
ROWS_PER_PARTITION = 500_000
"""About how many facts one task works on."""
PATIENCE = 60.0
"""Seconds without a single executor after which a statement is given up."""
_CONNECT = "sc://"


def is_spark(engine: object) -> bool:
    """Tell whether an engine is asked for that is Spark: an address, or a session.

    >>> is_spark("local[2]"), is_spark("spark://host:7077"), is_spark("sc://host"), is_spark("duckdb")
    (True, True, True, False)
    """
    if isinstance(engine, str):
        return engine.startswith(("local", "spark://", _CONNECT, "yarn", "k8s://", "mesos://"))
    return type(engine).__module__.startswith("pyspark.")


def start_session(address: str, *, memory_limit: int | str | None = None) -> SparkSession:
    """Start a session at an address: ``local[2]``, ``spark://host:7077``, a Spark Connect address ``sc://…``, ``yarn``.

    ``memory_limit`` is that of each executor, of ``local`` that of the process. What ``spark-defaults.conf`` and the
    environment say holds for all else.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtraError("Spark needs pyspark: pip install -c constraints.txt 'rulewright[spark]'") from None
    builder = SparkSession.builder.appName("rulewright")
    try:
        if address.startswith(_CONNECT):
            return builder.remote(address).getOrCreate()
        if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
            raise EngineError("Spark needs Java 17 or newer, and there is none here: apt-get install openjdk-17-jre")
        limit = read_memory_limit(memory_limit)
        settings: dict[str, Any] = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
            "spark.sql.adaptive.advisoryPartitionSizeInBytes": "32m",
            "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "32m",
        }
        if "127.0.0.1" in address or "localhost" in address or address.startswith("local"):
            settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # or Spark asks for the name of this machine
        if limit is not None:
            name = "spark.driver.memory" if address.startswith("local") else "spark.executor.memory"
            settings[name] = f"{max(limit // 2**20, 512)}m"
        return builder.master(address).config(map=settings).getOrCreate()
    except EngineError:
        raise
    except Exception as error:
        raise EngineError(f"cannot start Spark at {address}: {_first_line(error)}") from None


class SparkEngine(SQLEngine, AbstractContextManager["SparkEngine"]):
    """Runs rule bodies on Apache Spark.

    ``engine`` is an address (`start_session`) or an existing ``SparkSession``, which stays as it is. ``folder`` is
    where tables are kept: a path or an address that the driver and all executors can write to (a shared disk, HDFS, an
    object store). In a local path tables outlive the process, with a journal, and a run that was killed goes on; None
    is a temporary folder of this machine, which is fine where all executors run on it. Hubs: Spark cuts a partition of
    a join that is far larger than others into parts (adaptive query execution), and triangles are found from their
    corner of least degree.
    """

    rows_at_once = 2_000_000_000
    few_rows = 30_000_000

    def __init__(
        self,
        engine: str | SparkSession,
        kb: KnowledgeBase | None = None,
        *,
        folder: str | os.PathLike[str] | None = None,
        memory_limit: int | str | None = None,
    ) -> None:
        super().__init__()
        self._owns_session = isinstance(engine, str)
        self.address = engine if isinstance(engine, str) else "a session"
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="rulewright-spark-", ignore_cleanup_errors=True)
        self.folder = os.fspath(folder) if folder is not None else str(self._temporary and self._temporary.name)
        if self.is_local_folder:
            try:
                Path(self.folder).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise EngineError(f"cannot keep tables in {self.folder}: {error.strerror or error}") from None
            self.folder = str(Path(self.folder).resolve())
        self.session = start_session(engine, memory_limit=memory_limit) if isinstance(engine, str) else engine
        self._views: dict[str, list[str]] = {}
        self._stale: set[str] = set()
        self._schemas: dict[str, Any] = {}
        self._garbage: list[str] = []
        self._prefix = uuid.uuid4().hex[:8]
        self._serial = 0
        try:
            self.set_size(0)
            if self._temporary is None and self.is_local_folder:
                self._sweep()
            if kb is not None:
                self.kb = kb
                self.load(kb)
        except BaseException:
            self.close()
            raise

    @property
    def is_local_folder(self) -> bool:
        """Whether tables are kept in a path of this machine, and not at an address."""
        return "://" not in self.folder

    def set_size(self, facts: int) -> None:
        """Size the work to the data: about `ROWS_PER_PARTITION` facts to a task, and no fewer tasks than cores."""
        tasks = min(max(self._count_cores(), 2 * facts // ROWS_PER_PARTITION), 4000)
        self.session.conf.set("spark.sql.shuffle.partitions", str(tasks))

    def _count_cores(self) -> int:
        with suppress(Exception):  # Spark Connect does not tell
            return int(self.session.sparkContext.defaultParallelism)
        return 8

    # Statements

    def _work(self, work: Callable[[], _Result]) -> _Result:
        """Run something on Spark that Ctrl-C, a time limit and the loss of all executors end."""
        tag = f"rulewright-{uuid.uuid4().hex[:12]}"
        ended, lost = threading.Event(), threading.Event()

        def tagged() -> _Result:
            with suppress(Exception):
                self.session.addTag(tag)
            try:
                return work()
            finally:
                ended.set()
                with suppress(Exception):
                    self.session.removeTag(tag)

        def interrupt() -> None:
            with suppress(Exception):
                self.session.interruptTag(tag)
            if self._owns_session:  # rows that are fetched are computed in a thread that does not know the tag
                with suppress(Exception):
                    self.session.sparkContext.cancelAllJobs()

        def watch() -> None:
            alone_since: float | None = None
            while not ended.wait(1.0):
                if self._count_executors() != 0:
                    alone_since = None
                elif alone_since is None:
                    alone_since = time.monotonic()
                elif time.monotonic() - alone_since > PATIENCE:
                    lost.set()
                    interrupt()

        if self._find_master().startswith("spark://"):
            threading.Thread(target=watch, daemon=True).start()
        began = time.monotonic()
        try:
            result = run_interruptibly(tagged, interrupt)
            _LOGGER.debug("%.3f s on Spark", time.monotonic() - began)
            return result
        except Exception as error:
            if lost.is_set():
                raise EngineError(
                    f"Spark at {self.address} has had no executor for {PATIENCE:.0f} s: nothing more was written, and "
                    "the same call goes on after the last finished statement once workers are there again"
                    + ("" if self._temporary is None else ", given a folder to keep tables in")
                ) from None
            if type(error).__module__.startswith(("pyspark", "py4j", "grpc")):
                raise EngineError(f"Spark at {self.address} could not do it: {_first_line(error)}") from error
            raise
        finally:
            ended.set()

    def _find_master(self) -> str:
        """Return the address of the cluster, of a session that was given too."""
        with suppress(Exception):
            return str(self.session.sparkContext.master)
        return self.address

    def _count_executors(self) -> int:
        """Return how many executors there are, −1 where Spark does not tell."""
        with suppress(Exception):
            return len(self.session.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) - 1  # and the driver
        return -1

    def select(self, statement: str) -> DataFrame:
        """Return what a statement selects as a data frame of Spark, not yet computed."""
        self._show_views()
        return self.session.sql(statement)

    def _run(self, statement: str) -> dict[str, Column]:
        table = self._work(lambda: self.select(statement).toArrow())
        columns = {}
        for name, column in zip(table.column_names, table.columns, strict=True):
            values = column.to_numpy()
            columns[name] = values if values.dtype.kind != "M" else values.astype(object)
        return columns

    def stream(self, statement: str, batch_size: int) -> Iterator[dict[str, Column]]:
        """Run a statement and yield its columns in batches; the result itself waits in files."""
        name = f"result_{uuid.uuid4().hex[:8]}"
        self._create(name, statement)
        rows = int(self._run(f"SELECT COUNT(*) AS n FROM {name}")["n"][0])
        parts = -(-rows // batch_size)
        try:
            numbered = f"{name}_parts"
            if parts > 1:  # each file has about a batch
                self._write(numbered, self.select(f"SELECT * FROM {name}").repartition(parts))
                files = self._run(f"SELECT DISTINCT _metadata.file_path AS file FROM {numbered}")["file"]
                for file in sorted(files.tolist()):
                    yield from self._read_part(file)
                self._drop(numbered)
            elif parts:
                yield self._run(f"SELECT * FROM {name}")
        finally:
            self._drop(name)

    def _read_part(self, file: str) -> Iterator[dict[str, Column]]:
        table = self._work(lambda: self.session.read.parquet(file).toArrow())
        yield {name: column.to_numpy() for name, column in zip(table.column_names, table.columns, strict=True)}

    def _put(self, name: str, columns: Mapping[str, Column]) -> None:
        import pyarrow

        table = pyarrow.table({key: pyarrow.array(np.ascontiguousarray(column)) for key, column in columns.items()})
        frame = self.session.createDataFrame(table)
        self._forget(name)
        if len(table) > SMALL_PUT:
            self._write(name, frame)
        else:
            frame.createOrReplaceTempView(name)
            self._schemas[name] = frame.schema

    def _create(self, name: str, select: str) -> None:
        self._write(name, self.select(select))

    def _append(self, name: str, select: str) -> None:
        from pyspark.sql.functions import col

        fields = self._schemas[name].fields
        frame = self.select(select).toDF(*(field.name for field in fields))
        frame = frame.select(*(col(field.name).cast(field.dataType) for field in fields))
        self._write(name, frame, more=True)

    def _write(self, name: str, frame: DataFrame, *, more: bool = False) -> None:
        """Write a table, or ``more`` of it, into a folder of its own and show it as a view."""
        self._collect_garbage()
        self._serial += 1
        folder = f"{self.folder}/{name}-{self._prefix}-{self._serial}"
        self._work(lambda: frame.write.mode("overwrite").parquet(folder))
        before = list(self._views.get(name, []))
        if not more:
            self._garbage += before  # kept until the journal knows that they are no longer needed
            before = []
            self._schemas[name] = frame.schema
        self._views[name] = [*before, folder]
        self._stale.add(name)

    def _show_views(self) -> None:
        """Make views of tables that have changed."""
        for name in list(self._stale):
            folders = self._views[name]
            reader = self.session.read
            if name in self._schemas:
                reader = reader.schema(self._schemas[name])
            frame = reader.parquet(*folders)
            self._schemas[name] = frame.schema
            frame.createOrReplaceTempView(name)
            self._stale.discard(name)

    def _forget(self, name: str) -> None:
        self._garbage += self._views.pop(name, [])
        self._stale.discard(name)
        self._schemas.pop(name, None)

    def _drop(self, name: str) -> None:
        self._forget(name)
        self.session.catalog.dropTempView(name)

    def _collect_garbage(self) -> None:
        if self.is_local_folder:
            for folder in self._garbage:
                shutil.rmtree(folder, ignore_errors=True)
        self._garbage.clear()

    def join_sorted(self, text: str, separator: str = "", *, descending: bool = True, order: str | None = None) -> str:
        """Return the SQL that joins the texts of a group, in the order of themselves or of something else."""
        rows = f"SORT_ARRAY(COLLECT_LIST(STRUCT({order or text} AS k, {text} AS t)), {str(not descending).upper()})"
        return f"ARRAY_JOIN(TRANSFORM({rows}, x -> x.t), '{separator}')"

    def quote_text(self, text: str) -> str:
        """Return a text as it stands in a statement: backslashes say something in Spark."""
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def number(self, name: str, labels: str) -> None:
        """Hold different texts with an ``id`` in their order; numbered part by part, so that no task has all of them.

        The texts are sorted into parts of which each is above the one before. A row's id is its place in its part and
        the number of rows in the parts before.
        """
        self.create(f"{name}_sorted", f"SELECT DISTINCT label FROM ({labels}) AS all_labels")
        self._perform("create", f"{name}_parts", "", lambda: self._sort_parts(name))
        sizes = self.run(f"SELECT part, COUNT(*) AS n FROM {name}_parts GROUP BY part ORDER BY part")
        starts = np.cumsum(sizes["n"]) - sizes["n"]
        self.put(f"{name}_starts", {"part": sizes["part"].astype(np.int32), "start": starts.astype(np.int64)})
        self.create(
            name,
            f"SELECT p.label AS label, CAST(s.start + p.place - p.part * {2**33} AS INTEGER) AS id "
            f"FROM {name}_parts AS p JOIN {name}_starts AS s ON s.part = p.part",
        )
        self.drop(f"{name}_sorted", f"{name}_parts", f"{name}_starts")

    def _sort_parts(self, name: str) -> None:
        from pyspark.sql.functions import monotonically_increasing_id, spark_partition_id

        frame = self.select(f"SELECT label FROM {name}_sorted").orderBy("label")
        frame = frame.withColumn("part", spark_partition_id()).withColumn("place", monotonically_increasing_id())
        self._write(f"{name}_parts", frame)

    # Files

    def write_files(self, select: str, path: str, file_format: str, *, partition: str | None = None) -> None:
        """Write the rows of a statement as a folder of files, all or none: it gets its name when it is complete."""
        target = str(Path(path).resolve()) if "://" not in path else path
        temporary = f"{target}.{uuid.uuid4().hex[:8]}.partial"
        writer = self.select(select).write.mode("overwrite")
        if partition is not None:
            writer = writer.partitionBy(partition)
        options = {"sep": "\t" if file_format == "tsv" else ",", "header": "true", "emptyValue": ""}
        if file_format == "tsv":
            options |= {"quote": ""}
        try:
            if file_format == "parquet":
                self._work(lambda: writer.parquet(temporary))
            else:
                self._work(lambda: writer.options(**options).csv(temporary))
            self._rename(temporary, target)
        except BaseException:
            if "://" not in target:
                shutil.rmtree(temporary, ignore_errors=True)
            raise

    def _rename(self, old: str, new: str) -> None:
        if "://" not in new:
            if Path(new).is_dir():
                shutil.rmtree(new)
            Path(old).rename(new)
            return
        context = self.session.sparkContext
        java = context._jvm
        place = java.org.apache.hadoop.fs.Path(new)  # type: ignore[union-attr]
        place.getFileSystem(context._jsc.hadoopConfiguration()).rename(java.org.apache.hadoop.fs.Path(old), place)  # type: ignore[union-attr]

    # What is done

    def _open_journal(self, section: str) -> Journal | None:
        if self._temporary is not None or not self.is_local_folder:
            return None
        return FolderJournal(Path(self.folder) / f"journal-{section}")

    def _sweep(self) -> None:
        """Delete tables that a killed process has left and no journal knows of."""
        known = {
            folder
            for section in ("facts", "work", "ranking")
            if isinstance(journal := self._find_journal(section), FolderJournal)
            for step in journal.steps
            if step.detail
            for folder in json.loads(step.detail)["folders"]
        }
        for folder in Path(self.folder).iterdir():
            if re.fullmatch(r".+-[0-9a-f]{8}-[0-9]+", folder.name) and str(folder) not in known:
                shutil.rmtree(folder, ignore_errors=True)

    def _describe_table(self, name: str) -> str:
        schema = self._schemas.get(name)
        return json.dumps({"folders": self._views.get(name, []), "schema": schema and schema.json()})

    def _restore(self, step: JournalStep, work: Callable[[], object]) -> None:
        if step.action == "put":
            work()
        elif step.action == "drop":
            self._views.pop(step.table, None)
            self._stale.discard(step.table)
        elif step.action != "run":
            from pyspark.sql.types import StructType

            detail = json.loads(step.detail)
            self._views[step.table] = detail["folders"]
            self._schemas[step.table] = StructType.fromJson(json.loads(detail["schema"]))
            self._stale.add(step.table)

    def close(self) -> None:
        """Let go of views and temporary tables, and of a session that was started here."""
        for name in [*self._schemas]:
            with suppress(Exception):
                self.session.catalog.dropTempView(name)
        self._collect_garbage()
        if self._owns_session:
            with suppress(Exception):
                self.session.stop()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class FolderJournal(Journal):
    """A journal in a folder: a file for each step, and the results beside them."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        key_file = folder / "key"
        if key_file.is_file():
            self.key = key_file.read_text(encoding="utf-8")
            for file in sorted(folder.glob("*.json")):
                told = json.loads(file.read_text(encoding="utf-8"))
                result = file.with_suffix(".npz")
                packed = result.read_bytes() if told["action"] == "run" else None
                self.steps.append(
                    JournalStep(told["digest"], told["action"], told["table"], unpack_columns(packed), told["detail"])
                )

    def _clear(self, key: str) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        write_text(self._folder / "key", key)

    def _write(self, step: JournalStep) -> None:
        name = f"{len(self.steps):06d}"
        packed = pack_columns(step.result)
        if packed is not None:
            (self._folder / f"{name}.npz").write_bytes(packed)  # the other file says that this one is whole
        told = {"digest": step.digest, "action": step.action, "table": step.table, "detail": step.detail}
        write_text(self._folder / f"{name}.json", json.dumps(told))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        yield  # a step that is done and not noted is done again, into a folder of its own


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    cause = next((line for line in lines if line.startswith("Caused by:")), "")
    return ((lines[0] if lines else type(error).__name__) + (f" ({cause})" if cause else ""))[:400]
