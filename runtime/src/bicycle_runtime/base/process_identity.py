"""The identity of this process, in a form that other machines may read.

The idea a reader needs: only a process that sees the same process ids may declare another process
dead. A *space* names the range of ids: this boot of this machine and the namespace of process ids
in it. If it is unknown, or another one, no process is ever declared dead.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from bicycle_runtime.base.processes import is_alive, start_ticks

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A process of some machine; ``space`` is the scope of its id, "" if unknown."""

    host: str
    pid: int
    started: int
    space: str


def this_process() -> ProcessIdentity:
    """Return the identity of this process."""
    pid = os.getpid()
    return ProcessIdentity(
        host=platform.node() or "unknown", pid=pid, started=start_ticks(pid), space=_space()
    )


def is_surely_gone(process: ProcessIdentity, *, seen_by: ProcessIdentity) -> bool:
    """Return whether a process has ended, False if ``seen_by`` cannot know it.

    A process that was stopped (SIGSTOP) is not gone: it may wake up.
    """
    if not process.space or process.space != seen_by.space:
        return False
    return not is_alive(process.pid, process.started)


def _space() -> str:
    try:
        return f"{_BOOT.read_text(encoding='ascii').strip()}/{_NAMESPACE.readlink()}"
    except OSError:
        return ""
