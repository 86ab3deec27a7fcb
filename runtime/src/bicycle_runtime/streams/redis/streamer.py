"""The streamer of a Redis server."""

from __future__ import annotations

from typing import ClassVar

from bicycle_runtime.streams.addresses import StreamerUri
from bicycle_runtime.streams.admin import StreamAdmin
from bicycle_runtime.streams.consuming import Consumer, Subscription
from bicycle_runtime.streams.contract import Capabilities, Streamer
from bicycle_runtime.streams.options import Durability, StreamerOptions
from bicycle_runtime.streams.producing import Sender
from bicycle_runtime.streams.redis.admin import RedisAdmin
from bicycle_runtime.streams.redis.connection import Connection
from bicycle_runtime.streams.redis.consuming import RedisConsumer
from bicycle_runtime.streams.redis.options import RedisOptions
from bicycle_runtime.streams.redis.sending import RedisSender

__all__ = ["RedisStreamer"]


class RedisStreamer(Streamer):
    """Streams of one Redis server.

    Args:
        uri: ``redis://host:port``, or ``rediss://`` with TLS.
        options: ``RedisOptions``.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        modes=frozenset({"real-time", "resumable", "load-balanced"}),
        is_replayable=True,
        has_shards=True,
    )
    options_type: ClassVar[type[StreamerOptions]] = RedisOptions
    options: RedisOptions

    def __init__(self, uri: StreamerUri, options: RedisOptions) -> None:
        super().__init__(uri, options)
        self._connection = Connection(uri, options)

    async def _open(self) -> None:
        await self._connection.open()

    async def _close(self) -> None:
        await self._connection.close()

    def admin(self) -> StreamAdmin:
        return RedisAdmin(self._connection)

    async def _make_sender(self, *, durability: Durability, shard_count: int) -> Sender:
        return RedisSender(self._connection, durability, shard_count)

    async def _make_consumer(self, subscription: Subscription) -> Consumer:
        return await RedisConsumer.open(self._connection, subscription)
