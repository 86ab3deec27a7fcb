"""Facts of topics and brokers for the sink, and the creation of topics.

All requests go through the admin client, with short timeouts: each to one broker, and without
offsets, since librdkafka ends the process when a broker goes away under such a request. A request
that this user may not make is answered by "unknown": the brokers check everything again when
messages arrive.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not declared so
    AclOperation,
    AdminClient,
    ConfigResource,
    NewTopic,
)

from bicycle_runtime.connectors.kafka.encoding import TopicLimits
from bicycle_runtime.connectors.kafka.errors import KAFKA_TOPIC_UNSUITABLE, topic_missing
from bicycle_runtime.connectors.kafka.settings import ClientProperties
from bicycle_sdk.kafka.values import TopicPlan
from bicycle_sdk.logging import log_event
from bicycle_streams.kafka.failures import LastError, Rights, is_refusal
from bicycle_streams.kafka.topics import answer_of, grow_topic, make_topic, patiently, settings_of

_LOG = logging.getLogger(__name__)
_REQUEST_S = 10.0
_CALL_S = 1.0
_MADE = "kafka:"  # Among the names of ``Sink.makes``, this prefix marks a topic.
_NO_BOUND_MS = 1 << 62  # Kafka writes "no bound" as the greatest number of 64 bits.


def made_topic(topic: str) -> str:
    """Return the name of a topic as a sink's target."""
    return _MADE + topic


