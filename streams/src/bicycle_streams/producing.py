"""Producers of messages, for programs, and the senders of backends below them.

A backend implements ``Sender``; ``Producer`` is the same for all of them. Nothing here waits for
the other side but ``flush``, ``end`` and a receipt that is awaited.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import groupby
from operator import attrgetter
from typing import Any, ClassVar, TypeAlias, final

from bicycle_streams.addresses import StreamKey
from bicycle_streams.consuming import Consumer
from bicycle_streams.errors import (
    FLUSH_TIMED_OUT,
    TARGET_UNUSABLE,
    AlreadyAnchoredError,
    NotAnchoredError,
    StreamUnsupportedError,
)
from bicycle_streams.messages import Headers, Message, OutgoingMessage, Receipt

Sent: TypeAlias = Awaitable[Receipt]
Payload: TypeAlias = bytes | bytearray | memoryview | str
GivenHeaders: TypeAlias = (
    Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]
)

_TIME, _SHARD = attrgetter("timestamp_ms"), attrgetter("shard_id")


class Sender(ABC):
    """The channel of messages, shared by producers of one call and their clones.

    Args:
        address: Where it sends to, for messages of errors.
        shard_count: Over how many shards messages without one go, in turns.

    Attributes:
        has_headers: Whether messages may have a key and headers; copies go without them otherwise.
        was_ended: Whether ``end`` has returned.
    """

    has_headers: ClassVar[bool] = False

    def __init__(self, address: str, shard_count: int = 1) -> None:
        self.address = address
        self._shard_count = shard_count
        self._turn = -1
        self._closing: asyncio.Task[None] | None = None
        self.was_ended = False

    def _next_shard(self) -> int:
        """Return the shard of a message without one."""
        self._turn = (self._turn + 1) % self._shard_count
        return self._turn

    @abstractmethod
    def send(self, message: OutgoingMessage) -> Sent:
        """Take one message, without waiting.

        Called once per message, on the event loop. A message with a key and without a shard goes to
        the shard of its key. The result may be awaited for the receipt, at most once.

        Raises:
            ProducerEndedError: the sender was closed.
            SendQueueFullError: too many messages wait already; this one was not taken.
            StreamUnsupportedError: the backend has no such payloads, keys or headers.
        """

    def send_many(self, key: StreamKey, payloads: Sequence[bytes]) -> Sent:
        """Take several messages of one stream; the receipt is that of the last one.

        Overridden where a backend has a cheaper way than one ``send`` for each.
        """
        return _LastOf([self.send(OutgoingMessage(key, payload)) for payload in payloads])

    def copy_many(self, key: StreamKey, messages: Sequence[Message], *, with_shards: bool) -> Sent:
        """Send messages of another stream with their times; the receipt is the last one's.

        Keys and headers are kept where the backend has them, and left out otherwise.
        Overridden where a backend has a cheaper way than one ``send`` for each.
        """
        return _LastOf(
            [self._copy(key, each, each.shard_id if with_shards else None) for each in messages]
        )

    def _copy(self, key: StreamKey, message: Message, shard_id: int | None) -> Sent:
        """Send a message of another stream, with key and headers if supported."""
        words = (key, message.payload, shard_id, message.timestamp_ms)
        head = (message.key, message.headers) if self.has_headers else ()
        return self.send(OutgoingMessage(*words, *head))

    @property
    @abstractmethod
    def in_flight_count(self) -> int:
        """The number of sent messages without a receipt yet."""

    def transaction(self, consumer: Consumer | None) -> AbstractAsyncContextManager[None]:
        """Return a context that sends its messages and a consumer's positions atomically.

        Raises:
            StreamUnsupportedError: there are no transactions.
        """
        raise StreamUnsupportedError(
            backend=self.address,
            action="send in a transaction",
            reason="this producer has no transactions",
            hint="use kafka:// with the option transactional_id",
        )

    @abstractmethod
    async def flush(self) -> None:
        """Return once all messages so far are acknowledged; raise the error if one fails."""

    @abstractmethod
    async def close(self) -> None:
        """Flush, and take no further message. Called once, by ``end``."""

    async def end(self) -> None:
        """Close once for all producers; raise the error once. A canceled call continues to close.

        So ``disconnect`` still waits for the messages of an ``end`` that was not waited for.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self.close())
        await asyncio.wait([self._closing])
        if not self.was_ended:
            self.was_ended = True
            self._closing.result()


