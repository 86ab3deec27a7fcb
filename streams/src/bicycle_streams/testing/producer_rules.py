"""The rules for producers: delivery of messages, and positions in receipts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bicycle_streams import (
    AlreadyAnchoredError,
    Message,
    NotAnchoredError,
    Producer,
    ProducerEndedError,
    Streamer,
    StreamError,
    StreamKey,
    StreamUnsupportedError,
)
from bicycle_streams.errors import FLUSH_TIMED_OUT
from bicycle_streams.messages import Headers
from bicycle_streams.testing.cases import (
    CaseRules,
    LosesConnections,
    StreamCase,
    lately_ms,
    play,
    send,
    texts,
)
from bicycle_streams.testing.rules import needs

_STEP_MS = 1_000
_ALL_BYTES = bytes(range(256))


class ProducerRules(CaseRules):
    """The rules for producers."""

    def test_a_message_arrives_with_what_its_receipt_says(self, case: StreamCase) -> None:
        """Check that receipts match received messages, and that sequences grow."""
        key = case.key("a")

        async def scenario(streamer: Streamer) -> None:
            consumer = await streamer.create_consumer(key)
            producer = await streamer.create_producer(key)
            receipts = [await producer.send(f"message {n}") for n in range(3)]
            messages = [await consumer.next() for _ in range(3)]
            assert [m.as_str() for m in messages] == ["message 0", "message 1", "message 2"]
            for receipt, message in zip(receipts, messages, strict=True):
                assert _position(message.header) == _position(receipt)
            sequences = [receipt.sequence for receipt in receipts]
            assert sequences == sorted(set(sequences))
            assert {(receipt.stream_key, receipt.shard_id) for receipt in receipts} == {(key, 0)}

        play(case, scenario)

    def test_messages_whose_receipts_are_dropped_arrive_in_order(self, case: StreamCase) -> None:
        """Check that messages without awaited receipts arrive in order."""
        key = case.key("a")

        async def scenario(streamer: Streamer) -> None:
            consumer = await streamer.create_consumer(key)
            producer = await streamer.create_producer(key)
            for n in range(50):
                producer.send(str(n))
            producer.send_many(str(n) for n in range(50, 100))
            await producer.flush()
            assert await texts(consumer, 100) == [str(n) for n in range(100)]

        play(case, scenario)

    def test_a_time_that_is_given_stays(self, case: StreamCase) -> None:
        """Check that a given time is kept if no message of the stream is later."""
        key = case.key("a")

        async def scenario(streamer: Streamer) -> None:
            consumer = await streamer.create_consumer(key)
            producer = await streamer.create_producer(key)
            times = [lately_ms() + n * _STEP_MS for n in range(3)]
            receipts = [await producer.send("x", timestamp_ms=time) for time in times]
            assert [receipt.timestamp_ms for receipt in receipts] == times
            assert [(await consumer.next()).timestamp_ms for _ in times] == times

        play(case, scenario)

    def test_copies_keep_times_and_shards(self, case: StreamCase) -> None:
        """Check that copies keep times, and shards if supported."""
        key = case.key("a")

        async def scenario(streamer: Streamer) -> None:
            able = streamer.capabilities
            shards = 2 if able.has_shards else 1
            consumer = await streamer.create_consumer(key)
            producer = await streamer.create_producer(key, shard_count=shards)
            begin_ms = lately_ms()
            messages = [
                Message(StreamKey("other"), n % shards, n, begin_ms + n * _STEP_MS, b"%d" % n)
                for n in range(12)
            ]
            for part in (messages[:6], messages[6:]):
                producer.copy_many(part, with_shards=able.has_shards)
                await producer.flush()
            if able.is_replayable:
                consumer = await streamer.create_consumer(key, start="earliest", is_live=False)
            found = [await consumer.next() for _ in messages]
            assert sorted((m.timestamp_ms, m.shard_id, m.payload) for m in found) == [
                (m.timestamp_ms, m.shard_id, m.payload) for m in messages
            ]
            assert {m.stream_key for m in found} == {key}

        play(case, scenario)

    def test_keys_and_headers_arrive_or_are_refused(self, case: StreamCase) -> None:
        """Check keys and headers, which copies lose if the backend has neither."""
        key = case.key("a")
        heads: list[dict[str, Any]] = [
            {"key": "é"},
            {"headers": {"trace": "7", "unit": b"ms", "none": ""}},
            {"key": b"k", "headers": {"trace": "7"}},
        ]
        wanted: list[tuple[bytes | None, Headers]] = [
            ("é".encode(), ()),
            (None, (("trace", b"7"), ("unit", b"ms"), ("none", b""))),
            (b"k", (("trace", b"7"),)),
        ]

        async def scenario(streamer: Streamer) -> None:
            consumer = await streamer.create_consumer(key)
            producer = await streamer.create_producer(key)
            if streamer.capabilities.has_headers:
                for head in heads:
                    await producer.send("x", **head)
                found = [await consumer.next() for _ in heads]
                assert [(m.key, sorted(m.headers)) for m in found] == [
                    (message_key, sorted(headers)) for message_key, headers in wanted
                ]
            else:
                wanted[:] = [(None, ())] * len(heads)
                for head in heads:
                    with pytest.raises(StreamUnsupportedError):
                        producer.send("x", **head)
            await producer.send("plain")
            plain = await consumer.next()
            assert (plain.as_str(), plain.key, plain.headers) == ("plain", None, ())
            source, time_ms = StreamKey("other"), plain.timestamp_ms + 1
            copies = [
                Message(source, 0, n, time_ms, b"copy", b"k", (("trace", b"7"),)) for n in range(3)
            ]
            producer.copy_many(copies, with_shards=False)
            await producer.flush()
            for _ in range(3):
                copy = await consumer.next()
                assert (copy.payload, copy.key, copy.headers) == (b"copy", *wanted[-1])

        play(case, scenario)

    def test_any_payload_arrives_or_is_refused(self, case: StreamCase) -> None:
        """Check that a text backend refuses binary payloads and sends no part of them."""
        key = case.key("a")

        async def scenario(streamer: Streamer) -> None:
            consumer = await streamer.create_consumer(key)
            producer = await streamer.create_producer(key)
            if streamer.capabilities.is_binary:
                for payload in (_ALL_BYTES, b"", _ALL_BYTES * 2048):
                    await producer.send(payload)
                    assert (await consumer.next()).payload == payload
            else:
                for payload in (_ALL_BYTES, b"two\nlines"):
                    with pytest.raises(StreamUnsupportedError):
                        producer.send(payload)
                await producer.send("é")
                assert (await consumer.next()).as_str() == "é"

        play(case, scenario)

    def test_what_is_in_flight_is_counted_until_the_flush(self, case: StreamCase) -> None:
        """Check the count of messages in flight over clones, and a canceled flush."""
        key = case.key("a")

        async def scenario(streamer: Streamer) -> None:
            consumer = await streamer.create_consumer(key)
            producer = await streamer.create_producer(key)
            clone = producer.clone()
            assert producer.in_flight_count == 0
            for number in range(5):
                (producer, clone)[number % 2].send(str(number))
            assert producer.in_flight_count == clone.in_flight_count == 5
            try:
                await producer.flush(timeout_s=0)
            except StreamError as error:
                assert error.code == FLUSH_TIMED_OUT.code
                assert error.facts["waiting"] == producer.in_flight_count > 0
            else:
                assert producer.in_flight_count == 0
            await clone.flush(timeout_s=case.patience_s)
            assert producer.in_flight_count == 0
            assert await texts(consumer, 5) == [str(number) for number in range(5)]

        play(case, scenario)

    def test_a_producer_without_a_stream_is_given_one_once(self, case: StreamCase) -> None:
        """Check that a producer without a stream requires a name, until it is anchored."""
        first, second = case.key("a"), case.key("b")

        async def scenario(streamer: Streamer) -> None:
            consumer = await streamer.create_consumer([first, second])
            producer = await streamer.create_generic_producer()
            with pytest.raises(NotAnchoredError):
                producer.send("x")
            await producer.send_to(second, "to b")
            producer.anchor(first)
            with pytest.raises(AlreadyAnchoredError):
                producer.anchor(second)
            await producer.send("to a")
            found = [await consumer.next() for _ in range(2)]
            assert {(m.stream_key, m.as_str()) for m in found} == {
                (second, "to b"),
                (first, "to a"),
            }

        play(case, scenario)

    def test_a_clone_that_is_dropped_ends_nothing(self, case: StreamCase) -> None:
        """Check that a dropped clone has no effect, and an ended clone ends all."""
        key = case.key("a")

        async def scenario(streamer: Streamer) -> None:
            consumer = await streamer.create_consumer(key)
            producer = await streamer.create_producer(key)
            clone = producer.clone()
            clone.send("from the clone")
            del clone
            await producer.send("from the first")
            assert await texts(consumer, 2) == ["from the clone", "from the first"]
            await producer.end()
            with pytest.raises(ProducerEndedError):
                producer.send("late")

        play(case, scenario)

    def test_disconnecting_sends_what_waits(self, case: StreamCase) -> None:
        """Check that disconnecting sends waiting messages, and ends all producers."""
        key = case.key("a")

        async def sending(streamer: Streamer) -> Producer:
            producer = await streamer.create_producer(key)
            for n in range(100):
                producer.send(str(n))
            return producer

        producer = play(case, sending)
        with pytest.raises(ProducerEndedError):
            producer.send("late")

        async def reading(streamer: Streamer) -> None:
            if streamer.capabilities.is_replayable:
                consumer = await streamer.create_consumer(key, start="earliest", is_live=False)
                assert [m.as_str() async for m in consumer] == [str(n) for n in range(100)]

        play(case, reading)

    def test_what_a_producer_cannot_promise_it_refuses(self, case: StreamCase) -> None:
        """Check that durabilities and shards match the capabilities."""
        key = case.key("a")

        async def scenario(streamer: Streamer) -> None:
            able = streamer.capabilities
            for durability in ("at-most-once", "at-least-once", "exactly-once"):
                if durability in able.durabilities:
                    producer = await streamer.create_producer(key, durability=durability)
                    assert (await producer.send("x")).stream_key == key
                else:
                    with pytest.raises(StreamUnsupportedError):
                        await streamer.create_producer(key, durability=durability)
            if not able.has_shards:
                with pytest.raises(StreamUnsupportedError):
                    await streamer.create_producer(key, shard_count=2)

        play(case, scenario)

    @needs(LosesConnections)
    def test_a_message_with_a_receipt_survives_a_broken_connection(self, case: StreamCase) -> None:
        """Check that producers and consumers recover, without a lost message."""
        key = case.key("a")

        async def scenario(streamer: Streamer) -> None:
            consumer = await streamer.create_consumer(key)
            await send(streamer, key, ["begin"])
            assert await texts(consumer, 1) == ["begin"]
            producer = await streamer.create_producer(key)
            for part in range(3):
                assert isinstance(case, LosesConnections)
                case.break_connections()
                sent = [producer.send(f"{part}-{n}") for n in range(20)]
                for each in sent:
                    await each
                wanted = {f"{part}-{n}" for n in range(20)}
                while wanted:
                    wanted.discard((await consumer.next()).as_str())

        play(case, scenario)


def _position(header: object) -> tuple[object, ...]:
    return tuple(_fields(header))


def _fields(header: object) -> Iterator[object]:
    for name in ("stream_key", "shard_id", "sequence", "timestamp_ms"):
        yield getattr(header, name)
