"""The streamer of a Kafka cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import ClassVar

from bicycle_runtime.streams.addresses import StreamerUri
from bicycle_runtime.streams.admin import StreamAdmin
from bicycle_runtime.streams.consuming import Consumer, Subscription
from bicycle_runtime.streams.contract import Capabilities, Streamer
from bicycle_runtime.streams.kafka.admin import KafkaAdmin
from bicycle_runtime.streams.kafka.cluster import Cluster
from bicycle_runtime.streams.kafka.consuming import KafkaConsumer
from bicycle_runtime.streams.kafka.options import KafkaOptions
from bicycle_runtime.streams.kafka.sending import KafkaSender
from bicycle_runtime.streams.options import Durability, StreamerOptions
from bicycle_runtime.streams.producing import Sender

__all__ = ["KafkaStreamer"]


class KafkaStreamer(Streamer):
    """Streams of one Kafka cluster.

    Args:
        uri: ``kafka://host:port``, with further nodes behind commas.
        options: ``KafkaOptions``.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        modes=frozenset({"real-time", "resumable", "load-balanced"}),
        durabilities=frozenset({"at-most-once", "at-least-once", "exactly-once"}),
        is_replayable=True,
        has_shards=True,
    )
    options_type: ClassVar[type[StreamerOptions]] = KafkaOptions
    words_to_write: ClassVar[Mapping[str, object]] = {"create": "if-missing"}
    options: KafkaOptions

    def __init__(self, uri: StreamerUri, options: KafkaOptions) -> None:
        super().__init__(uri, options)
        self._cluster = Cluster(uri, options)

    async def _open(self) -> None:
        await asyncio.to_thread(self._cluster.open)

    async def _close(self) -> None:
        """Nothing stays open: senders and consumers have closed what they held."""

    def admin(self) -> StreamAdmin:
        return KafkaAdmin(self._cluster)

    async def _make_sender(self, *, durability: Durability, shard_count: int) -> Sender:
        return KafkaSender(self._cluster, durability, shard_count)

    async def _make_consumer(self, subscription: Subscription) -> Consumer:
        return await KafkaConsumer.open(self._cluster, subscription)
