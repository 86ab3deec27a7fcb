"""The streamer of a file, and its administration: end of file, groups, positions."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from contextlib import closing
from pathlib import Path
from typing import ClassVar

from bicycle_sdk.clock import SystemClock
from bicycle_streams.addresses import INTERNAL, StreamerUri, StreamKey
from bicycle_streams.admin import GroupInfo, ShardInfo, StreamAdmin, StreamInfo
from bicycle_streams.consuming import Consumer, Subscription
from bicycle_streams.contract import Capabilities, Streamer
from bicycle_streams.errors import STREAM_UNKNOWN
from bicycle_streams.file.consuming import FileConsumer
from bicycle_streams.file.creating import create_file
from bicycle_streams.file.errors import FILE_MISSING, LATEST_NOT_LIVE
from bicycle_streams.file.format import FileHeader
from bicycle_streams.file.options import FileOptions
from bicycle_streams.file.positions import positions_of_groups
from bicycle_streams.file.seeking import Last, last_of_stream, last_of_streams
from bicycle_streams.file.sending import FileSender, SharedWriter
from bicycle_streams.file.view import FileView, open_to_read, read_header
from bicycle_streams.options import Durability, StreamerOptions
from bicycle_streams.producing import Sender

_LOCKS = Path("/proc/locks")


class FileAdmin(StreamAdmin):
    """The streams of a file, as its last beacon and later messages list them.

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
        with closing(FileView.open(self._path)) as view:
            return self._known_keys(view)

    async def describe(self, key: StreamKey) -> StreamInfo:
        with closing(FileView.open(self._path)) as view:
            found = {s[1]: last for s, last in last_of_streams(view).items() if s[0] == key}
            if not found:
                found[0] = last_of_stream(view, (key, 0))
                if not found[0].sequence:
                    known = ", ".join(self._known_keys(view)) or "none"
                    raise STREAM_UNKNOWN(address=self.address, key=key, known_text=known)
            return StreamInfo(
                key=key,
                shards=tuple(_shard(number, last) for number, last in sorted(found.items())),
                groups=self._groups(key, found),
                producer_count=_writer_count(view),
            )

    def _known_keys(self, view: FileView) -> list[StreamKey]:
        return sorted({key for key, _ in last_of_streams(view) if key != INTERNAL})

    def _groups(self, key: StreamKey, lasts: dict[int, Last]) -> tuple[GroupInfo, ...]:
        """Return the groups with a position in a stream; their consumers are unknown."""
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
    """Return the number of processes with the writer lock, if the system reports it."""
    if not _LOCKS.exists():
        return None
    found = os.fstat(view.descriptor)
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    locks = [line.split() for line in _LOCKS.read_text().splitlines()]
    return int(any({"FLOCK", "WRITE", device} <= set(lock) for lock in locks))


class FileStreamer(Streamer):
    """Streams in one file.

    Args:
        uri: ``file://PATH``.
        options: ``FileOptions``.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        modes=frozenset({"real-time", "resumable", "load-balanced"}),
        is_replayable=True,
        has_shards=True,
        first_sequence=1,
    )
    options_type: ClassVar[type[StreamerOptions]] = FileOptions
    words_to_write: ClassVar[Mapping[str, object]] = {"create": "if-missing"}
    options: FileOptions

    def __init__(self, uri: StreamerUri, options: FileOptions) -> None:
        super().__init__(uri, options)
        self.path = Path(uri.node)

    @property
    def identity(self) -> Hashable:
        return self.path.resolve()

    async def _open(self) -> None:
        if self.options.create == "never" or (
            self.options.create == "if-missing" and self.path.exists()
        ):
            descriptor = open_to_read(self.path)
            try:
                read_header(self.path, descriptor)
            finally:
                os.close(descriptor)
        else:
            header = FileHeader(
                self.path.name, SystemClock().now_ms(), self.options.beacon_interval_bytes
            )
            create_file(self.path, header, must_be_new=self.options.create == "only")

    async def _close(self) -> None:
        """Do nothing: senders and consumers have closed their resources."""

    def admin(self) -> StreamAdmin:
        return FileAdmin(str(self.uri), self.path, self.options.positions_of(self.path))

    async def _make_sender(self, *, durability: Durability, shard_count: int) -> Sender:
        if not self.path.exists():
            raise FILE_MISSING(path=str(self.path))
        return FileSender(str(self.path), SharedWriter.of(self.path, self.options), shard_count)

    async def _make_consumer(self, subscription: Subscription) -> Consumer:
        if subscription.start == "latest" and not subscription.is_live:
            raise LATEST_NOT_LIVE(address=str(self.uri), path=str(self.path))
        return await FileConsumer.open(self.path, subscription, self.options)
