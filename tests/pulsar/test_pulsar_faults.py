"""Consumers on connections with faults: late answers of seeks, and brokers that send nothing."""

import asyncio

import pytest

from bicycle_runtime.testing import Harness
from bicycle_sdk.clock import ManualClock
from bicycle_streams import At, connect
from bicycle_streams.addresses import StreamerUri, StreamKey
from bicycle_streams.consuming import Subscription
from bicycle_streams.pulsar.cluster import Cluster
from bicycle_streams.pulsar.consuming import PulsarConsumer
from bicycle_streams.pulsar.options import PulsarOptions
from bicycle_streams.testing.cases import lately_ms, numbers, send
from tests.pulsar.faults import DeafConsumer, LateAnswer, UnheardProducer

COUNT = 10
ALONE = {}
RESUMABLE = {"mode": "resumable", "group": "g"}
LOAD_BALANCED = {"mode": "load-balanced", "group": "g"}
SILENCE_MS = 20_000


@pytest.fixture
def faulty(pulsar_server):
    """Give new connections a fault, to the end of the test."""
    yield pulsar_server.set_fault
    pulsar_server.set_fault(lambda: lambda data, _: data)


def run(server, scenario):
    async def whole():
        async with asyncio.timeout(60), connect(server.uri) as streamer:
            return await scenario(streamer)

    return asyncio.run(whole())


async def send_in_time(streamer, key, begin_ms):
    producer = await streamer.create_producer(key)
    return [(await producer.send(str(n), timestamp_ms=begin_ms + n)).sequence for n in range(COUNT)]


@pytest.mark.parametrize("how", [ALONE, RESUMABLE, LOAD_BALANCED], ids=str)
def test_a_seek_whose_answer_comes_late_loses_no_message(pulsar_server, new_key, faulty, how):
    key, begin_ms = new_key("late"), lately_ms()
    faulty(LateAnswer)

    async def scenario(streamer):
        sequences = await send_in_time(streamer, key, begin_ms)
        consumer = await streamer.create_consumer(key, start="earliest", **how)
        for first in (0, 4):
            await consumer.seek(begin_ms + first)
            assert await numbers(consumer, COUNT - first) == list(range(first, COUNT))
            await consumer.rewind(At(sequences[first]))
            assert await numbers(consumer, COUNT - first) == list(range(first, COUNT))

    run(pulsar_server, scenario)


def test_a_rewind_is_not_undone_by_acknowledgments_before_it(pulsar_server, new_key):
    key = new_key("acknowledged")

    async def scenario(streamer):
        sequences = await send(streamer, key, range(COUNT))
        consumer = await streamer.create_consumer(key, start="earliest", **RESUMABLE)
        for _ in range(3):
            taken = [await consumer.next() for _ in range(COUNT)]
            consumer.ack(taken[-1])
            await consumer.commit()
            await consumer.rewind(At(sequences[0]))
        assert await numbers(consumer, COUNT) == list(range(COUNT))

    run(pulsar_server, scenario)


@pytest.mark.parametrize("how", [ALONE, RESUMABLE], ids=str)
def test_a_client_to_which_the_broker_sends_nothing_is_replaced(
    pulsar_server, new_key, faulty, how
):
    key = new_key("deaf")
    run(pulsar_server, lambda streamer: send(streamer, key, range(COUNT)))
    faulty(DeafConsumer)
    clock = ManualClock()
    cluster = Cluster(StreamerUri.parse(pulsar_server.uri), PulsarOptions())

    async def scenario():
        subscription = Subscription(keys=(StreamKey(key),), start="earliest", **how)
        consumer = await PulsarConsumer.open(cluster, subscription, clock=clock)
        waiting = asyncio.create_task(numbers(consumer, COUNT))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        clock.advance(SILENCE_MS)
        async with asyncio.timeout(60):
            assert await waiting == list(range(COUNT))
        await consumer.end()

    cluster.open()
    try:
        asyncio.run(scenario())
    finally:
        cluster.close()


# The clients of a consumer: for the last id, the reader, for the last id again, for the last
# message, for the move, and for the first message of the time.
@pytest.mark.parametrize("number", [3, 5])
def test_a_time_is_found_although_the_broker_sends_nothing_to_one_client(
    pulsar_server, new_key, faulty, number
):
    key, begin_ms = new_key("deaf-seek"), lately_ms()
    run(pulsar_server, lambda streamer: send_in_time(streamer, key, begin_ms))

    async def scenario(streamer):
        consumer = await streamer.create_consumer(key)
        await consumer.seek(begin_ms + 3)
        assert await numbers(consumer, COUNT - 3) == list(range(3, COUNT))

    faulty(lambda: DeafConsumer(number))
    run(pulsar_server, scenario)


def test_messages_without_a_receipt_are_sent_by_the_next_producer(
    pulsar_server, new_key, faulty, monkeypatch
):
    monkeypatch.setattr("bicycle_streams.pulsar.sending._SILENCE_MS", 1_000)
    key, faults = new_key("unheard"), []
    faulty(lambda: faults.append(UnheardProducer()) or faults[-1])

    async def scenario(streamer):
        producer = await streamer.create_producer(key)
        sent = producer.send("0"), producer.send_many(["1", "2"])
        for each in sent:
            await each
        consumer = await streamer.create_consumer(key, start="earliest")
        assert await numbers(consumer, 3) == [0, 1, 2]

    run(pulsar_server, scenario)

    assert sum(each.dropped_count for each in faults)


def test_a_job_sends_an_epoch_by_the_next_producer(
    pulsar_server, new_key, faulty, monkeypatch, tmp_path
):
    monkeypatch.setattr("bicycle_streams.pulsar.sending._SILENCE_MS", 1_000)
    key, faults = new_key("unheard-job"), []
    faulty(lambda: faults.append(UnheardProducer()) or faults[-1])

    def job(env):
        env.from_collection(["0", "1", "2"]).uid("in").to_uri(f"{pulsar_server.uri}/{key}").uid(
            "out"
        )

    with Harness(job, real_sinks=["out"]) as harness:
        harness.run()
    assert sum(each.dropped_count for each in faults)

    async def scenario(streamer):
        consumer = await streamer.create_consumer(key, start="earliest")
        assert await numbers(consumer, 3) == [0, 1, 2]

    run(pulsar_server, scenario)
