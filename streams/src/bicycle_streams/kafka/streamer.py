"""The streamer of a Kafka cluster, and its admin.

A stream is a topic, and settings are those of topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, ClassVar, TypeVar

import confluent_kafka
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin._config import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
)
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from bicycle_sdk.clock import SystemClock
from bicycle_streams.addresses import StreamerUri, StreamKey
from bicycle_streams.admin import GroupInfo, ShardInfo, StreamAdmin, StreamInfo
from bicycle_streams.consuming import Consumer, Subscription
from bicycle_streams.contract import Capabilities, Streamer
from bicycle_streams.errors import ADMIN_REFUSED, FEWER_SHARDS, STREAM_EXISTS, STREAM_UNKNOWN
from bicycle_streams.kafka.cluster import Cluster
from bicycle_streams.kafka.consuming import KafkaConsumer
from bicycle_streams.kafka.errors import READ_FAILED
from bicycle_streams.kafka.offsets import check_each, messages_to_end
from bicycle_streams.kafka.options import KafkaOptions
from bicycle_streams.kafka.sending import KafkaSender
from bicycle_streams.kafka.topics import (
    answer_of,
    grow_topic,
    make_topic,
    settings_of,
    visible_topics,
)
from bicycle_streams.kafka.transactions import TransactionalSender
from bicycle_streams.options import Durability, StreamerOptions
from bicycle_streams.producing import Sender

T = TypeVar("T")
_TOPIC = ResourceType.TOPIC
_TAIL = 5


class KafkaAdmin(StreamAdmin):
    """Topics of a cluster. Its client waits, so that calls are made in a thread.

    Args:
        cluster: Where the topics are; it is open.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.address)
        self._cluster = cluster
        self._client = cluster.admin_client
        self._timeout_s = cluster.options.connect_timeout_ms / 1_000

    async def list_streams(self) -> list[StreamKey]:
        return await self._in_thread(self._list)

    async def describe(self, key: StreamKey) -> StreamInfo:
        return await self._in_thread(self._describe, key)

    async def create(
        self, key: StreamKey, *, shard_count: int, settings: Mapping[str, str]
    ) -> None:
        await self._in_thread(self._create, key, shard_count, settings)

    async def delete(self, key: StreamKey) -> None:
        await self._in_thread(self._delete, key)

    async def alter(
        self, key: StreamKey, *, shard_count: int | None, settings: Mapping[str, str]
    ) -> None:
        await self._in_thread(self._alter, key, shard_count, settings)

    async def _in_thread(self, call: Callable[..., T], *words: Any) -> T:
        try:
            return await asyncio.to_thread(call, *words)
        except KafkaException as error:
            raise READ_FAILED(address=self.address, reason=self._cluster.redacted(error)) from None
        except TimeoutError:
            raise READ_FAILED(
                address=self.address, reason="the brokers do not respond in time"
            ) from None

    def _list(self) -> list[StreamKey]:
        return [StreamKey(name) for name in visible_topics(self._client, self._timeout_s)]

    def _describe(self, key: StreamKey) -> StreamInfo:
        numbers = range(self._known_count(key))
        own = {"group.id": "bicycle-admin", "enable.partition.eof": True}
        with closing(self._cluster.open_client(confluent_kafka.Consumer, own)) as reader:
            spans = {n: self._cluster.watermarks(reader, TopicPartition(key, n)) for n in numbers}
            times = _last_times(reader, key, spans, patience_s=self._timeout_s)
        shards = [
            ShardInfo(
                shard_id=number,
                message_count=end - begin,
                first_sequence=begin if begin < end else None,
                last_sequence=end - 1 if begin < end else None,
                last_timestamp_ms=times.get(number),
            )
            for number, (begin, end) in spans.items()
        ]
        return StreamInfo(
            key=key,
            shards=tuple(shards),
            groups=tuple(self._groups(key, spans)),
            settings=self._settings(key),
        )

    def _create(self, key: StreamKey, shard_count: int, settings: Mapping[str, str]) -> None:
        count = self._cluster.partition_count(key)
        factor = self._cluster.options.replication_factor
        new = NewTopic(key, shard_count, replication_factor=factor, config=dict(settings))
        with self._raise_refusals("create", key):
            if count or not make_topic(self._client, new, self._timeout_s):
                count = count or self._cluster.partition_count(key)
                raise STREAM_EXISTS(address=self.address, key=key, shard_count=count)
        self._await_count(key, shard_count)

    def _delete(self, key: StreamKey) -> None:
        self._known_count(key)
        with self._raise_refusals("delete", key):
            answer_of(self._client.delete_topics([key]), self._timeout_s)
        self._await_count(key, 0)

    def _alter(self, key: StreamKey, shard_count: int | None, settings: Mapping[str, str]) -> None:
        count = self._known_count(key)
        if shard_count is not None and shard_count < count:
            raise FEWER_SHARDS(address=self.address, key=key, shard_count=count, wanted=shard_count)
        with self._raise_refusals("alter", key):
            if settings:  # First, since they are refused more often.
                entries = [
                    ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                    for name, value in settings.items()
                ]
                asked = ConfigResource(_TOPIC, str(key), incremental_configs=entries)
                answer_of(self._client.incremental_alter_configs([asked]), self._timeout_s)
            if shard_count is not None and shard_count > count:
                grow_topic(self._client, key, shard_count, self._timeout_s)
        self._await_count(key, shard_count or count)

    def _known_count(self, key: StreamKey) -> int:
        """Return how many partitions a topic has that must exist."""
        if count := self._cluster.partition_count(key):
            return count
        known = ", ".join(self._list()) or "none"
        raise STREAM_UNKNOWN(address=self.address, key=key, known_text=known)

    def _await_count(self, key: StreamKey, count: int) -> None:
        """Wait until the brokers that we ask have heard of a change."""
        if not self._cluster.wait_for_count(key, lambda found: found == count):
            reason = "the brokers do not return its metadata in time"
            raise ADMIN_REFUSED(address=self.address, action="show", key=key, reason=reason)

    def _groups(self, key: StreamKey, spans: Mapping[int, tuple[int, int]]) -> Iterator[GroupInfo]:
        """Yield the groups with a position in the topic, or with members that read it."""
        asked = self._client.list_consumer_groups(request_timeout=self._timeout_s)
        names = sorted(each.group_id for each in asked.result().valid)
        if not names:
            return
        described = self._client.describe_consumer_groups(names, request_timeout=self._timeout_s)
        for name in names:
            members = sum(
                any(partition.topic == key for partition in member.assignment.topic_partitions)
                for member in described[name].result().members
            )
            partitions = [TopicPartition(key, number) for number in spans]
            [kept] = self._client.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(name, partitions)], request_timeout=self._timeout_s
            ).values()
            found = check_each(kept.result().topic_partitions)
            positions = {each.partition: each.offset for each in found}
            if members or any(position >= 0 for position in positions.values()):
                lags = {
                    number: end - max(begin, positions.get(number, begin))
                    for number, (begin, end) in spans.items()
                }
                yield GroupInfo(name=name, consumer_count=members, lag_by_shard=lags)

    def _settings(self, key: StreamKey) -> dict[str, str]:
        """Return the settings of this topic that differ from defaults."""
        found = settings_of(self._client, _TOPIC, str(key), self._timeout_s)
        return {
            name: entry.value
            for name, entry in found.items()
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        }

    @contextmanager
    def _raise_refusals(self, action: str, key: StreamKey) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            reason = self._cluster.redacted(error)
            raise ADMIN_REFUSED(
                address=self.address, action=action, key=key, reason=reason
            ) from None


