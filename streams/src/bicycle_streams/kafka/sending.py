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
from bicycle_streams.kafka.silence import Silence
from bicycle_streams.messages import Message, OutgoingMessage, Receipt
from bicycle_streams.options import Durability
from bicycle_streams.producing import Sender, Sent

__all__ = ["KafkaSender"]

_Headers: TypeAlias = list[tuple[str, str | bytes | None]]  # As the client takes them.
_POLL_S = 0.1
_SILENCE_S = 30.0
_PROBE_S = 1.0
_NO_PARTITION = "Kafka has no partition with this number"
_DURABILITIES: dict[Durability, dict[str, Any]] = {
    "at-most-once": {"acks": "1", "retries": 0},
    "at-least-once": {"acks": "all"},
    "exactly-once": {"enable_idempotence": True},
}


# Errors of messages that a replaced client had not delivered, and that are sent again: a message
# in flight may have arrived, so it is sent again if a repetition is permitted.
_SENT_AGAIN: dict[Durability, frozenset[int]] = {
    "at-most-once": frozenset(),
    "at-least-once": frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}),
    "exactly-once": frozenset({KafkaError._PURGE_QUEUE}),
}


class KafkaSender(Sender):
    """A sender with one Kafka client; a separate thread receives delivery reports.

    A client that reaches no broker for long is replaced (``silence``). The next one sends the
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
            "linger_ms": options.linger_ms,
            "compression_type": options.compression,
            "delivery_timeout_ms": options.delivery_timeout_ms,
            "queue_buffering_max_messages": options.send_queue_messages,
            **_DURABILITIES[durability],
            **(own or {}),
        }
        self._settings = cluster.settings(**settings)
        self._client = Client(self._settings)
        self._left: Client | None = None  # The client before, until the next one or the end.
        self._is_replaced = "transactional.id" not in self._settings
        self._sent_again = _SENT_AGAIN[durability]
        self._silence = Silence(SystemClock(), after_s=_SILENCE_S)
        self._delivered_at_last = 0
        # Messages of topics of which we do not know yet whether they are there.
        self._waiting: dict[StreamKey, list[_Pending] | None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._taken = 0
        self.delivered = 0  # Changed on the thread alone, and the next one on the event loop alone.
        self._refused = 0
        self._failure: StreamError | None = None
        self._moved = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.is_waking = False
        self._shut: StreamError | None = None  # Why no message is taken.
        self._has_stopped = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="deliveries of Kafka", daemon=True)
        self._thread.start()

    def send(self, message: OutgoingMessage) -> Sent:
        if self._shut is not None:
            raise self._shut
        key = message.stream_key
        pending = _Pending(self, message)
        if key not in self._waiting:
            self._waiting[key] = []
            task = self._loop.create_task(self._look_for(key))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        waiting = self._waiting[key]
        if waiting is None:
            self._produce(pending)
        elif len(waiting) >= self._cluster.options.send_queue_messages:
            raise SendQueueFullError(address=self.address, waiting=len(waiting))
        else:
            waiting.append(pending)
        self._taken += 1
        return pending

    def send_many(self, key: StreamKey, payloads: Sequence[bytes]) -> Sent:
        """Send a batch to the client in one call, which halves the cost per message."""
        if self._shard_count > 1 or not self._takes_batches(key):
            return super().send_many(key, payloads)  # Each finds its partition, or its topic.
        return self._produce_batch(key, [{"value": payload} for payload in payloads])

    def copy_many(self, key: StreamKey, messages: Sequence[Message], *, with_shards: bool) -> Sent:
        """Send messages singly, since batches have no times, with one receipt for all."""
        if (self._shard_count > 1 and not with_shards) or not self._takes_batches(key):
            return super().copy_many(key, messages, with_shards=with_shards)
        self._require_room(len(messages))
        has_headers = any(each.headers for each in messages)
        batch = _Batch(self, key, len(messages), has_headers=has_headers)
        produce = self._client.produce
        settle: Callable[[Any, Any], None] = batch.settle
        *earlier, last = messages
        taken = 0
        given: _Headers | None
        try:
            # hot path: what `_Pending` and its receipt cost is a third of the whole.
            for each in earlier:
                partition = each.shard_id if with_shards else -1
                time_ms, given = each.timestamp_ms, list(each.headers) or None
                produce(
                    key, each.payload, key=each.key, partition=partition, timestamp=time_ms,
                    headers=given, on_delivery=settle,
                )  # fmt: skip
                taken += 1
            partition, settle = last.shard_id if with_shards else -1, batch.settle_last
            time_ms, given = last.timestamp_ms, list(last.headers) or None
            produce(
                key, last.payload, key=last.key, partition=partition, timestamp=time_ms,
                headers=given, on_delivery=settle,
            )  # fmt: skip
            taken += 1
        except KafkaException as error:
            raise self.refusal(key, error.args[0].str()) from None
        except OverflowError:
            raise self.refusal(key, _NO_PARTITION) from None
        finally:
            self._taken += taken
        return batch

    def _takes_batches(self, key: StreamKey) -> bool:
        """Return whether the topic is known to exist."""
        return self._shut is None and self._waiting.get(key, ()) is None

    def _require_room(self, count: int) -> None:
        if len(self._client) + count > self._cluster.options.send_queue_messages:
            raise SendQueueFullError(address=self.address, waiting=len(self._client))

    def _produce_batch(self, key: StreamKey, messages: list[dict[str, Any]]) -> Sent:
        self._require_room(len(messages))
        batch = _Batch(self, key, len(messages))
        messages[-1]["callback"] = batch.settle_last
        self._taken += len(messages)
        queued = self._client.produce_batch(key, messages, on_delivery=batch.settle)
        if queued < len(messages):
            batch.refuse([str(each["_error"]) for each in messages if "_error" in each])
        return batch

    def _produce(self, pending: _Pending) -> None:
        message = pending.message
        key, partition = message.stream_key, message.shard_id
        if partition is None:  # -1 lets Kafka choose, by the key where there is one.
            is_free = self._shard_count == 1 or message.key is not None
            partition = -1 if is_free else self._next_shard()
        try:
            self._client.produce(
                key,
                message.payload,
                partition=partition,
                timestamp=message.timestamp_ms or 0,
                on_delivery=pending.settle,
                key=message.key,
                headers=list(message.headers) or None,
            )
        except BufferError:
            waiting = len(self._client)
            raise SendQueueFullError(address=self.address, waiting=waiting) from None
        except KafkaException as error:
            raise self.refusal(key, error.args[0].str()) from None
        except OverflowError:
            raise self.refusal(key, _NO_PARTITION) from None

    async def _look_for(self, key: StreamKey) -> None:
        """Send the waiting messages of a topic once it exists."""
        failure: StreamError | None = None
        shards = self._shard_count if self._shard_count > 1 else 0
        try:
            await asyncio.to_thread(self._cluster.ensure, key, shards)
        except StreamError as error:
            failure = error
        waiting, self._waiting[key] = self._waiting[key] or [], None
        for pending in waiting:
            try:
                if failure is None:
                    self._produce(pending)
            except StreamError as error:
                pending.fail(error)
            if failure is not None:
                pending.fail(failure)
        if failure is not None:
            del self._waiting[key]  # It may be there the next time.

    def refusal(self, key: StreamKey, reason: str) -> StreamError:
        """Return the error of a message that does not arrive."""
        return NOT_DELIVERED(address=self.address, key=key, reason=reason)

    def note(self, error: StreamError | None) -> None:
        """Count a message that Kafka reported; on the thread of the sender."""
        self.delivered += 1
        self._note_failure(error)

    def note_refusal(self, error: StreamError) -> None:
        """Count a message that could not be sent; on the event loop."""
        self._refused += 1
        self._note_failure(error)

    def _note_failure(self, error: StreamError | None) -> None:
        if error is not None and self._failure is None:
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
        if self.has_ended:
            return
        self._shut = ProducerEndedError(address=self.address)
        try:
            await self.flush()
        finally:
            self._has_stopped.set()
            await asyncio.to_thread(self._thread.join)

    def _poll(self) -> None:
        while not self._has_stopped.is_set():
            self._poll_once()

    def _poll_once(self) -> None:
        """Receive delivery reports; on the thread of the sender."""
        with contextlib.suppress(KafkaException):  # Each message is told of what ends the client.
            self._client.poll(_POLL_S)
        if self._is_replaced:
            self._replace_if_deaf()

    def _replace_if_deaf(self) -> None:
        """Replace the client if it delivers nothing and reaches no broker."""
        if self._left is not None:  # Another thread may just have sent a message through it.
            self._take_back(self._left)
        if self.delivered != self._delivered_at_last or not len(self._client):
            self._delivered_at_last = self.delivered
            self._silence.end()
        elif self._silence.is_over_limit():
            try:
                self._client.list_topics(timeout=_PROBE_S)
            except KafkaException:
                self._left, self._client = self._client, Client(self._settings)

    def _take_back(self, client: Client) -> None:
        """Take all messages out of a client, which reports each of them as purged."""
        if len(client):
            client.purge()
            with contextlib.suppress(KafkaException):
                client.poll(_POLL_S)

    def send_again(self, error: Any, message: Any, on_delivery: Any, headers: Any = None) -> bool:
        """Send a message that a replaced client had; on the thread of the sender.

        Returns:
            Whether it was sent: it was not delivered for another reason, or may have arrived.
        """
        if error.code() not in self._sent_again or not self._is_replaced:
            return False
        _, time_ms = message.timestamp()
        while True:
            try:
                self._client.produce(
                    message.topic(), message.value(), key=message.key(), headers=headers,
                    partition=message.partition(), timestamp=time_ms, on_delivery=on_delivery,
                )  # fmt: skip
            except BufferError:
                self._client.poll(_POLL_S)
            else:
                return True


class _Batch:
    """Messages that wait for their deliveries, and the receipt of the last one."""

    __slots__ = (
        *("_count", "_error", "_has_headers", "_key", "_receipt", "_refused", "_sender"),
        "_settled",
    )

    def __init__(
        self, sender: KafkaSender, key: StreamKey, count: int, *, has_headers: bool = False
    ) -> None:
        self._has_headers = has_headers  # The client does not return those.
        self._sender = sender
        self._key = key
        self._count = count
        self._settled = 0  # Changed on the thread of the sender alone.
        self._refused = 0  # Changed on the event loop alone.
        self._receipt: Receipt | None = None
        self._error: StreamError | None = None

    def settle(self, error: Any, message: Any, again: Any = None) -> None:
        """Process Kafka's report of one message. Called on the thread of the sender."""
        sender = self._sender
        if error is not None:
            is_whole = not self._has_headers
            if is_whole and sender.send_again(error, message, again or self.settle):
                return
            self._error = sender.refusal(self._key, error.str())
            self._settled += 1  # Who waits for it looks at the error then.
            sender.note(self._error)
            return
        self._settled += 1
        # hot path: what `note` does without an error, for every message.
        sender.delivered += 1
        if not sender.is_waking:
            sender.wake()

    def settle_last(self, error: Any, message: Any) -> None:
        """Process Kafka's report of the last message."""
        if error is None:
            _, time_ms = message.timestamp()
            self._receipt = Receipt(self._key, message.partition(), message.offset(), time_ms)
        self.settle(error, message, self.settle_last)

    def refuse(self, reasons: list[str]) -> None:
        """Note that the client did not take some of the messages."""
        self._refused = len(reasons)
        for reason in reasons:
            self._error = self._sender.refusal(self._key, reason)
            self._sender.note_refusal(self._error)

    def __await__(self) -> Generator[Any, Any, Receipt]:
        while self._settled + self._refused < self._count:
            yield from self._sender.move().__await__()
        if self._error is not None:
            raise self._error
        assert self._receipt is not None, "the last one was delivered"
        return self._receipt


class _Pending:
    """A message that waits for its delivery, and the receipt that follows from it."""

    __slots__ = ("_error", "_receipt", "_sender", "message")

    def __init__(self, sender: KafkaSender, message: OutgoingMessage) -> None:
        self._sender = sender
        self._receipt: Receipt | None = None
        self._error: StreamError | None = None
        self.message = message

    def settle(self, error: Any, message: Any) -> None:
        """Process Kafka's report. Called on the thread of the sender."""
        key = self.message.stream_key
        if error is not None:
            headers = list(self.message.headers) or None
            if self._sender.send_again(error, message, self.settle, headers):
                return
            self._error = self._sender.refusal(key, error.str())
            self._sender.note(self._error)
            return
        _, time_ms = message.timestamp()
        self._receipt = Receipt(key, message.partition(), message.offset(), time_ms)
        self._sender.note(None)

    def fail(self, error: StreamError) -> None:
        """Note that the message was not sent."""
        self._error = error
        self._sender.note_refusal(error)

    def __await__(self) -> Generator[Any, Any, Receipt]:
        while self._receipt is None:
            if self._error is not None:
                raise self._error
            yield from self._sender.move().__await__()
        return self._receipt
