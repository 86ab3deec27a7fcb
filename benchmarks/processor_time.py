"""Processor time and memory of a running job, by what its processes are: driver, Java, workers.

Read from ``/proc``, so on Linux only. A process that ends counts with the one that waited for it.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from measuring import Table

from bicycle_runtime.base.processes import descendants

__all__ = [
    "DRIVER", "JAVA", "KINDS", "WORKERS", "memory_mb", "processor_seconds", "shares",
    "shares_table",
]  # fmt: skip

DRIVER, JAVA, WORKERS = KINDS = "driver", "Java", "Python workers"
_TIMES = slice(11, 15)  # user and system time, of the process and of ended children
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def processor_seconds(pid: int) -> Counter[str]:
    """Return the seconds that a process and all that it started have used, by kind."""
    found: Counter[str] = Counter()
    for member in [pid, *descendants(pid)]:
        place = Path("/proc") / str(member)
        try:
            command, stat = (place / "cmdline").read_bytes(), (place / "stat").read_text()
        except OSError:  # It has just ended.
            continue
        ticks = sum(map(int, stat.rpartition(")")[2].split()[_TIMES]))
        found[_kind(command)] += ticks / _TICKS_PER_S
    return found


def memory_mb(pid: int) -> Counter[str]:
    """Return the memory of a process and all that it started in MB, by kind.

    A page that several processes share counts with each for its part, so that nothing counts twice.
    """
    found: Counter[str] = Counter()
    for member in [pid, *descendants(pid)]:
        place = Path("/proc") / str(member)
        try:
            command, rollup = (place / "cmdline").read_bytes(), place / "smaps_rollup"
            lines = rollup.read_text().splitlines()
        except OSError:  # It has just ended.
            continue
        sizes = [int(line.split()[1]) for line in lines if line.startswith("Pss:")]
        found[_kind(command)] += sum(sizes) * 1024 / 1e6
    return found


def shares(pid: int, seconds: float) -> Counter[str]:
    """Return the processor time of an interval by kind of process, in percent of one core."""
    before, began = processor_seconds(pid), time.monotonic()
    time.sleep(seconds)
    after, ended = processor_seconds(pid), time.monotonic()
    return Counter({kind: 100 * (after[kind] - before[kind]) / (ended - began) for kind in KINDS})


def shares_table(title: str, found: Sequence[Counter[str]]) -> Table:
    """Return the table of the shares of some intervals."""
    rows = [[kind, *_spread([each[kind] for each in found])] for kind in KINDS]
    rows.append(["together", *_spread([each.total() for each in found])])
    return Table(title=title, columns=["% of a core", "median", "least", "most"], rows=rows)


def _spread(values: list[float]) -> list[str]:
    return [f"{value:.2f}" for value in (statistics.median(values), min(values), max(values))]


def _kind(command: bytes) -> str:
    if command.partition(b"\0")[0].endswith(b"java"):
        return JAVA
    return WORKERS if b"spark.daemon" in command else DRIVER
