"""The Kafka sink: at least once from tasks, or exactly once through epochs.

*At least once*: tasks send messages themselves; the driver only checks the topic at the start.
*Exactly once*: tasks stage messages, and publishing an epoch is one transaction per writer, which
also carries the epoch's marker (``transactions``, ``marker``). The manifest names files, topic and
transactional ids of its epoch, so it is published the same way whatever was reconfigured since.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from confluent_kafka import KafkaException

from bicycle_runtime.base.ids import attempt_id
from bicycle_runtime.base.user_code import is_async
from bicycle_runtime.connectors.errors import CONNECTOR_PAYLOAD_WRONG
from bicycle_runtime.connectors.kafka.encoding import (
    ENCODED_HERE,
    EncodingSchema,
    MessagePlan,
    TopicLimits,
    input_of,
)
from bicycle_runtime.connectors.kafka.errors import KAFKA_UNREACHABLE, KafkaAccessError
from bicycle_runtime.connectors.kafka.marker import (
    Marker,
    MarkerReader,
    branch_of,
    marker_topic_name,
)
from bicycle_runtime.connectors.kafka.settings import checked_properties
from bicycle_runtime.connectors.kafka.sink_checks import (
    check_history,
    check_marker_topic,
    check_replicas,
    check_transaction_timeout,
    ensure_marker_topic,
    refuse_missing_keys,
)
from bicycle_runtime.connectors.kafka.staged_messages import staged_messages
from bicycle_runtime.connectors.kafka.topics import TopicAdmin, TopicFacts, made_topic
from bicycle_runtime.connectors.kafka.transactions import (
    Publication,
    TransactionalWriter,
    TransactionSettings,
)
from bicycle_runtime.connectors.kafka.writer import KafkaWriterFactory, WriterPlan
from bicycle_runtime.connectors.settings import codec_for, read_options
from bicycle_runtime.contract import (
    ChecksBeforeStart,
    ConnectorSpec,
    DriverServices,
    Guarantee,
    InterruptiblePublication,
    MakesTargets,
    Sink,
    StagedFile,
    StagedPublication,
)
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.functions import as_callable
from bicycle_sdk.kafka.options import KafkaSinkOptions
from bicycle_sdk.logging import log_event
from bicycle_sdk.random_source import system_random
from bicycle_streams.kafka.failures import Rights, is_outage

_LOG = logging.getLogger(__name__)
_DEFAULTS = {
    "partitioner": "murmur2_random",  # As Java's clients do: the same key, the same partition.
    "queue.buffering.max.messages": "100000",
    "queue.buffering.max.kbytes": "65536",
    # hot path: fuller requests: a seventh more messages a second than with 5 ms, the client's own.
    # It delays no epoch: the last messages are flushed at once.
    "linger.ms": "100",
    "topic.metadata.propagation.max.ms": "5000",  # Then a missing topic is taken for missing.
    "log_level": "2",  # Our own errors and events report failures.
}
_FUNCTION_ROLES = ("value", "key", "headers", "timestamp", "partition")
_MESSAGE_BYTES_MAX = 1_000_000  # The client's own default of message.max.bytes.
_ALWAYS = {"enable.idempotence": "true", "acks": "all", "delivery.report.only.error": True}


class KafkaSink(StagedPublication, InterruptiblePublication, ChecksBeforeStart, MakesTargets, Sink):
    """Writes records as messages of one topic."""

    options_class = KafkaSinkOptions

    def __init__(self, spec: ConnectorSpec) -> None:
        super().__init__(spec)
        self._options = options = read_options(KafkaSinkOptions, spec)
        self.guarantee = Guarantee(options.guarantee)
        self.takes_times = takes_times(options, spec)
        self._is_staged = self.guarantee is Guarantee.EXACTLY_ONCE
        self.writes_at_once = not self._is_staged
        self._topic_plan = options.create_topic
        self._messages = message_plan(options, spec)
        self.accepts = input_of(self._messages)
        given = checked_properties(
            options.client_properties(), vertex=spec.vertex_id, reserved=options.reserved
        )
        self._client = given.with_defaults({"bootstrap.servers": options.brokers, **_DEFAULTS})
        self._is_stopping = threading.Event()
        self._limits = TopicLimits()
        self._factory: KafkaWriterFactory | None = None
        self._writers: dict[tuple[str, str, int], TransactionalWriter] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._marker_partition_count = 0
        self._is_checked = False
        self._facts: TopicFacts | None = None

    def makes(self) -> list[str]:
        """Return the topic when it is made where it is missing."""
        return [] if self._topic_plan is None else [made_topic(self._options.topic)]

    def check(self, services: DriverServices, state: Mapping[str, Any]) -> None:
        """Look at brokers, topics and rights, and make nothing.

        Raises:
            KAFKA_UNREACHABLE: no broker answers.
            KAFKA_TOPIC_MISSING: the topic is missing, and is not to be made.
            KAFKA_TOPIC_UNSUITABLE: a topic cannot be made, or is not as it must be.
            KAFKA_TRANSACTION_TIMEOUT_WRONG: transactions could end before an epoch is published.
            KAFKA_HISTORY_AHEAD: a job begins with an epoch behind the published ones.
            KafkaAccessError: credentials or rights are refused.
        """
        options = self._options
        self._prefix, self._marker_topic = self._names(services.job, state)
        self._storage_id = hashlib.sha256(services.storage.url.encode()).hexdigest()[:12]
        self._connect(services, state)
        if self._is_staged:
            check_transaction_timeout(
                options,
                vertex=self.spec.vertex_id,
                epoch_interval_ms=services.epoch_interval_ms,
                broker_ms_max=self._admin.transaction_timeout_ms_max(),
            )
            check_marker_topic(self._admin, self._marker_topic, self.spec.vertex_id)
            if state.get("place") != self._storage_id:
                self._refuse_rewind(state)
        facts = self._admin.check(options.topic, self._topic_plan, operations=["Write"])
        if facts is not None:
            self._check_facts(facts)
        self._facts = facts
        self._is_checked = True

    def start(self, services: DriverServices, state: Mapping[str, Any]) -> None:
        """Create missing topics, and find the last published epoch.

        Raises:
            KAFKA_HISTORY_AHEAD: the job starts behind its published epochs.
            BicycleError: see ``check``.
        """
        if not self._is_checked:
            self.check(services, state)
        facts = self._facts
        if facts is None:
            assert self._topic_plan is not None
            facts = self._admin.make(self._options.topic, self._topic_plan)
            self._check_facts(facts)
        given_bytes = self._client.plain.get("message.max.bytes", str(_MESSAGE_BYTES_MAX))
        self._limits = facts.limits(int(given_bytes))
        self._identity = str(state.get("identity") or attempt_id(source=system_random()))
        if self._is_staged:
            self._start_transactions(state)

    def writer(self) -> KafkaWriterFactory:
        """Return the factory of writers, with the topic's limits at the start."""
        messages = message_plan(self._options, self.spec, self._limits)
        self._factory = KafkaWriterFactory(
            WriterPlan(
                topic=self._options.topic,
                is_staged=self._is_staged,
                messages=messages,
                client=self._client,
                producer={
                    **self._producer(),
                    "message.timeout.ms": str(self._options.publish_timeout_ms),
                },
            )
        )
        return self._factory

    def prepare(self, epoch: int, staged: Sequence[StagedFile], *, is_last: bool) -> dict[str, Any]:
        """Return the staged files, and the target and transactional ids."""
        if not self._is_staged:
            return {}
        return {
            "epoch": epoch,
            "identity": self._identity,
            "topic": self._options.topic,
            "prefix": self._prefix,
            "marker_topic": self._marker_topic,
            "place": self._storage_id,
            **super().prepare(epoch, staged, is_last=is_last),
        }

    def publish(self, epoch: int, state: Mapping[str, Any]) -> None:
        """Publish the output of every writer of the epoch, each in one transaction.

        Raises:
            BicycleError: see ``TransactionalWriter.publish``.
        """
        try:
            self._publish(epoch, state)
        except KafkaAccessError as error:
            raise error.keeping(epoch) from error

    def _publish(self, epoch: int, state: Mapping[str, Any]) -> None:
        files = self.staged_files(state)
        if not files:
            return
        self._ensure_marker_partitions(state, 1 + max(file.subtask for file in files))
        tasks = [partial(self._publish_file, epoch, state, file) for file in files]
        if len(tasks) == 1:
            tasks[0]()
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(
                self._options.publish_threads_max, thread_name_prefix="publish-kafka"
            )
        futures = [self._pool.submit(task) for task in tasks]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]

    def interrupt(self) -> None:
        """Make a publication that waits for brokers stop within about a second."""
        self._is_stopping.set()

    def stop(self) -> None:
        """Close all producers."""
        self._is_stopping.set()
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
        if self._factory is not None:
            self._factory.discard_producer()

    def _connect(self, services: DriverServices, state: Mapping[str, Any]) -> None:
        options = self._options
        self._services = services
        self._client = self._client.bound()
        patience_ms = options.publish_timeout_ms if state else options.connect_timeout_ms
        self._admin = TopicAdmin(self._client, self._waiting(patience_ms))

    def _check_facts(self, facts: TopicFacts) -> None:
        topic, vertex = self._options.topic, self.spec.vertex_id
        check_replicas(facts, topic, vertex, self._admin.broker_count())
        refuse_missing_keys(facts, topic, self.spec)

    def _refuse_rewind(self, state: Mapping[str, Any]) -> None:
        options = self._options
        if state.get("topic") == options.topic and options.on_rewind == "fail":
            count = self._admin.partition_count(state["marker_topic"])
            markers = self._last_markers(state["marker_topic"], count)
            check_history(state, markers, options=options, vertex=self.spec.vertex_id)

    def _start_transactions(self, state: Mapping[str, Any]) -> None:
        options = self._options
        facts = ensure_marker_topic(self._admin, self._marker_topic, self.spec.vertex_id)
        self._marker_partition_count = facts.partition_count
        if state.get("topic") != options.topic:
            return
        topic, count = self._marker_topic, facts.partition_count
        if state["marker_topic"] != topic:  # It was renamed; its published epochs are there.
            topic = state["marker_topic"]
            count = ensure_marker_topic(self._admin, topic, self.spec.vertex_id).partition_count
        markers = self._last_markers(topic, count)
        is_again = check_history(state, markers, options=options, vertex=self.spec.vertex_id)
        # Two jobs may begin from another place; epochs published by one must not count for both.
        if is_again or state.get("place", self._storage_id) != self._storage_id:
            self._identity = branch_of(self._identity, attempt_id(source=system_random()))

    def _names(self, job: str, state: Mapping[str, Any]) -> tuple[str, str]:
        """Return prefix and marker topic: configured, else previous, else by job name.

        A job that begins with a savepoint of a job with another name continues under that name, as
        long as it writes to the same topic: only so does it see the epochs published behind the
        savepoint, and fence a driver that would still publish.
        """
        options = self._options
        former = state if state.get("topic") == options.topic else {}
        own = f"bicycle-{job}-{self.spec.vertex_id}"
        prefix = options.transactional_id_prefix or former.get("prefix") or own
        is_former = former.get("prefix") == prefix
        marker_topic = options.marker_topic or (former.get("marker_topic") if is_former else None)
        return prefix, marker_topic or marker_topic_name(prefix)

    def _last_markers(self, topic: str, count: int) -> dict[int, Marker]:
        """Return the last marker of each writer that has one; an outage is waited for."""
        wait = self._waiting(self._options.publish_timeout_ms)
        patience = partial(wait, "markers cannot be read")
        clock = self._services.clock
        reader = MarkerReader(self._client, topic, clock, patience)
        while True:
            try:
                return reader.last(list(range(count)))
            except KafkaException as error:
                action = f"the read of markers of {topic}"
                if not is_outage(error.args[0]):
                    rights = Rights(operation="Read", topic=topic)
                    raise self._client.error(error, action, rights) from error
                wait(self._client.redacted(error))

    def _ensure_marker_partitions(self, state: Mapping[str, Any], count: int) -> None:
        """Ensure a partition for each writer, also after a rescale."""
        is_own = state["marker_topic"] == self._marker_topic
        if not is_own or count > self._marker_partition_count:
            waiting = self._waiting(self._options.publish_timeout_ms)
            TopicAdmin(self._client, waiting).grow(state["marker_topic"], count)
            if is_own:
                self._marker_partition_count = count

    def _publish_file(self, epoch: int, state: Mapping[str, Any], file: StagedFile) -> None:
        publication = Publication(
            epoch=epoch,
            identity=state["identity"],
            topic=state["topic"],
            messages=partial(staged_messages, self._services.storage, file),
            is_past=state["identity"] != self._identity,
        )
        self._writer_of(state, file.subtask).publish(publication)

    def _writer_of(self, state: Mapping[str, Any], index: int) -> TransactionalWriter:
        writer_key = (state["prefix"], state["marker_topic"], index)
        if writer_key not in self._writers:
            options = self._options
            timeout = {"transaction.timeout.ms": str(options.transaction_timeout_ms)}
            settings = TransactionSettings(
                prefix=state["prefix"],
                marker_topic=state["marker_topic"],
                client=self._client,
                producer={**self._producer(), **timeout},
                transaction_timeout_ms=options.transaction_timeout_ms,
                publish_timeout_ms=options.publish_timeout_ms,
                clock=self._services.clock,
                is_stopping=self._is_stopping,
            )
            self._writers[writer_key] = TransactionalWriter(index, settings)
        return self._writers[writer_key]

    def _producer(self) -> dict[str, Any]:
        # A batch larger than the topic takes would be refused as a whole.
        return {**_ALWAYS, "message.max.bytes": str(self._limits.message_bytes_max)}

    def _waiting(self, patience_ms: int) -> Callable[[str], None]:
        """Return a function to call while no broker responds; it raises after a limit."""
        clock = self._services.clock
        started = clock.monotonic()
        told: list[str] = []

        def wait(reason: str) -> None:
            waited_ms = round((clock.monotonic() - started) * 1000)
            if waited_ms > patience_ms or self._is_stopping.is_set():
                raise KAFKA_UNREACHABLE(
                    vertex=self.spec.vertex_id,
                    brokers=self._options.brokers,
                    waited_ms=waited_ms,
                    reason=reason,
                )
            if not told:
                told.append(reason)
                log_event(
                    _LOG, "kafka_waiting", level=logging.WARNING, operator=self.spec.vertex_id,
                    reason=reason,
                )  # fmt: skip

        return wait


