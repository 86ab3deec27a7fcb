"""Feeds: each address is read once for all clients, and framed once.

A feed gives what comes to its listeners, and waits for none of them. What is past is read by
consumers of their own, one for each listener that wants it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

from bicycle_sdk.logging import log_event
from bicycle_sdk.random_source import system_random
from bicycle_streams import (
    Consumer,
    Message,
    SeekError,
    SeqPos,
    StreamEndedError,
    Streamer,
    StreamError,
    StreamKey,
    StreamUrl,
    Timestamp,
    connect,
)
from bicycle_streams.backoff import Backoff
from bicycle_streams.lines import BROADCAST
from bicycle_streams.subscriber_server.figures import SubscriberFigures
from bicycle_streams.texts import message_json

_LOG = logging.getLogger(__name__)
_BATCH = 1_000
_SEEN_MAX = 100
_PAUSE_MS, _PAUSE_MAX_MS = 200, 30_000


class Item:
    """A message, prepared once for all its recipients.

    Args:
        message: The message.

    Attributes:
        payload: The value that filters look at.
        body: The end of the frame of each client: its header and payload as JSON.
    """

    __slots__ = ("body", "payload", "sequence", "shard_id")

    def __init__(self, message: Message) -> None:
        shown = message_json(message)
        self.shard_id = message.shard_id
        self.sequence = message.sequence
        self.payload: Any = shown.get("payload")
        # Numbers of JavaScript end at 2^53; numbers of Redis are larger.
        shown["header"]["position"] = str(message.sequence)
        self.body = json.dumps(shown, ensure_ascii=False, separators=(",", ":"))[1:].encode()


class Recipient(Protocol):
    """A recipient of a stream's messages."""

    def offer(self, item: Item) -> None:
        """Take a message; it does not wait."""

    def feed_ended(self, error: StreamError | None) -> None:
        """Note that the feed has ended, and the error, if any."""


class Feed:
    """A reader of one address's streams for all listeners.

    Args:
        url: The streams.
        words: Options of the backend.
        figures: Are told what was read.
    """

    def __init__(
        self, url: StreamUrl, words: Mapping[str, object], figures: SubscriberFigures
    ) -> None:
        self.url = url
        self.end_error: StreamError | None = None
        self.has_ended = False
        self._words = words
        self._figures = figures
        # In the order in which they came.
        self._listeners: dict[StreamKey, dict[Recipient, None]] = defaultdict(dict)
        self._streamer: Streamer | None = None

    @property
    def keeps(self) -> bool:
        """Return whether past messages can be read."""
        return self._streamer is not None and self._streamer.capabilities.is_replayable

    def join(self, key: StreamKey, listener: Recipient) -> None:
        """Send a listener all later messages."""
        self._listeners[key][listener] = None

    def leave(self, key: StreamKey, listener: Recipient) -> None:
        """Send a listener no further messages."""
        self._listeners[key].pop(listener, None)

    async def run(self, opened: asyncio.Event) -> None:
        """Read forever, and reconnect after failures.

        Args:
            opened: Set once the streams are read.

        Raises:
            StreamError: they could not be opened for the first time.
        """
        pauses = Backoff(first_ms=_PAUSE_MS, longest_ms=_PAUSE_MAX_MS, source=system_random())
        while True:
            try:
                async with connect(self.url.streamer, self._words) as streamer:
                    consumer = await streamer.create_consumer(self.url.stream_keys)
                    self._streamer, self.end_error, self.has_ended = streamer, None, False
                    opened.set()
                    pauses.reset()
                    await self._read(consumer)
                    self._end(None)
                    # A client that requests past messages still gets them.
                    await asyncio.Event().wait()
            except StreamError as error:
                if not opened.is_set():
                    raise
                self._figures.broken.labels(str(self.url.streamer)).inc()
                log_event(_LOG, "stream_lost", level=logging.WARNING, error=error)
                self._end(error)
            await asyncio.sleep(pauses.next_s())

    @asynccontextmanager
    async def past(
        self, key: StreamKey, begin: SeqPos | Timestamp, shard_id: int | None = None
    ) -> AsyncIterator[Consumer | None]:
        """Yield a consumer that ends at the stream's present end, or None.

        Args:
            key: The stream.
            begin: What comes first.
            shard_id: The only shard to read; None: all.
        """
        assert self._streamer is not None, "it was opened"
        consumer = await self._streamer.create_consumer(key, start="earliest", is_live=False)
        try:
            if shard_id is not None:
                consumer.assign(key, shard_id)
            try:
                if isinstance(begin, Timestamp):
                    await consumer.seek(begin)
                else:
                    await consumer.rewind(begin)
            except SeekError:
                yield None
            else:
                yield consumer
        finally:
            await consumer.end()

    async def _read(self, consumer: Consumer) -> None:
        counts = {key: self._figures.read.labels(key) for key in self.url.stream_keys}
        async for batch in batches_past_damage(consumer):
            for message in batch:
                # A message without a stream is for all of them.
                is_for_all = message.stream_key == BROADCAST and BROADCAST not in counts
                keys = self.url.stream_keys if is_for_all else (message.stream_key,)
                if listeners := [each for key in keys for each in self._listeners.get(key, ())]:
                    item = Item(message)
                    for listener in listeners:
                        listener.offer(item)
                for key in keys:
                    if count := counts.get(key):
                        count.inc()

    def _end(self, error: StreamError | None) -> None:
        self.has_ended, self.end_error = True, error
        for listeners in self._listeners.values():
            for listener in tuple(listeners):
                listener.feed_ended(error)


async def batches_past_damage(consumer: Consumer) -> AsyncIterator[list[Message]]:
    """Iterate over batches to the end of the streams; log broken messages.

    Raises:
        StreamError: nothing can be read any more.
    """
    seen: deque[str] = deque(maxlen=_SEEN_MAX)  # The errors since the last message.
    while True:
        try:
            batch = await consumer.next_batch(_BATCH)
        except StreamEndedError:
            return
        except StreamError as error:
            # What is wrong with a message names it; the same error again is of the stream.
            text = "" if error.received is not None else error.summary
            if text in seen:
                raise
            if text:
                seen.append(text)
            log_event(_LOG, "message_unreadable", level=logging.WARNING, error=error)
            continue
        seen.clear()
        yield batch
