"""What sending to and reading from Kafka cost beside the bare client, and what a relay costs.

All send the same messages to topics of one broker on this machine, and read one of these. The cost
is the processor time of this process, without the broker; rates by the clock stand beside it, and
are those of a machine that the broker shares. The broker counts what arrived.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition
from kafka_topics import PARTITIONS, READING, kafka_place
from measuring import Report, Table, Target, WrongOutputError, arguments, ratios
from workloads import scratch

from bicycle_streams import StreamUrl, connect
from bicycle_streams.tools.copying import relay
from bicycle_streams.tools.opening import Tally

BATCH = 1_000
WAITING_MAX = 20_000
PAYLOAD = b"x" * 256
BARE, BATCHES, RELAY = "bare client", "send in batches", "relay from a file"
BARE_READ, BATCHES_READ = "bare client, read", "read in batches"
RELAY_MIN = 200_000
BARE_SHARE_MIN = 0.7
Rates = dict[str, list[tuple[float, float]]]


def main() -> None:
    """Measure and tell."""
    options = arguments(__doc__, repeats=3, add=_add_options)
    count = 20_000 if options.quick else options.messages
    rates: Rates = {}
    with kafka_place() as place, scratch("stream-relay") as folder:
        reader = place.consumer()
        source = f"file://{folder}/events.ss/a"
        asyncio.run(_fill(source, count))
        works: dict[str, Callable[[str], None]] = {
            BARE: lambda topic: _send_bare(place.bootstrap, topic, count),
            BATCHES: lambda topic: asyncio.run(_send(place.bootstrap, topic, count)),
            RELAY: lambda topic: asyncio.run(_relay(source, place.bootstrap, topic)),
        }
        for _ in range(options.repeats):
            for name, work in works.items():
                topic = place.create(name.replace(" ", "-"))
                rates.setdefault(name, []).append(_rate(work, topic, count))
                if sum(place.ends(topic, reader).values()) != count:
                    raise WrongOutputError(f"{name}: the broker has another number of messages")
            reads: dict[str, Callable[[str], None]] = {
                BARE_READ: lambda topic: _read_bare(place.bootstrap, topic, count),
                BATCHES_READ: lambda topic: asyncio.run(_read(place.bootstrap, topic, count)),
            }
            for name, work in reads.items():
                rates.setdefault(name, []).append(_rate(work, topic, count))
        reader.close()
    _tell(options, rates, count)


def _rate(work: Callable[[str], None], topic: str, count: int) -> tuple[float, float]:
    """Return messages a second of processor time, and by the clock."""
    used, begun = time.process_time(), time.perf_counter()
    work(topic)
    return count / (time.process_time() - used), count / (time.perf_counter() - begun)


async def _fill(source: str, count: int) -> None:
    url = StreamUrl.parse(source)
    async with connect(url, {"create": "if-missing"}) as streamer:
        producer = await streamer.create_producer(url.stream_key)
        for _ in range(0, count, BATCH):
            await producer.send_many([PAYLOAD] * BATCH)


def _send_bare(bootstrap: str, topic: str, count: int) -> None:
    """Send as a program does that counts what was delivered."""
    settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5}
    producer = Producer({**settings, "queue.buffering.max.messages": 5 * WAITING_MAX})
    delivered = 0

    def note(error: object, _message: object) -> None:
        nonlocal delivered
        if error is None:
            delivered += 1

    for number in range(count):
        producer.produce(topic, PAYLOAD, on_delivery=note)
        if number % BATCH == 0:
            producer.poll(0)
        while len(producer) >= 4 * WAITING_MAX:
            producer.poll(0.01)
    producer.flush()
    if delivered != count:
        raise WrongOutputError(f"{delivered} messages were delivered")


async def _send(bootstrap: str, topic: str, count: int) -> None:
    async with connect(f"kafka://{bootstrap}") as streamer:
        producer = await streamer.create_producer(topic)
        for begin in range(0, count, BATCH):
            producer.send_many([PAYLOAD] * BATCH)
            if begin % WAITING_MAX == WAITING_MAX - BATCH:
                await producer.flush()
        await producer.flush()


def _read_bare(bootstrap: str, topic: str, count: int) -> None:
    """Read as a program does that keeps of each message what one of the toolkit has."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "bare", "enable.auto.commit": False}
    consumer = Consumer({**settings, **READING})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    size = 0
    while size < count * len(PAYLOAD):
        batch = []
        for message in consumer.consume(BATCH, 1.0):
            if message.error() is not None:
                raise WrongOutputError(str(message.error()))
            _, time_ms = message.timestamp()
            place = (message.topic(), message.partition(), message.offset(), time_ms)
            batch.append((*place, message.value()))
        size += sum(len(payload) for *_, payload in batch)
    consumer.close()


async def _read(bootstrap: str, topic: str, count: int) -> None:
    async with connect(f"kafka://{bootstrap}") as streamer:
        consumer = await streamer.create_consumer(topic, start="earliest", is_live=False)
        size = 0
        async for batch in consumer.batches(BATCH):
            size += sum(len(message.payload) for message in batch)
        if size != count * len(PAYLOAD):
            raise WrongOutputError(f"{size} bytes were read")


async def _relay(source: str, bootstrap: str, topic: str) -> None:
    await relay(
        StreamUrl.parse(source),
        StreamUrl.parse(f"kafka://{bootstrap}/{topic}"),
        Tally(),
        source_words={},
        target_words={},
        start="earliest",
        is_live=False,
    )


def _tell(options: argparse.Namespace, rates: Rates, count: int) -> None:
    rows = [
        [
            name,
            *(f"{statistics.median(rate[part] for rate in found):,.0f}" for part in (0, 1)),
            *(f"{max(rate[part] for rate in found):,.0f}" for part in (0, 1)),
        ]
        for name, found in rates.items()
    ]
    used = {name: [rate for rate, _ in found] for name, found in rates.items()}
    shares = {
        f"{own} ÷ bare client": ratios(used[own], used[bare])
        for own, bare in ((BATCHES, BARE), (BATCHES_READ, BARE_READ))
    }
    Report(
        name="stream-relay",
        claim="The toolkit writes to and reads from Kafka at 0.7 of the throughput of the bare "
        "client, and relays 200,000 messages from a file per second of processor time.",
        payload=f"{count:,} messages of {len(PAYLOAD)} bytes, four partitions",
        method=f"{options.repeats} rounds in turns; processor time of this process, "
        "without the broker, which shares the machine; the broker counts what arrived",
        tables=[
            Table(
                title="Messages a second",
                columns=["", "of the processor", "by the clock", "best", "best by the clock"],
                rows=rows,
            )
        ],
        targets=[
            *(
                Target(name=name, value=median, best=best, low=BARE_SHARE_MIN, unit="x")
                for name, (median, best) in shares.items()
            ),
            Target(
                name=RELAY,
                value=statistics.median(used[RELAY]),
                best=max(used[RELAY]),
                low=RELAY_MIN,
                unit="/s",
            ),
        ],
    ).tell(options)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--messages", type=int, default=400_000, help="default %(default)s")


if __name__ == "__main__":
    main()
