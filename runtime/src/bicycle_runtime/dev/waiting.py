"""Waiting for another process: for a condition, and for a lock.

Both have a bound. A lock is the kernel's, not the file's existence, so a crash leaves none behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bicycle_runtime.base.processes import last_log_lines
from bicycle_sdk.clock import Clock, SystemClock

_POLL_S = 0.1


def wait_until(
    condition: Callable[[], bool], *, timeout_s: float, clock: Clock | None = None
) -> bool:
    """Poll until a condition is true; return whether it was true in time.

    Args:
        condition: Is asked at least once.
        timeout_s: How long to go on, 0 or more.
        clock: Measures that; the machine's when absent.
    """
    clock = clock or SystemClock()
    pause = threading.Event()
    end = clock.monotonic() + timeout_s
    while not condition():
        if clock.monotonic() >= end:
            return False
        pause.wait(_POLL_S)
    return True


@contextmanager
def hold_lock(path: Path, *, timeout_s: float) -> Iterator[None]:
    """Hold a lock file, which is made when missing and never removed.

    Processes that are started meanwhile do not inherit it.

    Raises:
        TimeoutError: somebody else held it all the time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def is_ours() -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    try:
        if not wait_until(is_ours, timeout_s=timeout_s):
            raise TimeoutError(f"{path} is held by another process")
        yield
    finally:
        os.close(descriptor)


_LINE_COUNT = 15
_STACK_FRAME = "\tat "


def last_lines(path: Path) -> list[str]:
    """Return the last informative lines of a file, or an empty list without a file."""
    with contextlib.suppress(OSError):
        lines = last_log_lines(path)
        telling = [line for line in lines if line.strip() and not line.startswith(_STACK_FRAME)]
        return telling[-_LINE_COUNT:]
    return []


def indent_lines(lines: Sequence[str]) -> str:
    """Return lines as they are in an error."""
    return "\n".join(f"    {line}" for line in lines) or "    (empty)"