def message_plan(
    options: KafkaSinkOptions, spec: ConnectorSpec, limits: TopicLimits | None = None
) -> MessagePlan:
    """Return how records become messages.

    Args:
        options: Of the sink.
        spec: Its payloads are the user's functions and schemas.
        limits: The limits of the topic.

    Raises:
        CONNECTOR_OPTION_WRONG: there is no such format, or it cannot be used.
        CONNECTOR_PAYLOAD_WRONG: a payload is missing or of the wrong kind.
    """
    schemas: dict[str, EncodingSchema] = {
        role: _schema(spec, f"{role}_schema")
        for role in ("key", "value")
        if f"{role}_schema" in spec.payloads
    }
    formats: dict[str, str] = {
        "key": str(options.key_format or "auto"),
        "value": str(options.value_format or _default_format(spec)),
    }
    given = {"key": options.key_format_options, "value": options.value_format_options}
    for role, found in formats.items():
        if role in schemas:
            formats[role] = "schema"  # It has more than a word.
        elif found == "schema":
            raise _payload_error(spec, f"{role}_schema", None, "an object with encode(value)")
        elif found not in ENCODED_HERE or given[role]:
            schemas[role] = codec_for(
                spec, role, found, record_type=_written_type(spec, role), options=given[role]
            )
    return MessagePlan(
        value_format=formats["value"],
        key_format=formats["key"],
        functions={
            role: _function(spec, role) for role in _FUNCTION_ROLES if role in spec.payloads
        },
        schemas=schemas,
        limits=limits or TopicLimits(),
        has_event_times=takes_times(options, spec),
    )


