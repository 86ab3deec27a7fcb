"""Frames between a process and its child: JSON and byte strings, checksummed.

The child greets first, which shows that it has started. After that, each question and each answer
is exactly one frame, so that anything else that writes to the pipe is noticed instead of believed.
Byte strings are not put through JSON. ``children`` is the other end. Standard library only.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any

GREETING = b"bicycle-child-1\n"
_MAGIC = b"BXF1"
_PREFIX = struct.Struct("<4sQI")
_HEADER_SIZE = struct.Struct("<I")
_QUESTION_BYTES_MAX = 8 << 30
_CHUNK_BYTES = 64 << 10

Message = tuple[dict[str, Any], list[bytes]]


def is_readable(source: int | IO[bytes] | socket.socket, timeout_s: float | None) -> bool:
    """Wait for input or the end; return whether it came in time.

    Args:
        source: An object that the kernel can watch: a pipe, a socket, the handle of a process.
        timeout_s: How long to wait; None waits forever.
    """
    with selectors.PollSelector() as selector:  # `select.select` knows no handle above 1,023.
        selector.register(source, selectors.EVENT_READ)
        return bool(selector.select(timeout_s))


def encode_frame(header: dict[str, Any], blobs: Sequence[bytes] = ()) -> bytes:
    """Return the bytes of a frame.

    Args:
        header: Plain data; an object that JSON does not know is written as text.
        blobs: Byte strings that travel beside the header, in order.
    """
    head = {**header, "blob_sizes": [len(blob) for blob in blobs]}
    text = json.dumps(head, default=str).encode()
    body = b"".join([_HEADER_SIZE.pack(len(text)), text, *blobs])
    return _PREFIX.pack(_MAGIC, len(body), zlib.crc32(body)) + body


def decode_body(body: bytes) -> Message:
    """Return header and blobs of a frame's body; raise ValueError if inconsistent."""
    try:
        (text_size,) = _HEADER_SIZE.unpack_from(body)
        start = _HEADER_SIZE.size + text_size
        header = json.loads(body[_HEADER_SIZE.size : start])
        sizes = header.pop("blob_sizes")
        return header, list(_split(body, start, sizes))
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"the body of the frame is damaged ({error})") from error


def _split(body: bytes, start: int, sizes: Iterable[int]) -> Iterable[bytes]:
    for size in sizes:
        yield body[start : start + size]
        start += size
    if start != len(body):
        raise ValueError(f"the frame's parts end at {start}, its body at {len(body)}")


class FrameReader:
    """A reader of the bytes of one frame, which detects complete and invalid frames.

    Args:
        size_max: Largest body accepted, in bytes.
        has_greeted: Whether no greeting comes before the frame.
    """

    def __init__(self, size_max: int, *, has_greeted: bool = False) -> None:
        self._size_max = size_max
        self._data = bytearray()
        self.has_greeted = has_greeted
        self.oversize: int | None = None
        self.problem: str | None = None
        self.body: bytes | None = None

    @property
    def is_done(self) -> bool:
        """Return whether more bytes cannot change the outcome."""
        return any(end is not None for end in (self.body, self.problem, self.oversize))

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes."""
        if self.is_done:
            return
        self._data += chunk
        if not self.has_greeted and not self._greet():
            return
        self._check_prefix()

    def _greet(self) -> bool:
        start = bytes(self._data[: len(GREETING)])
        if not GREETING.startswith(start):
            self.problem = f"it starts with {start[:32]!r}"
        elif len(start) == len(GREETING):
            self.has_greeted = True
            del self._data[: len(GREETING)]
        return self.has_greeted

    def _check_prefix(self) -> None:
        magic = bytes(self._data[: len(_MAGIC)])
        if not _MAGIC.startswith(magic):
            self.problem = f"{bytes(self._data[:32])!r} is not the start of a frame"
        elif len(self._data) >= _PREFIX.size:
            _, size, checksum = _PREFIX.unpack_from(self._data)
            if size > self._size_max:
                self.oversize = size
            elif len(self._data) >= _PREFIX.size + size:
                self._finish(bytes(self._data[_PREFIX.size : _PREFIX.size + size]), checksum)

    def _finish(self, body: bytes, checksum: int) -> None:
        if zlib.crc32(body) == checksum:
            self.body = body
        else:
            self.problem = "its checksum is wrong"


class Questions:
    """The child's end of the pipes: questions come in, answers go out.

    All pipes are kept from the processes that the child starts.

    Args:
        descriptors: The first argument of the child: the descriptors of questions, answers and
            dumps, separated by commas.
    """

    def __init__(self, descriptors: str) -> None:
        self.questions, self._answers, self.dump = map(int, descriptors.split(","))
        self._write = os.write  # User code may replace that of the module.
        for descriptor in (self.questions, self._answers, self.dump):
            os.set_inheritable(descriptor, False)
        self.send(GREETING)

    def next(self, *, idle_s: float | None = None) -> Message | None:
        """Return the next question, or None at the end.

        Args:
            idle_s: How long to wait for its first byte; None waits forever.
        """
        reader = FrameReader(_QUESTION_BYTES_MAX, has_greeted=True)
        if not is_readable(self.questions, idle_s):
            return None
        while not reader.is_done:
            chunk = os.read(self.questions, _CHUNK_BYTES)
            if not chunk:
                return None
            reader.feed(chunk)
        return None if reader.body is None else decode_body(reader.body)

    def answer(self, header: dict[str, Any], blobs: Sequence[bytes] = ()) -> None:
        """Send an answer.

        Raises:
            OSError: user code closed the pipe, or the parent has ended.
        """
        self.send(encode_frame(header, blobs))

    def send(self, data: bytes) -> None:
        """Send an encoded answer, all of it."""
        left = memoryview(data)
        while left:
            left = left[self._write(self._answers, left) :]


def answer_once(
    descriptors: str, answer: Callable[[dict[str, Any], list[bytes]], dict[str, Any]]
) -> int:
    """Run as a child process that answers one question; return its exit code, 0."""
    questions = Questions(descriptors)
    question = questions.next()
    if question is not None:
        questions.answer(answer(*question))
    return 0
