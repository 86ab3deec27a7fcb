"""The file backend: how files come to be and end, who shares what, and what is kept."""

import asyncio
import itertools
import os
import threading

import pytest

from bicycle_sdk.errors import OptionError, UnknownOptionError
from bicycle_streams import (
    BEGINNING,
    ProducerEndedError,
    StreamConnectError,
    StreamEndedError,
    StreamError,
    StreamUnsupportedError,
    UnacknowledgedError,
    connect,
)
from bicycle_streams.file import writing
from bicycle_streams.file.errors import FileFormatError
from bicycle_streams.file.writing import FileWriter
from tests.unit.streams.ss_decoder import decode
from tests.waiting import PATIENCE_S

OPTIONS = {"create": "if-missing", "beacon_interval_bytes": 1024, "poll_interval_ms": 1}


def run(tmp_path, scenario, **options):
    """Run a scenario with a streamer of a file that is made, and return what it returns."""

    async def whole():
        async with connect(f"file://{tmp_path}/events.ss", {**OPTIONS, **options}) as streamer:
            return await scenario(streamer)

    return asyncio.run(whole())


async def numbers(consumer, count):
    return [int((await consumer.next()).as_str()) for _ in range(count)]


async def send(streamer, values, key="a"):
    producer = await streamer.create_producer(key)
    for value in values:
        producer.send(str(value))
    await producer.flush()
    return producer


def test_a_missing_file_is_told_unless_it_is_to_be_made(tmp_path):
    async def scenario(streamer):
        return None

    with pytest.raises(StreamConnectError) as missing:
        run(tmp_path, scenario, create="never")
    run(tmp_path, scenario, create="only")
    with pytest.raises(StreamConnectError) as there:
        run(tmp_path, scenario, create="only")
    run(tmp_path, scenario, create="if-missing")
    run(tmp_path, scenario, create="never")

    assert (missing.value.code, there.value.code) == ("BIC-2630", "BIC-2631")
    assert [path.name for path in tmp_path.iterdir()] == ["events.ss"]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"PK\x03\x04" + bytes(200), "BIC-2637"),
        (b"Ss\x02" + bytes(200), "BIC-2638"),
        (b"Ss\x01\x05", "BIC-2639"),
        (b"", "BIC-2637"),
        (b"Ss\x01\xff" + bytes(200), "BIC-2636"),
        (b"Ss\x01\x00" + bytes(200), "BIC-2636"),
    ],
)
def test_what_is_no_file_of_streams_is_told(tmp_path, data, code):
    (tmp_path / "events.ss").write_bytes(data)

    async def scenario(streamer):
        return None

    with pytest.raises(FileFormatError) as caught:
        run(tmp_path, scenario)
    assert caught.value.code == code


@pytest.mark.parametrize("interval", [1, 1000, 1025])
def test_a_beacon_interval_is_a_multiple_of_1024(tmp_path, interval):
    with pytest.raises(StreamConnectError) as caught:
        connect("file://x.ss", {"beacon_interval_bytes": interval})
    assert caught.value.code == "BIC-2635"


def test_options_are_checked():
    with pytest.raises(UnknownOptionError):
        connect("file://x.ss", {"loudness": 3})
    with pytest.raises(OptionError):
        connect("file://x.ss", {"fsync": "sometimes"})


def test_a_reader_sees_what_another_streamer_flushes(tmp_path):
    async def scenario(streamer):
        reader = await streamer.create_consumer("a")
        async with connect(f"file://{tmp_path}/events.ss", OPTIONS) as other:
            producer = await other.create_producer("a")
            receipt = await producer.send("1")
            first = await reader.next()
            producer.send("2")  # Nobody flushes it: it lingers a moment only.
            return receipt, first.header, (await reader.next()).sequence

    receipt, header, second = run(tmp_path, scenario)

    assert receipt.__reduce__()[1] == header.__reduce__()[1]
    assert second == 2


def test_streams_of_one_file_are_told_apart(tmp_path):
    async def scenario(streamer):
        producer = await streamer.create_generic_producer()
        for n in range(100):
            producer.send_to("cat" if n % 2 else "dog", str(n))
        await producer.flush()
        words = {"start": "earliest", "is_live": False}
        found = []
        for keys in ("cat", "dog", ["cat", "dog"]):
            consumer = await streamer.create_consumer(keys, **words)
            found.append([int(m.as_str()) async for m in consumer])
        return found

    cat, dog, both = run(tmp_path, scenario)

    assert (cat, dog, both) == ([*range(1, 100, 2)], [*range(0, 100, 2)], [*range(100)])


