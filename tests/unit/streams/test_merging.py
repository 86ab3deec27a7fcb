"""Streams that are merged by time: the order of their times, whatever order they come in."""

import asyncio
from collections import deque

import pytest

from bicycle_streams import MergedConsumers, StreamEndedError, connect


def merged(tmp_path, sent, keys, *, is_live=False, act=None):
    """Send (stream, time) to a file, and return what comes of its streams as texts."""

    async def read(merging):
        return [f"{m.stream_key}{m.timestamp_ms}" async for m in merging]

    async def scenario():
        async with connect(f"file://{tmp_path}/a.ss", {"create": "if-missing"}) as streamer:
            producer = await streamer.create_generic_producer()
            for key, time in sent:
                producer.send_to(key, key, timestamp_ms=time)
            await producer.flush()
            merging = MergedConsumers(
                [
                    await streamer.create_consumer(key, start="earliest", is_live=is_live)
                    for key in keys
                ]
            )
            return await (act or read)(merging, *([producer] if act else []))

    async def in_time():
        async with asyncio.timeout(60):
            return await scenario()

    return asyncio.run(in_time())


def times(key, *found):
    return [(key, time) for time in found]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (
            times("a", 1, 3, 5, 7, 9) + times("b", 2, 4, 6, 8, 10),
            "a1 b2 a3 b4 a5 b6 a7 b8 a9 b10",
        ),
        (
            times("a", 1, 2, 5, 8, 9) + times("b", 3, 4, 6, 7, 10),
            "a1 a2 b3 b4 a5 b6 b7 a8 a9 b10",
        ),
        (
            times("c", 5) + times("b", 3, 4, 6, 7, 10) + times("a", 1, 2, 5, 8, 9),
            "a1 a2 b3 b4 a5 c5 b6 b7 a8 a9 b10",
        ),
        (
            times("a", 1, 3) + times("d", 5) + times("b", 2, 4) + times("c", 3),
            "a1 b2 a3 c3 b4 d5",
        ),
        ([], ""),
    ],
)
def test_messages_come_in_the_order_of_their_times(tmp_path, sent, expected):
    assert merged(tmp_path, sent, "abcd") == expected.split()


def test_a_stream_that_is_not_in_order_keeps_its_own(tmp_path):
    found = merged(tmp_path, times("a", 5, 1, 6) + times("b", 2, 9), "ab")

    assert found == ["b2", "a5", "a1", "a6", "b9"]


def test_a_message_waits_until_each_stream_has_one_and_a_cancelled_call_loses_none(tmp_path):
    async def act(merging, producer):
        waiting = asyncio.ensure_future(merging.next())
        while not merging._heads:  # The one of a is held: b may have an earlier one.
            await asyncio.sleep(0.001)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait([waiting])
        producer.send_to("b", "b", timestamp_ms=3)
        return [(await merging.next()).timestamp_ms]

    assert merged(tmp_path, times("a", 5), "ba", is_live=True, act=act) == [3]


def test_the_end_is_told_again_and_nothing_to_merge_is_refused(tmp_path):
    async def act(merging, producer):
        ends = deque()
        for _ in range(2):
            with pytest.raises(StreamEndedError) as caught:
                await merging.next()
            ends.append(caught.value.facts["address"])
        return ends

    assert set(merged(tmp_path, [], "ab", act=act)) == {str(tmp_path / "a.ss")}
    with pytest.raises(ValueError, match="at least one"):
        MergedConsumers([])
