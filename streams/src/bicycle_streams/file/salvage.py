"""The next whole message after damage: a message with a valid checksum."""

from __future__ import annotations

import re

from bicycle_streams.file.errors import FileFormatError
from bicycle_streams.file.view import CutOffError, FileView
from bicycle_streams.messages import Message

_KEY = re.compile(rb"[A-Za-z0-9._-]+")


def next_message(view: FileView, offset: int) -> int | None:
    """Return the offset of the next whole message: before or named by the next beacon."""
    while offset < view.size:
        number = offset // view.interval + 1
        limit = min(view.size, number * view.interval)
        data = view.read(offset, limit - offset)
        for at, size in enumerate(data):
            name = data[at + 1 : at + 1 + size]
            is_name = size == len(name) and _KEY.fullmatch(name) is not None
            may_be_cut = size > len(name) and (not name or _KEY.fullmatch(name) is not None)
            if (is_name or may_be_cut) and whole_message(view, offset + at) is not None:
                return offset + at
        if (start := _start_behind(view, number)) is not None:
            return start
        offset = limit + 1
    return None


def _start_behind(view: FileView, number: int) -> int | None:
    try:
        start = view.start_behind(number)
    except (CutOffError, FileFormatError):
        return None
    return start if start == view.size or whole_message(view, start) is not None else None


def whole_message(view: FileView, offset: int) -> tuple[Message, int] | None:
    """Return the whole message at an offset with its end offset, or None."""
    try:
        head = view.head(offset)
        payload, end = view.payload(head)
    except (CutOffError, FileFormatError):
        return None
    return Message(head.key, head.shard_id, head.sequence, head.timestamp_ms, payload), end
