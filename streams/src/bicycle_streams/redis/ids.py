"""Names in Redis: ids ``TIME-COUNTER`` of entries, keys ``KEY:SHARD`` of shards.

A sequence is the id as one number of at most 63 bits. With times in milliseconds the counter is in
the lower 16 bits, as SeaStreamer has it; with nanoseconds, which no two messages share, it is the
time, and the counter is 0. Shard 0 is the key itself, and ``KEY:0`` of other programs, too.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from bicycle_streams.addresses import StreamKey
from bicycle_streams.errors import StreamKeyError

Timestamps: TypeAlias = Literal["ms", "ns"]  # The unit of times in ids.

FIRST = b"0-0"  # Before all entries.
NS_PER_MS = 1_000_000
_SEQUENCE_BITS = 63
SEQUENCE_MAX = (1 << _SEQUENCE_BITS) - 1  # After all entries, also entries whose time is too large.
_COUNTER_BITS = 16
_COUNTER_MAX = _TIME_MAX = (1 << 64) - 1
_NAME = re.compile(r"(?P<key>[^:]+)(:(?P<shard>0|[1-9][0-9]{0,18}))?")


def sequence_of(entry_id: bytes, timestamps: Timestamps = "ms") -> tuple[int, int]:
    """Return milliseconds and sequence of an entry.

    Raises:
        ValueError: its counter or its time is too large for a sequence.

    Example:
        >>> sequence_of(b"5-1")
        (5, 327681)
        >>> sequence_of(b"5000001-0", "ns")
        (5, 5000001)
    """
    time_text, _, counter_text = entry_id.partition(b"-")
    time, counter = int(time_text), int(counter_text)
    if timestamps == "ns":
        if counter or time >> _SEQUENCE_BITS:
            raise ValueError(entry_id)
        return time // NS_PER_MS, time
    sequence = time << _COUNTER_BITS | counter
    if counter >> _COUNTER_BITS or sequence >> _SEQUENCE_BITS:
        raise ValueError(entry_id)
    return time, sequence


def sequence_behind(entry_id: bytes, timestamps: Timestamps = "ms") -> int:
    """Return the first sequence after an entry, whose id may have no sequence.

    Example:
        >>> sequence_behind(b"5-1"), sequence_behind(b"5-70000") == 6 << 16
        (327682, True)
        >>> sequence_behind(b"5000001-2", "ns")
        5000002
    """
    try:
        return sequence_of(entry_id, timestamps)[1] + 1
    except ValueError:
        time = int(entry_id.partition(b"-")[0]) + 1
        return min(time if timestamps == "ns" else time << _COUNTER_BITS, SEQUENCE_MAX)


def id_of(sequence: int, timestamps: Timestamps = "ms") -> bytes:
    """Return the id of the entry with a sequence."""
    if timestamps == "ns":
        return b"%d-0" % sequence
    return b"%d-%d" % (sequence >> _COUNTER_BITS, sequence & (1 << _COUNTER_BITS) - 1)


def id_at(time_ms: int, timestamps: Timestamps) -> bytes:
    """Return the smallest id of a time."""
    time = time_ms * NS_PER_MS if timestamps == "ns" else time_ms
    return b"%d-0" % min(time, _TIME_MAX)


def id_before(entry_id: bytes) -> bytes:
    """Return the last id before another one; the first id is its own predecessor.

    Example:
        >>> id_before(b"5-1"), id_before(b"5-0"), id_before(b"0-0")
        (b'5-0', b'4-18446744073709551615', b'0-0')
    """
    time, counter = map(int, entry_id.split(b"-"))
    if counter:
        return b"%d-%d" % (time, counter - 1)
    return b"%d-%d" % (time - 1, _COUNTER_MAX) if time else FIRST


def redis_key(key: str, shard_id: int) -> bytes:
    """Return the key in Redis of a shard."""
    return (f"{key}:{shard_id}" if shard_id else key).encode()


class ZeroKey(StreamKey):
    """The stream key of a message whose Redis stream is ``KEY:0``, not ``KEY``."""

    __slots__ = ()


def stream_of(name: bytes) -> tuple[StreamKey, int] | None:
    """Return the stream and the shard that a Redis key holds, or None.

    Example:
        >>> stream_of(b"a"), stream_of(b"a:1"), stream_of(b"a:01")
        (('a', 0), ('a', 1), None)
    """
    match = _NAME.fullmatch(name.decode(errors="replace"))
    try:
        return (StreamKey(match["key"]), int(match["shard"] or 0)) if match else None
    except StreamKeyError:
        return None  # Other programs have names that no stream of ours has.


def shard_of(name: bytes, key: StreamKey) -> int | None:
    """Return the shard of a stream that a Redis key holds, or None."""
    found = stream_of(name)
    return found[1] if found and found[0] == key else None
