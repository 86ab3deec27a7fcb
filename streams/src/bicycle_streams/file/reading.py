"""Sequential reading of a file of streams: whole blocks, then their messages.

``FileReader`` has the requested streams and its position. It reads the messages of a block, and
never beyond the end of the file: it waits for a message that is still being written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from bicycle_streams.addresses import INTERNAL, WILDCARD, StreamKey
from bicycle_streams.file.errors import FileFormatError
from bicycle_streams.file.format import FIXED, MARK, TAIL, checksum, is_end, parse_beacon, stream_of
from bicycle_streams.messages import Message

BLOCK_SIZE = 1 << 20
_WANTED, _UNWANTED, _LATER = range(3)
Stream = tuple[StreamKey, int]


class Wanted:
    """A filter of messages: streams, and a start that may differ by stream.

    Args:
        keys: Streams; ``SEA_STREAMER_WILDCARD`` means all of them.
        shards: Only these shards; empty for all.
        is_before: Whether a message, by sequence and time, is before the start of its stream.
        with_internal: Whether the message that ends the streams is returned like any other.
    """

    def __init__(
        self,
        keys: tuple[StreamKey, ...],
        shards: Iterable[Stream] = (),
        is_before: Callable[[Stream, int, int], bool] | None = None,
        *,
        with_internal: bool = False,
    ) -> None:
        self._with_internal = with_internal
        self.keys = frozenset(keys)
        self._shards = frozenset(shards)
        self.is_before = is_before

    def has(self, stream: Stream) -> bool:
        """Return whether messages of a stream pass the filter."""
        if stream[0] == INTERNAL:
            return self._with_internal
        if self._shards:
            return stream in self._shards
        return WILDCARD in self.keys or stream[0] in self.keys


class FileReader:
    """Messages of a file in order, from an offset where a message begins.

    Args:
        path: The path, for error messages.
        interval: The beacon interval of the file.
        offset: Offset of the first message.
        wanted: The messages to return.
    """

    def __init__(self, path: Path, interval: int, offset: int, wanted: Wanted) -> None:
        self._path = path
        self._interval = interval
        self._wanted = wanted
        self._buffer = b""
        self._at = 0
        self._next = offset  # Offset in the file of the bytes after the buffer.
        self._origin = offset  # Where in the file the bytes of the last read began.
        self._held = 0  # How many bytes of a message were there before them,
        self._held_at = offset  # and where in the file it began.
        self._known: dict[bytes, tuple[StreamKey, int, int]] = {}
        self.has_ended = False

    @property
    def is_inside_message(self) -> bool:
        """Return whether the buffer ends inside a message."""
        return self._at < len(self._buffer)

    @property
    def offset(self) -> int:
        """The offset of the next message in the file, or of a beacon before it."""
        if self._at < self._held:
            return self._held_at
        return self._origin + self._at - self._held

    def request(self) -> tuple[int, int]:
        """Return offset and size of the next read."""
        within = self._next % self._interval
        return self._next, min(BLOCK_SIZE, self._interval - within)

    def feed(self, data: bytes) -> bool:
        """Process bytes that ``request`` described, or fewer; return whether it helped.

        Raises:
            FileFormatError: there is no beacon where one must be, or it contradicts the messages.
        """
        offset, start, beacon = self._next, 0, None
        if offset and offset % self._interval == 0:
            try:
                beacon = parse_beacon(data)
            except ValueError as error:
                raise self._damage(offset, str(error)) from None
            if beacon is None:
                if len(data) == self.request()[1]:
                    raise self._damage(offset, "a beacon does not end before the next one")
                return False
            start = beacon.size
        if not data:
            return False
        self._held_at = self.offset
        self._held = len(self._buffer) - self._at
        self._origin = offset + start
        self._buffer = self._buffer[self._at :] + data[start:]
        self._at = 0
        self._next = offset + len(data)
        if beacon is not None:
            self._check_cut(offset, beacon.remaining)
        return True

    def _check_cut(self, offset: int, remaining: int) -> None:
        """Compare a beacon's data about the message that it splits with the message."""
        expected = 0
        if self._held:
            head = self._buffer[0] + 9 + FIXED.size
            if len(self._buffer) < head:
                return
            size = FIXED.unpack_from(self._buffer, head - FIXED.size)[2]
            expected = head + size + TAIL.size - self._held
        if expected != remaining:
            raise self._damage(
                offset,
                f"a beacon has {remaining} remaining bytes of a message, expected {expected}",
            )

    def batches(self, descriptor: int, end: int, count_max: int) -> Iterator[list[Message]]:
        """Iterate over batches of the messages that an open file has before an offset."""
        while not self.has_ended:
            while messages := self.take(count_max):
                yield messages
            offset, size = self.request()
            if not self.feed(os.pread(descriptor, max(0, min(size, end - offset)), offset)):
                return

    def restart(self) -> None:
        """Drop the bytes after the last whole message, to read them again."""
        self._next = self._origin = self.offset
        self._buffer = b""
        self._at = self._held = 0

    def take(self, count_max: int) -> list[Message]:
        """Return up to ``count_max`` messages that the buffer holds whole.

        Raises:
            FileFormatError: the next message is damaged; earlier messages were returned.
        """
        # hot path: local names, since this loop is to run at 400,000 messages a second.
        buffer, at, known = self._buffer, self._at, self._known
        end_of_buffer, unpack, unpack_tail = len(buffer), FIXED.unpack_from, TAIL.unpack_from
        found: list[Message] = []
        append = found.append
        damage: str | None = None
        while at < end_of_buffer:
            head = at + buffer[at] + 9
            start = head + 20
            if start > end_of_buffer:
                break
            sequence, timestamp_ms, size = unpack(buffer, head)
            end = start + size
            if end + 3 > end_of_buffer:
                break
            payload = buffer[start:end]
            if unpack_tail(buffer, end) != (checksum(payload), MARK):
                damage = f"message {sequence} has a wrong checksum"
                break
            prefix = buffer[at:head]
            stream = known.get(prefix)
            if stream is None:
                try:
                    stream = self._learn(prefix)
                except ValueError as error:
                    damage = str(error)
                    break
            key, shard_id, state = stream
            at = end + 3
            if state:
                if key == INTERNAL and is_end(key, payload):
                    self.has_ended = True
                    break
                if state == _UNWANTED or self._is_before(prefix, sequence, timestamp_ms):
                    continue
            append(Message(key, shard_id, sequence, timestamp_ms, payload))
            if len(found) == count_max:
                break
        self._at = at
        if damage is not None and not found:
            raise self._damage(self.offset, damage)
        return found

    def _learn(self, prefix: bytes) -> tuple[StreamKey, int, int]:
        key, shard_id = stream_of(prefix)
        state = _UNWANTED
        if self._wanted.has((key, shard_id)):
            state = _WANTED if self._wanted.is_before is None else _LATER
        self._known[prefix] = (key, shard_id, state)
        return key, shard_id, state

    def _is_before(self, prefix: bytes, sequence: int, timestamp_ms: int) -> bool:
        key, shard_id, _ = self._known[prefix]
        is_before = self._wanted.is_before
        if is_before is not None and is_before((key, shard_id), sequence, timestamp_ms):
            return True
        self._known[prefix] = (key, shard_id, _WANTED)
        return False

    def _damage(self, offset: int, problem: str) -> FileFormatError:
        return FileFormatError(path=str(self._path), offset=offset, problem=problem)
