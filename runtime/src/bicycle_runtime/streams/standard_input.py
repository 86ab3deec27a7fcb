"""Lines of a stream of the operating system that may wait forever, such as standard input.

A thread reads it, since an event loop cannot wait for a terminal or a file everywhere. It is a
daemon: nothing ends a read of a terminal but the terminal. It reads on only when its lines were
taken, and lines that nobody took are given to who asks next.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import BinaryIO
from weakref import WeakKeyDictionary

__all__ = ["batches_of_lines"]

_CHUNK_SIZE = 1 << 16
_BATCHES_MAX = 4


class _Reader:
    """The thread that reads one stream, and the batches of lines that nobody has taken yet."""

    def __init__(self, stream: BinaryIO) -> None:
        self.wake: Callable[[], object] = lambda: None
        self.room = threading.Semaphore(_BATCHES_MAX)
        self.batches: deque[deque[bytes]] = deque()
        self.has_ended = False
        # The thread holds the stream, not this: it is forgotten when nobody else has it.
        read_some = getattr(stream, "read1", stream.read)
        threading.Thread(
            target=self._read, args=(read_some,), name="standard input", daemon=True
        ).start()

    def _read(self, read_some: Callable[[int], bytes]) -> None:
        rest = b""
        while chunk := read_some(_CHUNK_SIZE):
            *lines, rest = (rest + chunk).split(b"\n")
            if lines:
                self._hand_over(lines)
        if rest:
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


async def batches_of_lines(stream: BinaryIO) -> AsyncIterator[deque[bytes]]:
    """Iterate over the lines of a stream, as many at once as came together, without their ends.

    One iteration at a time. When it is given up, the next one begins with the lines that were not
    taken out of the last batch.
    """
    reader = _readers.get(stream)
    if reader is None:
        reader = _readers[stream] = _Reader(stream)
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
            return
        else:
            await has_news.wait()
