"""The driver's table of input files: their identity, progress and readable end.

A *shard* is one file's life: it keeps its name (the path at which the file was first seen) when the
file is renamed, and a new file under its old path is another shard (``path#2``). The table changes
nothing on disk and is rebuilt from the connector state after a restart: the offsets there count,
since a path may have been given to another file.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bicycle_runtime.connectors.errors import INPUT_CHANGED, INPUT_UNREADABLE
from bicycle_runtime.connectors.files.blocks import BLOCK_BYTES, is_compressed
from bicycle_runtime.connectors.files.identity import (
    HEAD_BYTE_COUNT_MAX,
    FileIdentity,
    find_file,
    identify,
    identity_at,
    with_tail,
)
from bicycle_sdk.logging import log_event

_logger = logging.getLogger(__name__)
_COPY_WAIT_S = 10.0
_SAMPLE_BYTES = 64 << 10


@dataclass(slots=True, kw_only=True)
class TrackedFile:
    """One shard.

    ``readable_end`` is the end of the last whole line (plain files); a compressed file is read
    until its end shows, then it ``is_done``. Nothing is tried again at ``stalled_end``: no whole
    record is there yet. ``is_packed`` means a format whose offsets count rows.
    """

    shard: str
    path: str
    identity: FileIdentity
    size: int
    offset: int = 0
    readable_end: int = 0
    scanned_end: int = -1
    modified_ns: int = 0
    stalled_end: int = -1
    is_done: bool = False
    is_packed: bool = False
    turn: int = 0
    next_identity: FileIdentity | None = None

    @property
    def is_compressed(self) -> bool:
        """Return whether offsets count decompressed content, of unknown length."""
        return self.is_packed or is_compressed(self.path)

    @property
    def has_input(self) -> bool:
        """Return whether a slice of this file would contain input."""
        if self.is_compressed:
            return not self.is_done
        return self.readable_end > self.offset and self.readable_end != self.stalled_end

    def line_bytes(self) -> float | None:
        """Return the mean size of the next lines; None when the file is not at its place."""
        try:
            with Path(self.path).open("rb") as stream:
                stream.seek(self.offset)
                sample = stream.read(min(self.readable_end - self.offset, _SAMPLE_BYTES))
        except OSError:
            return None
        return len(sample) / max(sample.count(b"\n"), 1) if sample else None

    def to_json(self, offset: int, *, is_done: bool) -> list[Any]:
        """Return the state of this file, read up to ``offset``, for ``move_to``.

        Fields that earlier versions did not have are at the end.
        """
        self.next_identity = self.identity_at(offset)
        known = self.next_identity.to_json()
        return [self.path, *known[:3], self.size, offset, int(is_done), *known[3:]]

    def identity_at(self, offset: int) -> FileIdentity:
        """Return the file's identity when it is read up to ``offset``."""
        return with_tail(self.path, self.identity, self.size if self.is_compressed else offset)

    def move_to(self, offset: int) -> None:
        """Continue at ``offset``, where a sealed epoch ended."""
        self.offset = offset
        self.identity, self.next_identity = self.next_identity or self.identity, None


