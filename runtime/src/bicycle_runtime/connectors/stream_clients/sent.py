"""Streams without storage as sinks of jobs: sealed epochs are sent at least once.

A thread keeps the connection between epochs. Messages without a receipt when a connection breaks
are sent again, with their whole epoch; a listening backend without a client drops messages, and
counts them.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from bicycle_runtime.connectors.stream_clients.addressing import check_tls, client_words, url_of
from bicycle_runtime.connectors.stream_clients.backends import AwayError, RefusedError, StreamOutput
from bicycle_runtime.connectors.stream_clients.sink import PayloadWriterFactory, StreamSink
from bicycle_runtime.contract import ConnectorSpec, DropsRecords, Guarantee, WriterFactory
from bicycle_runtime.formats.contract import Codec
from bicycle_sdk.stream_options import StdioSinkOptions, WebSocketSinkOptions
from bicycle_streams.addresses import StreamUrl
from bicycle_streams.connecting import backend_of, connect
from bicycle_streams.contract import Streamer
from bicycle_streams.errors import ConnectionLostError, StreamConnectError, StreamError
from bicycle_streams.lines import line_payload
from bicycle_streams.peers import PeerStreamer
from bicycle_streams.producing import Producer

T = TypeVar("T")
_BATCH = 1_000
RETRY_MS = 1_000  # So long one try waits for the other side; `Patience` tries again.


class SentOutput:
    """A stream that is sent to; every call is made on a thread with a loop of its own.

    Args:
        url: The stream.
        make: Returns the streamer, without opening it.
        listens: Whether the streamer is a server.
    """

    def __init__(
        self, url: StreamUrl, make: Callable[[], Streamer], *, listens: bool = False
    ) -> None:
        self._url = url
        self._make = make
        self._listens = listens
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._sending: Future[Any] | None = None
        self._is_interrupted = False
        self.streamer: Streamer | None = None
        self._producer: Producer | None = None
        self._dropped_before = 0

    @property
    def is_binary(self) -> bool:
        """Return whether payloads may be any bytes; otherwise they are lines."""
        return backend_of(self._url.streamer).capabilities.is_binary

    @property
    def dropped_count(self) -> int:
        """The number of messages without a receiving client."""
        streamer = self.streamer
        running = streamer.dropped_count if isinstance(streamer, PeerStreamer) else 0
        return self._dropped_before + running

    def check(self) -> None:
        """Look at the options; the other side may come later."""
        self._make()

    def open(self, now_ms: int) -> None:
        """Listen, where that was requested: clients may come before the first epoch."""
        if self._listens:
            try:
                self._call(self._open())
            except StreamConnectError as error:
                raise RefusedError(error.summary) from None

    def written(self, run: str) -> int | None:
        """Return None: the backend does not record epochs."""

    def write(self, run: str, epoch: int, payloads: Iterator[bytes]) -> None:
        """Send an epoch, and return when each of its messages has a receipt."""
        if not self._is_interrupted:
            try:
                self._call(self._send(payloads), is_sending=True)
                return
            except CancelledError:
                self._is_interrupted = True
        raise AwayError("the other side does not read")

    def interrupt(self) -> None:
        """Stop waiting for the other side, now and later."""
        self._is_interrupted = True
        if self._sending is not None:
            self._sending.cancel()

    async def _send(self, payloads: Iterator[bytes]) -> None:
        try:
            producer = await self._open()
            while batch := list(islice(payloads, _BATCH)):
                producer.send_many(batch)
                await producer.flush()
        except (StreamConnectError, ConnectionLostError) as error:
            await self._disconnect()
            if self._url.streamer.protocol == "stdio":  # A pipe that broke is gone.
                raise RefusedError(error.summary) from None
            raise AwayError(error.summary) from None
        except StreamError as error:
            raise RefusedError(error.summary) from None

    async def _open(self) -> Producer:
        if self._producer is None:
            streamer = await self._connect()
            self._producer = await streamer.create_producer(self._url.stream_key)
        return self._producer

    async def _connect(self) -> Streamer:
        if self.streamer is None:
            self.streamer = await self._make().__aenter__()
        return self.streamer

    async def _disconnect(self) -> None:
        self._dropped_before = self.dropped_count
        streamer, self.streamer, self._producer = self.streamer, None, None
        if streamer is not None:
            with contextlib.suppress(StreamError):  # It was reported before.
                await streamer.disconnect()

    def _call(self, work: Coroutine[Any, Any, T], *, is_sending: bool = False) -> T:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name=f"send to {self._url}", daemon=True
            )
            self._thread.start()
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        if is_sending:
            self._sending = running
            if self._is_interrupted:  # It was interrupted just before.
                running.cancel()
        return running.result()

    def close(self) -> None:
        """Close the connection, and end the thread."""
        if self._loop is not None and self._thread is not None:
            self._call(self._disconnect())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = self._thread = None


class LineCodec:
    """A codec with payloads of one line, which refuses other records early.

    Args:
        codec: Of the payloads.
        address: For errors.
    """

    def __init__(self, codec: Codec, address: str) -> None:
        self._codec = codec
        self._address = address

    def encode(self, value: Any) -> bytes:
        """Return the payload; raise StreamUnsupportedError where it is no line."""
        payload = self._codec.encode(value)
        line_payload(payload, self._address)
        return payload

    def decode(self, data: bytes) -> Any:
        """Return the value of a payload."""
        return self._codec.decode(data)


class SentSink(DropsRecords, StreamSink):
    """Sends records as messages of one stream; a subclass knows the backend."""

    guarantee = Guarantee.AT_LEAST_ONCE
    protocols: tuple[str, ...]

    def __init__(self, spec: ConnectorSpec) -> None:
        super().__init__(spec)
        self._sent_epoch = -1

    def make_output(self, options: Any) -> StreamOutput:
        """Return the output."""
        url = url_of(self.spec, options.address, self.protocols, is_one=True)
        words = client_words(options, url)
        if issubclass(backend_of(url.streamer), PeerStreamer):
            words["retry_timeout_ms"] = RETRY_MS
        listens = bool(words.get("listen"))
        self._sent_to = SentOutput(url, partial(connect, url, words), listens=listens)
        return self._sent_to

    def publish(self, epoch: int, state: Mapping[str, Any]) -> None:
        """Send the epoch, once per run; errors as of ``StreamSink``."""
        if epoch > self._sent_epoch:
            super().publish(epoch, state)
            self._sent_epoch = epoch

    def interrupt(self) -> None:
        """Make publishing stop waiting for the other side."""
        super().interrupt()
        self._sent_to.interrupt()

    def writer(self) -> WriterFactory:
        """Return the factory of writers."""
        if self._sent_to.is_binary:
            return PayloadWriterFactory(self._codec)
        return PayloadWriterFactory(LineCodec(self._codec, self._options.address))

    def dropped_count(self) -> int:
        """Return how many messages found no client."""
        return self._sent_to.dropped_count


class WebSocketSink(SentSink):
    """Sends frames over WebSockets."""

    options_class = WebSocketSinkOptions
    protocols = ("ws", "wss")

    def make_output(self, options: Any) -> StreamOutput:
        """Return the output."""
        url = url_of(self.spec, options.address, self.protocols, is_one=True)
        check_tls(self.spec, options, url, "wss", is_server=options.listen)
        return super().make_output(options)


class StdioSink(SentSink):
    """Writes lines to the standard output of the driver."""

    options_class = StdioSinkOptions
    protocols = ("stdio",)