def test_two_producers_of_one_file_share_its_writer(tmp_path):
    async def scenario(streamer):
        first = await streamer.create_producer("a")
        async with connect(f"file://{tmp_path}/events.ss", OPTIONS) as other:
            second = await other.create_producer("a")
            for n in range(10):
                (second if n % 2 else first).send(str(n))
            await second.end()
            with pytest.raises(ProducerEndedError):
                second.send("late")
        return (await first.send("10")).sequence

    assert run(tmp_path, scenario, end_with_eos=True) == 11
    found = decode((tmp_path / "events.ss").read_bytes())
    assert [m[4] for m in found.messages] == [str(n).encode() for n in range(11)]
    assert found.has_ended


def test_another_process_is_kept_from_appending(tmp_path):
    async def scenario(streamer):
        holder = os.open(tmp_path / "events.ss", os.O_RDWR)
        import fcntl  # Only this test needs it.

        fcntl.flock(holder, fcntl.LOCK_EX)  # As the writer of another process does.
        try:
            with pytest.raises(StreamConnectError) as caught:
                await streamer.create_producer("a")
        finally:
            os.close(holder)
        await send(streamer, [1])
        return caught.value.code

    assert run(tmp_path, scenario) == "BIC-2633"


def test_a_file_ends_with_its_mark_and_may_be_continued(tmp_path):
    async def scenario(streamer):
        await send(streamer, [1, 2])

    async def reading(streamer):
        consumer = await streamer.create_consumer("a", start="earliest")
        found = [int(m.as_str()) async for m in consumer]
        with pytest.raises(StreamEndedError):
            await consumer.next()
        return found

    run(tmp_path, scenario, end_with_eos=True)
    assert run(tmp_path, reading) == [1, 2]
    run(tmp_path, scenario, end_with_eos=True)
    assert run(tmp_path, reading) == [1, 2, 1, 2]


def test_a_message_without_its_end_is_waited_for_or_told_and_cut_off_by_the_next_writer(tmp_path):
    path = tmp_path / "events.ss"

    async def scenario(streamer):
        await send(streamer, ["1", "2" * 700])

    async def cut(streamer):
        words = {"start": "earliest", "is_live": False}
        consumer = await streamer.create_consumer("a", **words)
        found = [(await consumer.next()).sequence]
        with pytest.raises(FileFormatError) as caught:
            await consumer.next()
        live = await streamer.create_consumer("a", start="earliest")
        await live.next()
        waiting = asyncio.create_task(live.next())
        await send(streamer, ["3"])
        return found, caught.value.code, (await waiting).payload

    run(tmp_path, scenario)
    size = path.stat().st_size
    os.truncate(path, size - 5)

    found, code, payload = run(tmp_path, cut)

    assert (found, code) == ([1], "BIC-2639")
    assert [m[4] for m in decode(path.read_bytes()).messages] == [b"1", b"3"]
    assert payload == b"3"


def test_a_consumer_at_the_end_that_would_not_wait_is_refused(tmp_path):
    async def scenario(streamer):
        with pytest.raises(StreamError) as caught:
            await streamer.create_consumer("a", is_live=False)
        return caught.value.code

    assert run(tmp_path, scenario) == "BIC-2646"


def test_a_limit_refuses_the_message_that_would_cross_it_and_no_other(tmp_path):
    async def scenario(streamer):
        producer = await send(streamer, [1])
        for call in (producer.send, lambda payload: producer.send_many([payload])):
            with pytest.raises(StreamError, match="BIC-2641"):
                call(b"x" * 3000)
        producer.send("2")

    run(tmp_path, scenario, file_size_limit_bytes=3000)

    messages = decode((tmp_path / "events.ss").read_bytes()).messages
    assert [(m[2], m[4]) for m in messages] == [(1, b"1"), (2, b"2")]


@pytest.mark.parametrize("key", ["SEA_STREAMER_INTERNAL", "SEA_STREAMER_WILDCARD"])
def test_keys_of_the_format_are_refused(tmp_path, key):
    async def scenario(streamer):
        producer = await streamer.create_producer(key)
        with pytest.raises(StreamError) as caught:
            producer.send(b"EOS")
        return caught.value.code

    assert run(tmp_path, scenario) == "BIC-2644"


