"""Rows that are sealed but not visible: held files, and their completion.

An epoch's staged files are *held* until the part of a folder is large enough, or everything is old
enough; so small epochs make no small files. ``HeldDraft`` decides, files in and plans out; it
touches no file. A plan names the rows of held files that become visible (``Completion``), or the
small held files that become one (``HeldJoin``), so that their number stays small however many
epochs pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.contract import StagedFile

JOINED_FILES = 32
_TAKEN_MAX = 64
_COUNTED_MAX = 256
_WHOLE = ""  # The folder of rows without one.


class _InState(msgspec.Struct, frozen=True):
    """The JSON encoding of a sink's state."""

    def to_json(self) -> dict[str, Any]:
        """Return the form that the state carries."""
        found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return found


class HeldFile(_InState, frozen=True, rename={"record_count": "records", "byte_count": "bytes"}):
    """A file of rows below ``staged``. Rows of the folders ``taken`` are visible already.

    ``crc32`` is None for a file that a join made: its pages have checksums. ``level`` counts joins.
    ``has_folders`` means that its rows name their folder.
    """

    path: str
    record_count: int
    byte_count: int
    crc32: int | None
    has_folders: bool
    level: int = 0
    taken: tuple[str, ...] = ()

    def staged(self) -> StagedFile:
        """Return the file as its writer reported it; only one that no join made."""
        assert self.crc32 is not None
        return StagedFile(
            path=self.path,
            record_count=self.record_count,
            byte_count=self.byte_count,
            crc32=self.crc32,
            subtask=0,
        )


class Completion(_InState, frozen=True):
    """Rows that become visible: of one folder or (None) all, by ``file_rows``."""

    files: tuple[HeldFile, ...]
    folder: str | None
    file_rows: int


class HeldJoin(_InState, frozen=True):
    """Held files that become one."""

    files: tuple[HeldFile, ...]
    path: str


def plan_from_json(data: Mapping[str, Any]) -> Completion | HeldJoin:
    """Return the plan of a state."""
    kind: type[Completion | HeldJoin] = HeldJoin if "path" in data else Completion
    return msgspec.convert(data, prepare_type(kind))


class HeldRows(_InState, frozen=True, rename={"record_count": "records"}):
    """The state that one epoch passes to the next.

    ``counts`` are rows of the largest folders, ``record_count`` all rows that are not visible yet.
    """

    files: tuple[HeldFile, ...] = ()
    record_count: int = 0
    since_ms: int = 0
    counts: dict[str, int] = {}

    @property
    def byte_count(self) -> int:
        """Bytes of the files."""
        return sum(file.byte_count for file in self.files)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> HeldRows:
        """Return the held rows of a state."""
        return msgspec.convert(data, prepare_type(cls))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLimits:
    """The limits at which rows are completed: rows, or bytes of a folder or in all."""

    roll_rows: int
    roll_bytes: int
    open_bytes_max: int


class HeldDraft:
    """The plans of one epoch.

    Args:
        held: The held files of the epoch before.
        limits: When rows are completed.
    """

    def __init__(self, held: HeldRows, limits: HeldLimits) -> None:
        self.held = held
        self._limits = limits
        self._plans: list[Completion | HeldJoin] = []

    def add(self, file: StagedFile, now_ms: int) -> None:
        """Hold a staged file; complete folders that are, or would become, too large."""
        counts = file.details.get("counts") or {_WHOLE: file.record_count}
        for folder, count in counts.items():
            if self._rows_of(folder) and self._is_over(folder, count, file):
                self._complete(folder)
        held = self.held
        kept = HeldFile(
            path=file.path,
            record_count=file.record_count,
            byte_count=file.byte_count,
            crc32=file.crc32,
            has_folders="counts" in file.details,
        )
        sums = {folder: self._rows_of(folder) + count for folder, count in counts.items()}
        self.held = HeldRows(
            files=(*held.files, kept),
            record_count=held.record_count + file.record_count,
            since_ms=held.since_ms if held.files else now_ms,
            counts=_largest({**held.counts, **sums}),
        )
        for folder in counts:
            if self._is_full(folder):
                self._complete(folder)
        if self.held.byte_count >= self._limits.open_bytes_max:
            self.complete()

    def complete(self) -> None:
        """Complete everything."""
        if self.held.files:
            self._plan(None)
            self.held = HeldRows()

    def join(self, path: str) -> None:
        """Join many small files of one level, of the first level that has them."""
        for level in sorted({file.level for file in self.held.files}):
            files = tuple(file for file in self.held.files if file.level == level)
            if len(files) < JOINED_FILES:
                continue
            self._plans.append(HeldJoin(files=files, path=path))
            index = self.held.files.index(files[0])
            others = [file for file in self.held.files if file.level != level]
            joined = HeldFile(
                path=path,
                record_count=sum(file.record_count for file in files),
                byte_count=sum(file.byte_count for file in files),
                crc32=None,
                has_folders=files[0].has_folders,
                level=level + 1,
            )
            others.insert(index, joined)
            self.held = replace(self.held, files=tuple(others))
            return

    def plans(self) -> list[Completion | HeldJoin]:
        """Return the plans of the epoch, in order."""
        return self._plans

    def _rows_of(self, folder: str) -> int:
        return self.held.counts.get(folder, 0)

    def _is_over(self, folder: str, count: int, file: StagedFile) -> bool:
        rows = self._rows_of(folder) + count
        size = self._bytes_of(folder) + file.byte_count * count // max(file.record_count, 1)
        return rows > self._limits.roll_rows or size > self._limits.roll_bytes

    def _is_full(self, folder: str) -> bool:
        is_long = self._rows_of(folder) >= self._limits.roll_rows
        return is_long or self._bytes_of(folder) >= self._limits.roll_bytes

    def _bytes_of(self, folder: str) -> int:
        total = sum(file.record_count for file in self.held.files)
        return self.held.byte_count * self._rows_of(folder) // max(total, 1)

    def _complete(self, folder: str) -> None:
        if folder == _WHOLE or any(len(file.taken) >= _TAKEN_MAX for file in self.held.files):
            self.complete()
            return
        self._plan(folder)
        held = self.held
        left_count = held.record_count - self._rows_of(folder)
        if not left_count:
            self.held = HeldRows()
            return
        self.held = replace(
            held,
            files=tuple(replace(file, taken=(*file.taken, folder)) for file in held.files),
            record_count=left_count,
            counts={name: count for name, count in held.counts.items() if name != folder},
        )

    def _plan(self, folder: str | None) -> None:
        files = self.held.files
        rows = sum(file.record_count for file in files)
        fitting = self._limits.roll_bytes * rows // max(self.held.byte_count, 1)
        file_rows = max(min(self._limits.roll_rows, fitting), 1)
        self._plans.append(Completion(files=files, folder=folder, file_rows=file_rows))


def _largest(counts: dict[str, int]) -> dict[str, int]:
    if len(counts) <= _COUNTED_MAX:
        return counts
    names = sorted(counts, key=lambda name: (-counts[name], name))
    return {name: counts[name] for name in names[:_COUNTED_MAX]}