class _LastOf:
    """The receipt of the last of several messages, once all of them have one."""

    __slots__ = ("_sent",)

    def __init__(self, sent: list[Sent]) -> None:
        assert sent, "a producer sends no empty batch"
        self._sent = sent

    def __await__(self) -> Generator[Any, Any, Receipt]:
        for one in self._sent:
            receipt = yield from one.__await__()
        return receipt


@final
class Producer:
    """Sends messages to one stream (anchored), or to any stream of a streamer.

    Created by ``Streamer.create_producer`` and ``create_generic_producer``. Clones share a sender;
    dropping a clone does not end it.
    """

    __slots__ = ("_key", "_sender")

    def __init__(self, sender: Sender, key: StreamKey | None = None) -> None:
        self._sender = sender
        self._key = key

    @property
    def anchored(self) -> StreamKey | None:
        """The stream that ``send`` sends to, or None."""
        return self._key

    def anchor(self, key: str) -> None:
        """Choose the stream that ``send`` sends to, once.

        Raises:
            AlreadyAnchoredError: it was chosen before.
        """
        if self._key is not None:
            raise AlreadyAnchoredError(address=self._sender.address, key=self._key)
        self._key = StreamKey(key)

    def send(
        self,
        payload: Payload,
        *,
        shard_id: int | None = None,
        timestamp_ms: int | None = None,
        key: bytes | str | None = None,
        headers: GivenHeaders | None = None,
    ) -> Sent:
        """Send a message, without waiting for it to arrive.

        Args:
            payload: Bytes, or text, which is sent as UTF-8.
            shard_id: The shard; with None the backend selects it.
            timestamp_ms: The event time, in ms since 1970; None is the current time.
            key: The key of the message. Without ``shard_id``, messages of one key go to one shard.
            headers: Names with values, or the ``headers`` of a message; texts are sent as UTF-8.

        Returns:
            The receipt, to be awaited or dropped.

        Raises:
            NotAnchoredError: the producer has no stream.
            ProducerEndedError: the producer was ended.
            StreamUnsupportedError: the backend has no keys and headers, or not these.
            TARGET_UNUSABLE: there is no such shard or time.
        """
        if self._key is None:
            raise NotAnchoredError(address=self._sender.address)
        return self._send(self._key, payload, (shard_id, timestamp_ms), (key, headers))

    def send_to(
        self,
        stream_key: str,
        payload: Payload,
        *,
        shard_id: int | None = None,
        timestamp_ms: int | None = None,
        key: bytes | str | None = None,
        headers: GivenHeaders | None = None,
    ) -> Sent:
        """Send a message to any stream; otherwise like ``send``."""
        target = (shard_id, timestamp_ms)
        return self._send(StreamKey(stream_key), payload, target, (key, headers))

    def _send(
        self,
        stream_key: StreamKey,
        payload: Payload,
        target: tuple[int | None, int | None],
        head: tuple[bytes | str | None, GivenHeaders | None],
    ) -> Sent:
        """Send a message with its shard and time, and its key and headers."""
        # hot path: `*target` as arguments costs 0.1 µs.
        (shard_id, timestamp_ms), (key, headers) = target, head
        if shard_id is not None or timestamp_ms is not None:
            _check_target(self._sender.address, shard_id, timestamp_ms)
        data = payload if isinstance(payload, bytes) else _bytes_of(payload)
        if key is None and not headers:
            return self._sender.send(OutgoingMessage(stream_key, data, shard_id, timestamp_ms))
        if not self._sender.has_headers:
            raise StreamUnsupportedError(
                backend=self._sender.address,
                action="send a message with a key or headers",
                reason="its messages have no key and no headers",
                hint="put both into the payload, or use kafka or pulsar, which support them",
            )
        message_key = key.encode() if isinstance(key, str) else key
        return self._sender.send(
            OutgoingMessage(stream_key, data, *target, message_key, _headers_of(headers))
        )

    def send_many(self, payloads: Iterable[Payload]) -> Sent:
        """Send several messages at once, which costs less than one ``send`` for each.

        Args:
            payloads: At least one; they follow each other in one shard where order matters.

        Returns:
            The receipt of the last one, to be awaited or dropped.
        """
        if self._key is None:
            raise NotAnchoredError(address=self._sender.address)
        batch = [data if isinstance(data, bytes) else _bytes_of(data) for data in payloads]
        if not batch:
            raise ValueError("a batch has at least one payload")
        return self._sender.send_many(self._key, batch)

    def copy_many(self, messages: Iterable[Message], *, with_shards: bool) -> None:
        """Send messages of other streams with their times, cheaper than single sends.

        Their keys and headers go along where the backend has them, and are left out otherwise.

        Args:
            messages: In order; they go to the stream of this producer, or each to that of its name.
            with_shards: Whether each goes to the shard of its number.
        """
        for key, part in groupby(messages, key=lambda message: self._key or message.stream_key):
            batch = list(part)
            # hot path: 0.1 µs of the 3 that a relay takes for a message.
            time_ms = max(map(_TIME, batch))
            shard_id = max(map(_SHARD, batch)) if with_shards else None
            _check_target(self._sender.address, shard_id, time_ms)
            self._sender.copy_many(key, batch, with_shards=with_shards)

    def clone(self) -> Producer:
        """Return a producer with the same sender."""
        return Producer(self._sender, self._key)

    @property
    def in_flight_count(self) -> int:
        """The number of sent messages without a receipt yet, including clones."""
        return self._sender.in_flight_count

    async def flush(self, timeout_s: float | None = None) -> None:
        """Return once all that was sent so far, by clones as well, is acknowledged.

        Args:
            timeout_s: Time limit of the wait; None waits without a limit.

        Raises:
            FLUSH_TIMED_OUT: some messages have no receipt yet; they are still being sent.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._sender.flush()
        except TimeoutError:
            raise FLUSH_TIMED_OUT(
                address=self._sender.address, waiting=self.in_flight_count, timeout_s=timeout_s
            ) from None

    @asynccontextmanager
    async def transaction(self, consumer: Consumer | None = None) -> AsyncIterator[Producer]:
        """Send the messages inside atomically: all are visible at the end, or no message.

        An exception inside aborts, and is raised again; so does one at the end.

        Args:
            consumer: A consumer of the same cluster. Its acknowledged positions are committed with
                the messages, so that each message is read, processed and written exactly once.
                After an abort, it returns to its committed position.

        Raises:
            StreamUnsupportedError: the producer has no transactions.
            TRANSACTION_FAILED: the cluster refused it.
            PRODUCER_FENCED: another producer has the same transactional id.
        """
        async with self._sender.transaction(consumer):
            yield self

    async def end(self) -> None:
        """Flush, and take no further message; clones have ended, too."""
        await self._sender.end()


def _check_target(address: str, shard_id: int | None, timestamp_ms: int | None) -> None:
    """Refuse a shard or time that exceeds 63 bits."""
    if (shard_id or 0) >> 63 or (timestamp_ms or 0) >> 63:
        raise TARGET_UNUSABLE(address=address, shard_id=shard_id, timestamp_ms=timestamp_ms)


def _headers_of(given: GivenHeaders | None) -> Headers:
    """Return headers in the form of a message; refuse a name that is invalid Unicode."""
    pairs = list(given.items() if isinstance(given, Mapping) else given or ())
    for name, _ in pairs:
        name.encode()  # Kafka's client ends the process with a name that has no bytes.
    return tuple(
        (name, value.encode() if isinstance(value, str) else value) for name, value in pairs
    )


def _bytes_of(payload: Payload) -> bytes:
    """Return a payload as bytes; refuse numbers and lists, which ``bytes`` accepts."""
    if isinstance(payload, str):
        return payload.encode()
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise TypeError(f"a payload must be bytes or a text, got {type(payload).__name__}")
    return bytes(payload)
