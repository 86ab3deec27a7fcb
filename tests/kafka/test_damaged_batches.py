"""Batches that a broker has damaged on its disk: none is read as if it were whole."""

import asyncio

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from bicycle_runtime.connectors.kafka.errors import KAFKA_BATCH_DAMAGED
from bicycle_streams import At, connect
from bicycle_streams.errors import StreamError
from tests.kafka.kafka_feeding import source_run
from tests.kafka_broker import broker_in, create_topic, end
from tests.raising import raises

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
COUNT = 5


def feed_batches(broker, topic, codec):
    """Write three batches of five messages."""
    producer = Producer(
        {**broker.client_settings(), "compression.type": codec, "linger.ms": 60_000}
    )
    for batch in range(3):
        for number in range(COUNT):
            producer.produce(topic, f"{batch}-{number} {'x' * 100}", partition=0)
        assert producer.flush(30) == 0


def damage(folder):
    """Flip one bit at the end of the second batch."""
    [segment] = folder.glob("*.log")
    data = bytearray(segment.read_bytes())
    behind = 0
    for _ in range(2):
        behind += 12 + int.from_bytes(data[behind + 8 : behind + 12])
    data[behind - 10] ^= 1
    segment.write_bytes(data)


@pytest.fixture(scope="module")
def damaged_broker(tmp_path_factory, guard_broker):
    """A broker with a topic for each codec, each with a damaged batch in the middle."""
    broker = broker_in(tmp_path_factory.mktemp("damaged"))
    guard_broker(broker)
    try:
        broker.start()
        admin = AdminClient(broker.client_settings())
        for codec in CODECS:
            create_topic(admin, codec, partitions=1)
            feed_batches(broker, codec, codec)
        broker.stop()
        for codec in CODECS:
            damage(next(broker.folder.glob(f"data/**/{codec}-0")))
        broker.start()
        yield broker
    finally:
        end(broker)


@pytest.mark.parametrize("codec", CODECS)
def test_a_job_stops_at_a_damaged_batch_and_names_it(damaged_broker, tmp_path, codec):
    run = source_run(damaged_broker, tmp_path, str, topics=[codec]).start()
    try:
        with raises(KAFKA_BATCH_DAMAGED, match=f"{codec}/0 failed: .* offset {COUNT} "):
            run.drain(count=3 * COUNT)
    finally:
        run.stop()


@pytest.mark.parametrize("codec", CODECS)
def test_a_program_is_told_of_a_damaged_batch_and_reads_on_after_it(damaged_broker, codec):
    async def scenario():
        uri = f"kafka://{damaged_broker.bootstrap}"
        async with asyncio.timeout(60), connect(uri) as streamer:
            consumer = await streamer.create_consumer(codec, start="earliest")
            found = [(await consumer.next()).as_str() for _ in range(COUNT)]
            with pytest.raises(StreamError, match=f"offset {COUNT} "):
                await consumer.next()
            await consumer.rewind(At(2 * COUNT))
            return found + [(await consumer.next()).as_str() for _ in range(COUNT)]

    found = asyncio.run(scenario())

    assert [text[:3] for text in found] == [
        f"{batch}-{n}" for batch in (0, 2) for n in range(COUNT)
    ]
