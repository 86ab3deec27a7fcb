"""Messages in checkpoint storage, between the task and the driver that sends them.

A file is a sequence of frames: ``b"KM"``, version u8, zero u8, body length u32 (little-endian),
then the body, a MessagePack map from fields to columns, which have one value for each message. Size
and CRC-32 of the whole file are known from its ``StagedFile``, and are checked before the last
frame is returned, so nothing of a damaged file is ever committed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from bicycle_runtime.base.storage import Storage
from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.connectors.kafka.encoding import Message, MessageColumns, columns_of
from bicycle_runtime.connectors.kafka.errors import STAGED_MESSAGES_UNREADABLE
from bicycle_runtime.connectors.staging import staged_blocks
from bicycle_runtime.contract import StagedFile

FORMAT_VERSION = 2
_MAGIC = b"KM"
_HEADER = struct.Struct("<2sBBI")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(prepare_type(MessageColumns)).decode


def pack_messages(messages: list[Message]) -> bytes:
    """Return one frame; ``staged_messages`` returns its columns.

    Args:
        messages: One or more; all have the same fields.
    """
    # hot path: columns: 80 ns to pack, 55 to unpack; rows take 65 and 130.
    body = _encode(columns_of(messages))
    return _HEADER.pack(_MAGIC, FORMAT_VERSION, 0, len(body)) + body


def staged_messages(storage: Storage, file: StagedFile) -> Iterator[MessageColumns]:
    """Yield the messages of a staged file by column, frame by frame.

    Raises:
        ObjectMissingError: the file is gone.
        STAGED_FILE_DAMAGED: size or checksum differ; raised at the latest with the last frame.
        STAGED_MESSAGES_UNREADABLE: the file is whole, and of another version.
    """
    blocks = staged_blocks(storage, file)
    held = bytearray()
    for block in blocks:
        held += block
        start = 0
        while (end := _frame_end(held, start)) is not None:
            try:
                messages = _messages(held, start, end)
            except (ValueError, msgspec.MsgspecError) as error:
                for _ in blocks:  # To its end: damage of the file is an error.
                    pass
                raise STAGED_MESSAGES_UNREADABLE(
                    path=file.path, reason=str(error), expected=FORMAT_VERSION
                ) from error
            start = end
            yield messages
        del held[:start]
    if held:
        raise STAGED_MESSAGES_UNREADABLE(
            path=file.path, reason=f"{len(held)} bytes are left over", expected=FORMAT_VERSION
        )


def _frame_end(held: bytearray, start: int) -> int | None:
    """Return the end of the frame at ``start``, or None if it is incomplete."""
    if len(held) < start + _HEADER.size:
        return None
    end = start + _HEADER.size + int(_HEADER.unpack_from(held, start)[3])
    return end if end <= len(held) else None


def _messages(held: bytearray, start: int, end: int) -> MessageColumns:
    magic, version, _, _ = _HEADER.unpack_from(held, start)
    if (magic, version) != (_MAGIC, FORMAT_VERSION):
        raise ValueError(f"a frame begins with {magic!r}, version {version}")
    with memoryview(held) as view:  # Released, or the buffer could not shrink.
        return _decode(view[start + _HEADER.size : end])
