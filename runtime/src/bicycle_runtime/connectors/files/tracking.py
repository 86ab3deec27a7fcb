"""The driver's table of input files: their identity, progress and readable end.

A *shard* is one file's life: it keeps its name (the path at which the file was first seen) when the
file is renamed, and a new file under its old path is another shard (``path#2``). The table changes
nothing on disk and is rebuilt from the connector state after a restart: the offsets there count,
since a path may have been given to another file. A file that is gone stays in the table for some
time: a directory may be away for a moment, and its files are read on when they return.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from bicycle_runtime.connectors.errors import INPUT_CHANGED, INPUT_UNREADABLE
from bicycle_runtime.connectors.files.blocks import BLOCK_BYTES, is_compressed
from bicycle_runtime.connectors.files.identity import (
    HEAD_BYTE_COUNT_MAX,
    FileIdentity,
    find_file,
    identify,
    identity_at,
    identity_of_open,
    with_tail,
)
from bicycle_sdk.logging import log_event

_logger = logging.getLogger(__name__)
_COPY_WAIT_S = 10.0
_GONE_FILES_MAX = 1_000
_RENAMES_MAX = 3
_SAMPLE_BYTES = 64 << 10


@dataclass(slots=True, kw_only=True)
class TrackedFile:
    """One shard.

    ``readable_end`` is the end of the last whole line (plain files); a compressed file is read
    until its end shows, then it ``is_done``. Nothing is tried again at ``stalled_end``: no whole
    record is there yet. ``is_packed`` means a format whose offsets count rows. A file that
    ``is_gone`` has no input until it returns.
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
    is_gone: bool = False
    turn: int = 0
    next_identity: FileIdentity | None = None

    @property
    def is_compressed(self) -> bool:
        """Return whether offsets count decompressed content, of unknown length."""
        return self.is_packed or is_compressed(self.path)

    @property
    def has_input(self) -> bool:
        """Return whether a slice of this file would contain input."""
        if self.is_gone or self.is_compressed:
            return not (self.is_gone or self.is_done)
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

    Attributes:
        held_shards: The shards of files that may be copies of others, and are not read yet.
    """

    def __init__(self, *, is_followed: bool, is_packed: bool = False) -> None:
        self.is_followed = is_followed
        self.is_packed = is_packed
        self.files: dict[str, TrackedFile] = {}
        self.held_shards: set[str] = set()
        self._copies: dict[str, tuple[int, float]] = {}

    def to_json(self, ends: Mapping[str, int], done: Mapping[str, bool]) -> dict[str, Any]:
        """Return the state of all started files, as of an epoch that ends at ``ends``.

        ``gone`` contains the time of the last change of each file that is gone, in ns.
        """
        files = {
            shard: file.to_json(ends.get(shard, file.offset), is_done=done.get(shard, file.is_done))
            for shard, file in self.files.items()
            if ends.get(shard, file.offset) > 0 or done.get(shard, file.is_done)
        }
        gone = {file.shard: file.modified_ns for file in self.files.values() if file.is_gone}
        return {"files": files, "gone": gone}

    def present(self) -> list[TrackedFile]:
        """Return the files that are not gone."""
        return [file for file in self.files.values() if not file.is_gone]

    def restore(self, state: Mapping[str, Any]) -> None:
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
        ) in state.get("files", {}).items():
            gone_ns = state.get("gone", {}).get(shard)
            self.files[shard] = TrackedFile(
                shard=shard,
                path=path,
                identity=FileIdentity.from_json([inode, head_size, head_crc32, *more]),
                size=size,
                offset=offset,
                is_done=bool(is_done),
                is_packed=self.is_packed,
                is_gone=gone_ns is not None,
                modified_ns=gone_ns or 0,
            )

    def refresh(self, listing: Mapping[str, os.stat_result], now_s: float) -> None:
        """Compare the table with the files on disk.

        1. Known files are found again, also as the copy that a rotation made, or their end is
           noticed.
        2. Files at unclaimed paths are files that return, or new shards, unless a rotation copies a
           file there just now.
        3. Growth is measured: up to the last newline, or to the end when the input is bounded.

        Args:
            listing: The existing files.
            now_s: The time, on a clock that never goes back.

        Raises:
            INPUT_CHANGED: bounded input was changed between two runs.
            INPUT_UNREADABLE: a file cannot be opened.
        """
        try:
            gone = [file for file in self.files.values() if file.is_gone]
            missing = [file for file in self.present() if not self._find_again(file, listing)]
            present = {file.path: file for file in self.present()}
            copies: dict[str, list[str]] = {}
            for path in listing if missing else ():
                for name in _rotated_from(path) if path not in present else ():
                    copies.setdefault(name, []).append(path)
            for file in missing:  # Only now is it known which paths others have.
                self._find_copy(file, copies.get(file.path, []))
            # All files of a directory may be gone at once: only earlier ones are forgotten.
            lost_count = sum(file.is_gone for file in missing)
            excess = len(gone) + lost_count - _GONE_FILES_MAX if lost_count else 0
            for file in gone[: max(excess, 0)]:
                del self.files[file.shard]
            self._add_files(listing, now_s)
            self._copies = {path: at for path, at in self._copies.items() if path in listing}
        except OSError as error:
            raise INPUT_UNREADABLE(
                path=str(error.filename), reason=error.strerror or str(error)
            ) from error

    def _add_files(self, listing: Mapping[str, os.stat_result], now_s: float) -> None:
        """Add the files at unclaimed paths."""
        self.held_shards = set()
        present = {file.path: file for file in self.present()}
        returning: dict[str | int, TrackedFile] = {}
        for file in self.files.values():
            if file.is_gone:
                returning[file.path] = returning[file.identity.inode] = file
        for path, stat in listing.items():
            if path in present:
                continue
            known = (returning.get(path), returning.get(stat.st_ino))
            found = next((file for file in known if file and self._returns(file, path, stat)), None)
            candidates = [present[name] for name in _rotated_from(path) if name in present]
            if found is None and self._is_being_copied(path, stat, now_s, candidates):
                self.held_shards.add(self._free_shard(path))
            elif found is None:
                found = self._add(path)
            if found is not None:
                present[path] = found

    def _find_again(self, file: TrackedFile, listing: Mapping[str, os.stat_result]) -> bool:
        """Find a file under its name or another; return whether it is there."""
        stat = listing.get(file.path) or _stat(file.path)
        if stat is not None and file.scanned_end >= 0 and _is_untouched(file, stat):
            return True
        for _ in range(_RENAMES_MAX):  # Each of them between finding and opening the file.
            found = find_file(file.path, file.identity, size_min=self._needed_size(file))
            if found is None or self._move(file, found[0]):
                return found is not None
        return False

    def _returns(self, file: TrackedFile, path: str, stat: os.stat_result) -> bool:
        """Read a file on that was gone; return whether the file at a path is this file.

        A file with the same bytes may be a new one: it is known by its birth, or it is unchanged,
        or it has the same inode and has grown.
        """
        found = identity_at(path, file.identity, size_min=self._needed_size(file))
        if not file.is_gone or found is None:
            return False
        is_known = found.birth_ns is not None or not file.modified_ns or stat.st_size > file.size
        is_same = found.is_inode_of(file.identity) and is_known
        return (is_same or stat.st_mtime_ns == file.modified_ns) and self._move(file, path)

    def _move(self, file: TrackedFile, path: str) -> bool:
        """Measure a file, and return whether it is at a path."""
        try:
            with Path(path).open("rb") as stream:
                size_min = self._needed_size(file)
                identity = identity_of_open(stream.fileno(), file.identity, size_min)
                if identity is None:
                    return False
                if path != file.path:
                    log_event(_logger, "input_file_renamed", shard=file.shard, path=path)
                file.path, file.identity, file.is_gone = path, identity, False
                self._measure(file, stream)
        except FileNotFoundError:
            return False
        return True

    def _find_copy(self, file: TrackedFile, copies: list[str]) -> None:
        """Read a file on in the copy that a rotation made of it, or lose it."""
        is_copied = self.is_followed and not file.is_compressed and file.offset > 0
        for path in copies if is_copied else ():
            if self._move(file, path):
                copies.remove(path)
                return
        self._lose(file)

    def _is_being_copied(
        self, path: str, stat: os.stat_result, now_s: float, candidates: list[TrackedFile]
    ) -> bool:
        """Return whether a file may be the copy of one that a rotation will truncate.

        It has the name of a rotated file and the same first bytes. Where the other file is not
        emptied for some time after the copy stopped growing, it is a file by itself.
        """
        if not self.is_followed:
            return False
        for file in candidates:
            if file.is_compressed:
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
        """Mark a removed or replaced file as gone, with a warning about unread input.

        A truncated file is forgotten, and a file of which nothing was read.
        """
        was_unread = not file.is_done if file.is_compressed else file.offset < file.size
        stat = _stat(file.path)
        is_there = stat is not None
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
        is_truncated = stat is not None and stat.st_ino == file.identity.inode
        if not is_truncated and (file.offset > 0 or file.is_done):
            file.is_gone = True
            self.files[file.shard] = file  # Behind those that are gone for longer.

    def _add(self, path: str) -> TrackedFile | None:
        try:
            with Path(path).open("rb") as stream:
                file = TrackedFile(
                    shard=self._free_shard(path),
                    path=path,
                    identity=identify(stream.fileno()),
                    size=0,
                    is_packed=self.is_packed,
                )
                self._measure(file, stream)
        except FileNotFoundError:
            return None  # It vanished between the listing and now; the next listing shows it.
        self.files[file.shard] = file
        return file

    def _free_shard(self, path: str) -> str:
        shard, generation = path, 1
        while shard in self.files:
            generation += 1
            shard = f"{path}#{generation}"
        return shard

    def _measure(self, file: TrackedFile, stream: BinaryIO) -> None:
        stat = os.fstat(stream.fileno())
        if file.identity.head_byte_count < min(HEAD_BYTE_COUNT_MAX, stat.st_size):
            head = identify(stream.fileno())
            file.identity = replace(
                file.identity, head_byte_count=head.head_byte_count, head_crc32=head.head_crc32
            )
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
            newline_end = _last_newline_end(stream, start, stat.st_size)
            file.readable_end = newline_end or max(file.readable_end, file.offset)
            file.scanned_end = stat.st_size


def _rotated_from(path: str) -> list[str]:
    """Return the paths of the files of which a path may be a rotated name.

    Example:
        >>> [_rotated_from(path) for path in ("/l/a.log.1", "/l/a-20260301.log", "/l/a2.log")]
        [['/l/a.log'], ['/l/a', '/l/a.log'], []]
    """
    folder, name = os.path.split(path)
    suffix = Path(name).suffix
    found = []
    for match in re.finditer(r"(?<!^)[.\-_]\d", name):
        stem = str(Path(folder) / name[: match.start()])
        found += [stem, stem + suffix] if match.end() + len(suffix) <= len(name) else [stem]
    return found


def _is_untouched(file: TrackedFile, stat: os.stat_result) -> bool:
    known = (file.identity.inode, file.size, file.modified_ns)
    return (stat.st_ino, stat.st_size, stat.st_mtime_ns) == known


def _last_newline_end(stream: BinaryIO, start: int, end: int) -> int | None:
    """Return the offset after the last newline in ``[start, end)``, or None."""
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
