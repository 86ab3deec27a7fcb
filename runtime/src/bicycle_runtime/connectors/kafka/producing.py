"""Handing messages to the client at the speed of C, in order, and without losing one of them.

``produce_batch`` is several times faster than ``produce``, and has three traps: a message that the
client refuses is told by an ``_error`` in its dict and a smaller count only; a message's own
partition is ignored; headers and timestamps are not taken. This module knows them, and nothing of
transactions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from bicycle_runtime.connectors.kafka.encoding import Message

__all__ = ["DeliveryFailures", "client_errors", "produce_messages"]

# hot path: the client's queue is kept below its bound, so that it is full for large messages only.
_WAITING_COUNT_MAX = 50_000
_POLL_S = 0.005
_UNSET = -1
_LOST_EXCEPTION = "returned NULL without setting an exception"


class DeliveryFailures:
    """Takes the delivery reports of messages that failed: how many, and the first error."""

    def __init__(self) -> None:
        self.count = 0
        self.first: KafkaError | None = None

    def __call__(self, error: KafkaError | None, _message: Any) -> None:
        """Take a report. Called by the client in ``poll`` and ``flush``."""
        if error is not None:
            self.count += 1
            self.first = self.first or error


@contextlib.contextmanager
def client_errors() -> Iterator[None]:
    """Let a fatal error of the client be what it is.

    The client raises it inside ``poll`` or ``flush``; when delivery reports are served by the same
    call, Python finds an exception set where there must be none, or none where there must be one,
    and says ``SystemError``. None of our callbacks raises, so it can be nothing else.

    Raises:
        KafkaException: the fatal error.
    """
    try:
        yield
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            raise error.__cause__ from None
        if _LOST_EXCEPTION in str(error):
            raise KafkaException(KafkaError(KafkaError._FATAL, str(error))) from error
        raise


def produce_messages(
    producer: Producer,
    topic: str,
    messages: list[Message],
    *,
    failures: DeliveryFailures,
    wait: Callable[[], None],
) -> None:
    """Hand messages to the client, in order; return when it has taken all of them.

    Args:
        producer: Reports failed deliveries only.
        topic: Where to.
        messages: All have the same fields.
        failures: Takes what fails later.
        wait: Called while the client's queue is full; may raise to give up.

    Raises:
        KafkaException: the client does not take a message, whatever the room in its queue.
    """
    fields = messages[0].keys() if messages else {}
    if "headers" in fields or "timestamp" in fields:
        for message in messages:
            _produce_one(producer, topic, message, failures=failures, wait=wait)
        producer.poll(0)
        return
    by_partition: dict[int, list[Message]] = {}
    if "partition" in fields:
        for message in messages:
            partition = message.pop("partition")
            place = _UNSET if partition is None else partition
            by_partition.setdefault(place, []).append(message)
    else:
        by_partition[_UNSET] = messages
    for partition, batch in by_partition.items():
        _produce_batch(producer, topic, batch, partition=partition, failures=failures, wait=wait)


def _produce_batch(
    producer: Producer,
    topic: str,
    messages: list[Message],
    *,
    partition: int,
    failures: DeliveryFailures,
    wait: Callable[[], None],
) -> None:
    while messages:
        while len(producer) > _WAITING_COUNT_MAX:
            wait()
            producer.poll(_POLL_S)
        taken = producer.produce_batch(topic, messages, partition=partition, on_delivery=failures)
        producer.poll(0)
        if taken == len(messages):
            return
        # The client takes none behind the first for which the queue is full: order is kept.
        first = next(index for index, message in enumerate(messages) if "_error" in message)
        error = messages[first]["_error"]
        if error.code() != KafkaError._QUEUE_FULL:
            raise KafkaException(error)
        messages = messages[first:]
        for message in messages:
            del message["_error"]
        wait()
        producer.poll(_POLL_S)


def _produce_one(
    producer: Producer,
    topic: str,
    message: Message,
    *,
    failures: DeliveryFailures,
    wait: Callable[[], None],
) -> None:
    partition = message.get("partition")
    while True:
        try:
            producer.produce(
                topic,
                message["value"],
                message.get("key"),
                partition=_UNSET if partition is None else partition,
                timestamp=message.get("timestamp") or 0,
                headers=[(name, data) for name, data in message.get("headers") or ()],
                on_delivery=failures,
            )
            return
        except BufferError:
            wait()
            producer.poll(_POLL_S)
