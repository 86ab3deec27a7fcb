"""Savepoints: independent copies of a published epoch, and restores from them.

A savepoint has the layout of a job's checkpoint directory with that one epoch, and
``savepoint.json``, which names every file with size and checksum and is written last: without it
there is no savepoint. ``savepoint.unfinished`` exists from the first file to the last, so that two
cannot be made in one place and the files of a crash are recognized.

Files of state never change, so they are linked if possible and may be copied while the job
continues. Connectors' files (journals, open parts) do change: they are copied at once. Nothing here
knows a connector: all files in their folders are copied, and files that their states name.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from bicycle_runtime.base.errors import UnsafePathError
from bicycle_runtime.base.object_paths import require_below
from bicycle_runtime.base.storage import (
    LocalStorage,
    ObjectExistsError,
    ObjectMissingError,
    Storage,
    delete_all,
)
from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.layouts.paths import (
    CONNECTORS,
    EPOCHS,
    JOB_FILE,
    SAVEPOINT_CLAIM,
    SAVEPOINT_FILE,
    SAVEPOINT_SIGNATURE,
    STAGED,
    STATE,
)
from bicycle_runtime.layouts.savepoint import SAVEPOINT_VERSION, CopiedFile, Savepoint
from bicycle_runtime.recovery.copying import (
    FileToCopy,
    copy_files,
    link_files,
    read_back,
    settle_links,
    wanted_copy,
)
from bicycle_runtime.recovery.errors import (
    COPY_REFUSED,
    SAVEPOINT_TAKEN,
    SavepointFormatError,
    SavepointMissingError,
    SavepointUnfinishedError,
)
from bicycle_runtime.recovery.manifest import Manifest, decode_manifest
from bicycle_runtime.state.sealed.refs import objects_of

# One of them is wherever a savepoint is, whole or not.
SAVEPOINT_FILES = (SAVEPOINT_FILE, SAVEPOINT_CLAIM)
_FOLDERS = (CONNECTORS, EPOCHS, STAGED, STATE)
Sign = Callable[[bytes], bytes]
_STAGED = f"{STAGED}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The files of one epoch: immutable ones, and connectors' changing ones."""

    manifest: Manifest
    fixed: tuple[FileToCopy, ...]
    changing: tuple[FileToCopy, ...]


class SavepointWriter:
    """Makes one savepoint.

    ``begin`` needs a paused job, ``finish`` does not.

    Between the two the files of the epoch must not be removed. The end without a savepoint is
    ``abandon``.

    Args:
        source: Checkpoint storage of the job.
        target: Where the savepoint will be.
        epoch: Which epoch; it is published.
        name: Name of the savepoint.
        now_ms: The time of day.
        sign: Returns the signature of a description; None makes an unsigned savepoint.
        replaces_incomplete: Whether to replace an incomplete savepoint there: that of a crash, if
            no other process makes one.
    """

    def __init__(
        self, source: Storage, target: Storage, *, epoch: int, name: str, now_ms: int,
        sign: Sign | None = None, replaces_incomplete: bool = False,
    ) -> None:  # fmt: skip
        self._source = source
        self._target = target
        self._epoch = epoch
        self._name = name
        self._now_ms = now_ms
        self._sign = sign
        self._replaces_incomplete = replaces_incomplete
        self._copied: list[CopiedFile] = []

    def begin(self) -> None:
        """Claim the location, link immutable files, and copy the others.

        Raises:
            SAVEPOINT_TAKEN: something is there; it is left alone.
            COPY_REFUSED: a file is missing or damaged.
        """
        _claim(self._target, replaces_incomplete=self._replaces_incomplete)
        try:
            self._content = content_of(self._source, self._epoch)
            self._unlinked = link_files(self._source, self._target, self._content.fixed)
            changing = [*self._content.changing, *_present(self._source, JOB_FILE)]
            self._copied = self._copy(changing)
        except BaseException:
            self.abandon()
            raise

    def finish(self) -> Savepoint:
        """Copy the rest, check the links, and write the description, the final step.

        Raises:
            COPY_REFUSED: a file is missing or damaged; nothing is left of the savepoint.
        """
        try:
            copied = self._copy(self._unlinked)
            paths = {file.path for file in copied}
            linked = [file for file in self._content.fixed if file.path not in paths]
            is_digested = self._sign is not None
            proved = settle_links(self._source, self._target, linked, is_digested=is_digested)
            sealing = self._copy(map(_whole, epoch_paths(self._epoch)))
            savepoint = self._describe((*copied, *proved, *self._copied, *sealing))
            data = msgspec.json.format(msgspec.json.encode(savepoint)) + b"\n"
            if self._sign is not None:
                self._target.write(SAVEPOINT_SIGNATURE, self._sign(data))
            self._target.create(SAVEPOINT_FILE, data)
        except BaseException:
            self.abandon()
            raise
        self._target.delete(SAVEPOINT_CLAIM)
        return savepoint

    def abandon(self) -> None:
        """Remove the written files."""
        _remove(self._target)

    def _copy(self, files: Iterable[FileToCopy]) -> list[CopiedFile]:
        is_digested = self._sign is not None
        return copy_files(self._source, self._target, files, is_digested=is_digested)

    def _describe(self, files: tuple[CopiedFile, ...]) -> Savepoint:
        manifest = self._content.manifest
        job = job_facts(self._source)
        texts = ("plugin_version", "dist", "sdk_version", "python_version")
        is_same = job.get("bundle_digest") == manifest.plan.bundle_digest
        graph = job.get("graph")
        return Savepoint(
            format_version=SAVEPOINT_VERSION,
            name=self._name,
            job=str(job.get("job", "")),
            created_ms=self._now_ms,
            epoch=manifest.epoch,
            sealed_ms=manifest.plan.now_ms,
            event_count=manifest.event_count,
            bundle_digest=manifest.plan.bundle_digest,
            plugin=str(job.get("plugin", "")),
            **{name: str(job.get(name, "")) for name in texts if is_same},
            graph=graph if is_same and isinstance(graph, dict) else None,
            byte_count=sum(file.byte_count for file in files),
            file_count=len(files),
            files=tuple(sorted(files, key=lambda file: file.path)),
        )


