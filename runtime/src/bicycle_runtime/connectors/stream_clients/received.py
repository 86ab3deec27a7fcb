"""Streams without storage as sources: input is journaled, epochs read the journal.

A thread connects as programs do, and again when the connection is lost. With ``journal=true`` a
message is on the disk before an epoch may read it, so that each received message counts exactly
once through any crash. Without, no message waits for the disk, and messages are lost with the
machine. A WebSocket requests missed messages by the sequence that it received last.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bicycle_runtime.connectors.journal import Journal, JournalSegments
from bicycle_runtime.connectors.journal_source import SHARD, JournalSource
from bicycle_runtime.connectors.lines import LineBlock, LineOffsets, lines_of
from bicycle_runtime.connectors.settings import payload_codec, read_options
from bicycle_runtime.connectors.stream_clients.addressing import check_tls, client_words, url_of
from bicycle_runtime.connectors.stream_clients.source import decoded_batch
from bicycle_runtime.contract import (
    BadRecord,
    ConnectorSpec,
    Guarantee,
    Slice,
    SnapshotsState,
    SourceBatch,
)
from bicycle_runtime.formats.contract import Codec, reads_fields
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.logging import log_event
from bicycle_sdk.quantities import amount
from bicycle_sdk.sources.sockets import SocketSourceOptions
from bicycle_sdk.stream_options import ReceivedOptions, StdioSourceOptions, WebSocketSourceOptions
from bicycle_streams.addresses import StreamKey, StreamUrl
from bicycle_streams.connecting import backend_of, connect
from bicycle_streams.consuming import Consumer
from bicycle_streams.contract import Streamer
from bicycle_streams.delivering import HubConsumer
from bicycle_streams.errors import (
    STREAM_TLS_REFUSED,
    STREAMER_IN_USE,
    ConnectionLostError,
    StreamConnectError,
    StreamEndedError,
    StreamError,
)
from bicycle_streams.lines import BROADCAST
from bicycle_streams.messages import Message
from bicycle_streams.peers import PeerStreamer

_LOG = logging.getLogger(__name__)
_BATCH = 1_000
_REFUSED = -1  # The shard in the journal of invalid messages.
LOOK_S = 0.05
_PAUSE_S, _PAUSE_MAX_S = 0.1, 5.0
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_PLAIN = {b"n": b"\n", b"\\": b"\\"}


def refused_message(error: StreamError, now_ms: int, sequence: int | None) -> Message:
    """Return the journal entry of received data that is not a message.

    Args:
        error: The reason why it is invalid.
        now_ms: When it came.
        sequence: The last sequence before it; None at the start.
    """
    received = error.received or b""
    payload = error.summary.replace("\0", "").encode() + b"\0" + received
    return Message(BROADCAST, _REFUSED, -1 if sequence is None else sequence, now_ms, payload)


def _bad_record(message: Message, offset: int) -> BadRecord:
    reason, _, raw = message.payload.partition(b"\0")
    return BadRecord(
        offset=offset, raw=raw, reason=reason.decode(), timestamp_ms=message.timestamp_ms
    )


def journal_line(message: Message) -> bytes:
    """Return a message as a line of the journal; ends of lines in it are escaped."""
    payload = message.payload.replace(b"\\", b"\\\\").replace(b"\n", b"\\n")
    head = (message.timestamp_ms, message.sequence, message.shard_id, message.stream_key.encode())
    return b"%d %d %d %s %s\n" % (*head, payload)


def message_of(line: bytes) -> Message:
    """Return the message of a line, without its end."""
    time_ms, sequence, shard_id, key, payload = line.split(b" ", 4)
    if b"\\" in payload:
        payload = _ESCAPED.sub(lambda found: _PLAIN[found[1]], payload)
    return Message(StreamKey(key.decode()), int(shard_id), int(sequence), int(time_ms), payload)


class Receiver:
    """Receives messages on a thread until it is stopped, or the streams end.

    Args:
        vertex_id: For the log.
        stream_keys: The streams.
        connect: Returns the streamer for messages after the last received sequence.
        journal: Where messages go; closed by ``stop``.
        unread_bytes_max: While so much waits unread, nothing is taken.
    """

    def __init__(
        self,
        vertex_id: str,
        stream_keys: Sequence[StreamKey],
        connect: Callable[[int | None], Streamer],
        journal: Journal,
        *,
        unread_bytes_max: int,
    ) -> None:
        self.read_position = 0
        self.has_ended = False
        self.is_reachable = False  # Unknown before the first connection.
        self.last_sequence: int | None = None
        self._vertex_id = vertex_id
        self.streamer: Streamer | None = None
        self._stream_keys = stream_keys
        self._connect = connect
        self._journal = journal
        self._unread_bytes_max = unread_bytes_max
        self._error: BaseException | None = None
        self._gap_count = 0
        self._is_stopping = threading.Event()
        self._has_opened = threading.Event()  # Or failed.
        self._thread = threading.Thread(target=self._run, name=f"streams-{vertex_id}", daemon=True)

    def start(self) -> None:
        """Begin to receive."""
        self._thread.start()

    def wait_until_open(self) -> None:
        """Wait for the first connection, which a server has at once; raise its error."""
        self._has_opened.wait()
        self.check()

    def check(self) -> None:
        """Raise the error that ended the thread, if there is one."""
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Write the received input to the journal, close both, and end the thread."""
        self._is_stopping.set()
        self._thread.join()
        self._journal.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._receive_always())
        except Exception as error:  # noqa: BLE001 - whatever it is, the driver raises it.
            self._error = error
        finally:
            self._has_opened.set()

    async def _receive_always(self) -> None:
        pause_s, is_waiting = _PAUSE_S, False
        while not self._is_stopping.is_set():
            try:
                await self._receive()
            except (StreamConnectError, ConnectionLostError) as error:
                if error.code in (STREAMER_IN_USE.code, STREAM_TLS_REFUSED.code):
                    raise
                if self.is_reachable or not is_waiting:
                    self._warn("streams_waiting", error.summary)
                    pause_s = _PAUSE_S
                self.is_reachable, is_waiting = False, True
            else:
                self.has_ended = not self._is_stopping.is_set()
                return
            await self._wait(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    async def _receive(self) -> None:
        """Receive until the streams end, or this is to stop."""
        async with self._connect(self.last_sequence) as streamer:
            consumer = await streamer.create_consumer(self._stream_keys)
            self._note_open(streamer)
            assert isinstance(consumer, HubConsumer), "these backends have no others"
            while (batch := await self._next(consumer)) is not None:
                self.is_reachable = not isinstance(streamer, PeerStreamer) or streamer.is_reachable
                self._keep(batch)
                self._note_gaps(getattr(streamer, "gap_count", 0))
                await self._wait_for_room()
            self._keep(consumer.leave())

    def _note_open(self, streamer: Streamer) -> None:
        self.streamer, self.is_reachable = streamer, True
        self._has_opened.set()

    def _keep(self, batch: list[Message]) -> None:
        if batch:
            self._journal.append(b"".join(map(journal_line, batch)))
            self.last_sequence = batch[-1].sequence

    async def _next(self, consumer: Consumer) -> list[Message] | None:
        """Return received messages, or None after a pause or at the end.

        Invalid messages are among them, for the ``on_error`` of the source.
        """
        if self._is_stopping.is_set():
            return None
        try:
            async with asyncio.timeout(LOOK_S):
                return await consumer.next_batch(_BATCH)
        except TimeoutError:
            return []
        except StreamEndedError:
            return None
        except (StreamConnectError, ConnectionLostError):
            raise
        except StreamError as error:  # One invalid message; others continue.
            return [refused_message(error, SystemClock().now_ms(), self.last_sequence)]

    async def _wait_for_room(self) -> None:
        """Take nothing while too much waits unread; the other side is held back then."""
        while self._journal.end - self.read_position >= self._unread_bytes_max:
            if self._is_stopping.is_set():
                return
            await asyncio.sleep(LOOK_S)

    async def _wait(self, seconds: float) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while not self._is_stopping.is_set() and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(LOOK_S)

    def _note_gaps(self, count: int) -> None:
        if count > self._gap_count:
            self._warn("streams_gap", f"missing: {amount(count - self._gap_count, 'message')}")
        self._gap_count = count

    def _warn(self, event: str, reason: str) -> None:
        log_event(_LOG, event, level=logging.WARNING, operator=self._vertex_id, reason=reason)


@dataclass(slots=True)
class ReceivedReader:
    """Reads messages out of the journal."""

    segments: JournalSegments
    codec: Codec
    is_on_columns: bool = False

    def give_fields(self) -> bool:
        """Switch to frames; return whether the format allows it."""
        self.is_on_columns = reads_fields(self.codec)
        return self.is_on_columns

    def read(self, part: Slice) -> Iterator[SourceBatch]:
        """Yield the records of the range, which begins and ends where lines do."""
        position, held = part.start, b""
        for data in self.segments.blocks(list(part.details["segments"]), part.start, part.end):
            whole, newline, held_next = (held + data).rpartition(b"\n")
            held = held_next
            if newline:
                block = LineBlock(position, whole + newline, position + len(whole) + 1)
                position = block.next_offset
                yield self.decode(block)
        if position == part.start:
            yield SourceBatch(values=[], offsets=(), next_offset=part.start)

    def decode(self, block: LineBlock) -> SourceBatch:
        """Return the records of a block of the journal, whose lines are messages."""
        messages = map(message_of, lines_of(block))
        placed = list(zip(messages, LineOffsets(block), strict=True))
        good = [each for each in placed if each[0].shard_id != _REFUSED]
        return decoded_batch(
            self.codec,
            [message for message, _ in good],
            [at for _, at in good],
            block.next_offset,
            bad=[_bad_record(*each) for each in placed if each[0].shard_id == _REFUSED],
            gives_fields=self.is_on_columns,
        )

    def close(self) -> None:
        """Do nothing: the reader has no open resources between slices."""


class ReceivedSource(SnapshotsState, JournalSource):
    """Reads streams as they come; a subclass knows the backend."""

    options_class: type[ReceivedOptions | SocketSourceOptions]
    protocols: tuple[str, ...]
    gives_times: bool | None = True
    receiver_type: type[Receiver] = Receiver

    def __init__(self, spec: ConnectorSpec) -> None:
        self._options = options = read_options(self.options_class, spec)
        super().__init__(
            spec,
            segment_bytes=options.segment_bytes,
            epochs_min=options.journal_epochs_min,
            is_synced=options.has_journal,
        )
        # The contract has one promise for a class; here it is up to an option.
        self.guarantee = (  # type: ignore[misc]
            Guarantee.EXACTLY_ONCE if options.has_journal else Guarantee.AT_MOST_ONCE
        )
        self._url = self.url()
        backend_of(self._url.streamer)  # Its library must be there before anything begins.
        self._codec = payload_codec(spec, options)
        self.gives_fields = reads_fields(self._codec)
        self._sequence: int | None = None

    def url(self) -> StreamUrl:
        """Return the address of the streams."""
        return url_of(self.spec, self._options.address, self.protocols)

    def words(self, last_sequence: int | None) -> dict[str, object]:
        """Return the client's options for messages after a sequence."""
        return client_words(self._options, self._url)

    def streamer(self, last_sequence: int | None) -> Streamer:
        """Return the streamer for messages after a sequence, without opening it."""
        return connect(self._url, self.words(last_sequence))

    def receive(self, journal: Journal, position: int, state: Mapping[str, Any]) -> Receiver:
        """Start to receive after the last received message."""
        receiver = self.receiver_type(
            self.spec.vertex_id,
            self._url.stream_keys,
            self.streamer,
            journal,
            unread_bytes_max=self._options.journal_bytes_max,
        )
        receiver.read_position = position
        self._sequence = state.get("sequence")
        receiver.last_sequence = self._sequence_before(journal.end)
        receiver.start()
        return receiver

    def snapshot(self, planned: Sequence[Slice], ends: Mapping[str, int]) -> dict[str, Any]:
        """Return the sequence of the last message that was read."""
        self._sequence = self._sequence_before(ends.get(SHARD, self._next))
        return {} if self._sequence is None else {"sequence": self._sequence}

    def reader_of(self, segments: JournalSegments) -> ReceivedReader:
        """Return a reader of messages."""
        return ReceivedReader(segments, self._codec)

    def _sequence_before(self, end: int) -> int | None:
        """Return the sequence of the last message before a place in the journal."""
        line = self._journal.last_line(self._next, end)
        return message_of(line).sequence if line else self._sequence


class WebSocketSource(ReceivedSource):
    """Reads streams over WebSockets; never ends."""

    options_class = WebSocketSourceOptions
    protocols = ("ws", "wss")

    def __init__(self, spec: ConnectorSpec) -> None:
        super().__init__(spec)
        options = self._options
        assert isinstance(options, WebSocketSourceOptions), "as options_class says"
        check_tls(spec, options, self._url, "wss", is_server=options.listen)

    def words(self, last_sequence: int | None) -> dict[str, object]:
        """Return the options of the connection."""
        found = super().words(last_sequence)
        return found if last_sequence is None else {**found, "last_sequence": last_sequence}


class StdioSource(ReceivedSource):
    """Reads streams from the standard input of the driver, to its end."""

    options_class = StdioSourceOptions
    protocols = ("stdio",)
