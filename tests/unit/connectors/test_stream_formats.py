"""Payloads of streams in jobs: each format by its name, written and read by programs as well."""

import asyncio
import json
from dataclasses import dataclass

import pytest

from bicycle_runtime.connectors.lines import LineBlock
from bicycle_runtime.connectors.stream_clients.sockets import LineReader
from bicycle_runtime.connectors.stream_clients.source import decoded_batch
from bicycle_runtime.contract import BadRecord
from bicycle_runtime.formats.registry import make_codec
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.testing import Harness
from bicycle_sdk import WatermarkStrategy, skip
from bicycle_sdk.time import TIME_MS_MAX
from bicycle_streams import connect
from bicycle_streams.addresses import StreamKey
from bicycle_streams.file.creating import create_file
from bicycle_streams.file.format import FileHeader
from bicycle_streams.file.writing import FileWriter
from bicycle_streams.messages import Message

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}],
}


@dataclass(frozen=True)
class Order:
    id: int
    note: str


def renamed(order: Order) -> Order:
    return Order(order.id + 1, order.note + "; \u00e4, b")


def louder(text: str) -> str:
    return text.upper()


def turned(data: bytes) -> bytes:
    return data[::-1]


ORDERS = [Order(1, "a"), Order(2, ""), Order(3, 'x "y"')]
# Format -> type of the records, what a job does with one, records.
CASES = {
    "json": (Order, renamed, ORDERS),
    "msgpack": (Order, renamed, ORDERS),
    "csv": (Order, renamed, ORDERS),
    "avro": (Order, renamed, ORDERS),
    "string": (str, louder, ["a", "\u00e4"]),
    "bytes": (bytes, turned, [b"\x00\xff", b""]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_program_encodes_a_job_reads_and_a_program_decodes_again(tmp_path, name):
    record_type, change, records = CASES[name]
    options, query = {}, f"format={name}"
    if name == "avro":
        (tmp_path / "order.avsc").write_text(json.dumps(SCHEMA))
        options, query = {"schema": SCHEMA}, f"{query}&schema={tmp_path}/order.avsc"
    codec = make_codec(name, record_type, options)
    place = f"file://{tmp_path}/events.ss"

    def job(env):
        read = env.from_uri(f"{place}/in?bounded=true&{query}", type=record_type).uid("in")
        read.map(change).uid("change").to_uri(f"{place}/out?{query}").uid("out")

    async def send():
        async with connect(place, {"create": "only"}) as streamer:
            producer = await streamer.create_producer("in")
            await producer.send_many(map(codec.encode, records))

    async def read():
        async with connect(place) as streamer:
            consumer = await streamer.create_consumer("out", start="earliest", is_live=False)
            return [message.decode(codec) async for message in consumer]

    asyncio.run(send())
    with Harness(job, real_sinks=["out"]) as harness:
        harness.run()
    assert asyncio.run(read()) == list(map(change, records))


def batch_of(payloads, **options):
    messages = [
        Message(StreamKey("in"), 0, number, 1_000 + number, payload)
        for number, payload in enumerate(payloads)
    ]
    codec = make_codec("json", dict)
    return decoded_batch(codec, messages, list(range(len(payloads))), 9, **options)


def test_messages_are_columns_only_for_steps_that_read_fields():
    payloads = [b'{"n": 1}', b'{"n": 2}']
    records, columns = batch_of(payloads), batch_of(payloads, gives_fields=True)

    assert isinstance(columns.values, Frame)
    assert columns.values.field("n").numbers.tolist() == [1, 2]
    assert list(columns.values) == records.values == [{"n": 1}, {"n": 2}]
    assert (columns.offsets, columns.timestamps) == (records.offsets, records.timestamps)
    assert (columns.raws, columns.next_offset) == (records.raws, records.next_offset)


def test_one_bad_message_makes_records_of_its_batch():
    batch = batch_of([b'{"n": 1}', b"no json", b'{"n": 2}'], gives_fields=True)

    assert batch.values == [{"n": 1}, {"n": 2}]
    assert [failure.offset for failure in batch.failures] == [1]


@pytest.mark.parametrize(
    ("data", "values", "bad"),
    [(b'{"n": 1}\r\n{"n": 2}\n', [1, 2], []), (b'{"n": 1}\nno\n{"n": 3}\n', [1, 3], [9])],
)
def test_lines_of_sockets_are_columns_until_one_is_bad(data, values, bad):
    reader = LineReader(None, make_codec("json", dict))
    assert reader.give_fields()
    batch = reader.decode(LineBlock(0, data, len(data)))

    assert isinstance(batch.values, Frame) is not bool(bad)
    assert values == [record["n"] for record in batch.values]
    assert bad == [failure.offset for failure in batch.failures]


@pytest.mark.parametrize("gives_fields", [False, True])
@pytest.mark.parametrize("time_ms", [TIME_MS_MAX, -TIME_MS_MAX, 2**63 + 5, 3 * 10**21])
def test_a_message_with_a_time_out_of_bounds_is_a_failure(time_ms, gives_fields):
    messages = [
        Message(StreamKey("in"), 0, number, each, b'{"n": 1}')
        for number, each in enumerate([1_000, time_ms, 1_001])
    ]
    earlier = BadRecord(offset=0, raw=b"", reason="of the backend")
    batch = decoded_batch(
        make_codec("json", dict), messages, [1, 2, 3], 9, bad=[earlier], gives_fields=gives_fields
    )

    assert (batch.values, batch.offsets) == ([{"n": 1}] * 2, [1, 3])
    assert batch.timestamps == [1_000, 1_001]
    assert [failure.offset for failure in batch.failures] == [0, 2]
    assert str(time_ms) in batch.failures[1].reason


def test_a_job_skips_messages_with_times_out_of_bounds(tmp_path):
    path = tmp_path / "in.ss"
    create_file(path, FileHeader(path.name, 0, 1 << 20), must_be_new=True)
    writer = FileWriter(path, limit_bytes=1 << 30, buffer_bytes=1)
    for time_ms in (1_000, 2**63 + 5, 1_001):
        writer.take(StreamKey("in"), 0, b"x", time_ms)
    writer.close(with_end=False)

    def job(env):
        texts = env.from_uri(f"file://{path}/in?bounded=true").uid("in").on_error(skip())
        timed = texts.assign_timestamps(WatermarkStrategy.ascending()).key_by(str)
        timed.tumbling_window(10_000).count().uid("count").collect("out")

    with Harness(job) as harness:
        harness.run()
        assert [window.value for window in harness.results("out")] == [2]
