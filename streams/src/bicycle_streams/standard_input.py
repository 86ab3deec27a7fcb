"""Lines of an operating system stream that may block, such as standard input.

A thread reads it, because an event loop cannot wait for a terminal or a file on all systems. It is
a daemon thread, because only the terminal itself ends a read of a terminal. It continues to read
after its lines were consumed; the next reader gets lines that were not.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import BinaryIO
from weakref import WeakKeyDictionary

from bicycle_streams.errors import OUTPUT_CLOSED, STANDARD_INPUT_UNREADABLE

_CHUNK_SIZE = 1 << 16
_BATCHES_MAX = 4
_LINE_BYTES_MAX = 256 << 20  # A longer line fills the memory: it is several times in it.


class _Reader:
    """The thread that reads one stream, and its unread batches of lines."""

    def __init__(self, stream: BinaryIO, line_bytes_max: int) -> None:
        self._line_bytes_max = line_bytes_max
        self.wake: Callable[[], object] = lambda: None
        self.room = threading.Semaphore(_BATCHES_MAX)
        self.batches: deque[deque[bytes]] = deque()
        self.has_ended = False
        self.failure = ""
        # Only the thread refers to the stream, so that it can be garbage-collected.
        threading.Thread(
            target=self._read, args=(stream,), name="standard input", daemon=True
        ).start()

    def _read(self, stream: BinaryIO) -> None:
        # Below its buffer: Python aborts at its end while a thread waits inside one.
        source = getattr(stream, "raw", stream)
        parts: list[bytes] = []  # Of a line whose end has not come yet.
        size = 0
        try:
            while (chunk := source.read(_CHUNK_SIZE)) != b"":
                if chunk is None:  # Another program has made it one that does not wait.
                    select.select([source], [], [])
                    continue
                part, *lines = chunk.split(b"\n")
                parts.append(part)
                size += len(part)
                if size > self._line_bytes_max:
                    self.failure = f"a line has more than {self._line_bytes_max:,} bytes"
                    parts.clear()
                    break
                if lines:
                    *whole, rest = lines
                    self._hand_over([b"".join(parts), *whole])
                    parts, size = [rest], len(rest)
        except OSError as error:  # Such as a folder in its place.
            self.failure = error.strerror or str(error)
        except ValueError:
            if not source.closed:
                raise
            # The owner has closed the stream while this thread waited: that is its end.
        if rest := b"".join(parts):
            self._hand_over([rest])
        self.has_ended = True
        self._tell()

    def _hand_over(self, lines: list[bytes]) -> None:
        self.room.acquire()
        self.batches.append(deque(lines))
        self._tell()

    def _tell(self) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed: the next one looks itself.
            self.wake()


_readers: WeakKeyDictionary[BinaryIO, _Reader] = WeakKeyDictionary()


def standard_input() -> BinaryIO | None:
    """Return the standard input as bytes, or None if it is missing."""
    return getattr(sys.stdin, "buffer", None)


def standard_output() -> BinaryIO:
    """Return where bytes of the standard output go.

    Raises:
        OUTPUT_CLOSED: this process was started without one.
    """
    if sys.stdout is None:
        raise OUTPUT_CLOSED(address="standard output")
    return sys.stdout.buffer


async def batches_of_lines(
    stream: BinaryIO | None, *, line_bytes_max: int = _LINE_BYTES_MAX
) -> AsyncIterator[deque[bytes]]:
    """Iterate over the lines of a stream in batches, without line ends.

    One iteration at a time. After an aborted iteration, the next one starts with the unconsumed
    lines of the last batch.

    Raises:
        STANDARD_INPUT_UNREADABLE: standard input is missing or cannot be read, or a line is too
            long; earlier lines were returned.
    """
    if stream is None:
        raise STANDARD_INPUT_UNREADABLE(address="standard input", reason="it is closed")
    reader = _readers.get(stream)
    if reader is None:
        reader = _readers[stream] = _Reader(stream, line_bytes_max)
    loop = asyncio.get_running_loop()
    has_news = asyncio.Event()
    reader.wake = lambda: loop.call_soon_threadsafe(has_news.set)
    while True:
        has_news.clear()
        has_ended = reader.has_ended  # Before the batches are looked at.
        if reader.batches:
            yield reader.batches[0]
            reader.batches.popleft()
            reader.room.release()
        elif has_ended:
            if reader.failure:
                raise STANDARD_INPUT_UNREADABLE(address="standard input", reason=reader.failure)
            return
        else:
            await has_news.wait()
