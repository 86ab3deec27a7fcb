"""What is known of a cluster: ``cluster.json`` in its folder names master and workers."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from bicycle_runtime.base.files import replace_file
from bicycle_runtime.base.processes import is_alive
from bicycle_runtime.dev.cluster_options import MASTER_HOST

__all__ = ["ClusterRecord", "SparkProcess", "read_record", "write_record"]

_FILE = "cluster.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkProcess:
    """A master or worker: its host and its process (id and start time)."""

    host: str
    pid: int
    started: int

    @property
    def is_running(self) -> bool:
        """Whether that process still exists."""
        return is_alive(self.pid, self.started)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRecord:
    """What ``cluster.json`` says."""

    master: SparkProcess
    port: int
    page_port: int
    cores_per_host: int
    memory: str
    workers: tuple[SparkProcess, ...] = ()

    @property
    def url(self) -> str:
        """The master's URL, for ``--master``."""
        return f"spark://{MASTER_HOST}:{self.port}"


def read_record(folder: Path) -> ClusterRecord | None:
    """Return what was written last; None before the first start."""
    try:
        data = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    workers = tuple(SparkProcess(**worker) for worker in data["workers"])
    return ClusterRecord(**{**data, "master": SparkProcess(**data["master"]), "workers": workers})


def write_record(folder: Path, record: ClusterRecord) -> None:
    """Replace the file as one step."""
    replace_file(folder / _FILE, json.dumps(asdict(record)).encode())
