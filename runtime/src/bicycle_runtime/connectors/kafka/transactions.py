"""Publication of a writer's epochs, each in a transaction with its marker.

The idea: never reason about whether a commit arrived. After any error the producer is thrown away
and a new one opened, which fences the old one and ends its transaction; then the marker shows
whether the epoch is there. A producer that works is kept from epoch to epoch. Every call to the
client has a short timeout, so that a stop is noticed.

``send_offsets_to_transaction`` is not used: it can hang forever after a broker's restart, and
offsets of a group expire.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from bicycle_runtime.base.faults import fault_point
from bicycle_runtime.connectors.errors import PublishInterruptedError
from bicycle_runtime.connectors.kafka.encoding import MessageColumns
from bicycle_runtime.connectors.kafka.errors import (
    KAFKA_OTHER_PUBLISHER,
    KAFKA_PUBLISH_REFUSED,
    KAFKA_PUBLISH_TIMED_OUT,
)
from bicycle_runtime.connectors.kafka.marker import Marker, MarkerReader
from bicycle_runtime.connectors.kafka.settings import ClientProperties
from bicycle_runtime.connectors.kafka.writer import delivery_hint
from bicycle_sdk.clock import Clock
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import log_event
from bicycle_streams.kafka.failures import ABSENT, FENCED, Rights, is_refusal, reason_of
from bicycle_streams.kafka.producing import (
    PURGED,
    DeliveryFailures,
    client_call,
    produce_messages,
    until_done,
)

_LOG = logging.getLogger(__name__)
_CALL_S = 1.0
_ABORT_S = 2.0
_INIT_S_MAX = 60.0
_FIRST_PAUSE_S, _PAUSE_S_MAX = 0.1, 5.0
# A broker that has just started, or come back, may not know a topic yet.
_TOPIC_PATIENCE_S = 10.0
# A driver that wakes up takes over once or twice before it learns that it lost its lease.
_TAKEOVERS_MAX = 10
_PROBE_KEY = b"probe"
_MARKERS_HINT = "delete the topic of the markers, which the next start creates again"
_FENCES = FENCED | {KafkaError._FATAL}
_REFUSED = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """The common settings of one sink's writers.

    ``producer`` holds what we decide for producers. ``is_stopping`` is set when the job must end.
    """

    prefix: str
    marker_topic: str
    client: ClientProperties
    producer: Mapping[str, Any]
    transaction_timeout_ms: int
    publish_timeout_ms: int
    clock: Clock
    is_stopping: threading.Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """One writer's output of one sealed epoch.

    ``messages`` reads it from its start, at each call. ``is_past`` means that the epoch belongs to
    an abandoned history, in which later epochs are published already.
    """

    epoch: int
    identity: str
    topic: str
    messages: Callable[[], Iterator[MessageColumns]]
    is_past: bool = False

    @property
    def marker(self) -> Marker:
        """The marker that goes with it."""
        return Marker(identity=self.identity, epoch=self.epoch)


class TopicDoubt:
    """The distinction of removed topics from ones that brokers do not know yet.

    How long no broker answered does not count.

    Args:
        clock: Returns the time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: float | None = None

    def is_gone(self, code: int) -> bool:
        """Note the code of an error; return whether the topic is surely gone."""
        if code not in ABSENT:
            self._since = None
            return False
        now = self._clock.monotonic()
        if self._since is None:
            self._since = now
        return now - self._since > _TOPIC_PATIENCE_S


