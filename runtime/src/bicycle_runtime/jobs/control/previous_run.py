"""The previous run of a job, kept for a start that is refused.

A start can be refused because of a wrong parameter, a graph that does not fit, or missing Java. The
job has then not run, and the status of its former run remains.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bicycle_runtime.base.files import replace_file
from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.jobs.errors import JobRunningError, StatusFormatError
from bicycle_runtime.jobs.home import JobFolder, JobLocation
from bicycle_runtime.jobs.locks import FileLock
from bicycle_runtime.jobs.status import JobState, JobStatus
from bicycle_runtime.layouts.paths import EPOCHS
from bicycle_runtime.recovery.errors import CHECKPOINT_GONE
from bicycle_runtime.recovery.history import EpochHistory


@dataclass(frozen=True, slots=True)
class PreviousRun:
    """Status and request of the previous run of a job, as stored in its folder."""

    folder: JobFolder
    status: bytes
    request: bytes

    @classmethod
    def of(cls, folder: JobFolder) -> PreviousRun | None:
        """Return the previous run; None if the job has no run, or an unfinished one."""
        try:
            status = folder.status()
            if status is None or not status.state.is_final:
                return None
            return cls(folder, folder.status_path.read_bytes(), folder.request_path.read_bytes())
        except (FileNotFoundError, StatusFormatError):
            return None

    def put_back(self) -> None:
        """Put it back when the run that was started since is over and never came to run."""
        status = self.folder.status()
        has_run = status is not None and (
            status.running_ms is not None or not status.state.is_final
        )
        if has_run and self.folder.status_path.read_bytes() != self.status:
            return
        lock = FileLock(self.folder.lock_path, job=self.folder.id, location=str(self.folder.path))
        with contextlib.suppress(JobRunningError), lock:  # It belongs to another process by now.
            replace_file(self.folder.request_path, self.request)
            replace_file(self.folder.status_path, self.status)


def last_status(folder: JobFolder) -> JobStatus | None:
    """Return the last status of a job, or None if no readable status exists."""
    try:
        return folder.status()
    except StatusFormatError:
        return None


def require_checkpoint(location: JobLocation, former: JobStatus | None, *, is_again: bool) -> None:
    """Reject a start with empty state if the sealed epochs of the job are missing.

    A finished job may start with empty state. A first start also accepts an empty directory.

    Args:
        location: The job.
        former: The status of the previous run; None for a job that never ran.
        is_again: Whether the start continues a run whose driver died.

    Raises:
        CHECKPOINT_GONE: the sealed epochs are missing; nothing was changed.
    """
    storage = location.storage
    if former is None or not former.epoch or former.checkpoint != storage.url:
        return
    if former.state is JobState.FINISHED:
        return
    if isinstance(storage, LocalStorage) and not Path(storage.root).is_dir():
        raise CHECKPOINT_GONE(job=location.folder.id, url=storage.url, missing=storage.root)
    if is_again and not EpochHistory(storage).epochs():
        missing = f"{EPOCHS}/{former.epoch}"
        raise CHECKPOINT_GONE(job=location.folder.id, url=storage.url, missing=missing)


@contextlib.contextmanager
def job_locks(location: JobLocation, *, is_again: bool = False) -> Iterator[None]:
    """Hold the locks on a job's folder in the home, and on its local checkpoint.

    Args:
        location: The job.
        is_again: Whether the start continues a run whose driver died: it makes no directory.

    Raises:
        JobRunningError: another process holds one of them.
        StorageError: a lock file cannot be made.
    """
    with contextlib.ExitStack() as locks:
        folder = location.folder
        locks.enter_context(FileLock(folder.lock_path, job=folder.id, location=str(folder.path)))
        path = location.lock_path
        if path is not None and (path.parent.is_dir() or not is_again):
            locks.enter_context(FileLock(path, job=location.job, location=location.storage.url))
        yield
