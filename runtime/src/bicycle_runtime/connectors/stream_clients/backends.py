"""The backends of streams in jobs: inputs of sources, outputs of sinks.

Shards are named as keys of Redis are: ``orders``, and ``orders:1`` for shard 1. Positions are
sequences. A server that is away raises ``AwayError``: at once on the driver, later on workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from bicycle_runtime.contract import BadRecord
from bicycle_streams.addresses import StreamKey
from bicycle_streams.messages import Message


class AwayError(Exception):
    """The backend cannot be asked now, and may be later; never leaves this package."""


class KeyTypeError(Exception):
    """A key is no stream; never leaves this package.

    Args:
        key: The key.
        found: The type of its value.
    """

    def __init__(self, key: str, found: str) -> None:
        super().__init__(f"the key {key!r} is a {found}")
        self.key = key
        self.found = found


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The messages that a shard has. What a backend cannot tell is None.

    ``end`` and ``first`` are the sequence behind the last message and that of the first one; both
    are 0 without messages. ``last_end`` is the sequence behind the last message that there ever
    was. ``count`` messages are there of ``added_count`` in all, and ``deletion`` changes when
    single ones are deleted.
    """

    end: int
    last_end: int | None = None
    first: int = 0
    count: int = 0
    added_count: int | None = None
    deletion: str = ""


@dataclass(frozen=True, slots=True)
class Cut:
    """The ends of ranges of messages, and the count of each."""

    ends: tuple[int, ...]
    counts: tuple[int, ...]


class StreamInput(Protocol):
    """The input of a source; picklable, and opened on first use."""

    def extents(self, now_s: float) -> Mapping[str, Extent]:
        """Return the range of messages in each shard; raise AwayError or KeyTypeError.

        Args:
            now_s: The monotonic time. New shards are looked for at intervals.
        """

    def cut(self, shard: str, start: int, end: int, *, size: tuple[int, int], parts: int) -> Cut:
        """Divide messages from ``start`` on; ``size``: at most so many records and bytes.

        The cut is empty only where the range has no message. Raise AwayError.
        """

    def read(self, shard: str, start: int, end: int) -> Iterator[list[Message | BadRecord]]:
        """Yield the messages of a range, in order, with unusable ones among them.

        Raise AwayError when a server stays away.
        """

    def keep(self, positions: Mapping[str, int]) -> None:
        """Publish the read positions, if the backend can store them."""

    def close(self) -> None:
        """Release the resources."""


def shard_name(key: str, shard_id: int) -> str:
    """Return the name of a shard.

    Example:
        >>> shard_name("orders", 0), shard_name("orders", 2), stream_in("orders:2")
        ('orders', 'orders:2', ('orders', 2))
    """
    return f"{key}:{shard_id}" if shard_id else str(key)


def stream_in(shard: str) -> tuple[StreamKey, int]:
    """Return key and number of a shard."""
    key, _, number = shard.partition(":")
    return StreamKey(key), int(number or 0)


def cut_of(found: list[int], parts: int) -> Cut:
    """Divide the sequences of messages into parts of about the same count.

    Messages that share a sequence, since no other identifies them, stay together.
    """
    boundaries = sorted({len(found) * part // parts for part in range(1, parts + 1)} - {0})
    boundaries = [at for at in boundaries if at == len(found) or found[at] > found[at - 1]]
    ends = tuple(found[boundary - 1] + 1 for boundary in boundaries)
    counts = tuple(
        after - before for before, after in zip([0, *boundaries], boundaries, strict=False)
    )
    return Cut(ends, counts)


class RefusedError(Exception):
    """The backend does not take an epoch; never leaves this package."""


class ChangedError(Exception):
    """A foreign write where an epoch was to continue, internal to this package."""


class StreamOutput(Protocol):
    """The output of a sink.

    Every call may raise AwayError or RefusedError.
    """

    def open(self, now_ms: int) -> None:
        """Create missing targets, and exclude other writers if possible."""

    def check(self) -> None:
        """Raise the errors of ``open``, without creating anything."""

    def written(self, run: str) -> int | None:
        """Return the last epoch that a run wrote, or None."""

    def write(self, run: str, epoch: int, payloads: Iterator[bytes]) -> None:
        """Write an epoch and its number at once, unless it is written."""

    def close(self) -> None:
        """Release the resources."""
