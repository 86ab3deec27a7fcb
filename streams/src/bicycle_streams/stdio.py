"""Streams on standard input and output: each message is a line, as in pipes.

One streamer of a process reads, since there is one standard input: from its first consumer on, and
no further than consumers have room.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import BinaryIO, ClassVar

from bicycle_sdk.options import option
from bicycle_streams.addresses import StreamerUri
from bicycle_streams.consuming import Consumer, Subscription
from bicycle_streams.contract import Capabilities, Streamer
from bicycle_streams.delivering import Hub, HubConsumer
from bicycle_streams.errors import (
    STREAMER_IN_USE,
    ConnectionLostError,
    StreamEndedError,
    StreamError,
)
from bicycle_streams.lines import LineDecoder
from bicycle_streams.options import Durability, StreamerOptions
from bicycle_streams.producing import Sender
from bicycle_streams.queued_sending import LineSender, Pending
from bicycle_streams.standard_input import batches_of_lines, standard_input, standard_output


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioOptions(StreamerOptions):
    """The options of the streamer of standard input and output."""

    loopback: bool = option(
        False, doc="Whether sent messages are also delivered to consumers of this streamer."
    )


class StdioStreamer(Streamer):
    """Streams on standard input and output.

    Args:
        uri: ``stdio://``.
        options: ``StdioOptions``.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        modes=frozenset({"real-time", "load-balanced"}), is_binary=False
    )
    options_type: ClassVar[type[StreamerOptions]] = StdioOptions
    options: StdioOptions
    in_use: ClassVar[StdioStreamer | None] = None

    def __init__(self, uri: StreamerUri, options: StdioOptions) -> None:
        super().__init__(uri, options)
        self._hub = Hub()
        self._reading: asyncio.Task[None] | None = None

    async def _open(self) -> None:
        """Do nothing: standard input and output are open."""

    async def _close(self) -> None:
        if StdioStreamer.in_use is self:
            StdioStreamer.in_use = None
        if self._reading is not None:
            self._reading.cancel()
        self._hub.end(StreamEndedError(address=str(self.uri)))

    async def _make_sender(self, *, durability: Durability, shard_count: int) -> Sender:
        hub = self._hub if self.options.loopback else None
        return _StdioSender(str(self.uri), self.options, standard_output(), hub)

    async def _make_consumer(self, subscription: Subscription) -> Consumer:
        reads = self._reading is None and not self.options.loopback
        if reads and StdioStreamer.in_use is not None:
            raise STREAMER_IN_USE(address=str(self.uri))
        consumer = HubConsumer(str(self.uri), subscription, self.options, self._hub)
        if reads:
            StdioStreamer.in_use = self
            loop = asyncio.get_running_loop()
            self._reading = loop.create_task(self._read(standard_input()))
        return consumer

    async def _read(self, stream: BinaryIO | None) -> None:
        """Deliver lines to consumers, to the end of the input."""
        decoder = LineDecoder(str(self.uri))
        try:
            async for lines in batches_of_lines(stream):
                while (
                    lines
                ):  # A line is removed when there is room for it, so that no line is lost.
                    await self._hub.wait_for_room()
                    if line := lines.popleft().strip():
                        self._hub.deliver(decoder.decode(line))
        except StreamError as error:
            self._hub.end(error)
            return
        self._hub.end(StreamEndedError(address=str(self.uri)))


class _StdioSender(LineSender):
    """A sender of lines to standard output, on a thread, since writes may block."""

    def __init__(
        self, address: str, options: StdioOptions, stream: BinaryIO, hub: Hub | None
    ) -> None:
        super().__init__(address, options)
        self._stream = stream
        self._hub = hub

    async def _write(self, batch: list[Pending]) -> None:
        lines = [self.line_of(pending) + "\n" for pending in batch if pending.message.payload]
        data = "".join(lines).encode()
        try:
            await asyncio.to_thread(self._put, data)
        except OSError as error:
            raise ConnectionLostError(address=self.address, reason=str(error)) from None
        if self._hub is not None:
            await self._hub.offer([self.message_of(pending) for pending in batch])

    def _put(self, data: bytes) -> None:
        self._stream.write(data)
        self._stream.flush()
