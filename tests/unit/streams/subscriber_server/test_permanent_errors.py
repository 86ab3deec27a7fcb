"""Errors that come again: a reader ends with them, and goes on behind unreadable messages."""

import asyncio

import pytest

from bicycle_streams import Message, StreamEndedError, StreamError, StreamKey
from bicycle_streams.consuming import Subscription
from bicycle_streams.delivering import Hub, HubConsumer
from bicycle_streams.options import StreamerOptions
from bicycle_streams.subscriber_server.feeds import batches_past_damage

KEY = StreamKey("a")


def refusal(problem):
    return StreamError(address="x://", problem=problem, hint="")


async def read(items):
    """Return the payloads that are read before the end."""
    hub = Hub()
    consumer = HubConsumer("x://", Subscription(keys=(KEY,)), StreamerOptions(), hub)
    for item in items:
        hub.deliver(item)
    hub.end(StreamEndedError(address="x://"))
    return [each.as_str() async for batch in batches_past_damage(consumer) for each in batch]


@pytest.mark.parametrize("problems", ["aa", "aba", "abcb"])
def test_a_reader_ends_with_an_error_that_was_there_since_the_last_message(problems):
    with pytest.raises(StreamError) as caught:
        asyncio.run(read(refusal(f"no permission for {each}") for each in problems))
    assert caught.value.facts["problem"] == f"no permission for {problems[-1]}"


def test_a_reader_goes_on_behind_different_errors_and_behind_messages():
    message = Message(KEY, 0, 1, 0, b"1")
    items = [refusal("entry 1"), refusal("entry 2"), message, refusal("entry 1"), message]
    assert asyncio.run(read(items)) == ["1", "1"]
