"""The contract: rules that hold for every backend, on one that keeps its messages in a list."""

import asyncio
import subprocess
import sys

import pytest

from bicycle_sdk.errors import OptionError
from bicycle_streams import (
    AlreadyAnchoredError,
    At,
    Capabilities,
    CommitNotAllowedError,
    ConnectionLostError,
    Consumer,
    ConsumerEndedError,
    ConsumerGroupIsSetError,
    ConsumerGroupNotSetError,
    Message,
    NotAnchoredError,
    ProtocolUnknownError,
    Receipt,
    Sender,
    StreamConnectError,
    StreamEndedError,
    Streamer,
    StreamerOptions,
    StreamError,
    StreamerUri,
    StreamKey,
    StreamKeyEmptyError,
    StreamKeyNotFoundError,
    StreamUnsupportedError,
    StreamUrlError,
    connect,
)
from bicycle_streams.consuming import Subscription
from bicycle_streams.messages import OutgoingMessage
from bicycle_streams.queued_sending import QueuedSender


class ListSender(Sender):
    def __init__(self, messages):
        super().__init__("list://")
        self.messages = messages
        self.closes = 0
        self.error = self.gate = None

    def send(self, message):
        place = (message.stream_key, message.shard_id or 0, len(self.messages))
        self.messages.append(Message(*place, message.timestamp_ms or 0, message.payload))
        return self._receipt(self.messages[-1])

    async def _receipt(self, message):
        return Receipt(*message.header.__reduce__()[1])

    in_flight_count = 0

    async def flush(self):
        pass

    async def close(self):
        if self.gate is not None:
            await self.gate.wait()
        self.closes += 1
        if self.error is not None:
            raise self.error


class ListConsumer(Consumer):
    """Gives what is in a list, one per call, and then waits or ends."""

    def __init__(self, messages, subscription):
        super().__init__("list://", subscription, StreamerOptions())
        self.messages = messages
        self.gate = asyncio.Event()
        self.is_closed = False

    async def _fetch(self, count_max):
        if not self.messages and self.subscription.is_live:
            await self.gate.wait()
        if not self.messages:
            raise StreamEndedError(address=self.address)
        found = self.messages.pop(0)
        if found is None:
            raise StreamError(address=self.address, problem="is damaged here", hint="read on")
        return [found]

    async def _close(self):
        self.is_closed = True


class ListStreamer(Streamer):
    capabilities = Capabilities(modes=frozenset({"real-time", "load-balanced"}))

    def __init__(self):
        super().__init__(StreamerUri("list", ("",)), StreamerOptions())
        self.messages = []
        self.is_open = False

    async def _open(self):
        self.is_open = True

    async def _close(self):
        self.is_open = False

    async def _make_sender(self, *, durability, shard_count):
        return ListSender(self.messages)

    async def _make_consumer(self, subscription):
        return ListConsumer(self.messages, subscription)


def run(scenario):
    """Run a scenario with a streamer, and return what it returns."""

    async def whole():
        async with ListStreamer() as streamer:
            return await scenario(streamer)

    return asyncio.run(whole())


def message(sequence):
    return Message(StreamKey("a"), 0, sequence, 0, b"")


def test_a_producer_without_a_stream_sends_to_streams_that_are_named():
    async def scenario(streamer):
        producer = await streamer.create_generic_producer()
        with pytest.raises(NotAnchoredError):
            producer.send(b"x")
        with pytest.raises(NotAnchoredError):
            producer.send_many([b"x"])
        await producer.send_to("b", "é", timestamp_ms=5)
        producer.anchor("a")
        with pytest.raises(AlreadyAnchoredError) as caught:
            producer.anchor("c")
        producer.send(bytearray(b"y")).close()
        return producer.anchored, caught.value.facts["key"], streamer.messages

    anchored, key, messages = run(scenario)

    assert (anchored, key) == ("a", "a")
    assert [(m.stream_key, m.payload) for m in messages] == [("b", b"\xc3\xa9"), ("a", b"y")]


