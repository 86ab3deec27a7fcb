"""Lines over TCP in jobs: a server with a limit of clients, or a client.

Both run the streamer of the toolkit. Lines of a socket without a stream have no head: the source
journals them as they are, in blocks, and a task decodes them. The sink sends staged blocks as they
are. TCP has no acknowledgement: lines that a client sent in the last moments before a crash of the
driver may be lost, and after a crash an epoch may be sent again. With no client connected, output
is dropped and counted.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from bicycle_runtime.connectors.errors import PORT_UNAVAILABLE
from bicycle_runtime.connectors.journal import Journal, JournalSegments
from bicycle_runtime.connectors.lines import (
    LineBlock,
    LineOffsets,
    decode_lines_apart,
    lines_of,
    text_decoder,
    text_lines,
)
from bicycle_runtime.connectors.staging import StagedWriter, staged_blocks
from bicycle_runtime.connectors.stream_clients.addressing import client_words, url_of
from bicycle_runtime.connectors.stream_clients.admission import Door
from bicycle_runtime.connectors.stream_clients.backends import StreamOutput
from bicycle_runtime.connectors.stream_clients.received import (
    LOOK_S,
    ReceivedReader,
    ReceivedSource,
    Receiver,
)
from bicycle_runtime.connectors.stream_clients.sent import RETRY_MS, LineCodec, SentOutput, SentSink
from bicycle_runtime.connectors.stream_clients.source import decoded_frame
from bicycle_runtime.contract import (
    ConnectorSpec,
    SourceBatch,
    StagedFile,
    WriterFactory,
    WriterTask,
)
from bicycle_sdk.logging import log_event
from bicycle_sdk.options import from_mapping
from bicycle_sdk.sinks.sockets import SocketSinkOptions
from bicycle_sdk.sources.sockets import SocketSourceOptions
from bicycle_streams.addresses import StreamerUri, StreamUrl
from bicycle_streams.connecting import connect
from bicycle_streams.contract import Streamer
from bicycle_streams.sockets import CHUNK_BYTES, SocketOptions, SocketPeer, SocketStreamer

_LOG = logging.getLogger(__name__)


class LineServer(SocketStreamer):
    """A server of lines with a maximum of clients; others are refused and counted.

    Args:
        vertex_id: For the log.
        options: The options of the connector.
        words: Options of the streamer.
    """

    def __init__(
        self,
        vertex_id: str,
        options: SocketSourceOptions | SocketSinkOptions,
        words: Mapping[str, object],
    ) -> None:
        super().__init__(_node(options), from_mapping(SocketOptions, words))
        # Gets whole lines of a client as they are, and returns when they are stored.
        self.store: Callable[[bytes], Awaitable[None]] | None = None
        self.door: Door | None = None
        self._vertex_id = vertex_id
        self._location = (options.host, options.port)

    async def _open(self) -> None:
        host, port = self._location
        try:
            await self._listen(host, port)
        except OSError as error:
            reason = error.strerror or str(error)
            raise PORT_UNAVAILABLE(
                vertex=self._vertex_id, host=host, port=port, reason=reason
            ) from error
        assert self._listener is not None, "it listens"
        self.door = Door(self._vertex_id, self._listener, self.options.clients_max)
        log_event(_LOG, "socket_listening", vertex=self._vertex_id, host=host, port=self.port)

    async def _stop_listening(self) -> None:
        await super()._stop_listening()
        if self.door is not None:
            self.door.close()

    def _accept(self, listener: socket.socket) -> socket.socket | None:
        assert self.door is not None, "clients come after it is open"
        admitted = self.door.admit(len(self._serving))
        return None if admitted is None else admitted[0]

    def _keeps_silent_peer(self) -> bool:
        return False  # It may be gone: lines for it would be lost, but not counted.

    async def _take_lines(self, peer: SocketPeer) -> None:
        if self.store is None:
            await super()._take_lines(peer)
            return
        held = b""
        try:
            while data := await peer.reader.read(CHUNK_BYTES):
                whole, newline, held = (held + data).rpartition(b"\n")
                if newline:
                    await self.store(whole + newline)
                if len(held) > self.options.line_bytes_max:
                    self._refuse(peer)
                    return
        except OSError as error:
            log_event(_LOG, "socket_client_failed", vertex=self._vertex_id, reason=str(error))
        if held and not self._is_closing:
            await self.store(held + b"\n")

    def _refuse(self, peer: SocketPeer) -> None:
        log_event(
            _LOG, "socket_client_refused", level=logging.ERROR, vertex=self._vertex_id,
            reason="a line is longer than line_bytes_max",
            line_bytes_max=self.options.line_bytes_max,
        )  # fmt: skip
        peer.writer.transport.abort()

    async def _send_to(self, peer: SocketPeer, data: bytes) -> bool:
        is_sent = await super()._send_to(peer, data)
        if not is_sent:
            log_event(
                _LOG, "socket_client_gone", level=logging.WARNING, vertex=self._vertex_id,
                client=str(peer.writer.get_extra_info("peername")),
                reason="it closed the connection, or did not read for send_timeout_ms",
            )  # fmt: skip
        return is_sent


def _node(options: SocketSourceOptions | SocketSinkOptions) -> StreamerUri:
    node = options.address.removeprefix("socket://").removesuffix(f"/{options.stream}")
    return StreamerUri("socket", (node,))


def _url(
    spec: ConnectorSpec, options: SocketSourceOptions | SocketSinkOptions, *, is_one: bool = False
) -> StreamUrl:
    """Return the address; of lines without a stream, one without a key."""
    if options.stream:
        return url_of(spec, options.address, ("socket",), is_one=is_one)
    return StreamUrl(_node(options), ())


class LineReceiver(Receiver):
    """Journals lines, the lines of all clients that are ready with one write."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.is_reachable = True
        self._waiting: list[bytes] = []
        self._storing: asyncio.Future[None] | None = None
        self._failure: Exception | None = None

    async def _receive(self) -> None:
        """Receive until this is to stop, or lines cannot be stored."""
        server = self._connect(None)
        assert isinstance(server, LineServer), "only a server gets lines without a stream"
        server.store = self._store
        async with server:
            self._note_open(server)
            while not self._is_stopping.is_set():
                if self._failure is not None:
                    raise self._failure
                await asyncio.sleep(LOOK_S)

    async def _store(self, lines: bytes) -> None:
        self._waiting.append(lines)
        if self._storing is None:
            self._storing = asyncio.ensure_future(self._store_waiting())
        await self._storing

    async def _store_waiting(self) -> None:
        await asyncio.sleep(0)  # Other clients that are ready come first.
        await self._wait_for_room()
        lines, self._waiting, self._storing = self._waiting, [], None
        try:
            self._journal.append(b"".join(lines))
        except Exception as error:  # noqa: BLE001 - whatever it is, the driver raises it.
            self._failure = error

    async def _wait_for_room(self) -> None:
        unread = self._journal.end - self.read_position
        if unread >= self._unread_bytes_max:
            self._log("socket_clients_held_back", unread)
            await super()._wait_for_room()
            self._log("socket_clients_released", self._journal.end - self.read_position)

    def _log(self, event: str, unread: int) -> None:
        log_event(_LOG, event, vertex=self._vertex_id, unread_byte_count=unread)


