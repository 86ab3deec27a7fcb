"""The administration of streams: a list, the progress of each, and its readers.

A backend subclasses ``StreamAdmin``; ``Streamer.admin`` returns it. No payload is read here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from bicycle_streams.addresses import StreamKey
from bicycle_streams.errors import StreamUnsupportedError


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardInfo:
    """One shard of a stream.

    Args:
        shard_id: Its number.
        message_count: Number of stored messages; None if the backend does not report it.
        first_sequence: Sequence of the first stored message; None without messages.
        last_sequence: Sequence of the last message; None without messages.
        last_timestamp_ms: The time of the latest message, in ms since 1970.
    """

    shard_id: int
    message_count: int | None = None
    first_sequence: int | None = None
    last_sequence: int | None = None
    last_timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo:
    """A group that keeps a position in a stream, or shares it.

    Args:
        name: The group.
        consumer_count: Current number of consumers; None if the backend does not report it.
        lag_by_shard: Number of unread messages in each shard; None if it is unknown.
    """

    name: str
    consumer_count: int | None = None
    lag_by_shard: Mapping[int, int | None] = field(default_factory=dict)

    @property
    def lag(self) -> int | None:
        """Messages that wait in all shards; None when that of one is not known."""
        lags = list(self.lag_by_shard.values())
        known = [lag for lag in lags if lag is not None]
        return sum(known) if len(known) == len(lags) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamInfo:
    """The backend's information about a stream.

    Args:
        key: The stream.
        shards: The shards by number.
        groups: The groups by name.
        settings: Settings of this stream alone, by their names in the backend.
        producer_count: Current number of producers; None if the backend does not report it.
    """

    key: StreamKey
    shards: tuple[ShardInfo, ...]
    groups: tuple[GroupInfo, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    producer_count: int | None = None

    @property
    def message_count(self) -> int | None:
        """Messages in all shards; None when that of one is not known."""
        counts = [shard.message_count for shard in self.shards if shard.message_count is not None]
        return sum(counts) if len(counts) == len(self.shards) else None

    @property
    def consumer_count(self) -> int | None:
        """Consumers of all groups; None without groups, or when that of one is not known."""
        counts = [each.consumer_count for each in self.groups if each.consumer_count is not None]
        return sum(counts) if counts and len(counts) == len(self.groups) else None

    @property
    def lag(self) -> int | None:
        """Messages that wait for the group that is furthest behind; None without groups."""
        return max((each.lag for each in self.groups if each.lag is not None), default=None)

    @property
    def last_timestamp_ms(self) -> int | None:
        """The time of the latest message of all shards."""
        times = [s.last_timestamp_ms for s in self.shards if s.last_timestamp_ms is not None]
        return max(times, default=None)


class StreamAdmin(ABC):
    """Lists, describes, makes, changes and removes streams.

    Args:
        address: Where the streams are, for messages of errors.
    """

    def __init__(self, address: str) -> None:
        self.address = address

    @abstractmethod
    async def list_streams(self) -> list[StreamKey]:
        """Return the existing streams, in order, without internal ones of the backend."""

    @abstractmethod
    async def describe(self, key: StreamKey) -> StreamInfo:
        """Return information about a stream.

        Raises:
            STREAM_UNKNOWN: there is no stream of this name.
        """

    async def create(
        self, key: StreamKey, *, shard_count: int, settings: Mapping[str, str]
    ) -> None:
        """Make a stream without messages.

        Args:
            key: The stream.
            shard_count: How many shards it has, at least 1.
            settings: In words of the backend.

        Raises:
            STREAM_EXISTS: there is one of this name.
            ADMIN_REFUSED: the backend rejects the settings, or the permission is missing.
            StreamUnsupportedError: its first message makes a stream of this backend.
        """
        raise self._cannot("create streams")

    async def delete(self, key: StreamKey) -> None:
        """Remove a stream with all its messages.

        Raises:
            STREAM_UNKNOWN: there is no stream of this name.
            ADMIN_REFUSED: the permission is missing.
            StreamUnsupportedError: the backend cannot do it.
        """
        raise self._cannot("delete streams")

    async def alter(
        self, key: StreamKey, *, shard_count: int | None, settings: Mapping[str, str]
    ) -> None:
        """Increase the shards of a stream, or change its settings.

        Args:
            key: The stream.
            shard_count: How many shards it has from now on; None: as many as it has.
            settings: In words of the backend.

        Raises:
            STREAM_UNKNOWN: there is no stream of this name.
            FEWER_SHARDS: it has more shards than that.
            ADMIN_REFUSED: the backend rejects the settings, or the permission is missing.
            StreamUnsupportedError: the backend cannot do it.
        """
        raise self._cannot("alter streams")

    def _cannot(self, action: str) -> StreamUnsupportedError:
        return StreamUnsupportedError(
            backend=self.address,
            action=action,
            reason="a stream exists there only while it has messages",
            hint="send a message: the first message creates the stream",
        )
