"""Ids in nanoseconds on a real server: order, times, and what others have added."""

import asyncio
import time

import pytest

from bicycle_runtime.streams import BEGINNING, At, Message, StreamKey, connect
from bicycle_runtime.streams.redis.errors import ID_UNUSABLE, REFUSED
from bicycle_runtime.streams.redis.ids import NS_PER_MS
from tests.raising import raises

HOUR_MS = 3_600_000


def run(server, scenario, **options):
    async def whole():
        words = {"block_ms": 20, "timestamps": "ns", **options}
        async with asyncio.timeout(60), connect(server.uri, words) as streamer:
            return await scenario(streamer)

    return asyncio.run(whole())


async def all_of(streamer):
    return await streamer.create_consumer("a", start="earliest", is_live=False)


def test_ids_are_the_nanoseconds_of_the_sender_and_sequences_too(server):
    async def scenario(streamer):
        producer = await streamer.create_producer("a")
        before = time.time_ns()
        receipts = [await producer.send(str(n)) for n in range(3)]
        after = time.time_ns()
        sequences = [receipt.sequence for receipt in receipts]
        assert before <= sequences[0] < sequences[1] < sequences[2] <= after
        assert [r.timestamp_ms for r in receipts] == [s // NS_PER_MS for s in sequences]
        info = await streamer.admin().describe(StreamKey("a"))
        shard = info.shards[0]
        assert (shard.first_sequence, shard.last_sequence) == (sequences[0], sequences[2])
        assert shard.last_timestamp_ms == sequences[2] // NS_PER_MS
        return sequences

    sequences = run(server, scenario)

    ids = [entry_id for entry_id, _ in server.client.xrange("a")]
    assert ids == [b"%d-0" % sequence for sequence in sequences]


def test_messages_of_one_millisecond_keep_their_order_and_are_found(server):
    async def scenario(streamer):
        begin_ms = time.time_ns() // NS_PER_MS - HOUR_MS
        first, second = [await streamer.create_producer("a") for _ in range(2)]
        for n in range(3):
            await first.send(str(n), timestamp_ms=begin_ms)
            await second.send(str(n), timestamp_ms=begin_ms)
        copies = [Message(StreamKey("b"), 0, n, begin_ms + n // 2, b"c%d" % n) for n in range(6)]
        first.copy_many(copies, with_shards=True)
        await first.flush()
        with raises(REFUSED):
            await second.send("earlier", timestamp_ms=begin_ms - 1)
        with raises(REFUSED):
            await second.flush()
        consumer = await all_of(streamer)
        found = [message async for message in consumer]
        assert [m.as_str() for m in found] == [*"001122", *(f"c{n}" for n in range(6))]
        assert [m.sequence - begin_ms * NS_PER_MS for m in found[:8]] == list(range(8))
        assert [m.timestamp_ms - begin_ms for m in found] == [0] * 8 + [1, 1, 2, 2]
        consumer = await all_of(streamer)
        await consumer.seek(begin_ms + 1)
        assert (await consumer.next()).as_str() == "c2"
        await consumer.rewind(At(found[4].sequence))
        assert (await consumer.next()).sequence == found[4].sequence
        await consumer.rewind(BEGINNING)
        assert (await consumer.next()).sequence == found[0].sequence

    run(server, scenario)


def test_a_sender_whose_clock_is_behind_goes_on_behind_the_last_message(server):
    top = time.time_ns() + 3_600 * 10**9
    rounded = top // NS_PER_MS * NS_PER_MS + NS_PER_MS - 1  # The next one is a millisecond later.
    server.client.xadd("a", {"msg": b"0"}, id=f"{rounded}-0")

    async def scenario(streamer):
        producer = await streamer.create_producer("a")
        sent = [producer.send(str(n)) for n in range(1, 4)]
        return [(await each).sequence - rounded for each in sent]

    assert run(server, scenario) == [1, 2, 3]


@pytest.mark.parametrize(
    ("timestamps", "entry_id"), [("ns", "5-1"), ("ns", f"{1 << 63}-0"), ("ms", f"{1 << 60}-0")]
)
def test_an_id_that_no_sequence_stands_for_is_told_and_the_next_is_read(
    server, timestamps, entry_id
):
    async def scenario(streamer):
        reader = await all_of(streamer)
        with raises(ID_UNUSABLE):
            await reader.next()
        return [message.as_str() async for message in reader]

    client = server.client
    client.xadd("a", {"msg": b"x"}, id=entry_id)
    if timestamps == "ns" and entry_id == "5-1":
        client.xadd("a", {"msg": b"y"}, id="6-0")
        assert run(server, scenario, timestamps=timestamps) == ["y"]
    else:
        assert run(server, scenario, timestamps=timestamps) == []


def test_a_user_who_may_run_no_script_is_told(server):
    server.client.acl_setuser(
        "no-scripts", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-@scripting"]
    )

    async def scenario(streamer):
        producer = await streamer.create_producer("a")
        producer.send("x")
        with raises(REFUSED, match="eval"):
            await producer.flush()

    run(server, scenario, username="no-scripts", password="x")
