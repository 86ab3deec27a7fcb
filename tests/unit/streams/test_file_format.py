"""The format of files: what others wrote is read exactly, and what we write is read by others."""

import asyncio
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bicycle_streams import StreamConnectError, StreamKey, connect
from bicycle_streams.file.format import (
    Beacon,
    FileHeader,
    StreamMarker,
    checksum,
    encode_beacon,
    marker_count_max,
    parse_beacon,
)
from tests.unit.streams.ss_decoder import crc16, decode

SAMPLE = Path(__file__).with_name("samples") / "sample-1.ss"


def write(path, batches, **options):
    """Append batches of (key, shard, payload), each through a streamer of its own."""

    async def scenario():
        for batch in batches:
            async with connect(f"file://{path}", {"create": "if-missing", **options}) as streamer:
                producer = await streamer.create_generic_producer()
                for key, shard, payload in batch:
                    producer.send_to(key, payload, shard_id=shard)

    asyncio.run(scenario())


def read(path, keys=("SEA_STREAMER_WILDCARD",)):
    """Return all messages of a file as tuples."""

    async def scenario():
        async with connect(f"file://{path}") as streamer:
            consumer = await streamer.create_consumer(keys, start="earliest", is_live=False)
            return [
                (str(m.stream_key), m.shard_id, m.sequence, m.timestamp_ms, m.payload)
                async for m in consumer
            ]

    return asyncio.run(scenario())


def test_the_checksum_has_the_check_values_and_goes_on():
    assert checksum(b"123456789") == crc16(b"123456789") == 0x4C06
    assert checksum(b"abcd", 0x4C06) == crc16(b"abcd", 0x4C06) == 0xA106


def test_the_sample_of_seastreamer_is_read_exactly():
    expected = decode(SAMPLE.read_bytes())

    assert read(SAMPLE) == expected.messages
    assert [m[2] for m in read(SAMPLE, ["event"])] == list(range(1, 23))
    assert (len(expected.messages), expected.has_ended) == (27, True)


def test_the_header_of_the_sample_is_written_byte_for_byte():
    data = SAMPLE.read_bytes()[:128]

    header = FileHeader.parse(data)

    assert (header.file_name, header.beacon_interval) == (
        "vec_map-1694767177436.firedbg.ss",
        1 << 20,
    )
    assert header.encode() == data


def test_what_is_appended_to_the_sample_continues_its_sequences(tmp_path):
    path = tmp_path / "sample.ss"
    shutil.copy(SAMPLE, path)

    write(path, [[("event", 0, b"more"), ("new", 0, b"first")]], end_with_eos=True)

    before, after = decode(SAMPLE.read_bytes()), decode(path.read_bytes())
    assert after.messages[:27] == before.messages
    assert [(m[0], m[2], m[4]) for m in after.messages[27:]] == [
        ("event", 23, b"more"),
        ("new", 1, b"first"),
    ]
    assert after.has_ended


KEYS = st.sampled_from(["a", "b", "stream-with_a.longer-name"])
MESSAGES = st.lists(
    st.tuples(KEYS, st.integers(0, 2), st.binary(max_size=2500)), min_size=1, max_size=12
)


@given(st.lists(MESSAGES, min_size=1, max_size=4), st.booleans())
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read_by_another_decoder(tmp_path_factory, batches, has_end):
    path = tmp_path_factory.mktemp("files") / "events.ss"

    write(path, batches, beacon_interval_bytes=1024, end_with_eos=has_end)

    found = decode(path.read_bytes())
    sent = [message for batch in batches for message in batch]
    assert [(m[0], m[1], m[4]) for m in found.messages] == sent
    counts = {}
    for key, shard, sequence, *_ in found.messages:
        counts[key, shard] = counts.get((key, shard), 0) + 1
        assert sequence == counts[key, shard]
    assert (found.name, found.interval, found.has_ended) == ("events.ss", 1024, has_end)
    assert read(path) == found.messages
    path.unlink()


@pytest.mark.parametrize("size", range(1024 - 128 - 60, 1024 - 128 + 10))
def test_a_message_may_end_anywhere_around_a_beacon(tmp_path, size):
    path = tmp_path / "events.ss"

    write(
        path,
        [[("a", 0, b"x" * size)], [("a", 0, b"y")], [("a", 0, b"")]],
        beacon_interval_bytes=1024,
        end_with_eos=True,
    )

    assert [m[4] for m in decode(path.read_bytes()).messages] == [b"x" * size, b"y", b""]
    assert [m[2] for m in read(path)] == [1, 2, 3]


def test_a_batch_is_written_as_its_messages_one_by_one(tmp_path):
    payloads = [bytes([n % 251]) * (n * 37 % 3000) for n in range(200)]

    async def scenario():
        for name in ("one", "many"):
            options = {"create": "only", "beacon_interval_bytes": 2048, "write_buffer_bytes": 999}
            async with connect(f"file://{tmp_path}/{name}.ss", options) as streamer:
                producer = await streamer.create_producer("a")
                if name == "many":
                    await producer.send_many(payloads)
                for payload in payloads if name == "one" else ():
                    producer.send(payload)

    asyncio.run(scenario())

    one, many = (decode((tmp_path / f"{name}.ss").read_bytes()) for name in ("one", "many"))
    assert [m[4] for m in one.messages] == [m[4] for m in many.messages] == payloads
    assert one.beacons.keys() == many.beacons.keys()


def test_beacons_name_streams_in_turns_when_they_have_no_room_for_all(tmp_path):
    path = tmp_path / "events.ss"
    keys = [f"stream-{n}" for n in range(5)]

    write(path, [[(key, 0, b"x" * 400) for key in keys * 6]], beacon_interval_bytes=1024)

    named = [set(markers) for _, markers in decode(path.read_bytes()).beacons.values()]
    assert {len(streams) for streams in named} == {1}
    assert {key for streams in named for key, _ in streams} == set(keys)
    write(path, [[(key, 0, b"again") for key in keys]])
    assert [m[2] for m in decode(path.read_bytes()).messages[-5:]] == [7] * 5


def test_a_beacon_survives_its_bytes():
    markers = (
        StreamMarker(StreamKey("a"), 1, 2, 3, 4),
        StreamMarker(StreamKey("b" * 249), 2**64 - 1, 0, 0, 0),
    )

    data = encode_beacon(9, markers)

    assert parse_beacon(data) == Beacon(9, markers, len(data))
    assert [parse_beacon(data[:size]) for size in range(len(data))] == [None] * len(data)
    assert len(encode_beacon(0, ())) == 7
    assert (marker_count_max(1024), marker_count_max(1 << 20)) == (1, 127)


@pytest.mark.parametrize("broken", [b"\x00" * 7, b"\r\0\0\0\0\0\0", b"\r\0\0\0\0\1\0" + bytes(40)])
def test_what_is_no_beacon_is_told(broken):
    with pytest.raises(ValueError, match=r"beacon|key"):
        parse_beacon(broken)


@pytest.mark.parametrize(("size", "is_right"), [(111, True), (112, False)])
def test_a_name_that_does_not_fit_into_the_header_is_refused(tmp_path, size, is_right):
    path = tmp_path / ("x" * (size - 3) + ".ss")

    if is_right:
        write(path, [[("a", 0, b"x")]])
        assert decode(path.read_bytes()).name == path.name
    else:
        with pytest.raises(StreamConnectError) as caught:
            write(path, [[]])
        assert caught.value.code == "BIC-2634"
        assert list(tmp_path.iterdir()) == []
