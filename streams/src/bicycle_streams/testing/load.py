"""The rules for many messages: 100,000 of 256 bytes, alone and shared."""

from __future__ import annotations

import asyncio

import pytest

from bicycle_streams import Consumer, Streamer
from bicycle_streams.testing.cases import CaseRules, StreamCase, play

COUNT = 100_000
_BATCH = 1_000
_FILL = b"x" * 248


class StreamLoadSuite(CaseRules):
    """The load rules. Inherit and set ``case_type``, or define a fixture ``case``."""

    @pytest.mark.parametrize("mode", ["real-time", "resumable", "load-balanced"])
    def test_many_messages_arrive_each_once_and_in_order(self, case: StreamCase, mode: str) -> None:
        """Check delivery under load, with waits only for flushes and full queues."""
        key = case.key("a")

        async def scenario(streamer: Streamer) -> None:
            if mode not in streamer.capabilities.modes:
                return
            group = None if mode == "real-time" else "g"
            consumers = [
                await streamer.create_consumer(key, mode=mode, group=group)
                for _ in range(2 if mode == "load-balanced" else 1)
            ]
            found: list[list[int]] = [[] for _ in consumers]
            seen: set[int] = set()
            async with asyncio.TaskGroup() as tasks:
                sending = tasks.create_task(_send(streamer, key))
                has_acks = group is not None and streamer.capabilities.is_replayable
                for consumer, into in zip(consumers, found, strict=True):
                    tasks.create_task(_read(consumer, into, seen, has_acks=has_acks))
            assert sending.done()
            assert seen == set(range(COUNT))
            if group is None or not case.repeats_on_join:
                assert all(each == sorted(each) for each in found)
                assert sum(map(len, found)) == COUNT

        play(case, scenario)


async def _send(streamer: Streamer, key: str) -> None:
    producer = await streamer.create_producer(key)
    for begin in range(0, COUNT, _BATCH):
        await producer.send_many(b"%08d" % n + _FILL for n in range(begin, begin + _BATCH))


async def _read(consumer: Consumer, into: list[int], seen: set[int], *, has_acks: bool) -> None:
    """Read until all consumers together have all."""
    while len(seen) < COUNT:
        try:
            async with asyncio.timeout(0.5):
                batch = await consumer.next_batch(_BATCH)
        except TimeoutError:
            continue  # Others may have had the rest.
        for message in batch:
            assert message.size == 256
            into.append(int(message.payload[:8]))
            seen.add(into[-1])
            if has_acks:
                consumer.ack(message)
