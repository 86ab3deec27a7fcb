"""Messages of every bad kind: each costs itself alone, and goes through ``on_error``."""

import asyncio
import base64
from dataclasses import dataclass

import pytest
from confluent_kafka import Producer

from bicycle_runtime.testing import Harness
from bicycle_runtime.testing.connectors.running import eventually
from bicycle_sdk import KafkaSourceBuilder, ProcessFunction, dead_letter
from bicycle_sdk.formats import protobuf
from bicycle_streams import connect
from bicycle_streams.errors import StreamError
from tests.kafka.kafka_feeding import feed, source_run, values
from tests.kafka.raw_messages import produce_raw

BAD_NAME = [(b"\xff\xfe", b"1")]
LARGE = 900_000


@dataclass(frozen=True)
class Order:
    id: int


class WithHeaders(ProcessFunction[object, object]):
    """Looks at the headers of each message."""

    def process_element(self, value, ctx):
        return [(value.id, ctx.message.key, ctx.message.headers)]


def run(broker, topic, function=None, **formats):
    """Run a bounded job with dead letters; return results and letters."""

    def job(env):
        source = KafkaSourceBuilder[Order](broker.bootstrap, topic).bounded()
        if formats:
            source.key_deserializer(formats["key"])
        stream = env.add_source(source).uid("in").on_error(dead_letter())
        if function is not None:
            stream = stream.process_fn(function).uid("looks").on_error(dead_letter())
        stream.collect("out")

    with Harness(job, parallelism=1) as harness:
        eventually(lambda: harness.run() or harness.loop.manifest.plan.is_finished, 60)
        return harness.results("out"), harness.dead_letters


def protobuf_run(broker, topic):
    """Return the names of bounded Protobuf messages, and the letters."""

    def job(env):
        source = KafkaSourceBuilder[dict](broker.bootstrap, topic).bounded()
        source.deserializer(protobuf("google.protobuf.descriptor_pb2:DescriptorProto"))
        rows = env.add_source(source).uid("in").on_error(dead_letter())
        rows.map(lambda row: row["name"]).uid("name").collect("out")

    with Harness(job, parallelism=1) as harness:
        eventually(lambda: harness.run() or harness.loop.manifest.plan.is_finished, 60)
        return harness.results("out"), harness.dead_letters


def places(letters):
    return [(letter["operator"], letter["offset"]) for letter in letters]


def test_values_of_every_bad_kind_are_dead_letters(kafka_broker, topic):
    name = topic()
    large = b'{"id": 2, "filler": "' + b"x" * LARGE + b'"}'
    bad = [
        None, b"", b"{", b"\xff\xfe", b"null", b"[]", b'{"id": "x"}', b'{"id": 1e400}',
        b"[" * 10_000, b"x" * LARGE, b'{"id": 1} trailing',
    ]  # fmt: skip
    feed(kafka_broker, name, [b'{"id": 1}', *bad, large, b'{"id": 3}'])

    found, letters = run(kafka_broker, name)

    assert [order.id for order in found] == [1, 2, 3]
    assert places(letters) == [("in", offset) for offset in range(1, 1 + len(bad))]
    assert [base64.b64decode(letter["value"]) for letter in letters] == [b or b"" for b in bad]


def test_protobuf_values_of_every_bad_kind_are_dead_letters(kafka_broker, topic):
    name = topic()
    bad = {
        "no value": None, "truncated": b"\x0a\x05ab", "another kind": b"\x08\x01",
        "long number": b"\x08" + b"\xff" * 20, "long length": b"\x0a\xff\xff\xff\xff\x07a",
        "not UTF-8": b"\x0a\x02\xff\xfe", "JSON": b'{"name": "a"}', "group": b"\x0b",
        "nested": nested(1_000), "large rubbish": b"\xff" * LARGE,
    }  # fmt: skip
    unknown = b"\x0a\x01b\xa2\x06\x03abc"
    feed(kafka_broker, name, [b"\x0a\x01a", *bad.values(), unknown, nested(90) + b"\x0a\x01c"])

    found, letters = protobuf_run(kafka_broker, name)

    assert found == ["a", "b", "c"]
    assert places(letters) == [("in", offset) for offset in range(1, 1 + len(bad))]


