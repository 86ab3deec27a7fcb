"""Streams over WebSockets: each message is a frame, with or without a head.

A client reconnects automatically, with increasing pauses, and sends its last position. A sent
message counts as received when the peer has answered a ping that was sent after it. A server sends
messages to its connected clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeAlias

from websockets.asyncio.client import connect
from websockets.asyncio.connection import Connection
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage, InvalidURI
from websockets.frames import CloseCode

from bicycle_sdk.clock import SystemClock
from bicycle_sdk.options import option
from bicycle_streams.addresses import StreamerUri, StreamKey
from bicycle_streams.contract import Capabilities
from bicycle_streams.errors import FRAME_REFUSED, StreamError
from bicycle_streams.lines import BROADCAST, LineDecoder
from bicycle_streams.messages import Message
from bicycle_streams.options import Durability, StreamerOptions, TlsOptions
from bicycle_streams.peers import PeerOptions, PeerStreamer
from bicycle_streams.producing import Sender
from bicycle_streams.queued_sending import LineSender, Pending

_BAD_FRAME_CODES = frozenset(
    {CloseCode.PROTOCOL_ERROR, CloseCode.INVALID_DATA, CloseCode.MESSAGE_TOO_BIG}
)

Position: TypeAlias = tuple[StreamKey, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSocketOptions(StreamerOptions, TlsOptions, PeerOptions):
    """The options of a WebSocket's streamer."""

    subscribe: str | None = option(
        None,
        doc=(
            "Text sent after each connection; {sequence} is replaced by the last received "
            "sequence, -1 at first."
        ),
    )
    sequence_field: str | None = option(
        None,
        doc="Field of JSON frames with their sequence, for {sequence} and the detection of gaps.",
    )
    last_sequence: int = option(
        -1, low=-1, doc="Last received sequence of an earlier run, for the first {sequence}."
    )
    ping_interval_ms: int = option(
        20_000, low=10, high=3_600_000, doc="Interval of pings to the other side."
    )
    ping_timeout_ms: int = option(
        20_000,
        low=10,
        high=3_600_000,
        doc="Time without an answer after which the connection is closed.",
    )
    frame_bytes_max: int = option(16 << 20, low=1, high=1 << 30, doc="Maximum size of a frame.")


