"""The order of messages in a file of streams, compared with its beacons.

The head of a message has no checksum. But sequences and times of a shard rise, and a beacon has a
checksum of the messages of each stream so far, with the last sequence and the latest time. So most
changes of a head show: in its shard at once, or at the next beacon that names one of the streams.
A message with a changed stream or shard is also a *stray*: the only message of its stream, with the
sequence that another stream lacks or would have next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bicycle_streams.addresses import INTERNAL
from bicycle_streams.file.errors import FileFormatError
from bicycle_streams.file.format import RUNNING_START, StreamMarker, checksum
from bicycle_streams.file.seeking import Last, Stream
from bicycle_streams.file.view import CutOffError, FileView
from bicycle_streams.messages import Message

_CHECKSUM_SIZE = 2
_STRAY = (
    "it is the only message of its stream and has the sequence that another stream lacks: "
    "its stream or shard was changed"
)


@dataclass(frozen=True, slots=True)
class Broken:
    """Bytes of a file that violate the format, or contradict the messages around them."""

    offset: int
    size: int
    problem: str
    stream: str | None = None
    shard_id: int | None = None
    sequence: int | None = None


class _Seen:
    """The checked messages of a stream, up to the last one and up to its predecessor."""

    __slots__ = ("before", "last", "last_offset", "last_size")

    def __init__(self, last: Last) -> None:
        self.last = last
        self.before = last.sequence, last.timestamp_ms
        self.last_offset, self.last_size = 0, 0


class OrderCheck:
    """A check of messages in file order.

    Args:
        view: The file.
    """

    def __init__(self, view: FileView) -> None:
        self._view = view
        self._seen: dict[Stream, _Seen] = {}
        self._strays: dict[int, tuple[Broken, int]] = {}  # By sequence, each with its time.
        self._beacon = 1
        self._is_whole = True  # All messages were seen, so that a stream that is new begins here.

    def lose(self) -> None:
        """Clear the state: messages may be missing from here to the next beacon."""
        self._seen.clear()
        self._strays.clear()
        self._is_whole = False

    def see(self, message: Message, offset: int, end: int) -> Iterator[Broken]:
        """Iterate over the faults of a message, and of beacons before it.

        Args:
            message: The message.
            offset: Where it begins.
            end: Where it ends.
        """
        yield from self.pass_beacons(offset)
        if message.stream_key == INTERNAL:
            return
        stream = (message.stream_key, message.shard_id)
        seen = self._seen.get(stream)
        if seen is None:
            if self._is_whole:
                last = Last(0, 0, RUNNING_START)
            else:  # The preceding messages are unknown; the next beacon has the count.
                return
            seen = self._seen[stream] = _Seen(last)
            if message.sequence > 1:
                stray = Broken(offset, end - offset, _STRAY, *stream, message.sequence)
                self._strays[message.sequence] = stray, message.timestamp_ms
        elif (found := self._disorder(seen, message, offset, end)) is not None:
            yield found
        else:
            last = seen.last
            self._forget_stray(stream, last.sequence)
            if message.sequence == last.sequence + 2:
                yield from self._stray_after(last, before_ms=message.timestamp_ms)
            seen.before = last.sequence, last.timestamp_ms
            seen.last_offset, seen.last_size = offset, end - offset
        found_sum = checksum(message.payload).to_bytes(_CHECKSUM_SIZE)
        seen.last.add(message.sequence, message.timestamp_ms, found_sum)

    def finish(self) -> Iterator[Broken]:
        """Iterate over the faults that only the end of the file shows."""
        yield from self.pass_beacons(self._view.size)
        for seen in self._seen.values():
            if seen.last.sequence > 1:  # A repair may leave only the second message of a stream.
                yield from self._stray_after(seen.last)

    def _stray_after(self, last: Last, before_ms: int | None = None) -> Iterator[Broken]:
        """Iterate over the stray that follows the last message of another stream."""
        found, time_ms = self._strays.get(last.sequence + 1, (None, 0))
        is_too_late = before_ms is not None and time_ms > before_ms
        if found is not None and last.timestamp_ms <= time_ms and not is_too_late:
            del self._strays[last.sequence + 1]
            yield found

    def _forget_stray(self, stream: Stream, sequence: int) -> None:
        """Keep a message no longer as a stray if it belongs to its stream."""
        found, _ = self._strays.get(sequence, (None, 0))
        if found is not None and (found.stream, found.shard_id) == stream:
            del self._strays[sequence]

    def _disorder(self, seen: _Seen, message: Message, offset: int, end: int) -> Broken | None:
        """Return the message of two that is out of order: this or the previous one."""
        last, before = seen.last, seen.before
        # Two consecutive sequences are never equal; times may be.
        numbers = (
            ("sequence", message.sequence, last.sequence, before[0], 1),
            ("time", message.timestamp_ms, last.timestamp_ms, before[1], 0),
        )
        for word, here, previous, earlier, step in numbers:
            if here >= previous + step:
                continue
            stream = (message.stream_key, message.shard_id)
            problem = f"the {word} decreases within its shard, from {previous} to {here}"
            if here > earlier and seen.last_size:  # The preceding message had skipped values.
                found = Broken(seen.last_offset, seen.last_size, problem, *stream, last.sequence)
                last.sequence = min(last.sequence, message.sequence)
                last.timestamp_ms = min(last.timestamp_ms, message.timestamp_ms)
                seen.last_offset, seen.last_size = offset, end - offset
                return found
            return Broken(offset, end - offset, problem, *stream, message.sequence)
        return None

    def pass_beacons(self, offset: int) -> Iterator[Broken]:
        """Iterate over contradictions between messages and the beacons before an offset."""
        view = self._view
        while self._beacon * view.interval <= offset and self._beacon <= view.beacon_count:
            at = self._beacon * view.interval
            self._beacon += 1
            try:
                markers = view.beacon(at // view.interval).markers
            except (CutOffError, FileFormatError):
                continue  # It is reported where it cuts a message.
            for marker in markers:
                if (found := self._compare(marker, at)) is not None:
                    yield found

    def _compare(self, marker: StreamMarker, offset: int) -> Broken | None:
        stream = (marker.key, marker.shard_id)
        # Either the stream of a stray is confirmed here, or the difference is reported here.
        self._strays.pop(marker.sequence + 1, None)
        self._forget_stray(stream, marker.sequence)
        told = Last(marker.sequence, marker.timestamp_ms, marker.running)
        seen = self._seen.get(stream)
        self._seen[stream] = _Seen(told)
        if seen is None:
            if not self._is_whole:
                return None
            problem = "a beacon lists a stream without earlier messages"
            return Broken(offset, 0, problem, *stream, marker.sequence)
        last = seen.last
        for word, here, there in (
            ("checksum of the messages", last.running, told.running),
            ("last sequence", last.sequence, told.sequence),
            ("latest time", last.timestamp_ms, told.timestamp_ms),
        ):
            if here != there:
                problem = (
                    f"the {word} of the stream before this beacon is {here}, but {there} in the "
                    "beacon: the head of a message between beacons was changed, or the beacon"
                )
                return Broken(offset, 0, problem, *stream, marker.sequence)
        seen.before = last.sequence, last.timestamp_ms
        self._seen[stream] = seen
        return None
