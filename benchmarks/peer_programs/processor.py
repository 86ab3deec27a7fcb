"""The processor time of a program and its Java process, for programs of other systems."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["processor_s"]

_TICKS = os.sysconf("SC_CLK_TCK")


def processor_s() -> float:
    """Return the processor time of this process and its Java process."""
    found = 0
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                stat = (place / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # It has just ended.
                continue
            if int(place.name) == os.getpid() or int(stat[1]) == os.getpid():
                found += int(stat[11]) + int(stat[12])
    return found / _TICKS