class LineReader(ReceivedReader):
    """Reads lines without heads out of the journal."""

    def decode(self, block: LineBlock) -> SourceBatch:
        """Return the records of a block."""
        if self.is_on_columns:
            lines = [line.removesuffix(b"\r") for line in lines_of(block)]
            frame = decoded_frame(self.codec, lines)
            if frame is not None:
                offsets = LineOffsets(block)
                return SourceBatch(values=frame, offsets=offsets, next_offset=block.next_offset)
        decode = self.codec.decode
        return decode_lines_apart(block, lambda line: decode(line.removesuffix(b"\r")))


class TextReader(ReceivedReader):
    """Reads lines of text out of the journal."""

    def decode(self, block: LineBlock) -> SourceBatch:
        """Return the lines of a block."""
        return text_decoder(block)


class SocketSource(ReceivedSource):
    """Reads lines of clients, or of the server of a stream; never ends."""

    options_class = SocketSourceOptions
    gives_times: bool | None = None
    _options: SocketSourceOptions

    def __init__(self, spec: ConnectorSpec) -> None:
        super().__init__(spec)
        self.gives_times = self._options.gives_times
        if not self._options.stream:
            self.receiver_type = LineReceiver

    @property
    def port(self) -> int:
        """The port that is listened on, also when port 0 was requested."""
        server = self._server
        return self._options.port if server is None else server.port

    @property
    def refused_count(self) -> int:
        """The number of refused clients: beyond the limit, or without a descriptor."""
        return _refused_count(self._server)

    @property
    def _server(self) -> LineServer | None:
        found = self._receiver.streamer if isinstance(self._receiver, Receiver) else None
        return found if isinstance(found, LineServer) else None

    def url(self) -> StreamUrl:
        """Return the address."""
        return _url(self.spec, self._options)

    def streamer(self, last_sequence: int | None) -> Streamer:
        """Return the server, or the client of a server."""
        words = self.words(last_sequence)
        if not self._options.is_server:
            return connect(self._url, words)
        return LineServer(self.spec.vertex_id, self._options, {**words, "listen": True})

    def receive(self, journal: Journal, position: int, state: Mapping[str, Any]) -> Receiver:
        """Connect, or open the port.

        Raises:
            PORT_UNAVAILABLE: the port is in use.
        """
        receiver = super().receive(journal, position, state)
        if self._options.is_server:
            receiver.wait_until_open()
        return receiver

    def reader_of(self, segments: JournalSegments) -> ReceivedReader:
        """Return a reader of lines, with or without heads."""
        if self._options.stream:
            return super().reader_of(segments)
        is_text = self._options.value_format == "string"
        return (TextReader if is_text else LineReader)(segments, self._codec)

    def _sequence_before(self, end: int) -> int | None:
        return super()._sequence_before(end) if self._options.stream else None


