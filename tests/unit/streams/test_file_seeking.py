"""Places in a file: surveys of beacons, seeks, and appends that read only the end."""

import asyncio
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_streams import BEGINNING, END, At, SeekError, connect
from bicycle_streams.file.errors import FileFormatError
from bicycle_streams.file.seeking import survey

OPTIONS = {"create": "if-missing", "beacon_interval_bytes": 1024, "poll_interval_ms": 1}


def surveyed(decided, target=3, count=10):
    """Survey beacons of which only some are decided, for a place behind beacon ``target``."""

    def ask(number):
        if number not in decided:
            return "undecided"
        return "left" if number <= target else "right"

    return survey(count, ask)


@pytest.mark.parametrize(
    ("decided", "found"),
    [
        (set(range(1, 11)), (3, 4)),
        (set(range(1, 11)) - {4}, (3, 5)),
        (set(range(1, 11)) - {3, 4}, (2, 5)),
        ({1, 8, 9}, (1, 8)),
        ({8, 9}, (0, 8)),
        ({3}, (3, None)),
        ({8}, (0, 8)),
        (set(), (0, None)),
    ],
)
def test_a_survey_finds_the_closest_beacons_that_say_something(decided, found):
    assert surveyed(decided) == found


@given(st.integers(0, 40), st.integers(0, 40), st.sets(st.integers(1, 40)))
def test_a_survey_is_right_whatever_is_undecided(count, target, decided):
    known = {number for number in decided if number <= count}

    left = max((n for n in known if n <= target), default=0)
    right = min((n for n in known if n > target), default=None)
    assert surveyed(known, target, count) == (left, right)


def test_a_survey_of_many_beacons_asks_few():
    asked = []

    def ask(number):
        asked.append(number)
        return "left" if number <= 7_000 else "right"

    assert survey(16_384, ask) == (7_000, 7_001)
    assert len(asked) <= 15


def with_file(tmp_path, scenario, count=100, **options):
    """Run a scenario with a streamer of a file with messages 1 to count of streams a and b."""

    async def whole():
        address = f"file://{tmp_path}/events.ss"
        async with connect(address, {**OPTIONS, **options}) as streamer:
            producer = await streamer.create_generic_producer()
            for n in range(1, count + 1):
                producer.send_to("a", f"a{n}".ljust(60), timestamp_ms=n * 10)
                producer.send_to("b", f"b{n}", timestamp_ms=n * 10)
            await producer.flush()
            return await scenario(streamer)

    return asyncio.run(whole())


@pytest.mark.parametrize("words", [{}, {"mode": "load-balanced", "group": "g"}])
def test_a_rewind_gives_exactly_the_rest(tmp_path, words):
    async def scenario(streamer):
        consumer = await streamer.create_consumer("a", start="earliest", is_live=False, **words)
        found = {}
        for position in (BEGINNING, At(25), At(50), At(75), At(99), At(100)):
            await consumer.rewind(position)
            found[position] = [m.sequence async for m in consumer]
        return found

    found = with_file(tmp_path, scenario)

    assert found.pop(BEGINNING) == list(range(1, 101))
    assert found == {at: list(range(at.sequence, 101)) for at in found}


@pytest.mark.parametrize(("time", "first"), [(0, 1), (10, 1), (11, 2), (500, 50), (1000, 100)])
def test_a_seek_gives_the_earliest_at_or_behind_a_time(tmp_path, time, first):
    async def scenario(streamer):
        consumer = await streamer.create_consumer(["a", "b"], start="earliest", is_live=False)
        await consumer.seek(time)
        return [(str(m.stream_key), m.sequence) async for m in consumer]

    assert with_file(tmp_path, scenario) == [
        (key, n) for n in range(first, 101) for key in ("a", "b")
    ]


