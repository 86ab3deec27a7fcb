"""One process of this machine runs a job: it holds locks on the folders that the job writes to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from bicycle_runtime.jobs.home import JobPlace
from bicycle_runtime.jobs.locks import FileLock

__all__ = ["job_locks"]


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
