"""The home of the runtime on this machine: caches, and a folder for each job.

``<home>/cache`` may be removed at any time. ``<home>/jobs/<id>/`` holds ``status.json`` (the driver
writes it), ``request.json`` (the request), ``log`` and ``lock``. ``<home>/checkpoints`` is for jobs
that name no checkpoint directory. This module reads no environment: the caller passes the location.
"""

from __future__ import annotations

import difflib
import hashlib
import random
import re
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from bicycle_runtime.base.files import own_folder, replace_file
from bicycle_runtime.base.ids import job_id, slug
from bicycle_runtime.base.processes import is_alive
from bicycle_runtime.base.storage import LocalStorage, Storage
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.base.stored import decode_stored, encode_stored
from bicycle_runtime.extraction.scripts import is_script, script_name
from bicycle_runtime.jobs.errors import JOB_NOT_FOUND
from bicycle_runtime.jobs.options import JobOptions, JobRequest
from bicycle_runtime.jobs.status import JobState, JobStatus, read_status
from bicycle_runtime.layouts.paths import LEASE
from bicycle_sdk.clock import Clock
from bicycle_sdk.errors import BicycleError, OptionError
from bicycle_streams.access.errors import HOME_UNUSABLE

# Of a request or status that is missing, damaged, or of another version.
UNREADABLE = (OSError, ValueError, LookupError, TypeError, BicycleError)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://")


@dataclass(frozen=True, slots=True)
class JobFolder:
    """The stored files of one job on this machine."""

    path: Path

    @property
    def id(self) -> str:
        """The name of the folder, which commands take."""
        return self.path.name

    @property
    def status_path(self) -> Path:
        """Written by the driver only."""
        return self.path / "status.json"

    @property
    def request_path(self) -> Path:
        """The file with the request of the job."""
        return self.path / "request.json"

    @property
    def log_path(self) -> Path:
        """The log file of the driver."""
        return self.path / "log"

    @property
    def journal_path(self) -> Path:
        """A line for each epoch, written by the driver only."""
        return self.path / "journal.jsonl"

    @property
    def stacks_path(self) -> Path:
        """The folder in which processes of the running job write their stacks when asked."""
        return self.path / "stacks"

    @property
    def lock_path(self) -> Path:
        """Held while the status is written."""
        return self.path / "lock"

    @property
    def shadow_path(self) -> Path:
        """The file with the note on a version in the shadow of the job."""
        return self.path / "shadow.json"

    def pause(self, status: JobStatus) -> None:
        """Make a stop of this run a pause, also for processes that start later."""
        self.forget_pause()
        self._pause_path(status).touch()

    def forget_pause(self) -> None:
        """Make a stop of the job no pause."""
        for path in self.path.glob("pause-*"):
            path.unlink(missing_ok=True)

    def state_of_stop(self, status: JobStatus) -> JobState:
        """Return PAUSED if the run was requested to pause, else STOPPED."""
        return JobState.PAUSED if self._pause_path(status).exists() else JobState.STOPPED

    def _pause_path(self, status: JobStatus) -> Path:
        return self.path / f"pause-{status.started_ms}"

    def turn_path(self, supervisor_pid: int) -> Path:
        """Return the file that starts the turn of a prepared driver, by its supervisor."""
        return self.path / f"turn-{supervisor_pid}"

    def ready_path(self, supervisor_pid: int) -> Path:
        """Return the file that a prepared driver writes when it waits for its turn."""
        return self.path / f"ready-{supervisor_pid}"

    def status(self) -> JobStatus | None:
        """Return the status as it was last written."""
        return read_status(self.status_path)

    def write_request(self, request: JobRequest) -> None:
        """Write the request in one step: a driver that is started again reads it.

        Paths of ours in it are kept absolute, as its reader may be in another directory. That
        directory is kept as well, for the paths of the job.
        """
        own_folder(self.path)
        given = request.options
        plugin = _absolute(given.plugin) if is_script(given.plugin) else None
        options = replace(
            given,
            plugin=plugin or given.plugin,
            plugin_env=_absolute(given.plugin_env),
            checkpoint_dir=_absolute(given.checkpoint_dir),
            from_=_absolute(given.from_),
            savepoint_key=_absolute(given.savepoint_key),
        )
        kept = replace(request, options=options, directory=request.directory or str(Path.cwd()))
        replace_file(self.request_path, msgspec.json.format(encode_stored(kept.to_json())))

    def read_request(self) -> JobRequest:
        """Return the request of the job."""
        path = self.request_path
        return JobRequest.from_json(decode_stored(path.read_bytes(), dict, path=str(path)))


