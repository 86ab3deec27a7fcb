"""A message as one line for people and programs: ``log``, ``ndjson`` or ``raw``."""

from __future__ import annotations

import base64
import json
import math
import re
from typing import Any, Literal

from bicycle_streams.lines import format_line
from bicycle_streams.messages import Message, MessageHeader

TextFormat = Literal["log", "ndjson"]
LineFormat = Literal["log", "ndjson", "raw"]
_BINARY = "<BINARY BLOB>"
_HALF_LETTER = re.compile(r"\\u[dD][89a-fA-F]")


def message_text(message: Message, form: TextFormat, *, header_only: bool = False) -> str:
    """Return a message as the text of one line.

    Example:
        >>> from bicycle_streams.addresses import StreamKey
        >>> message = Message(StreamKey("orders"), 0, 1, 1_694_767_177_437, b'{"id": 7}')
        >>> message_text(message, "log")
        '[2023-09-15T08:39:37.437 | orders | 1 | 0] {"id": 7}'
    """
    if form == "ndjson":
        shown = _head_json(message) if header_only else message_json(message)
        return json.dumps(shown, ensure_ascii=False)
    payload = "" if header_only else payload_text(message.payload)
    return format_line(message.header, payload).rstrip()


def message_line(message: Message, form: LineFormat) -> bytes:
    """Return a message as a line with its end; ``raw`` is the payload alone, as it is."""
    return (message.payload if form == "raw" else message_text(message, form).encode()) + b"\n"


def message_json(message: Message) -> dict[str, Any]:
    """Return a message as ``header`` and ``payload``, or ``payload_base64`` if binary.

    The payload is the object, list or number if it is JSON, otherwise its text. JSON with a lone
    surrogate or a number beyond all floats, which some parsers reject, is text, too. A message with
    a key has ``message_key``, and a message with headers has ``headers``: objects with ``name``
    and, unless the header has no value, ``value``. Keys and values that are not UTF-8 are in fields
    with the suffix ``_base64``.
    """
    shown = _head_json(message)
    try:
        text = message.payload.decode()
    except UnicodeDecodeError:
        return shown | _bytes_json("payload", message.payload)
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_number_of)
        if _HALF_LETTER.search(text):
            json.dumps(value, ensure_ascii=False).encode()  # Refuses half of a pair, on its own.
    except (ValueError, RecursionError):
        value = text
    # A quoted text keeps its quotes, because it is sent without them when it is read again.
    return shown | {"payload": text if isinstance(value, str) else value}


def _head_json(message: Message) -> dict[str, Any]:
    shown: dict[str, Any] = {"header": header_json(message.header)}
    if message.key is not None:
        shown |= _bytes_json("message_key", message.key)
    if message.headers:
        shown["headers"] = [
            {"name": name} | ({} if value is None else _bytes_json("value", value))
            for name, value in message.headers
        ]
    return shown


def _bytes_json(name: str, data: bytes) -> dict[str, str]:
    """Return bytes under a name as text, or in base64 under a name with a suffix."""
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _refuse_constant(word: str) -> Any:
    """Refuse NaN and infinities, which Python's JSON accepts, but not the standard."""
    raise ValueError(word)


def _number_of(text: str) -> float:
    """Return a number; refuse one that is too large and would become Infinity."""
    if math.isinf(number := float(text)):
        raise ValueError(text)
    return number


def header_json(header: MessageHeader) -> dict[str, Any]:
    """Return the metadata of a message, without its payload."""
    return {
        "stream_key": header.stream_key,
        "shard_id": header.shard_id,
        "sequence": header.sequence,
        "timestamp": str(header.timestamp),
    }


def payload_text(payload: bytes) -> str:
    """Return a payload as one line, or a placeholder for binary data."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return _BINARY
    return text if text.isprintable() else _BINARY
