"""The rules for consumers: messages, their order, and the end."""

from __future__ import annotations

import asyncio

import pytest

from bicycle_streams import (
    CommitNotAllowedError,
    ConsumerEndedError,
    ConsumerGroupIsSetError,
    ConsumerGroupNotSetError,
    StreamEndedError,
    Streamer,
    StreamKeyEmptyError,
    StreamUnsupportedError,
)
from bicycle_streams.testing.cases import CaseRules, StreamCase, numbers, play, send, texts

_WAIT_S = 0.2  # So long nothing comes, where there is nothing.


class ConsumerRules(CaseRules):
    """The rules for single consumers."""

    def test_consumers_get_the_messages_of_their_streams(self, case: StreamCase) -> None:
        """Check that alternating streams arrive completely, each in order."""
        cat, dog = case.key("cat"), case.key("dog")

        async def scenario(streamer: Streamer) -> None:
            cats = await streamer.create_consumer(cat)
            dogs = await streamer.create_consumer(dog)
            both = await streamer.create_consumer([cat, dog, cat])
            producer = await streamer.create_generic_producer()
            for n in range(100):
                producer.send_to((cat, dog)[n % 2], str(n))
            await producer.flush()
            assert await numbers(cats, 50) == list(range(0, 100, 2))
            assert await numbers(dogs, 50) == list(range(1, 100, 2))
            found = [await both.next() for _ in range(100)]
            for key, first in ((cat, 0), (dog, 1)):
                assert [int(m.payload) for m in found if m.stream_key == key] == list(
                    range(first, 100, 2)
                )

        play(case, scenario)

    def test_a_consumer_of_what_comes_may_wait_before_there_is_a_stream(
        self, case: StreamCase
    ) -> None:
        """Check that a consumer's position is fixed on creation, without earlier messages."""
        key = case.key("a")

        async def scenario(streamer: Streamer) -> None:
            early = await streamer.create_consumer(key)
            waiting = asyncio.create_task(early.next())
            await asyncio.sleep(0)
            await send(streamer, key, ["first"])
            assert (await waiting).as_str() == "first"
            late = await streamer.create_consumer(key)
            await send(streamer, key, ["second"])
            assert await texts(late, 1) == ["second"]
            assert await texts(early, 1) == ["second"]

        play(case, scenario)

    def test_batches_hold_what_is_there(self, case: StreamCase) -> None:
        """Check that a batch has between one and the maximum of messages, in order."""
        key = case.key("a")

        async def scenario(streamer: Streamer) -> None:
            consumer = await streamer.create_consumer(key)
            await send(streamer, key, range(25))
            found: list[int] = []
            while len(found) < 25:
                batch = await consumer.next_batch(10, wait_ms=20)
                assert 1 <= len(batch) <= 10
                found += [int(message.payload) for message in batch]
            assert found == list(range(25))

        play(case, scenario)

    def test_a_cancelled_call_loses_nothing(self, case: StreamCase) -> None:
        """Check that cancelling a wait for a message or batch loses no message."""
        key = case.key("a")

        async def scenario(streamer: Streamer) -> None:
            consumer = await streamer.create_consumer(key)
            for n in range(5):
                waiting = asyncio.create_task(consumer.next())
                gathering = asyncio.create_task(consumer.next_batch(9, wait_ms=60_000))
                await asyncio.sleep(0.01 * n)
                waiting.cancel()
                await asyncio.wait([waiting])
                await send(streamer, key, [2 * n, 2 * n + 1])
                await asyncio.sleep(0.01 * n)  # It may hold some of them by now.
                gathering.cancel()
                await asyncio.wait([gathering])
                taken = [] if waiting.cancelled() else [int(waiting.result().payload)]
                assert [*taken, *await numbers(consumer, 2 - len(taken))] == [2 * n, 2 * n + 1]

        play(case, scenario)

    def test_what_cannot_be_consumed_is_refused(self, case: StreamCase) -> None:
        """Check that modes match the capabilities, and groups match modes."""
        key = case.key("a")

        async def scenario(streamer: Streamer) -> None:
            with pytest.raises(StreamKeyEmptyError):
                await streamer.create_consumer([])
            with pytest.raises(ConsumerGroupIsSetError):
                await streamer.create_consumer(key, group="g")
            with pytest.raises(ConsumerGroupNotSetError):
                await streamer.create_consumer(key, mode="load-balanced")
            for mode in ("resumable", "load-balanced"):
                if mode not in streamer.capabilities.modes:
                    with pytest.raises(StreamUnsupportedError):
                        await streamer.create_consumer(key, mode=mode, group="g")

        play(case, scenario)

    def test_nothing_is_acknowledged_in_real_time(self, case: StreamCase) -> None:
        """Check that a real-time consumer refuses acknowledgments."""
        key = case.key("a")

        async def scenario(streamer: Streamer) -> None:
            consumer = await streamer.create_consumer(key)
            await send(streamer, key, ["x"])
            message = await consumer.next()
            with pytest.raises(CommitNotAllowedError):
                consumer.ack(message)
            with pytest.raises(CommitNotAllowedError):
                await consumer.commit()

        play(case, scenario)

    def test_a_consumer_that_was_ended_gives_nothing(self, case: StreamCase) -> None:
        """Check that an ended consumer returns no message, while others continue."""
        key = case.key("a")

        async def scenario(streamer: Streamer) -> None:
            ended = await streamer.create_consumer(key)
            other = await streamer.create_consumer(key)
            await send(streamer, key, ["x", "y"])
            assert await texts(ended, 1) == ["x"]
            await ended.end()
            await ended.end()
            with pytest.raises(ConsumerEndedError):
                await ended.next()
            assert await texts(other, 2) == ["x", "y"]

        play(case, scenario)

    def test_a_call_that_waits_ends_with_its_consumer(self, case: StreamCase) -> None:
        """Check that waiting calls end with their consumer, in each mode."""
        key = case.key("a")

        async def scenario(streamer: Streamer) -> None:
            for mode in sorted(streamer.capabilities.modes):
                group = None if mode == "real-time" else f"g-{mode}"
                consumer = await streamer.create_consumer(key, mode=mode, group=group)
                await send(streamer, key, ["x"])
                assert await texts(consumer, 1) == ["x"]
                calls = [
                    asyncio.create_task(call)
                    for call in (consumer.next(), consumer.next_batch(2), anext(consumer))
                ]
                done, _ = await asyncio.wait(calls, timeout=_WAIT_S)
                assert not done
                await consumer.end()
                ends = await asyncio.gather(*calls, return_exceptions=True)
                assert [type(end) for end in ends] == [
                    StreamEndedError, StreamEndedError, StopAsyncIteration,
                ]  # fmt: skip

        play(case, scenario)

    def test_a_consumer_of_what_is_there_ends(self, case: StreamCase) -> None:
        """Check that ``is_live=False`` reads all stored messages, then ends."""
        key = case.key("a")

        async def scenario(streamer: Streamer) -> None:
            if not streamer.capabilities.is_replayable:
                return
            await send(streamer, key, range(20))
            consumer = await streamer.create_consumer(key, start="earliest", is_live=False)
            assert [int(message.payload) async for message in consumer] == list(range(20))
            with pytest.raises(StreamEndedError):
                await consumer.next()

        play(case, scenario)