@dataclass(frozen=True, slots=True)
class Home:
    """The directory, which need not exist yet."""

    path: Path

    @property
    def cache_dir(self) -> Path:
        """Files that only make starts faster."""
        return self.path / "cache"

    @property
    def checkpoints_dir(self) -> Path:
        """The checkpoints of jobs that name no checkpoint directory."""
        return self.path / "checkpoints"

    def prepare(self) -> None:
        """Make the directory.

        Raises:
            HOME_UNUSABLE: it cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            own_folder(self.path / "jobs")
        except OSError as error:
            reason = error.strerror or str(error)
            raise HOME_UNUSABLE(path=str(self.path), reason=reason) from error

    def folder(self, name: str) -> JobFolder:
        """Return the folder of a job, which need not exist."""
        return JobFolder(self.path / "jobs" / name)

    def folders(self) -> list[JobFolder]:
        """Return the folders of all jobs that have a status, by name."""
        found = sorted((self.path / "jobs").glob("*/status.json"))
        return [JobFolder(path.parent) for path in found]

    def find(self, name: str) -> JobFolder:
        """Return the folder of a known job.

        Raises:
            JOB_NOT_FOUND: there is no such job; with close names.
        """
        known = [folder.id for folder in self.folders()]
        if name in known:
            return self.folder(name)
        close = difflib.get_close_matches(name, known, n=1)
        raise JOB_NOT_FOUND(
            job=name,
            known=known,
            known_text=", ".join(known) or "none",
            suggestion=f" (did you mean {close[0]!r}?)" if close else "",
            home=str(self.path),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLocation:
    """The place of a job: its name, its checkpoint storage, its folder in the home."""

    job: str
    checkpoint_dir: str
    storage: Storage
    folder: JobFolder

    def for_driver(self) -> JobLocation:
        """Return the place for a driver, whose start makes a local checkpoint's folder."""
        storage = self.storage
        if isinstance(storage, LocalStorage):
            storage = replace(storage, required_folder=f"{storage.root}/{LEASE}")
        return replace(self, storage=storage)

    @property
    def dead_letters_dir(self) -> str:
        """The folder of dead letters: beside local checkpoints, otherwise in the home."""
        if isinstance(self.storage, LocalStorage):
            return f"{self.storage.url}/dead_letters"
        return str(self.folder.path / "dead_letters")

    @property
    def lock_path(self) -> Path | None:
        """The lock file in the checkpoint storage; None when that is no local directory."""
        storage = self.storage
        return storage.local_path("lock") if isinstance(storage, LocalStorage) else None


def locate_job(
    options: JobOptions, home: Home, *, clock: Clock, source: random.Random
) -> JobLocation:
    """Decide where a job lives.

    With a checkpoint directory the job is named after its plugin, so that the same command finds it
    again; without one every run is a new job.

    Raises:
        OptionError: the name cannot be a folder.
    """
    checkpoint_dir = options.checkpoint_dir or str(home.checkpoints_dir)
    name, plugin = options.name, script_name(options.plugin)
    if name is None and options.checkpoint_dir is not None:
        name = plugin if _NAME.fullmatch(plugin) else slug(plugin)
    if name is None:

        def is_taken(taken: str) -> bool:
            return home.folder(taken).path.exists() or (home.checkpoints_dir / taken).exists()

        name = job_id(plugin, clock=clock, source=source, is_taken=is_taken)
    patience_s = options.storage_timeout_ms / 1_000
    storage = checkpoint_of(checkpoint_dir, name, patience_s=patience_s)
    return JobLocation(
        job=name,
        checkpoint_dir=checkpoint_dir,
        storage=storage,
        folder=_free_folder(home, name, storage),
    )


def checkpoint_of(checkpoint_dir: str, job: str, *, patience_s: float = 30.0) -> Storage:
    """Return the checkpoint storage of a job below a directory or URL. Nothing is made.

    Args:
        checkpoint_dir: The directory or URL above the job's.
        job: The name of its folder there.
        patience_s: How long a call to a storage behind a URL is tried again.

    Raises:
        OptionError: the name cannot be a folder.
    """
    if not _NAME.fullmatch(job):
        expected = (
            "1 to 63 letters, digits, dots, dashes or underscores, starting with a letter or digit"
        )
        raise OptionError(group="JobOptions", name="name", found=job, expected=expected)
    return open_storage(_below(checkpoint_dir, job), patience_s=patience_s)


def _absolute(path: str | None) -> str | None:
    if path is None or _URL.match(path):
        return path
    return str(Path(path).expanduser().absolute())


def _below(checkpoint_dir: str, name: str) -> str:
    if _URL.match(checkpoint_dir):
        return f"{checkpoint_dir.rstrip('/')}/{name}"
    return str(Path(checkpoint_dir).expanduser() / name)


def _free_folder(home: Home, name: str, storage: Storage) -> JobFolder:
    """Return the folder of a name, or another if a job with other checkpoints uses it.

    A job that has got another folder keeps it.
    """
    folder = home.folder(name)
    status = folder.status()
    if status is None or status.checkpoint == storage.url:
        return folder
    other = home.folder(f"{name}-{hashlib.sha256(storage.url.encode()).hexdigest()[:6]}")
    return other if other.status_path.exists() or _is_used(folder, status) else folder


def _is_used(folder: JobFolder, status: JobStatus) -> bool:
    """Return whether a job runs, will be started again, or is paused."""
    if status.state is JobState.PAUSED or is_alive(status.pid, status.pid_started):
        return True
    return not status.state.is_final and (
        is_alive(status.supervisor_pid, status.supervisor_started)
        or folder.state_of_stop(status) is JobState.PAUSED
    )
