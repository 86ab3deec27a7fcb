"""The book of sealed epochs of one job: seal, find the last, mark it published, collect.

``epochs/<epoch>.manifest`` is created once and never changed; its creation is the seal.
``<epoch>.published`` beside it says that all sinks made the epoch visible. A file that no retained
manifest names is garbage. The ledger has one writer, the job's driver; a second driver fails at
its first seal.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from zlib import crc32

from bicycle_runtime.base.logging import log_event
from bicycle_runtime.base.storage import ObjectExistsError, ObjectMissingError, Storage
from bicycle_runtime.recovery.errors import EpochTakenError, ManifestError, NoEpochReadableError
from bicycle_runtime.recovery.manifest import Manifest, decode_manifest, encode_manifest

__all__ = ["EpochLedger", "LastEpoch"]

_LOG = logging.getLogger(__name__)
_NAME_DIGITS = 12
_TASK_FOLDERS = ("state", "staged")

PathsOf = Callable[[Manifest], set[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LastEpoch:
    """What a restart finds: the newest readable manifest, published or not; what is damaged."""

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
        sink_paths: Returns the staged files that a manifest's sink memos still need.
    """

    def __init__(
        self, storage: Storage, *, job: str, retained_count: int, sink_paths: PathsOf
    ) -> None:
        self._storage = storage
        self._job = job
        self._retained_count = retained_count
        self._sink_paths = sink_paths
        self._retained: list[Manifest] = []
        self._held: Counter[int] = Counter()
        self._lock = threading.Lock()  # Collection runs beside whoever holds an epoch.

    def last(self) -> LastEpoch | None:
        """Return the newest epoch that can be read; None when no epoch was ever sealed.

        Damaged is a manifest that is cut or changed, or whose state files are. It is put aside
        (its name gets ``.damaged``), so that its epoch can be run again.

        Raises:
            NoEpochReadableError: there are manifests, but none is readable.
        """
        readable: list[Manifest] = []
        damaged: list[ManifestError] = []
        epochs = self._sealed_epochs()
        for epoch in reversed(epochs):
            try:
                readable.append(self._read(epoch, is_verified=not readable))
            except ManifestError as error:
                damaged.append(error)
        self._put_aside(damaged if readable else [])
        self._retained = readable[::-1]
        if readable:
            is_published = self._storage.exists(_published_path(readable[0].epoch))
            return LastEpoch(
                manifest=readable[0], is_published=is_published, damaged=tuple(damaged)
            )
        if damaged:
            reason = damaged[0].facts["reason"]
            raise NoEpochReadableError(
                count=len(damaged), job=self._job, url=self._storage.url, reason=reason
            )
        return None

    def seal(self, manifest: Manifest) -> None:
        """Make an epoch final.

        Raises:
            EpochTakenError: another driver sealed it.
        """
        try:
            self._storage.create(_manifest_path(manifest.epoch), encode_manifest(manifest))
        except ObjectExistsError:
            raise EpochTakenError(epoch=manifest.epoch, job=self._job) from None
        self._retained.append(manifest)

    def mark_published(self, epoch: int) -> None:
        """Take note that every sink made the epoch visible."""
        self._storage.write(_published_path(epoch), b"")

    @contextlib.contextmanager
    def holding(self, epoch: int) -> Iterator[None]:
        """Let nothing of a retained epoch be collected while inside, such as for a copy of it."""
        with self._lock:
            self._held[epoch] += 1
        try:
            yield
        finally:
            with self._lock:
                self._held -= Counter({epoch: 1})

    def collect(self) -> None:
        """Delete manifests beyond the retained ones, and the files that only they needed."""
        while len(self._retained) > self._retained_count:
            with self._lock:
                if self._held[self._retained[0].epoch]:
                    return
            oldest = self._retained.pop(0)
            unneeded = self._paths(oldest) - self._paths(self._retained[0])
            for path in sorted(unneeded):
                self._storage.delete(path)
            self._storage.delete(_published_path(oldest.epoch))
            self._storage.delete(_manifest_path(oldest.epoch))

    def sweep(self) -> int:
        """Delete every state and staged file that no manifest names, half-written ones included.

        Called after ``last``, when no task of this job runs: what crashed attempts left behind
        goes here. Returns how many files there were.
        """
        needed: set[str] = set().union(*map(self._paths, self._retained))
        orphans = [
            path
            for folder in _TASK_FOLDERS
            for path in self._storage.list(folder)
            if path not in needed
        ]
        for path in orphans:
            self._storage.delete(path)
        folders = (*_TASK_FOLDERS, "epochs")
        unfinished_count = sum(map(self._storage.discard_unfinished, folders))
        file_count = len(orphans) + unfinished_count
        if file_count:
            log_event(_LOG, "orphans_deleted", job=self._job, file_count=file_count)
        return file_count

    def _read(self, epoch: int, *, is_verified: bool) -> Manifest:
        """Return a manifest; with ``is_verified`` every state file that it names is checked too."""
        path = _manifest_path(epoch)
        manifest = decode_manifest(self._storage.read(path), path=path)
        files = (
            ref for state in manifest.states.values() for part in state.ranges for ref in part.files
        )
        for ref in {ref.path: ref for ref in files}.values() if is_verified else ():
            try:
                is_whole = crc32(self._storage.read(ref.path)) == ref.crc32
            except ObjectMissingError:
                is_whole = False
            if not is_whole:
                raise ManifestError(
                    path=path, reason=f"its state file {ref.path} is missing or damaged"
                )
        return manifest

    def _paths(self, manifest: Manifest) -> set[str]:
        return manifest.state_paths() | manifest.feedback_paths() | self._sink_paths(manifest)

    def _sealed_epochs(self) -> list[int]:
        names = (path.rpartition("/")[2] for path in self._storage.list("epochs"))
        return sorted(int(name.partition(".")[0]) for name in names if name.endswith(".manifest"))

    def _put_aside(self, damaged: Iterable[ManifestError]) -> None:
        for error in damaged:
            path = error.facts["path"]
            log_event(_LOG, "manifest_damaged", level=logging.WARNING, job=self._job, error=error)
            self._storage.write(f"{path}.damaged", self._storage.read(path))
            self._storage.delete(path)
            self._storage.delete(path.removesuffix(".manifest") + ".published")


def _manifest_path(epoch: int) -> str:
    return f"epochs/{epoch:0{_NAME_DIGITS}}.manifest"


def _published_path(epoch: int) -> str:
    return f"epochs/{epoch:0{_NAME_DIGITS}}.published"
