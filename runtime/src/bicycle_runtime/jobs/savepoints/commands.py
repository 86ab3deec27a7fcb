"""Savepoints of jobs, from outside: take, list, inspect and restore.

A running job is asked and takes it between two epochs; of one that has ended it is taken here,
while the job's locks keep it from starting. Either way it is of an epoch whose output is visible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from bicycle_runtime.base.storage import LocalStorage, Storage
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.jobs.checkpoints.epoch_reports import report_checkpoints
from bicycle_runtime.jobs.control.job_queries import job_status, list_jobs
from bicycle_runtime.jobs.control.requests import DriverRequest, ask_job
from bicycle_runtime.jobs.errors import ORIGIN_RUNNING, JobNotRunningError, JobRunningError
from bicycle_runtime.jobs.home import Home, checkpoint_of
from bicycle_runtime.jobs.locks import FileLock
from bicycle_runtime.jobs.savepoints.paths import (
    answer_of,
    new_savepoint_path,
    require_savepoint_name,
    savepoints_below,
)
from bicycle_runtime.jobs.savepoints.trust import require_trust, signer
from bicycle_runtime.jobs.status import JobStatus
from bicycle_runtime.layouts.paths import SAVEPOINTS
from bicycle_runtime.layouts.savepoint import Savepoint
from bicycle_runtime.recovery.adoption import (
    AdoptedEpoch,
    adopt,
    find_origin,
    is_adopted,
    refuse_occupied,
)
from bicycle_runtime.recovery.copying import folder_of
from bicycle_runtime.recovery.errors import (
    CHECKPOINT_MISSING,
    EPOCH_UNPUBLISHED,
    LeaseHeldError,
    SavepointFormatError,
    SavepointMissingError,
    SavepointUnfinishedError,
)
from bicycle_runtime.recovery.history import EpochHistory
from bicycle_runtime.recovery.lease import Lease, LeaseKeeper
from bicycle_runtime.recovery.savepoints import (
    read_savepoint,
    verify_savepoint,
    write_savepoint,
)
from bicycle_sdk.clock import Clock
from bicycle_sdk.random_source import system_random

_BEAT_MS = 1_000


def _nothing() -> None:
    """Ignore a lost lease: a missing file is an error of the copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointEntry:
    """A savepoint in a list. If ``problem`` is set, it is unusable, and only ``url`` is valid."""

    url: str
    name: str
    job: str = ""
    plugin: str = ""
    plugin_version: str = ""
    epoch: int = 0
    created_ms: int = 0
    event_count: int = 0
    byte_count: int = 0
    file_count: int = 0
    problem: str | None = None


