"""The consumer of the file backend: alone, resumable, or in a group."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeAlias, TypeVar

from bicycle_streams.addresses import WILDCARD, StreamKey
from bicycle_streams.consuming import Consumer, Subscription
from bicycle_streams.errors import StreamEndedError, StreamUnsupportedError
from bicycle_streams.file.errors import FILE_CUT_OFF, FILE_REMOVED, GROUP_DIFFERS, FileFormatError
from bicycle_streams.file.format import HEADER_SIZE
from bicycle_streams.file.options import FileOptions
from bicycle_streams.file.positions import Positions
from bicycle_streams.file.reading import FileReader, Wanted
from bicycle_streams.file.seeking import IsBefore, find, last_of_streams, tail
from bicycle_streams.file.sending import SharedWriter
from bicycle_streams.file.view import FileView
from bicycle_streams.messages import BEGINNING, END, At, Message, SeqPos
from bicycle_streams.sharing import Member, SharedReader

_T = TypeVar("_T")
Stream: TypeAlias = tuple[StreamKey, int]


class FileFeed:
    """The messages of a file from a position on; ``go_to`` moves the position.

    Args:
        view: The file, which the feed closes in the end.
        is_live: Whether to wait at the end.
        poll_interval_ms: How often to look for more there.
    """

    def __init__(self, view: FileView, *, is_live: bool, poll_interval_ms: int) -> None:
        self._view = view
        self._is_live = is_live
        self._poll_s = poll_interval_ms / 1_000
        self._reader = FileReader(view.path, view.interval, HEADER_SIZE, Wanted(()))
        self._doubtful_at = 0

    def go_to(self, wanted: Wanted, position: SeqPos | None) -> bool:
        """Move to the beginning, to the end, or, with None, to the first wanted message.

        Returns:
            Whether there is such a message; without one, nothing has moved.
        """
        self._view.refresh()
        if position is BEGINNING:
            offset: int | None = HEADER_SIZE
        elif position is END:
            offset = tail(self._view)[2]
        else:
            offset = find(self._view, wanted)
        if offset is None:
            return False
        self._reader = FileReader(self._view.path, self._view.interval, offset, wanted)
        return True

    def write_out(self) -> None:
        """Write out buffered messages of this process, on the event loop of its producers."""
        SharedWriter.write_out(self._view.descriptor)

    def ends(self) -> dict[Stream, int]:
        """Return the last sequence of each stream that the end of the file lists."""
        self._view.refresh()
        return {stream: last.sequence for stream, last in last_of_streams(self._view).items()}

    async def fetch(self, count_max: int) -> list[Message]:
        """Wait for messages, and return up to so many; a canceled call loses no message."""
        while not (messages := self._take(count_max)):
            reader = self._reader
            if reader.has_ended:
                raise StreamEndedError(address=str(self._view.path))
            offset, size = reader.request()
            data = await asyncio.to_thread(os.pread, self._view.descriptor, size, offset)
            if self._feed(data):
                continue
            if not self._is_live:
                raise self._end_of_file(reader, offset)
            await self._wait_for_more(offset + len(data))
        return messages

    def _take(self, count_max: int) -> list[Message]:
        return self._again(lambda: self._reader.take(count_max), [])

    def _feed(self, data: bytes) -> bool:
        return self._again(lambda: self._reader.feed(data), True)

    def _again(self, call: Callable[[], _T], nothing: _T) -> _T:
        """Read a damaged position again, since a writer may have truncated it."""
        try:
            return call()
        except FileFormatError:
            offset = self._reader.offset
            if not self._is_live or offset == self._doubtful_at:
                raise
            self._doubtful_at = offset
            self._reader.restart()
            return nothing

    def close(self) -> None:
        """Close the file."""
        self._view.close()

    def _end_of_file(self, reader: FileReader, offset: int) -> Exception:
        path = str(self._view.path)
        if reader.is_inside_message:
            return FILE_CUT_OFF(path=path, offset=offset)
        return StreamEndedError(address=path)

    async def _wait_for_more(self, size: int) -> None:
        """Return once the file is larger than a size, by polling."""
        while (now := os.fstat(self._view.descriptor).st_size) <= size:
            if now < size:
                self._reader.restart()
                size = self._reader.offset
                continue
            if not _is_at(self._view.descriptor, self._view.path):
                raise FILE_REMOVED(path=str(self._view.path))
            await asyncio.sleep(self._poll_s)


class _Group:
    """The consumers of one group of one file in this process."""

    by_name: dict[tuple[int, int, str], _Group] = {}  # noqa: RUF012  # The groups of this process.

    def __init__(self, feed: FileFeed, shared: SharedReader, subscription: Subscription) -> None:
        self.feed = feed
        self.shared = shared
        self.subscription = subscription


class FileConsumer(Consumer):
    """Reads a file; made by ``open``."""

    def __init__(
        self,
        path: Path,
        subscription: Subscription,
        options: FileOptions,
        feed: FileFeed,
    ) -> None:
        super().__init__(str(path), subscription, options)
        self._path = path
        self._options = options
        self._feed: FileFeed = feed
        self._group: _Group | None = None
        self._member = Member()
        self._done: dict[Stream, int] = {}
        self._positions = Positions(options.positions_of(path), subscription.position_name)

    @classmethod
    async def open(cls, path: Path, subscription: Subscription, options: FileOptions) -> Self:
        """Return a consumer whose position is fixed."""
        if subscription.mode == "load-balanced" and WILDCARD in subscription.keys:
            raise StreamUnsupportedError(
                backend=str(path),
                action="share all streams in a group",
                reason="a group names its streams",
                hint="name the streams, or use mode 'real-time'",
            )
        consumer = cls(path, subscription, options, _feed(path, subscription, options))
        try:
            consumer._feed.write_out()
            await asyncio.to_thread(consumer._start)
            if subscription.mode == "load-balanced":
                consumer._join()
        except BaseException:
            consumer._feed.close()
            raise
        return consumer

    def _start(self) -> None:
        subscription = self.subscription
        edge = BEGINNING if subscription.start == "earliest" else END
        kept = {} if subscription.mode == "real-time" else self._positions.read()
        ends = self._feed.ends() if edge is END else {}
        if not kept and edge is END and subscription.mode != "real-time":
            # It continues here even if no position is ever committed.
            kept = {(key, 0): 1 for key in subscription.keys if key != WILDCARD}
            wanted = Wanted(subscription.keys)
            kept |= {at: last + 1 for at, last in ends.items() if wanted.has(at)}
            self._positions.write(kept)
        if not kept:
            self._feed.go_to(Wanted(subscription.keys), edge)
            return

        def is_before(stream: Stream, sequence: int, timestamp_ms: int) -> bool:
            first = kept.get(stream)
            return sequence < (ends.get(stream, -1) + 1 if first is None else first)

        wanted = Wanted(subscription.keys, is_before=is_before)
        if not self._feed.go_to(wanted, None):
            self._feed.go_to(wanted, END)

    def _join(self) -> None:
        """Join the reader of the group, or create it from this consumer's."""
        state = self._path.stat()
        name = (state.st_dev, state.st_ino, self.subscription.position_name)
        group = _Group.by_name.get(name)
        if group is None:
            shared = SharedReader(
                self._feed.fetch,
                name=self.subscription.position_name,
                address=self.address,
                queue_max=self._options.prefetch_messages,
                unacknowledged_max=self._options.unacknowledged_max,
            )
            group = _Group.by_name[name] = _Group(self._feed, shared, self.subscription)
        elif group.subscription != self.subscription:
            raise GROUP_DIFFERS(
                address=self.address,
                path=self.address,
                group=name[2],
                found=_words(group.subscription),
                asked=_words(self.subscription),
            )
        else:
            self._feed.close()
            self._feed = group.feed
        self._group = group
        self._member = group.shared.join()

    def _leave(self) -> None:
        if (group := self._group) is None:
            return
        self._group = None
        if not group.shared.leave(self._member):
            _Group.by_name = {k: g for k, g in _Group.by_name.items() if g is not group}
            group.feed.close()

    async def _fetch(self, count_max: int) -> list[Message]:
        if self._group is not None:
            return await self._group.shared.fetch(self._member, count_max)
        return await self._feed.fetch(count_max)

    async def _go_to(self, target: SeqPos | int) -> bool:
        """Move the consumer's reader; a member of a group leaves the group first."""
        is_before, position = _target_of(target)
        wanted = Wanted(self.subscription.keys, self._assigned, is_before)
        feed = self._feed
        if self._group is not None:
            feed = _feed(self._path, self.subscription, self._options)
        try:
            feed.write_out()
            has_moved = await asyncio.to_thread(feed.go_to, wanted, position)
        except BaseException:
            if feed is not self._feed:
                feed.close()
            raise
        if not has_moved:
            if feed is not self._feed:
                feed.close()
            return False
        self._leave()
        self._feed = feed
        self._done.clear()
        return True

    def _ack(self, message: Message) -> None:
        if self._group is not None:
            self._group.shared.ack(self._member, message)
        elif self.subscription.mode == "load-balanced":
            raise self._left_group_error()
        else:
            stream = (message.stream_key, message.shard_id)
            self._done[stream] = max(self._done.get(stream, 0), message.sequence + 1)

    async def _commit(self) -> None:
        positions = self._done if self._group is None else self._group.shared.positions()
        await asyncio.to_thread(self._positions.write, dict(positions))

    async def _close(self) -> None:
        if self._group is not None:
            self._leave()
        else:
            self._feed.close()


def _target_of(target: SeqPos | int) -> tuple[IsBefore | None, SeqPos | None]:
    """Return a filter of earlier messages, or the end of the file to move to."""
    if isinstance(target, At):
        first = target.sequence
        return lambda stream, sequence, time_ms: sequence < first, None
    if isinstance(target, int):
        return lambda stream, sequence, time_ms: time_ms < target, None
    return None, target


def _feed(path: Path, subscription: Subscription, options: FileOptions) -> FileFeed:
    return FileFeed(
        FileView.open(path),
        is_live=subscription.is_live,
        poll_interval_ms=options.poll_interval_ms,
    )


def _is_at(descriptor: int, path: Path) -> bool:
    """Return whether the open file is still at its path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _words(subscription: Subscription) -> str:
    live = "live" if subscription.is_live else "to the end"
    return f"{', '.join(subscription.keys)} from the {subscription.start}, {live}"
