"""Files of streams as sources and sinks of jobs.

An epoch of a sink is between two messages of a stream of its own, which show the result of a crash.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bicycle_runtime.base.faults import fault_point
from bicycle_runtime.connectors.stream_clients.addressing import url_of
from bicycle_runtime.connectors.stream_clients.backends import (
    AwayError,
    ChangedError,
    Cut,
    Extent,
    RefusedError,
    StreamInput,
    StreamOutput,
    cut_of,
    shard_name,
    stream_in,
)
from bicycle_runtime.connectors.stream_clients.sink import StreamSink
from bicycle_runtime.connectors.stream_clients.source import StreamSource
from bicycle_runtime.contract import BadRecord
from bicycle_sdk.stream_options import (
    FileStreamSinkOptions,
    FileStreamSourceOptions,
    PublishedOptions,
    StreamSourceOptions,
)
from bicycle_streams.addresses import StreamKey
from bicycle_streams.errors import StreamConnectError, StreamError
from bicycle_streams.file.creating import create_file
from bicycle_streams.file.format import FileHeader
from bicycle_streams.file.reading import FileReader, Wanted
from bicycle_streams.file.seeking import find, last_of_stream, last_of_streams
from bicycle_streams.file.view import FileView
from bicycle_streams.file.writing import FileWriter
from bicycle_streams.messages import Message

_BATCH = 4_096
_BEGUN, _DONE = "begun", "done"
_INTERVAL = 1 << 20
_BUFFER = 1 << 20


class StreamFileSource(StreamSource):
    """Reads streams of one file, which may come to be later."""

    options_class = FileStreamSourceOptions

    def make_input(self, options: StreamSourceOptions) -> StreamInput:
        """Return the input."""
        url = url_of(self.spec, options.address, ("file",))
        return FileInput(Path(url.streamer.node), url.stream_keys)


class StreamFileSink(StreamSink):
    """Appends to a stream of one file."""

    options_class = FileStreamSinkOptions

    def make_output(self, options: PublishedOptions) -> StreamOutput:
        """Return the output."""
        url = url_of(self.spec, options.address, ("file",), is_one=True)
        return FileOutput(Path(url.streamer.node), url.stream_key)


@dataclass(frozen=True, slots=True)
class FileInput:
    """Streams of one file, which may not be there yet.

    Args:
        path: The file.
        keys: The streams.
    """

    path: Path
    keys: tuple[StreamKey, ...]

    def extents(self, now_s: float) -> Mapping[str, Extent]:
        if not self.path.exists():
            return {}
        with closing(FileView.open(self.path)) as view:
            return {
                shard_name(*stream): Extent(end=last.sequence + 1, last_end=last.sequence + 1)
                for stream, last in last_of_streams(view).items()
                if stream[0] in self.keys
            }

    def cut(self, shard: str, start: int, end: int, *, size: tuple[int, int], parts: int) -> Cut:
        stream = stream_in(shard)
        record_count, byte_count = size
        found: list[int] = []
        with closing(FileView.open(self.path)) as view:
            offset = find(view, _wanted_before(stream, start))
            for head in view.heads(offset) if offset is not None else ():
                if (head.key, head.shard_id) != stream:
                    continue
                byte_count -= head.size
                is_full = len(found) == record_count or (found and byte_count < 0)
                if is_full or head.sequence >= end:
                    break
                found.append(head.sequence)
        return cut_of(found, parts)

    def read(self, shard: str, start: int, end: int) -> Iterator[list[Message | BadRecord]]:
        stream = stream_in(shard)
        wanted = _wanted_before(stream, start)
        with closing(FileView.open(self.path)) as view:
            offset = find(view, wanted)
            if offset is None:
                return
            reader = FileReader(self.path, view.interval, offset, wanted)
            for messages in reader.batches(view.descriptor, view.size, _BATCH):
                if messages[-1].sequence >= end:
                    yield [message for message in messages if message.sequence < end]
                    return
                yield list(messages)

    def keep(self, positions: Mapping[str, int]) -> None:
        """Do nothing: a file stores no positions."""

    def close(self) -> None:
        """Do nothing: no resource is open."""


def _wanted_before(stream: tuple[StreamKey, int], start: int) -> Wanted:
    def is_before(_stream: tuple[StreamKey, int], sequence: int, _time_ms: int) -> bool:
        return sequence < start

    return Wanted((stream[0],), [stream], is_before)


class _Marker(NamedTuple):
    """The last message of a run's own stream: an epoch that was begun or completed."""

    epoch: int
    is_done: bool
    end: int

    @property
    def written(self) -> int:
        """The last epoch that is written whole."""
        return self.epoch - (not self.is_done)


