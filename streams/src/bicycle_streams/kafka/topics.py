"""Topics of a cluster: list, create and grow them, and their settings.

Calls wait, and raise ``KafkaException``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewPartitions, NewTopic

from bicycle_streams.kafka.failures import ABSENT, is_outage

T = TypeVar("T")
# Not all brokers know a new topic, a new controller or a new assignment at once.
_NOT_YET = ABSENT | {KafkaError.NOT_CONTROLLER, KafkaError._STATE}
_LATE_S = 5.0  # The client answers before; this only bounds its mistakes.


def visible_topics(client: AdminClient | Consumer, timeout_s: float) -> dict[str, Any]:
    """Return the metadata of topics by sorted name, without Kafka's internal ones."""
    found = client.list_topics(timeout=timeout_s).topics
    return {name: found[name] for name in sorted(found) if not name.startswith("__")}


def make_topic(
    client: AdminClient, new: NewTopic, timeout_s: float, *, is_try: bool = False
) -> bool:
    """Create a topic, or only check that it can be. Return False if it exists by now."""
    asked = client.create_topics([new], request_timeout=timeout_s, validate_only=is_try)
    return _is_done(asked, timeout_s, KafkaError.TOPIC_ALREADY_EXISTS)


def grow_topic(client: AdminClient, topic: str, partition_count: int, timeout_s: float) -> bool:
    """Increase a topic's partitions. Return False if it has as many by now."""
    wanted = [NewPartitions(topic, partition_count)]
    asked = client.create_partitions(wanted, request_timeout=timeout_s)
    return _is_done(asked, timeout_s, KafkaError.INVALID_PARTITIONS)


def settings_of(client: AdminClient, kind: Any, name: str, timeout_s: float) -> dict[str, Any]:
    """Return the settings of a topic or a broker, sorted by name."""
    asked = client.describe_configs([ConfigResource(kind, name)], request_timeout=timeout_s)
    return dict(sorted(answer_of(asked, timeout_s).items()))


def answer_of(asked: Mapping[Any, Any], timeout_s: float) -> Any:
    """Return the answer to a request about one topic, broker or group."""
    [future] = asked.values()
    return future.result(timeout_s + _LATE_S)


def patiently(call: Callable[[], T], wait: Callable[[KafkaException], object]) -> T:
    """Return the result of a call; repeat it while the cluster is not ready.

    Args:
        call: Raises ``KafkaException``.
        wait: Called with the error before each repetition; raises to end the wait.
    """
    while True:
        try:
            return call()
        except KafkaException as error:
            if not is_outage(error.args[0]) and error.args[0].code() not in _NOT_YET:
                raise
            wait(error)


def _is_done(asked: Mapping[str, Any], timeout_s: float, code_if_done_before: int) -> bool:
    try:
        answer_of(asked, timeout_s)
    except KafkaException as error:
        if error.args[0].code() != code_if_done_before:
            raise
        return False
    return True
