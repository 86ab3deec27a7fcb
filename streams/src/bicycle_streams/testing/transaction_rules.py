"""The rules for transactions: atomic messages and positions, without duplicates."""

from __future__ import annotations

import asyncio

import pytest

from bicycle_streams import (
    Consumer,
    Producer,
    Streamer,
    StreamError,
    StreamUnsupportedError,
    connect,
)
from bicycle_streams.testing.cases import CaseRules, StreamCase, numbers, play, send

_GROUP = "g"
_SILENCE_S = 1.0
_SHARED_COUNT = 60


class _StopError(Exception):
    """An error that a program raises in a transaction."""


class TransactionRules(CaseRules):
    """The rules for producers with transactions, or their refusal."""

    def test_a_transaction_is_seen_at_its_end_with_its_positions(self, case: StreamCase) -> None:
        """Check that messages and positions are invisible until the end."""
        source, target = case.key("a"), case.key("b")

        async def scenario(streamer: Streamer) -> None:
            producer = await streamer.create_producer(target)
            if not streamer.capabilities.has_transactions:
                with pytest.raises(StreamUnsupportedError):
                    async with producer.transaction():
                        raise AssertionError("there are none")
                return
            consumer = await _resume(streamer, source)
            async with producer.transaction(consumer):
                await _copy(consumer, producer, 2)
                await _require_silence(streamer, target)
                assert await _next_of_group(streamer, source) == 0
            assert await _read_committed(streamer, target) == [0, 1]
            assert await _next_of_group(streamer, source) == 2
            async with producer.transaction():
                producer.send("2")
                producer.send_many(["3", "4"])
            assert await _read_committed(streamer, target) == list(range(5))
            assert await _next_of_group(streamer, source) == 2

        play(case, lambda streamer: send(streamer, source, range(5)))
        play(case, scenario, case.transaction_options("one"))

    def test_an_aborted_transaction_leaves_nothing(self, case: StreamCase) -> None:
        """Check that the consumer moves back, and the messages come again."""
        source, target = case.key("a"), case.key("b")

        async def scenario(streamer: Streamer) -> None:
            if not streamer.capabilities.has_transactions:
                return
            producer = await streamer.create_producer(target)
            consumer = await _resume(streamer, source)
            for _ in range(2):
                with pytest.raises(_StopError):
                    async with producer.transaction(consumer):
                        await _copy(consumer, producer, 3)
                        raise _StopError
                assert producer.in_flight_count == 0
                assert await _read_committed(streamer, target) == []
                assert await _next_of_group(streamer, source) == 0
            async with producer.transaction(consumer):
                await _copy(consumer, producer, 3)
            assert await _read_committed(streamer, target) == [0, 1, 2]
            assert await numbers(consumer, 2) == [3, 4]

        play(case, lambda streamer: send(streamer, source, range(5)))
        play(case, scenario, case.transaction_options("one"))

    def test_a_member_that_joins_in_a_transaction_makes_no_message_count_twice(
        self, case: StreamCase
    ) -> None:
        """Check that the first member does not commit messages of another member."""
        source, target = case.key("a"), case.key("b")

        async def filling(streamer: Streamer) -> bool:
            able = streamer.capabilities
            if not (able.has_transactions and "load-balanced" in able.modes):
                return False
            producer = await streamer.create_producer(source, shard_count=2)
            for number in range(_SHARED_COUNT):
                producer.send(str(number))
            return True

        async def scenario(streamer: Streamer) -> None:
            producer = await streamer.create_producer(target)
            first = await _member(streamer, source)
            options = {**case.options, **case.transaction_options("two")}
            async with connect(case.uri, options) as other:
                second_producer = await other.create_producer(target)
                has_joined = asyncio.Event()
                joining: list[asyncio.Task[None]] = []
                with pytest.raises(StreamError):
                    async with producer.transaction(first):
                        await _copy(first, producer, 10)
                        second = await _member(other, source)
                        copying = _copy_on(second, second_producer, has_joined)
                        joining.append(asyncio.create_task(copying))
                        await _copy_until(has_joined, first, producer)
                joining.append(asyncio.create_task(_copy_on(first, producer, has_joined)))
                await _see_all(streamer, target, joining)

        if play(case, filling):
            play(case, scenario, case.transaction_options("one"))


async def _resume(streamer: Streamer, key: str) -> Consumer:
    return await streamer.create_consumer(key, mode="resumable", group=_GROUP, start="earliest")


async def _member(streamer: Streamer, key: str) -> Consumer:
    return await streamer.create_consumer(key, mode="load-balanced", group=_GROUP, start="earliest")


async def _copy(consumer: Consumer, producer: Producer, count: int) -> None:
    for _ in range(count):
        message = await consumer.next()
        await producer.send(message.payload)
        consumer.ack(message)


async def _copy_until(event: asyncio.Event, consumer: Consumer, producer: Producer) -> None:
    """Copy messages until an event is set."""
    copying = asyncio.create_task(_copy(consumer, producer, _SHARED_COUNT))
    await event.wait()
    copying.cancel()
    await asyncio.wait([copying])


async def _copy_on(consumer: Consumer, producer: Producer, event: asyncio.Event) -> None:
    """Copy messages, a few per transaction; failed transactions are repeated."""
    while True:
        batch = await consumer.next_batch(5)
        event.set()
        try:
            async with producer.transaction(consumer):
                for message in batch:
                    producer.send(message.payload)
                    consumer.ack(message)
        except StreamError:
            continue


async def _see_all(streamer: Streamer, key: str, tasks: list[asyncio.Task[None]]) -> None:
    """Wait until all messages are committed; stop copying, and check for duplicates."""
    consumer = await streamer.create_consumer(key, start="earliest")
    seen: set[int] = set()
    while len(seen) < _SHARED_COUNT:
        seen.update(await numbers(consumer, 1))
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert sorted(await _read_committed(streamer, key)) == list(range(_SHARED_COUNT))


async def _read_committed(streamer: Streamer, key: str) -> list[int]:
    """Return the committed messages of a stream."""
    consumer = await streamer.create_consumer(key, start="earliest", is_live=False)
    found = [int(message.payload) async for message in consumer]
    await consumer.end()
    return found


async def _require_silence(streamer: Streamer, key: str) -> None:
    """Check that no message is readable; a read to the end would wait for one."""
    consumer = await streamer.create_consumer(key, start="earliest")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(_SILENCE_S):
            await consumer.next()
    await consumer.end()


async def _next_of_group(streamer: Streamer, key: str) -> int:
    """Return the message with which another one of the group would continue."""
    consumer = await _resume(streamer, key)
    [found] = await numbers(consumer, 1)
    await consumer.end()
    return found
