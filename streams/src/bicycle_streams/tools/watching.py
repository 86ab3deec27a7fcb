"""Watching of streams: the last hour is read once, then new messages are counted.

One consumer reads each stream. The admin of the backend is polled for shards and groups, and for
new streams if the address names no stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from bicycle_sdk.clock import Clock, SystemClock
from bicycle_streams.addresses import StreamKey, StreamUrl
from bicycle_streams.admin import StreamInfo
from bicycle_streams.connecting import connect
from bicycle_streams.consuming import Consumer
from bicycle_streams.contract import Streamer
from bicycle_streams.errors import (
    STREAM_UNKNOWN,
    ConnectionLostError,
    SeekError,
    StreamConnectError,
    StreamEndedError,
    StreamError,
    StreamUnsupportedError,
)
from bicycle_streams.messages import At
from bicycle_streams.options import Start
from bicycle_streams.tools.errors import NOTHING_KEPT
from bicycle_streams.tools.opening import Words
from bicycle_streams.tools.rates import Figures, Marks, StreamWatch

_BATCH = 10_000
_ASK_S = 2.0
_PAUSE_S = 1.0


class Watch:
    """Watches the streams of one address.

    Args:
        url: The streams; without a key all that the backend lists.
        words: Options of the backend.
        history_ms: How far back messages are read at first.
        clock: The time.
    """

    def __init__(
        self, url: StreamUrl, words: Words, *, history_ms: int, clock: Clock | None = None
    ) -> None:
        self.url = url
        self.error: StreamError | None = None
        self._words = words
        self._history_ms = history_ms
        self._clock = clock or SystemClock()
        self._streams: dict[StreamKey, StreamWatch] = {}

    def figures(self, marks: Marks) -> list[Figures]:
        """Return the figures of all streams, by name."""
        now_ms = self._clock.now_ms()
        watches = sorted(self._streams.values(), key=lambda watch: watch.key)
        return [watch.figures(marks, now_ms=now_ms) for watch in watches]

    async def once(self) -> None:
        """Read the stored messages, and end.

        Raises:
            StreamError: the backend keeps nothing, or cannot be reached.
        """
        async with connect(self.url, self._words) as streamer:
            if not streamer.capabilities.is_replayable:
                raise NOTHING_KEPT(address=str(self.url))
            for watch in await self._find(streamer):
                await self._read(streamer, watch, is_live=False)
            await self._describe(streamer)

    async def run(self) -> None:
        """Watch until this is canceled; when the backend is lost all begins again."""
        while True:
            try:
                async with connect(self.url, self._words) as streamer:
                    self._streams = {}
                    await self._run(streamer)
            except StreamError as error:
                self.error = error
            await asyncio.sleep(_PAUSE_S)

    async def _run(self, streamer: Streamer) -> None:
        readers: set[asyncio.Task[None]] = set()
        try:
            while True:
                for watch in await self._find(streamer):
                    readers.add(asyncio.create_task(self._read(streamer, watch, is_live=True)))
                await self._describe(streamer)
                self.error = None
                asking = asyncio.create_task(asyncio.sleep(_ASK_S))
                try:
                    await asyncio.wait({*readers, asking}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    asking.cancel()
                for reader in [reader for reader in readers if reader.done()]:
                    readers.remove(reader)
                    reader.result()
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)

    async def _find(self, streamer: Streamer) -> list[StreamWatch]:
        """Return the streams to watch that are not watched yet."""
        keys: Iterable[StreamKey] = self.url.stream_keys
        if not keys:
            keys = await streamer.admin().list_streams()
        new = [StreamWatch(str(self.url.streamer), k) for k in keys if k not in self._streams]
        self._streams.update((watch.key, watch) for watch in new)
        return new

    async def _describe(self, streamer: Streamer) -> None:
        """Read shards and groups, and the latest message where it is unknown."""
        try:
            admin = streamer.admin()
        except StreamUnsupportedError:
            return
        for watch in list(self._streams.values()):
            try:
                watch.info = await admin.describe(watch.key)
            except StreamError as error:
                if error.code != STREAM_UNKNOWN.code:
                    raise
                watch.info = None
            else:
                await self._read_latest(streamer, watch, watch.info)

    async def _read(self, streamer: Streamer, watch: StreamWatch, *, is_live: bool) -> None:
        """Count the messages of a stream; a failed stream keeps its error."""
        begin_ms = self._clock.now_ms() - self._history_ms
        try:
            consumer = await self._consumer(streamer, watch, begin_ms=begin_ms, is_live=is_live)
            if consumer is None:
                return
            async for batch in consumer.batches(_BATCH):
                for message in batch:
                    watch.add(message)
                await asyncio.sleep(0)  # Others have their turn, however much there is to read.
        except (ConnectionLostError, StreamConnectError):
            raise
        except StreamError as error:
            watch.error = error

    async def _consumer(
        self, streamer: Streamer, watch: StreamWatch, *, begin_ms: int, is_live: bool
    ) -> Consumer | None:
        """Return a consumer of messages since a moment, or None without any."""
        start: Start = "latest" if is_live else "earliest"
        consumer = await streamer.create_consumer(watch.key, start=start, is_live=is_live)
        if not streamer.capabilities.is_replayable or (is_live and not self._history_ms):
            return consumer
        try:
            await consumer.seek(begin_ms)
        except SeekError:
            return consumer if is_live else None
        return consumer

    async def _read_latest(self, streamer: Streamer, watch: StreamWatch, info: StreamInfo) -> None:
        """Read the latest message of a stream from before the counted period."""
        shards = [shard for shard in info.shards if shard.last_sequence is not None]
        if watch.latest is not None or watch.error is not None or not shards:
            return
        last = max(shards, key=lambda shard: shard.last_timestamp_ms or 0)
        consumer = await streamer.create_consumer(watch.key, start="earliest", is_live=False)
        try:
            consumer.assign(watch.key, last.shard_id)
            await consumer.rewind(At(last.last_sequence or 0))
            watch.latest = await consumer.next()
        except (SeekError, StreamEndedError):
            return  # It was removed, or is the mark of a transaction.
        finally:
            await consumer.end()
