"""Quick sending without loss, and the renewal of clients that send.

``produce`` with arguments by position is faster than ``produce_batch``, which takes neither headers
nor timestamps nor a partition of a message's own.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from itertools import islice, repeat
from typing import Any, Final, TypeAlias, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from bicycle_sdk.clock import Clock
from bicycle_streams.kafka.silence import Silence, is_reached

PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
"""Codes of messages that were taken out of the client, not yet sent, or without an answer."""
# hot path: the client's queue is kept below its bound, so that it is full for large messages only.
_WAITING_COUNT_MAX = 50_000
_COUNT_AT_ONCE = 10_000
_POLL_S = 0.005
_CALL_S = 1.0
_TAKE_BACK_S = 0.1
_SILENCE_S = 30.0
_UNSET = -1
# hot path: threads that call the client at the same time take the interpreter from each other at
# every call: 1.7 µs a message with two of them, 1.25 when they take turns.
_TURN = threading.Lock()
_Arguments = tuple[Any, ...]
_Columns: TypeAlias = Mapping[str, list[Any]]  # by field, as many values in each
Result = TypeVar("Result")
_LOST_EXCEPTION = "returned NULL without setting an exception"


class SendingClient:
    """A client that sends, and is replaced when it reaches no broker (``silence``).

    The next client sends the messages without a receipt again, until none was delivered for the
    delivery timeout.

    Args:
        make: Opens a client.
        again: Codes of ``PURGED`` messages to send again: a message in flight may have arrived.
        timeout_s: The delivery timeout of the client; 0: none.
        clock: Measures silence and timeout.

    Attributes:
        client: The client; another one after a call of ``renew_if_silent`` or ``flush``.
    """

    def __init__(
        self,
        make: Callable[[], Producer],
        *,
        again: Collection[int],
        timeout_s: float,
        clock: Clock,
    ) -> None:
        self._make = make
        self._again = again
        self._timeout_s = timeout_s
        self._clock = clock
        self.client = make()
        self._left: Producer | None = None  # The client before, until the next one or the end.
        self._silence = Silence(clock, after_s=_SILENCE_S)
        self._delivered = 0
        self._moved_s = clock.monotonic()

    def renew_if_silent(self, delivered: int) -> None:
        """Replace the client if it delivers nothing and reaches no broker.

        Args:
            delivered: A number that is another one after each delivery.
        """
        if self._left is not None:  # Another thread may just have sent a message through it.
            self._take_back(self._left)
        if delivered != self._delivered or not self.waiting_count:
            self._delivered, self._moved_s = delivered, self._clock.monotonic()
            self._silence.end()
        elif self._silence.is_over_limit() and not is_reached(self.client):
            self._left, self.client = self.client, self._make()
            self._take_back(self._left)

    @property
    def waiting_count(self) -> int:
        """The number of messages without a receipt."""
        return len(self.client) + (0 if self._left is None else len(self._left))

    def retry(
        self, error: KafkaError, message: Any, on_delivery: Any, headers: Any = None
    ) -> KafkaError | None:
        """Send a message of a replaced client again; called in its delivery report.

        Returns:
            None if it was sent, else the error to report. Clients do not report ``headers``.
        """
        if error.code() not in self._again:
            return error
        if 0 < self._timeout_s <= self._clock.monotonic() - self._moved_s:
            return KafkaError(KafkaError._MSG_TIMED_OUT)
        (_, time_ms), partition = message.timestamp(), message.partition()
        while True:
            try:
                self.client.produce(
                    message.topic(), message.value(), key=message.key(), headers=headers,
                    partition=_partition(partition), timestamp=time_ms, on_delivery=on_delivery,
                )  # fmt: skip
            except BufferError:
                self.client.poll(_TAKE_BACK_S)
            except KafkaException as failure:
                refused: KafkaError = failure.args[0]
                return refused
            else:
                return None

    def flush(self, wait_s: float, delivered: int) -> int:
        """Wait for deliveries, and return the number of messages without a receipt.

        Raises:
            KafkaException: the client stopped with a fatal error.
        """
        client_call(self.client.flush, wait_s)
        self.renew_if_silent(delivered)
        return self.waiting_count

    def discard(self) -> None:
        """Drop all messages without a receipt."""
        self._again = ()
        self.client.purge(blocking=False)

    def _take_back(self, client: Producer) -> None:
        """Take all messages out of a client, which reports each as purged, in order."""
        if len(client):
            client.purge(in_queue=False)  # Messages in flight are earlier than others.
            client.purge()
            with contextlib.suppress(KafkaException):
                client_call(client.poll, _TAKE_BACK_S)


def until_done(
    call: Callable[[float], None],
    *,
    limit_s: float,
    clock: Clock,
    wait: Callable[[], None] = lambda: None,
) -> None:
    """Make a call of a transaction, again while it may be repeated.

    Args:
        call: Takes its timeout in seconds.
        limit_s: The time after which the error is raised.
        clock: Measures it.
        wait: Called before each repetition; may raise to end the wait.

    Raises:
        KafkaException: the call failed.
    """
    deadline = clock.monotonic() + limit_s
    while True:
        try:
            call(_CALL_S)
            return
        except KafkaException as error:
            cause = error.args[0]
            may_repeat = cause.retriable() or cause.code() == KafkaError._TIMED_OUT
            if not may_repeat or clock.monotonic() > deadline:
                raise
        wait()


class DeliveryFailures:
    """The delivery failures of messages: count, first error, and its topic.

    Args:
        sending: Sends messages of a replaced client again.
    """

    def __init__(self, sending: SendingClient | None = None) -> None:
        self._sending = sending
        self.count = 0
        self.first: KafkaError | None = None
        self.topic: str | None = None

    def __call__(self, error: KafkaError | None, message: Any, headers: Any = None) -> None:
        """Take a report. Called by the client in ``poll`` and ``flush``."""
        if error is not None and self._sending is not None:
            error = self._sending.retry(error, message, self.taking(headers), headers)
        if error is not None:
            self.count += 1
            if self.first is None:
                self.first, self.topic = error, message.topic()

    def taking(self, headers: Any) -> Callable[..., None]:
        """Return the callback of a message with these headers."""
        return partial(self, headers=headers) if headers and self._sending is not None else self


class _BareError:
    """A context manager that catches the client's error if it is not an exception."""

    def __init__(self) -> None:
        self.error: KafkaError | None = None

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: object, _trace: object) -> bool:
        # Nothing may be raised here: Python would look into this one as into an exception.
        if isinstance(error, KafkaError):
            self.error = error
        return self.error is not None


