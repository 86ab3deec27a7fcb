"""Positions in a file of streams: its end, the end of each stream, seek targets.

Beacons contain the position of each stream, so that a target is found by binary search: a beacon is
before the target, after it, or does not contain the stream (*undecided*; its neighbors are read).
The messages between two beacons are read one by one, without payloads.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Literal, Protocol, TypeAlias

from bicycle_streams.addresses import StreamKey
from bicycle_streams.file.format import (
    HEADER_SIZE,
    RUNNING_START,
    Beacon,
    StreamMarker,
    checksum,
    is_end,
    marker_count_max,
)
from bicycle_streams.file.view import CutOffError, FileView, Head

Answer = Literal["left", "right", "undecided"]
Stream: TypeAlias = tuple[StreamKey, int]
IsBefore: TypeAlias = Callable[[Stream, int, int], bool]


class Last:
    """The progress of a stream: last sequence, latest time, and running checksum."""

    __slots__ = ("running", "sequence", "timestamp_ms")

    def __init__(self, sequence: int, timestamp_ms: int, running: int) -> None:
        self.sequence = sequence
        self.timestamp_ms = timestamp_ms
        self.running = running

    def add(self, sequence: int, timestamp_ms: int, message_checksum: bytes) -> None:
        """Note one more message."""
        self.sequence = max(self.sequence, sequence)
        self.timestamp_ms = max(self.timestamp_ms, timestamp_ms)
        self.running = checksum(message_checksum, self.running)


def survey(count: int, ask: Callable[[int], Answer]) -> tuple[int, int | None]:
    """Return the two closest beacons around a position.

    Args:
        count: Number of beacons, which are numbered from 1.
        ask: Returns the side of the target on which a beacon is.

    Returns:
        The last beacon before the target, or 0; and the first beacon after the target, or None.
    """
    left, right = 0, count + 1
    while (decided := _decided_between(left, right, ask)) is not None:
        number, answer = decided
        if answer == "left":
            left = number
        else:
            right = number
    return left, right if right <= count else None


def _decided_between(
    left: int, right: int, ask: Callable[[int], Answer]
) -> tuple[int, Answer] | None:
    """Return a decided beacon between two others, as close to the middle as possible."""
    middle = (left + right) // 2
    for distance in range(right - left):
        for number in {middle - distance, middle + distance}:
            if left < number < right and (answer := ask(number)) != "undecided":
                return number, answer
    return None


def tail_start(view: FileView, below: int | None = None) -> tuple[int, int]:
    """Return the last usable beacon and the offset of messages after it, or (0, 128)."""
    for number in range(view.beacon_count if below is None else below - 1, 0, -1):
        try:
            start = view.start_behind(number)
        except CutOffError:
            continue
        if start <= view.size:
            return number, start
    return 0, HEADER_SIZE


def _start(view: FileView, number: int) -> int:
    """Return where messages begin behind a beacon with whole messages behind it."""
    try:
        return view.start_behind(number)
    except CutOffError:
        offset, problem = number * view.interval, "a beacon points beyond the end of the file"
        raise view.damage(offset, problem) from None


def tail(view: FileView) -> tuple[int, list[Head], int, bool]:
    """Return the content after the last beacon that precedes a whole message.

    Returns:
        The number of that beacon, the messages after it without the message that ends the file, the
        offset at which the last of them ends, and whether the file is marked as ended.
    """
    number, start = tail_start(view)
    while not (heads := list(view.heads(start))) and number:
        number, start = tail_start(view, below=number)
    last = heads[-1] if heads else None
    has_ended = last is not None and last.size == 3 and is_end(last.key, view.payload(last)[0])
    if has_ended:
        del heads[-1]
    return number, heads, view.end_of(heads[-1]) if heads else start, has_ended


class Target(Protocol):
    """The target of a seek, such as ``reading.Wanted``."""

    keys: frozenset[StreamKey]
    is_before: IsBefore | None

    def has(self, stream: Stream) -> bool:
        """Return whether messages of a stream pass the filter."""


def find(view: FileView, target: Target) -> int | None:
    """Return the offset of the first message that matches a target, or None.

    Returns:
        The offset; None when there is no such message.
    """
    is_before = target.is_before or _nothing_is_before
    for head in view.heads(_start(view, _beacon_to_start_at(view, target, is_before))):
        stream = (head.key, head.shard_id)
        if target.has(stream) and not is_before(stream, head.sequence, head.timestamp_ms):
            return head.offset
    return None


def _nothing_is_before(stream: Stream, sequence: int, timestamp_ms: int) -> bool:
    return False


def _beacon_to_start_at(view: FileView, target: Target, is_before: IsBefore) -> int:
    number, _ = tail_start(view)
    listed = view.beacon(number).markers if number else ()
    streams = [(m.key, m.shard_id) for m in listed if target.has((m.key, m.shard_id))]
    if len(listed) >= marker_count_max(view.interval):  # The beacon had no room for others.
        told = {key for key, _ in streams}
        if not told.issuperset(target.keys):
            return 0
    return min((_beacon_before(view, s, is_before) for s in streams), default=number)


def _beacon_before(view: FileView, stream: Stream, is_before: IsBefore) -> int:
    def ask(number: int) -> Answer:
        try:
            marker = marker_of(view.beacon(number), stream)
        except CutOffError:
            return "right"
        if marker is None:
            return "undecided"
        return "left" if is_before(stream, marker.sequence, marker.timestamp_ms) else "right"

    return survey(view.beacon_count, ask)[0]


def marker_of(beacon: Beacon, stream: Stream) -> StreamMarker | None:
    """Return a beacon's marker of a stream, or None."""
    return next((m for m in beacon.markers if (m.key, m.shard_id) == stream), None)


