"""The rules for groups: positions, and the distribution of messages."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from bicycle_streams import Consumer, Streamer, StreamUnsupportedError
from bicycle_streams.options import Start
from bicycle_streams.testing.cases import CaseRules, StreamCase, numbers, play, send


class GroupRules(CaseRules):
    """The rules for consumers of one group, at once or in turn."""

    def test_a_resumed_consumer_goes_on_behind_the_committed_message(
        self, case: StreamCase
    ) -> None:
        """Check that uncommitted messages come again, and that groups are independent."""
        key = case.key("a")

        async def sending(streamer: Streamer) -> bool:
            await send(streamer, key, range(5))
            return "resumable" in streamer.capabilities.modes

        async def reading(streamer: Streamer, group: str, *, commit: bool) -> list[int]:
            consumer = await streamer.create_consumer(
                key, mode="resumable", group=group, start="earliest"
            )
            found = [await consumer.next() for _ in range(2)]
            for message in reversed(found):  # An earlier message does not move it back.
                consumer.ack(message)
            if commit:
                await consumer.commit()
                consumer.ack(found[0])
                await consumer.commit()
            return [int(message.payload) for message in found]

        if not play(case, sending):
            return
        assert play(case, lambda s: reading(s, "one", commit=False)) == [0, 1]
        assert play(case, lambda s: reading(s, "one", commit=True)) == [0, 1]
        assert play(case, lambda s: reading(s, "one", commit=True)) == [2, 3]
        assert play(case, lambda s: reading(s, "other", commit=True)) == [0, 1]

    def test_a_resumed_consumer_goes_on_where_it_began(self, case: StreamCase) -> None:
        """Check that a restart without a commit continues at the first start's position."""
        key = case.key("a")

        async def beginning(streamer: Streamer) -> bool:
            if "resumable" not in streamer.capabilities.modes:
                return False
            await send(streamer, key, range(3))
            await streamer.create_consumer(key, mode="resumable", group="fresh")
            return True

        async def going_on(streamer: Streamer) -> None:
            await send(streamer, key, range(3, 6))
            consumer = await streamer.create_consumer(key, mode="resumable", group="fresh")
            assert await numbers(consumer, 3) == [3, 4, 5]

        if play(case, beginning):
            play(case, going_on)

    def test_the_members_of_a_group_share_the_messages(self, case: StreamCase) -> None:
        """Check that all messages arrive, without duplicates unless members join."""
        key = case.key("a")

        async def scenario(streamer: Streamer) -> None:
            if "load-balanced" not in streamer.capabilities.modes:
                return
            members = [await _member(streamer, key) for _ in range(3)]
            found: list[list[int]] = [[], [], []]
            tasks = [
                asyncio.create_task(_collect(member, into))
                for member, into in zip(members, found, strict=True)
            ]
            await send(streamer, key, range(120))
            while len({n for each in found for n in each}) < 120:
                await asyncio.sleep(0.01)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            if not case.repeats_on_join:
                assert Counter(n for each in found for n in each) == Counter(range(120))
                assert all(each == sorted(each) for each in found)

        play(case, scenario)

    def test_what_is_acknowledged_goes_to_no_new_member(self, case: StreamCase) -> None:
        """Check that a new member gets no acknowledged message, committed or not."""
        key = case.key("a")

        async def scenario(streamer: Streamer) -> None:
            able = streamer.capabilities
            if not able.is_replayable or "load-balanced" not in able.modes:
                return
            producer = await streamer.create_producer(key, shard_count=2 if able.has_shards else 1)
            for number in range(20):
                producer.send(str(number))
            await producer.flush()
            first = await _member(streamer, key, start="earliest")
            done = set()
            for _ in range(10):
                message = await first.next()
                first.ack(message)
                done.add(int(message.payload))
            members = [first, await _member(streamer, key, start="earliest")]
            found: list[list[int]] = [[], []]
            tasks = [
                asyncio.create_task(_collect(member, into))
                for member, into in zip(members, found, strict=True)
            ]
            while not found[1]:  # The new member has its share.
                await producer.send("20")
                await asyncio.sleep(0.01)
            while not done | {n for each in found for n in each} >= set(range(20)):
                await asyncio.sleep(0.01)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            assert not done & {n for each in found for n in each}

        play(case, scenario)

    def test_one_member_gets_all(self, case: StreamCase) -> None:
        """Check that a group of one member gets all messages."""
        key = case.key("a")

        async def scenario(streamer: Streamer) -> None:
            if "load-balanced" not in streamer.capabilities.modes:
                return
            member = await _member(streamer, key)
            await send(streamer, key, range(10))
            assert await numbers(member, 10) == list(range(10))

        play(case, scenario)

    def test_what_a_member_left_undone_goes_to_the_others(self, case: StreamCase) -> None:
        """Check that acknowledged messages do not come again to other members."""
        key = case.key("a")

        async def scenario(streamer: Streamer) -> None:
            if "load-balanced" not in streamer.capabilities.modes:
                return
            alpha = await _member(streamer, key)
            if not streamer.capabilities.is_replayable:
                await send(streamer, key, ["x"])
                with pytest.raises(StreamUnsupportedError):
                    alpha.ack(await alpha.next())
                return
            await send(streamer, key, range(5))
            done = [await alpha.next() for _ in range(2)]
            for message in done:
                alpha.ack(message)
            await alpha.commit()
            await numbers(alpha, 2)
            beta = await _member(streamer, key)
            await alpha.end()
            assert set(await numbers(beta, 3)) == {2, 3, 4}

        play(case, scenario)


async def _member(streamer: Streamer, key: str, *, start: Start = "latest") -> Consumer:
    return await streamer.create_consumer(key, mode="load-balanced", group="g", start=start)


async def _collect(member: Consumer, into: list[int]) -> None:
    async for message in member:
        into.append(int(message.payload))  # noqa: PERF401 - others look at it meanwhile.
