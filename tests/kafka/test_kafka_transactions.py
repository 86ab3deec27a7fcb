"""Transactions of the Kafka backend of streams: whole, with positions, and of one producer."""

import asyncio
import itertools
import os
import signal
import subprocess
import sys

import pytest

from bicycle_streams import (
    CommitNotAllowedError,
    ProducerEndedError,
    StreamError,
    StreamUnsupportedError,
    connect,
)
from bicycle_streams.errors import FLUSH_TIMED_OUT
from bicycle_streams.kafka.errors import (
    NOT_DELIVERED,
    OUTSIDE_TRANSACTION,
    PRODUCER_FENCED,
    TRANSACTION_FAILED,
)
from tests.raising import raises

_numbers = itertools.count()
# Sends in a transaction, tells so, and waits to be killed.
_SENDER = """
import asyncio, sys
from bicycle_streams import connect

async def main(uri, topic):
    async with connect(uri, {"create": "if-missing", "transactional_id": topic}) as streamer:
        producer = await streamer.create_producer(topic)
        async with producer.transaction():
            producer.send("committed")
        async with producer.transaction():
            await producer.send("torn")
            print("sent", flush=True)
            await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


class Stop(Exception):
    """What a program raises in a transaction."""


@pytest.fixture
def topic():
    return f"transactions-{next(_numbers)}"


@pytest.fixture
def play(kafka_broker, topic):
    """Run a scenario with a streamer whose producers have transactions."""

    def run(scenario, **options):
        words = {"create": "if-missing", "transactional_id": topic, "linger_ms": 0, **options}

        async def whole():
            uri = f"kafka://{kafka_broker.bootstrap}"
            async with asyncio.timeout(120), connect(uri, words) as streamer:
                return await scenario(streamer)

        return asyncio.run(whole())

    return run


async def committed(streamer, topic):
    consumer = await streamer.create_consumer(topic, start="earliest", is_live=False)
    return [message.as_str() async for message in consumer]


def test_a_transaction_is_seen_at_its_end_and_an_aborted_one_never(topic, play):
    async def scenario(streamer):
        producer = await streamer.create_producer(topic)
        with raises(OUTSIDE_TRANSACTION):
            producer.send("outside")
        async with producer.transaction():
            receipt = await producer.send("a", key="k", headers={"n": "1"})
            producer.send_many(["b", "c"])
            live = await streamer.create_consumer(topic, start="earliest")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):  # A read to the end would wait for the end of this.
                    await live.next()
            await live.end()
        assert await committed(streamer, topic) == ["a", "b", "c"]
        with pytest.raises(Stop):
            async with producer.transaction() as inside:
                await inside.send("lost")
                inside.send_many(["lost"] * 100)
                raise Stop
        assert producer.in_flight_count == 0
        for call in (producer.send, lambda each: producer.send_many([each])):
            with raises(OUTSIDE_TRANSACTION):
                call("outside")
        async with producer.transaction():
            producer.send("d")
            with raises(TRANSACTION_FAILED):
                async with producer.clone().transaction():
                    raise AssertionError("one is open")
            producer.send("e")
        await producer.end()
        with pytest.raises(ProducerEndedError):
            async with producer.transaction():
                raise AssertionError("it has ended")
        return receipt.sequence, await committed(streamer, topic)

    assert play(scenario) == (0, ["a", "b", "c", "d", "e"])


def test_a_message_that_is_not_taken_aborts_what_was_sent_with_it(topic, play):
    async def scenario(streamer):
        producer = await streamer.create_producer(topic)
        with raises(NOT_DELIVERED):
            async with producer.transaction():
                producer.send("first")
                producer.send("x", shard_id=9)  # Found to be missing when the topic is known.
        async with producer.transaction():
            producer.send("second")
        return await committed(streamer, topic)

    assert play(scenario) == ["second"]


def test_leaving_the_streamer_in_a_transaction_aborts_it(topic, play):
    async def scenario(streamer):
        producer = await streamer.create_producer(topic)
        with pytest.raises(StreamError):
            async with producer.transaction():
                await producer.send("lost")
                await streamer.disconnect()
                producer.send("late")

    async def reading(streamer):
        return await committed(streamer, topic)

    play(scenario)
    assert play(reading) == []


def test_a_producer_goes_on_where_one_of_its_id_was_killed(kafka_broker, topic, play):
    uri = f"kafka://{kafka_broker.bootstrap}"
    words = [sys.executable, "-c", _SENDER, uri, topic]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "sent\n"
        os.kill(process.pid, signal.SIGKILL)

    async def scenario(streamer):
        producer = await streamer.create_producer(topic)
        async with producer.transaction():
            producer.send("next")
        return await committed(streamer, topic)

    assert play(scenario) == ["committed", "next"]


def test_a_producer_is_fenced_by_a_later_one_of_its_id(kafka_broker, topic, play):
    uri = f"kafka://{kafka_broker.bootstrap}"

    async def scenario(streamer):
        old = await streamer.create_producer(topic)
        async with connect(uri, {"transactional_id": topic}) as other:
            with raises(PRODUCER_FENCED):
                async with old.transaction():
                    await old.send("old")
                    new = await other.create_producer(topic)
                    old.send("older")
            async with new.transaction():
                new.send("new")
            with raises(PRODUCER_FENCED):
                async with old.transaction():
                    raise AssertionError("it is fenced")
        return await committed(streamer, topic)

    assert play(scenario) == ["new"]


@pytest.mark.parametrize("how", [{"mode": "resumable"}, {"mode": "load-balanced"}])
def test_positions_are_committed_with_what_follows_from_them(topic, play, how):
    """Each round is a run of its own, which dies after a transaction or within one."""
    source, subscription = f"{topic}-in", {"group": topic, "start": "earliest", **how}

    async def fill(streamer):
        producer = await streamer.create_producer(source)
        for n in range(100):
            producer.send(str(n))
        await producer.flush()

    async def copy(consumer, producer, *, fails):
        """Copy some messages in a transaction, and return whether the last one is copied."""
        batch = await consumer.next_batch(15)
        async with producer.transaction(consumer):
            for message in batch:
                await producer.send(message.payload)
                consumer.ack(message)
            if fails:
                raise Stop
        return batch[-1].payload == b"99"

    async def round_of(streamer):
        consumer = await streamer.create_consumer(source, **subscription)
        producer = await streamer.create_producer(topic)
        for fails in (False, True, True, False):
            if not fails and await copy(consumer, producer, fails=False):
                return True
            if fails:
                with pytest.raises(Stop):
                    await copy(consumer, producer, fails=True)
        consumer.ack(await consumer.next())  # Nobody commits it.
        return False

    async def reading(streamer):
        return [int(text) for text in await committed(streamer, topic)]

    play(fill, transactional_id=None)
    while not play(round_of, session_timeout_ms=6_000):
        assert len(play(reading)) < 100
    assert play(reading) == list(range(100))


def test_what_cannot_be_committed_with_messages_is_refused(kafka_broker, topic, play, tmp_path):
    async def scenario(streamer):
        producer = await streamer.create_producer(topic)
        alone = await streamer.create_consumer(topic)
        with pytest.raises(CommitNotAllowedError):
            async with producer.transaction(alone):
                raise AssertionError("it stores no position")
        file = f"file://{tmp_path}/a.ss"
        async with connect(file, {"create": "if-missing"}) as other:
            consumer = await other.create_consumer("a", mode="resumable", group="g")
            with pytest.raises(StreamUnsupportedError, match="stored elsewhere"):
                async with producer.transaction(consumer):
                    raise AssertionError("its position is elsewhere")
            with pytest.raises(StreamUnsupportedError, match="transactional_id"):
                async with (await other.create_producer("a")).transaction():
                    raise AssertionError("files have none")
        with pytest.raises(StreamUnsupportedError, match="both producers"):
            await streamer.create_producer(topic)
        await producer.end()
        again = await streamer.create_producer(topic)
        async with again.transaction():
            again.send("x")
        await again.end()
        with pytest.raises(StreamUnsupportedError):
            await streamer.create_producer(topic, durability="at-most-once")
        return await committed(streamer, topic)

    async def plain(streamer):
        with pytest.raises(StreamUnsupportedError, match="transactional_id"):
            async with (await streamer.create_producer(topic)).transaction():
                raise AssertionError("it has no id")

    assert play(scenario) == ["x"]
    play(plain, transactional_id=None)


def test_a_flush_gives_up_waiting_and_the_messages_arrive(new_kafka_broker, topic):
    broker = new_kafka_broker()

    async def scenario():
        words = {"create": "if-missing"}
        async with asyncio.timeout(120), connect(f"kafka://{broker.bootstrap}", words) as streamer:
            producer = await streamer.create_producer(topic)
            await producer.send("0")
            broker.pause()
            try:
                producer.send_many(["1", "2"])
                assert producer.in_flight_count == 2
                with raises(FLUSH_TIMED_OUT):
                    await producer.flush(0.2)
            finally:
                broker.resume()
            await producer.flush(100)
            assert producer.in_flight_count == 0
            return await committed(streamer, topic)

    assert asyncio.run(scenario()) == ["0", "1", "2"]
