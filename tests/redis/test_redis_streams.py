"""The Redis backend on a real server: names, groups whose members die, servers that do."""

import asyncio
import subprocess
import sys

import pytest

from bicycle_streams import (
    At,
    CommitNotAllowedError,
    ConnectionLostError,
    SeekError,
    StreamConnectError,
    StreamError,
    StreamUnsupportedError,
    UnacknowledgedError,
    connect,
)
from bicycle_streams.redis.connection import Connection

QUICK = {"block_ms": 20, "claim_interval_ms": 10, "claim_idle_ms": 50}
GROUP = {"mode": "load-balanced", "group": "g", "start": "earliest"}


def run(server, scenario, **options):
    async def whole():
        async with asyncio.timeout(60), connect(server.uri, QUICK | options) as streamer:
            return await scenario(streamer)

    return asyncio.run(whole())


async def send(streamer, values, key="a", **words):
    producer = await streamer.create_producer(key, **words)
    return [await producer.send(str(value)) for value in values]


async def numbers(consumer, count):
    return [int((await consumer.next()).payload) for _ in range(count)]


async def collect(consumer, into):
    async for message in consumer:
        into.append(int(message.payload))


async def until(condition):
    while not condition():
        await asyncio.sleep(0.005)


@pytest.mark.core
def test_the_group_of_an_emptied_server_is_made_again(server):
    """A consumer begins before there is a stream, and survives the server and all it kept."""

    async def scenario(streamer):
        group = await streamer.create_consumer("a", **GROUP)
        alone = await streamer.create_consumer("a", mode="resumable", group="r", start="earliest")
        await send(streamer, range(3))
        assert (await numbers(group, 3), await numbers(alone, 3)) == ([0, 1, 2], [0, 1, 2])
        waiting = asyncio.create_task(numbers(group, 2))
        server.kill()
        server.empty()
        sending = asyncio.create_task(send(streamer, [3, 4]))
        await asyncio.sleep(0.1)  # Both try again meanwhile.
        server.start()
        await sending
        message = await alone.next()
        alone.ack(message)
        await alone.commit()
        return await waiting, int(message.payload), await numbers(alone, 1)

    assert run(server, scenario) == ([3, 4], 3, [4])

    async def resumed(streamer):
        consumer = await streamer.create_consumer("a", mode="resumable", group="r")
        return await numbers(consumer, 1)

    assert run(server, resumed) == [4]


@pytest.mark.core
def test_a_killed_server_costs_neither_messages_nor_positions(server):
    async def scenario(streamer):
        group = await streamer.create_consumer("a", **GROUP)
        found = []
        for part in range(3):
            await send(streamer, range(10 * part, 10 * part + 5))
            server.kill()
            sending = asyncio.create_task(send(streamer, range(10 * part + 5, 10 * part + 10)))
            await asyncio.sleep(0)
            server.start()
            await sending
            while len(set(found)) < 10 * part + 10:
                message = await group.next()
                found.append(int(message.payload))
                group.ack(message)
            await group.commit()
        return set(found)

    assert run(server, scenario) == set(range(30))


@pytest.mark.core
def test_what_a_dead_member_holds_is_claimed_and_it_may_come_back(server):
    async def scenario(streamer):
        alpha = await streamer.create_consumer("a", **GROUP)
        await send(streamer, range(5))
        held = await numbers(alpha, 5)
        beta = await streamer.create_consumer("a", **GROUP)
        claimed = await numbers(beta, 5)
        shared = [[], []]
        tasks = [
            asyncio.create_task(collect(member, into))
            for member, into in zip((alpha, beta), shared, strict=True)
        ]
        await send(streamer, range(5, 25))
        await until(lambda: set(range(5, 25)) <= {*shared[0], *shared[1]})
        for task in tasks:
            task.cancel()
        return held, claimed

    assert run(server, scenario, batch_messages=5) == ([0, 1, 2, 3, 4],) * 2


