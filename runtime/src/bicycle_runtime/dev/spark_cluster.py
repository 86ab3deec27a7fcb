"""A local Spark cluster: a master, and worker hosts on loopback addresses.

Spark takes each address for a host: tasks, shuffle files and local state are placed and lost as on
many machines. What is known of a cluster stands in its folder, so any process can find, change or
stop it: ``cluster.json`` names master and workers, each host has a folder with its log, its work
and Spark's local files. Every process carries the folder in a variable of its environment, and so
do the executors and Python workers that it starts: nothing is left behind, however the cluster
ended. It is no model for one in production.

``ClusterState`` is what a master says of itself on its page: workers with their sizes, and jobs.
"""

from __future__ import annotations

import contextlib
import random
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bicycle_runtime.base.java import JAVA_MAJOR_MIN, find_java, java_major, java_version
from bicycle_runtime.base.processes import kill_all, send_signal, wait_for_end
from bicycle_runtime.base.spark_masters import master_status
from bicycle_runtime.dev.cluster_processes import KILL_TIMEOUT_S, ClusterProcesses
from bicycle_runtime.dev.cluster_record import (
    MASTER_HOST,
    ClusterOptions,
    ClusterRecord,
    SparkProcess,
    host_address,
    read_record,
    write_record,
)
from bicycle_runtime.dev.errors import (
    CLUSTER_CONFLICT,
    CLUSTER_HOST_UNUSABLE,
    CLUSTER_NOT_STARTED,
    PORT_TAKEN,
    ClusterMissingError,
)
from bicycle_runtime.dev.ports import choose_port, is_free
from bicycle_runtime.dev.waiting import hold_lock, indent_lines, last_lines, wait_until
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.random_source import system_random

_TIMEOUT_S = 5.0
_ALIVE = "ALIVE"

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """A worker: ``state`` is Spark's word, ALIVE or DEAD; memory is in MiB."""

    host: str
    state: str
    cores: int
    cores_used: int
    memory_mb: int
    memory_used_mb: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedJob:
    """A job that the master serves, with the cores that it has."""

    id: str
    name: str
    cores: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """Workers by host, including dead ones, and running jobs."""

    hosts: tuple[HostState, ...]
    jobs: tuple[ServedJob, ...]

    def alive_hosts(self) -> set[str]:
        """Return the hosts that can take work."""
        return {host.host for host in self.hosts if host.state == _ALIVE}


def read_state(host: str, port: int) -> ClusterState:
    """Return the state of a master, read from its page.

    Raises:
        OSError: it does not answer.
        ValueError: what it answers is not what a Spark master says.
    """
    data = master_status(host, port, timeout_s=_TIMEOUT_S)
    try:
        return ClusterState(
            hosts=_hosts(data["workers"]),
            jobs=tuple(
                ServedJob(id=job["id"], name=job["name"], cores=job["cores"])
                for job in data["activeapps"]
            ),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"{error} is missing") from error


def _hosts(workers: list[dict[str, object]]) -> tuple[HostState, ...]:
    """Return one entry per host: the worker that is alive there, else one that was."""
    found: dict[str, HostState] = {}
    for worker in sorted(workers, key=lambda worker: worker["state"] == _ALIVE):
        state = HostState(
            host=str(worker["host"]),
            state=str(worker["state"]),
            cores=int(str(worker["cores"])),
            cores_used=int(str(worker["coresused"])),
            memory_mb=int(str(worker["memory"])),
            memory_used_mb=int(str(worker["memoryused"])),
        )
        found[state.host] = state
    return tuple(found[host] for host in sorted(found))


