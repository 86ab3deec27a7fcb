"""Ids in nanoseconds on a real server: order, times, and what others have added."""

import asyncio
import time

import pytest

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.operators.errors import RECORD_UNDECODABLE
from bicycle_runtime.testing import Harness
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.sinks.addresses import sink_from_uri
from bicycle_sdk.uris import source_from_uri
from bicycle_streams import BEGINNING, At, Message, StreamKey, connect
from bicycle_streams.redis.errors import ID_UNUSABLE, REFUSED
from bicycle_streams.redis.ids import NS_PER_MS
from tests.raising import raises
from tests.waiting import until

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


def counting(server):
    def job(env):
        words = env.from_uri(f"{server.uri}/in?timestamps=ns").uid("in")
        counts = words.key_by(lambda word: word).count().uid("counts")
        counts.map(lambda counted: f"{counted[0]} {counted[1]}").uid("texts").to_uri(
            f"{server.uri}/out?timestamps=ns"
        ).uid("out")

    return job


def entries(server, key):
    with server.client as client:
        return [
            (entry_id.decode(), fields[b"msg"].decode()) for entry_id, fields in client.xrange(key)
        ]


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
@pytest.mark.parametrize("point", ["after_seal", "transaction_marked"])
def test_a_job_counts_each_message_once_through_kills(server, backend, point):
    """Over several epochs; the job dies at a point, and the server is killed."""
    ahead = time.time_ns() + HOUR_MS * NS_PER_MS  # Somebody's clock: the job goes on behind it.
    server.client.xadd("out", {"msg": b"before"}, id=f"{ahead}-0")

    async def add(streamer, begin, end):
        producer = await streamer.create_producer("in", shard_count=2)
        for number in range(begin, end):
            producer.send(f"word-{number % 3}")

    def feed(begin, end):
        run(server, lambda streamer: add(streamer, begin, end))

    def written():
        return [text for _, text in entries(server, "out")][1:]

    def run_until(condition):
        def has_come():
            harness.run_epoch()
            return condition()

        until(has_come, "what the job writes")

    options = EngineOptions(state_backend=backend)
    with Harness(counting(server), real_sinks=["out"], engine=options) as harness:
        feed(0, 12)
        run_until(lambda: len(written()) == 12)
        harness.fail_at(point)
        feed(12, 24)
        run_until(lambda: harness.crash_count == 1)
        server.kill()
        server.start()
        feed(24, 36)
        run_until(lambda: len(written()) >= 36)
        harness.crash()
        feed(36, 39)
        run_until(lambda: len(written()) >= 39)

    assert sorted(written()) == sorted(f"word-{n % 3} {n // 3 + 1}" for n in range(39))
    times = [int(entry_id.removesuffix("-0")) for entry_id, _ in entries(server, "out")]
    assert times == list(range(ahead, ahead + 40))


def test_a_job_reads_the_times_that_messages_have(server):
    begin_ms = time.time_ns() // NS_PER_MS - HOUR_MS

    async def add(streamer):
        producer = await streamer.create_producer("in")
        for number in range(3):
            producer.send(str(number), timestamp_ms=begin_ms + number)

    def job(env):
        uri = f"{server.uri}/in?timestamps=ns&bounded=true&group=readers"
        env.from_uri(uri).uid("in").collect("out")

    run(server, add)
    with Harness(job) as harness:
        harness.run()
        assert harness.results("out") == ["0", "1", "2"]

    last, _ = entries(server, "in")[-1]
    with server.client as client:
        [group] = client.xinfo_groups("in")
    assert group["last-delivered-id"].decode() == last


def test_an_id_that_no_sequence_stands_for_is_a_bad_record(server):
    """It is named; nothing behind it is taken for it, and nothing is passed over."""

    def job(env):
        env.from_uri(f"{server.uri}/in?timestamps=ns&bounded=true").uid("in").collect("out")

    with server.client as client:
        for entry_id in ("5-0", "5-1", "6-0"):
            client.xadd("in", {"msg": entry_id}, id=entry_id)
    with Harness(job) as harness, raises(RECORD_UNDECODABLE) as caught:
        harness.run()
    assert "5-1" in str(caught.value)


@pytest.mark.parametrize("make", [source_from_uri, sink_from_uri])
def test_timestamps_that_there_are_not_are_refused(make):
    with pytest.raises(StreamDefinitionError, match="option 'timestamps' is 'us'") as caught:
        make("redis://localhost/a?timestamps=us")
    assert "give one of ms, ns" in str(caught.value)