class FileTable:
    """The shards of one source.

    Args:
        is_followed: Files may grow, be renamed and replaced, and appear.
        is_packed: Files are of a format whose offsets count rows.
    """

    def __init__(self, *, is_followed: bool, is_packed: bool = False) -> None:
        self.is_followed = is_followed
        self.is_packed = is_packed
        self.files: dict[str, TrackedFile] = {}
        self._copies: dict[str, tuple[int, float]] = {}

    def to_json(self, ends: Mapping[str, int], done: Mapping[str, bool]) -> dict[str, Any]:
        """Return the state of all started files, as of an epoch that ends at ``ends``."""
        return {
            shard: file.to_json(ends.get(shard, file.offset), is_done=done.get(shard, file.is_done))
            for shard, file in self.files.items()
            if ends.get(shard, file.offset) > 0 or done.get(shard, file.is_done)
        }

    def restore(self, files: Mapping[str, Any]) -> None:
        """Restore a sealed epoch's state; ``refresh`` then finds the files again."""
        for shard, (
            path,
            inode,
            head_size,
            head_crc32,
            size,
            offset,
            is_done,
            *more,
        ) in files.items():
            self.files[shard] = TrackedFile(
                shard=shard,
                path=path,
                identity=FileIdentity.from_json([inode, head_size, head_crc32, *more]),
                size=size,
                offset=offset,
                is_done=bool(is_done),
                is_packed=self.is_packed,
            )

    def refresh(self, listing: Mapping[str, os.stat_result], now_s: float) -> None:
        """Compare the table with the files on disk.

        1. Known files are found again, also as the copy that a rotation made, or their end is
           noticed.
        2. Files at unclaimed paths are new shards, unless a rotation copies a file there just now.
        3. Growth is measured: up to the last newline, or to the end when the input is bounded.

        Args:
            listing: The existing files.
            now_s: The time, on a clock that never goes back.

        Raises:
            INPUT_CHANGED: bounded input was changed between two runs.
            INPUT_UNREADABLE: a file cannot be opened.
        """
        try:
            missing = [
                file for file in list(self.files.values()) if not self._find_again(file, listing)
            ]
            for file in missing:  # Only now is it known which paths others have.
                self._find_copy(file, listing)
            claimed = {file.path for file in self.files.values()}
            for path, stat in listing.items():
                if path not in claimed and not self._is_being_copied(path, stat, now_s):
                    self._add(path, stat)
            self._copies = {path: at for path, at in self._copies.items() if path in listing}
        except OSError as error:
            raise INPUT_UNREADABLE(
                path=str(error.filename), reason=error.strerror or str(error)
            ) from error

    def _find_again(self, file: TrackedFile, listing: Mapping[str, os.stat_result]) -> bool:
        """Find a file under its name or another; return whether it is there."""
        stat = listing.get(file.path) or _stat(file.path)
        if stat is not None and file.scanned_end >= 0 and _is_untouched(file, stat):
            return True
        needed_size = self._needed_size(file)
        found = find_file(file.path, file.identity, size_min=needed_size)
        stat = None if found is None else _stat(found[0])
        if found is None or stat is None or stat.st_size < needed_size:
            return False
        self._move(file, found, stat)
        return True

    def _move(
        self, file: TrackedFile, found: tuple[str, FileIdentity], stat: os.stat_result
    ) -> None:
        path, file.identity = found
        if path != file.path:
            log_event(_logger, "input_file_renamed", shard=file.shard, path=path)
        file.path = path
        self._measure(file, stat)

    def _find_copy(self, file: TrackedFile, listing: Mapping[str, os.stat_result]) -> None:
        """Read a file on in the copy that a rotation made of it, or lose it."""
        is_copied = self.is_followed and not file.is_compressed and file.offset > 0
        claimed = {other.path for other in self.files.values()}
        for path, stat in listing.items() if is_copied else ():
            if path not in claimed and _is_rotated_name(path, file.path):
                identity = identity_at(path, file.identity, size_min=file.offset)
                if identity is not None:
                    self._move(file, (path, identity), stat)
                    return
        self._lose(file)

    def _is_being_copied(self, path: str, stat: os.stat_result, now_s: float) -> bool:
        """Return whether a file may be the copy of one that a rotation will truncate.

        It has the name of a rotated file and the same first bytes. Where the other file is not
        emptied for some time after the copy stopped growing, it is a file by itself.
        """
        if not self.is_followed:
            return False
        for file in self.files.values():
            if file.is_compressed or not _is_rotated_name(path, file.path):
                continue
            head_size = min(file.identity.head_byte_count, stat.st_size)
            if head_size < file.identity.head_byte_count or not head_size:
                is_like = not stat.st_size  # It has just been created.
            else:
                head = replace(file.identity, tail_end=0, tail_byte_count=0, tail_crc32=0)
                is_like = identity_at(path, head, size_min=0) is not None
            if not is_like:
                continue
            size, since_s = self._copies.get(path, (-1, now_s))
            if size != stat.st_size:
                since_s = now_s
            self._copies[path] = stat.st_size, since_s
            return now_s - since_s < _COPY_WAIT_S
        return False

    def _needed_size(self, file: TrackedFile) -> int:
        return file.size if file.is_compressed else file.offset

    def _lose(self, file: TrackedFile) -> None:
        """Forget a removed, truncated or replaced file, with a warning about unread input."""
        was_unread = not file.is_done if file.is_compressed else file.offset < file.size
        is_there = Path(file.path).exists()
        if not self.is_followed and (was_unread or is_there):
            problem = "it was replaced or truncated" if is_there else "it was removed"
            raise INPUT_CHANGED(path=file.path, offset=file.offset, problem=problem)
        log_event(
            _logger,
            "input_file_replaced" if is_there else "input_file_gone",
            level=logging.WARNING if was_unread or is_there else logging.INFO,
            path=file.path,
            shard=file.shard,
            offset=file.offset,
            unread_byte_count=max(file.size - file.offset, 0) if not file.is_compressed else None,
        )
        del self.files[file.shard]

    def _add(self, path: str, stat: os.stat_result) -> None:
        try:
            identity = identify(path)
        except FileNotFoundError:
            return  # It vanished between the listing and now; the next listing shows it.
        shard, generation = path, 1
        while shard in self.files:
            generation += 1
            shard = f"{path}#{generation}"
        file = TrackedFile(
            shard=shard, path=path, identity=identity, size=0, is_packed=self.is_packed
        )
        self.files[shard] = file
        self._measure(file, stat)

    def _measure(self, file: TrackedFile, stat: os.stat_result) -> None:
        if file.identity.head_byte_count < min(HEAD_BYTE_COUNT_MAX, stat.st_size):
            file.identity = with_tail(file.path, identify(file.path), file.identity.tail_end)
        has_grown = stat.st_size > file.size
        file.size = stat.st_size
        file.modified_ns = stat.st_mtime_ns
        if file.offset and not file.identity.tail_end:
            file.identity = file.identity_at(file.offset)  # Of a position of an earlier version.
        if file.is_compressed:
            file.is_done = file.is_done and not has_grown
            file.scanned_end = stat.st_size
        elif not self.is_followed:
            file.readable_end = file.scanned_end = stat.st_size
        else:
            start = max(file.scanned_end, file.offset)
            newline_end = _last_newline_end(file.path, start, stat.st_size)
            file.readable_end = newline_end or max(file.readable_end, file.offset)
            file.scanned_end = stat.st_size


