"""The Redis streams that a consumer reads, and its position in each."""

from __future__ import annotations

import time
from collections.abc import Iterable

from bicycle_streams.addresses import StreamKey
from bicycle_streams.errors import StreamError
from bicycle_streams.messages import BEGINNING, At, Message, SeqPos
from bicycle_streams.redis.connection import Connection
from bicycle_streams.redis.errors import FIELD_MISSING, ID_UNUSABLE
from bicycle_streams.redis.ids import FIRST, Timestamps, id_at, id_before, id_of, sequence_of


class Shard:
    """One Redis stream: the key and shard, and the last id that was read."""

    __slots__ = ("key", "last_id", "name", "shard_id")

    def __init__(self, name: bytes, key: StreamKey, shard_id: int, last_id: bytes) -> None:
        self.name = name
        self.key = key
        self.shard_id = shard_id
        self.last_id = last_id


class Shards:
    """The Redis streams of some keys; new shards are found while the server has them.

    Args:
        connection: The server.
        keys: The streams.
    """

    def __init__(self, connection: Connection, keys: Iterable[StreamKey]) -> None:
        self._connection = connection
        self._keys = tuple(keys)
        self._scan_at = 0.0
        self.by_name: dict[bytes, Shard] = {}

    def discover(self, *, at_once: bool = False) -> list[Shard]:
        """Look for shards if a check is due, and return the new ones."""
        now = time.monotonic()
        if now < self._scan_at and not at_once:
            return []
        self._scan_at = now + self._connection.options.discovery_interval_ms / 1_000
        found = self._connection.shards(self._keys).items()
        new = [Shard(name, *at, FIRST) for name, at in found if name not in self.by_name]
        self.by_name.update((shard.name, shard) for shard in new)
        return new

    def end_of(self, shard: Shard) -> bytes:
        """Return the last generated id of a Redis stream, or the first id if missing."""
        info = self._connection.facts(shard.name)
        return FIRST if info is None else info["last-generated-id"]

    def move(self, shards: Iterable[Shard], target: SeqPos | int) -> dict[bytes, bytes]:
        """Return the ids before a target by Redis stream; a number is a time in ms.

        It is empty when no place has anything at or behind it.
        """
        found: dict[bytes, bytes] = {}
        form = self._connection.options.timestamps
        for shard in shards:
            if target is BEGINNING:
                found[shard.name] = FIRST
                continue
            if not isinstance(target, At | int):
                found[shard.name] = self.end_of(shard)
                continue
            first = id_of(target.sequence, form) if isinstance(target, At) else id_at(target, form)
            if self._connection.call("XRANGE", shard.name, first, "+", "COUNT", 1):
                found[shard.name] = id_before(first)
        return found


def entry_message(
    entry: tuple[bytes, list[bytes] | None],
    shard: tuple[StreamKey, int],
    field: bytes,
    address: str,
    *,
    timestamps: Timestamps = "ms",
) -> Message | StreamError | None:
    """Return the message of an entry, or an error, or None if it was deleted.

    Args:
        entry: Its id and its fields; None if it was deleted after its delivery to a member.
        shard: Stream and shard.
        field: The field with the payload.
        address: Address of the server, for errors.
        timestamps: The unit of times in ids.
    """
    entry_id, fields = entry
    try:
        time_ms, sequence = sequence_of(entry_id, timestamps)
    except ValueError:
        return ID_UNUSABLE(address=address, key=shard[0], id=entry_id.decode())
    if not fields:
        return None
    for name, payload in zip(fields[::2], fields[1::2], strict=True):
        if name == field:
            return Message(*shard, sequence, time_ms, payload)
    return FIELD_MISSING(
        address=address,
        key=shard[0],
        id=entry_id.decode(),
        field=field.decode(),
        found=", ".join(repr(name.decode(errors="replace")) for name in fields[::2]),
    )
