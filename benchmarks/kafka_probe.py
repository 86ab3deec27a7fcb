"""Sends events at a steady pace, reads what becomes of them, and says how long each one took.

``python kafka_probe.py BROKERS SOURCE TARGET RATE SECONDS WARM_UP_SECONDS``. An event carries the
time at which it was handed to the producer; its latency ends when a ``read_committed`` consumer
gives its result to this program. Measuring begins when a first event has come back and the way is
warm. At the end it says one line of JSON: the latencies in ms and how many events were sent, lost,
and found twice.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from confluent_kafka import Consumer, Producer, TopicPartition

__all__ = ["Probe"]

_EVENT = (
    '{{"id":{id},"user":"user-{user:05}","kind":"view","cents":{cents},"quantity":3,"at":{at}}}'
)
_USERS = 10_000
_OPEN_S = 120.0
_LATE_S = 30.0
_STEP_S = 0.001


@dataclass(slots=True)
class Probe:
    """One sender and reader.

    Args:
        producer: Sends at once.
        consumer: Is assigned to all of the target.
        source: Topic.
        late_s: How long to wait for what is still under way at the end.
    """

    producer: Producer
    consumer: Consumer
    source: str
    late_s: float = _LATE_S
    sent_count: int = 0
    twice_count: int = 0
    latencies_ms: dict[int, float] = field(default_factory=dict)

    @property
    def lost_count(self) -> int:
        """How many events have not come back."""
        return self.sent_count - len(self.latencies_ms)

    def open(self) -> None:
        """Send single events until one has come back, and then wait for the others."""
        deadline = time.time() + _OPEN_S
        while not self.latencies_ms:
            self.send()
            self.take(0.5)
            if time.time() > deadline:
                raise RuntimeError(f"nothing came back within {_OPEN_S:g} s")
        self._wait_for_all()

    def run(self, rate: int, seconds: float) -> None:
        """Send at a pace; what is due is sent every millisecond."""
        began, first = time.time(), self.sent_count
        last = first + round(rate * seconds)
        while self.sent_count < last:
            due = first + int((time.time() - began) * rate)
            while self.sent_count < min(due, last):
                self.send()
            self.take(_STEP_S)
        self._wait_for_all()

    def send(self) -> None:
        """Send one event."""
        number, now_us = self.sent_count, round(time.time() * 1e6)
        text = _EVENT.format(id=number, user=number % _USERS, cents=number % 9_999, at=now_us)
        self.producer.produce(self.source, text, f"user-{number % _USERS:05}")
        self.producer.poll(0)
        self.sent_count += 1

    def take(self, wait_s: float) -> None:
        """Take what is there; wait for a first message at most so long."""
        message = self.consumer.poll(wait_s)
        found = [message] if message is not None else []
        found += self.consumer.consume(1_000, 0)
        now_us = time.time() * 1e6
        for message in found:
            if message.error() is not None:
                raise RuntimeError(message.error().str())
            order = json.loads(message.value())
            self.twice_count += order["id"] in self.latencies_ms
            self.latencies_ms.setdefault(order["id"], (now_us - order["at"]) / 1000)

    def _wait_for_all(self) -> None:
        deadline = time.time() + self.late_s
        while self.lost_count and time.time() < deadline:
            self.take(0.1)


def _settings(brokers: str) -> tuple[dict[str, object], dict[str, object]]:
    common = {"bootstrap.servers": brokers}
    reading = {
        **common, "group.id": "probe", "isolation.level": "read_committed",
        "enable.auto.commit": False, "auto.offset.reset": "earliest",
        "fetch.queue.backoff.ms": 1, "fetch.wait.max.ms": 10,
    }  # fmt: skip
    return {**common, "linger.ms": 1, "partitioner": "murmur2_random"}, reading


def _assigned(consumer: Consumer, target: str) -> Iterator[TopicPartition]:
    for number in consumer.list_topics(target, timeout=30).topics[target].partitions:
        yield TopicPartition(target, number, 0)


def main() -> None:
    brokers, source, target, rate, seconds, warm_s = sys.argv[1:]
    sending, reading = _settings(brokers)
    consumer = Consumer(reading)
    consumer.assign(list(_assigned(consumer, target)))
    probe = Probe(Producer(sending), consumer, source)
    try:
        probe.open()
        probe.run(int(rate), float(warm_s))
        before = probe.sent_count
        probe.run(int(rate), float(seconds))
        probe.producer.flush(_LATE_S)
    finally:
        consumer.close()
    told = [ms for number, ms in probe.latencies_ms.items() if number >= before]
    lost = probe.lost_count
    answer = {"sent": probe.sent_count - before, "lost": lost, "twice": probe.twice_count}
    print(json.dumps({**answer, "latencies_ms": [round(ms, 2) for ms in sorted(told)]}))


if __name__ == "__main__":
    main()
