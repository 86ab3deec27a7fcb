"""Lines of a stream of the operating system that may wait for ever, such as standard input.

A thread reads it, since an event loop cannot wait for a terminal or a file everywhere. It is a
daemon: nothing ends a read of a terminal but the terminal. It reads on only when its lines were
taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from typing import BinaryIO

__all__ = ["batches_of_lines"]

_CHUNK_SIZE = 1 << 16
_BATCHES_MAX = 4


async def batches_of_lines(stream: BinaryIO) -> AsyncIterator[list[bytes]]:
    """Iterate over the lines of a stream, as many at once as came together, without their ends."""
    loop = asyncio.get_running_loop()
    batches: asyncio.Queue[list[bytes] | None] = asyncio.Queue()
    room = threading.Semaphore(_BATCHES_MAX)

    def hand_over(lines: list[bytes] | None) -> None:
        room.acquire()
        loop.call_soon_threadsafe(batches.put_nowait, lines)

    def read() -> None:
        rest = b""
        read_some = getattr(stream, "read1", stream.read)
        with contextlib.suppress(RuntimeError):  # The loop is closed: nobody wants the lines.
            while chunk := read_some(_CHUNK_SIZE):
                *lines, rest = (rest + chunk).split(b"\n")
                if lines:
                    hand_over(lines)
            if rest:
                hand_over([rest])
            hand_over(None)

    threading.Thread(target=read, name="standard input", daemon=True).start()
    while (lines := await batches.get()) is not None:
        yield lines
        room.release()