def test_a_batch_gives_the_receipt_of_its_last_message():
    async def scenario(streamer):
        producer = await streamer.create_producer("a")
        with pytest.raises(ValueError, match="at least one"):
            producer.send_many([])
        return await producer.send_many([b"1", "2", memoryview(b"3")]), streamer.messages

    receipt, messages = run(scenario)

    assert receipt.sequence == 2
    assert [m.payload for m in messages] == [b"1", b"2", b"3"]


def test_a_clone_shares_the_sender_and_ends_nothing_when_dropped():
    async def scenario(streamer):
        producer = await streamer.create_producer("a")
        clone = producer.clone()
        await clone.send(b"1")
        del clone
        return (await producer.send(b"2")).sequence

    assert run(scenario) == 1


def test_disconnecting_ends_producers_and_consumers_even_after_an_error():
    async def scenario():
        with pytest.raises(RuntimeError, match="of the program"):
            async with ListStreamer() as streamer:
                await streamer.create_producer("a")
                consumer = await streamer.create_consumer("a")
                sender = streamer._senders[0]
                raise RuntimeError("of the program")
        with pytest.raises(ConsumerEndedError):
            await consumer.next()
        return sender.closes, consumer.is_closed, streamer.is_open

    assert asyncio.run(scenario()) == (1, True, False)


def test_consumers_that_have_ended_are_not_held():
    async def scenario(streamer):
        kept = await streamer.create_consumer("a")
        for _ in range(10):
            await (await streamer.create_consumer("a")).end()
        last = await streamer.create_consumer("a")
        return streamer._consumers == [kept, last], kept.has_ended

    assert run(scenario) == (True, False)


@pytest.mark.parametrize(
    ("keys", "words", "error"),
    [
        ([], {}, StreamKeyEmptyError),
        ("a", {"group": "g"}, ConsumerGroupIsSetError),
        ("a", {"mode": "load-balanced"}, ConsumerGroupNotSetError),
        ("a", {"mode": "resumable"}, StreamUnsupportedError),
        ("a", {"mode": "loudly"}, OptionError),
        ("a", {"start": "middle"}, OptionError),
    ],
)
def test_a_consumer_that_cannot_be_is_refused(keys, words, error):
    async def scenario(streamer):
        with pytest.raises(error):
            await streamer.create_consumer(keys, **words)
        return streamer._consumers

    assert run(scenario) == []


@pytest.mark.parametrize("words", [{"durability": "exactly-once"}, {"shard_count": 2}])
def test_a_producer_that_a_backend_cannot_have_is_refused(words):
    async def scenario(streamer):
        with pytest.raises(StreamUnsupportedError):
            await streamer.create_producer("a", **words)

    run(scenario)


def test_a_position_is_not_kept_in_real_time():
    async def scenario(streamer):
        consumer = await streamer.create_consumer("a")
        with pytest.raises(CommitNotAllowedError):
            consumer.ack(message(1))
        with pytest.raises(CommitNotAllowedError):
            await consumer.commit()
        return streamer.is_open

    assert run(scenario)


def test_what_a_backend_cannot_do_it_refuses():
    async def scenario(streamer):
        consumer = await streamer.create_consumer("a", mode="load-balanced", group="g")
        with pytest.raises(StreamUnsupportedError):
            await consumer.seek(0)
        with pytest.raises(StreamUnsupportedError):
            await consumer.commit()

    run(scenario)


def test_shards_are_assigned_and_unassigned_but_for_the_last():
    async def scenario(streamer):
        consumer = await streamer.create_consumer(["a", "b"])
        with pytest.raises(StreamKeyNotFoundError):
            consumer.assign("c", 0)
        consumer.assign("a", 0)
        consumer.assign("a", 1)
        with pytest.raises(StreamKeyNotFoundError):
            consumer.unassign("b", 0)
        consumer.unassign("a", 0)
        with pytest.raises(StreamKeyEmptyError):
            consumer.unassign("a", 1)
        return consumer._assigned

    assert run(scenario) == {("a", 1)}


