"""The writer of a Kafka sink in a task: it sends records at once, or stages them.

*At least once*: messages go straight to the brokers, by an idempotent producer that the worker
keeps between epochs; the task ends when every one of them is acknowledged. *Exactly once*: messages
are staged, and the driver sends them when the epoch is sealed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from bicycle_runtime.connectors.kafka.encoding import (
    Message,
    MessageEncoder,
    MessagePlan,
    columns_of,
)
from bicycle_runtime.connectors.kafka.errors import KAFKA_DELIVERY_FAILED
from bicycle_runtime.connectors.kafka.settings import ClientProperties
from bicycle_runtime.connectors.kafka.staged_messages import pack_messages
from bicycle_runtime.connectors.staging import StagedWriter
from bicycle_runtime.contract import EventTimes, StagedFile, WriterTask
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import log_event
from bicycle_streams.kafka.failures import Rights, is_refusal, reason_of
from bicycle_streams.kafka.producing import (
    PURGED,
    DeliveryFailures,
    SendingClient,
    client_call,
    produce_messages,
)

_LOG = logging.getLogger(__name__)
_FLUSH_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterPlan:
    """The settings of writers; picklable.

    ``producer`` holds what we decide for producers.
    """

    topic: str
    is_staged: bool
    messages: MessagePlan
    client: ClientProperties
    producer: Mapping[str, Any]


class KafkaWriterFactory:
    """Opens writers, and keeps the producer of a worker process between epochs.

    Args:
        plan: The plan of the writers.
    """

    def __init__(self, plan: WriterPlan) -> None:
        self.plan = plan
        self._encoder: MessageEncoder | None = None
        self._sending: SendingClient | None = None
        self._owner = 0

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the pickled form: a new process opens its own producer."""
        return KafkaWriterFactory, (self.plan,)

    def open(self, task: WriterTask) -> StagingWriter | DirectWriter:
        """Return a writer for one subtask and epoch."""
        if self._encoder is None:
            self._encoder = MessageEncoder(self.plan.messages)
        if self.plan.is_staged:
            return StagingWriter(task, self._encoder)
        return DirectWriter(task, self._encoder, self)

    def sending(self) -> SendingClient:
        """Return this process's producer, opened when it is first requested."""
        if self._sending is None or self._owner != os.getpid():  # A fork must not share it.
            self._sending = None
            self._sending = SendingClient(
                self._open_producer,
                again=PURGED,
                timeout_s=int(self.plan.producer["message.timeout.ms"]) / 1_000,
                clock=SystemClock(),
            )
            self._owner = os.getpid()
        return self._sending

    def _open_producer(self) -> Producer:
        plan = self.plan
        if self._sending is not None:
            log_event(_LOG, "kafka_client_renewed", vertex=plan.client.vertex)
        return plan.client.open(Producer, plan.producer)

    def discard_producer(self) -> None:
        """Drop the producer with all that it has not sent."""
        sending, self._sending = self._sending, None
        if sending is not None and self._owner == os.getpid():
            sending.discard()


class _MessageWriter:
    _encoder: MessageEncoder

    def prepare(self, values: Sequence[Any], times: EventTimes) -> list[Message]:
        """Return the messages of some records."""
        return self._encoder.encode(values, times)

    def prepare_one(self, value: Any, time_ms: int | None) -> Message:
        """Return the message of one record."""
        return self._encoder.encode_one(value, time_ms)


class StagingWriter(_MessageWriter, StagedWriter):
    """Stages messages in the form that the driver sends.

    Args:
        task: Where to stage.
        encoder: Records to messages.
    """

    def __init__(self, task: WriterTask, encoder: MessageEncoder) -> None:
        super().__init__(task, "messages.bin", pack_messages)
        self._encoder = encoder


class DirectWriter(_MessageWriter):
    """A writer that sends messages at once; ``finish`` waits for the brokers.

    Args:
        task: Which epoch and subtask.
        encoder: Records to messages.
        factory: Keeps the producer.
    """

    def __init__(
        self, task: WriterTask, encoder: MessageEncoder, factory: KafkaWriterFactory
    ) -> None:
        self._task = task
        self._encoder = encoder
        self._factory = factory
        self._plan = factory.plan
        self._count = 0

    @cached_property
    def _sending(self) -> SendingClient:
        sending = self._factory.sending()
        sending.renew_if_silent(0)  # Nothing waits: the time between epochs is no silence.
        return sending

    @cached_property
    def _failures(self) -> DeliveryFailures:
        return DeliveryFailures(self._sending)

    def write(self, values: list[Message]) -> None:
        """Send messages to the producer.

        Raises:
            KAFKA_DELIVERY_FAILED: messages of this epoch were refused.
            KafkaAccessError: the client's credentials or rights were.
        """
        if not values:
            return
        self._count += len(values)
        try:
            client_call(
                produce_messages, lambda: self._sending.client, self._plan.topic,
                columns_of(values), failures=self._failures, wait=self._wait,
            )  # fmt: skip
        except KafkaException as error:
            raise self._error(error.args[0]) from error

    def finish(self) -> list[StagedFile]:
        """Wait until the brokers have all messages. There is nothing to publish later.

        Raises:
            BicycleError: see ``flush``.
        """
        self.flush()
        return []

    def flush(self) -> None:
        """Wait until the brokers have all written messages.

        Raises:
            KAFKA_DELIVERY_FAILED: some were not taken, or not in time.
            KafkaAccessError: the client's credentials or rights were refused.
        """
        if self._count:
            try:
                while self._sending.flush(_FLUSH_S, self._delivered_count):
                    self._raise_failures()
            except KafkaException as error:
                raise self._error(error.args[0]) from error
            self._raise_failures()

    def abort(self) -> None:
        """Drop unsent messages; messages in the brokers remain, as at least once permits."""
        self._factory.discard_producer()

    @property
    def _delivered_count(self) -> int:
        return self._count - self._sending.waiting_count

    def _wait(self) -> None:
        """Replace a deaf client, or raise, while the queue of the client is full."""
        self._sending.renew_if_silent(self._delivered_count)
        self._raise_failures()

    def _raise_failures(self) -> None:
        if self._failures.first is not None:
            raise self._error(self._failures.first)

    def _error(self, error: KafkaError) -> BicycleError:
        if is_refusal(error):
            topic = self._plan.topic
            rights = Rights(operation="Write", topic=topic)
            action = f"the write to {topic}"
            return self._plan.client.error(error, action, rights)
        return KAFKA_DELIVERY_FAILED(
            vertex=self._plan.client.vertex,
            subtask=self._task.subtask,
            topic=self._plan.topic,
            epoch=self._task.epoch,
            message_count=self._count,
            failed_count=max(self._failures.count, 1),
            reason=self._plan.client.redacted(reason_of(error)),
            hint=delivery_hint(error),
        )


def delivery_hint(error: KafkaError) -> str:
    """Return how to fix a message that the brokers refused."""
    code = error.code()
    if code in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE):
        return "raise max.message.bytes of the topic"
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
        return "recreate the topic"
    if code == KafkaError._UNKNOWN_PARTITION:
        return "give the topic as many partitions as it had at the start of the job"
    if code == KafkaError._MSG_TIMED_OUT:
        return "check that the brokers respond, or raise publish_timeout_ms"
    if code in (KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
        return "start the missing brokers, or lower min.insync.replicas of the topic"
    return "correct the cause that the brokers report"
