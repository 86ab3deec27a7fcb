"""The processes of this machine's jobs: drivers, Java, workers, supervisors.

They are read from ``/proc`` in one pass, on request. Workers on other hosts of a cluster are not
included.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from bicycle_runtime.jobs.status import JobStatus
from bicycle_runtime.service.watching.summaries import KnownJob

_PARENT, _USER_TICKS, _SYSTEM_TICKS, _START = 1, 11, 12, 19  # behind the name
_USAGE_S = 0.25  # The kernel counts processor time in hundredths of a second.
_ROLES = ("supervisor", "driver", "java", "python")


class ProcessUse(msgspec.Struct, frozen=True, kw_only=True):
    """One process. ``cpu_seconds`` is the processor time since it began, of user and system."""

    pid: int
    role: str
    resident_bytes: int
    cpu_seconds: float


class JobWorkers(msgspec.Struct, frozen=True, kw_only=True):
    """The processes of one job, the supervisor first, and their total usage.

    ``slots`` are the slots of its Spark master that it holds, ``slots_used`` the slots in which its
    tasks run. ``cpu_usage`` is the current number of cores that the processes use.
    """

    job: str
    state: str
    tasks: int
    slots: int
    slots_used: int
    cpu_usage: float
    processes: tuple[ProcessUse, ...]

    @property
    def resident_bytes(self) -> int:
        """The memory of all processes; shared memory counts for each."""
        return sum(process.resident_bytes for process in self.processes)

    @property
    def cpu_seconds(self) -> float:
        """Processor time of all of them."""
        return sum(process.cpu_seconds for process in self.processes)

    def count(self, role: str) -> int:
        """Return how many there are of a role: supervisor, driver, java or python."""
        return sum(process.role == role for process in self.processes)


def worker_rows(jobs: Iterable[KnownJob]) -> list[dict[str, Any]]:
    """Return the processes of the jobs that have not ended as rows for programs."""
    host = socket.gethostname()
    return [
        {
            "worker_id": found.job,
            "hostname": host,
            "state": found.state,
            "tasks": found.tasks,
            "slots": found.slots,
            "slots_used": found.slots_used,
            "cpu_usage": found.cpu_usage,
            "memory_used_mb": round(found.resident_bytes / 1e6, 1),
            "memory_bytes": found.resident_bytes,
            "cpu_seconds": round(found.cpu_seconds, 1),
            "processes": msgspec.to_builtins(found.processes),
        }
        for found in workers_now(jobs)
    ]


def workers_now(jobs: Iterable[KnownJob]) -> list[JobWorkers]:
    """Return the processes of the jobs that have not ended, with how busy they are.

    That takes a quarter of a second, in which they are looked at twice.
    """
    found = workers_of(jobs, processes())
    before_s, before = time.monotonic(), _cpu_times(found)
    if not before:
        return found
    threading.Event().wait(_USAGE_S)  # For nothing: this is the time that is measured.
    passed_s, after = time.monotonic() - before_s, _cpu_times(found)
    grown = {pid: after[pid] - before[pid] for pid in before.keys() & after.keys()}
    return [
        msgspec.structs.replace(
            workers,
            cpu_usage=round(sum(grown.get(p.pid, 0.0) for p in workers.processes) / passed_s, 2),
        )
        for workers in found
    ]


def slots_of(status: JobStatus) -> int:
    """Return the slots that a job takes of its Spark master: its widest operator."""
    return max((operator.parallelism or 1 for operator in status.operators.values()), default=1)


class _Found(msgspec.Struct, frozen=True):
    parent: int
    started: int
    name: str
    use: tuple[int, float]


def processes(folder: Path = Path("/proc")) -> dict[int, _Found]:
    """Return the processes of this machine by id; empty where there is no such folder.

    Args:
        folder: The ``/proc`` folder.
    """
    read = ((int(each.name), _read(each)) for each in folder.glob("[0-9]*"))
    return {pid: process for pid, process in read if process is not None}


def _read(each: Path) -> _Found | None:
    """Return one process by its folder, None when it has ended."""
    page, tick = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
    try:
        head, _, rest = (each / "stat").read_text("utf-8", "replace").rpartition(")")
        pages = int((each / "statm").read_text("ascii").split()[1])
    except (OSError, IndexError):
        return None
    fields = rest.split()
    cpu_s = (int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])) / tick
    name = head.partition("(")[2]
    return _Found(int(fields[_PARENT]), int(fields[_START]), name, (pages * page, cpu_s))


def _cpu_times(workers: Iterable[JobWorkers]) -> dict[int, float]:
    """Return the processor time of the processes that still run, by their ids."""
    pids = [process.pid for each in workers for process in each.processes]
    read = ((pid, _read(Path(f"/proc/{pid}"))) for pid in pids)
    return {pid: process.use[1] for pid, process in read if process is not None}


def workers_of(jobs: Iterable[KnownJob], known: Mapping[int, _Found]) -> list[JobWorkers]:
    """Return the processes of jobs that have not ended, most memory first.

    How busy they are is not known from one look: see ``workers_now``.

    Args:
        jobs: The jobs of the snapshot.
        known: The result of ``processes``.
    """
    children: dict[int, list[int]] = {}
    for pid, process in known.items():
        children.setdefault(process.parent, []).append(pid)
    found = []
    for job in jobs:
        if job.summary.end_time is not None:
            continue
        uses = sorted(_uses(job, known, children), key=lambda use: _ROLES.index(use.role))
        slots = slots_of(job.status)
        found.append(
            JobWorkers(
                job=job.summary.job_id, state=job.summary.state, tasks=job.summary.tasks_total,
                slots=slots, slots_used=slots if job.summary.tasks_running else 0, cpu_usage=0.0,
                processes=tuple(uses),
            )
        )  # fmt: skip
    return sorted(found, key=lambda workers: (-workers.resident_bytes, workers.job))


def _uses(
    job: KnownJob, known: Mapping[int, _Found], children: Mapping[int, list[int]]
) -> Iterator[ProcessUse]:
    status = job.status
    if _is_it(known, status.supervisor_pid, status.supervisor_started):
        yield _use(status.supervisor_pid, "supervisor", known)
    if not _is_it(known, status.pid, status.pid_started):
        return
    yield _use(status.pid, "driver", known)
    waiting = list(children.get(status.pid, ()))
    while waiting:
        pid = waiting.pop()
        waiting += children.get(pid, ())
        yield _use(pid, "java" if known[pid].name == "java" else "python", known)


def _is_it(known: Mapping[int, _Found], pid: int, started: int) -> bool:
    """Return whether a process is the meant one, since ids are reused."""
    return pid in known and known[pid].started == started


def _use(pid: int, role: str, known: Mapping[int, _Found]) -> ProcessUse:
    resident_bytes, cpu_s = known[pid].use
    return ProcessUse(
        pid=pid, role=role, resident_bytes=resident_bytes, cpu_seconds=round(cpu_s, 1)
    )
