"""The processes that run the jobs of this machine: drivers, Java, Python workers, supervisors.

They are read from ``/proc`` in one pass when somebody asks. Workers of a cluster run elsewhere, and
are not seen from here.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from bicycle_runtime.service.watching.summaries import KnownJob

__all__ = ["JobWorkers", "ProcessUse", "processes", "worker_rows", "workers_of"]

_PARENT, _USER_TICKS, _SYSTEM_TICKS, _START = 1, 11, 12, 19  # behind the name
_ROLES = ("supervisor", "driver", "java", "python")


class ProcessUse(msgspec.Struct, frozen=True, kw_only=True):
    """One process. ``cpu_seconds`` is the processor time since it began, of user and system."""

    pid: int
    role: str
    resident_bytes: int
    cpu_seconds: float


class JobWorkers(msgspec.Struct, frozen=True, kw_only=True):
    """The processes of one job, the supervisor first, and what they use together."""

    job: str
    state: str
    tasks: int
    processes: tuple[ProcessUse, ...]

    @property
    def resident_bytes(self) -> int:
        """Memory of all of them; what they share counts for each."""
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
            "memory_bytes": found.resident_bytes,
            "cpu_seconds": round(found.cpu_seconds, 1),
            "processes": msgspec.to_builtins(found.processes),
        }
        for found in workers_of(jobs, processes())
    ]


class _Found(msgspec.Struct, frozen=True):
    parent: int
    started: int
    name: str
    use: tuple[int, float]


def processes(folder: Path = Path("/proc")) -> dict[int, _Found]:
    """Return the processes of this machine by id; empty where there is no such folder.

    Args:
        folder: Where the kernel tells of them.
    """
    found = {}
    page, tick = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
    for place in folder.glob("[0-9]*"):
        try:
            head, _, rest = (place / "stat").read_text("utf-8", "replace").rpartition(")")
            pages = int((place / "statm").read_text("ascii").split()[1])
        except (OSError, IndexError):  # It has ended meanwhile.
            continue
        fields = rest.split()
        cpu_s = (int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])) / tick
        found[int(place.name)] = _Found(
            int(fields[_PARENT]), int(fields[_START]), head.partition("(")[2], (pages * page, cpu_s)
        )
    return found


def workers_of(jobs: Iterable[KnownJob], known: Mapping[int, _Found]) -> list[JobWorkers]:
    """Return the processes of the jobs that have not ended, those with most memory first.

    Args:
        jobs: Of the snapshot.
        known: What ``processes`` gave.
    """
    children: dict[int, list[int]] = {}
    for pid, process in known.items():
        children.setdefault(process.parent, []).append(pid)
    found = []
    for job in jobs:
        if job.summary.end_time is not None:
            continue
        uses = sorted(_uses(job, known, children), key=lambda use: _ROLES.index(use.role))
        found.append(
            JobWorkers(
                job=job.summary.job_id, state=job.summary.state, tasks=job.summary.tasks_total,
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
    """Tell whether a process is the one that was meant: its id may have gone to another."""
    return pid in known and known[pid].started == started


def _use(pid: int, role: str, known: Mapping[int, _Found]) -> ProcessUse:
    resident_bytes, cpu_s = known[pid].use
    return ProcessUse(
        pid=pid, role=role, resident_bytes=resident_bytes, cpu_seconds=round(cpu_s, 1)
    )
