"""The streamer of a Pulsar cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping
from typing import ClassVar

from bicycle_streams.addresses import StreamerUri
from bicycle_streams.admin import StreamAdmin
from bicycle_streams.consuming import Consumer, Subscription
from bicycle_streams.contract import Capabilities, Streamer
from bicycle_streams.options import Durability, StreamerOptions
from bicycle_streams.producing import Sender
from bicycle_streams.pulsar.cluster import PORT, Cluster
from bicycle_streams.pulsar.consuming import PulsarConsumer
from bicycle_streams.pulsar.options import PulsarOptions
from bicycle_streams.pulsar.sending import PulsarSender


class PulsarStreamer(Streamer):
    """Streams of one Pulsar cluster.

    Args:
        uri: ``pulsar://host:port``, or ``pulsar+ssl://`` with TLS; further nodes behind commas.
        options: ``PulsarOptions``.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        modes=frozenset({"real-time", "resumable", "load-balanced"}),
        # Its client always sends messages without a receipt again.
        durabilities=frozenset({"at-least-once", "exactly-once"}),
        is_replayable=True,
        has_shards=True,
        has_headers=True,
    )
    options_type: ClassVar[type[StreamerOptions]] = PulsarOptions
    words_to_write: ClassVar[Mapping[str, object]] = {}
    default_port: ClassVar[int | None] = PORT
    options: PulsarOptions

    def __init__(self, uri: StreamerUri, options: PulsarOptions) -> None:
        super().__init__(uri, options)
        self._cluster = Cluster(uri, options)

    @property
    def identity(self) -> Hashable:
        return super().identity, self.options.namespace

    async def _open(self) -> None:
        await asyncio.to_thread(self._cluster.open)

    async def _close(self) -> None:
        await asyncio.to_thread(self._cluster.close)

    def admin(self) -> StreamAdmin:
        raise self._cannot("list streams", "use pulsar-admin: topics list NAMESPACE")

    async def _make_sender(self, *, durability: Durability, shard_count: int) -> Sender:
        return PulsarSender(self._cluster, durability, shard_count)

    async def _make_consumer(self, subscription: Subscription) -> Consumer:
        return await PulsarConsumer.open(self._cluster, subscription)
