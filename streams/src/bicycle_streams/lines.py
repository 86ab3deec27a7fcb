"""Messages as lines of text: ``[time | key | sequence | shard] payload``, or less.

Standard input and output and sockets speak lines, and so do commands that show messages.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import NamedTuple

from bicycle_sdk.clock import SystemClock
from bicycle_sdk.time import TIME_MS_MAX
from bicycle_streams.addresses import StreamKey
from bicycle_streams.errors import LINE_NOT_TEXT, LINE_UNREADABLE, PAYLOAD_NOT_A_LINE, StreamError
from bicycle_streams.messages import Message, MessageHeader, Timestamp

BROADCAST = StreamKey("broadcast")
_HEAD = re.compile(r"\[([^\]]+)\]")
_TIME = re.compile(r"(\d{4}|[+-]\d{6,})-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?")


class LineHead(NamedTuple):
    """The head of a line; None for absent parts."""

    timestamp_ms: int | None = None
    stream_key: StreamKey | None = None
    sequence: int | None = None
    shard_id: int | None = None


def parse_line(line: str, address: str) -> tuple[LineHead, str]:
    """Return head and payload of a line.

    Raises:
        StreamError: the line has an invalid head.

    Example:
        >>> head, payload = parse_line("[2022-01-02T03:04:05 | clicks | 7] ada", "stdio://")
        >>> head.timestamp_ms, head.stream_key, head.sequence, head.shard_id, payload
        (1641092645000, 'clicks', 7, None, 'ada')
    """
    found = _HEAD.match(line)
    if found is None:
        return LineHead(), line
    parts = [part.strip() for part in found[1].split("|")]
    rest = list(parts)
    timestamp_ms = None
    try:
        if _TIME.fullmatch(rest[0]):
            timestamp_ms = int(Timestamp.parse(rest.pop(0)))
            if not -TIME_MS_MAX < timestamp_ms < TIME_MS_MAX:
                raise ValueError
        key = StreamKey(rest.pop(0)) if rest else None
        sequence = _number(rest.pop(0)) if rest else None
        shard_id = _number(rest.pop(0)) if rest else None
    except (StreamError, ValueError):
        part = parts[len(parts) - len(rest) - 1]
        raise LINE_UNREADABLE(address=address, part=part, line=line[:80]) from None
    if rest:
        raise LINE_UNREADABLE(address=address, part=rest[0], line=line[:80])
    return LineHead(timestamp_ms, key, sequence, shard_id), line[found.end() :].strip()


def format_line(header: MessageHeader, payload: str) -> str:
    """Return a message as a line, without its end; a sequence below 0 is left out."""
    number = f" | {header.sequence} | {header.shard_id}" if header.sequence >= 0 else ""
    return f"[{header.timestamp} | {header.stream_key}{number}] {payload}"


def line_payload(payload: bytes, backend: str) -> str:
    """Return a payload as the text of one line.

    Raises:
        StreamUnsupportedError: it is not text, or more than a line.
    """
    try:
        text = payload.decode()
    except UnicodeDecodeError as error:
        raise PAYLOAD_NOT_A_LINE(backend=backend, reason=str(error)) from None
    if "\n" in text or "\r" in text:
        raise PAYLOAD_NOT_A_LINE(backend=backend, reason="it contains a line break")
    return text


class LineDecoder:
    """A decoder of lines to messages, which numbers messages without sequence.

    Args:
        address: Where lines come from, for messages of errors.
        has_heads: Whether a line may have a head; it is its payload as it is otherwise.
    """

    def __init__(self, address: str, *, has_heads: bool = True) -> None:
        self._address = address
        self._has_heads = has_heads
        self._now_ms = SystemClock().now_ms
        self._sequences: dict[tuple[StreamKey, int], int] = defaultdict(int)

    def decode(self, line: bytes) -> Message | StreamError:
        """Return the message of a line, or the error in it."""
        try:
            text = line.decode()
            head, payload = LineHead(), text
            if self._has_heads:
                head, payload = parse_line(text, self._address)
        except UnicodeDecodeError as problem:
            refusal: StreamError = LINE_NOT_TEXT(address=self._address, reason=str(problem))
            refusal.received = line
            return refusal
        except StreamError as error:
            error.received = line
            return error
        key = BROADCAST if head.stream_key is None else head.stream_key
        shard_id = head.shard_id or 0
        sequence = self._sequences[key, shard_id] if head.sequence is None else head.sequence
        self._sequences[key, shard_id] = sequence + 1
        time_ms = self._now_ms() if head.timestamp_ms is None else head.timestamp_ms
        return Message(key, shard_id, sequence, time_ms, payload.encode())


def _number(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(text)
    return int(text)
