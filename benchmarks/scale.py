"""Reading, mining, applying and explaining at 10⁵ … 10⁸ facts within a limit of memory: what it takes and costs.

    python benchmarks/scale.py --facts 100000 1000000 10000000 --save results/scale.json
    python benchmarks/scale.py --facts 100000000 --ways "SQL by hand" "DuckDB file" --save results/scale.json

On DuckDB beside SQL written by hand (`chains_by_hand`), on Spark in this process and on a cluster of two workers, over
the same made-up graph (`made_graph`). Each is measured in a process of its own and kept in the file at once; what the
file has already is not measured again. Tables of all that the file has follow, with a cost model: CPU, bytes and
shuffled bytes of each stage and statement, extrapolated to 10⁹ and 10¹⁰ facts.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chains_by_hand import run_by_hand
from made_graph import choose_rules, write_graph
from measure import machine, peak_memory, print_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STAGES = ("read", "mine", "apply", "explain")
Measured = dict[str, Any]
_TABLE = re.compile(r"^(?:CREATE OR REPLACE (?:TEMP )?TABLE|INSERT INTO) (\w+)")
_FOLDER = re.compile(r"/tables/(\w+)-[0-9a-f]{8}-[0-9]+")
_HOUR = 3600


class Stages:
    """What is measured of the library: stages, and the statements within each."""

    def __init__(self, size_of: Callable[[], int]) -> None:
        self.stages: list[Measured] = []
        self.statements: list[Measured] = []
        self.size_of = size_of

    @contextmanager
    def time(self, stage: str) -> Iterator[list[int]]:
        """Time a stage; the list that is given takes its rows."""
        start, cpu, began, rows = time.perf_counter(), _count_cpu(), time.time(), [0]
        yield rows
        taken = {"seconds": time.perf_counter() - start, "cpu": _count_cpu() - cpu, "rows": rows[0]}
        self.stages.append({"stage": stage, **taken, "bytes": self.size_of(), "from": began, "to": time.time()})


def run_library(stages: Stages, open_facts: Callable[[], Any], seed: int) -> None:
    """Do all of it with the library: ten planted rules are applied, and one fact that they infer is explained."""
    import rulewright as rw
    from rulewright.logic import Atom, Rule, Variable, path_atoms
    from rulewright.logic.chain import Step

    miner = rw.RuleMiner(
        max_length=2, min_confidence=0.01, confidence="pairs", constants=False, unary=False, thresholds=False
    )
    ends = Variable("X"), Variable("Z")
    rules = rw.RuleSet(
        [
            Rule(Atom(planted.head, ends), tuple(path_atoms([Step(*step) for step in planted.body], *ends)))
            for planted in choose_rules(seed)
        ]
    )
    with stages.time("read") as rows:
        kb = open_facts()
        rows[0] = kb.n_facts
    with kb:
        with stages.time("mine") as rows:
            rows[0] = len(miner.fit(kb).rules_)
        with stages.time("apply") as rows:
            inferred = rw.apply(rules, kb)
            rows[0] = len(inferred)
        first = inferred[0]
        with stages.time("explain") as rows:
            rows[0] = len(rw.explain(rules, kb, (first.predicate, *first.args)).proofs)
        assert rows[0], "the fact that was explained follows from the rules"


def measure_by_hand(path: Path, folder: Path, seed: int, megabytes: int) -> Measured:
    """Measure SQL written by hand."""
    notes = run_by_hand(path, folder, seed, megabytes)
    stages: dict[str, Measured] = {}
    for name, _, seconds, cpu, rows in notes:
        stage = {"encode": "read", "apply": "apply", "explain": "explain", "read": "read"}.get(name, "mine")
        known = stages.setdefault(stage, {"stage": stage, "seconds": 0.0, "cpu": 0.0, "rows": 0, "bytes": 0})
        known |= {"seconds": known["seconds"] + seconds, "cpu": known["cpu"] + cpu, "rows": rows}
    statements = [{"stage": note[0], "statement": note[1], "cpu": note[3], "seconds": note[2]} for note in notes]
    stages["explain"]["bytes"] = (folder / "graph.duckdb").stat().st_size
    return {"stages": [*stages.values()], "statements": statements, "peak_mb": peak_memory()}


def measure_duckdb(path: Path, folder: Path, seed: int, megabytes: int) -> Measured:
    """Measure the library on a database file, each statement too."""
    import rulewright as rw
    from rulewright.engine import Engine

    database = folder / "graph.duckdb"
    stages = Stages(lambda: sum(file.stat().st_size for file in folder.glob("graph.duckdb*")))
    execute = Engine._execute

    def measure(self: Engine, statement: str, incoming: Any = None) -> Any:
        start, cpu = time.perf_counter(), time.process_time()
        result = execute(self, statement, incoming)
        made = _TABLE.match(statement)
        name = made[1] if made else _name_counts(re.findall(r"(?:FROM|JOIN) (\w+)", statement))
        taken = {"cpu": time.process_time() - cpu, "seconds": time.perf_counter() - start}
        stages.statements.append({"stage": STAGES[len(stages.stages)], "statement": name, **taken})
        return result

    Engine._execute = measure  # type: ignore[method-assign, assignment]
    # What Python and DuckDB hold beside its buffers is an eighth of the limit, or less
    limit = f"{megabytes * 7 // 8}MB"
    run_library(stages, partial(rw.store_facts, path, database=database, memory_limit=limit), seed)
    return {"stages": stages.stages, "statements": stages.statements, "peak_mb": peak_memory()}


def measure_spark(path: Path, folder: Path, seed: int, megabytes: int, *, workers: int = 0) -> Measured:
    """Measure the library on Spark: in this process's Java, or on a cluster of so many workers; by its event log."""
    import rulewright as rw

    (folder / "events").mkdir()
    with ExitStack() as stack:
        settings = {"spark.master": "local[2]", "spark.driver.memory": f"{megabytes * 7 // 8}m"}
        if workers:
            sys.path.append(str(Path(__file__).parents[1] / "examples"))
            from spark_cluster import SparkCluster

            memory = f"{(megabytes * 7 // 8 - 1024) // workers}m"
            cluster = stack.enter_context(SparkCluster(workers=workers, cores=1, memory=memory))
            settings = cluster.driver_settings() | {"spark.driver.memory": "1g"}
        session = stack.enter_context(_open_session(settings, folder))
        stages = Stages(lambda: _size_of(folder / "tables"))
        run_library(stages, partial(rw.store_facts, path, engine=session, folder=folder / "tables"), seed)
        driver = _weigh_driver(session)
    return {
        "stages": stages.stages,
        "statements": _read_events(folder / "events", stages.stages),
        "peak_mb": driver["python_mb"] + driver["java_mb"],
        "driver": driver,
    }