def test_claims_go_on_behind_what_the_member_holds(server, monkeypatch):
    call = Connection.call

    def call_of_redis_6(self, *words, **more):
        answer = call(self, *words, **more)
        if words[0] == "XAUTOCLAIM":
            answer[1].insert(0, None)  # A deleted message, as Redis 6.2 returns it.
        return answer

    async def scenario(streamer):
        alpha = await streamer.create_consumer("a", **GROUP)
        await send(streamer, range(4))
        await numbers(alpha, 4)
        beta = await streamer.create_consumer("a", **GROUP)
        found = []
        for _ in range(4):
            found += await numbers(beta, 1)
            await asyncio.sleep(0.06)  # Its own messages can be claimed again.
        return found

    monkeypatch.setattr(Connection, "call", call_of_redis_6)
    assert run(server, scenario, batch_messages=1, claim_interval_ms=100) == [0, 1, 2, 3]


def test_what_a_reading_member_acknowledged_is_not_claimed_by_one_that_joins(server):
    def pending_count():
        with server.client as client:
            return client.xpending("a", "g")["pending"]

    async def scenario(streamer):
        alpha = await streamer.create_consumer("a", **GROUP)
        await send(streamer, range(5))
        for _ in range(5):
            alpha.ack(await alpha.next())  # And no call of commit.
        waiting = asyncio.create_task(alpha.next())
        await until(lambda: pending_count() == 0)
        beta = await streamer.create_consumer("a", **GROUP)
        await send(streamer, range(5, 9))
        assert await numbers(beta, 1) > [4]
        waiting.cancel()

    run(server, scenario, claim_idle_ms=1_000)


def test_who_comes_back_under_its_name_gets_what_it_left_undone(server):
    async def first(streamer):
        consumer = await streamer.create_consumer("a", **GROUP)
        await send(streamer, range(5))
        for _ in range(2):
            consumer.ack(await consumer.next())
        await consumer.commit()
        return await numbers(consumer, 1)

    async def second(streamer):
        consumer = await streamer.create_consumer("a", **GROUP)
        await send(streamer, [5])
        return await numbers(consumer, 4)

    words = {"consumer_id": "ada", "claim_idle_ms": 3_600_000, "batch_messages": 2}
    assert run(server, first, **words) == [2]
    assert run(server, second, **words) == [2, 3, 4, 5]


@pytest.mark.parametrize("mode", ["resumable", "load-balanced"])
@pytest.mark.parametrize(
    ("words", "again"),
    [
        ({"auto_commit": "rolling"}, [2, 3, 4]),
        ({"auto_commit": "delayed", "auto_commit_delay_ms": 1}, []),
        ({"auto_commit": "immediate"}, []),
    ],
)
def test_positions_are_kept_without_a_commit(server, mode, words, again):
    how = {"mode": mode, "group": "g", "start": "earliest"}

    async def first(streamer):
        await send(streamer, range(5))
        consumer = await streamer.create_consumer("a", **how)
        messages = [await consumer.next() for _ in range(5)]
        if words["auto_commit"] == "rolling":
            for message in messages[:2]:
                consumer.ack(message)
        else:
            with pytest.raises(CommitNotAllowedError):
                consumer.ack(messages[0])
        with pytest.raises(CommitNotAllowedError):
            await consumer.commit()

    async def second(streamer):
        consumer = await streamer.create_consumer("a", is_live=False, **how)
        return [int(message.payload) async for message in consumer]

    run(server, first, **words)
    assert run(server, second) == again


def test_a_member_holds_no_more_than_it_may(server):
    async def scenario(streamer):
        await send(streamer, range(20))
        consumer = await streamer.create_consumer("a", **GROUP)
        with pytest.raises(UnacknowledgedError):
            await numbers(consumer, 20)

    run(server, scenario, batch_messages=5, prefetch_messages=1, unacknowledged_max=5)


def test_shards_are_streams_of_their_own_and_new_ones_are_found(server):
    with server.client as client:
        client.xadd("foreign:0", {"msg": "zero"})

    async def scenario(streamer):
        consumer = await streamer.create_consumer(["a", "foreign"], start="earliest")
        foreign = await consumer.next()
        await send(streamer, range(2))
        first = {(await consumer.next()).shard_id for _ in range(2)}
        await send(streamer, range(4), shard_count=2)
        later = {(await consumer.next()).shard_id for _ in range(4)}
        return (foreign.stream_key, foreign.shard_id, foreign.as_str()), first, later

    found = run(server, scenario, discovery_interval_ms=10)

    assert found == (("foreign", 0, "zero"), {0}, {0, 1})
    with server.client as client:
        assert sorted(client.keys()) == [b"a", b"a:1", b"foreign:0"]


