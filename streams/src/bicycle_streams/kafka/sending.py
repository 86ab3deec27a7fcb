"""The sender of the Kafka backend: batches of the client, and delivery reports."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as Client

from bicycle_sdk.clock import SystemClock
from bicycle_streams.addresses import StreamKey
from bicycle_streams.errors import ProducerEndedError, SendQueueFullError, StreamError
from bicycle_streams.kafka.cluster import Cluster
from bicycle_streams.kafka.errors import NOT_DELIVERED
from bicycle_streams.kafka.producing import PURGED, SendingClient, client_call
from bicycle_streams.messages import Message, OutgoingMessage, Receipt
from bicycle_streams.options import Durability
from bicycle_streams.producing import Sender, Sent

# Payload, key, partition, time and headers of a message, as the client takes them.
_Row: TypeAlias = tuple[bytes, bytes | None, int, int, Any]
_POLL_S = 0.1
_NO_PARTITION = "Kafka has no partition with this number"
_DURABILITIES: dict[Durability, dict[str, Any]] = {
    "at-most-once": {"acks": "1", "retries": 0},
    "at-least-once": {"acks": "all"},
    "exactly-once": {"enable.idempotence": True},
}
_SENT_AGAIN: dict[Durability, frozenset[int]] = {
    "at-most-once": frozenset(),
    "at-least-once": PURGED,
    "exactly-once": frozenset({KafkaError._PURGE_QUEUE}),
}


class KafkaSender(Sender):
    """A sender with one Kafka client; a separate thread receives delivery reports.

    A client that reaches no broker for long is replaced (``SendingClient``). The next one sends the
    messages without a receipt again, as far as the durability permits; the others fail. A client
    with a transactional id is not replaced: its transaction fails.

    Args:
        cluster: The cluster.
        durability: ``exactly-once`` is Kafka's idempotence: a repeated message counts once.
        shard_count: Over how many partitions messages without one go, in turns.
        own: Further settings of the client.
    """

    has_headers: ClassVar[bool] = True

    def __init__(
        self,
        cluster: Cluster,
        durability: Durability,
        shard_count: int,
        own: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(cluster.address, shard_count)
        options = cluster.options
        self._cluster = cluster
        settings = {
            "linger.ms": options.linger_ms,
            "compression.type": options.compression,
            "delivery.timeout.ms": options.delivery_timeout_ms,
            "queue.buffering.max.messages": options.send_queue_messages,
            **_DURABILITIES[durability],
            **(own or {}),
        }
        self._is_replaced = cluster.config_value("transactional.id", settings) is None
        self._sending = SendingClient(
            lambda: cluster.open_client(Client, settings),
            again=_SENT_AGAIN[durability] if self._is_replaced else (),
            timeout_s=int(cluster.config_value("delivery.timeout.ms", settings) or 0) / 1_000,
            clock=SystemClock(),
        )
        # Messages of topics of which we do not know yet whether they are there.
        self._waiting: dict[StreamKey, list[_Batch] | None] = {}
        self._waiting_count = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._taken = 0
        self.delivered = 0  # Changed on the thread alone, and the next one on the event loop alone.
        self._refused = 0
        self._failure: StreamError | None = None
        self._moved = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.is_waking = False
        self._shut: StreamError | None = None  # Why no message is taken.
        self.retry = self._sending.retry
        self._has_stopped = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="deliveries of Kafka", daemon=True)
        self._thread.start()

    def send(self, message: OutgoingMessage) -> Sent:
        partition = message.shard_id
        if partition is None:
            partition = self._partition_of(message.key)
        time_ms, headers = message.timestamp_ms or 0, [*message.headers] or None
        row = (message.payload, message.key, partition, time_ms, headers)
        return self._send(message.stream_key, [row])

    def send_many(self, key: StreamKey, payloads: Sequence[bytes]) -> Sent:
        """Send messages with one receipt for all, which halves the cost per message."""
        rows = [(payload, None, self._partition_of(None), 0, None) for payload in payloads]
        return self._send(key, rows)

    def copy_many(self, key: StreamKey, messages: Sequence[Message], *, with_shards: bool) -> Sent:
        """Send messages with one receipt for all."""
        rows: list[_Row] = [
            (
                each.payload,
                each.key,
                each.shard_id if with_shards else self._partition_of(each.key),
                each.timestamp_ms,
                [*each.headers] or None,
            )
            for each in messages
        ]
        return self._send(key, rows)

    def _partition_of(self, message_key: bytes | None) -> int:
        """Return the partition of a message without one; -1: the client chooses."""
        return -1 if self._shard_count == 1 or message_key is not None else self._next_shard()

    def _send(self, key: StreamKey, rows: Sequence[_Row]) -> Sent:
        """Send messages, or keep them until their topic exists.

        Raises:
            StreamError: the only message is refused.
        """
        if self._shut is not None:
            raise self._shut
        if key not in self._waiting:
            self._waiting[key] = []
            task = self._loop.create_task(self._look_for(key))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        batch, waiting = _Batch(self, key, rows), self._waiting[key]
        count = len(self._client) if waiting is None else self._waiting_count
        if count + len(rows) > self._cluster.options.send_queue_messages:
            raise SendQueueFullError(address=self.address, waiting=count)
        self._taken += len(rows)
        if waiting is not None:
            waiting.append(batch)
            self._waiting_count += len(rows)
            return batch
        try:
            self._produce(batch)
        except StreamError:
            self._taken -= 1
            raise
        return batch

    def _produce(self, batch: _Batch) -> None:
        """Pass messages to the client; raise the error of a single message."""
        key, rows, batch.rows = batch.key, batch.rows, ()
        produce = self._client.produce
        on_delivery: Callable[[Any, Any], None] = batch.settle
        # hot path: by position, a message costs 0.7 µs, with a receipt of its own 2 µs more.
        for number, (payload, message_key, partition, time_ms, headers) in enumerate(rows, start=1):
            if number == len(rows):
                on_delivery = batch.settle_last
            try:
                produce(key, payload, message_key, partition, on_delivery, None, time_ms, headers)
                continue
            except BufferError:
                waiting = len(self._client)
                error: StreamError = SendQueueFullError(address=self.address, waiting=waiting)
            except KafkaException as refusal:
                error = self.refusal(key, refusal)
            except OverflowError:
                error = self.refusal(key, _NO_PARTITION)
            if len(rows) == 1:
                raise error
            batch.refuse(error)

    async def _look_for(self, key: StreamKey) -> None:
        """Send the waiting messages of a topic once it exists."""
        failure: StreamError | None = None
        shards = self._shard_count if self._shard_count > 1 else 0
        try:
            await asyncio.to_thread(self._cluster.ensure, key, shards)
        except StreamError as error:
            failure = error
        except KafkaException as error:
            failure = self.refusal(key, error)
        waiting, self._waiting[key] = self._waiting[key] or [], None
        for batch in waiting:
            count = len(batch.rows)
            self._waiting_count -= count
            try:
                if failure is not None:
                    raise failure
                self._produce(batch)
            except StreamError as error:
                batch.refuse(error, count)
        if failure is not None:
            del self._waiting[key]  # It may be there the next time.

    def refusal(self, key: StreamKey, reason: str | KafkaException | KafkaError) -> StreamError:
        """Return the error of a message that does not arrive."""
        reason = self._cluster.redacted(reason)
        return NOT_DELIVERED(address=self.address, key=key, reason=reason)

    def note(self, error: StreamError) -> None:
        """Count a message that Kafka reported; on the thread of the sender."""
        self.delivered += 1
        self._note_failure(error)

    def note_refusals(self, error: StreamError, count: int) -> None:
        """Count messages that could not be sent; on the event loop."""
        self._refused += count
        self._note_failure(error)

    def _note_failure(self, error: StreamError) -> None:
        if self._failure is None:
            self._failure = error
        if not self.is_waking:
            self.wake()

    def wake(self) -> None:
        """Wake waiting tasks to check again; on either thread."""
        self.is_waking = True
        self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self.is_waking = False
        self._moved.set()

    async def move(self) -> None:
        """Wait until something more is settled."""
        self._moved.clear()
        await self._moved.wait()

    @property
    def in_flight_count(self) -> int:
        return self._taken - self.delivered - self._refused

    async def flush(self) -> None:
        taken = self._taken
        while self.delivered + self._refused < taken:
            await self.move()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    @property
    def has_ended(self) -> bool:
        """Return whether it was closed, so that it accepts no message."""
        return isinstance(self._shut, ProducerEndedError)

    async def close(self) -> None:
        self._shut = ProducerEndedError(address=self.address)
        try:
            await self.flush()
        finally:
            self._has_stopped.set()
            await asyncio.to_thread(self._thread.join)

    def _poll(self) -> None:
        while not self._has_stopped.is_set():
            self._poll_once()

    @property
    def _client(self) -> Client:
        return self._sending.client

    def _poll_once(self) -> None:
        """Receive delivery reports; on the thread of the sender."""
        with contextlib.suppress(KafkaException):  # Each message gets the error.
            client_call(self._client.poll, _POLL_S)
        if self._is_replaced:
            self._sending.renew_if_silent(self.delivered)


class _Batch:
    """Messages that wait for their deliveries, and the receipt of the last one."""

    __slots__ = (
        *("_count", "_error", "_headers", "_is_whole", "_receipt", "_refused", "_sender"),
        *("_settled", "key", "rows"),
    )

    def __init__(self, sender: KafkaSender, key: StreamKey, rows: Sequence[_Row]) -> None:
        self._sender = sender
        self.key = key
        self.rows = rows  # Until they are sent.
        self._count = len(rows)
        # The client does not report headers.
        self._headers = rows[0][-1] if len(rows) == 1 else None
        self._is_whole = len(rows) == 1 or not any(row[-1] for row in rows)
        self._settled = 0  # Changed on the thread of the sender alone.
        self._refused = 0  # Changed on the event loop alone.
        self._receipt: Receipt | None = None
        self._error: StreamError | None = None

    def settle(self, error: Any, message: Any, again: Any = None) -> None:
        """Process Kafka's report of one message. Called on the thread of the sender."""
        sender = self._sender
        if error is not None:
            if self._is_whole:
                error = sender.retry(error, message, again or self.settle, self._headers)
                if error is None:
                    return
            self._error = sender.refusal(self.key, error)
            self._settled += 1  # A waiting sender reads the error then.
            sender.note(self._error)
            return
        self._settled += 1
        # hot path: `note` without an error, for every message.
        sender.delivered += 1
        if not sender.is_waking:
            sender.wake()

    def settle_last(self, error: Any, message: Any) -> None:
        """Process Kafka's report of the last message."""
        if error is None:
            _, time_ms = message.timestamp()
            self._receipt = Receipt(self.key, message.partition(), message.offset(), time_ms)
        self.settle(error, message, self.settle_last)

    def refuse(self, error: StreamError, count: int = 1) -> None:
        """Note that messages were not sent; on the event loop."""
        self._error = error
        self._refused += count
        self._sender.note_refusals(error, count)

    def __await__(self) -> Generator[Any, Any, Receipt]:
        while self._settled + self._refused < self._count:
            yield from self._sender.move().__await__()
        if self._error is not None:
            raise self._error
        assert self._receipt is not None, "the last one was delivered"
        return self._receipt
