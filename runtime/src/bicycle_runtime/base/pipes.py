"""Pipes between two of our processes: waiting for input, and JSON in frames.

A frame is a JSON value behind its length in four bytes. Both ends are read without a buffer, so
that waiting sees all that has come.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from typing import IO, Any

__all__ = ["is_readable", "read_frame", "write_frame"]

_HEAD_BYTES = 4
_FRAME_BYTES_MAX = 64 << 20


def is_readable(source: int | IO[bytes] | socket.socket, timeout_s: float | None) -> bool:
    """Wait for input or the end; return whether it came in time.

    Args:
        source: An object that the kernel can watch: a pipe, a socket, the handle of a process.
        timeout_s: How long to wait; None waits forever.
    """
    with selectors.PollSelector() as selector:  # `select.select` knows no handle above 1,023.
        selector.register(source, selectors.EVENT_READ)
        return bool(selector.select(timeout_s))


def write_frame(stream: IO[bytes], value: Any) -> None:
    """Write a frame, all of it."""
    data = json.dumps(value).encode()
    left = memoryview(len(data).to_bytes(_HEAD_BYTES, "big") + data)
    while left:  # A stream without a buffer may take only a part.
        left = left[stream.write(left) :]


def read_frame(stream: IO[bytes], *, timeout_s: float | None = None) -> Any:
    """Return the value of the next frame.

    Args:
        stream: A stream without a buffer.
        timeout_s: Within which all of it must come; None waits forever.

    Raises:
        EOFError: the stream ends before, or holds no frame.
        TimeoutError: it did not come in time.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    size = int.from_bytes(_exactly(stream, _HEAD_BYTES, deadline), "big")
    if size > _FRAME_BYTES_MAX:
        raise EOFError(f"a frame of {size} bytes, expected {_FRAME_BYTES_MAX} at most")
    try:
        return json.loads(_exactly(stream, size, deadline))
    except (ValueError, RecursionError) as error:
        raise EOFError(f"a frame that is not JSON: {error}") from error


def _exactly(stream: IO[bytes], count: int, deadline: float | None) -> bytes:
    """Return so many bytes."""
    data = bytearray()
    while len(data) < count:
        left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not is_readable(stream, left_s):
            raise TimeoutError
        piece = stream.read(count - len(data))
        if not piece:
            raise EOFError(f"the stream ends after {len(data)} of {count} bytes")
        data += piece
    return bytes(data)
