"""Jobs that read and write streams of Pulsar, in one process: driver and server are killed."""

import asyncio

import pulsar
import pytest

from bicycle_runtime.testing import Harness
from bicycle_streams import connect
from bicycle_streams.pulsar.errors import POSITION_UNUSABLE
from tests.raising import raises
from tests.waiting import until

BATCH_MAX = 4_096  # Messages of one entry that a sequence has room for.
PATIENT = {"connect_timeout_ms": 60_000}  # A server that was just started takes its time.


async def add(server, key, numbers):
    async with connect(server.uri, PATIENT) as streamer:
        producer = await streamer.create_producer(key)
        for number in numbers:
            producer.send(str(number))


async def read(server, key):
    async with connect(server.uri, PATIENT) as streamer:
        consumer = await streamer.create_consumer(key, start="earliest", is_live=False)
        return [message.as_str() async for message in consumer]


def run_until(harness, condition):
    def has_come():
        harness.run_epoch()
        return condition()

    until(has_come, lambda: f"more than {harness.results('out')}")


@pytest.mark.parametrize("point", ["before_seal", "after_seal"])
def test_a_job_counts_each_message_once_through_kills(pulsar_server, new_key, point):
    key = new_key("in")

    def job(env):
        uri = f"{pulsar_server.uri}/{key}?group=job"
        env.from_uri(uri).uid("in").map(int).uid("numbers").collect("out")

    asyncio.run(add(pulsar_server, key, range(10)))
    with Harness(job) as harness:
        run_until(harness, lambda: len(harness.results("out")) == 10)
        harness.fail_at(point)
        asyncio.run(add(pulsar_server, key, range(10, 20)))
        run_until(harness, lambda: harness.crash_count == 1)
        pulsar_server.kill()
        harness.run_epoch()
        pulsar_server.start()
        asyncio.run(add(pulsar_server, key, range(20, 30)))
        run_until(harness, lambda: len(harness.results("out")) >= 30)
        harness.crash()
        asyncio.run(add(pulsar_server, key, [30]))
        run_until(harness, lambda: 30 in harness.results("out"))
        assert harness.results("out") == list(range(31))


def test_a_job_copies_what_is_there_and_ends(pulsar_server, new_key):
    source, target = new_key("from"), new_key("to")

    def job(env):
        numbers = env.from_uri(f"{pulsar_server.uri}/{source}?group=job&bounded=true").uid("in")
        numbers.to_uri(f"{pulsar_server.uri}/{target}").uid("out")

    asyncio.run(add(pulsar_server, source, range(100)))
    with Harness(job, real_sinks=["out"]) as harness:
        harness.run()

    assert asyncio.run(read(pulsar_server, target)) == [str(n) for n in range(100)]


def test_a_message_without_a_sequence_ends_a_job_with_an_error_that_names_it(
    pulsar_server, new_key
):
    key = new_key("in")

    def job(env):
        env.from_uri(f"{pulsar_server.uri}/{key}?group=job").uid("in").collect("out")

    client = pulsar.Client(pulsar_server.uri, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(
        key, batching_enabled=True, batching_max_messages=5_000,
        batching_max_publish_delay_ms=60_000, max_pending_messages=10_000,
    )  # fmt: skip
    for _ in range(BATCH_MAX + 1):
        producer.send_async(b"x", lambda *_: None)
    producer.flush()
    client.close()

    with Harness(job) as harness, raises(POSITION_UNUSABLE, match=str(BATCH_MAX)):
        run_until(harness, lambda: False)
