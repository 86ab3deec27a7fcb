"""The admin of a file of streams: what its end tells, and who holds a position in it."""

from __future__ import annotations

import os
from pathlib import Path

from bicycle_runtime.streams.addresses import INTERNAL, StreamKey
from bicycle_runtime.streams.admin import GroupInfo, ShardInfo, StreamAdmin, StreamInfo
from bicycle_runtime.streams.errors import STREAM_UNKNOWN
from bicycle_runtime.streams.file.positions import positions_of_groups
from bicycle_runtime.streams.file.seeking import Last, last_of_stream, last_of_streams
from bicycle_runtime.streams.file.view import FileView

__all__ = ["FileAdmin"]

_LOCKS = Path("/proc/locks")


class FileAdmin(StreamAdmin):
    """Streams of a file, as far as its last beacon and what follows tell of them.

    Args:
        address: Of the file, for messages of errors.
        path: The file.
        positions: The database with the positions of groups, which may not be there.
    """

    def __init__(self, address: str, path: Path, positions: Path) -> None:
        super().__init__(address)
        self._path = path
        self._positions = positions

    async def list_streams(self) -> list[StreamKey]:
        view = FileView.open(self._path)
        try:
            return self._known(view)
        finally:
            view.close()

    async def describe(self, key: StreamKey) -> StreamInfo:
        view = FileView.open(self._path)
        try:
            found = {s[1]: last for s, last in last_of_streams(view).items() if s[0] == key}
            if not found:
                found[0] = last_of_stream(view, (key, 0))
                if not found[0].sequence:
                    known = ", ".join(self._known(view)) or "none"
                    raise STREAM_UNKNOWN(address=self.address, key=key, known_text=known)
            return StreamInfo(
                key=key,
                shards=tuple(_shard(number, last) for number, last in sorted(found.items())),
                groups=self._groups(key, found),
                producer_count=_writer_count(view),
            )
        finally:
            view.close()

    def _known(self, view: FileView) -> list[StreamKey]:
        return sorted({key for key, _ in last_of_streams(view) if key != INTERNAL})

    def _groups(self, key: StreamKey, lasts: dict[int, Last]) -> tuple[GroupInfo, ...]:
        """Return the groups that have a position in a stream; nobody knows of their consumers."""
        groups: dict[str, dict[int, int | None]] = {}
        for name, stream, shard_id, next_sequence in positions_of_groups(self._positions):
            if stream == key and shard_id in lasts:
                lags = groups.setdefault(name, {})
                lags[shard_id] = max(0, lasts[shard_id].sequence + 1 - next_sequence)
        return tuple(
            GroupInfo(name=name, lag_by_shard=lags) for name, lags in sorted(groups.items())
        )


def _shard(number: int, last: Last) -> ShardInfo:
    return ShardInfo(
        shard_id=number, last_sequence=last.sequence, last_timestamp_ms=last.timestamp_ms
    )


def _writer_count(view: FileView) -> int | None:
    """Return whether a process holds the lock of a writer, where the system tells (Linux does)."""
    if not _LOCKS.exists():
        return None
    found = os.fstat(view.descriptor)
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    locks = [line.split() for line in _LOCKS.read_text().splitlines()]
    return int(any({"FLOCK", "WRITE", device} <= set(lock) for lock in locks))
