"""The sender of the Pulsar backend: one producer of the client for each shard.

The client reports receipts by callbacks on its own thread, and ends the process if a callback
raises. So callbacks only store the receipt, and the last one wakes the event loop.

A producer that gets no receipts for some time is replaced, as readers are. With exactly-once it is
kept: brokers know its messages by its name.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from typing import Any, ClassVar, TypeAlias

import pulsar

from bicycle_sdk.clock import SystemClock
from bicycle_streams.addresses import StreamKey
from bicycle_streams.errors import ConnectionLostError, StreamError
from bicycle_streams.messages import OutgoingMessage, Receipt
from bicycle_streams.options import Durability
from bicycle_streams.pulsar.cluster import Cluster, reason_of
from bicycle_streams.pulsar.errors import NOT_DELIVERED, NOT_TEXT
from bicycle_streams.pulsar.positions import sequence_of
from bicycle_streams.queued_sending import Pending, QueuedSender

_BATCH_MAX = 10_000
_LINGER_MS = 1
_SILENCE_MS = 10_000  # Another producer sends what has no receipt after this time.
_COMPRESSIONS = {
    "none": pulsar.CompressionType.NONE,
    "lz4": pulsar.CompressionType.LZ4,
    "zlib": pulsar.CompressionType.ZLib,
    "zstd": pulsar.CompressionType.ZSTD,
    "snappy": pulsar.CompressionType.SNAPPY,
}


class PulsarSender(QueuedSender):
    """A sender to topics, which creates missing ones if allowed.

    Args:
        cluster: The cluster.
        durability: ``exactly-once``: brokers drop what the client sends again.
        shard_count: Number of shards over which messages without a shard are distributed.
    """

    has_headers: ClassVar[bool] = True

    def __init__(self, cluster: Cluster, durability: Durability, shard_count: int) -> None:
        super().__init__(
            cluster.address, cluster.options, batch_max=_BATCH_MAX, shard_count=shard_count
        )
        self._cluster = cluster
        self._is_exact = durability == "exactly-once"
        self._producers: dict[tuple[StreamKey, int], Any] = {}
        self._now_ms = SystemClock().now_ms

    def _shard_of(self, message: OutgoingMessage) -> int:
        if message.shard_id is None and message.key is not None:
            return zlib.crc32(message.key) % self._shard_count
        return super()._shard_of(message)

    def _begin(self, pending: Pending) -> None:
        self._head_of(pending.message)

    def _head_of(self, message: OutgoingMessage) -> dict[str, Any]:
        """Return key and headers as the client takes them, which are texts."""
        try:
            texts = {name: self._text_of(message, name, value) for name, value in message.headers}
            partition_key = None if message.key is None else message.key.decode()
        except UnicodeDecodeError as error:
            raise self._not_text(message, str(error)) from None
        if len(texts) < len(message.headers):
            raise self._not_text(message, "a name is used more than once")
        return {"partition_key": partition_key, "properties": texts or None}

    def _text_of(self, message: OutgoingMessage, name: str, value: bytes | None) -> str:
        if value is None:
            raise self._not_text(message, f"header {name!r} has no value")
        return value.decode()

    def _not_text(self, message: OutgoingMessage, reason: str) -> StreamError:
        return NOT_TEXT(backend=self.address, key=message.stream_key, reason=reason)

    async def _write(self, batch: list[Pending]) -> None:
        deadline_s = time.monotonic() + self._cluster.options.delivery_timeout_ms / 1_000
        while batch:
            found = await self._send(batch)
            is_late = self._is_exact or time.monotonic() >= deadline_s
            batch = []
            for answer in found:
                if answer[2] == pulsar.Result.Timeout and not is_late:
                    batch.append(answer[0])
                else:
                    self._settle(*answer)
            if batch:
                silent = {pending.shard for pending in batch}
                producers = [self._producers.pop(shard) for shard in silent]
                await asyncio.to_thread(_close_all, producers)

    async def _send(self, batch: list[Pending]) -> list[_Answer]:
        """Return the reports of the client about messages, in their order."""
        answers = _Answers(len(batch))
        for pending in batch:
            shard = pending.shard
            if shard not in self._producers:
                try:
                    self._producers[shard] = await asyncio.to_thread(self._make, *shard)
                except StreamError as error:  # Others have their topics.
                    self.refuse(pending, error)
                    answers.skip()
                    continue
            self._hand_over(self._producers[shard], pending, answers)
        await answers.all_there()
        return answers.found

    def _hand_over(self, producer: Any, pending: Pending, answers: _Answers) -> None:
        message = pending.message
        time_ms = self._now_ms() if message.timestamp_ms is None else message.timestamp_ms
        producer.send_async(
            message.payload,
            lambda result, message_id: answers.take(pending, time_ms, result, message_id),
            event_timestamp=time_ms,
            **self._head_of(message),
        )

    def _settle(self, pending: Pending, time_ms: int, result: Any, message_id: Any) -> None:
        key = pending.message.stream_key
        if result != pulsar.Result.Ok:
            reason = getattr(result, "name", str(result))
            if result == pulsar.Result.Timeout:
                self.refuse(pending, ConnectionLostError(address=self.address, reason=reason))
            else:
                self.refuse(pending, NOT_DELIVERED(address=self.address, key=key, reason=reason))
            return
        try:
            sequence = sequence_of(message_id, self.address, key)
        except StreamError as error:
            self.refuse(pending, error)
            return
        pending.receipt = Receipt(*pending.shard, sequence, time_ms)

    def _make(self, key: StreamKey, shard_id: int) -> Any:
        """Return a producer of a shard; on a thread."""
        if self._is_exact:
            self._cluster.require_deduplication(key)
        topic = self._cluster.partitions(key, max(self._shard_count, shard_id + 1))[shard_id]
        options = self._cluster.options
        timeout_ms = options.delivery_timeout_ms
        if not self._is_exact:
            timeout_ms = min(timeout_ms, _SILENCE_MS)
        try:
            return self._cluster.client.create_producer(
                topic,
                batching_enabled=True,
                batching_max_publish_delay_ms=_LINGER_MS,
                compression_type=_COMPRESSIONS[options.compression],
                max_pending_messages=_BATCH_MAX,
                send_timeout_millis=timeout_ms,
            )
        except pulsar.PulsarException as error:
            raise NOT_DELIVERED(address=self.address, key=key, reason=reason_of(error)) from None

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            producers, self._producers = self._producers, {}
            await asyncio.to_thread(_close_all, list(producers.values()))


def _close_all(producers: list[Any]) -> None:
    for producer in producers:
        try:
            producer.close()
        except pulsar.PulsarException:
            continue  # The server does not respond; its receipts were stored.


_Answer: TypeAlias = tuple[Pending, int, Any, Any]


class _Answers:
    """The client's reports of a batch of messages, from its thread."""

    def __init__(self, count: int) -> None:
        self.found: list[_Answer] = []
        self._missing = count
        self._loop = asyncio.get_running_loop()
        self._are_there = asyncio.Event()

    def take(self, pending: Pending, time_ms: int, result: Any, message_id: Any) -> None:
        """Note an answer; called by the client, on one thread for each connection."""
        self.found.append((pending, time_ms, result, message_id))
        if len(self.found) == self._missing:
            self._wake()

    def skip(self) -> None:
        """Expect one report less; called before any wait."""
        self._missing -= 1

    async def all_there(self) -> None:
        """Wait until there is an answer for each message."""
        if len(self.found) < self._missing:
            await self._are_there.wait()

    def _wake(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._are_there.set)
