"""Beginning with what another job left: an epoch is put into an empty checkpoint directory.

The epoch comes from a savepoint, or is the newest published one of any checkpoint directory. Its
manifest is written last and makes it the job's last epoch; until then ``restore.unfinished`` stands
there, so that what a crash leaves is neither taken for a checkpoint nor for an empty place. The
source is only read, and a savepoint may be used any number of times.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from bicycle_runtime.base.storage import Storage
from bicycle_runtime.layouts.paths import CONNECTORS, JOB_FILE, RESTORE_CLAIM, STAGED, STATE
from bicycle_runtime.recovery.copying import (
    Wanted,
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
from bicycle_runtime.recovery.manifest import Manifest
from bicycle_runtime.recovery.savepoints import (
    Content,
    content_of,
    epoch_paths,
    job_facts,
    read_savepoint,
)

__all__ = [
    "Origin",
    "adopt",
    "find_origin",
    "is_adopted",
    "refuse_occupied",
    "refuse_unfinished_restore",
]

_OWN_FOLDERS = (STATE, STAGED, CONNECTORS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The epoch that a job begins with: where it lies, and whether that is a savepoint."""

    storage: Storage
    manifest: Manifest
    is_savepoint: bool

    def graph(self) -> dict[str, Any] | None:
        """Return the graph that ran the epoch, as plain data; None when it is not known."""
        job = job_facts(self.storage)
        is_same = job.get("bundle_digest") == self.manifest.plan.bundle_digest
        graph = job.get("graph") if is_same else None
        return graph if isinstance(graph, dict) else None


def find_origin(storage: Storage) -> Origin:
    """Return the epoch that a savepoint, or a checkpoint directory, offers.

    Raises:
        CHECKPOINT_MISSING: no epoch that is published lies there.
        BicycleError: it is a savepoint that cannot be used, see ``read_savepoint``.
    """
    try:
        epoch = read_savepoint(storage).epoch
    except SavepointMissingError:
        return Origin(storage=storage, manifest=_newest_published(storage), is_savepoint=False)
    manifest = EpochHistory(storage).manifest(epoch)
    return Origin(storage=storage, manifest=manifest, is_savepoint=True)


def adopt(origin: Origin, target: Storage, *, job: str) -> Manifest:
    """Make an epoch the last one of a job that has none. The job must not run.

    Args:
        origin: The epoch.
        target: Checkpoint storage of the job.
        job: Its name.

    Raises:
        CHECKPOINT_OCCUPIED: see ``refuse_occupied``; nothing was changed.
        COPY_REFUSED: a file is missing or damaged; the job still has no epoch.
    """
    refuse_occupied(target)
    _claim(target)
    content, rest = _content(origin)
    left = link_files(origin.storage, target, content.fixed)
    linked = [file for file in content.fixed if file not in left]
    settle_links(origin.storage, target, linked)
    copy_files(origin.storage, target, [*left, *content.changing])
    facts = {**job_facts(origin.storage), "job": job}
    target.write(JOB_FILE, json.dumps(facts, indent=2).encode() + b"\n")
    for wanted in rest:  # In this order: an epoch with a manifest that is not published is another.
        copy_files(origin.storage, target, [wanted])
    target.delete(RESTORE_CLAIM)
    return content.manifest


def is_adopted(origin: Origin, target: Storage) -> bool:
    """Tell whether an epoch was put into a place, and no other was sealed there since."""
    history = EpochHistory(target)
    if history.epochs() != [origin.manifest.epoch] or target.url == origin.storage.url:
        return False
    try:
        return history.manifest() == origin.manifest
    except ManifestError:
        return False


def refuse_unfinished_restore(storage: Storage) -> None:
    """See that a job does not start with half of what was to be put there.

    Raises:
        RESTORE_UNFINISHED: somebody who put an epoch there was interrupted.
    """
    if not storage.exists(RESTORE_CLAIM):
        return
    if not EpochHistory(storage).epochs():
        raise RESTORE_UNFINISHED(url=storage.url)
    storage.delete(RESTORE_CLAIM)  # Only this was left to do.


def refuse_occupied(target: Storage) -> None:
    """See that a place is empty, but for what an interrupted ``adopt`` left there.

    Raises:
        CHECKPOINT_OCCUPIED: there are epochs of a job, or files of its connectors.
    """
    if EpochHistory(target).epochs():
        raise CHECKPOINT_OCCUPIED(url=target.url, found="epochs of a job")
    if not target.exists(RESTORE_CLAIM) and target.list(_OWN_FOLDERS[-1]):
        raise CHECKPOINT_OCCUPIED(url=target.url, found="files of a job's connectors")


def _claim(target: Storage) -> None:
    """Take an empty place; what an interrupted predecessor left there is removed."""
    if target.exists(RESTORE_CLAIM):
        for folder in _OWN_FOLDERS:
            target.delete_tree(folder)
    target.write(RESTORE_CLAIM, b"")


def _content(origin: Origin) -> tuple[Content, list[Wanted]]:
    """Return the files of an epoch and the two that make it count.

    A savepoint records size and checksum of everything, also of what connectors keep.
    """
    content = content_of(origin.storage, origin.manifest.epoch)
    paths = epoch_paths(origin.manifest.epoch)
    if not origin.is_savepoint:
        return content, [Wanted(path=path) for path in paths]
    recorded = {file.path: wanted_copy(file) for file in read_savepoint(origin.storage).files}

    def known(path: str) -> Wanted:
        if path not in recorded:
            problem = "savepoint.json does not name it"
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
    words = "; there are epochs, but none of them is published" if found else ""
    hint = (
        "name the directory of a savepoint, or of a job that has run; "
        "`bicycle savepoint list --checkpoint-dir URL` shows the savepoints below a place"
    )
    raise CHECKPOINT_MISSING(url=storage.url, found=words, hint=hint)
