"""The single message of a child: a greeting, then a checksummed frame.

The greeting says that the child has started; what follows must be exactly one frame, so that a
plugin which writes to the pipe is noticed instead of believed. A frame's body is a JSON header and
the bytes of the payloads, which are not put through JSON. Standard library only; knows nothing of
plugins or processes.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = [
    "GREETING",
    "PHASE_PREFIX",
    "PIPE_LOST_EXIT_CODE",
    "FrameReader",
    "decode_body",
    "encode_frame",
]

GREETING = b"bicycle-child-1\n"
PHASE_PREFIX = "bicycle-phase: "
PIPE_LOST_EXIT_CODE = 117
_MAGIC = b"BXF1"
_PREFIX = struct.Struct("<4sQI")
_HEADER_SIZE = struct.Struct("<I")


def encode_frame(header: dict[str, Any], blobs: Sequence[bytes] = ()) -> bytes:
    """Return the bytes of a frame.

    Args:
        header: Plain data; what JSON does not know is written as its ``repr``.
        blobs: Byte strings that travel beside the header, in order.
    """
    head = {**header, "blob_sizes": [len(blob) for blob in blobs]}
    text = json.dumps(head, default=repr).encode()
    body = b"".join([_HEADER_SIZE.pack(len(text)), text, *blobs])
    return _PREFIX.pack(_MAGIC, len(body), zlib.crc32(body)) + body


def decode_body(body: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Return header and blobs of a frame's body; raise ValueError if inconsistent."""
    try:
        (text_size,) = _HEADER_SIZE.unpack_from(body)
        start = _HEADER_SIZE.size + text_size
        header = json.loads(body[_HEADER_SIZE.size : start])
        sizes = header.pop("blob_sizes")
        return header, list(_cut(body, start, sizes))
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the body of the frame is damaged ({error})") from error


def _cut(body: bytes, start: int, sizes: Iterable[int]) -> Iterable[bytes]:
    for size in sizes:
        yield body[start : start + size]
        start += size
    if start != len(body):
        raise ValueError(f"the frame's parts end at {start}, its body at {len(body)}")


class FrameReader:
    """A reader of the pipe's bytes, which detects complete and invalid frames.

    Args:
        size_max: Largest body accepted, in bytes.
    """

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._data = bytearray()
        self.has_greeted = False
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
