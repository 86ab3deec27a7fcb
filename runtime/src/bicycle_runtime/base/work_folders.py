"""Temporary folders of processes, such as that of Spark's local files and log.

A killed process cannot remove its folder. It holds a lock in it, which the kernel releases, so the
next process on this machine knows abandoned folders; it never takes a folder without a lock. A
child process can hold the same lock: a Java that is still on its way up when its driver is killed
finds its folder, comes up, finds no driver, and ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_SPARK = "bicycle-spark-"
_LOCK = "lock"


class WorkFolder:
    """A new folder that only its owner can read, held until ``remove``.

    Args:
        parent: Contains the folder; None for the temporary files.
        prefix: The start of its name.
    """

    def __init__(self, parent: Path | None = None, prefix: str = _SPARK) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        unlocked = self.path / f".{_LOCK}"
        self._descriptor: int | None = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        unlocked.rename(self.path / _LOCK)  # It is never visible without its lock.

    @property
    def held(self) -> tuple[int, ...]:
        """The descriptors for a process that uses the folder, and so locks it, too."""
        return () if self._descriptor is None else (self._descriptor,)

    def remove(self) -> None:
        """Remove the folder. Doing it again is harmless."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def remove_abandoned(parent: Path | None = None, prefix: str = _SPARK) -> int:
    """Remove the folders of killed processes; return how many there were.

    Args:
        parent: As of ``WorkFolder``.
        prefix: As of ``WorkFolder``.
    """
    locks = list((parent or Path(tempfile.gettempdir())).glob(f"{prefix}*/{_LOCK}"))
    return sum(map(_remove_if_abandoned, locks))


def _remove_if_abandoned(lock: Path) -> bool:
    with contextlib.suppress(OSError):  # It is held, or of another user, or being removed.
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
            return True
        finally:
            os.close(descriptor)
    return False
