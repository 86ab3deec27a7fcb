"""The rules for positions: seek, rewind and shards, or their refusal."""

from __future__ import annotations

from typing import Any

import pytest

from bicycle_streams import (
    BEGINNING,
    END,
    At,
    Consumer,
    SeekError,
    Streamer,
    StreamKeyEmptyError,
    StreamKeyNotFoundError,
    StreamUnsupportedError,
)
from bicycle_streams.testing.cases import CaseRules, StreamCase, lately_ms, numbers, play, send

HOW = [
    pytest.param({}, id="alone"),
    pytest.param({"mode": "resumable", "group": "g"}, id="resumable"),
    pytest.param({"mode": "load-balanced", "group": "g"}, id="load-balanced"),
]
_COUNT = 100
_FAR = 1 << 62


class PositionRules(CaseRules):
    """The rules for consumers that move."""

    @pytest.mark.parametrize("how", HOW)
    def test_rewinding_gives_the_rest_that_message_included(
        self, case: StreamCase, how: dict[str, Any]
    ) -> None:
        """Check that ``At(n)`` is inclusive, and the moves to beginning and end."""
        key = case.key("a")

        async def scenario(streamer: Streamer) -> None:
            if not _can(streamer, how):
                return
            sequences = await send(streamer, key, range(_COUNT))
            consumer = await streamer.create_consumer(key, start="earliest", **how)
            for first in (0, 25, 50, 75, 99):
                await consumer.rewind(At(sequences[first]))
                assert await numbers(consumer, _COUNT - first) == list(range(first, _COUNT))
            await consumer.rewind(BEGINNING)
            assert await numbers(consumer, 3) == [0, 1, 2]
            await consumer.rewind(END)
            await send(streamer, key, [_COUNT])
            assert await numbers(consumer, 1) == [_COUNT]

        play(case, scenario)

    @pytest.mark.parametrize("how", HOW)
    def test_seeking_gives_the_earliest_message_of_that_time_or_later(
        self, case: StreamCase, how: dict[str, Any]
    ) -> None:
        """Check seeks to a time between messages, of one, and of two messages."""
        key = case.key("a")
        begin = lately_ms()

        async def scenario(streamer: Streamer) -> None:
            if not _can(streamer, how):
                return
            producer = await streamer.create_producer(key)
            for n in range(10):
                await producer.send(str(n), timestamp_ms=begin + n // 2 * 100)
            consumer = await streamer.create_consumer(key, start="earliest", **how)
            for time, first in ((0, 0), (begin, 0), (begin + 100, 2), (begin + 101, 4)):
                await consumer.seek(time)
                assert await numbers(consumer, 10 - first) == list(range(first, 10))

        play(case, scenario)

    @pytest.mark.parametrize("how", HOW)
    def test_a_position_beyond_the_end_is_refused_and_nothing_moves(
        self, case: StreamCase, how: dict[str, Any]
    ) -> None:
        """Check that a refused move leaves the position unchanged."""
        key = case.key("a")

        async def scenario(streamer: Streamer) -> None:
            if not _can(streamer, how):
                return
            await send(streamer, key, range(3))
            consumer = await streamer.create_consumer(key, start="earliest", **how)
            # Not more than this one: held messages would come wherever it moves.
            assert [message.payload for message in await consumer.next_batch(1)] == [b"0"]
            with pytest.raises(SeekError):
                await consumer.rewind(At(_FAR))
            with pytest.raises(SeekError):
                await consumer.seek(4_000_000_000_000)
            assert await numbers(consumer, 2) == [1, 2]

        play(case, scenario)

    def test_what_is_not_kept_cannot_be_sought(self, case: StreamCase) -> None:
        """Check that a backend without storage refuses a seek."""

        async def scenario(streamer: Streamer) -> None:
            if streamer.capabilities.is_replayable:
                return
            consumer = await streamer.create_consumer(case.key("a"))
            with pytest.raises(StreamUnsupportedError):
                await consumer.seek(0)
            for position in (BEGINNING, END, At(0)):
                with pytest.raises(StreamUnsupportedError):
                    await consumer.rewind(position)

        play(case, scenario)

    def test_shards_are_assigned_from_the_next_move_on(self, case: StreamCase) -> None:
        """Check that no assignment means all shards, and that the last one remains."""
        key = case.key("a")

        async def scenario(streamer: Streamer) -> None:
            consumer = await streamer.create_consumer(key)
            with pytest.raises(StreamKeyNotFoundError):
                consumer.assign(case.key("other"), 0)
            with pytest.raises(StreamKeyNotFoundError):
                consumer.unassign(key, 0)
            consumer.assign(key, 0)
            with pytest.raises(StreamKeyEmptyError):
                consumer.unassign(key, 0)
            if streamer.capabilities.has_shards:
                await _read_shards(streamer, key)

        play(case, scenario)


async def _read_shards(streamer: Streamer, key: str) -> None:
    producer = await streamer.create_producer(key, shard_count=2)
    for n in range(10):
        await producer.send(str(n))
    consumer = await streamer.create_consumer(key, start="earliest")
    found = [await consumer.next() for _ in range(10)]
    assert {message.shard_id for message in found} == {0, 1}
    for shard in (0, 1):
        own = [int(m.payload) for m in found if m.shard_id == shard]
        assert len(own) == 5
        assert await _only(consumer, key, shard, len(own)) == own
    consumer.unassign(key, 0)
    await consumer.rewind(BEGINNING)
    assert await numbers(consumer, 5) == [int(m.payload) for m in found if m.shard_id == 1]


async def _only(consumer: Consumer, key: str, shard: int, count: int) -> list[int]:
    """Return the messages that a consumer reads of one more assigned shard."""
    consumer.assign(key, shard)
    await consumer.rewind(BEGINNING)
    found = [await consumer.next() for _ in range(count if shard == 0 else 2 * count)]
    return [int(message.payload) for message in found if message.shard_id == shard]


def _can(streamer: Streamer, how: dict[str, Any]) -> bool:
    """Return whether the backend supports moves in this mode."""
    able = streamer.capabilities
    return able.is_replayable and how.get("mode", "real-time") in able.modes
