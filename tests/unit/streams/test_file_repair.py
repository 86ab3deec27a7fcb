"""Damage in files: it is told, and costs the messages that it hits and no others."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bicycle_sdk.clock import ManualClock
from bicycle_streams import At, StreamConnectError, connect
from bicycle_streams.addresses import INTERNAL, StreamKey
from bicycle_streams.file.creating import create_file
from bicycle_streams.file.decoding import decode as show
from bicycle_streams.file.errors import FileFormatError
from bicycle_streams.file.format import FIXED, HEADER_SIZE, FileHeader
from bicycle_streams.file.repairing import repair, verify
from bicycle_streams.file.view import FileView
from bicycle_streams.file.writing import FileWriter
from bicycle_streams.messages import Message
from tests.unit.streams.ss_decoder import decode


def make(path, payloads, *, interval=1024, end=True):
    """Write messages of streams a and b in turns."""
    path.unlink(missing_ok=True)

    async def scenario():
        options = {
            "create": "only",
            "beacon_interval_bytes": interval,
            "end_with_eos": end,
        }
        async with connect(f"file://{path}", options) as streamer:
            producer = await streamer.create_generic_producer()
            for number, payload in enumerate(payloads):
                producer.send_to("ab"[number % 2], payload)

    asyncio.run(scenario())
    return path.read_bytes()


def append(path, payload):
    async def scenario():
        async with connect(f"file://{path}") as streamer:
            (await streamer.create_producer("a")).send(payload)

    asyncio.run(scenario())


def flip(data, at, bit=1):
    return data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]


def repaired(path):
    output = path.with_name("repaired.ss")
    output.unlink(missing_ok=True)
    report = repair(path, output)
    return report, decode(output.read_bytes())


def test_an_intact_file_is_intact_and_repaired_to_the_same_messages(tmp_path):
    path = tmp_path / "events.ss"
    data = make(path, [b"x" * n for n in range(60)])

    report, found = repaired(path)

    assert verify(path) == report
    assert (report.is_intact, report.message_count, report.has_ended) == (True, 60, True)
    assert report.by_stream == {"a": 30, "b": 30}
    assert (found.messages, found.has_ended) == (decode(data).messages, True)


def test_a_flipped_bit_in_a_payload_costs_that_message(tmp_path):
    path = tmp_path / "events.ss"
    data = make(path, [f"payload-{n:03}".encode() * 9 for n in range(60)])
    path.write_bytes(flip(data, data.index(b"payload-017")))

    report, found = repaired(path)

    assert [(b.stream, b.sequence) for b in report.broken] == [("b", 9)]
    assert found.messages == [m for m in decode(data).messages if (m[0], m[2]) != ("b", 9)]
    assert path.read_bytes() != data


def test_a_flipped_bit_in_a_size_costs_that_message(tmp_path):
    path = tmp_path / "events.ss"
    data = make(path, [f"payload-{n:03}".encode() * 9 for n in range(60)])
    path.write_bytes(flip(data, data.index(b"payload-017") - 1, 64))

    report, found = repaired(path)

    assert [(b.stream, b.sequence) for b in report.broken] == [("b", 9)]
    assert found.messages == [m for m in decode(data).messages if (m[0], m[2]) != ("b", 9)]


@pytest.mark.parametrize("count", [20, 9])
def test_a_size_that_ends_at_another_message_or_the_end_costs_one_message(tmp_path, count):
    """512 bytes more are eight messages of 64 bytes: of 9 messages, all that follow."""
    path = tmp_path / "events.ss"
    data = make(path, [b"%031d" % n for n in range(count)], interval=1 << 20, end=False)
    assert len(data) == HEADER_SIZE + 64 * count
    # The size is in front of the payload, in 4 bytes.
    path.write_bytes(flip(data, data.index(b"%031d" % 0) - 2, 2))

    report, found = repaired(path)

    assert [(b.stream, b.sequence) for b in report.broken] == [("a", 1)]
    assert found.messages == decode(data).messages[1:]


def test_a_number_that_was_changed_is_damage_and_a_gap_of_its_stream(tmp_path):
    path = tmp_path / "events.ss"
    data = make(path, [f"payload-{n:03}".encode() * 9 for n in range(20)])
    assert verify(path).gaps == []

    # Before the payload: the number (8 bytes), the time (8) and the size (4).
    path.write_bytes(flip(data, data.index(b"payload-017") - 13, 64))
    report, _ = repaired(path)

    assert [(g.stream, g.after, g.sequence) for g in report.gaps] == [("b", 8, 73), ("b", 73, 10)]
    [broken, *_] = verify(path).broken
    assert (broken.stream, broken.sequence) == ("b", 73)
    assert "the sequence decreases within its shard, from 73 to 10" in broken.problem


def heads_of(path):
    view = FileView.open(path)
    heads = list(view.heads(HEADER_SIZE))
    named = {
        number * view.interval: {marker.key for marker in view.beacon(number).markers}
        for number in range(1, view.beacon_count + 1)
    }
    view.close()
    return heads, named


def test_changed_heads_are_damage_where_a_beacon_names_their_stream_later(tmp_path):
    """What remains is a time that stays between those of its neighbors."""
    path = tmp_path / "events.ss"
    data = make(path, [f"payload-{n:03}".encode() * 9 for n in range(60)], interval=2048)
    heads, named = heads_of(path)
    for head in heads:
        size = 1 + len(head.key) + 8 + FIXED.size
        is_named = any(head.key in keys for at, keys in named.items() if at > head.offset)
        if not is_named or head.offset // 2048 != (head.offset + size) // 2048:
            continue
        for at in range(head.offset, head.offset + size - 4):
            path.write_bytes(flip(data, at, 32))
            is_time = at >= head.offset + size - 12
            assert not verify(path).is_intact or is_time, (head, at)


def test_a_changed_shard_or_stream_is_damage_without_a_beacon(tmp_path):
    """The message is the only one of a stream, and another stream lacks its sequence."""
    path = tmp_path / "events.ss"
    data = make(path, [b"payload"] * 12, interval=1 << 20)
    heads, _ = heads_of(path)
    # The first messages of a and b could be the first of any stream; the last head is the end mark.
    for head in heads[4:-1]:
        for at in range(head.offset + 1, head.offset + 2 + 8):
            for bit in range(8):
                path.write_bytes(flip(data, at, 1 << bit))
                assert [b.offset for b in verify(path).broken] == [head.offset], (head, at, bit)
                with pytest.raises(FileFormatError):
                    list(show(path, "log"))


def test_the_changed_bits_that_remain_undetected_are_those_that_the_page_lists(tmp_path):
    path = tmp_path / "events.ss"
    data = make(path, [b"payload"] * 8, interval=1 << 20)
    heads, _ = heads_of(path)
    *heads, end_mark = heads
    for head in heads:
        own = [each for each in heads if each.key == head.key]
        position, is_last = own.index(head), head is own[-1]
        for at in range(head.offset, head.payload_at):
            for bit in range(8):
                path.write_bytes(flip(data, at, 1 << bit))
                report = verify(path)
                if not report.is_intact:
                    continue
                changed = heads_of(path)[0][heads.index(head)]
                is_moved = (changed.key, changed.shard_id) != (head.key, head.shard_id)
                if is_moved:
                    assert position < 2, (head, at, bit)
                elif changed.sequence != head.sequence:
                    assert (is_last or not position) and report.gaps, (head, at, bit)
                else:
                    assert is_last or changed.timestamp_ms <= own[position + 1].timestamp_ms
    assert end_mark.key == INTERNAL


def test_a_repair_that_left_one_message_of_a_stream_left_no_damage(tmp_path):
    path = tmp_path / "events.ss"
    data = make(path, [b"1a", b"1b", b"2a", b"2b"], interval=1 << 20, end=False)
    for lost in (b"1a", b"1b"):
        path.write_bytes(flip(data, data.index(lost)))

        report, found = repaired(path)

        assert (len(report.broken), len(found.messages)) == (1, 3)
        assert verify(path.with_name("repaired.ss")).is_intact


def test_a_beacon_shows_that_the_only_message_of_a_stream_belongs_to_it(tmp_path):
    path = tmp_path / "events.ss"
    create_file(path, FileHeader(path.name, 0, 1024), must_be_new=True)
    writer = FileWriter(path, limit_bytes=1 << 30, buffer_bytes=1)
    for key, sequence in (("a", 1), ("a", 2), ("b", 3), ("a", 4)):
        writer.copy(Message(StreamKey(key), 0, sequence, 1_000, b"x" * 600))
    writer.close(with_end=False)

    assert verify(path).is_intact


@pytest.mark.parametrize("field", ["sequence", "time"])
@pytest.mark.parametrize("by", [1 << 60, -3])
def test_a_number_that_goes_back_is_named_with_its_message(tmp_path, field, by):
    path = tmp_path / "events.ss"
    writer = new_writer(path)
    for number in range(20):
        writer.take(StreamKey("a"), 0, b"x", 1_000 + number)
    writer.close(with_end=False)
    head = heads_of(path)[0][9]
    at = head.payload_at - (20 if field == "sequence" else 12)
    data = path.read_bytes()
    number = int.from_bytes(data[at : at + 8]) + by
    path.write_bytes(data[:at] + number.to_bytes(8) + data[at + 8 :])

    [broken] = verify(path).broken
    assert broken.offset == head.offset
    assert f"the {field} decreases within its shard" in broken.problem
    lines = []
    with pytest.raises(FileFormatError) as caught:
        lines.extend(show(path, "log"))
    assert caught.value.facts["offset"] == head.offset


def test_a_clock_that_is_set_back_makes_no_time_go_back(tmp_path):
    path = tmp_path / "events.ss"
    clock = ManualClock(start_ms=5_000)
    writer = new_writer(path, clock=clock)
    for time_ms in (5_000, 3_000, 6_000):
        clock.set_wall(time_ms)
        writer.take(StreamKey("a"), 0, b"x", None)
        writer.take_many(StreamKey("a"), 0, [b"y", b"z"])
    writer.close(with_end=True)

    assert verify(path).is_intact
    assert [head.timestamp_ms for head in heads_of(path)[0][:-1]] == [5_000] * 6 + [6_000] * 3


def new_writer(path, **words):
    create_file(path, FileHeader(path.name, 0, 1 << 20), must_be_new=True)
    return FileWriter(path, limit_bytes=1 << 30, buffer_bytes=1, **words)


def test_what_was_lost_by_a_repair_is_a_gap_afterwards(tmp_path):
    path = tmp_path / "events.ss"
    data = make(path, [f"payload-{n:03}".encode() * 9 for n in range(60)])
    path.write_bytes(flip(data, data.index(b"payload-017")))
    report, _ = repaired(path)

    again = verify(path.with_name("repaired.ss"))

    assert (report.gaps, again.is_intact) == ([], True)
    assert [(g.stream, g.after, g.sequence) for g in again.gaps] == [("b", 8, 10)]


def test_a_flipped_bit_in_a_beacon_costs_nothing(tmp_path):
    path = tmp_path / "events.ss"
    data = make(path, [b"x" * 100] * 60)
    path.write_bytes(flip(data, 2048 + 4))

    report, found = repaired(path)

    assert found.messages == decode(data).messages
    assert ["beacon" in b.problem for b in report.broken] == [True]


def test_a_beacon_that_points_behind_the_end_is_told_to_who_seeks(tmp_path):
    path = tmp_path / "events.ss"

    async def scenario():
        options = {"create": "if-missing", "beacon_interval_bytes": 1024}
        async with connect(f"file://{path}", options) as streamer:
            (await streamer.create_producer("a")).send_many([b"x" * 100] * 30)
        data = path.read_bytes()
        path.write_bytes(flip(data, 1024 + 1, 128))  # The highest byte of how much follows.
        async with connect(f"file://{path}") as streamer:
            consumer = await streamer.create_consumer("a", start="earliest")
            with pytest.raises(FileFormatError) as caught:
                await consumer.rewind(At(12))
            await consumer.rewind(At(1))
            await consumer.rewind(At(30))
            return caught.value.facts["offset"], (await consumer.next()).sequence

    assert asyncio.run(scenario()) == (1024, 30)


def test_a_file_that_was_cut_has_all_but_the_last_message(tmp_path):
    path = tmp_path / "events.ss"
    data = make(path, [b"x" * 100] * 30, end=False)
    path.write_bytes(data[:-1])

    report, found = repaired(path)

    assert found.messages == decode(data).messages[:-1]
    assert [b.problem for b in report.broken] == ["the file ends inside a message"]


@given(
    st.lists(st.binary(max_size=1500), min_size=1, max_size=20),
    st.data(),
)
@settings(max_examples=150, deadline=None)
def test_one_flipped_bit_costs_at_most_what_it_touches(tmp_path_factory, payloads, data):
    path = tmp_path_factory.mktemp("damage") / "events.ss"
    whole = make(path, payloads)
    before = Counter(decode(whole).messages)
    at = data.draw(st.integers(128, len(whole) - 1), label="byte")
    path.write_bytes(flip(whole, at, 1 << data.draw(st.integers(0, 7), label="bit")))

    report, found = repaired(path)

    # A changed sequence can make a message equal to another one.
    kept = Counter(found.messages)
    lost, invented = list((before - kept).elements()), list((kept - before).elements())
    assert len(lost) <= 1
    # The header of a message has no checksum: a flip there is a message with another name or time.
    assert len(invented) <= 1
    assert {m[4] for m in invented} <= {b"EOS", *(m[4] for m in lost)}
    assert not lost or invented or report.broken
    path.unlink()


@given(st.lists(st.binary(max_size=1500), min_size=1, max_size=20), st.data())
@settings(max_examples=100, deadline=None)
def test_a_file_that_was_cut_anywhere_has_all_whole_messages_and_goes_on(
    tmp_path_factory, payloads, data
):
    """Message, beacon and mark of the end may be cut; readers and the next writer know of it."""
    path = tmp_path_factory.mktemp("cuts") / "events.ss"
    whole = make(path, payloads, end=data.draw(st.booleans(), label="end"))
    size = data.draw(st.integers(128, len(whole)), label="size")
    path.write_bytes(whole[:size])
    before = decode(whole)
    expected = [m for m, end in zip(before.messages, before.ends, strict=True) if end <= size]

    _, kept = repaired(path)
    append(path, b"more")

    found = decode(path.read_bytes())
    assert kept.messages == found.messages[:-1] == expected
    last = max((m[2] for m in expected if m[0] == "a"), default=0)
    assert (found.messages[-1][0], found.messages[-1][2]) == ("a", last + 1)
    path.unlink()


def test_a_file_with_a_broken_header_is_refused(tmp_path):
    path = tmp_path / "events.ss"
    path.write_bytes(flip(make(path, [b"x"]), 0))

    with pytest.raises(FileFormatError):
        verify(path)


def test_a_repair_writes_over_nothing(tmp_path):
    path = tmp_path / "events.ss"
    data = make(path, [b"x"])

    with pytest.raises(StreamConnectError):
        repair(path, path)
    assert path.read_bytes() == data


def test_a_damaged_file_is_told_to_who_reads_and_to_who_appends(tmp_path):
    path = tmp_path / "events.ss"
    data = make(path, [b"first", b"second", b"third"])
    path.write_bytes(flip(data, data.index(b"second")))

    async def reading():
        async with connect(f"file://{path}") as streamer:
            consumer = await streamer.create_consumer(["a", "b"], start="earliest", is_live=False)
            first = await consumer.next()
            with pytest.raises(FileFormatError) as caught:
                await consumer.next()
            return first.payload, caught.value.facts["offset"]

    payload, offset = asyncio.run(reading())

    assert payload == b"first"
    assert offset == data.index(b"\x01b")


def test_nothing_is_appended_behind_damage_that_has_messages_behind_it(tmp_path):
    path = tmp_path / "events.ss"
    data = make(path, [b"first", b"second", b"third"], end=False)
    path.write_bytes(
        broken := flip(data, data.index(b"second") - 4, 1)
    )  # Its size is far too large.

    async def appending():
        async with connect(f"file://{path}") as streamer:
            await streamer.create_producer("a")

    with pytest.raises(FileFormatError):
        asyncio.run(appending())
    assert path.read_bytes() == broken
