"""The checkpoint storage of a job, for commands that only look into it.

A job is known by its name on this machine, or a directory or URL is given: that of the job itself,
or one above it, as ``--checkpoint-dir`` of a run is. Nothing is made.
"""

from __future__ import annotations

from bicycle_runtime.base.storage import Storage
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.layouts.paths import JOB_FILE
from bicycle_runtime.recovery.errors import CHECKPOINT_MISSING
from bicycle_sdk.errors import BicycleError


def find_checkpoint(home: Home, *, job: str | None, checkpoint_dir: str | None) -> Storage:
    """Return the checkpoint storage of a job.

    Args:
        home: Knows the jobs of this machine.
        job: Name of the job.
        checkpoint_dir: Directory or URL. With a name: the directory above the job's.

    Raises:
        JOB_NOT_FOUND: this machine knows no such job, and no directory is given.
        CHECKPOINT_MISSING: it has no job, or more than one.
    """
    if checkpoint_dir is None:
        status = None if job is None else home.find(job).status()
        if status is None or not status.checkpoint:
            raise _unnamed_error(home, job)
        return open_storage(status.checkpoint)
    root = open_storage(checkpoint_dir)
    below = "" if job is None else f"{job}/"
    if root.exists(f"{below}{JOB_FILE}") or root.list(f"{below}epochs"):
        return _folder(root, below)
    known = _jobs_below(root)
    if job is None and len(known) == 1:
        return _folder(root, known[0])
    found = f"; jobs below it: {', '.join(known)}" if known else ""
    hint = "also pass the name of a job" if known else "choose another --checkpoint-dir"
    raise CHECKPOINT_MISSING(url=_folder(root, below).url, found=found, hint=hint)


def _unnamed_error(home: Home, job: str | None) -> BicycleError:
    """Return the error for a home without a named job, or a job without a checkpoint."""
    jobs = ", ".join(folder.id for folder in home.folders()) or "none"
    found = f"; its jobs are {jobs}"
    hint = "pass the name of a job, or a directory with --checkpoint-dir"
    if job is not None:
        found = f"; job {job} has no checkpoint directory yet"
        hint = "wait until the job has sealed an epoch, or choose a directory with --checkpoint-dir"
    return CHECKPOINT_MISSING(url=str(home.path), found=found, hint=hint)


def _folder(root: Storage, name: str) -> Storage:
    return open_storage(f"{root.url.rstrip('/')}/{name}".rstrip("/"))


def _jobs_below(root: Storage) -> list[str]:
    """Return the folders right below that hold a job."""
    found = set()
    for path in root.list(""):
        folder, _, rest = path.partition("/")
        if rest == JOB_FILE or rest.startswith("epochs/"):
            found.add(folder)
    return sorted(found)
