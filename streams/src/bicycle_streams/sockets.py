"""Streams over TCP sockets: each message is a line, with or without a head.

A client reconnects automatically; a server sends messages to its connected clients. TCP does not
report which bytes the peer has read. So a receipt means that the kernel has the line: at most once.
Lines in a broken connection fail, and are never sent again.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import dataclass
from typing import ClassVar

from bicycle_sdk.options import option
from bicycle_streams.addresses import StreamerUri
from bicycle_streams.contract import Capabilities
from bicycle_streams.errors import RECEIVED_LINE_TOO_LONG, ConnectionLostError
from bicycle_streams.lines import LineDecoder
from bicycle_streams.options import Durability, StreamerOptions
from bicycle_streams.peers import PeerOptions, PeerStreamer
from bicycle_streams.producing import Sender
from bicycle_streams.queued_sending import LineSender, Pending

CHUNK_BYTES = 1 << 18
_LINGER_S = 1.0
_BACKLOG = 128
_ADMIT_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketOptions(StreamerOptions, PeerOptions):
    """The options of a socket's streamer."""

    heads: bool = option(
        False,
        doc=(
            "Whether lines have heads as on pipes, with stream, shard, sequence and time; "
            "otherwise a line is its payload."
        ),
    )
    line_bytes_max: int = option(
        16 << 20,
        low=1,
        high=1 << 30,
        doc="Maximum length of a line; a sender with a longer line is disconnected.",
    )
    send_timeout_ms: int = option(
        30_000,
        low=10,
        high=3_600_000,
        doc="Time without a read by the client after which it is disconnected.",
    )


class SocketPeer:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.was_sent_to = False
        self.has_ended = asyncio.Event()  # It sends nothing more.
        # Without a buffer of ours, a drained writer means that the kernel has all of it.
        writer.transport.set_write_buffer_limits(high=0)
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


