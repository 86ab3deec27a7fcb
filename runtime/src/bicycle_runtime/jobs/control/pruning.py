"""Removal of files of ended jobs: folders in the home, and checkpoints on request.

A job is removed whole or not at all, and never a job that runs, that a supervisor starts again,
that is paused, or whose dead letters are in its folder: these records exist nowhere else.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bicycle_runtime.jobs.control.job_queries import list_jobs
from bicycle_runtime.jobs.errors import JobRunningError
from bicycle_runtime.jobs.home import Home, JobFolder
from bicycle_runtime.jobs.locks import FileLock
from bicycle_runtime.jobs.status import JobState, JobStatus
from bicycle_sdk.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedJob:
    """The result for one job; ``kept`` is the reason to keep it, empty if removed.

    ``byte_count`` is the size of its files. ``checkpoint`` is the location of its state, None when
    it is removed as well.
    """

    job: str
    state: str
    ended_ms: int
    byte_count: int
    checkpoint: str | None
    kept: str = ""


def prune_jobs(
    home: Home, *, clock: Clock, older_than_ms: int, with_checkpoints: bool, is_trial: bool
) -> list[PrunedJob]:
    """Remove the jobs that ended some time ago, the oldest last.

    Args:
        home: Where jobs are kept.
        clock: Measures how long ago that is.
        older_than_ms: Only jobs that ended before so long.
        with_checkpoints: Remove checkpoints as well, if they are in the home.
        is_trial: Remove nothing, and return the jobs that would be removed.
    """
    latest_ms = clock.now_ms() - older_than_ms
    found = []
    for status in list_jobs(home):
        ended_ms = status.ended_ms if status.ended_ms is not None else status.updated_ms
        is_readable = ended_ms > 0  # An unreadable status may be of a newer version.
        is_over = status.state.is_final and status.state is not JobState.PAUSED
        latest_use_ms = max(ended_ms, _new_start_ms(home.folder(status.id)))
        if is_over and is_readable and latest_use_ms <= latest_ms:
            checkpoint = _checkpoint_in(home, status) if with_checkpoints else None
            found.append(_prune(home, status, checkpoint, ended_ms=ended_ms, is_trial=is_trial))
    return found


def _new_start_ms(folder: JobFolder) -> int:
    """Return the time of a requested start that has no status yet, or 0."""
    try:
        requested_ns = folder.request_path.stat().st_mtime_ns
        written_ns = folder.status_path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
    return requested_ns // 1_000_000 if requested_ns > written_ns else 0


def _prune(
    home: Home, status: JobStatus, checkpoint: Path | None, *, ended_ms: int, is_trial: bool
) -> PrunedJob:
    folder = home.folder(status.id)
    folders = [folder.path, *([checkpoint] if checkpoint is not None else [])]
    size = sum(map(_size_of, folders))
    kept = ""
    if any(_files(folder.path / "dead_letters")):
        kept = f"its dead letters are in {folder.path / 'dead_letters'}"
    else:
        try:
            _remove(status.id, folders, is_trial=is_trial)
        except JobRunningError:
            kept = "it is starting"
        except OSError as error:
            kept = f"{error.filename}: {error.strerror}"
    return PrunedJob(
        job=status.id, state=status.state.value, ended_ms=ended_ms, byte_count=size,
        checkpoint=None if checkpoint is not None else status.checkpoint or None, kept=kept,
    )  # fmt: skip


def _remove(job: str, folders: list[Path], *, is_trial: bool) -> None:
    """Remove folders under their locks, so that no driver takes them; status last."""
    with contextlib.ExitStack() as locks:
        for path in folders:
            locks.enter_context(FileLock(path / "lock", job=job, location=str(path)))
        if not is_trial:
            for path in reversed(folders):
                shutil.rmtree(path)


def _checkpoint_in(home: Home, status: JobStatus) -> Path | None:
    """Return the checkpoint of a job if it is directly below the home's checkpoints."""
    path = Path(status.checkpoint)
    return path if path.parent == home.checkpoints_dir and path.is_dir() else None


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)


def _size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in _files(folder))