class LineOutput(SentOutput):
    """Sends blocks of whole lines as they are."""

    async def _open(self) -> None:  # type: ignore[override]  # Lines need no producer.
        await self._connect()

    async def _send(self, payloads: Iterator[bytes]) -> None:
        server = await self._connect()
        assert isinstance(server, LineServer), "only a server sends lines without a stream"
        for block in payloads:
            await server.send_data(block, block.count(b"\n"))


class LineWriterFactory:
    """Opens writers that stage lines; picklable.

    Args:
        codec: Of records; None for texts, and JSON for other records.
    """

    def __init__(self, codec: LineCodec | None) -> None:
        self._codec = codec

    def open(self, task: WriterTask) -> StagedWriter:
        """Return a writer of one line per record."""
        return StagedWriter(task, "records.txt", self._encode)

    def _encode(self, values: Sequence[Any]) -> bytes:
        if self._codec is None:
            return text_lines(values)
        return b"".join(self._codec.encode(value) + b"\n" for value in values)


class SocketSink(SentSink):
    """Sends lines to all clients, or to the server of a stream."""

    options_class = SocketSinkOptions
    _options: SocketSinkOptions

    def __init__(self, spec: ConnectorSpec) -> None:
        super().__init__(spec)
        given = self._options.given_options()
        if not self._options.stream and "value_format" not in given:
            self.accepts = "frames"

    @property
    def port(self) -> int:
        """The port that is listened on, also when port 0 was requested."""
        server = self._server
        return self._options.port if server is None else server.port

    @property
    def client_count(self) -> int:
        """The number of connected clients."""
        server = self._server
        return 0 if server is None else len(server.peers)

    @property
    def refused_count(self) -> int:
        """The number of refused clients: beyond the limit, or without a descriptor."""
        return _refused_count(self._server)

    @property
    def _server(self) -> LineServer | None:
        found = self._sent_to.streamer
        return found if isinstance(found, LineServer) else None

    def make_output(self, options: SocketSinkOptions) -> StreamOutput:
        """Return the output."""
        url = _url(self.spec, options, is_one=True)
        output = SentOutput if options.stream else LineOutput
        self._sent_to = output(
            url, partial(self._streamer, url, options), listens=options.is_server
        )
        return self._sent_to

    def _streamer(self, url: StreamUrl, options: SocketSinkOptions) -> Streamer:
        words = {**client_words(options, url), "send_timeout_ms": options.send_timeout_ms}
        if options.is_server:
            words |= {"listen": True}
            found: Streamer = LineServer(self.spec.vertex_id, options, words)
        else:
            found = connect(url, {**words, "retry_timeout_ms": RETRY_MS})
        assert isinstance(found, SocketStreamer), "both are"
        found.send_bytes = options.client_buffer_bytes
        return found

    def writer(self) -> WriterFactory:
        """Return the factory of writers of lines, or of payloads of a stream."""
        if self._options.stream:
            return super().writer()
        address = self._options.address
        is_plain = self.accepts == "frames"
        return LineWriterFactory(None if is_plain else LineCodec(self._codec, address))

    def _payloads(self, files: Sequence[StagedFile]) -> Iterator[bytes]:
        if self._options.stream:
            yield from super()._payloads(files)
            return
        for file in files:
            held = b""
            for data in staged_blocks(self._services.storage, file):
                whole, newline, held = (held + data).rpartition(b"\n")
                if newline:
                    yield whole + newline


def _refused_count(server: LineServer | None) -> int:
    return 0 if server is None or server.door is None else server.door.refused_count
