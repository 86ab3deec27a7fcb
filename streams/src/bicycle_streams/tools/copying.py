"""Copying streams from any backend to any other."""

from __future__ import annotations

from contextlib import AsyncExitStack
from operator import attrgetter

from bicycle_streams.addresses import StreamKey, StreamUrl
from bicycle_streams.options import Start
from bicycle_streams.tools.errors import SAME_STREAMS
from bicycle_streams.tools.opening import (
    Tally,
    Words,
    producer_of,
    refuse_unknown,
    streamer_to_read,
    streamer_to_write,
)

_BATCH = 1_000
_KEY = attrgetter("stream_key")
_WAITING_MAX = 20_000


async def relay(
    source: StreamUrl,
    target: StreamUrl,
    tally: Tally,
    *,
    source_words: Words,
    target_words: Words,
    start: Start,
    is_live: bool,
) -> None:
    """Copy messages with their times, and with their shards where the target has any.

    Args:
        source: The streams to read.
        target: The stream to write; without one, each message goes to the stream of its name.
        tally: Counts the sent messages.
        source_words: Options of the backend that is read.
        target_words: Options of the backend that is written.
        start: Start position in an input that stores messages.
        is_live: Whether to wait for further messages at the end.

    Raises:
        StreamError: input and output are the same, and not stdio.
        STREAM_UNKNOWN: a stream does not exist, and the call does not wait for it.
    """
    is_pipe = source.streamer.protocol == target.streamer.protocol == "stdio"
    reading = writing = streamer_to_read(source, source_words)
    if not is_pipe:
        writing = streamer_to_write(target, target_words)
        if reading.identity == writing.identity and _may_meet(source, target):
            raise SAME_STREAMS(address=str(source))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(reading)
        if not is_pipe:
            await stack.enter_async_context(writing)
        producer = await producer_of(writing, target)
        consumer = await reading.create_consumer(source.stream_keys, start=start, is_live=is_live)
        has_shards = writing.capabilities.has_shards
        waiting_max = min(_WAITING_MAX, writing.options.send_queue_messages // 2)
        waiting, found = 0, set[StreamKey]()
        async for batch in consumer.batches(min(_BATCH, waiting_max or 1)):
            producer.copy_many(batch, with_shards=has_shards)
            if not is_live:
                found.update(map(_KEY, batch))
            tally.sent += len(batch)
            waiting += len(batch)
            # While there is much to copy, the other side takes some while more is read.
            if waiting >= waiting_max or len(batch) < _BATCH:
                await producer.flush()
                waiting = 0
        await producer.flush()
        if not is_live and reading.capabilities.is_replayable:
            await refuse_unknown(reading, {*source.stream_keys} - found)


def _may_meet(source: StreamUrl, target: StreamUrl) -> bool:
    """Return whether a stream would be both read and written in one location."""
    return not target.stream_keys or bool({*source.stream_keys} & {*target.stream_keys})
