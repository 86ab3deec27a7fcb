"""Showing of messages: all, from a position on, or the last ones, then new ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from bicycle_streams.addresses import StreamKey, StreamUrl
from bicycle_streams.consuming import Consumer
from bicycle_streams.contract import Streamer
from bicycle_streams.messages import At, Message, Timestamp
from bicycle_streams.tools.opening import Words, refuse_unknown, streamer_to_read

Write: TypeAlias = Callable[[Message], None]
Shown: TypeAlias = dict[tuple[StreamKey, int], int]
_BATCH = 1_000


async def show(
    url: StreamUrl,
    words: Words,
    write: Write,
    *,
    begin: At | Timestamp | None = None,
    last: int | None = None,
    follow: bool = False,
) -> None:
    """Write the messages of streams; only new ones if the backend does not store them.

    Args:
        url: The streams.
        words: Options of the backend.
        write: Called with each message.
        begin: Start position; None: the first message, or by ``last``.
        last: Only this number of messages at the end.
        follow: Whether to continue with new messages.

    Raises:
        StreamUnsupportedError: a start position is set, and the backend stores no messages.
        SeekError: there is no message at or after it.
        STREAM_UNKNOWN: a stream does not exist, and the call does not wait for it.
    """
    async with streamer_to_read(url, words) as streamer:
        if not streamer.capabilities.is_replayable:
            consumer = await streamer.create_consumer(url.stream_keys)
            await _move(consumer, begin)
            async for message in consumer:
                write(message)
            return
        # It begins at the end before the rest is read, so that nothing is missed between.
        live = await streamer.create_consumer(url.stream_keys) if follow else None
        shown = await _show_kept(streamer, url, write, begin=begin, last=last)
        if not follow:
            await refuse_unknown(streamer, {*url.stream_keys} - {key for key, _ in shown})
        if live is not None:
            await _show_new(live, write, shown)


async def _show_kept(
    streamer: Streamer,
    url: StreamUrl,
    write: Write,
    *,
    begin: At | Timestamp | None,
    last: int | None,
) -> Shown:
    """Write the stored messages, and return the last sequence of each stream."""
    consumer = await streamer.create_consumer(url.stream_keys, start="earliest", is_live=False)
    await _move(consumer, begin)
    shown: Shown = {}
    kept: deque[Message] = deque(maxlen=last)
    async for batch in consumer.batches(_BATCH):
        for message in batch:
            shown[message.stream_key, message.shard_id] = message.sequence
            if last is None:
                write(message)
        if last is not None:
            kept.extend(batch)
    for message in kept:
        write(message)
    return shown


async def _move(consumer: Consumer, begin: At | Timestamp | None) -> None:
    if isinstance(begin, At):
        await consumer.rewind(begin)
    elif begin is not None:
        await consumer.seek(begin)


async def _show_new(consumer: Consumer, write: Write, shown: Shown) -> None:
    async for message in consumer:
        stream = (message.stream_key, message.shard_id)
        if message.sequence > shown.get(stream, message.sequence - 1):
            write(message)