def test_a_failed_write_is_told_and_leaves_whole_messages(tmp_path, monkeypatch):
    path = tmp_path / "events.ss"
    pwrite = os.pwrite

    def full(descriptor, data, offset):
        if len(data) > 10:
            return pwrite(descriptor, data[:10], offset)
        raise OSError(28, "No space left on device")

    async def scenario(streamer):
        producer = await send(streamer, [1])
        receipt = producer.send("2")
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", full)
            with pytest.raises(StreamError) as caught:
                await receipt
        with pytest.raises(StreamError):
            producer.send("3")
        return caught.value.code

    with pytest.raises(StreamError):  # Ending tells it once more.
        run(tmp_path, scenario)
    assert [m[4] for m in decode(path.read_bytes()).messages] == [b"1"]


def test_a_removed_file_is_told_to_who_waits_at_its_end(tmp_path):
    async def scenario(streamer):
        consumer = await streamer.create_consumer("a")
        waiting = asyncio.create_task(consumer.next())
        (tmp_path / "events.ss").unlink()
        with pytest.raises(StreamError, match="BIC-2640"):
            await waiting
        return True

    assert run(tmp_path, scenario)


@pytest.mark.parametrize(("fsync", "least"), [("never", 0), ("flush", 2), ("interval", 1)])
def test_messages_are_synced_as_often_as_asked(tmp_path, monkeypatch, fsync, least):
    synced = []
    monkeypatch.setattr(FileWriter, "sync", lambda self: synced.append(self.written))

    async def scenario(streamer):
        producer = await send(streamer, [1, 2])
        await producer.send("3")

    run(tmp_path, scenario, fsync=fsync, fsync_interval_ms=1)

    assert len(synced) >= least
    assert (fsync == "never") == (synced == [])
    assert not synced or synced[-1] == 3


def test_a_group_shares_by_sequence_and_a_new_member_joins_at_once(tmp_path):
    async def scenario(streamer):
        words = {"mode": "load-balanced", "group": "g"}
        members = [await streamer.create_consumer("a", **words) for _ in range(2)]
        producer = await send(streamer, range(100))
        first = [await numbers(member, 50) for member in members]
        members.append(await streamer.create_consumer("a", **words))
        for n in range(100, 130):
            producer.send(str(n))
        await producer.flush()
        return first, [await numbers(member, 10) for member in members]

    first, second = run(tmp_path, scenario)

    # The sequence of message n is n + 1.
    assert first == [[n for n in range(100) if (n + 1) % 2 == i] for i in range(2)]
    assert second == [[n for n in range(100, 130) if (n + 1) % 3 == i] for i in range(3)]


def test_what_a_member_did_not_acknowledge_goes_to_the_others(tmp_path):
    async def scenario(streamer):
        words = {"mode": "load-balanced", "group": "g"}
        alpha, beta = [await streamer.create_consumer("a", **words) for _ in range(2)]
        await send(streamer, range(10))
        mine = [await beta.next() for _ in range(5)]
        beta.ack(mine[0])
        await beta.end()
        return sorted(await numbers(alpha, 9)), int(mine[0].as_str())

    rest, done = run(tmp_path, scenario)

    assert sorted([*rest, done]) == list(range(10))


def test_members_of_a_group_ask_for_the_same_and_name_their_streams(tmp_path):
    async def scenario(streamer):
        words = {"mode": "load-balanced", "group": "g"}
        await streamer.create_consumer("a", **words)
        with pytest.raises(StreamError) as differs:
            await streamer.create_consumer("b", **words)
        with pytest.raises(StreamUnsupportedError):
            await streamer.create_consumer("SEA_STREAMER_WILDCARD", **words)
        return differs.value.code

    assert run(tmp_path, scenario) == "BIC-2647"


def test_a_member_that_acknowledges_nothing_is_stopped(tmp_path):
    async def scenario(streamer):
        member = await streamer.create_consumer("a", mode="load-balanced", group="g")
        await send(streamer, range(10))
        found = await numbers(member, 4)
        with pytest.raises(UnacknowledgedError):
            await member.next()
        return found

    assert run(tmp_path, scenario, unacknowledged_max=4, prefetch_messages=4) == [0, 1, 2, 3]