class FileOutput:
    """A stream of a file.

    A message of a stream of the run's own is before an epoch, and one behind it. An epoch that has
    only the first was not written whole: it is cut off before it is written again.

    Args:
        path: The file.
        key: The stream.
    """

    def __init__(self, path: Path, key: StreamKey) -> None:
        self._path = path
        self._key = key

    def check(self) -> None:
        """Look whether the file can be used, if it is there."""
        try:
            if self._path.exists():
                FileView.open(self._path).close()
            elif not self._path.parent.is_dir():
                raise RefusedError(f"folder {self._path.parent} does not exist")
        except StreamError as error:
            raise RefusedError(error.summary) from None

    def open(self, now_ms: int) -> None:
        """Make the file where it is missing."""
        self.check()
        try:
            header = FileHeader(self._path.name, now_ms, _INTERVAL)
            create_file(self._path, header, must_be_new=False)
        except StreamError as error:
            raise RefusedError(error.summary) from None

    def written(self, run: str) -> int | None:
        """Return the last epoch of a run that is written whole."""
        marker = self._marker(run)
        return None if marker is None else marker.written

    def _marker(self, run: str) -> _Marker | None:
        if not self._path.exists():
            return None
        stream = (_marker_key(run), 0)
        with closing(FileView.open(self._path)) as view:
            last = last_of_stream(view, stream)
            if not last.sequence:
                return None

            def is_before(_stream: object, sequence: int, _time_ms: int) -> bool:
                return sequence < last.sequence

            offset = find(view, Wanted((stream[0],), [stream], is_before))
            assert offset is not None, "what the end of the file tells of is there"
            payload, end = view.payload(view.head(offset))
            word, _, number = payload.decode().partition(" ")
            return _Marker(int(number), word == _DONE, end)

    def write(self, run: str, epoch: int, payloads: Iterator[bytes]) -> None:
        """Write an epoch.

        1. The payloads are read first, which may take longer than another driver to take over.
        2. The last mark of the run shows whether the epoch is written; half of it is cut off.
        3. The messages are appended behind a mark, and made durable.
        4. The mark that ends the epoch is appended, and made durable.
        """
        # 1. The payloads are read first, which may take longer than another driver to take over.
        expected = list(payloads)
        fault_point("transaction_begun")
        with self._writer() as writer:
            # 2. The last mark of the run shows whether the epoch is written; half of it is cut off.
            marker = self._marker(run)
            if marker is not None and marker.written >= epoch:
                return
            if marker is not None and not marker.is_done:
                self._check_half(marker.end, expected)
                writer.cut_off(marker.end)
            # 3. The messages are appended behind a mark, and made durable.
            else:
                writer.take(_marker_key(run), 0, f"{_BEGUN} {epoch}".encode(), None)
            for payload in expected:
                writer.take(self._key, 0, payload, None)
            writer.write_out()
            writer.sync()
            fault_point("transaction_produced")
            # 4. The mark that ends the epoch is appended, and made durable.
            writer.take(_marker_key(run), 0, f"{_DONE} {epoch}".encode(), None)
            fault_point("transaction_marked")
            writer.write_out()
            writer.sync()
        fault_point("transaction_committed")

    @contextmanager
    def _writer(self) -> Iterator[FileWriter]:
        """Yield the file's only writer; unwritten data are dropped at the end."""
        writer: FileWriter | None = None
        try:
            writer = FileWriter(self._path, limit_bytes=1 << 62, buffer_bytes=_BUFFER)
            yield writer
        except StreamConnectError as error:  # Another process writes just now.
            raise AwayError(error.summary) from None
        except StreamError as error:
            raise RefusedError(error.summary) from None
        except OSError as error:
            raise RefusedError(error.strerror) from None
        finally:
            if writer is not None:
                writer.abandon()

    def _check_half(self, end: int, expected: list[bytes]) -> None:
        """Refuse an epoch that was half written if others wrote meanwhile."""
        with closing(FileView.open(self._path)) as view:
            for position, head in enumerate(view.heads(end)):
                is_ours = head.key == self._key and position < len(expected)
                if not is_ours or view.payload(head)[0] != expected[position]:
                    raise ChangedError

    def close(self) -> None:
        """Do nothing: no resource is open."""


def _marker_key(run: str) -> StreamKey:
    return StreamKey(f"bicycle.epochs.{run}")