def made_topics(made: Collection[str]) -> list[str]:
    """Return the topics among the targets of sinks.

    Example:
        >>> made_topics([made_topic("orders"), "file:out"])
        ['orders']
    """
    return [name.removeprefix(_MADE) for name in made if name.startswith(_MADE)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """The facts of a topic: partitions, least replicas, settings (empty: unknown)."""

    partition_count: int
    replica_count: int
    config: Mapping[str, str]

    @property
    def is_compacted(self) -> bool:
        """Return whether old records of a key are removed, and keys are required."""
        return "compact" in self.config.get("cleanup.policy", "")

    @property
    def is_expiring(self) -> bool:
        """Return whether records are removed by age or size."""
        return "delete" in self.config.get("cleanup.policy", "")

    def limits(self, message_bytes_max: int) -> TopicLimits:
        """Return the limits for a producer with this ``message.max.bytes``."""
        is_own_time = self.config.get("message.timestamp.type") != "LogAppendTime"
        return TopicLimits(
            partition_count=self.partition_count,
            message_bytes_max=min(
                message_bytes_max, self._number("max.message.bytes") or message_bytes_max
            ),
            is_compacted=self.is_compacted,
            timestamp_before_ms_max=self._read_bound("before") if is_own_time else None,
            timestamp_after_ms_max=self._read_bound("after") if is_own_time else None,
            retention_ms=self._number("retention.ms") if is_own_time and self.is_expiring else None,
        )

    def _read_bound(self, side: str) -> int | None:
        found = self._number(f"message.timestamp.{side}.max.ms")
        return None if found is None or found >= _NO_BOUND_MS else found

    def _number(self, name: str) -> int | None:
        text = self.config.get(name, "")
        return int(text) if text.isdecimal() else None


class TopicAdmin:
    """Looks at topics and brokers, and makes topics.

    Args:
        client: Properties of the client.
        wait: Called while no broker answers; raises to end the wait.
    """

    def __init__(self, client: ClientProperties, wait: Callable[[str], None]) -> None:
        self._client = client
        self._wait = wait
        self._last = LastError()
        self._admin = client.open(AdminClient, {"error_cb": self._last.note})

    def check(
        self, topic: str, plan: TopicPlan | None, *, operations: Sequence[str]
    ) -> TopicFacts | None:
        """Return the facts of a topic; None when it is missing and can be made. Makes nothing.

        Args:
            topic: Its name.
            plan: How it would be made.
            operations: The operations that this user needs, in the words of Kafka's ACLs.

        Raises:
            KAFKA_TOPIC_MISSING: it is missing and there is no plan.
            KAFKA_TOPIC_UNSUITABLE: it cannot be made.
            KafkaAccessError: this user may not see or make it, or lacks one of the operations.
        """
        found = self._partitions(topic)
        if found is not None:
            self._require(topic, operations)
            return self._facts(topic, found)
        if plan is None:
            raise topic_missing(self._client.vertex, topic, list(self._metadata().topics))
        self._create(topic, plan, is_try=True)
        return None

    def make(self, topic: str, plan: TopicPlan) -> TopicFacts:
        """Create a topic, unless it exists by now; return its facts.

        Raises:
            KAFKA_TOPIC_UNSUITABLE: it cannot be made.
            KafkaAccessError: this user may not make it.
        """
        self._create(topic, plan)
        while (found := self._partitions(topic)) is None:
            self._wait(f"topic {topic} was created but is not visible yet")
        return self._facts(topic, found)

    def partition_count(self, topic: str) -> int:
        """Return how many partitions a topic has; 0 when it is missing."""
        return len(self._partitions(topic) or ())

    def grow(self, topic: str, partition_count: int) -> None:
        """Increase a topic's partitions to a number; a missing topic is ignored."""
        found = self._partitions(topic)
        if found is None or len(found) >= partition_count:
            return
        change = partial(grow_topic, self._admin, topic, partition_count, _REQUEST_S)
        self._change(change, "changing", Rights(operation="Alter", topic=topic))
        log_event(
            _LOG, "kafka_topic_grown", operator=self._client.vertex, topic=topic,
            partition_count=partition_count,
        )  # fmt: skip

    def broker_count(self) -> int:
        """Return how many brokers there are."""
        return len(self._metadata().brokers)

    def transaction_timeout_ms_max(self) -> int | None:
        """Return the brokers' ``transaction.max.timeout.ms``, or None if not permitted."""
        for broker in self._metadata().brokers:
            config = self._config(ConfigResource.Type.BROKER, str(broker))
            text = config.get("transaction.max.timeout.ms", "")
            if text.isdecimal():
                return int(text)
        return None

    def _partitions(self, topic: str) -> Mapping[int, Any] | None:
        found = self._metadata(topic).topics[topic]
        error = found.error
        if error is None:
            partitions: Mapping[int, Any] = found.partitions
            return partitions or None
        if is_refusal(error):
            raise self._client.error(error, f"the request for topic {topic}", Rights(topic=topic))
        return None

    def _facts(self, topic: str, partitions: Mapping[int, Any]) -> TopicFacts:
        return TopicFacts(
            partition_count=len(partitions),
            replica_count=min((len(part.replicas) for part in partitions.values()), default=0),
            config=self._config(ConfigResource.Type.TOPIC, topic),
        )

    def _require(self, topic: str, operations: Sequence[str]) -> None:
        """Refuse a topic on which this user lacks a right, if brokers report rights."""
        allowed = self._find_allowed(topic)
        missing = [name for name in operations if allowed and name not in allowed]
        if missing:
            known = f"its user has only the permissions {', '.join(sorted(allowed))}"
            error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, known)
            rights = Rights(operation=missing[0], topic=topic)
            raise self._client.error(error, f"the use of topic {topic}", rights)

    def _find_allowed(self, topic: str) -> set[str]:
        """Return the permitted operations on a topic, empty if unknown."""
        ask = partial(
            self._admin.describe_topics, TopicCollection([topic]),
            include_authorized_operations=True, request_timeout=_REQUEST_S,
        )  # fmt: skip
        try:
            found = patiently(lambda: answer_of(ask(), _REQUEST_S), self._wait_after)
        except KafkaException:
            return set()
        words = [AclOperation(operation).name for operation in found.authorized_operations or ()]
        return {name.title().replace("_", "") for name in words}

    def _metadata(self, topic: str | None = None) -> Any:
        while True:
            try:
                return self._admin.list_topics(topic, timeout=_CALL_S)
            except KafkaException as error:
                self._admin.poll(0)  # Only the callback gets the reason, such as a wrong password.
                self._last.error = self._client.refused_handshake() or self._last.error
                cause = self._last.error or error
                if is_refusal(cause):
                    raise self._client.error(cause, "the connection") from error
                self._wait(self._client.redacted(cause))

    def _config(self, kind: Any, name: str) -> dict[str, str]:
        ask = partial(settings_of, self._admin, kind, name, _REQUEST_S)
        try:
            found = patiently(ask, self._wait_after)
        except KafkaException as error:
            log_event(
                _LOG, "kafka_settings_unseen", operator=self._client.vertex, of=name,
                reason=error.args[0].str(),
            )  # fmt: skip
            return {}
        return {key: entry.value for key, entry in found.items() if entry.value is not None}

    def _create(self, topic: str, plan: TopicPlan, *, is_try: bool = False) -> None:
        """Create a topic, or only check whether the brokers would."""
        config = dict(plan.config)
        new = NewTopic(topic, plan.partitions, plan.replication_factor, config=config)
        create = partial(make_topic, self._admin, new, _REQUEST_S, is_try=is_try)
        self._change(create, "making", Rights(operation="Create", topic=topic))
        if is_try:
            return
        log_event(
            _LOG, "kafka_topic_made", operator=self._client.vertex, topic=topic,
            partitions=plan.partitions, replication_factor=plan.replication_factor,
        )  # fmt: skip

    def _change(self, call: Callable[[], bool], verb: str, rights: Rights) -> None:
        """Create or change a topic; raise our error if it cannot be done."""
        try:
            patiently(call, self._wait_after)
        except KafkaException as error:
            if is_refusal(error):
                raise self._client.error(error, f"{verb} topic {rights.topic}", rights) from error
            raise KAFKA_TOPIC_UNSUITABLE(
                vertex=self._client.vertex,
                topic=rights.topic,
                problem=f"cannot be created or changed: {error.args[0].str()}",
                hint="correct create_topic, or create the topic yourself",
            ) from error

    def _wait_after(self, error: KafkaException) -> None:
        self._wait(self._client.redacted(error))