@pytest.mark.parametrize("timestamps", ["ms", "ns"])
def test_positions_that_no_id_has_are_understood(server, timestamps):
    async def scenario(streamer):
        await send(streamer, range(3))
        consumer = await streamer.create_consumer("a", start="earliest", is_live=False)
        for move in (consumer.rewind(At(-5)), consumer.seek(-5)):
            await move
            assert await numbers(consumer, 1) == [0]
        for move in (consumer.rewind(At(1 << 90)), consumer.seek(1 << 90)):
            with pytest.raises(SeekError):
                await move
        return await numbers(consumer, 1)

    assert run(server, scenario, timestamps=timestamps) == [1]


def test_a_stream_keeps_about_as_many_messages_as_it_may(server):
    async def scenario(streamer):
        await send(streamer, range(500))

    run(server, scenario, max_length=100)

    with server.client as client:
        assert 100 <= client.xlen("a") < 300


def test_an_entry_of_another_shape_is_told_and_the_next_call_goes_on(server):
    with server.client as client:
        client.xadd("a", {"text": "x"}, id="5-1")
        client.xadd("a", {"msg": "x"}, id="5-70000")
        client.xadd("a", {"other": "x", "msg": "good"})

    async def scenario(streamer):
        consumer = await streamer.create_consumer("a", start="earliest")
        codes = []
        for _ in range(2):
            with pytest.raises(StreamError) as caught:
                await consumer.next()
            codes.append(caught.value.code)
        return codes, (await consumer.next()).as_str()

    assert run(server, scenario) == (["BIC-2671", "BIC-2672"], "good")


def test_a_message_that_the_server_refuses_is_told_and_others_arrive(server):
    async def scenario(streamer):
        producer = await streamer.create_producer("a")
        await producer.send("1", timestamp_ms=2_000)
        refused = producer.send("2", timestamp_ms=1_000)
        taken = producer.send("3", timestamp_ms=3_000)
        with pytest.raises(StreamError) as caught:
            await refused
        with pytest.raises(StreamError):
            await producer.flush()
        await producer.flush()
        return caught.value.code, (await taken).timestamp_ms

    assert run(server, scenario) == ("BIC-2673", 3_000)


def test_no_group_is_made_of_a_stream_that_is_missing_where_that_is_said(server):
    async def scenario(streamer):
        with pytest.raises(StreamConnectError) as caught:
            await streamer.create_consumer("a", **GROUP)
        with pytest.raises(StreamUnsupportedError):
            await streamer.create_consumer("SEA_STREAMER_WILDCARD")
        return caught.value.code

    assert run(server, scenario, create_stream=False) == "BIC-2670"


def test_a_server_that_stays_away_is_told(server):
    async def scenario(streamer):
        consumer = await streamer.create_consumer("a")
        careful = await streamer.create_producer("a")
        careless = await streamer.create_producer("a", durability="at-most-once")
        server.kill()
        sent = careful.send("x"), careless.send("x")
        for each in sent:
            with pytest.raises(ConnectionLostError):
                await each
        for producer in (careful, careless):
            with pytest.raises(ConnectionLostError):
                await producer.flush()
        with pytest.raises(ConnectionLostError):
            await consumer.next()

    run(server, scenario, retry_timeout_ms=100)
    with pytest.raises(StreamConnectError):
        run(server, scenario)


def test_a_wrong_password_is_told(server):
    async def scenario(streamer):
        raise AssertionError("it must not open")

    with pytest.raises(StreamConnectError) as caught:
        run(server, scenario, username="ada", password="wrong")
    assert caught.value.code == "BIC-2675"