def write_savepoint(
    source: Storage, target: Storage, *, epoch: int, name: str, now_ms: int,
    sign: Sign | None = None, replaces_incomplete: bool = False,
) -> Savepoint:  # fmt: skip
    """Make a savepoint of a job that does not run.

    Raises:
        SAVEPOINT_TAKEN: something is there; it is left alone.
        COPY_REFUSED: a file is missing or damaged; nothing is left of the savepoint.
    """
    writer = SavepointWriter(
        source, target, epoch=epoch, name=name, now_ms=now_ms, sign=sign,
        replaces_incomplete=replaces_incomplete,
    )  # fmt: skip
    writer.begin()
    return writer.finish()


def content_of(storage: Storage, epoch: int) -> Content:
    """Return the files that an epoch needs, except for its own two.

    Raises:
        ManifestError: the manifest is damaged.
        COPY_REFUSED: it is missing.
    """
    path = epoch_paths(epoch)[1]
    try:
        manifest = decode_manifest(storage.read(path), path=path)
    except ObjectMissingError:
        raise COPY_REFUSED(path=path, url=storage.url, problem="it is missing") from None
    known = dict(_recorded_files(manifest))
    staged = {path: file for path, file in _named_files(manifest.sinks) if storage.exists(path)}
    needed = manifest.state_paths() | manifest.feedback_paths()
    fixed = {path: known.get(path, FileToCopy(path=path)) for path in needed} | staged
    return Content(
        manifest=manifest,
        fixed=tuple(fixed[path] for path in sorted(fixed)),
        changing=tuple(FileToCopy(path=path) for path in storage.list(CONNECTORS)),
    )


def read_savepoint(storage: Storage) -> Savepoint:
    """Return the description of a savepoint.

    Raises:
        SavepointMissingError: there is no savepoint.
        SavepointUnfinishedError: its making was interrupted.
        SavepointFormatError: it cannot be read.
    """
    try:
        data = storage.read(SAVEPOINT_FILE)
    except ObjectMissingError:
        if storage.exists(SAVEPOINT_CLAIM):
            raise SavepointUnfinishedError(url=storage.url) from None
        raise SavepointMissingError(url=storage.url) from None
    try:
        version = msgspec.json.decode(data, type=prepare_type(_Version)).format_version
        if version == SAVEPOINT_VERSION:
            savepoint = msgspec.json.decode(data, type=prepare_type(Savepoint))
            require_below((f.path for f in savepoint.files if f.path != JOB_FILE), *_FOLDERS)
            return savepoint
    except UnsafePathError as error:
        raise SavepointFormatError(url=storage.url, problem=error.summary) from error
    except msgspec.MsgspecError as error:
        raise SavepointFormatError(url=storage.url, problem=str(error)) from error
    problem = f"it has format version {version}, but this runtime supports {SAVEPOINT_VERSION}"
    raise SavepointFormatError(url=storage.url, problem=problem)


def verify_savepoint(storage: Storage) -> Savepoint:
    """Read every file of a savepoint and compare it with its description.

    Raises:
        COPY_REFUSED: a file is missing or damaged.
        BicycleError: see ``read_savepoint``.
    """
    savepoint = read_savepoint(storage)
    read_back(storage, [wanted_copy(file) for file in savepoint.files])
    return savepoint