def _last_times(
    reader: confluent_kafka.Consumer,
    key: StreamKey,
    spans: Mapping[int, tuple[int, int]],
    *,
    patience_s: float,
) -> dict[int, int]:
    """Return the latest time among the last messages of each partition.

    The last offsets may be those of marks of transactions, so that some before them are read, too.
    """
    found: dict[int, int] = {}
    partitions = [TopicPartition(key, n, max(a, b - _TAIL)) for n, (a, b) in spans.items() if a < b]
    for message in messages_to_end(reader, partitions, limit_s=patience_s, clock=SystemClock()):
        if (number := message.partition()) is not None:
            found[number] = max(found.get(number, 0), message.timestamp()[1])
    return found


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
        has_headers=True,
        has_transactions=True,  # With the option transactional_id.
    )
    options_type: ClassVar[type[StreamerOptions]] = KafkaOptions
    words_to_write: ClassVar[Mapping[str, object]] = {"create": "if-missing"}
    default_port: ClassVar[int | None] = 9092
    options: KafkaOptions

    def __init__(self, uri: StreamerUri, options: KafkaOptions) -> None:
        super().__init__(uri, options)
        self._cluster = Cluster(uri, options)

    async def _open(self) -> None:
        await asyncio.to_thread(self._cluster.open)

    async def _close(self) -> None:
        """Do nothing: senders and consumers have closed their resources."""

    def admin(self) -> StreamAdmin:
        return KafkaAdmin(self._cluster)

    async def _make_sender(self, *, durability: Durability, shard_count: int) -> Sender:
        name = self.options.transactional_id
        if name is None:
            return KafkaSender(self._cluster, durability, shard_count)
        if durability == "at-most-once":
            raise self._cannot(
                f"send {durability}", "transactions already repeat messages without a receipt"
            )
        if any(
            isinstance(each, TransactionalSender) and not each.has_ended for each in self._senders
        ):
            reason = (
                "it would fence the first producer, which has the same transactional_id; clone "
                "the first producer"
            )
            raise self._cannot("set a transactional_id for both producers", reason)
        return await TransactionalSender.open(self._cluster, shard_count, name)

    async def _make_consumer(self, subscription: Subscription) -> Consumer:
        return await KafkaConsumer.open(self._cluster, subscription)