@contextmanager
def _open_session(settings: dict[str, str], folder: Path) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    settings = settings | {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder / "spilled"),
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "32m",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }
    session = SparkSession.builder.appName("scale").config(map=settings).getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def _weigh_driver(session: SparkSession) -> dict[str, float]:
    """Return the megabytes that the driver held at most, in Python and in Java, and what Java needs at the end."""
    context: Any = session.sparkContext
    status = Path(f"/proc/{context._gateway.proc.pid}/status").read_text()
    (held,) = re.findall(r"VmHWM:\s*(\d+)", status)
    runtime = context._jvm.java.lang.Runtime.getRuntime()
    context._jvm.java.lang.System.gc()
    needed = (runtime.totalMemory() - runtime.freeMemory()) / 2**20
    return {"python_mb": peak_memory(), "java_mb": int(held) / 1024, "java_needed_mb": needed}


def _read_events(folder: Path, stages: Sequence[Measured]) -> list[Measured]:
    """Return CPU and bytes of each statement by stage and table, from what Spark notes of its tasks."""
    statement_of_execution: dict[str, tuple[str, str]] = {}
    execution_of_stage: dict[int, str] = {}
    totals: dict[tuple[str, str], Measured] = defaultdict(
        lambda: dict.fromkeys(("cpu", "read", "written", "shuffled", "spilled"), 0.0)
    )
    (file,) = folder.iterdir()
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            kind = event["Event"].rsplit(".", 1)[-1]
            if kind == "SparkListenerSQLExecutionStart":
                moment = event["time"] / 1000
                stage = next((known["stage"] for known in stages if moment <= known["to"]), "explain")
                plan = event["physicalPlanDescription"]
                written = _FOLDER.search(plan.split("Arguments: file:", 1)[-1][:300])
                is_write = "InsertIntoHadoopFsRelationCommand" in plan
                name = written[1] if written and is_write else _name_counts(_FOLDER.findall(plan))
                statement_of_execution[str(event["executionId"])] = stage, name
            elif kind == "SparkListenerJobStart":
                execution = event.get("Properties", {}).get("spark.sql.execution.id", "")
                execution_of_stage |= dict.fromkeys(event["Stage IDs"], execution)
            elif kind == "SparkListenerTaskEnd" and event.get("Task Metrics"):
                metrics = event["Task Metrics"]
                key = statement_of_execution.get(execution_of_stage.get(event["Stage ID"], ""), ("read", "other"))
                total = totals[key]
                total["cpu"] += metrics["Executor CPU Time"] / 1e9
                total["read"] += metrics["Input Metrics"]["Bytes Read"]
                total["written"] += metrics["Output Metrics"]["Bytes Written"]
                total["shuffled"] += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
                total["spilled"] += metrics["Disk Bytes Spilled"]
    return [{"stage": stage, "statement": name, **total} for (stage, name), total in totals.items()]


