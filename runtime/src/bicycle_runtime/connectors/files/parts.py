"""Parts: staged output becomes files in the output directory, exactly once.

A *part plan* is sealed in the manifest and means: append these staged files to this open part, from
this length to that, and (when ``name`` is set) give it its final name. Carrying a plan out again
results in the same files:

1. The final file is there: the plan was carried out; the rest of the open part is removed.
2. Otherwise the open part is cut to its sealed length, so that half an append does not count.
3. The staged files are appended, each checked against its checksum, and flushed to the disk.
4. The part is renamed into place. A part of a single staged file is that file, renamed.

Open parts are in the checkpoint storage. Storage that is not a local directory cannot append:
there, staged files wait until their part is complete and are joined then. A job that was moved from
the one kind of storage to the other takes its open part along (``carried_over``).
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import crc32

from bicycle_runtime.base.files import sync_folder
from bicycle_runtime.base.object_paths import checked_name
from bicycle_runtime.base.storage import LocalStorage, Storage, publish_file, storage_error
from bicycle_runtime.connectors.errors import OPEN_PART_DAMAGED, PART_GONE
from bicycle_runtime.connectors.staging import BLOCK_BYTES, staged_blocks
from bicycle_runtime.contract import StagedFile
from bicycle_sdk.logging import log_event

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPart:
    """A part under construction, as sealed: nothing behind ``byte_count`` counts.

    ``path`` is in the checkpoint storage; ``held`` are the staged files that make up the part where
    storage cannot append. ``header`` is the text that every file of the part begins with (CSV),
    written once. ``record_count`` is 0 where an older version sealed it.
    """

    path: str
    byte_count: int
    since_ms: int
    header: str
    held: tuple[StagedFile, ...] = ()
    record_count: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the form that the state carries; ``from_json`` is the inverse."""
        return {
            "path": self.path,
            "bytes": self.byte_count,
            "records": self.record_count,
            "since_ms": self.since_ms,
            "header": self.header,
            "held": [file.to_json() for file in self.held],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> OpenPart:
        """Return the open part of a state."""
        return cls(
            path=data["path"],
            byte_count=data["bytes"],
            since_ms=data["since_ms"],
            header=data["header"],
            held=tuple(StagedFile.from_json(file) for file in data["held"]),
            record_count=data.get("records", 0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartPlan:
    """The change of one part in one epoch.

    ``path`` is the open part (None: the staged files become a part at once); ``start`` and ``end``
    its length before and after; ``name`` its final name when it becomes complete.
    """

    path: str | None
    start: int
    end: int
    header: str
    files: tuple[StagedFile, ...]
    name: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the form that the state carries; ``from_json`` is the inverse."""
        return {
            "path": self.path,
            "start": self.start,
            "end": self.end,
            "header": self.header,
            "files": [file.to_json() for file in self.files],
            "name": self.name,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> PartPlan:
        """Return the plan of a state."""
        return cls(
            path=data["path"],
            start=data["start"],
            end=data["end"],
            header=data["header"],
            files=tuple(StagedFile.from_json(file) for file in data["files"]),
            name=data["name"],
        )


def carry_out(plan: PartPlan, storage: Storage, folder: Path) -> None:
    """Execute a plan; repeating it after a crash at any point is harmless.

    Args:
        plan: Of the last sealed epoch.
        storage: The location of staged files and open parts.
        folder: The output directory.

    Raises:
        STAGED_FILE_DAMAGED: a staged file differs from the sealed one.
        OPEN_PART_DAMAGED: the open part lost sealed bytes.
        PART_GONE: the final file was moved away, or its content was deleted.
        ObjectMissingError: a staged file that is still needed is gone.
        StorageError: the output directory cannot be written.
    """
    try:
        _carry_out(plan, storage, folder)
    except OSError as error:
        path = plan.name or str(plan.path)
        raise storage_error(error, url=str(folder), action="publish", path=path) from error


def _carry_out(plan: PartPlan, storage: Storage, folder: Path) -> None:
    target = None if plan.name is None else folder / checked_name(plan.name)
    if target is not None and target.exists():
        sync_folder(folder)  # A crash may have come between the name and this.
        if plan.path is not None:
            storage.delete(plan.path)
        return
    renamed = plan.path if plan.start else plan.files[0].path if len(plan.files) == 1 else None
    if target is not None and renamed is not None and not storage.exists(renamed):
        raise PART_GONE(path=str(target))
    if plan.path is not None and isinstance(storage, LocalStorage):
        _append(plan, storage, plan.path)
        if target is not None:
            publish_file(storage, plan.path, target)
    elif target is not None and len(plan.files) == 1 and isinstance(storage, LocalStorage):
        for _ in staged_blocks(storage, plan.files[0]):
            continue  # Reading it whole proves its checksum.
        publish_file(storage, plan.files[0].path, target)
    elif target is not None:
        _join(plan, storage, target)
    if target is not None:
        sync_folder(folder)


def carried_over(part: OpenPart, storage: Storage) -> OpenPart:
    """Return a sealed open part in the form that this storage can continue.

    Only a job that was moved has it in the other form: files that wait where storage can append,
    or one that was appended to where it cannot.

    Raises:
        OPEN_PART_DAMAGED: it lost sealed bytes.
        STAGED_FILE_DAMAGED: a waiting file differs from the sealed one.
        ObjectMissingError: it is gone.
    """
    is_appending = isinstance(storage, LocalStorage)
    if is_appending and part.held:
        plan = PartPlan(
            path=part.path, start=0, end=part.byte_count, header=part.header, files=part.held,
            name=None,
        )  # fmt: skip
        with storage.open_write(part.path) as joined:
            for data in _content(plan, storage):
                joined.write(data)
        return replace(part, held=())
    if is_appending or part.held or not part.byte_count:
        return part
    with storage.open_read(part.path) as stream:
        data = stream.read(part.byte_count)
    if len(data) < part.byte_count:
        raise OPEN_PART_DAMAGED(
            path=part.path, found_byte_count=len(data), byte_count=part.byte_count
        )
    kept = f"{part.path}.held"
    storage.write(kept, data)
    file = StagedFile(
        path=kept, record_count=0, byte_count=len(data), crc32=crc32(data), subtask=0,
        details={"header": part.header},
    )  # fmt: skip
    return replace(part, held=(file,))


def withdraw(path: Path, storage: Storage, kept: str, part: OpenPart | None) -> None:
    """Withdraw a final file of an unsealed epoch, after a fall back to an older one.

    1. The open part that it was made of is restored as it was sealed.
    2. The file is kept in the checkpoint storage, so that nothing is destroyed.
    3. It is removed from the output directory; its records come again.

    Args:
        path: The final file.
        storage: The location of open parts.
        kept: Where in ``storage`` the file is kept.
        part: The sealed open part if the file was made of it, else None.
    """
    if part is not None and isinstance(storage, LocalStorage) and not storage.exists(part.path):
        with path.open("rb") as source, storage.open_write(part.path) as restored:
            restored.write(source.read(part.byte_count))
    with path.open("rb") as source, storage.open_write(kept) as copy:
        shutil.copyfileobj(source, copy, BLOCK_BYTES)
    path.unlink()
    sync_folder(path.parent)
    log_event(_logger, "part_withdrawn", level=logging.WARNING, path=str(path), kept=kept)


def _append(plan: PartPlan, storage: LocalStorage, path: str) -> None:
    local = storage.path_to_write(path)
    with local.open("r+b" if local.exists() else "w+b") as part:
        found = part.seek(0, os.SEEK_END)
        if found < plan.start:
            raise OPEN_PART_DAMAGED(path=path, found_byte_count=found, byte_count=plan.start)
        if found >= plan.end and not all(storage.exists(file.path) for file in plan.files):
            # Staged files are collected only after their epoch was published: all of it is here.
            part.truncate(plan.end)
            return
        part.truncate(plan.start)
        part.seek(plan.start)
        for data in _content(plan, storage):
            part.write(data)
        part.flush()
        os.fsync(part.fileno())
    if plan.start == 0:
        sync_folder(local.parent)


def _join(plan: PartPlan, storage: Storage, target: Path) -> None:
    temporary = target.with_name(f".tmp-{target.name}.tmp")
    with temporary.open("wb") as part:
        for data in _content(plan, storage):
            part.write(data)
        part.flush()
        os.fsync(part.fileno())
    temporary.replace(target)


def _content(plan: PartPlan, storage: Storage) -> Iterator[bytes]:
    """Yield the bytes that a plan adds: one header per part, then the files."""
    if plan.start == 0 and plan.header:
        yield plan.header.encode()
    skipped = len(plan.header.encode())
    for file in plan.files:
        left = skipped
        for data in staged_blocks(storage, file):
            if left < len(data):
                yield data[left:]
            left = max(left - len(data), 0)