def test_a_seek_is_right_where_times_go_back(tmp_path):
    times = [10, 50, 20, 60, 30, 70]

    async def scenario(streamer):
        producer = await streamer.create_producer("late")
        for time in times:
            producer.send(b"x" * 600, timestamp_ms=time)
        consumer = await streamer.create_consumer("late", start="earliest", is_live=False)
        found = {}
        for time in (10, 11, 51, 61):
            await consumer.seek(time)
            found[time] = [m.timestamp_ms async for m in consumer]
        return found

    assert with_file(tmp_path, scenario, count=3) == {
        10: times,
        11: times[1:],
        51: times[3:],
        61: times[5:],
    }


def test_a_seek_beyond_the_end_is_told_and_moves_nothing(tmp_path):
    async def scenario(streamer):
        consumer = await streamer.create_consumer("a", start="earliest", is_live=False)
        for _ in range(5):
            await consumer.next()
        for move in (consumer.rewind(At(101)), consumer.seek(1001)):
            with pytest.raises(SeekError):
                await move
        return (await consumer.next()).sequence

    assert with_file(tmp_path, scenario) == 6


def test_the_end_is_behind_all_that_was_sent(tmp_path):
    async def scenario(streamer):
        consumer = await streamer.create_consumer("a", start="earliest")
        producer = await streamer.create_producer("a")
        await consumer.next()
        producer.send(b"before")
        await consumer.rewind(END)
        producer.send(b"behind")
        return (await consumer.next()).payload

    assert with_file(tmp_path, scenario) == b"behind"


def test_assigned_shards_are_read_from_the_next_seek_on(tmp_path):
    async def scenario(streamer):
        producer = await streamer.create_producer("s", shard_count=3)
        for n in range(30):
            producer.send(str(n))
        consumer = await streamer.create_consumer("s", start="earliest", is_live=False)
        consumer.assign("s", 1)
        everything = [(m.shard_id, m.sequence) async for m in consumer]
        await consumer.rewind(At(4))
        first = [(m.shard_id, m.sequence, m.payload) async for m in consumer]
        consumer.assign("s", 2)
        consumer.unassign("s", 1)
        await consumer.rewind(BEGINNING)
        return everything, first, {m.shard_id async for m in consumer}

    everything, first, rest = with_file(tmp_path, scenario, count=1)

    assert everything == [(n % 3, n // 3 + 1) for n in range(30)]
    assert first == [(1, n + 1, str(n * 3 + 1).encode()) for n in range(3, 10)]
    assert rest == {2}


def test_an_append_reads_the_end_of_a_file_only(tmp_path, monkeypatch):
    async def scenario(streamer):
        return None

    with_file(tmp_path, scenario, count=3_000)
    path = tmp_path / "events.ss"
    places = []
    pread = os.pread

    def noted(descriptor, size, offset):
        places.append((offset, size))
        return pread(descriptor, size, offset)

    async def appended():
        async with connect(f"file://{path}", OPTIONS) as streamer:
            producer = await streamer.create_producer("a")
            return (await producer.send(b"x")).sequence

    monkeypatch.setattr(os, "pread", noted)

    size = path.stat().st_size
    assert asyncio.run(appended()) == 3_001
    assert size > 300_000
    assert {offset for offset, _ in places if offset < size - 40_000} == {0}


@pytest.mark.parametrize("is_live", [False, True])
def test_a_beacon_with_a_wrong_count_is_damage_and_no_end(tmp_path, is_live):
    path = tmp_path / "events.ss"

    async def write():
        async with connect(f"file://{path}", OPTIONS) as streamer:
            (await streamer.create_producer("a")).send("a" * 5_000)

    async def read():
        async with asyncio.timeout(60), connect(f"file://{path}", OPTIONS) as streamer:
            await (await streamer.create_consumer("a", start="earliest", is_live=is_live)).next()

    asyncio.run(write())
    data = bytearray(path.read_bytes())
    data[3 * 1024 + 5] = 200
    path.write_bytes(data)

    with pytest.raises(FileFormatError, match="beacon does not end"):
        asyncio.run(read())