class TransactionalWriter:
    """Publishes the epochs of one writer. Nothing is opened before the first.

    Args:
        index: The writer's index, which is its partition of the marker topic.
        settings: The settings shared by all writers.
    """

    def __init__(self, index: int, settings: TransactionSettings) -> None:
        self._index = index
        self._settings = settings
        self._clock = settings.clock
        self._reader = MarkerReader(
            settings.client, settings.marker_topic, settings.clock, self._wait
        )
        self._producer: Producer | None = None
        self._failures = DeliveryFailures()
        self._marker: Marker | None = None
        self._was_opened = False
        self._is_in_transaction = False
        self._outage = "the brokers do not respond"
        self._publication: Publication | None = None
        self._started = 0.0
        self._doubt = TopicDoubt(settings.clock)
        self._needed = Rights()

    def publish(self, publication: Publication) -> None:
        """Make an epoch visible, unless it is already. Waits for brokers that are away.

        Raises:
            KAFKA_OTHER_PUBLISHER: another run publishes under the same transactional id.
            KAFKA_PUBLISH_REFUSED: waiting does not help: too large, no such topic.
            KafkaAccessError: waiting does not help: credentials or rights.
            KAFKA_PUBLISH_TIMED_OUT: the brokers were away for longer than ``publish_timeout_ms``.
            PublishInterruptedError: the job must end.
        """
        self._publication = publication
        self._started = self._clock.monotonic()
        self._doubt = TopicDoubt(self._clock)
        pause_s, takeover_count, error_count = _FIRST_PAUSE_S, 0, 0
        while True:
            begun = self._clock.monotonic()
            try:
                client_call(self._attempt, publication)
                break
            except KafkaException as error:
                cause = self._cause(error)
                self._discard()
                self._raise_if_hopeless(publication, cause)
                is_quick = self._clock.monotonic() - begun < self._timeout_s
                if cause.code() in _FENCES and self._was_published(publication):
                    break
                takeover_count += cause.code() in _FENCES and is_quick
                if takeover_count > _TAKEOVERS_MAX:
                    raise self._other_publisher(publication, self._marker) from error
                error_count += 1
                self._note_outage(publication, cause, error_count)
            self._wait()
            self._settings.is_stopping.wait(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)
        if error_count:
            self._log("kafka_publish_recovered", publication, error_count=error_count)

    def close(self) -> None:
        """Release the producer; abort an open transaction if brokers respond soon."""
        producer = self._producer
        if producer is not None and self._is_in_transaction:
            with contextlib.suppress(KafkaException):  # The next producer with this id ends it.
                producer.purge(blocking=False)
                client_call(producer.abort_transaction, _ABORT_S)
        self._discard()

    @property
    def _timeout_s(self) -> float:
        return self._settings.transaction_timeout_ms / 1000

    def _attempt(self, publication: Publication) -> None:
        """Publish once.

        1. Open a producer, which fences all others of this writer, and read the marker.
        2. Leave the epoch alone when the marker contains it.
        3. Begin a transaction and produce the messages.
        4. Add the marker.
        5. Commit.
        """
        # 1. Open a producer, which fences all others of this writer, and read the marker.
        producer = self._producer or self._open(publication)
        # 2. Leave the epoch alone when the marker contains it.
        if self._is_published(publication, self._marker):
            return
        # 3. Begin a transaction and produce the messages.
        self._failures = DeliveryFailures()
        producer.begin_transaction()
        self._is_in_transaction = True
        fault_point("transaction_begun")
        self._needed = replace(self._needed, operation="Write", topic=publication.topic)
        for messages in publication.messages():
            produce_messages(
                lambda: producer, publication.topic, messages,
                failures=self._failures, wait=self._wait,
            )  # fmt: skip
        fault_point("transaction_produced")
        # 4. Add the marker.
        marker: MessageColumns = {
            "value": [publication.marker.to_bytes()],
            "key": [str(self._index).encode()],
            "partition": [self._index],
        }
        produce_messages(
            lambda: producer, self._settings.marker_topic, marker,
            failures=self._failures, wait=self._wait,
        )  # fmt: skip
        self._flush(producer)
        fault_point("transaction_marked")
        # 5. Commit.
        self._until_done(producer.commit_transaction, limit_s=self._timeout_s)
        self._is_in_transaction = False
        self._marker = publication.marker
        fault_point("transaction_committed")

    def _open(self, publication: Publication) -> Producer:
        transactional_id = f"{self._settings.prefix}-{self._index}"
        own = {"transactional.id": transactional_id, "error_cb": self._take_error}
        producer = self._settings.client.open(Producer, {**self._settings.producer, **own})
        self._producer = producer
        self._needed = Rights(
            operation="Write", topic=self._settings.marker_topic, transactional_id=transactional_id
        )
        self._until_done(producer.init_transactions, limit_s=_INIT_S_MAX)
        found = self._reader.last([self._index], behind=self._probe(producer)).get(self._index)
        if self._was_opened and found not in (self._marker, publication.marker):
            raise self._other_publisher(publication, found)
        self._marker, self._was_opened = found, True
        return producer

    def _probe(self, producer: Producer) -> int:
        """Write an empty record after the markers; return a later offset.

        A killed broker begins with the end of the log that it noted last, and for a while hides
        later messages; a missed marker would be an epoch that is published twice. Once it has
        acknowledged a record it shows all before it.
        """
        self._failures = DeliveryFailures()
        producer.begin_transaction()
        self._is_in_transaction = True
        producer.produce(
            self._settings.marker_topic, None, _PROBE_KEY, partition=self._index,
            on_delivery=self._failures,
        )  # fmt: skip
        self._flush(producer)
        self._needed = replace(self._needed, operation="Read")
        last = self._reader.end(self._index) - 1
        self._until_done(producer.commit_transaction, limit_s=self._timeout_s)
        self._is_in_transaction = False
        return last

    def _was_published(self, publication: Publication) -> bool:
        """Look for the epoch before a new producer fences a run that took over.

        Brokers that do not answer, or do not show it yet, leave it to the next attempt.
        """
        try:
            found = self._reader.last([self._index]).get(self._index)
        except KafkaException:
            return False
        if not self._is_published(publication, found):
            return False
        self._marker = found
        return True

    def _is_published(self, publication: Publication, marker: Marker | None) -> bool:
        if marker is None or marker.identity != publication.identity:
            return False
        if marker.epoch > publication.epoch and not publication.is_past:
            raise self._other_publisher(publication, marker)
        return marker.epoch >= publication.epoch

    def _flush(self, producer: Producer) -> None:
        """Wait until the brokers have all messages of the transaction."""
        deadline = self._clock.monotonic() + self._timeout_s
        while producer.flush(_CALL_S):
            if self._clock.monotonic() > deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, self._outage))
            self._wait()
            for topic in {self._needed.topic, self._settings.marker_topic}:
                with contextlib.suppress(KafkaException):  # It hears at once of one that is gone.
                    producer.list_topics(topic, timeout=_CALL_S)
        first = self._failures.first
        if first is not None and first.code() in PURGED:
            producer.begin_transaction()  # Refused, with the reason why this one cannot continue.
        if first is not None:
            raise KafkaException(first)

    def _until_done(self, call: Callable[[float], None], *, limit_s: float) -> None:
        until_done(call, limit_s=limit_s, clock=self._clock, wait=self._wait)

    def _wait(self) -> None:
        """Raise when the job must end, or when publishing took too long."""
        settings, publication = self._settings, self._publication
        assert publication is not None
        waited_ms = round((self._clock.monotonic() - self._started) * 1000)
        if settings.is_stopping.is_set():
            raise PublishInterruptedError(
                vertex=settings.client.vertex,
                epoch=publication.epoch,
                target=publication.topic,
                reason=self._outage,
            )
        if waited_ms > settings.publish_timeout_ms:
            raise KAFKA_PUBLISH_TIMED_OUT(
                vertex=settings.client.vertex,
                writer=self._index,
                epoch=publication.epoch,
                topic=publication.topic,
                waited_ms=waited_ms,
                reason=self._outage,
            )

    def _cause(self, error: KafkaException) -> KafkaError:
        """Return the cause of an error: a commit only reports undelivered messages."""
        first = self._failures.first
        if first is not None and first.code() not in PURGED:
            return first
        cause: KafkaError = error.args[0]
        return cause

    def _raise_if_hopeless(self, publication: Publication, cause: KafkaError) -> None:
        topic = self._topic_of(cause)
        if is_refusal(cause):
            action = f"the publication to {publication.topic} as {self._needed.transactional_id}"
            raise self._settings.client.error(cause, action, replace(self._needed, topic=topic))
        if cause.code() in _REFUSED or self._doubt.is_gone(cause.code()):
            is_remade = topic == self._settings.marker_topic and cause.code() in ABSENT
            raise KAFKA_PUBLISH_REFUSED(
                vertex=self._settings.client.vertex,
                writer=self._index,
                topic=topic,
                epoch=publication.epoch,
                reason=self._words(cause),
                hint=_MARKERS_HINT if is_remade else delivery_hint(cause),
            )

    def _topic_of(self, cause: KafkaError) -> str | None:
        """Return the topic that an error is about, as far as it is known."""
        return self._failures.topic if cause is self._failures.first else self._needed.topic

    def _note_outage(self, publication: Publication, cause: KafkaError, count: int) -> None:
        self._outage = self._words(cause)
        if count == 1:
            level = logging.WARNING
            self._log("kafka_publish_retried", publication, level=level, reason=self._outage)

    def _other_publisher(self, publication: Publication, found: Marker | None) -> BicycleError:
        return KAFKA_OTHER_PUBLISHER(
            vertex=self._settings.client.vertex,
            writer=self._index,
            prefix=self._settings.prefix,
            epoch=publication.epoch,
            found_epoch=found.epoch if found else 0,
        )

    def _take_error(self, error: KafkaError) -> None:
        """Keep the client's last error about its connections."""
        self._outage = self._words(error)

    def _words(self, error: KafkaError) -> str:
        return self._settings.client.redacted(reason_of(error))

    def _discard(self) -> None:
        producer, self._producer = self._producer, None
        self._is_in_transaction = False
        if producer is not None:
            producer.purge(blocking=False)
            with contextlib.suppress(KafkaException):
                client_call(producer.poll, 0)  # Its last log lines come now or never.

    def _log(
        self, event: str, publication: Publication, level: int = logging.INFO, **fields: Any
    ) -> None:
        log_event(
            _LOG, event, level=level, operator=self._settings.client.vertex,
            epoch=publication.epoch, writer=self._index, topic=publication.topic, **fields,
        )  # fmt: skip