class WebSocketStreamer(PeerStreamer[Connection]):
    """Streams over WebSockets.

    Args:
        uri: ``ws://host:port/path``, or ``wss://`` with TLS.
        options: ``WebSocketOptions``.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        modes=frozenset({"real-time", "load-balanced"}), is_binary=False
    )
    options_type: ClassVar[type[StreamerOptions]] = WebSocketOptions
    options: WebSocketOptions

    away: ClassVar[tuple[type[Exception], ...]] = (
        ConnectionClosed, InvalidHandshake, TimeoutError, OSError,
    )  # fmt: skip
    default_port: ClassVar[int | None] = 80

    def __init__(self, uri: StreamerUri, options: WebSocketOptions) -> None:
        super().__init__(uri, options)
        self._tls = options.tls_context(self.address, "wss", is_server=options.listen)
        self._decoder = LineDecoder(self.address)
        self._clock = SystemClock()
        self._server: Server | None = None
        self.clients: set[_Client] = set()  # Of a server: its open connections.
        self._last: dict[Position, int] = {}
        self._last_sequence = options.last_sequence
        self.gap_count = 0

    async def _open(self) -> None:
        self._limits: dict[str, Any] = {
            "ping_interval": self.options.ping_interval_ms / 1_000,
            "ping_timeout": self.options.ping_timeout_ms / 1_000,
            "close_timeout": self.options.ping_timeout_ms / 1_000,
            "max_size": self.options.frame_bytes_max,
            "max_queue": 1,  # More frames of each connection could fill the memory.
            "ssl": self._tls,
        }
        await super()._open()

    async def _listen(self, host: str, port: int) -> None:
        make: Any = partial(_Client, self)
        self._server = await serve(self._serve, host, port, create_connection=make, **self._limits)

    async def _part(self, peer: Connection) -> None:
        await peer.close()

    async def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    @property
    def port(self) -> int:
        assert self._server is not None, "only a server has one"
        return int(next(iter(self._server.sockets)).getsockname()[1])

    async def _make_sender(self, *, durability: Durability, shard_count: int) -> Sender:
        return _FrameSender(self)

    async def _connect(self) -> Connection:
        """Connect, and send the last position."""
        timeout_s = self.options.connect_timeout_ms / 1_000
        try:
            peer = await connect(self.address, open_timeout=timeout_s, **self._limits)
        except InvalidURI as error:
            raise ValueError(str(error)) from None
        except InvalidMessage as error:
            if self._tls is None:
                raise
            # The alert that requires a certificate is lost: the library sees only the end.
            reason = f"{error}; if the server asks for a certificate, set cert_file and key_file"
            raise ConnectionError(reason) from None
        if self.options.subscribe is not None:
            text = self.options.subscribe.replace("{sequence}", str(self._last_sequence))
            await peer.send(text)
        return peer

    async def _take(self, peer: Connection) -> None:
        try:
            async for frame in peer:
                for other in self.others(peer):
                    with contextlib.suppress(*self.away):
                        await other.send(frame)
                await self._hub.offer([self._message(frame)])
        except ConnectionClosed as error:
            sent = error.sent  # The code with which this side closed, because of a frame.
            if sent is not None and not error.rcvd_then_sent and sent.code in _BAD_FRAME_CODES:
                reason = sent.reason or CloseCode(sent.code).name
                await self._hub.offer([FRAME_REFUSED(address=self.address, reason=reason)])
        except self.away:
            return

    def _message(self, frame: str | bytes) -> Message | StreamError:
        """Return the message of a frame, and count missing messages before it.

        A frame without a sequence gets the last one, which leaves the position unchanged: -1 if
        there was none, because 0 would count as received.
        """
        if isinstance(frame, bytes):
            return Message(BROADCAST, 0, self._last_sequence, self._clock.now_ms(), frame)
        message = self._decoder.decode(frame.encode())
        if isinstance(message, StreamError):
            return message
        stream, sequence = (message.stream_key, message.shard_id), message.sequence
        if self.options.sequence_field is not None:
            try:
                sequence = int(json.loads(message.payload)[self.options.sequence_field])
            except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
                sequence = -1
        if sequence >= 0:
            self.gap_count += max(0, sequence - self._last.get(stream, sequence - 1) - 1)
            self._last[stream] = self._last_sequence = sequence
        return Message(*stream, self._last_sequence, message.timestamp_ms, message.payload)

    async def send_frames(self, frames: Iterable[str | bytes]) -> bool:
        """Send frames to all peers; return whether all of them have answered behind them."""
        peers = list(self.peers)
        texts = list(frames)
        results = await asyncio.gather(*(self._send_to(peer, texts) for peer in peers))
        self.note_dropped(len(texts), results)
        return all(results)

    async def _send_to(self, peer: Connection, frames: list[str | bytes]) -> bool:
        try:
            for frame in frames:
                await peer.send(frame)
            pong = await peer.ping()
            async with asyncio.timeout(self.options.ping_timeout_ms / 1_000):
                await pong
        except self.away:
            return False
        return True


class _Client(ServerConnection):
    """A connection of a client, which counts from before its first request."""

    def __init__(self, streamer: WebSocketStreamer, *words: Any, **more: Any) -> None:
        super().__init__(*words, **more)
        self._streamer = streamer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._streamer.admits(len(self._streamer.clients)):
            self._streamer.clients.add(self)
            super().connection_made(transport)
        else:
            assert isinstance(transport, asyncio.Transport), "TCP has such a transport"
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self._streamer.clients:  # Others were refused, and did not begin.
            self._streamer.clients.discard(self)
            super().connection_lost(exc)


class _FrameSender(LineSender):
    """A sender of frames; a client sends unconfirmed messages again."""

    def __init__(self, streamer: WebSocketStreamer) -> None:
        super().__init__(streamer.address, streamer.options)
        self._streamer = streamer

    async def _write(self, batch: list[Pending]) -> None:
        frames = [self.line_of(pending) for pending in batch]
        while True:
            await self._streamer.wait_for_peer()
            if await self._streamer.send_frames(frames) or self._streamer.options.listen:
                return
            await asyncio.sleep(self._streamer.options.retry_delay_ms / 1_000)