def test_iterating_ends_with_the_stream():
    async def scenario(streamer):
        streamer.messages += map(message, range(3))
        consumer = await streamer.create_consumer("a", is_live=False)
        read = [m.sequence async for m in consumer]
        with pytest.raises(StreamEndedError):
            await consumer.next()
        return read

    assert run(scenario) == [0, 1, 2]


def test_a_batch_waits_for_the_first_and_gathers_to_the_end():
    async def scenario(streamer):
        streamer.messages += map(message, range(5))
        consumer = await streamer.create_consumer("a", is_live=False)
        first = await consumer.next_batch(2, wait_ms=60_000)
        rest = [batch async for batch in consumer.batches(10, wait_ms=60_000)]
        return first, rest

    first, rest = run(scenario)

    assert [m.sequence for m in first] == [0, 1]
    assert [[m.sequence for m in batch] for batch in rest] == [[2, 3, 4]]


def test_a_batch_that_does_not_fill_comes_after_the_wait():
    async def scenario(streamer):
        streamer.messages += map(message, range(2))
        consumer = await streamer.create_consumer("a")
        return await consumer.next_batch(10, wait_ms=1)

    assert [m.sequence for m in run(scenario)] == [0, 1]


def test_a_cancelled_call_loses_nothing():
    async def scenario(streamer):
        consumer = await streamer.create_consumer("a")
        waiting = asyncio.create_task(consumer.next())
        gathering = asyncio.create_task(consumer.next_batch(9, wait_ms=60_000))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        streamer.messages += map(message, range(2))
        consumer.gate.set()
        consumer.gate.clear()
        while streamer.messages:
            await asyncio.sleep(0)
        gathering.cancel()
        await asyncio.wait([gathering])
        return [(await consumer.next()).sequence for _ in range(2)]

    assert run(scenario) == [0, 1]


def test_an_address_without_a_backend_is_refused():
    with pytest.raises(ProtocolUnknownError) as caught:
        connect("pigeon://roof")
    with pytest.raises(StreamUrlError) as unset:
        connect("localhost")

    assert caught.value.facts["protocol"] == "pigeon"
    assert unset.value.code == "BIC-2603"


def test_the_toolkit_loads_neither_spark_nor_jobs_nor_large_libraries():
    code = "import sys; from bicycle_streams import *; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    loaded = done.stdout.split()
    assert "bicycle_streams.contract" in loaded
    unwanted = ("pyspark", "numpy", "pyarrow", "pluggy", "importlib_metadata", "websockets")
    rooms = ("jobs", "engine", "connectors", "operators", "state", "cli")
    assert not [name for name in unwanted if name in loaded]
    assert not [room for room in rooms if f"bicycle_runtime.{room}" in loaded]


@pytest.mark.parametrize("payload", [5, [1, 2], {"id": 7}, None, 1.5])
def test_what_is_neither_bytes_nor_text_is_no_payload(tmp_path, payload):
    """Python makes bytes of numbers and lists, which nobody wants here."""

    async def scenario():
        uri = f"file://{tmp_path}/a.ss"
        async with connect(uri, {"create": "if-missing"}) as streamer:
            producer = await streamer.create_producer("a")
            for send in (producer.send, lambda each: producer.send_many([each])):
                with pytest.raises(TypeError, match=type(payload).__name__):
                    send(payload)

    asyncio.run(scenario())


@pytest.mark.parametrize("uri", ["stdio://", "redis://127.0.0.1:1", "socket://127.0.0.1:1"])
def test_a_streamer_is_used_while_it_is_open(uri):
    async def scenario():
        streamer = connect(uri)
        with pytest.raises(StreamConnectError, match="not open"):
            await streamer.create_producer("a")
        with pytest.raises(StreamConnectError, match="not open"):
            await streamer.create_consumer("a")

    asyncio.run(scenario())