def _name_counts(tables: Sequence[str]) -> str:
    """Return what to call a statement whose rows come to Python."""
    return f"counts from {', '.join(sorted({*tables}))}" if tables else "other"


def _size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _count_cpu() -> float:
    """Return the seconds of all cores that this process has used, with those that it has started."""
    total = time.process_time()
    for pid in _list_children():
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def _list_children() -> list[int]:
    """Return the processes below this one that are running."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[1])
    below, waiting = [], [os.getpid()]
    while waiting:
        own = waiting.pop()
        children = [pid for pid, parent in parents.items() if parent == own]
        below += children
        waiting += children
    return below


WAYS: dict[str, Callable[[Path, Path, int, int], Measured]] = {
    "SQL by hand": measure_by_hand,
    "DuckDB file": measure_duckdb,
    "Spark local[2]": measure_spark,
    "Spark, two workers": partial(measure_spark, workers=2),
}


class Kept:
    """What has been measured, in a file where there is one."""

    def __init__(self, path: str | None) -> None:
        self.path = None if path is None else Path(path)
        self.rows: list[Measured] = []
        if self.path is not None and self.path.exists():
            self.rows = json.loads(self.path.read_text(encoding="utf-8"))["measured"]

    def find(self, way: str, facts: int) -> Measured | None:
        """Return what a way took for so many facts, if it was measured."""
        return next((row for row in self.rows if (row["way"], row["facts"]) == (way, facts)), None)

    def add(self, row: Measured) -> None:
        """Keep what was measured, in place of what was before."""
        before = self.find(row["way"], row["facts"])
        self.rows = [known for known in self.rows if known is not before] + [row]
        self.rows.sort(key=lambda known: (known["facts"], [*WAYS].index(known["way"])))
        if self.path is not None:
            text = json.dumps({"machine": machine(), "measured": self.rows}, indent=1, ensure_ascii=False)
            self.path.write_text(text + "\n", encoding="utf-8")


def _total(row: Measured, what: str) -> float:
    return float(sum(stage.get(what, 0) for stage in row["stages"]))


def _stage(row: Measured, name: str, what: str) -> float:
    return float(sum(stage[what] for stage in row["stages"] if stage["stage"] == name))


def show_seconds(kept: Kept) -> None:
    """Print what each way took at each size."""
    rows: list[tuple[object, ...]] = []
    for row in kept.rows:
        by_hand = kept.find("SQL by hand", row["facts"])
        times = _total(row, "seconds") / _total(by_hand, "seconds") if by_hand else float("nan")
        seconds = (_stage(row, stage, "seconds") for stage in STAGES)
        cost = _total(row, "cpu") if "workers" not in row["way"] else float("nan")  # not of processes of their own
        rows.append((f"{row['facts']:,}", row["way"], *seconds, _total(row, "seconds"), times, cost, row["peak_mb"]))
    columns = ("facts", "way", *STAGES, "all", "× by hand", "CPU", "peak MB")
    print_table("Seconds", columns, rows)
    drivers = [
        (f"{row['facts']:,}", row["way"], *(row["driver"][name] for name in ("python_mb", "java_mb", "java_needed_mb")))
        for row in kept.rows
        if "driver" in row
    ]
    columns = ("facts", "way", "Python, most", "Java, most", "Java, needed at the end")
    print_table("Megabytes of the driver of Spark", columns, drivers)


def _cost(row: Measured, stage: str, what: str) -> float:
    """Return the CPU seconds or the bytes of a stage."""
    if what == "cpu" and "driver" not in row:
        return _stage(row, stage, "cpu")
    return float(sum(known.get(what, 0) for known in row["statements"] if known["stage"] == stage))


def show_costs(kept: Kept) -> None:
    """Print what a fact costs in each stage, and the statements that cost most."""
    rows: list[tuple[object, ...]] = []
    for row in kept.rows:
        if row["way"] == "SQL by hand":
            continue
        for stage in STAGES[:3]:
            bytes_of = [_cost(row, stage, what) / row["facts"] for what in ("read", "written", "shuffled")]
            kept_bytes = _stage(row, stage, "bytes") / row["facts"]
            cpu = 1e6 * _cost(row, stage, "cpu") / row["facts"]
            rows.append((f"{row['facts']:,}", row["way"], stage, cpu, *bytes_of, kept_bytes))
    columns = ("facts", "way", "stage", "CPU µs", "bytes read", "written", "shuffled", "kept on disk")
    print_table("What a fact costs (bytes read, written and shuffled are those of Spark)", columns, rows)
    for way in WAYS:
        sizes = [row for row in kept.rows if row["way"] == way]
        if not sizes or way == "SQL by hand":
            continue
        row = sizes[-1]
        totals: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0, 0])
        for statement in row["statements"]:
            total = totals[statement["stage"], statement["statement"]]
            total[0] += statement["cpu"]
            total[1] += statement.get("shuffled", 0)
            total[2] += 1
        whole = sum(total[0] for total in totals.values())
        best = sorted(totals.items(), key=lambda item: -item[1][0])[:12]
        lines = [(*key, 1e6 * cpu / row["facts"], cpu / whole, size / row["facts"]) for key, (cpu, size, _) in best]
        columns = ("stage", "statement", "CPU µs a fact", "share", "bytes shuffled a fact")
        print_table(f"Statements that cost most: {way}, {row['facts']:,} facts", columns, lines)


def extrapolate(sizes: Sequence[float], costs: Sequence[float], wanted: float, *, grows: bool = True) -> float:
    """Return the cost at another size, ten times the last or a hundred times.

    What one more fact costs is taken from the last two sizes, and where it ``grows`` with the graph by how much from
    the two before; it is not taken to fall. So what a statement costs however little it does counts once.
    """
    further = [(b - a) / (n - m) for m, n, a, b in zip(sizes, sizes[1:], costs, costs[1:], strict=False)]
    growth = max(further[-1] / further[-2], 1.0) if grows and len(further) > 1 and further[-2] > 0 else 1.0
    size, cost, one = sizes[-1], costs[-1], further[-1]
    while size < wanted * 0.99:
        one *= growth
        cost += one * 9 * size
        size *= 10
    return cost


def show_model(kept: Kept) -> None:
    """Print the cost of larger graphs and the clusters that they need, and how well the model foretold the largest."""
    rows: list[tuple[object, ...]] = []
    for way in ("DuckDB file", "Spark local[2]"):
        measured = [row for row in kept.rows if row["way"] == way]
        if len(measured) < 3:
            continue
        sizes = [float(row["facts"]) for row in measured]
        last = measured[-1]
        cpu = [_total(row, "cpu") for row in measured]
        shuffled = [sum(_cost(row, stage, "shuffled") for stage in STAGES) for row in measured]
        disk = [max(stage["bytes"] for stage in row["stages"]) for row in measured]
        used = cpu[-1] / (2 * _total(last, "seconds"))  # of two cores
        check = extrapolate(sizes[:-1], cpu[:-1], sizes[-1]) / cpu[-1]
        rows.append(
            (way, f"{last['facts']:.0e}", "measured", cpu[-1] / _HOUR, "", shuffled[-1] / 1e12, disk[-1] / 1e12)
        )
        rows.append((way, f"{last['facts']:.0e}", f"foretold: {check:.2f} of it", check * cpu[-1] / _HOUR, "", "", ""))
        for wanted in (1e8, 1e9, 1e10):
            if wanted <= sizes[-1]:
                continue
            hours = extrapolate(sizes, cpu, wanted) / _HOUR
            # a graph that is small is sent to all executors and not shuffled: how the bytes of a fact grow says nothing
            volumes = (extrapolate(sizes, values, wanted, grows=False) / 1e12 for values in (shuffled, disk))
            rows.append((way, f"{wanted:.0e}", "extrapolated", hours, hours / used, *volumes))
    columns = ("way", "facts", "", "CPU hours", "cores to end in an hour", "shuffled TB", "tables TB")
    print_table("A cost model: reading, mining of two steps, applying ten rules", columns, rows)


def measure_way(way: str, path: Path, seed: int, megabytes: int) -> Measured:
    """Return what a way took, in a process of its own."""
    command = [sys.executable, __file__, "--way", way, "--path", str(path), "--seed", str(seed)]
    told = subprocess.run([*command, "--memory", str(megabytes)], check=True, stdout=subprocess.PIPE, text=True).stdout
    measured: Measured = json.loads(told.splitlines()[-1])
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--facts", type=int, nargs="*", default=[100_000, 1_000_000], help="sizes of the graph")
    parser.add_argument("--memory", type=int, default=8000, help="megabytes that a way may hold")
    parser.add_argument("--folder", type=Path, help="where graphs and databases are kept; 10⁸ facts need 30 GB")
    parser.add_argument("--parquet", action="store_true", help="read Parquet files and not a TSV")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", metavar="FILE", help="keep what is measured as JSON, and go on from what is there")
    parser.add_argument("--anew", action="store_true", help="measure also what the file has")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=[*WAYS], help="which to measure")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        with tempfile.TemporaryDirectory(dir=options.path.parent) as folder:
            measured = WAYS[options.way](options.path, Path(folder), options.seed, options.memory)
        print(json.dumps(measured))
        return
    print(machine())
    kept = Kept(options.save)
    for facts in options.facts:
        ways = [way for way in options.ways if options.anew or kept.find(way, facts) is None]
        if not ways:
            continue
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            path = Path(folder, f"facts_{facts}" if options.parquet else f"facts_{facts}.tsv")
            write_graph(path, facts, options.seed)
            for way in ways:
                row = measure_way(way, path, options.seed, options.memory)
                told = {"way": way, "facts": facts, "seed": options.seed, "memory_mb": options.memory}
                command = f"python benchmarks/scale.py --facts {facts} --memory {options.memory} --ways '{way}'"
                kept.add(told | {"command": command, "machine": machine(), **row})
                print(f"{facts:,} facts, {way}: {_total(row, 'seconds'):.1f} s", flush=True)
    show_seconds(kept)
    show_costs(kept)
    show_model(kept)


if __name__ == "__main__":
    main()