def last_of_streams(view: FileView) -> dict[Stream, Last]:
    """Return the progress of each stream that the end of a file lists."""
    number, heads, _, _ = tail(view)
    found: dict[Stream, Last] = {}
    if number:
        for marker in view.beacon(number).markers:
            found[marker.key, marker.shard_id] = Last(
                marker.sequence, marker.timestamp_ms, marker.running
            )
    return add_heads(view, found, heads)


def add_heads(
    view: FileView, found: dict[Stream, Last], heads: Iterable[Head]
) -> dict[Stream, Last]:
    """Add messages to the progress of their streams."""
    for head in heads:
        last = found.setdefault((head.key, head.shard_id), Last(0, 0, RUNNING_START))
        payload_end = view.skip(head.payload_at, head.size)
        last.add(head.sequence, head.timestamp_ms, view.gather(payload_end, 2)[0])
    return found


def last_of_stream(view: FileView, stream: Stream) -> Last:
    """Return the progress of one stream, also if the last beacon does not list it.

    The search starts at the newest beacon that contains the stream. If no beacon does, the stream
    is new, unless beacons omit streams, because of their size or because their writer did not know
    them. In that case all messages are read.
    """
    later: set[Stream] | None = None
    are_complete = True
    for number in range(tail_start(view)[0], 0, -1):
        beacon = view.beacon(number)
        if marker := marker_of(beacon, stream):
            last = Last(marker.sequence, marker.timestamp_ms, marker.running)
            return _follow(view, stream, last, view.heads(_start(view, number)))
        named = {(m.key, m.shard_id) for m in beacon.markers}
        if len(named) >= marker_count_max(view.interval) or (later is not None and named - later):
            are_complete = False
        later = named
    heads = view.heads(HEADER_SIZE)
    if are_complete:
        heads = itertools.takewhile(lambda head: head.offset < view.interval, heads)
    return _follow(view, stream, Last(0, 0, RUNNING_START), heads)


def _follow(view: FileView, stream: Stream, last: Last, heads: Iterable[Head]) -> Last:
    own = (head for head in heads if (head.key, head.shard_id) == stream)
    return add_heads(view, {stream: last}, own)[stream]