@pytest.mark.parametrize("mode", ["resumable", "load-balanced"])
def test_a_group_goes_on_behind_what_it_committed(tmp_path, mode):
    words = {"mode": mode, "group": "g", "start": "earliest"}

    async def first(streamer):
        await send(streamer, range(5))
        consumer = await streamer.create_consumer("a", **words)
        for message in [await consumer.next() for _ in range(4)]:
            consumer.ack(message)
        await consumer.commit()
        return int((await consumer.next()).as_str())

    async def second(streamer):
        consumer = await streamer.create_consumer("a", **words)
        other = await streamer.create_consumer("a", **{**words, "group": "other"})
        return await numbers(consumer, 1), await numbers(other, 5)

    assert run(tmp_path, first) == 4
    assert run(tmp_path, second) == ([4], [0, 1, 2, 3, 4])
    assert run(tmp_path, second) == ([4], [0, 1, 2, 3, 4])


def test_a_position_holds_for_its_shard_and_new_messages_are_waited_for(tmp_path):
    words = {"mode": "resumable", "start": "earliest"}

    async def first(streamer):
        producer = await streamer.create_producer("a", shard_count=2)
        for n in range(6):
            producer.send(str(n))
        await producer.flush()
        consumer = await streamer.create_consumer("a", **words)
        for message in [await consumer.next() for _ in range(6)]:
            if message.shard_id == 0 or message.sequence == 1:
                consumer.ack(message)
        await consumer.commit()

    async def second(streamer):
        consumer = await streamer.create_consumer("a", **words)
        found = await numbers(consumer, 2)
        await send(streamer, [6])
        return found, await numbers(consumer, 1)

    run(tmp_path, first)
    assert run(tmp_path, second) == ([3, 5], [6])


def test_positions_that_cannot_be_read_are_told(tmp_path):
    (tmp_path / "events.ss.positions").write_text("no database " * 100)

    async def scenario(streamer):
        with pytest.raises(StreamError) as caught:
            await streamer.create_consumer("a", mode="resumable")
        return caught.value.code

    assert run(tmp_path, scenario) == "BIC-2645"


def test_messages_sent_while_a_consumer_finds_its_position_are_written(tmp_path, monkeypatch):
    """A consumer first writes out what producers buffer; on a thread, it would meet later ones."""
    write, has_sent = writing._write_all, threading.Event()

    def write_slowly(*words):
        if threading.current_thread() is not threading.main_thread():
            assert has_sent.wait(PATIENCE_S)
        write(*words)

    monkeypatch.setattr(writing, "_write_all", write_slowly)

    async def scenario(streamer):
        producer = await streamer.create_producer("a")
        numbers = itertools.count()

        async def send_during(moving):
            producer.send(str(next(numbers)))
            has_sent.clear()
            task = asyncio.ensure_future(moving)
            while not task.done():
                await asyncio.wait([task], timeout=0.002)
                producer.send(str(next(numbers)))
                has_sent.set()
            return await task

        consumer = await send_during(streamer.create_consumer("a"))
        await send_during(consumer.rewind(BEGINNING))
        await producer.flush()
        return next(numbers)

    count = run(tmp_path, scenario, linger_ms=60_000)

    found = decode((tmp_path / "events.ss").read_bytes())
    assert [m[4] for m in found.messages] == [str(n).encode() for n in range(count)]


def test_a_member_that_has_moved_leaves_the_position_of_its_group(tmp_path):
    words = {"mode": "load-balanced", "group": "g", "start": "earliest"}

    async def scenario(streamer):
        await send(streamer, range(3))
        consumer = await streamer.create_consumer("a", **words)
        for _ in range(2):
            consumer.ack(await consumer.next())
        await consumer.commit()
        await consumer.rewind(BEGINNING)
        message = await consumer.next()
        with pytest.raises(StreamUnsupportedError, match="leaves its group"):
            consumer.ack(message)
        await consumer.commit()
        return await numbers(await streamer.create_consumer("a", **words), 1)

    assert run(tmp_path, scenario) == [2]


def test_a_file_is_synced_at_its_end_without_a_wait_for_the_interval(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(FileWriter, "sync", lambda self: synced.append(self.written))

    async def scenario():
        options = OPTIONS | {"fsync": "interval", "fsync_interval_ms": 3_600_000}
        async with asyncio.timeout(60), connect(f"file://{tmp_path}/events.ss", options) as found:
            await send(found, [1])

    asyncio.run(scenario())

    assert synced == [1]
