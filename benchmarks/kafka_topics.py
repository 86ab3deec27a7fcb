"""A broker for benchmarks, topics filled with events, and the check of what a contender wrote.

Outputs go to topics whose messages carry the time at which the broker appended them: reading one
gives both the check and the pace of its writer, measured alike for every system. Readers are
``read_committed``, so output that was never committed is missing, which is an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import msgspec
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from measuring import WrongOutputError
from workloads import Events, scratch

from bicycle_runtime.cli.parameters import home
from bicycle_runtime.dev.broker_options import BrokerOptions
from bicycle_runtime.dev.kafka_broker import KafkaBroker
from bicycle_runtime.dev.kafka_topics import create_topic, open_admin

__all__ = ["PARTITIONS", "READING", "Output", "Place", "kafka_place"]

PARTITIONS = 4
# What every reader of a backlog needs; ours has it by default, the others get it.
READING = {"fetch.queue.backoff.ms": 1, "queued.min.messages": 20_000}
_WAIT_S = 30.0
_CALL_COUNT = 10_000


class Event(msgspec.Struct):
    """What a check reads of an event."""

    id: int
    user: str
    cents: int
    quantity: int
    at: int


class Order(msgspec.Struct):
    """What the job ``kafka_map`` writes."""

    id: int
    user: str
    total: int
    at: int


class UserCount(msgspec.Struct):
    """What the job ``kafka_count`` writes."""

    user: str
    count: int


@dataclass(slots=True)
class Output:
    """When the broker appended messages: milliseconds to number."""

    counts: Counter[int] = field(default_factory=Counter)

    @property
    def whole_rate(self) -> float:
        """Messages per second from the first to the last."""
        return self._rate(0)

    @property
    def steady_rate(self) -> float:
        """Messages per second once a third was written."""
        return self._rate(self.counts.total() // 3)

    def _rate(self, skipped: int) -> float:
        done, times = 0, sorted(self.counts)
        for time_ms in times:
            done += self.counts[time_ms]
            if done >= max(skipped, 1) and time_ms < times[-1]:
                return (self.counts.total() - done) * 1000 / (times[-1] - time_ms)
        raise WrongOutputError("all messages were appended in one millisecond")


@dataclass(slots=True)
class Place:
    """A running broker."""

    broker: KafkaBroker
    admin: AdminClient
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def bootstrap(self) -> str:
        """Where it is reached."""
        return self.broker.bootstrap

    def create(self, name: str) -> str:
        """Create a topic and return its name, made unique."""
        name = f"{name}-{next(self._numbers)}"
        config = {"message.timestamp.type": "LogAppendTime"}
        create_topic(self.admin, name, partitions=PARTITIONS, config=config)
        return name

    def delete(self, name: str) -> None:
        """Remove a topic, and wait until the broker has taken note."""
        self.admin.delete_topics([name], operation_timeout=_WAIT_S)[name].result(_WAIT_S)

    def fill(self, events: Events) -> str:
        """Return a new topic with these events under the user as key."""
        topic = self.create("events")
        settings = {"partitioner": "murmur2_random", "queue.buffering.max.messages": 1_000_000}
        producer = Producer({**self.broker.client_settings(), **settings})
        decode = msgspec.json.Decoder(Event).decode
        for file in sorted(events.folder().iterdir()):
            lines = file.read_bytes().splitlines()
            for start in range(0, len(lines), _CALL_COUNT):
                batch = [
                    {"value": line, "key": decode(line).user.encode()}
                    for line in lines[start : start + _CALL_COUNT]
                ]
                if producer.produce_batch(topic, batch) != len(batch):
                    raise WrongOutputError(f"the client did not take all messages of {topic}")
                while len(producer) > PARTITIONS * _CALL_COUNT:
                    producer.poll(0.01)
        if producer.flush(_WAIT_S):
            raise WrongOutputError(f"the broker did not take all messages of {topic}")
        return topic

    def consumer(self, **settings: object) -> Consumer:
        """Return a reader that sees what is committed."""
        own = {
            "group.id": "benchmark", "isolation.level": "read_committed",
            "enable.auto.commit": False, **READING, **settings,
        }  # fmt: skip
        return Consumer({**self.broker.client_settings(), **own})

    def ends(self, topic: str, consumer: Consumer) -> dict[int, int]:
        """Return the end of each partition, as a ``read_committed`` reader sees it."""
        return {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=_WAIT_S)[
                1
            ]
            for number in range(PARTITIONS)
        }

    def messages(self, topic: str) -> Iterator[list[Message]]:
        """Yield all committed messages of a topic, in order within each partition."""
        consumer = self.consumer(**{"enable.partition.eof": True})
        try:
            consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
            ended: set[int] = set()
            while len(ended) < PARTITIONS:
                found = consumer.consume(_CALL_COUNT, 0.2)
                ended.update(m.partition() for m in found if m.error() is not None)
                yield [message for message in found if message.error() is None]
        finally:
            consumer.close()

    def check_orders(self, topic: str, events: Events) -> Output:
        """Check that each event has its order, once, under its user as key.

        Raises:
            WrongOutputError: it has not.
        """
        output, totals = Output(), truth_of(events)
        decode = msgspec.json.Decoder(Order).decode
        for messages in self.messages(topic):
            for message in messages:
                order = decode(message.value())
                if totals.pop(order.id, None) != order.total or message.key() != _key(order.user):
                    raise WrongOutputError(f"{topic}: {order} is twice there, or wrong")
            output.counts.update(message.timestamp()[1] for message in messages)
        if totals:
            raise WrongOutputError(f"{topic}: {len(totals)} orders are missing")
        return output

    def check_counts(self, topic: str, events: Events) -> Output:
        """Check that each user has the counts 1 to n, in order, under the user as key.

        Raises:
            WrongOutputError: one has not.
        """
        output, found = Output(), Counter[str]()
        decode = msgspec.json.Decoder(UserCount).decode
        for messages in self.messages(topic):
            for message in messages:
                counted = decode(message.value())
                found[counted.user] += 1
                if found[counted.user] != counted.count or message.key() != _key(counted.user):
                    raise WrongOutputError(f"{topic}: {counted} is not count {found[counted.user]}")
            output.counts.update(message.timestamp()[1] for message in messages)
        if found != users_of(events):
            raise WrongOutputError(f"{topic}: {found.total()} counts, expected {events.count}")
        return output


def _key(user: str) -> bytes:
    return user.encode()


def truth_of(events: Events) -> dict[int, int]:
    """Return the total of each event by its id."""
    return {event.id: event.cents * event.quantity for event in _events(events)}


def users_of(events: Events) -> Counter[str]:
    """Return how many events each user has."""
    return Counter(event.user for event in _events(events))


def _events(events: Events) -> Iterator[Event]:
    decode = msgspec.json.Decoder(Event).decode_lines
    for file in sorted(events.folder().iterdir()):
        yield from decode(file.read_bytes())


@contextmanager
def kafka_place() -> Iterator[Place]:
    """Give a new broker on any free port, and stop and remove it afterwards."""
    with scratch("kafka") as folder:
        options = BrokerOptions(folder=Path(folder) / "broker", heap_mb=512)
        broker = KafkaBroker(options, cache_dir=home().cache_dir)
        try:
            broker.start()
            yield Place(broker, open_admin(broker.client_settings()))
        finally:
            if broker.is_running():
                broker.stop()