def nested(depth):
    """Return a Protobuf message within messages of its class (field 3)."""
    data = b""
    for _ in range(depth):
        size, head = len(data), b"\x1a"
        while size > 127:
            head += bytes([size & 127 | 128])
            size >>= 7
        data = head + bytes([size]) + data
    return data


def test_keys_of_every_bad_kind_are_dead_letters(kafka_broker, topic):
    name = topic()
    for key in (None, b"", b"\xff", b"k" * LARGE, b"k"):
        feed(kafka_broker, name, [b'{"id": 1}'], key=key)

    found, letters = run(kafka_broker, name, WithHeaders(), key="string")

    assert [key and key[:1] for _, key, _ in found] == [None, "", "k", "k"]
    assert places(letters) == [("in", 2)]
    assert "key" in letters[0]["message"]


def test_headers_that_cannot_be_read_cost_only_who_looks_at_them(kafka_broker, topic):
    name = topic()
    messages = [
        (b"k", b'{"id": 1}', []), (b"k", b'{"id": 2}', BAD_NAME), (b"k", b"{", BAD_NAME),
        (b"k", b'{"id": 4}', [(b"", None), (b"n" * 10_000, b"v" * 10_000)]),
    ]  # fmt: skip
    produce_raw(kafka_broker.bootstrap, name, messages, timestamp_ms=1_000)

    plain, letters = run(kafka_broker, name)
    assert [order.id for order in plain] == [1, 2, 4]
    assert places(letters) == [("in", 2)]
    assert "not UTF-8" in letters[0]["message"]

    found, letters = run(kafka_broker, name, WithHeaders())
    assert [number for number, *_ in found] == [1, 4]
    assert found[1][2] == (("", None), ("n" * 10_000, b"v" * 10_000))
    assert sorted(places(letters)) == [("in", 2), ("looks", 1)]
    assert [letter["source_message"]["headers"] for letter in letters] in ([[], None], [None, []])


@pytest.mark.parametrize("timestamp_ms", [-1, -5, 0])
def test_messages_without_a_time_are_read(kafka_broker, topic, timestamp_ms):
    name = topic()
    message = (None, b'{"id": 1}', [])
    produce_raw(kafka_broker.bootstrap, name, [message], timestamp_ms=timestamp_ms)
    feed(kafka_broker, name, [b"{"], timestamp=5_000)

    found, letters = run(kafka_broker, name)

    assert [order.id for order in found] == [1]
    assert places(letters) == [("in", 1)]


def test_tombstones_of_a_compacted_topic_are_records_where_the_type_allows_none(
    kafka_broker, topic, tmp_path
):
    name = topic(cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", segment_ms="100")
    for round_number in range(3):
        for key in ("a", "b"):
            feed(kafka_broker, name, [f"{key}{round_number}", None], key=key)
    run = source_run(kafka_broker, tmp_path, str | None, topics=[name]).start()
    try:
        found = values(run.drain(count=12))
        assert found[-1] is None
        eventually(lambda: run.source.poll().lag.record_count == 0)
    finally:
        run.stop()


def test_the_toolkit_tells_of_a_message_with_unreadable_headers_and_goes_on(kafka_broker, topic):
    name = topic()
    messages = [(None, b"a", []), (None, b"b", BAD_NAME), (None, b"c", [])]
    produce_raw(kafka_broker.bootstrap, name, messages, timestamp_ms=1_000)

    async def scenario():
        async with asyncio.timeout(60), connect(f"kafka://{kafka_broker.bootstrap}") as streamer:
            consumer = await streamer.create_consumer(name, start="earliest")
            first = await consumer.next()
            with pytest.raises(StreamError) as caught:
                await consumer.next()
            return first.payload, caught.value.summary, (await consumer.next()).payload

    first, error, last = asyncio.run(scenario())

    assert (first, last) == (b"a", b"c")
    assert f"message 1 of {name}/0" in error


def test_a_message_that_a_broker_refuses_is_not_in_the_topic(kafka_broker, topic):
    name = topic(max_message_bytes="2000")
    errors = []
    producer = Producer({**kafka_broker.client_settings(), "message.max.bytes": 2_000_000})
    producer.produce(name, b"x" * LARGE, on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    feed(kafka_broker, name, [b'{"id": 1}'])

    found, letters = run(kafka_broker, name)

    assert errors[0] is not None
    assert ([order.id for order in found], letters) == ([1], [])
