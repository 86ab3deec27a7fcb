"""The previous run of a job, as known before another start: a refused start changes nothing.

A start can be refused by a wrong parameter, a graph that does not fit, Java that is missing. The
job has then not run, and what it did in its former run stays what is told of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from bicycle_runtime.base.files import replace_file
from bicycle_runtime.jobs.errors import JobRunningError, StatusFormatError
from bicycle_runtime.jobs.home import JobFolder, JobPlace
from bicycle_runtime.jobs.locks import FileLock

__all__ = ["PreviousRun", "job_locks"]


@dataclass(frozen=True, slots=True)
class PreviousRun:
    """Status and request of the former run of a job, as they lay in its folder."""

    folder: JobFolder
    status: bytes
    request: bytes

    @classmethod
    def of(cls, folder: JobFolder) -> PreviousRun | None:
        """Return the former run; None for a job that has none, or whose run is not over."""
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
        if status is not None and (status.running_ms is not None or not status.state.is_final):
            return
        lock = FileLock(self.folder.lock_path, job=self.folder.id, place=str(self.folder.path))
        with contextlib.suppress(JobRunningError), lock:  # It is somebody else's by now.
            replace_file(self.folder.request_path, self.request)
            replace_file(self.folder.status_path, self.status)


@contextlib.contextmanager
def job_locks(place: JobPlace) -> Iterator[None]:
    """Hold a job's folder in the home and, where it is a local directory, its checkpoint.

    Raises:
        JobRunningError: another process holds one of them.
        StorageError: a lock file cannot be made.
    """
    with contextlib.ExitStack() as locks:
        folder = place.folder
        locks.enter_context(FileLock(folder.lock_path, job=folder.id, place=str(folder.path)))
        if place.lock_path is not None:
            locks.enter_context(FileLock(place.lock_path, job=place.job, place=place.storage.url))
        yield
