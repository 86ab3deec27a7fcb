"""Topics of a broker: list them, make one, and wait until it can be used.

For development and tests; a job's sink makes its own topics where it is told to.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException

# NewTopic is public, but not in the types of its module.
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bicycle_runtime.dev.errors import BROKER_SILENT, TOPIC_REFUSED
from bicycle_runtime.dev.waiting import wait_until
from bicycle_streams.kafka.failures import text_of
from bicycle_streams.kafka.topics import visible_topics

_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """A topic as the broker describes it."""

    name: str
    partitions: int
    replication: int


def open_admin(settings: Mapping[str, str]) -> AdminClient:
    """Return a client for the functions below, which reports failures as errors."""
    return AdminClient({**settings, "log_level": 0})


def list_topics(admin: AdminClient, *, timeout_s: float = _TIMEOUT_S) -> list[TopicInfo]:
    """Return the topics by name, without Kafka's internal ones (``__…``).

    Args:
        admin: From ``open_admin``, or any other.
        timeout_s: How long to wait for the broker's answer.

    Raises:
        BROKER_SILENT: the broker does not answer.
    """
    try:
        found = visible_topics(admin, timeout_s)
    except KafkaException as error:
        raise BROKER_SILENT(reason=_reason(error)) from error
    return [_info(name, topic.partitions.values()) for name, topic in found.items()]


def create_topic(
    admin: AdminClient,
    name: str,
    *,
    partitions: int = 1,
    config: Mapping[str, str] | None = None,
) -> TopicInfo:
    """Create a topic with one replica, and return when each partition has its leader.

    Args:
        admin: From ``open_admin``, or any other.
        name: Letters, digits, dots, dashes, underscores.
        partitions: How many, 1 or more.
        config: Settings of the topic, such as ``cleanup.policy``.

    Raises:
        TOPIC_REFUSED: there is one of that name, the broker refuses it, or does not answer.
    """
    wanted = NewTopic(name, partitions, replication_factor=1, config=dict(config or {}))
    try:
        admin.create_topics([wanted], operation_timeout=_TIMEOUT_S)[name].result(2 * _TIMEOUT_S)
        if not wait_until(lambda: _is_ready(admin, name, partitions), timeout_s=_TIMEOUT_S):
            reason = f"it was created, but its partitions have no leader after {_TIMEOUT_S:g} s"
            raise TOPIC_REFUSED(topic=name, reason=reason)
    except (KafkaException, TimeoutError) as error:
        raise TOPIC_REFUSED(topic=name, reason=_reason(error)) from error
    return TopicInfo(name=name, partitions=partitions, replication=1)


def _is_ready(admin: AdminClient, name: str, partitions: int) -> bool:
    found = admin.list_topics(name, timeout=_TIMEOUT_S).topics[name]
    return len(found.partitions) == partitions and all(
        partition.leader >= 0 for partition in found.partitions.values()
    )


def _info(name: str, partitions: Collection[Any]) -> TopicInfo:
    replication = min((len(partition.replicas) for partition in partitions), default=0)
    return TopicInfo(name=name, partitions=len(partitions), replication=replication)


def _reason(error: KafkaException | TimeoutError) -> str:
    return text_of(error) or "the broker did not respond"
