"""What a Spark master says of itself on its page: workers with their sizes, and running jobs."""

from __future__ import annotations

import contextlib
import http.client
import json
from dataclasses import dataclass

__all__ = ["ClusterState", "HostState", "JobState", "read_state"]

_TIMEOUT_S = 5.0
_ALIVE = "ALIVE"
_SUCCESS = 200


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
class JobState:
    """A job that the master serves, with the cores that it has."""

    id: str
    name: str
    cores: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """Workers by host, those that died among them, and running jobs."""

    hosts: tuple[HostState, ...]
    jobs: tuple[JobState, ...]

    def alive_hosts(self) -> set[str]:
        """Return the hosts that can take work."""
        return {host.host for host in self.hosts if host.state == _ALIVE}


def read_state(host: str, port: int) -> ClusterState:
    """Ask a master by its page. No proxy is asked: it is a process of this machine.

    Raises:
        OSError: it does not answer.
        ValueError: what it answers is not what a Spark master says.
    """
    with contextlib.closing(http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)) as page:
        try:
            page.request("GET", "/json/")
            answer = page.getresponse()
            data = json.loads(answer.read()) if answer.status == _SUCCESS else {}
        except http.client.HTTPException as error:
            raise OSError(f"{type(error).__name__}: {error}") from error
    try:
        return ClusterState(
            hosts=_hosts(data["workers"]),
            jobs=tuple(
                JobState(id=job["id"], name=job["name"], cores=job["cores"])
                for job in data["activeapps"]
            ),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"it lacks {error}") from error


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
