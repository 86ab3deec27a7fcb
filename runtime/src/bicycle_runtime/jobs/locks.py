"""A lock file of one process at most, free again after any end of the process.

The lock is the kernel's (``flock``), not the file's existence, so a crash leaves nothing behind.
Children do not inherit it: a Java process that outlives its driver must not hold the job.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from bicycle_runtime.base.storage import StorageError
from bicycle_runtime.jobs.errors import JobRunningError


class FileLock:
    """Held from entering to leaving; the file holds the process id of the last holder.

    Entering raises a JobRunningError while another process holds it, and a StorageError if the file
    cannot be made.

    Args:
        path: The lock file; it and its folder are made when missing, and never removed.
        job: Job id, for the error.
        location: The locked place, for the error.
    """

    def __init__(self, path: Path, *, job: str, location: str) -> None:
        self._path = path
        self._job = job
        self._location = location
        self._descriptor: int | None = None

    def __enter__(self) -> FileLock:
        descriptor = self._open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise JobRunningError(job=self._job, pid=holder, location=self._location) from None
        with contextlib.suppress(OSError):  # A full disk: the lock is the kernel's.
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
        self._descriptor = descriptor
        return self

    def _open(self) -> int:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            reason = error.strerror or str(error)
            raise StorageError(
                url=self._location, action="create", path=self._path.name, reason=reason
            ) from error

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
