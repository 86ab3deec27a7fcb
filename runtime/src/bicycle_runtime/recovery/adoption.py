"""Adoption of another job's epoch: it is put into an empty checkpoint directory.

The epoch comes from a savepoint, or is the newest published one of any checkpoint directory. Its
manifest is written last and makes it the job's last epoch; until then ``restore.unfinished``
exists, so that the files of a crash are neither taken for a checkpoint nor for an empty place. The
source is only read, and a savepoint may be used any number of times.

Another version of a job may run in its *shadow*: on a fork of it, in a folder of its checkpoint
directory. Handing over is one epoch of the job, with the shadow's state and all else unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from bicycle_runtime.base.storage import ObjectMissingError, Storage
from bicycle_runtime.layouts.paths import CONNECTORS, JOB_FILE, RESTORE_CLAIM, STAGED, STATE
from bicycle_runtime.recovery.copying import (
    FileToCopy,
    copy_files,
    link_files,
    settle_links,
    wanted_copy,
)
from bicycle_runtime.recovery.errors import (
    CHECKPOINT_MISSING,
    CHECKPOINT_OCCUPIED,
    COPY_REFUSED,
    RESTORE_UNFINISHED,
    ManifestError,
    SavepointMissingError,
)
from bicycle_runtime.recovery.history import EpochHistory
from bicycle_runtime.recovery.manifest import Manifest, encode_manifest
from bicycle_runtime.recovery.savepoints import (
    Content,
    content_of,
    epoch_paths,
    job_facts,
    read_savepoint,
)
from bicycle_runtime.state.sealed.refs import with_mark

_OWN_FOLDERS = (STATE, STAGED, CONNECTORS)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedEpoch:
    """The epoch that a job starts from: its storage, and whether it is a savepoint."""

    storage: Storage
    manifest: Manifest
    is_savepoint: bool

    def graph(self) -> dict[str, Any] | None:
        """Return the graph that ran the epoch, as plain data; None when it is not known."""
        job = job_facts(self.storage)
        is_same = job.get("bundle_digest") == self.manifest.plan.bundle_digest
        graph = job.get("graph") if is_same else None
        return graph if isinstance(graph, dict) else None


def find_origin(storage: Storage) -> AdoptedEpoch:
    """Return the epoch that a savepoint, or a checkpoint directory, offers.

    Raises:
        CHECKPOINT_MISSING: it has no published epoch.
        BicycleError: it is a savepoint that cannot be used, see ``read_savepoint``.
    """
    try:
        epoch = read_savepoint(storage).epoch
    except SavepointMissingError:
        return AdoptedEpoch(
            storage=storage, manifest=_newest_published(storage), is_savepoint=False
        )
    manifest = EpochHistory(storage).manifest(epoch)
    return AdoptedEpoch(storage=storage, manifest=manifest, is_savepoint=True)


def adopt(origin: AdoptedEpoch, target: Storage, *, job: str) -> Manifest:
    """Make an epoch the last one of a job without epochs, which must not run."""
    refuse_occupied(target)
    _claim(target)
    content, rest = _content(origin)
    _bring(origin.storage, target, content.fixed)
    copy_files(origin.storage, target, content.changing)
    facts = {**job_facts(origin.storage), "job": job}
    target.write(JOB_FILE, json.dumps(facts, indent=2).encode() + b"\n")
    for wanted in rest:  # In this order: an epoch with a manifest that is not published is another.
        copy_files(origin.storage, target, [wanted])
    target.delete(RESTORE_CLAIM)
    return content.manifest


def fork(source: Storage, target: Storage, *, job: str) -> Manifest:
    """Start a shadow from the newest published epoch of a job, which may be running.

    Files of connectors are not copied: a shadow starts no connector.

    Raises:
        CHECKPOINT_MISSING: the job has no such epoch.
        COPY_REFUSED: a file of it is missing or damaged, as when it was collected meanwhile.
    """
    manifest = _without_unfinished_bases(_newest_published(source))
    _bring(source, target, _needed_files(source, manifest))
    facts = {**job_facts(source), "job": job}
    target.write(JOB_FILE, json.dumps(facts, indent=2).encode() + b"\n")
    published, sealed = epoch_paths(manifest.epoch)
    target.write(published, b"")
    target.create(sealed, encode_manifest(manifest))
    return manifest


def is_same_work(followed: Manifest, shadow: Manifest) -> bool:
    """Return whether a shadow's epoch is the result of this epoch of the job."""
    return all(
        getattr(followed, name) == getattr(shadow, name)
        for name in ("epoch", "event_count", "offsets", "sources", "sinks", "replay")
    )


def hand_over(shadow: Storage, target: Storage, *, require_lease: Callable[[], None]) -> int | None:
    """Continue a stopped job with the state of its shadow, if that has caught up.

    The sealed epoch reads and publishes nothing: offsets, and the states of sinks and sources, are
    unchanged from the epoch before. Until it is sealed nothing has happened.

    Args:
        shadow: Checkpoint storage of the shadow.
        target: That of the job.
        require_lease: Raises when another driver has taken over.

    Returns:
        The epoch; None when the shadow is of another epoch, or output of the last one is not
        visible yet: then the job continues with its own state.

    Raises:
        COPY_REFUSED: a file of the shadow is missing or damaged; nothing was sealed.
    """
    history, own = EpochHistory(target), EpochHistory(shadow)
    made, last = own.epochs(), history.epochs()
    if not made or not last or made[-1] != last[-1]:
        return None
    manifest, followed = own.manifest(), history.manifest()
    if not is_same_work(followed, manifest):
        return None
    if not target.exists(epoch_paths(followed.epoch)[0]):
        return None
    _bring(shadow, target, _needed_files(shadow, manifest))
    taken = replace(_without_unfinished_bases(manifest), epoch=followed.epoch + 1, replay=b"")
    published, sealed = epoch_paths(taken.epoch)
    require_lease()
    target.write(published, b"")  # Before the manifest: no output waits behind it.
    target.create(sealed, encode_manifest(taken))
    return taken.epoch