def _is_rotated_name(path: str, original: str) -> bool:
    """Return whether a name is a rotated name of a file.

    Example:
        >>> names = ("/l/a.log.1", "/l/a.log-20260301", "/l/a-20260301.log", "/l/a2.log")
        >>> [_is_rotated_name(name, "/l/a.log") for name in names]
        [True, True, True, False]
    """
    folder, name = os.path.split(path)
    original_folder, original_name = os.path.split(original)
    if folder != original_folder:
        return False
    suffix = Path(original_name).suffix
    stem = original_name.removesuffix(suffix)
    return bool(
        re.fullmatch(rf"{re.escape(original_name)}[.\-_]\d.*", name)
        or re.fullmatch(rf"{re.escape(stem)}[.\-_]\d.*{re.escape(suffix)}", name)
    )


def _is_untouched(file: TrackedFile, stat: os.stat_result) -> bool:
    known = (file.identity.inode, file.size, file.modified_ns)
    return (stat.st_ino, stat.st_size, stat.st_mtime_ns) == known


def _last_newline_end(path: str, start: int, end: int) -> int | None:
    """Return the offset after the last newline in ``[start, end)``, or None."""
    with Path(path).open("rb") as stream:
        while end > start:
            begin = max(start, end - BLOCK_BYTES)
            stream.seek(begin)
            found = stream.read(end - begin).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
            end = begin
    return None


def _stat(path: str) -> os.stat_result | None:
    try:
        return Path(path).stat()
    except OSError:
        return None