@pytest.mark.core
def test_a_client_that_is_missing_is_named():
    code = """
import sys
sys.modules["redis"] = None
from bicycle_streams import connect
connect("redis://localhost")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert "BIC-2625" in done.stderr
    assert "bicycle-streams[redis]" in done.stderr


@pytest.mark.parametrize("user", ["everything", "no-scripts"])
def test_many_messages_of_several_streams_arrive_in_order_whoever_sends_them(server, user):
    """Batches go by a script, or one by one where that is not allowed."""
    with server.client as client:
        client.acl_setuser("everything", enabled=True, nopass=True, keys=["*"], commands=["+@all"])
        client.acl_setuser(
            "no-scripts", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-@scripting"]
        )

    async def scenario(streamer):
        producer = await streamer.create_generic_producer(shard_count=2)
        sent = [
            producer.send_to("ab"[number % 2], str(number), shard_id=number % 4 // 2)
            for number in range(5_000)
        ]
        receipts = [await each for each in sent]
        large = await producer.send_to("large", b"x" * (9 << 20))  # Too large for a script.
        consumer = await streamer.create_consumer(["a", "b"], start="earliest", is_live=False)
        found = [int(message.payload) async for message in consumer]
        return receipts, large, found

    receipts, large, found = run(server, scenario, username=user, password="any")

    for shard in (0, 1):
        of_a = [receipts[n].sequence for n in range(5_000) if (n % 2, n % 4 // 2) == (0, shard)]
        assert of_a == sorted(of_a)
    with server.client as client:
        kept = {
            name: [int(fields[b"msg"]) for _, fields in client.xrange(name)]
            for name in ("a", "a:1", "b", "b:1")
        }
        assert client.xinfo_stream("large")["length"] == 1
    assert kept == {
        name: [n for n in range(5_000) if "ab"[n % 2] == name[0] and n % 4 // 2 == (":" in name)]
        for name in kept
    }
    assert large.stream_key == "large"
    assert sorted(found) == list(range(5_000))


def test_each_message_of_a_batch_has_its_own_answer(server):
    with server.client as client:
        client.set("text", "no stream")

    async def scenario(streamer):
        producer = await streamer.create_generic_producer()
        times = [5_000, 4_000, 6_000]
        sent = [producer.send_to("a", str(t), timestamp_ms=t) for t in times]
        sent.append(producer.send_to("text", "x"))
        answers = []
        for each in sent:
            try:
                answers.append((await each).timestamp_ms)
            except StreamError as error:
                answers.append(error.code)
        with pytest.raises(StreamError):
            await producer.flush()
        await producer.flush()
        return answers

    assert run(server, scenario) == [5_000, "BIC-2673", 6_000, "BIC-2673"]


@pytest.mark.parametrize("mode", ["resumable", "load-balanced"])
def test_a_commit_that_failed_is_repeated_by_the_next(server, mode):
    words = {"mode": mode, "group": "g", "start": "earliest"}

    async def scenario(streamer):
        await send(streamer, range(2))
        consumer = await streamer.create_consumer("a", **words)
        consumer.ack(await consumer.next())
        server.kill()
        with pytest.raises(ConnectionLostError):
            await consumer.commit()
        server.start()
        await consumer.commit()

    async def resumed(streamer):
        return await numbers(await streamer.create_consumer("a", **words), 1)

    run(server, scenario, retry_timeout_ms=0)

    assert run(server, resumed) == [1]


@pytest.mark.parametrize("mode", ["resumable", "load-balanced"])
@pytest.mark.parametrize("auto_commit", ["delayed", "immediate"])
def test_messages_that_were_read_ahead_are_not_committed_at_the_end(server, mode, auto_commit):
    words = {"mode": mode, "group": "g", "start": "earliest"}

    async def scenario(streamer):
        return await numbers(await streamer.create_consumer("a", **words), 1)

    run(server, lambda streamer: send(streamer, range(5)))

    assert [run(server, scenario, auto_commit=auto_commit) for _ in range(2)] == [[0], [1]]


@pytest.mark.parametrize("timestamps", ["ms", "ns"])
def test_a_time_without_a_sequence_is_refused_before_it_is_sent(server, timestamps):
    async def scenario(streamer):
        producer = await streamer.create_producer("a")
        with pytest.raises(StreamError) as refused:
            producer.send("in µs", timestamp_ms=1_700_000_000_000_000)
        return refused.value.code, (await producer.send("next")).shard_id

    assert run(server, scenario, timestamps=timestamps) == ("BIC-2657", 0)


def test_a_message_whose_id_has_no_sequence_is_reported_and_others_are_sent(server):
    with server.client as client:
        client.xadd("a", {"msg": "last of its millisecond"}, id=f"5-{(1 << 16) - 1}")

    async def scenario(streamer):
        producer = await streamer.create_producer("a")
        producer.send("beyond", timestamp_ms=5)
        with pytest.raises(StreamError) as reported:
            await producer.flush()
        return reported.value.code, (await producer.send("next", timestamp_ms=6)).sequence >> 16

    assert run(server, scenario) == ("BIC-2672", 6)
