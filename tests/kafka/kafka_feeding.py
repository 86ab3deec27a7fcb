"""What the tests of the Kafka source share: messages in topics, and a source to read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from bicycle_runtime.contract import Budget, ConnectorSpec
from bicycle_runtime.testing.connectors.running import Epoch, SourceRun, services_in

__all__ = [
    "ONE",
    "feed",
    "feed_secure",
    "feed_transactions",
    "source_run",
    "values",
    "values_now",
]

ONE = Budget(record_count=1_000_000, byte_count=1 << 30, parallelism=1)


def feed(broker, topic: str, values: list[Any], *, partition: int = 0, **fields: Any) -> None:
    """Write values (text, bytes or None) to a partition, in order."""
    feed_secure(broker.client_settings(), topic, values, partition=partition, **fields)


def feed_secure(
    client_settings, topic: str, values: list[Any], *, partition: int = 0, **fields: Any
) -> None:
    """Write values as a user of these settings."""
    producer = Producer({**client_settings, "linger.ms": 0})
    errors = []
    for value in values:
        producer.produce(
            topic, value, partition=partition, on_delivery=lambda e, _: errors.append(e), **fields
        )
    assert producer.flush(30) == 0
    assert errors == [None] * len(values)


def feed_transactions(broker, topic: str, script: str, *, partition: int = 0) -> list[str]:
    """Write one transaction for each letter: ``c`` is committed, ``a`` aborted; two values each.

    Returns:
        The values that were committed.
    """
    producer = Producer({**broker.client_settings(), "transactional.id": f"feed-{topic}"})
    producer.init_transactions(30)
    committed = []
    for number, letter in enumerate(script):
        pair = [f"{letter}{number}-0", f"{letter}{number}-1"]
        producer.begin_transaction()
        for value in pair:
            producer.produce(topic, value, partition=partition)
        if letter == "c":
            producer.commit_transaction(30)
            committed += pair
        else:
            producer.flush(30)
            producer.abort_transaction(30)
    return committed


def values_now(broker, topic: str) -> list[bytes | None]:
    """Return what a plain consumer finds in partition 0."""
    settings = {"group.id": "looking", "enable.partition.eof": True, "enable.auto.commit": False}
    consumer = Consumer({**broker.client_settings(), **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.append(message.value())
    consumer.close()
    return found


def source_run(
    broker, folder: Path, record_type: Any = str, payloads: Any = None, **properties: Any
) -> SourceRun:
    """Return a run, not started, of a source vertex ``v`` with these properties."""
    spec = ConnectorSpec(
        vertex_id="v",
        connector_type="kafka",
        properties={"brokers": broker.bootstrap, **properties},
        payloads=payloads or {},
        record_type=record_type,
    )
    return SourceRun(spec, services_in(folder), is_publishing=True)


def values(epochs: list[Epoch]) -> list[Any]:
    """Return all records of some epochs."""
    return [value for epoch in epochs for value in epoch.values]
