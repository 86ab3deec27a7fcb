"""What is particular to Pulsar: batches of others, groups, deduplication, TLS, a killed server."""

import asyncio
import os
import time

import pulsar
import pytest

from bicycle_streams import At, StreamConnectError, StreamUnsupportedError, connect
from bicycle_streams.pulsar.errors import (
    ADMIN_UNREACHABLE,
    DEDUPLICATION_OFF,
    GROUP_IN_USE,
    NOT_TEXT,
    PARTITIONS_MISSING,
)
from bicycle_streams.testing.cases import numbers, send, texts
from tests.raising import raises

COUNT = 10
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def play(pulsar_server):
    """Run a scenario with a streamer of the server."""

    def run(scenario, **options):
        async def whole():
            words = {"admin_url": pulsar_server.admin_url, **options}
            async with asyncio.timeout(120), connect(pulsar_server.uri, words) as streamer:
                return await scenario(streamer)

        return asyncio.run(whole())

    return run


def send_batch(server, key):
    """Send numbers as another program does: all in one entry; return their places."""
    log = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
    client = pulsar.Client(server.uri, logger=log)
    producer = client.create_producer(
        f"persistent://public/default/{key}", batching_enabled=True,
        batching_max_publish_delay_ms=60_000,
    )  # fmt: skip
    places = []
    for n in range(COUNT):
        producer.send_async(b"%d" % n, lambda _, place: places.append(place))
    producer.flush()
    client.close()
    assert len({(place.ledger_id(), place.entry_id()) for place in places}) == 1


async def refused(producer, row, match=None):
    with raises(row, match=match):
        await producer.send("x")
    with raises(row):
        await producer.flush()


def test_a_place_within_a_batch_is_found_by_its_sequence_and_by_its_time(
    pulsar_server, new_key, play
):
    key = new_key("batch")
    begin_ms = time.time_ns() // 1_000_000
    send_batch(pulsar_server, key)

    async def scenario(streamer):
        consumer = await streamer.create_consumer(key, start="earliest")
        found = [await consumer.next() for _ in range(COUNT)]
        assert [int(message.payload) for message in found] == list(range(COUNT))
        assert all(message.timestamp_ms >= begin_ms for message in found)
        for how in ({}, {"mode": "resumable"}, {"mode": "load-balanced", "group": "g"}):
            consumer = await streamer.create_consumer(key, start="earliest", **how)
            await consumer.rewind(At(found[4].sequence))
            assert await numbers(consumer, COUNT - 4) == list(range(4, COUNT))
            await consumer.seek(begin_ms)
            assert await numbers(consumer, COUNT) == list(range(COUNT))

    play(scenario)


def test_what_is_done_of_a_batch_does_not_come_again(pulsar_server, new_key, play):
    key = new_key("part")
    send_batch(pulsar_server, key)

    async def scenario(streamer):
        first = await streamer.create_consumer(key, mode="resumable", group="g", start="earliest")
        taken = [await first.next() for _ in range(COUNT)]
        first.ack(taken[3])
        await first.commit()
        await first.end()
        again = await streamer.create_consumer(key, mode="resumable", group="g")
        assert await numbers(again, COUNT - 4) == list(range(4, COUNT))

    play(scenario)


def test_a_group_that_one_has_for_itself_is_refused_to_others(new_key, play):
    async def scenario(streamer):
        await streamer.create_consumer(new_key("mine"), mode="resumable", group="g")
        for mode in ("resumable", "load-balanced"):
            with raises(GROUP_IN_USE):
                await streamer.create_consumer(new_key("mine"), mode=mode, group="g")

    play(scenario)


def test_an_end_within_a_group_is_refused(new_key, play):
    async def scenario(streamer):
        how = {"mode": "resumable", "group": "g", "is_live": False}
        with pytest.raises(StreamUnsupportedError):
            await streamer.create_consumer(new_key("end"), **how)

    play(scenario)


def test_topics_are_left_to_the_tool_of_pulsar(play):
    async def scenario(streamer):
        with pytest.raises(StreamUnsupportedError, match="pulsar-admin"):
            streamer.admin()

    play(scenario)