def client_call(call: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
    """Return the result of a client call, with fatal errors raised as such.

    The client raises it inside ``poll`` or ``flush``; when delivery reports are served by the same
    call, Python finds an exception set that must be absent, or absent that must be set, and raises
    ``SystemError``. Or the bare ``KafkaError`` is raised, which is no exception: no ``except`` sees
    it, and a thread ends with its work neither done nor failed. No callback of ours raises, so it
    can be nothing else.

    Raises:
        KafkaException: the fatal error.
    """
    bare = _BareError()
    try:
        with bare:
            return call(*arguments, **options)
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            raise error.__cause__ from None
        if _LOST_EXCEPTION in str(error):
            raise KafkaException(KafkaError(KafkaError._FATAL, str(error))) from error
        raise
    raise KafkaException(bare.error)


def produce_messages(
    client_of: Callable[[], Producer],
    topic: str,
    messages: _Columns,
    *,
    failures: DeliveryFailures,
    wait: Callable[[], None],
) -> None:
    """Send messages to the client, in order; return once it has accepted all.

    Args:
        client_of: Returns the client, which reports failed deliveries only.
        topic: Where to.
        messages: With a value each, and the other parts of a message.
        failures: Takes later failures.
        wait: Called while the client's queue is full; may replace the client, or raise to end the
            wait.

    Raises:
        KafkaException: the client does not take a message, whatever the room in its queue.
    """
    calls = _arguments(topic, messages, failures)
    for _ in range(0, len(messages["value"]), _COUNT_AT_ONCE):
        while len(client_of()) > _WAITING_COUNT_MAX:
            wait()
            client_of().poll(_POLL_S)
        some = islice(calls, _COUNT_AT_ONCE)
        while (left := _hand_over(client_of(), some)) is not None:
            _produce_later(client_of, left, wait)
        client_of().poll(0)


def _arguments(topic: str, messages: _Columns, failures: DeliveryFailures) -> Iterator[_Arguments]:
    """Return the arguments of ``produce`` for each message, by position."""
    get, count = messages.get, len(messages["value"])
    keys, partitions, times, columns = map(get, ("key", "partition", "timestamp", "headers"))
    headers = [None] * count if columns is None else list(map(_pairs, columns))
    return zip(
        repeat(topic, count),
        messages["value"],
        repeat(None, count) if keys is None else keys,
        repeat(_UNSET, count) if partitions is None else map(_partition, partitions),
        repeat(failures, count) if columns is None else map(failures.taking, headers),
        repeat(None, count),  # The other name of the argument before.
        repeat(0, count) if times is None else [time or 0 for time in times],
        headers,
        strict=True,
    )


def _partition(found: int | None) -> int:
    return _UNSET if found is None else found


def _pairs(headers: list[Any] | None) -> list[tuple[str, bytes | None]] | None:
    return [(name, data) for name, data in headers] if headers else None


def _hand_over(client: Producer, calls: Iterator[_Arguments]) -> _Arguments | None:
    """Send messages; return one for which the queue had no room, or None."""
    produce = client.produce
    # hot path: 0.7 µs a message by position; by name it takes 1.5, and produce_batch 0.8.
    with _TURN:
        for arguments in calls:
            try:
                produce(*arguments)
            except BufferError:
                return arguments
    return None


def _produce_later(
    client_of: Callable[[], Producer], arguments: _Arguments, wait: Callable[[], None]
) -> None:
    """Send a message for which the queue had no room."""
    while True:
        wait()
        client_of().poll(_POLL_S)
        with contextlib.suppress(BufferError):
            client_of().produce(*arguments)
            return
