"""The ledger of a job's sealed epochs: seal, find, publish, collect.

``epochs/<epoch>.manifest`` is created once and never changed; its creation is the seal.
``<epoch>.published`` beside it means that all sinks made the epoch visible. A file that no retained
manifest names is garbage. The ledger has one writer, the driver that holds the job's lease: before
anything is sealed, marked, put aside or deleted it looks whether another driver has taken over.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from bicycle_runtime.base.object_paths import require_below
from bicycle_runtime.base.storage import ObjectExistsError, Storage, delete_all
from bicycle_runtime.layouts.paths import (
    CONNECTORS,
    EPOCH_DIGITS,
    EPOCHS,
    MANIFEST,
    PUBLISHED,
    STAGED,
    STATE,
)
from bicycle_runtime.recovery.errors import (
    NO_EPOCH_READABLE,
    EpochTakenError,
    ManifestError,
    ManifestVersionError,
)
from bicycle_runtime.recovery.lease import Fence, Unfenced
from bicycle_runtime.recovery.manifest import Manifest, decode_manifest, encode_manifest
from bicycle_runtime.recovery.verification import Checked, first_damaged, first_unfit
from bicycle_runtime.state.sealed.loading import LoadProgress, untold
from bicycle_sdk.logging import log_event

_LOG = logging.getLogger(__name__)
_TASK_FOLDERS = (STATE, STAGED)
_SINK_FOLDERS = (STAGED, CONNECTORS)
_RETAINED_MAX = 1_000  # However young: a start reads all retained manifests.
_READERS = 16

PathsOf = Callable[[Manifest], set[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LastEpoch:
    """The newest readable manifest for a restart, and damaged ones."""

    manifest: Manifest
    is_published: bool
    damaged: tuple[ManifestError, ...] = ()


class EpochLedger:
    """Manifests of one job.

    Args:
        storage: Checkpoint storage of the job.
        job: Job id, for errors and logs.
        retained_count: How many manifests are kept, 2 or more, so that a damaged one has a
            predecessor.
        retained_age_ms: Manifests younger than this are kept too, up to 1 000 in all.
        sink_paths: Returns the staged files that a manifest's sink states still need.
        fence: Checks whether another driver has taken over.
        followed: Returns the last epoch of a shadow of the job, None without one: it and the epochs
            behind it are kept, up to 1 000 in all.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        job: str,
        retained_count: int,
        retained_age_ms: int = 0,
        sink_paths: PathsOf,
        fence: Fence | None = None,
        followed: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._storage = storage
        self._job = job
        self._retained_count = retained_count
        self._retained_age_ms = retained_age_ms
        self._sink_paths = sink_paths
        self._fence = fence or Unfenced()
        self._followed = followed
        self._retained: list[Manifest] = []
        self._held: Counter[int] = Counter()
        self._lock = threading.Lock()  # Collection runs beside the holders of an epoch.

    def require_lease(self) -> None:
        """Raise LEASE_LOST when another driver has taken over."""
        self._fence.require()

    def last(self, *, progress: LoadProgress = untold) -> LastEpoch | None:
        """Return the newest epoch that can be read; None when no epoch was ever sealed.

        Damaged is a manifest that is cut or changed, or whose state files are. It is put aside
        (its name gets ``.damaged``), so that its epoch can be run again.

        Args:
            progress: Called while the state files are read.

        Raises:
            NO_EPOCH_READABLE: there are manifests, but no readable one.
            ManifestVersionError: another version of the runtime wrote one; nothing was changed.
        """
        readable: list[Manifest] = []
        damaged: list[ManifestError] = []
        epochs = self._sealed_epochs()
        for epoch, found in zip(reversed(epochs), self._decode(epochs[::-1]), strict=True):
            try:
                manifest = _whole(found) if readable else self._verify(epoch, found, progress)
                readable.append(manifest)
            except ManifestVersionError:  # It is not damaged: epochs continue behind it.
                raise
            except ManifestError as error:
                damaged.append(error)
        if readable and damaged:
            self.require_lease()
            self._put_aside(damaged)
        self._retained = readable[::-1]
        if readable:
            is_published = self._storage.exists(_published_path(readable[0].epoch))
            return LastEpoch(
                manifest=readable[0], is_published=is_published, damaged=tuple(damaged)
            )
        if damaged:
            reason = damaged[0].facts["reason"]
            raise NO_EPOCH_READABLE(
                count=len(damaged), job=self._job, url=self._storage.url, reason=reason
            )
        return None

    def doubt(self, path: str) -> None:
        """Mark the epochs that use a state file as damaged, if the file is damaged.

        The next start uses the newest epoch without this file.

        Raises:
            NO_EPOCH_READABLE: all retained epochs use the file; no epoch was marked.
            LEASE_LOST: another driver has taken over; nothing was changed.
        """
        with self._lock:
            retained = list(self._retained)
        hurt = [manifest for manifest in retained if path in _state_files(manifest)]
        if not hurt:
            return
        checked = _state_files(hurt[0])[path]
        if first_damaged(self._storage, {path: checked}) is None:
            return
        reason = f"its file {path} is missing or damaged"
        if len(hurt) == len(retained):
            raise NO_EPOCH_READABLE(
                count=len(hurt), job=self._job, url=self._storage.url, reason=reason
            )
        self.require_lease()
        paths = [_manifest_path(manifest.epoch) for manifest in hurt]
        self._put_aside([ManifestError(path=each, reason=reason) for each in reversed(paths)])
        with self._lock:
            self._retained = [each for each in self._retained if each not in hurt]

    def seal(self, manifest: Manifest) -> None:
        """Make an epoch final.

        Raises:
            LEASE_LOST: another driver has taken over; nothing was sealed.
            EpochTakenError: a driver before this one woke up and sealed it.
        """
        self.require_lease()
        try:
            self._storage.create(_manifest_path(manifest.epoch), encode_manifest(manifest))
        except ObjectExistsError:
            self.require_lease()
            raise EpochTakenError(epoch=manifest.epoch, job=self._job) from None
        with self._lock:
            self._retained.append(manifest)

    def mark_published(self, epoch: int) -> None:
        """Take note that every sink made the epoch visible."""
        self.require_lease()
        self._storage.write(_published_path(epoch), b"")

    @contextlib.contextmanager
    def holding(self, epoch: int) -> Iterator[None]:
        """Protect the files of a retained epoch from collection inside the block."""
        with self._lock:
            self._held[epoch] += 1
        try:
            yield
        finally:
            with self._lock:
                self._held -= Counter({epoch: 1})

    def collect(self, *, now_ms: int = 0) -> None:
        """Delete manifests beyond the retained ones, and the files that only they needed.

        The manifest is deleted first, so that no manifest names a deleted file. After a crash, the
        next start deletes the remaining files.

        Args:
            now_ms: Current time in ms since 1970, from which the age of epochs is computed.

        Raises:
            LEASE_LOST: another driver has taken over; nothing more was deleted.
        """
        while (pair := self._next_collected(now_ms)) is not None:
            oldest, following = pair
            self.require_lease()
            self._storage.delete(_manifest_path(oldest.epoch))
            unneeded = self._paths(oldest) - self._paths(following)
            for folder in oldest.bases_in_making() - following.bases_in_making():
                unneeded |= self._left_in(folder)
            delete_all(self._storage, [_published_path(oldest.epoch), *sorted(unneeded)])

    def sweep(self) -> int:
        """Delete all state and staged files without a reference, also unfinished ones.

        Called after ``last``, when no task of this job runs: it removes the files of crashed
        attempts. Returns the number of files.

        1. List the files.
        2. Make sure that it was ours to list: whatever another driver made is not in the list.
        3. Delete files that no manifest names.
        """
        needed: set[str] = set().union(*map(self._paths, self._retained))
        sealed = {_published_path(manifest.epoch) for manifest in self._retained}
        # 1. List the files.
        found = [path for folder in _TASK_FOLDERS for path in self._storage.list(folder)]
        marks = [path for path in self._storage.list(EPOCHS) if path.endswith(f".{PUBLISHED}")]
        # 2. Make sure that it was ours to list: whatever another driver made is not in the list.
        self.require_lease()
        # 3. Delete files that no manifest names.
        orphans = [path for path in found if path not in needed]
        delete_all(self._storage, [*orphans, *(mark for mark in marks if mark not in sealed)])
        folders = (*_TASK_FOLDERS, EPOCHS)
        unfinished_count = sum(map(self._storage.discard_unfinished, folders))
        file_count = len(orphans) + unfinished_count
        if file_count:
            log_event(_LOG, "orphans_deleted", job=self._job, file_count=file_count)
        return file_count

    def _next_collected(self, now_ms: int) -> tuple[Manifest, Manifest] | None:
        """Remove and return the oldest manifest if it is due, with its successor."""
        followed = self._followed()
        with self._lock:
            if len(self._retained) <= self._retained_count:
                return None
            oldest = self._retained[0]
            age_ms = max(0, now_ms - oldest.plan.now_ms)
            is_wanted = age_ms < self._retained_age_ms or (
                followed is not None and oldest.epoch >= followed
            )
            is_kept = is_wanted and len(self._retained) <= _RETAINED_MAX
            if is_kept or self._held[oldest.epoch]:
                return None
            return self._retained.pop(0), self._retained[0]

    def _decode(self, epochs: list[int]) -> list[Manifest | ManifestError]:
        """Read manifests concurrently; a damaged one is returned as its error."""

        def read(epoch: int) -> Manifest | ManifestError:
            path = _manifest_path(epoch)
            try:
                return decode_manifest(self._storage.read(path), path=path)
            except ManifestError as error:
                return error

        with ThreadPoolExecutor(_READERS, thread_name_prefix="manifests") as pool:
            return list(pool.map(read, epochs))

    def _verify(
        self, epoch: int, found: Manifest | ManifestError, progress: LoadProgress
    ) -> Manifest:
        """Return a manifest whose state files and staged feedback are whole, too."""
        manifest = _whole(found)
        going_round = {
            file.path: Checked(file.byte_count, file.crc32)
            for staged in manifest.feedback.values()
            for file in staged
        }
        damaged = first_unfit(self._storage, _state_files(manifest), progress=progress)
        damaged = damaged or first_damaged(self._storage, going_round)
        if damaged is not None:
            reason = f"its file {damaged} is missing or damaged"
            raise ManifestError(path=_manifest_path(epoch), reason=reason)
        return manifest

    def _paths(self, manifest: Manifest) -> set[str]:
        sink_paths = self._sink_paths(manifest)
        require_below(sink_paths, *_SINK_FOLDERS)
        return manifest.state_paths() | manifest.feedback_paths() | sink_paths

    def _left_in(self, folder: str) -> set[str]:
        """Return the unneeded files of a base that is no longer in progress.

        It was taken, or abandoned. A writer of abandoned bases of the operator may have written for
        a while: all bases as old, or older, are checked.
        """
        operator_folder = folder.rpartition("/")[0].rpartition("/")[0]
        with self._lock:
            retained = list(self._retained)
        needed: set[str] = set().union(*(one.state_paths() for one in retained))
        made: set[str] = set().union(*(one.bases_in_making() for one in retained))
        return {
            path
            for path in self._storage.list(operator_folder)
            if (found := _base_of(path)) is not None
            and path not in needed
            and found not in made
            and _epoch_of(found) <= _epoch_of(folder)
        }

    def _sealed_epochs(self) -> list[int]:
        names = (path.rpartition("/")[2] for path in self._storage.list(EPOCHS))
        return sorted(
            int(name.partition(".")[0]) for name in names if name.endswith(f".{MANIFEST}")
        )

    def _put_aside(self, damaged: Iterable[ManifestError]) -> None:
        for error in damaged:
            path = error.facts["path"]
            log_event(_LOG, "manifest_damaged", level=logging.WARNING, job=self._job, error=error)
            self._storage.write(f"{path}.damaged", self._storage.read(path))
            self._storage.delete(path)
            self._storage.delete(path.removesuffix(MANIFEST) + PUBLISHED)


def _whole(found: Manifest | ManifestError) -> Manifest:
    if isinstance(found, ManifestError):
        raise found
    return found


def _state_files(manifest: Manifest) -> dict[str, Checked]:
    return {item.path: Checked(item.byte_count, item.crc32) for item in manifest.state_objects()}


def _manifest_path(epoch: int) -> str:
    return f"{EPOCHS}/{epoch:0{EPOCH_DIGITS}}.{MANIFEST}"


def _published_path(epoch: int) -> str:
    return f"{EPOCHS}/{epoch:0{EPOCH_DIGITS}}.{PUBLISHED}"


def _base_of(path: str) -> str | None:
    """Return the folder of the base that an object belongs to."""
    folder = path.rpartition("/")[0]
    return folder if folder.endswith(".base") else None


def _epoch_of(folder: str) -> int:
    """Return the epoch that announced the base of a folder."""
    return int(folder.rpartition("/")[2].partition("-")[0])
