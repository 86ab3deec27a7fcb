"""The machine that figures hold for: cores, memory, versions, and how busy it was meanwhile."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bicycle_runtime.base.java import find_java, java_version

__all__ = ["Watch", "machine", "processor_ticks"]


def processor_ticks() -> tuple[int, int]:
    """Return for how many ticks the cores of this machine have been idle, and all of them."""
    first = Path("/proc/stat").read_text().partition("\n")[0]
    ticks = list(map(int, first.split()[1:9]))  # What guests used is in others, too.
    return ticks[3] + ticks[4], sum(ticks)


@dataclass(frozen=True, slots=True)
class Watch:
    """The load of the machine and the time of its cores, from when this was made."""

    load: float = field(default_factory=lambda: os.getloadavg()[0])
    ticks: tuple[int, int] = field(default_factory=processor_ticks)

    def told(self) -> str:
        """Return the loads at both ends, and which share of the cores was idle in between."""
        idle, total = (now - then for now, then in zip(processor_ticks(), self.ticks, strict=True))
        return (
            f"load {self.load:.1f} at the start and {os.getloadavg()[0]:.1f} at the end, "
            f"{100 * idle / max(total, 1):.0f} % of its cores idle in between, checks included"
        )


def machine() -> str:
    """Return what a reader must know to judge absolute figures: cores, memory, versions."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    packages = ", ".join(f"{name} {_version(name)}" for name in ("pyspark", "msgspec"))
    return (
        f"{os.cpu_count()} cores ({_processor()}), {memory_gib:.0f} GiB, "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}, "
        f"Java {_java()}, {packages}, bicycle-runtime {_version('bicycle-runtime')}"
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(none)"


def _java() -> str:
    found = find_java()
    return (java_version(found) if found else None) or "(none)"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return platform.processor() or platform.machine()
    names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.machine()
