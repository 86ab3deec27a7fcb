"""Named pipes to or from a stream, for programs that can only use files.

The pipe is there as long as the call runs. Its other end is held open as well, so that programs
may open and close it one after the other.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bicycle_streams.addresses import StreamUrl
from bicycle_streams.messages import Message
from bicycle_streams.options import Start
from bicycle_streams.producing import Producer
from bicycle_streams.tools.errors import LINE_TOO_LONG, PATH_TAKEN
from bicycle_streams.tools.opening import Words, streamer_to_read, streamer_to_write

_CHUNK_SIZE = 1 << 16
_LINE_SIZE_MAX = 16 << 20
_LOOK_S = 0.02


async def flux(path: Path, url: StreamUrl, words: Words) -> None:
    """Send each line that is written to a named pipe, until this is canceled."""
    async with streamer_to_write(url, words) as streamer:
        producer = await streamer.create_producer(url.stream_key)
        with _named_pipe(path) as descriptor:
            rest = b""
            try:
                while True:
                    rest = await _send_lines(producer, rest + await _read(descriptor))
                    if len(rest) > _LINE_SIZE_MAX:
                        raise LINE_TOO_LONG(
                            address=str(path), path=str(path), limit_bytes=_LINE_SIZE_MAX
                        )
            except asyncio.CancelledError:
                if rest:
                    producer.send(rest)
                raise


async def tap(
    path: Path, url: StreamUrl, words: Words, *, start: Start, line: Callable[[Message], bytes]
) -> None:
    """Write each message into a named pipe, until the streams end and all was read.

    Args:
        path: Path of the pipe.
        url: The streams.
        words: Options of the backend.
        start: Start position in streams that store messages.
        line: Returns the line for a message.
    """
    async with streamer_to_read(url, words) as streamer:
        consumer = await streamer.create_consumer(url.stream_keys, start=start)
        with _named_pipe(path) as descriptor:
            async for message in consumer:
                await _write(descriptor, line(message))
            # Unread lines are lost when both sides of a pipe are closed.
            while _waiting_bytes(descriptor):
                await asyncio.sleep(_LOOK_S)


async def _send_lines(producer: Producer, data: bytes) -> bytes:
    """Send the whole lines of read data, and return the rest."""
    *lines, rest = data.split(b"\n")
    for line in lines:
        producer.send(line.removesuffix(b"\r"))
    if lines:
        await producer.flush()
    return rest


async def _read(descriptor: int) -> bytes:
    """Wait until something was written into a pipe, and return it."""
    loop = asyncio.get_running_loop()
    is_ready = asyncio.Event()
    while True:
        try:
            return os.read(descriptor, _CHUNK_SIZE)
        except BlockingIOError:
            is_ready.clear()
        loop.add_reader(descriptor, is_ready.set)
        try:
            await is_ready.wait()
        finally:
            loop.remove_reader(descriptor)


async def _write(descriptor: int, data: bytes) -> None:
    """Write into a pipe, and wait while it is full."""
    loop = asyncio.get_running_loop()
    has_room = asyncio.Event()
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
            continue
        except BlockingIOError:
            has_room.clear()
        loop.add_writer(descriptor, has_room.set)
        try:
            await has_room.wait()
        finally:
            loop.remove_writer(descriptor)


def _waiting_bytes(descriptor: int) -> int:
    """Return the number of unread bytes in a pipe."""
    found = fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4))
    return int.from_bytes(found, sys.byteorder)


@contextmanager
def _named_pipe(path: Path) -> Iterator[int]:
    """Create a named pipe with both ends open, so that no closing program ends it."""
    try:
        os.mkfifo(path)
    except OSError as error:
        raise PATH_TAKEN(address=str(path), path=str(path), reason=error.strerror) from None
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
    finally:
        if path.is_fifo():  # Another program may have replaced it by a file.
            path.unlink()