class SparkCluster:
    """The cluster of one folder, started by any process.

    As a context manager it starts, and at the end every process of it is killed.

    Args:
        options: Folder, hosts and their size.
        report: Gets a line for people before something that takes long.
        source: Chooses among free ports.

    Example:
        with SparkCluster(ClusterOptions(folder=Path("spark"))) as cluster:
            subprocess.run(["bicycle", "run", "--master", cluster.url, ...])
            cluster.kill_host(cluster.hosts()[0])
    """

    def __init__(
        self, options: ClusterOptions, *, report: Callable[[str], None] = lambda _line: None,
        source: random.Random | None = None,
    ) -> None:  # fmt: skip
        self._folder = options.folder.absolute()
        self.options = replace(options, folder=self._folder)
        self._report = report
        self._source = source or system_random()
        self._processes = ClusterProcesses(self._folder)

    def __enter__(self) -> SparkCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def folder(self) -> Path:
        """The folder of this cluster."""
        return self._folder

    @property
    def url(self) -> str:
        """The master's URL; raises ClusterMissingError if no cluster runs here."""
        return self._running().url

    def record(self) -> ClusterRecord | None:
        """Return the last record, or None before the first start."""
        return read_record(self._folder)

    def is_running(self) -> bool:
        """Return whether the master's process exists."""
        self._processes.reap()
        record = self.record()
        return record is not None and record.master.is_running

    def hosts(self) -> list[str]:
        """Return the hosts whose worker runs, in the order of their addresses."""
        self._processes.reap()
        record = self.record()
        workers = record.workers if record else ()
        return [worker.host for worker in workers if worker.is_running]

    def state(self) -> ClusterState:
        """Return the master's state of workers and jobs.

        Raises:
            ClusterMissingError: no cluster runs here.
            CLUSTER_NOT_STARTED: its master gives no answer.
        """
        record = self._running()
        try:
            return read_state(MASTER_HOST, record.page_port)
        except (OSError, ValueError) as error:
            raise self._error(f"its master does not respond: {error}", "master") from error

    def processes(self, host: str | None = None) -> list[int]:
        """Return the processes of this cluster, or of one host."""
        return self._processes.running(host)

    def start(self) -> bool:
        """Start master and workers, and wait until all workers are registered.

        Of a cluster that runs, workers that have ended are started again.

        Returns:
            True when it was started, False when it ran already.

        Raises:
            CLUSTER_CONFLICT: one runs here with another size.
            CLUSTER_HOST_UNUSABLE: this machine lacks a loopback address.
            CLUSTER_NOT_STARTED: a process ended, or was not ready in time; nothing runs then.
            PORT_TAKEN: another program listens on the port that was asked for.
        """
        timeout_s = self.options.start_timeout_ms / 1_000
        try:
            with hold_lock(self._folder / "lock", timeout_s=timeout_s):
                return self._start(timeout_s)
        except TimeoutError:
            raise self._error("another command is still starting it") from None

    def stop(self) -> bool:
        """End all processes cleanly, and kill processes that do not end in time.

        Returns:
            True when they ended by themselves.

        Raises:
            ClusterMissingError: nothing of this cluster runs.
        """
        record = self.record()
        known = [*record.workers, record.master] if record else []
        running = [process for process in known if process.is_running]
        if not running and not self.processes():
            raise ClusterMissingError(folder=str(self._folder))
        for process in running:
            send_signal(process.pid, signal.SIGTERM)
        timeout_s = self.options.stop_timeout_ms / 1_000
        ended = [
            wait_for_end(process.pid, process.started, timeout_s=timeout_s) for process in running
        ]
        left = not wait_until(lambda: not self.processes(), timeout_s=timeout_s)
        if left:
            self.kill()
        self._processes.reap()
        return all(ended) and not left

    def kill(self) -> None:
        """Kill all processes of this cluster, with executors and Python workers."""
        record = self.record()
        for process in (*record.workers, record.master) if record else ():
            if process.is_running:
                kill_all(process.pid)
        self._processes.kill_left()
        self._processes.wait()

    def add_host(self) -> str:
        """Start a worker on the next free address, and wait until it is registered.

        Returns:
            The address.

        Raises:
            ClusterMissingError: no cluster runs here.
            CLUSTER_HOST_UNUSABLE: this machine lacks that address.
            CLUSTER_NOT_STARTED: the worker ended, or was not registered in time.
        """
        record = self._running()
        taken = self.hosts()
        number = next(n for n in range(len(taken) + 1) if host_address(n) not in taken)
        host = host_address(number)
        self._start_worker(record, host)
        self._wait_for_workers([*taken, host], self.options.start_timeout_ms / 1_000)
        return host

    def kill_host(self, host: str) -> None:
        """Kill a worker and all that runs on its host at once, as if the machine had died.

        Raises:
            CLUSTER_HOST_UNUSABLE: no worker runs there.
        """
        worker = self._worker(host)
        kill_all(worker.pid)
        wait_for_end(worker.pid, worker.started, timeout_s=KILL_TIMEOUT_S)
        self._processes.kill_left(host)
        self._processes.reap()

    def stop_host(self, host: str) -> None:
        """Stop a worker by SIGTERM, with its executors.

        The master may give it new ones while it ends: they are killed, as nothing runs on a machine
        that is off.

        Raises:
            CLUSTER_HOST_UNUSABLE: no worker runs there.
        """
        worker = self._worker(host)
        send_signal(worker.pid, signal.SIGTERM)
        timeout_s = self.options.stop_timeout_ms / 1_000
        if not wait_for_end(worker.pid, worker.started, timeout_s=timeout_s):
            kill_all(worker.pid)
        self._processes.kill_left(host)
        self._processes.reap()

    def _start(self, timeout_s: float) -> bool:
        record = self.record()
        if record and record.master.is_running:
            self._require_same(record)
            self._bring_back(record, timeout_s)
            return False
        addresses = [host_address(number) for number in range(self.options.hosts)]
        for address in addresses:
            _require_address(address)
        self.kill()  # Workers whose master died would join the new one.
        java = self._java()
        port, page_port = self._choose_ports(record)
        try:
            record = self._start_master(java, port, page_port)
            for address in addresses:
                record = self._start_worker(record, address)
            self._wait_for_workers(addresses, timeout_s)
        except BaseException:
            self.kill()
            raise
        return True

    def _bring_back(self, record: ClusterRecord, timeout_s: float) -> None:
        """Start the workers again that have ended since, each on the host that it had."""
        dead = [worker.host for worker in record.workers if not worker.is_running]
        for host in dead:
            self._processes.kill_left(host)
            record = self._start_worker(record, host)
        if dead:
            self._wait_for_workers(dead, timeout_s)

    def _require_same(self, record: ClusterRecord) -> None:
        """Refuse a running cluster whose options differ from the requested ones."""
        asked = self.options
        pairs = {
            "cores_per_host": (record.cores_per_host, asked.cores_per_host),
            "memory": (record.memory, asked.memory),
            "hosts": (len(record.workers), asked.hosts),
            "port": (record.port, asked.port or record.port),
        }
        for name, (found, wanted) in pairs.items():
            if found != wanted:
                raise CLUSTER_CONFLICT(
                    folder=str(self._folder), name=name, found=found, asked=wanted
                )

    def _java(self) -> str:
        java = find_java()
        version = java_version(java) if java is not None else None
        if java is None or version is None or java_major(version) < JAVA_MAJOR_MIN:
            found = version or "no Java in JAVA_HOME or on PATH"
            raise self._error(f"Spark needs Java {JAVA_MAJOR_MIN} or newer; found {found}")
        return str(java.path)

    def _choose_ports(self, record: ClusterRecord | None) -> tuple[int, int]:
        port = self.options.port
        if port and not is_free(MASTER_HOST, port):
            raise PORT_TAKEN(host=MASTER_HOST, port=port)
        if not port and record and is_free(MASTER_HOST, record.port):
            port = record.port
        port = port or choose_port(MASTER_HOST, self._source)
        return port, choose_port(MASTER_HOST, self._source, besides=port)

    def _start_master(self, java: str, port: int, page_port: int) -> ClusterRecord:
        self._report(f"starting a Spark master in {self._folder}")
        words = ["--host", MASTER_HOST, "--port", str(port), "--webui-port", str(page_port)]
        process = self._processes.start(java, "master", MASTER_HOST, [_MASTER, *words])
        record = ClusterRecord(
            master=process, port=port, page_port=page_port,
            cores_per_host=self.options.cores_per_host, memory=self.options.memory,
        )  # fmt: skip
        write_record(self._folder, record)
        return record

    def _start_worker(self, record: ClusterRecord, host: str) -> ClusterRecord:
        _require_address(host)
        work = self._folder / host / "work"
        words = [
            *("--host", host, "--webui-port", "0", "-c", str(record.cores_per_host)),
            *("-m", record.memory, "-d", str(work), record.url),
        ]
        process = self._processes.start(self._java(), host, host, [_WORKER, *words])
        others = tuple(worker for worker in record.workers if worker.host != host)
        workers = sorted((*others, process), key=lambda worker: _number(worker.host))
        changed = replace(record, workers=tuple(workers))
        write_record(self._folder, changed)
        return changed

    def _wait_for_workers(self, hosts: list[str], timeout_s: float) -> None:
        missing = set(hosts)
        ended: list[str] = []

        def is_decided() -> bool:
            record = self._running()
            self._processes.reap()
            ended[:] = [
                worker.host for worker in record.workers
                if worker.host in missing and not worker.is_running
            ]  # fmt: skip
            with contextlib.suppress(OSError, ValueError):
                alive = read_state(MASTER_HOST, record.page_port).alive_hosts()
                missing.difference_update(alive)
            return not missing or bool(ended)

        try:
            is_in_time = wait_until(is_decided, timeout_s=timeout_s)
        except ClusterMissingError:
            raise self._error("its master ended", "master") from None
        if ended:
            raise self._error(f"the worker on {ended[0]} ended", ended[0])
        if not is_in_time:
            name = min(missing)
            reason = f"{', '.join(sorted(missing))} not registered within {timeout_s:g} s"
            raise self._error(reason, name)

    def _worker(self, host: str) -> SparkProcess:
        record = self._running()
        for worker in record.workers:
            if worker.host == host and worker.is_running:
                return worker
        raise CLUSTER_HOST_UNUSABLE(host=host, reason="no worker of this cluster runs on this host")

    def _running(self) -> ClusterRecord:
        record = self.record()
        if record is None or not record.master.is_running:
            raise ClusterMissingError(folder=str(self._folder))
        return record

    def _error(self, reason: str, name: str = "master") -> BicycleError:
        """Return the error with the end of a process's log or output."""
        log = self._folder / name / "log"
        lines = last_lines(log) or last_lines(self._folder / name / "out")
        return CLUSTER_NOT_STARTED(
            folder=str(self._folder), reason=reason, log=str(log), tail=lines,
            tail_text=indent_lines(lines),
        )  # fmt: skip


def _require_address(host: str) -> None:
    """Refuse an address that this machine lacks: Linux has all of 127.*."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError as error:
            raise CLUSTER_HOST_UNUSABLE(host=host, reason=error.strerror or str(error)) from error


def _number(host: str) -> int:
    return int(host.rpartition(".")[2])
