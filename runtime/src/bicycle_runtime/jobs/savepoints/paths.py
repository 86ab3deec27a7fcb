"""Paths and names of savepoints, and the description of one.

A job's savepoints are in ``savepoints/<name>`` of its checkpoint directory, or below a named
directory or URL. Nothing is made or read here but the list of them.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from bicycle_runtime.base.storage import Storage
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.layouts.paths import SAVEPOINTS
from bicycle_runtime.layouts.savepoint import Savepoint
from bicycle_runtime.recovery.copying import folder_of
from bicycle_runtime.recovery.savepoints import SAVEPOINT_FILES
from bicycle_sdk.errors import OptionError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def new_savepoint_path(
    checkpoint: Storage, *, epoch: int, name: str | None, to: str | None, now_ms: int
) -> tuple[str, Storage]:
    """Return name and storage of a savepoint that is to be made.

    Args:
        checkpoint: Checkpoint storage of the job.
        epoch: The epoch, which is part of a generated name.
        name: The name; None makes one of the time.
        to: Directory or URL for savepoints; None is that of the job.
        now_ms: The time of day.

    Raises:
        OptionError: the name cannot be a folder.
    """
    if name is None:
        time = datetime.fromtimestamp(now_ms / 1_000, tz=UTC)
        name = f"{time:%Y%m%d-%H%M%S}-epoch-{epoch}"
    require_savepoint_name(name)
    if to is None:
        return name, folder_of(checkpoint, f"{SAVEPOINTS}/{name}")
    return name, folder_of(open_storage(to), name)


def require_savepoint_name(name: str) -> None:
    """Ensure that a name can be that of a folder.

    Raises:
        OptionError: it cannot.
    """
    if not _NAME.fullmatch(name):
        expected = (
            "1 to 63 letters, digits, dots, dashes or underscores, starting with a letter or digit"
        )
        raise OptionError(group="savepoint", name="name", found=name, expected=expected)


def savepoints_below(storage: Storage, prefix: str = "") -> list[Storage]:
    """Return every savepoint below a place, unfinished ones included, by path."""
    folders = set()
    for path in storage.list(prefix):
        folder, _, name = path.rpartition("/")
        if name in SAVEPOINT_FILES:
            folders.add(folder)
    return [folder_of(storage, folder) if folder else storage for folder in sorted(folders)]


def answer_of(savepoint: Savepoint, storage: Storage) -> dict[str, Any]:
    """Return the description of a new savepoint."""
    return {
        "url": storage.url,
        "name": savepoint.name,
        "job": savepoint.job,
        "epoch": savepoint.epoch,
        "created_ms": savepoint.created_ms,
        "event_count": savepoint.event_count,
        "byte_count": savepoint.byte_count,
        "file_count": savepoint.file_count,
    }
