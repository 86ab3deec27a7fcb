"""A Kafka sink without an engine: stage, seal, publish, start again; and a reader of topics."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import cloudpickle
from confluent_kafka import Consumer, KafkaError, TopicPartition

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.connectors.registry import create_sink
from bicycle_runtime.contract import ConnectorSpec, DriverServices, StagedFile, WriterTask
from bicycle_sdk.clock import SystemClock

WAIT_S = 30.0
_COMMIT_S = 5.0


@dataclass(frozen=True)
class Found:
    """A message as a reader sees it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]] | None
    timestamp_ms: int


@dataclass
class SinkRun:
    """One job's sink over its checkpoint folder; `restart` is what a crash and a new start do."""

    folder: Path
    brokers: str
    topic: str
    properties: dict[str, Any] = field(default_factory=dict)
    payloads: dict[str, Any] = field(default_factory=dict)
    record_type: Any = None
    job: str = "job"
    epoch_interval_ms: int = 0
    epoch: int = 0
    state: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.storage = LocalStorage(str(self.folder), is_synced=False)
        self.sink = create_sink(self.spec())

    def spec(self) -> ConnectorSpec:
        given = {"brokers": self.brokers, "topic": self.topic, **self.properties}
        return ConnectorSpec(
            vertex_id="out",
            connector_type="kafka",
            properties={name: value for name, value in given.items() if value is not None},
            payloads=self.payloads,
            record_type=self.record_type,
        )

    @property
    def services(self) -> DriverServices:
        return DriverServices(
            storage=self.storage,
            prefix="connectors/out",
            clock=SystemClock(),
            collected={},
            console=print,
            job=self.job,
            epoch_interval_ms=self.epoch_interval_ms,
        )

    def start(self) -> SinkRun:
        self.sink.start(self.services, self.state)
        self.factory = cloudpickle.loads(cloudpickle.dumps(self.sink.writer()))
        return self

    def stage(self, epoch: int, records: list[list[Any]], attempt: str = "a") -> list[StagedFile]:
        """Write an epoch's records, one list per subtask."""
        staged: list[StagedFile] = []
        for subtask, values in enumerate(records):
            if values:
                prefix = f"staged/out/{epoch:012}/0-{subtask}-{attempt}"
                task = WriterTask(storage=self.storage, prefix=prefix, epoch=epoch, subtask=subtask)
                writer = self.factory.open(task)
                writer.write(writer.prepare(values, None))
                staged += writer.finish()
        return staged

    def seal(self, *records: list[Any]) -> dict[str, Any]:
        """Stage and seal the next epoch."""
        self.epoch += 1
        state = self.sink.prepare(self.epoch, self.stage(self.epoch, list(records)), is_last=False)
        self.state = json.loads(json.dumps(state))
        return self.state

    def publish(self) -> None:
        self.sink.publish(self.epoch, self.state)

    def run(self, *records: list[Any]) -> None:
        """Seal and publish the next epoch, one list of records per subtask."""
        self.seal(*records)
        self.publish()

    def restart(self, **changes: Any) -> SinkRun:
        """Start again from what is sealed, and publish that again, as the engine does."""
        self.sink.stop()
        run = replace(self, **changes).start()
        if run.epoch:
            run.publish()
        return run

    def zombie(self) -> SinkRun:
        """Return this run as it is, and start another in its place: the old one lives on."""
        old = replace(self)
        old.sink, old.factory = self.sink, self.factory
        self.sink = create_sink(self.spec())
        self.start()
        return old


def messages_in(
    brokers: str | dict[str, str], topic: str, isolation: str = "read_committed"
) -> list[Found]:
    """Return all messages of a topic, by partition and offset; `brokers` may be all settings.

    A commit returns before each partition knows of it: where a transaction seems to be open, its
    end is waited for, for a while.
    """
    consumer = Consumer(
        {
            **({"bootstrap.servers": brokers} if isinstance(brokers, str) else brokers),
            "group.id": "look",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        ends: dict[int, int] = {}
        deadline = time.monotonic() + _COMMIT_S
        found = []
        while len(ends) < len(partitions) or not (
            time.monotonic() > deadline or _is_all_committed(consumer, topic, ends)
        ):
            for message in consumer.consume(10_000, timeout=0.05):
                if message.error() is None:
                    found.append(_found(message))
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    ends[message.partition()] = message.offset()
    finally:
        consumer.close()
    return sorted(found, key=lambda item: (item.partition, item.offset))


def _is_all_committed(consumer: Consumer, topic: str, ends: dict[int, int]) -> bool:
    """Tell whether no transaction is open behind what was read."""
    places = [TopicPartition(topic, number) for number in ends]
    known = [consumer.get_watermark_offsets(place, cached=True)[1] for place in places]
    return all(end >= high for end, high in zip(ends.values(), known, strict=True))


def values_in(brokers: str, topic: str, isolation: str = "read_committed") -> list[str]:
    """Return the values of a topic as text."""
    found = messages_in(brokers, topic, isolation)
    return [message.value.decode() for message in found if message.value is not None]


def _found(message: Any) -> Found:
    return Found(
        partition=message.partition(),
        offset=message.offset(),
        key=message.key(),
        value=message.value(),
        headers=message.headers(),
        timestamp_ms=message.timestamp()[1],
    )
