"""Processor time of a running job, by what its processes are: driver, Java, Python workers.

Read from ``/proc``, so on Linux only. A process that ends counts with the one that waited for it.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from bicycle_runtime.base.processes import descendants

__all__ = ["DRIVER", "JAVA", "KINDS", "WORKERS", "processor_seconds"]

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


def _kind(command: bytes) -> str:
    if command.partition(b"\0")[0].endswith(b"java"):
        return JAVA
    return WORKERS if b"spark.daemon" in command else DRIVER