def delete_savepoint(storage: Storage) -> None:
    """Remove a savepoint, complete or not.

    Raises:
        SavepointMissingError: there is neither; nothing was removed.
    """
    if not (storage.exists(SAVEPOINT_FILE) or storage.exists(SAVEPOINT_CLAIM)):
        raise SavepointMissingError(url=storage.url)
    _remove(storage)


class _Version(msgspec.Struct, frozen=True):
    format_version: int


def _claim(target: Storage, *, replaces_incomplete: bool) -> None:
    """Take a place that nothing is in, at most once."""
    found = target.list("")
    is_incomplete = SAVEPOINT_CLAIM in found and SAVEPOINT_FILE not in found
    if is_incomplete and replaces_incomplete:
        _remove(target)
    elif found:
        what = "a savepoint" if SAVEPOINT_FILE in found else "something"
        what = "an incomplete savepoint" if is_incomplete else what
        raise SAVEPOINT_TAKEN(url=target.url, found=what)
    try:  # With bytes of its own: equal ones are taken for ours, see ``Storage.create``.
        target.create(SAVEPOINT_CLAIM, secrets.token_bytes(8))
    except ObjectExistsError:
        raise SAVEPOINT_TAKEN(url=target.url, found="an incomplete savepoint") from None
    if target.list("") != [SAVEPOINT_CLAIM]:  # Another was made whole between the two.
        target.delete(SAVEPOINT_CLAIM)
        raise SAVEPOINT_TAKEN(url=target.url, found="a savepoint")


def _remove(storage: Storage) -> None:
    """Remove all files, so that a partial savepoint is never taken for complete."""
    if not storage.exists(SAVEPOINT_CLAIM):
        storage.write(SAVEPOINT_CLAIM, b"")
    paths = [path for path in storage.list("") if path not in (SAVEPOINT_FILE, SAVEPOINT_CLAIM)]
    storage.delete(SAVEPOINT_FILE)
    delete_all(storage, paths)
    storage.delete(SAVEPOINT_CLAIM)
    storage.discard_unfinished("")
    if isinstance(storage, LocalStorage):
        with contextlib.suppress(OSError):  # Another process has written a file there.
            storage.local_path("").rmdir()


def _recorded_files(manifest: Manifest) -> Iterator[tuple[str, FileToCopy]]:
    """Yield the manifest's records of state and feedback files."""
    for state in manifest.states.values():
        for part in state.ranges:
            for item in objects_of(part):
                yield item.path, _wanted_file(item.path, item.byte_count, item.crc32)
    for files in manifest.feedback.values():
        for file in files:
            yield file.path, _wanted_file(file.path, file.byte_count, file.crc32)


def _named_files(state: Any) -> Iterator[tuple[str, FileToCopy]]:
    """Yield the staged files in states, with their recorded sizes and checksums.

    Published output of an epoch is not there any more, and is not needed: the rest waits for a
    part.
    """
    if isinstance(state, dict) and str(state.get("path", "")).startswith(_STAGED):
        yield state["path"], _wanted_file(state["path"], state.get("bytes"), state.get("crc32"))
    elif isinstance(state, dict):
        for value in state.values():
            yield from _named_files(value)
    elif isinstance(state, list | tuple):
        for value in state:
            yield from _named_files(value)
    elif isinstance(state, str) and state.startswith(_STAGED):
        yield state, FileToCopy(path=state)


def _wanted_file(path: str, byte_count: int | None, checksum: int | None) -> FileToCopy:
    return FileToCopy(path=path, byte_count=byte_count, crc32=checksum)


def _whole(path: str) -> FileToCopy:
    return FileToCopy(path=path)


def _present(storage: Storage, path: str) -> list[FileToCopy]:
    return [FileToCopy(path=path)] if storage.exists(path) else []


def epoch_paths(epoch: int) -> tuple[str, str]:
    """Return the files that mark an epoch as published and sealed, in this order."""
    return f"epochs/{epoch:012}.published", f"epochs/{epoch:012}.manifest"


def job_facts(storage: Storage) -> dict[str, Any]:
    """Return the facts in ``job.json``, empty if it is damaged."""
    try:
        facts = json.loads(storage.read(JOB_FILE))
    except (ObjectMissingError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def job_of(storage: Storage) -> str:
    """Return the name of the job that a savepoint or a checkpoint directory is of.

    A savepoint names its job in its description, a checkpoint directory in ``job.json``.

    Returns:
        The name; empty if there is neither, or the description cannot be read.
    """
    try:
        return read_savepoint(storage).job
    except (SavepointMissingError, SavepointUnfinishedError, SavepointFormatError):
        return str(job_facts(storage).get("job", ""))
