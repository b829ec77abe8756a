"""A small Spark cluster on this machine: a master and workers of its own, which only this machine can reach.

    python examples/spark_cluster.py start      # prints the address, spark://127.0.0.1:PORT, once the workers are there
    python examples/spark_cluster.py status
    python examples/spark_cluster.py stop

It is what tests and trials need: separate processes, as on real machines, of which any may be killed. All come from the
pyspark package (``pip install -c constraints.txt -e '.[spark]'``) and need Java 17 or newer and Linux. Whoever has an
account on this machine can use the cluster: it asks for no password.

In Python::

    with SparkCluster(workers=2) as cluster:
        spark = SparkSession.builder.config(map=cluster.driver_settings()).getOrCreate()
        ...
        cluster.kill_worker(0)
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

LOOPBACK = "127.0.0.1"
MINIMUM_JAVA = 17
MINIMUM_MEMORY = 512  # in MiB; executors with less do not start
STATE_FILE = "cluster.json"
# Master and workers only pass messages on: little memory is enough, and without the optimising compiler they start in
# half the time.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SMALL_DAEMON = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": QUICK_START}
# A Connect server plans all queries and gathers their answers: it is a driver.
DRIVER_DAEMON = {"SPARK_DAEMON_MEMORY": "1g"}


class ClusterError(RuntimeError):
    """The cluster cannot do what it was asked for; the message is one line that says why and what to do."""


@dataclass(frozen=True)
class ProcessRow:
    """What Linux says of a process. A pid may be given again to another process; with ``started`` it is unique."""

    pid: int
    parent: int
    session: int
    started: int


@dataclass(frozen=True)
class Daemon:
    """A process that leads a session of its own, to which all that it starts belongs too, even when it has died."""

    pid: int
    started: int


class SparkCluster:
    """A master and its workers, each with one executor for an application; a context manager, or ``start``, ``stop``.

    ``folder`` gets the logs, and a file by which another process finds the cluster (``SparkCluster.find(folder)``).
    Without one a temporary folder is used and removed. ``memory`` and ``cores`` are those of each worker. With
    ``connect`` a Spark Connect server runs on the cluster; it is an application like others, and takes all cores.
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        *,
        workers: int = 2,
        cores: int = 1,
        memory: str = "1g",
        connect: bool = False,
        patience: float = 120.0,
    ) -> None:
        if workers < 1 or cores < 1:
            raise ClusterError(f"a cluster needs at least one worker with one core, not {workers} with {cores}")
        amount = re.fullmatch(r"(\d+)([mg])", memory)
        if amount is None or int(amount[1]) * {"m": 1, "g": 1024}[amount[2]] < MINIMUM_MEMORY:
            raise ClusterError(f"memory must be such as 700m or 2g, and at least {MINIMUM_MEMORY}m, not {memory}")
        self.folder = None if folder is None else Path(folder).resolve()
        self.worker_count = workers
        self.cores = cores
        self.memory = memory
        self.has_connect = connect
        self.patience = patience
        self.address = ""
        self.connect_address = ""
        self.page = ""
        self._is_temporary = folder is None
        self._daemons: dict[str, Daemon] = {}
        self._children: list[subprocess.Popen[bytes]] = []

    @classmethod
    def find(cls, folder: str | Path) -> SparkCluster:
        """Return the cluster that another process started in a folder, alive or not."""
        try:
            state = json.loads((Path(folder) / STATE_FILE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ClusterError(f"no cluster was started in {folder}") from None
        cluster = cls(
            folder,
            workers=state["workers"],
            cores=state["cores"],
            memory=state["memory"],
            connect=bool(state["connect_address"]),
        )
        cluster.address, cluster.connect_address, cluster.page = (
            state[name] for name in ("address", "connect_address", "page")
        )
        cluster._daemons = {name: Daemon(**daemon) for name, daemon in state["daemons"].items()}
        return cluster

    def __enter__(self) -> SparkCluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> SparkCluster:
        """Start every process and return when all workers have registered; leave nothing behind when that fails."""
        find_java()
        find_spark()
        self._take_folder()
        try:
            self._start_master()
            names = [f"worker-{index}" for index in range(self.worker_count)]
            for name in names:
                self._start_worker(name)
            for name in names:
                self._read_log(name, "Successfully registered with master")
            if self.has_connect:
                self._start_connect()
        except BaseException:  # Ctrl-C too
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End every process of the cluster, executors too. Logs stay, unless the folder is a temporary one."""
        for number, seconds in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 30.0)):
            if end_sessions(self._daemons.values(), number, seconds):
                break
        else:
            raise ClusterError(f"processes of the cluster do not end: {self.list_pids()}")
        for child in self._children:
            child.wait()
        self._children.clear()
        self._daemons.clear()
        if self.folder is not None:
            (self.folder / STATE_FILE).unlink(missing_ok=True)
            shutil.rmtree(self.folder if self._is_temporary else self.folder / "scratch", ignore_errors=True)
        if self._is_temporary:
            self.folder = None

    @property
    def workers(self) -> list[int | None]:
        """The pid of each worker, None for one that has died."""
        alive = {Daemon(row.pid, row.started) for row in list_processes()}
        daemons = (self._daemons[f"worker-{index}"] for index in range(self.worker_count))
        return [daemon.pid if daemon in alive else None for daemon in daemons]

    def list_executors(self, index: int) -> list[int]:
        """Return the pids of what a worker has started: its executor, and the executor's Python processes."""
        daemon = self._worker(index)
        return [row.pid for row in list_members([daemon]) if row.pid != daemon.pid]

    def list_pids(self) -> list[int]:
        """Return the pids of all living processes of the cluster."""
        return [row.pid for row in list_members(self._daemons.values())]

    def kill_worker(self, index: int) -> None:
        """End a worker and its executor as a power cut would (SIGKILL)."""
        if not end_sessions([self._worker(index)], signal.SIGKILL, 30.0):
            raise ClusterError(f"worker {index} does not end")

    def kill_executor(self, index: int) -> None:
        """End the executor of a worker (SIGKILL). The worker lives on, and starts another one when the master asks."""
        pids = self.list_executors(index)
        if not pids:
            raise ClusterError(f"worker {index} has no executor: no application runs on it")
        for pid in pids:
            send_signal(pid, signal.SIGKILL)

    def restart_worker(self, index: int) -> None:
        """Start a worker anew, after ending what is left of it, and return when it has registered."""
        self.kill_worker(index)
        name = f"worker-{index}"
        start = self._log(name).stat().st_size  # the log goes on, and what the old worker wrote is not of the new one
        self._start_worker(name)
        self._read_log(name, "Successfully registered with master", start)

    def restart_dead_workers(self) -> None:
        """Start every worker anew that has died."""
        for index, pid in enumerate(self.workers):
            if pid is None:
                self.restart_worker(index)

    def driver_settings(self) -> dict[str, str]:
        """Return the settings of a ``SparkSession`` that runs on this cluster and takes all of it.

        Spark finds the Python of its workers by an environment variable alone: where Python functions run on the
        cluster, set ``PYSPARK_PYTHON`` to ``sys.executable``, and ``SPARK_LOCAL_IP`` to 127.0.0.1 in any case.
        """
        scratch = self._folder() / "scratch"
        return {
            "spark.master": self.address,
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.executor.cores": str(self.cores),
            "spark.executor.memory": self.memory,
            "spark.local.dir": str(scratch / "driver"),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.ui.enabled": "false",
            # On one machine a connection that is refused means a process that died; there is nothing to wait for.
            "spark.shuffle.io.maxRetries": "1",
            "spark.shuffle.io.retryWait": "100ms",
        }

    def _folder(self) -> Path:
        if self.folder is None:
            raise ClusterError("the cluster has not been started")
        return self.folder

    def _log(self, name: str) -> Path:
        return self._folder() / f"{name}.log"

    def _worker(self, index: int) -> Daemon:
        if f"worker-{index}" not in self._daemons:
            raise ClusterError(f"there is no worker {index}: they are numbered from 0 to {self.worker_count - 1}")
        return self._daemons[f"worker-{index}"]

    def _take_folder(self) -> None:
        if self.folder is None:
            self.folder = Path(tempfile.mkdtemp(prefix="spark-cluster-"))
        elif (self.folder / STATE_FILE).exists() and (pids := SparkCluster.find(self.folder).list_pids()):
            raise ClusterError(f"a cluster runs already in {self.folder}, with the processes {pids}: stop it first")
        (self.folder / "scratch").mkdir(parents=True, exist_ok=True)
        for log in self.folder.glob("*.log"):
            log.unlink()

    def _start_master(self) -> None:
        # Port 0: the system picks free ports, and the log says which; a port picked here could be taken meanwhile.
        master = "org.apache.spark.deploy.master.Master"
        self._launch("master", ["spark-class", master, *bind_anywhere()], SMALL_DAEMON)
        self.address = self._read_log("master", rf"Starting Spark master at (spark://{LOOPBACK}:\d+)")
        port = self._read_log("master", r"Bound MasterWebUI to .* started at http://\S+:(\d+)")
        self.page = f"http://{LOOPBACK}:{port}"
        self._read_log("master", "I have been elected leader")

    def _start_worker(self, name: str) -> None:
        options = ["--cores", str(self.cores), "--memory", self.memory]
        options += ["--work-dir", str(self._folder() / "scratch" / name)]
        worker = "org.apache.spark.deploy.worker.Worker"
        self._launch(name, ["spark-class", worker, *bind_anywhere(), *options, self.address], SMALL_DAEMON)

    def _start_connect(self) -> None:
        settings = self.driver_settings() | {
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": "0",
        }
        options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        server = "org.apache.spark.sql.connect.service.SparkConnectServer"
        self._launch("connect", ["spark-submit", "--class", server, *options], DRIVER_DAEMON)
        port = self._read_log("connect", r"Spark Connect server started at: \S+?:(\d+)")
        self.connect_address = f"sc://{LOOPBACK}:{port}"
        self._write_state()

    def _launch(self, name: str, command: list[str], variables: dict[str, str]) -> None:
        """Start a daemon in a session of its own, and write down at once by what it can be found."""
        home = find_spark()
        folder = self._folder()
        # Spark reads many variables; those of another Spark on this machine must not change this one.
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
        environment |= variables | {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_LOCAL_DIRS": str(folder / "scratch"),
            "SPARK_LAUNCHER_OPTS": QUICK_START,
            # The master's second way in, by HTTP, is not needed, and its port is fixed.
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        }
        with self._log(name).open("ab") as log:
            child = subprocess.Popen(
                [str(home / "bin" / command[0]), *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=folder / "scratch",
                start_new_session=True,
            )
        self._children.append(child)
        # The script becomes the Java process, so that its pid is that of the daemon.
        row = next((row for row in list_processes() if row.pid == child.pid), None)
        if row is None:
            self._fail(name, "ended at once")
        self._daemons[name] = Daemon(row.pid, row.started)
        self._write_state()

    def _read_log(self, name: str, pattern: str, start: int = 0) -> str:
        """Wait until a line of a daemon's log matches; return the pattern's first group, or what matched."""
        log = self._log(name)
        daemon = self._daemons[name]
        deadline = time.monotonic() + self.patience
        while True:
            is_alive = any(row.pid == daemon.pid for row in list_members([daemon]))
            match = re.search(pattern, log.read_bytes()[start:].decode(errors="replace"))
            if match:
                return match[1] if match.re.groups else match[0]
            if not is_alive:
                self._fail(name, "ended while it started")
            if time.monotonic() > deadline:
                self._fail(name, f"was not ready within {self.patience:g} seconds")
            time.sleep(0.05)

    def _fail(self, name: str, what: str) -> NoReturn:
        lines = self._log(name).read_text(encoding="utf-8", errors="replace").splitlines()
        errors = [line for line in lines if re.search(r"error|exception", line, re.IGNORECASE)]
        said = (errors or lines or ["nothing"])[-1].strip()
        place = "" if self._is_temporary else f" ({self._log(name)})"
        raise ClusterError(f"Spark's {name} {what}; its log{place} says: {said}")

    def _write_state(self) -> None:
        state = {
            "address": self.address,
            "connect_address": self.connect_address,
            "page": self.page,
            "workers": self.worker_count,
            "cores": self.cores,
            "memory": self.memory,
            "daemons": {name: asdict(daemon) for name, daemon in self._daemons.items()},
        }
        (self._folder() / STATE_FILE).write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")


def bind_anywhere() -> list[str]:
    """Return the options by which a master or worker listens on loopback alone, at ports that the system picks."""
    return ["--host", LOOPBACK, "--port", "0", "--webui-port", "0"]


def find_java() -> Path:
    """Return the Java that Spark will use; fail where there is none or it is too old."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    remedy = f"apt-get install openjdk-{MINIMUM_JAVA}-jre-headless"
    if found is None:
        where = f"JAVA_HOME={home} has none" if home else "there is none"
        raise ClusterError(f"Spark needs Java {MINIMUM_JAVA} or newer, and {where}: {remedy}")
    said = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', said)
    if version is None or int(version[1]) < MINIMUM_JAVA:
        what = f"is {version[1]}" if version else "does not tell its version"
        raise ClusterError(f"Spark needs Java {MINIMUM_JAVA} or newer, and {found} {what}: {remedy}")
    return Path(found)


def find_spark() -> Path:
    """Return the folder of Spark in the pyspark package; fail where it is not installed, or only its client is."""
    remedy = "pip install -c constraints.txt -e '.[spark]'"
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ClusterError(f"Spark comes with the Python package pyspark, and it is not installed: {remedy}")
    home = Path(spec.origin).parent
    if not (home / "bin" / "spark-class").is_file() or not (home / "jars").is_dir():
        raise ClusterError(f"the pyspark in {home} is only a client, without Spark itself: {remedy}")
    return home


def list_processes() -> Iterator[ProcessRow]:
    """Yield the living processes of this machine."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            continue
        fields = text.rpartition(")")[2].split()  # the name before it, in brackets, may have anything in it
        state, parent, session, threads, started = (fields[position] for position in (0, 1, 3, 17, 19))
        # Dead, and only waiting for its parent to ask; but while other threads of it end, its ports are still taken.
        if state not in "ZX" or int(threads) > 1:
            yield ProcessRow(int(path.parent.name), int(parent), int(session), int(started))


def list_members(daemons: Iterable[Daemon]) -> list[ProcessRow]:
    """Return the living processes of the daemons' sessions."""
    started = {daemon.pid: daemon.started for daemon in daemons}
    rows = list(list_processes())
    # A pid that was given to another process since is not the daemon's, and so its session is not ours.
    foreign = {row.pid for row in rows if row.pid in started and row.started != started[row.pid]}
    return [row for row in rows if row.session in started and row.session not in foreign]


def end_sessions(daemons: Iterable[Daemon], number: signal.Signals, seconds: float) -> bool:
    """Send a signal to every process of the sessions, and to those that they start meanwhile; say if all ended."""
    daemons = list(daemons)
    deadline = time.monotonic() + seconds
    told: set[int] = set()
    while members := list_members(daemons):
        # The daemon first: it would start anew what it sees ending.
        for row in sorted(members, key=lambda row: row.pid != row.session):
            if row.pid not in told:
                send_signal(row.pid, number)
                told.add(row.pid)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def send_signal(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have ended meanwhile."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def print_status(cluster: SparkCluster) -> None:
    alive = set(cluster.list_pids())
    print(f"address  {cluster.address}")
    if cluster.connect_address:
        print(f"connect  {cluster.connect_address}")
    print(f"page     {cluster.page}")
    for name, daemon in cluster._daemons.items():
        print(f"{name:<9}{daemon.pid} {'runs' if daemon.pid in alive else 'has ended'}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Start and stop a Spark cluster that only this machine can reach.")
    commands = parser.add_subparsers(dest="command")
    for command, text in (
        ("start", "start it and print its address"),
        ("status", "say which of its processes run"),
        ("stop", "end all of its processes"),
    ):
        options = commands.add_parser(command, help=text, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
        options.add_argument("--folder", type=Path, default=Path("build/spark-cluster"), help="logs and pids")
        if command == "start":
            options.add_argument("--workers", type=int, default=2, help="how many")
            options.add_argument("--cores", type=int, default=1, help="of each worker")
            options.add_argument("--memory", default="1g", help="of each worker")
            options.add_argument("--connect", action="store_true", help="run a Spark Connect server on it too")
    chosen = parser.parse_args(arguments)
    if chosen.command is None:
        parser.print_help()
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a start that is ended leaves nothing behind
    try:
        if chosen.command == "start":
            cluster = SparkCluster(
                chosen.folder,
                workers=chosen.workers,
                cores=chosen.cores,
                memory=chosen.memory,
                connect=chosen.connect,
            ).start()
            print(cluster.address)
            if cluster.connect_address:
                print(cluster.connect_address)
        elif chosen.command == "stop":
            SparkCluster.find(chosen.folder).stop()
        else:
            print_status(SparkCluster.find(chosen.folder))
    except ClusterError as error:
        print(f"spark_cluster: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