def test_an_error_behind_a_batch_loses_nothing_of_it():
    async def scenario(streamer):
        streamer.messages += [*map(message, range(2)), None, message(2)]
        consumer = await streamer.create_consumer("a")
        with pytest.raises(StreamError):
            await consumer.next_batch(10, wait_ms=60_000)
        return [m.sequence for m in await consumer.next_batch(3, wait_ms=60_000)]

    assert run(scenario) == [0, 1, 2]


def test_a_sender_with_an_unexpected_error_lets_no_receipt_wait():
    class Broken(QueuedSender):
        async def _write(self, batch):
            raise ValueError("I/O operation on closed file")

    async def scenario():
        sender = Broken("list://", StreamerOptions())
        receipt = sender.send(OutgoingMessage(StreamKey("a"), b""))
        async with asyncio.timeout(60):
            for waiting in (receipt, sender.flush()):
                with pytest.raises(ConnectionLostError, match="closed file"):
                    await waiting
        with pytest.raises(ConnectionLostError):
            sender.send(OutgoingMessage(StreamKey("a"), b""))

    asyncio.run(scenario())


def test_disconnecting_flushes_other_producers_when_one_fails():
    async def scenario():
        async with ListStreamer() as streamer:
            for _ in range(3):
                await streamer.create_producer("a")
            consumer = await streamer.create_consumer("a")
            senders = streamer._senders
            senders[1].error = StreamError(address="list://", problem="is full", hint="wait")
            with pytest.raises(StreamError, match="is full"):
                await streamer.disconnect()
            return [each.closes for each in senders], consumer.is_closed, streamer.is_open

    assert asyncio.run(scenario()) == ([1, 1, 1], True, False)


def test_a_canceled_end_of_a_producer_is_completed_by_the_disconnect():
    async def scenario():
        async with ListStreamer() as streamer:
            producer = await streamer.create_producer("a")
            [sender] = streamer._senders
            sender.gate = asyncio.Event()
            ending = asyncio.create_task(producer.end())
            await asyncio.sleep(0)
            ending.cancel()
            await asyncio.wait([ending])
            asyncio.get_running_loop().call_later(0.01, sender.gate.set)
        return sender.closes, ending.cancelled()

    assert asyncio.run(scenario()) == (1, True)


def test_a_canceled_end_of_a_consumer_is_completed_and_the_next_one_waits_for_it():
    class Closing(ListConsumer):
        async def _close(self):
            await self.gate.wait()
            await super()._close()

    async def scenario(streamer):
        consumer = Closing([], Subscription(keys=(StreamKey("a"),)))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await consumer.end()
        asyncio.get_running_loop().call_later(0.01, consumer.gate.set)
        await consumer.end()
        return consumer.is_closed

    assert run(scenario)


def test_an_error_of_an_end_is_raised_once_and_the_producer_is_not_held():
    async def scenario(streamer):
        producer = await streamer.create_producer("a")
        [sender] = streamer._senders
        sender.error = StreamError(address="list://", problem="is full", hint="wait")
        with pytest.raises(StreamError, match="is full"):
            await producer.end()
        await producer.end()
        await streamer.create_producer("a")
        return sender in streamer._senders, sender.closes

    assert run(scenario) == (False, 1)


def test_a_canceled_move_is_completed_before_the_next_read():
    class Moving(ListConsumer):
        async def _go_to(self, target):
            self.messages.clear()
            await self.gate.wait()
            self.messages += map(message, range(10, 12))
            return True

    async def scenario(streamer):
        streamer.messages += map(message, range(2))
        words = Subscription(keys=(StreamKey("a"),), is_live=False)
        consumer = Moving(streamer.messages, words)
        moving = asyncio.create_task(consumer.rewind(At(10)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        moving.cancel()
        reading = asyncio.create_task(consumer.next())
        await asyncio.wait([reading], timeout=0.01)
        consumer.gate.set()
        return (await reading).sequence, moving.cancelled()

    assert run(scenario) == (10, True)
