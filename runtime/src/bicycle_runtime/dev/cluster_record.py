"""The record of a cluster: ``cluster.json`` in its folder."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path

from bicycle_runtime.base.files import replace_file
from bicycle_runtime.base.processes import is_alive
from bicycle_runtime.base.stored import decode_stored, encode_stored
from bicycle_sdk.errors import OptionError
from bicycle_sdk.options import check, option

_FILE = "cluster.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkProcess:
    """A master or worker: its host and its process (id and start time)."""

    host: str
    pid: int
    started: int

    @property
    def is_running(self) -> bool:
        """Return whether the process still exists."""
        return is_alive(self.pid, self.started)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRecord:
    """The content of ``cluster.json``."""

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
    """Return the last record, or None before the first start.

    Raises:
        STORED_NEWER: a newer version of the runtime wrote it.
    """
    path = folder / _FILE
    try:
        return decode_stored(path.read_bytes(), ClusterRecord, path=str(path))
    except FileNotFoundError:
        return None


def write_record(folder: Path, record: ClusterRecord) -> None:
    """Replace the file as one step."""
    replace_file(folder / _FILE, encode_stored(asdict(record)))


MASTER_HOST = "127.0.0.1"
_MEMORY = re.compile(r"[1-9][0-9]{0,6}[mg]")
_HOSTS_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """A Spark cluster of this machine, for development and tests."""

    folder: Path = option(doc="Directory for the logs of the cluster and the files of its workers.")
    hosts: int = option(
        2, low=1, high=_HOSTS_MAX,
        doc="Number of worker hosts; each has a separate loopback address.",
    )  # fmt: skip
    cores_per_host: int = option(
        1,
        low=1,
        high=1_024,
        doc="Number of concurrent tasks per host, independent of the cores of the machine.",
    )
    memory: str = option("1g", doc="Memory per host for executors, as in Spark: 512m, 2g.")
    port: int = option(
        0, low=0, high=65_535,
        doc="Port of the master. 0: the last port of this cluster, or a free port.",
    )  # fmt: skip
    start_timeout_ms: int = option(
        60_000, low=1_000, high=600_000, doc="Time limit for the start of master and workers."
    )
    stop_timeout_ms: int = option(
        10_000,
        low=0,
        high=600_000,
        doc="Time limit for a graceful stop of a process; then it is killed.",
    )

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            OptionError: a value is out of bounds, or memory is not as Spark writes it.
        """
        check(self)
        if not _MEMORY.fullmatch(self.memory):
            raise OptionError(
                group="ClusterOptions", name="memory", found=self.memory,
                expected="a whole number followed by m or g, such as 512m",
            )  # fmt: skip


def host_address(number: int) -> str:
    """Return the loopback address of a worker host, numbered from 0.

    Example:
        >>> host_address(0), host_address(1)
        ('127.0.0.2', '127.0.0.3')
    """
    return f"127.0.0.{number + 2}"