def takes_times(options: KafkaSinkOptions, spec: ConnectorSpec) -> bool:
    """Return whether messages have the event times of their records."""
    return options.message_time == "event" and "timestamp" not in spec.payloads


def _written_type(spec: ConnectorSpec, role: str) -> Any:
    """Return the known type of encoded values, which is that of unchanged records."""
    return spec.record_type if role == "value" and "value" not in spec.payloads else None


def _default_format(spec: ConnectorSpec) -> str:
    if "value" in spec.payloads or spec.record_type in (None, Any):
        return "auto"
    if spec.record_type is str:
        return "string"
    return "bytes" if spec.record_type is bytes else "json"


def _function(spec: ConnectorSpec, role: str) -> Callable[[Any], Any]:
    given = spec.payloads[role]
    is_usable = callable(given) or hasattr(given, "get_key")
    function = as_callable(given, "get_key") if is_usable else None
    if function is None or is_async(function):
        raise _payload_error(spec, role, given, "a plain function of one record")
    return function


def _schema(spec: ConnectorSpec, role: str) -> EncodingSchema:
    found: EncodingSchema = spec.payloads[role]
    if not callable(getattr(found, "encode", None)):
        raise _payload_error(spec, role, found, "an object with encode(value)")
    return found


def _payload_error(spec: ConnectorSpec, role: str, found: object, expected: str) -> BicycleError:
    return CONNECTOR_PAYLOAD_WRONG(
        vertex=spec.vertex_id,
        connector=spec.connector_type,
        role=role,
        found="missing" if found is None else f"a {type(found).__qualname__}",
        expected=expected,
    )