def test_exactly_once_is_refused_where_brokers_keep_duplicates(pulsar_server, new_key, play):
    if "public/twice" not in pulsar_server.ask("GET", "namespaces/public"):
        pulsar_server.ask("PUT", "namespaces/public/twice")
        pulsar_server.ask("POST", "namespaces/public/twice/deduplication", data=False)

    async def scenario(streamer):
        producer = await streamer.create_producer(new_key("twice"), durability="exactly-once")
        await refused(producer, DEDUPLICATION_OFF, match="disabled in its namespace")
        plain = await streamer.create_producer(new_key("twice"))
        await plain.send("y")

    play(scenario, namespace="public/twice")


def test_exactly_once_is_refused_where_nobody_tells(new_key, play):
    async def scenario(streamer):
        producer = await streamer.create_producer(new_key("who"), durability="exactly-once")
        await refused(producer, DEDUPLICATION_OFF, match="does not respond")

    play(scenario, admin_url=NOWHERE)


def test_shards_are_partitions_that_somebody_makes(new_key, play):
    async def fails(streamer, row):
        await refused(await streamer.create_producer(new_key("few"), shard_count=3), row)

    async def made(streamer):
        producer = await streamer.create_producer(new_key("made"), shard_count=3)
        receipts = [await producer.send("x") for _ in range(3)]
        assert [receipt.shard_id for receipt in receipts] == [0, 1, 2]

    play(lambda streamer: fails(streamer, PARTITIONS_MISSING))
    play(made, create="if-missing")
    play(
        lambda streamer: fails(streamer, ADMIN_UNREACHABLE),
        create="if-missing",
        admin_url=NOWHERE,
    )


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        ("pulsar://127.0.0.1:9", {"connect_timeout_ms": 1_000}),
        (None, {"namespace": "nobody/here"}),
        (None, {"namespace": "no namespace"}),
    ],
)
def test_a_place_that_cannot_be_reached_is_told(pulsar_server, uri, options):
    async def scenario():
        with pytest.raises(StreamConnectError):
            async with connect(uri or pulsar_server.uri, options):
                raise AssertionError("nobody is there")

    asyncio.run(scenario())


def test_tls_is_spoken_with_whom_a_certificate_vouches_for(pulsar_server, certificates, new_key):
    async def scenario():
        words = {"ca_file": str(certificates / "service.pem")}
        async with connect(pulsar_server.tls_uri, words) as streamer:
            await send(streamer, new_key("tls"), ["x"])
            consumer = await streamer.create_consumer(new_key("tls"), start="earliest")
            assert await texts(consumer, 1) == ["x"]
        with pytest.raises(StreamConnectError):
            async with connect(pulsar_server.tls_uri, {"connect_timeout_ms": 2_000}):
                raise AssertionError("nobody vouches for it")

    asyncio.run(scenario())


def test_a_server_that_is_killed_comes_back_with_all_that_it_acknowledged(
    pulsar_server, new_key, play, capfd
):
    key = new_key("killed")

    async def scenario(streamer):
        consumer = await streamer.create_consumer(key)
        await send(streamer, key, range(100))
        assert await numbers(consumer, 50) == list(range(50))
        producer = await streamer.create_producer(key)
        await asyncio.to_thread(pulsar_server.kill)
        sent = [producer.send(str(n)) for n in range(100, 120)]
        await asyncio.to_thread(pulsar_server.start)
        for each in sent:
            await each
        assert await numbers(consumer, 70) == list(range(50, 120))

    play(scenario, connect_timeout_ms=120_000, delivery_timeout_ms=120_000)
    assert capfd.readouterr().out == ""


def test_messages_with_one_key_share_a_partition(new_key, play):
    key = new_key("keyed")

    async def scenario(streamer):
        producer = await streamer.create_producer(key, shard_count=3)
        sent = [(n % 5, producer.send("x", key=str(n % 5))) for n in range(30)]
        places = {(number, (await each).shard_id) for number, each in sent}
        assert len(places) == 5
        assert len({shard for _, shard in places}) > 1

    play(scenario, create="if-missing")


def test_a_key_or_header_that_is_no_text_is_refused_and_others_arrive(new_key, play):
    key = new_key("binary-keys")

    async def scenario(streamer):
        consumer = await streamer.create_consumer(key)
        producer = await streamer.create_producer(key)
        for head in (
            {"key": b"\xff"}, {"headers": {"a": b"\xff"}}, {"headers": [("a", "1"), ("a", "2")]},
            {"headers": {"a": None}},
        ):  # fmt: skip
            with raises(NOT_TEXT):
                producer.send("x", **head)
        await producer.send("good", key="k")
        assert await texts(consumer, 1) == ["good"]

    play(scenario, create="if-missing")
