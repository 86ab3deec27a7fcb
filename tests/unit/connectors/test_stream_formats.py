"""Payloads of streams in jobs: each format by its name, written and read by programs as well."""

import asyncio
import json
from dataclasses import dataclass

import pytest

from bicycle_runtime.formats.registry import make_codec
from bicycle_runtime.testing import Harness
from bicycle_streams import connect

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