def create_savepoint(
    home: Home, job: str, *, name: str | None, to: str | None, clock: Clock, timeout_ms: int,
    is_hopeless: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:  # fmt: skip
    """Take a savepoint of a job, which continues if it runs.

    It replaces an incomplete savepoint of its name in the job's folder. If the running job still
    copies the files of that savepoint, as for a killed command, the result is that savepoint.

    Args:
        home: Where jobs are kept.
        job: The job's id.
        name: Name of the savepoint; None creates a name from the time.
        to: Directory or URL below which it is created; None is a folder of the job.
        clock: Clock for the name and the time limit.
        timeout_ms: Time limit for a running job, in ms.
        is_hopeless: Returns whether a running job can no longer respond; ends the wait early.

    Returns:
        Its ``url``, ``name``, ``job``, ``epoch``, ``created_ms``, ``event_count``, sizes.

    Raises:
        JOB_NOT_FOUND: there is no such job.
        REQUEST_TIMED_OUT: it runs and does not answer.
        EPOCH_UNPUBLISHED: it was killed before the output of its last epoch was visible.
        SAVEPOINT_TAKEN: something is at that place already.
        OptionError: the name cannot be a folder.
        BicycleError: a file cannot be read or written.
    """
    to = None if to is None else open_storage(to).url  # The job may have another working directory.
    if name is not None:
        require_savepoint_name(name)  # A running job would find out behind an epoch.
    status = job_status(home, job)
    if not status.state.is_final:
        facts = {"name": name, "to": to}
        try:
            return ask_job(
                home, job, DriverRequest.SAVEPOINT, facts,
                clock=clock, timeout_ms=timeout_ms, is_hopeless=is_hopeless,
            )  # fmt: skip
        except JobNotRunningError:  # It ended before it met the request.
            status = job_status(home, job)
    storage = open_storage(status.checkpoint)
    with _hold(home, status, storage, clock):
        epoch = _last_epoch(storage, job=status.job)
        now_ms = clock.now_ms()
        name, target = new_savepoint_path(storage, epoch=epoch, name=name, to=to, now_ms=now_ms)
        sign = signer(home, _key_file(home, status))
        savepoint = write_savepoint(
            storage, target, epoch=epoch, name=name, now_ms=now_ms, sign=sign,
            replaces_incomplete=to is None,  # No other process takes one under these locks.
        )  # fmt: skip
        return answer_of(savepoint, target)


def list_savepoints(storage: Storage, *, is_job: bool = False) -> list[SavepointEntry]:
    """Return the savepoints of a job, or all below a directory or URL, newest first.

    Args:
        storage: Checkpoint storage of the job, or any place.
        is_job: Look only where the job's own ones are.
    """
    found = [_entry(folder) for folder in savepoints_below(storage, SAVEPOINTS if is_job else "")]
    return sorted(found, key=lambda entry: (-entry.created_ms, entry.url))


def known_savepoints(home: Home, job: str | None) -> list[SavepointEntry]:
    """Return the savepoints beside the checkpoints of this machine's jobs, by job.

    Args:
        home: Where jobs are kept.
        job: Only of this one.

    Raises:
        JOB_NOT_FOUND: there is no such job.
    """
    statuses = list_jobs(home) if job is None else [job_status(home, job)]
    urls = dict.fromkeys(status.checkpoint for status in statuses if status.checkpoint)
    return [entry for url in urls for entry in list_savepoints(open_storage(url), is_job=True)]


def savepoint_of(home: Home, job: str, name: str) -> Storage:
    """Return the location of a savepoint beside a job's checkpoints, absent or not.

    Raises:
        JOB_NOT_FOUND: there is no such job.
        SavepointMissingError: the job has no checkpoint directory.
        BicycleError: that is no name.
    """
    require_savepoint_name(name)
    checkpoint = job_status(home, job).checkpoint
    if not checkpoint:
        raise SavepointMissingError(url=f"{job}/{SAVEPOINTS}/{name}")
    return folder_of(open_storage(checkpoint), f"{SAVEPOINTS}/{name}")


def savepoint_at(home: Home, job: str, name: str, *, to: str | None) -> Storage:
    """Return the location of a job's savepoint, or below a directory; it may be empty.

    Raises:
        BicycleError: see ``savepoint_of``.
    """
    if to is None:
        return savepoint_of(home, job, name)
    require_savepoint_name(name)
    return folder_of(open_storage(to), name)


def savepoint_of_last_epoch(
    home: Home, job: str, name: str, *, to: str | None
) -> dict[str, Any] | None:  # fmt: skip
    """Return the savepoint of the last epoch of a job, if it has this name; or None.

    Raises:
        BicycleError: see ``savepoint_of``; or it cannot be read.
    """
    storage = savepoint_at(home, job, name, to=to)
    try:
        savepoint = read_savepoint(storage)
    except (SavepointMissingError, SavepointUnfinishedError):
        return None
    last = EpochHistory(open_storage(job_status(home, job).checkpoint)).manifest()
    facts = (last.epoch, last.plan.now_ms, last.event_count, last.plan.bundle_digest)
    is_last = facts == (
        savepoint.epoch, savepoint.sealed_ms, savepoint.event_count, savepoint.bundle_digest
    )  # fmt: skip
    return answer_of(savepoint, storage) if is_last else None


def savepoint_report(storage: Storage, *, is_thorough: bool, now_ms: int) -> dict[str, Any]:
    """Return a savepoint's description and epoch as plain data.

    Args:
        storage: The savepoint.
        is_thorough: Read every file and compare checksums, too.
        now_ms: The time to which its age is counted.

    Raises:
        BicycleError: see ``inspect_savepoint``.
    """
    savepoint = inspect_savepoint(storage, is_thorough=is_thorough)
    [report] = report_checkpoints(storage, now_ms=now_ms, epoch=savepoint.epoch)
    plain: dict[str, Any] = msgspec.to_builtins(savepoint)
    more = {"is_verified": is_thorough, "checkpoint": asdict(report)}
    return {"url": storage.url, **plain, **more}


def inspect_savepoint(storage: Storage, *, is_thorough: bool = False) -> Savepoint:
    """Return the description of a savepoint.

    Args:
        storage: The savepoint.
        is_thorough: Read every file and compare checksums, too.

    Raises:
        SavepointMissingError: there is no savepoint.
        COPY_REFUSED: a file is missing or damaged.
        BicycleError: see ``read_savepoint``.
    """
    return verify_savepoint(storage) if is_thorough else read_savepoint(storage)


def open_origin(url: str) -> AdoptedEpoch:
    """Return the epoch for the start of a job: of a savepoint, or of an ended job.

    Raises:
        CHECKPOINT_MISSING: nothing of the kind is there.
        BicycleError: it cannot be used.
    """
    return find_origin(open_storage(url))


def restore_savepoint(origin: AdoptedEpoch, target: Storage, *, job: str, clock: Clock) -> int:
    """Copy a savepoint into the empty checkpoint directory of a job; return its epoch.

    The call holds the lock and the lease of the job. See ``begin_with``.

    Raises:
        JobRunningError: the job, or a restore of it, runs on this machine.
        LeaseHeldError: the job, or a restore of it, runs on another machine.
    """
    with _lock(target, job=job, clock=clock):
        return begin_with(origin, target, job=job, clock=clock)


def restore_to(
    home: Home, url: str, *, checkpoint_dir: str, job: str, trusts: bool, key_file: str | None,
    clock: Clock,
) -> dict[str, Any]:  # fmt: skip
    """Copy a savepoint into the empty checkpoint directory of a job, if it is trusted.

    Args:
        home: Whose signatures are known.
        url: Path or URL of the savepoint, or of the checkpoint directory of a job that has ended.
        checkpoint_dir: The directory or URL below which the job's will be.
        job: Its name.
        trusts: Whether one that another home has made will do.
        key_file: The key with which it must be signed; None for that of the home.
        clock: Measures whether the job still runs.

    Returns:
        ``url`` of the job's checkpoints, ``job``, ``epoch``, and ``origin``, the savepoint's URL.

    Raises:
        SAVEPOINT_FOREIGN: its maker is not known.
        BicycleError: see ``open_origin`` and ``restore_savepoint``.
    """
    target = checkpoint_of(checkpoint_dir, job)
    require_trust(url, home, is_trusted=trusts, key_file=key_file)
    origin = open_origin(url)
    epoch = restore_savepoint(origin, target, job=job, clock=clock)
    return {"url": target.url, "job": job, "epoch": epoch, "origin": origin.storage.url}


def find_restored(url: str, *, checkpoint_dir: str, job: str) -> dict[str, Any] | None:
    """Return the result of ``restore_to``, or None if that is not the last epoch.

    Raises:
        BicycleError: as ``open_origin``.
    """
    target, origin = checkpoint_of(checkpoint_dir, job), open_origin(url)
    if not is_adopted(origin, target):
        return None
    epoch = origin.manifest.epoch
    return {"url": target.url, "job": job, "epoch": epoch, "origin": origin.storage.url}


def begin_with(
    origin: AdoptedEpoch,
    target: Storage,
    *,
    job: str,
    clock: Clock,
    look: Callable[[], object] = _nothing,
) -> int:
    """Copy an epoch as the last one of a job without epochs, under the job's locks.

    Args:
        origin: The epoch.
        target: Checkpoint storage of the job.
        job: Its name.
        clock: Measures whether the job of the epoch still runs.
        look: Called before anything is copied; raises when it must not be.

    Raises:
        CHECKPOINT_OCCUPIED: the job has epochs already; nothing was changed.
        ORIGIN_RUNNING: the epoch is of a job that runs, and is no savepoint.
        COPY_REFUSED: a file is missing or damaged; the job still has no epoch.
    """
    refuse_occupied(target)
    with ExitStack() as locks:
        if not origin.is_savepoint:
            _hold_still(origin.storage, locks, job=job, clock=clock)
        look()
        return adopt(origin, target, job=job).epoch


def _key_file(home: Home, status: JobStatus) -> str | None:
    folder = home.folder(status.id)
    known = folder.request_path.exists()
    return folder.read_request().options.savepoint_key if known else None


def _hold_still(storage: Storage, locks: ExitStack, *, job: str, clock: Clock) -> None:
    """Lock the job whose checkpoint is read. Nothing is written there.

    Raises:
        ORIGIN_RUNNING: a process does.
    """
    try:
        # If no lock was ever taken, no lock file is made.
        if isinstance(storage, LocalStorage) and storage.exists("lock"):
            lock = FileLock(storage.local_path("lock"), job=job, location=storage.url)
            locks.enter_context(lock)
        Lease(storage, job=job, clock=clock, source=system_random()).refuse_holder()
    except JobRunningError as error:
        facts = {"pid": error.facts["pid"], "host": "this machine"}
        raise ORIGIN_RUNNING(url=storage.url, **facts) from None
    except LeaseHeldError as error:
        facts = {name: error.facts[name] for name in ("pid", "host")}
        raise ORIGIN_RUNNING(url=storage.url, **facts) from None


@contextmanager
def _hold(home: Home, status: JobStatus, storage: Storage, clock: Clock) -> Iterator[None]:
    """Hold locks and lease of an ended job, so that it cannot start here or elsewhere.

    Raises:
        JobRunningError: it runs on this machine.
        LeaseHeldError: it runs on another one.
    """
    folder = home.folder(status.id)
    with (
        FileLock(folder.lock_path, job=folder.id, location=str(folder.path)),
        _lock(storage, job=status.job, clock=clock),
    ):
        yield


@contextmanager
def _lock(storage: Storage, *, job: str, clock: Clock) -> Iterator[None]:
    """Hold lock and lease of a checkpoint directory."""
    with ExitStack() as locks:
        if isinstance(storage, LocalStorage):
            path = storage.local_path("lock")
            locks.enter_context(FileLock(path, job=job, location=storage.url))
        lease = Lease(storage, job=job, clock=clock, source=system_random())
        # The job that takes it over removes nothing that the copy needs until it has sealed epochs.
        locks.enter_context(LeaseKeeper(lease, beat_ms=_BEAT_MS, on_lost=_nothing))
        yield


def _last_epoch(storage: Storage, *, job: str) -> int:
    """Return the last epoch of a job that has ended, which must be published."""
    found = EpochHistory(storage).retained()
    if not found:
        hint = "wait until the job seals an epoch"
        raise CHECKPOINT_MISSING(url=storage.url, found="", hint=hint)
    last = found[-1]
    if not last.is_published:
        raise EPOCH_UNPUBLISHED(epoch=last.epoch, job=job, url=storage.url)
    return last.epoch


def _entry(folder: Storage) -> SavepointEntry:
    name = folder.url.rstrip("/").rpartition("/")[2]
    try:
        savepoint = read_savepoint(folder)
    except SavepointUnfinishedError:
        return SavepointEntry(url=folder.url, name=name, problem="it is incomplete")
    except SavepointFormatError as error:
        return SavepointEntry(url=folder.url, name=name, problem=error.facts["problem"])
    fields = {name: getattr(savepoint, name) for name in _SHOWN}
    return SavepointEntry(url=folder.url, **fields)


_SHOWN = (
    "name", "job", "plugin", "plugin_version", "epoch", "created_ms", "event_count", "byte_count",
    "file_count",
)  # fmt: skip