class SocketStreamer(PeerStreamer[SocketPeer]):
    """Streams over TCP sockets.

    Args:
        uri: ``socket://host:port``.
        options: ``SocketOptions``.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        durabilities=frozenset({"at-most-once"}), is_binary=False
    )
    options_type: ClassVar[type[StreamerOptions]] = SocketOptions
    options: SocketOptions
    away: ClassVar[tuple[type[Exception], ...]] = (OSError,)
    send_bytes: int = CHUNK_BYTES  # A peer is passed so many bytes at once.

    def __init__(self, uri: StreamerUri, options: SocketOptions) -> None:
        super().__init__(uri, options)
        self._decoder = LineDecoder(self.address, has_heads=options.heads)
        self._listener: socket.socket | None = None
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        assert self._listener is not None, "only a server has one"
        return int(self._listener.getsockname()[1])

    async def _listen(self, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self._listener.setblocking(False)
        self._admit_more()

    def _admit_more(self) -> None:
        if self._listener is not None and not self._is_closing:
            asyncio.get_running_loop().add_reader(self._listener, self._admit, self._listener)

    def _admit(self, listener: socket.socket) -> None:
        """Accept waiting clients; each gets a task, so that a close includes all clients."""
        loop = asyncio.get_running_loop()
        try:
            connection = self._accept(listener)
        except OSError:  # There is no descriptor left: the client waits.
            loop.remove_reader(listener)
            loop.call_later(_ADMIT_PAUSE_S, self._admit_more)
            return
        if connection is None:
            return
        task = loop.create_task(self._welcome(connection))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    def _accept(self, listener: socket.socket) -> socket.socket | None:
        """Return a client, or None if it left or is refused; OSError: no descriptor."""
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return None
        if not self.admits(len(self._serving)):
            connection.close()
            return None
        connection.setblocking(False)
        return connection

    async def _welcome(self, connection: socket.socket) -> None:
        peer = SocketPeer(*await asyncio.open_connection(sock=connection, limit=CHUNK_BYTES))
        if not self._is_closing:
            await self._serve(peer)
        await self._part(peer)

    async def _stop_listening(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            await asyncio.gather(*self._serving)

    async def _connect(self) -> SocketPeer:
        host, port = self.uri.host_and_port()
        timeout_ms = self.options.connect_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                return SocketPeer(*await asyncio.open_connection(host, port, limit=CHUNK_BYTES))
        except TimeoutError:
            raise TimeoutError(f"no answer in {timeout_ms} ms") from None

    async def _take(self, peer: SocketPeer) -> None:
        with contextlib.suppress(OSError):
            await self._take_lines(peer)
        peer.has_ended.set()
        if not self._keeps_silent_peer():
            self.peers.discard(peer)
            peer.writer.close()
        with contextlib.suppress(OSError):
            await peer.writer.wait_closed()

    def _keeps_silent_peer(self) -> bool:
        """Return whether a peer that sends nothing more still receives, as nc does."""
        return self.options.listen and bool(self._senders) and not self._is_closing

    async def _take_lines(self, peer: SocketPeer) -> None:
        rest = b""
        while data := await peer.reader.read(CHUNK_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            await self._offer(peer, lines)
            if len(rest) > self.options.line_bytes_max:
                limit = self.options.line_bytes_max
                await self._hub.offer(
                    [RECEIVED_LINE_TOO_LONG(address=self.address, limit_bytes=limit)]
                )
                peer.writer.transport.abort()
                return
        await self._offer(peer, [rest] if rest else [])  # The last line may lack its end.

    async def _offer(self, peer: SocketPeer, lines: list[bytes]) -> None:
        await self._hub.offer(self._decoder.decode(line.removesuffix(b"\r")) for line in lines)
        if lines and (others := self.others(peer)):
            await self._send_to_each(others, b"\n".join([*lines, b""]), len(lines))

    async def _part(self, peer: SocketPeer) -> None:
        with contextlib.suppress(OSError):
            if peer.was_sent_to and not peer.writer.transport.is_closing():
                # A close with unread input would discard output that the peer has not read.
                peer.writer.write_eof()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LINGER_S):
                        await peer.has_ended.wait()
            peer.writer.close()
            await peer.writer.wait_closed()

    async def _make_sender(self, *, durability: Durability, shard_count: int) -> Sender:
        return _SocketSender(self)

    async def send_lines(self, lines: list[bytes]) -> bool:
        """Send lines to all peers, each at its pace; return whether all have taken them."""
        return await self.send_data(b"".join(line + b"\n" for line in lines), len(lines))

    async def send_data(self, data: bytes, line_count: int) -> bool:
        """Send whole lines as they are; otherwise as ``send_lines``."""
        return await self._send_to_each(list(self.peers), data, line_count)

    async def _send_to_each(self, peers: list[SocketPeer], data: bytes, line_count: int) -> bool:
        results = await asyncio.gather(*(self._send_to(peer, data) for peer in peers))
        self.note_dropped(line_count, results)
        return all(results) and bool(peers)

    async def _send_to(self, peer: SocketPeer, data: bytes) -> bool:
        peer.was_sent_to = True
        try:
            for begin in range(0, len(data), self.send_bytes):
                peer.writer.write(data[begin : begin + self.send_bytes])
                async with asyncio.timeout(self.options.send_timeout_ms / 1_000):
                    await peer.writer.drain()
        except OSError:
            peer.writer.transport.abort()
            self.peers.discard(peer)
            return False
        return True


class _SocketSender(LineSender):
    """A sender of lines; messages lost in a broken connection are refused."""

    def __init__(self, streamer: SocketStreamer) -> None:
        super().__init__(streamer.address, streamer.options)
        self._streamer = streamer

    async def _write(self, batch: list[Pending]) -> None:
        options = self._streamer.options
        lines = [
            self.line_of(pending).encode() if options.heads else pending.message.payload
            for pending in batch
        ]
        await self._streamer.wait_for_peer()
        if await self._streamer.send_lines(lines) or options.listen:
            return
        for pending in batch:
            reason = "the connection was lost while this message was sent"
            self.refuse(pending, ConnectionLostError(address=self.address, reason=reason))
