"""Names in Redis: entries have ids ``MILLISECONDS-COUNTER``, and shards are keys ``KEY:SHARD``.

A sequence is the id as one number, the counter in the lower 16 bits, as SeaStreamer has it. Shard 0
is the key itself; where that is missing, ``KEY:0`` is.
"""

from __future__ import annotations

from bicycle_runtime.streams.addresses import StreamKey

__all__ = ["FIRST", "id_before", "id_of", "redis_key", "sequence_of", "shard_of"]

FIRST = b"0-0"  # Before all entries.
_COUNTER_BITS = 16
_COUNTER_MAX = (1 << 64) - 1


def sequence_of(entry_id: bytes) -> tuple[int, int]:
    """Return milliseconds and sequence of an entry.

    Raises:
        ValueError: its counter is too large for a sequence.

    Example:
        >>> sequence_of(b"5-1")
        (5, 327681)
    """
    time_text, _, counter_text = entry_id.partition(b"-")
    time_ms, counter = int(time_text), int(counter_text)
    if counter >> _COUNTER_BITS:
        raise ValueError(entry_id)
    return time_ms, time_ms << _COUNTER_BITS | counter


def id_of(sequence: int) -> bytes:
    """Return the id of the entry with a sequence."""
    return b"%d-%d" % (sequence >> _COUNTER_BITS, sequence & (1 << _COUNTER_BITS) - 1)


def id_before(time_ms: int, counter: int = 0) -> bytes:
    """Return the last id that is smaller than another one; nothing is before the first.

    Example:
        >>> id_before(5, 1), id_before(5), id_before(0)
        (b'5-0', b'4-18446744073709551615', b'0-0')
    """
    if counter:
        return b"%d-%d" % (time_ms, counter - 1)
    return b"%d-%d" % (time_ms - 1, _COUNTER_MAX) if time_ms else FIRST


def redis_key(key: str, shard_id: int) -> bytes:
    """Return the key in Redis of a shard."""
    return (f"{key}:{shard_id}" if shard_id else key).encode()


def shard_of(name: bytes, key: StreamKey) -> int | None:
    """Return which shard of a stream a key in Redis is; None when it is none."""
    stream, _, shard = name.decode(errors="replace").partition(":")
    if stream != key or not (shard.isdecimal() or name == key.encode()):
        return None
    return int(shard or 0)