def _needed_files(storage: Storage, manifest: Manifest) -> list[FileToCopy]:
    """Return the files of state and feedback of an epoch."""
    paths = manifest.state_paths() | manifest.feedback_paths()
    return [file for file in content_of(storage, manifest.epoch).fixed if file.path in paths]


def _without_unfinished_bases(manifest: Manifest) -> Manifest:
    """Return an epoch for another location, without bases in progress."""
    states = {
        uid: msgspec.structs.replace(
            state,
            ranges=tuple(with_mark(part, None) for part in state.ranges),
        )
        for uid, state in manifest.states.items()
    }
    return replace(manifest, states=states)


def _bring(source: Storage, target: Storage, files: Sequence[FileToCopy]) -> None:
    """Link or copy immutable files; existing ones are left unchanged."""
    missing = [file for file in files if not _has(target, file)]
    left = link_files(source, target, missing)
    settle_links(source, target, [file for file in missing if file not in left])
    copy_files(source, target, left)


def _has(storage: Storage, file: FileToCopy) -> bool:
    try:
        return storage.size(file.path) == file.byte_count
    except ObjectMissingError:
        return False


def is_adopted(origin: AdoptedEpoch, target: Storage) -> bool:
    """Return whether an epoch was adopted, and no other was sealed since."""
    history = EpochHistory(target)
    if history.epochs() != [origin.manifest.epoch] or target.url == origin.storage.url:
        return False
    try:
        return history.manifest() == origin.manifest
    except ManifestError:
        return False


def refuse_unfinished_restore(storage: Storage) -> None:
    """Refuse to start a job in a directory with an interrupted restore.

    Raises:
        RESTORE_UNFINISHED: a restore to this place was interrupted.
    """
    if not storage.exists(RESTORE_CLAIM):
        return
    if not EpochHistory(storage).epochs():
        raise RESTORE_UNFINISHED(url=storage.url)
    storage.delete(RESTORE_CLAIM)  # Only this was left to do.


def refuse_occupied(target: Storage) -> None:
    """Refuse a directory that is not empty, except after an interrupted ``adopt``.

    Raises:
        CHECKPOINT_OCCUPIED: there are epochs of a job, or files of its connectors.
    """
    if EpochHistory(target).epochs():
        raise CHECKPOINT_OCCUPIED(url=target.url, found="epochs of a job")
    if not target.exists(RESTORE_CLAIM) and target.list(_OWN_FOLDERS[-1]):
        raise CHECKPOINT_OCCUPIED(url=target.url, found="files of a job's connectors")


def _claim(target: Storage) -> None:
    """Claim an empty directory; files of an interrupted predecessor are removed."""
    if target.exists(RESTORE_CLAIM):
        for folder in _OWN_FOLDERS:
            target.delete_tree(folder)
    target.write(RESTORE_CLAIM, b"")


def _content(origin: AdoptedEpoch) -> tuple[Content, list[FileToCopy]]:
    """Return the files of an epoch and the two that make it count.

    A savepoint records size and checksum of everything, also of connectors' files.
    """
    content = content_of(origin.storage, origin.manifest.epoch)
    paths = epoch_paths(origin.manifest.epoch)
    if not origin.is_savepoint:
        return content, [FileToCopy(path=path) for path in paths]
    recorded = {file.path: wanted_copy(file) for file in read_savepoint(origin.storage).files}

    def known(path: str) -> FileToCopy:
        if path not in recorded:
            problem = "it is not listed in savepoint.json"
            raise COPY_REFUSED(path=path, url=origin.storage.url, problem=problem)
        return recorded[path]

    proved = Content(
        manifest=content.manifest,
        fixed=tuple(known(file.path) for file in content.fixed),
        changing=tuple(
            file for path, file in recorded.items() if path.startswith(_OWN_FOLDERS[-1] + "/")
        ),
    )
    return proved, [known(path) for path in paths]


def _newest_published(storage: Storage) -> Manifest:
    """Return the newest manifest that is whole and whose output is visible."""
    found = EpochHistory(storage).retained()
    for epoch in reversed(found):
        if epoch.is_published and epoch.damage is None and epoch.manifest is not None:
            return epoch.manifest
    damage = next((each.damage for each in reversed(found) if each.damage), None)
    if damage is not None:
        raise ManifestError(path=storage.url, reason=damage)
    words = "; all of its epochs are unpublished" if found else ""
    hint = (
        "use the directory of a savepoint, or of a job that has run; `bicycle savepoint list "
        "--checkpoint-dir URL` lists the savepoints below a location"
    )
    raise CHECKPOINT_MISSING(url=storage.url, found=words, hint=hint)
