"""Sending of data from outside of streams: clock ticks, lines of text, NDJSON."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from functools import partial
from typing import Any, BinaryIO

from bicycle_streams.addresses import StreamKey, StreamUrl
from bicycle_streams.errors import StreamError
from bicycle_streams.messages import Timestamp
from bicycle_streams.producing import Producer
from bicycle_streams.standard_input import batches_of_lines
from bicycle_streams.tools.errors import RECORD_UNREADABLE
from bicycle_streams.tools.opening import Tally, Words, producer_of, streamer_to_write

_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
# The exceptions for an invalid line; StreamError for an invalid key or time.
_NO_RECORD = (ValueError, AttributeError, KeyError, TypeError, RecursionError, StreamError)
_INTERVAL = re.compile(r"(\d+(?:\.\d+)?)(ns|us|ms|s|m)")


def interval_seconds(text: str) -> float:
    """Return the seconds of an interval with one of the units ns, us, ms, s, m.

    Raises:
        ValueError: the text is not an interval, or the interval is 0.

    Example:
        >>> interval_seconds("1.5s"), interval_seconds("250us")
        (1.5, 0.00025)
    """
    found = _INTERVAL.fullmatch(text)
    if found is None or not float(found[1]):
        raise ValueError(
            f"expected a number above 0 with a unit of {', '.join(_UNITS)}, got {text!r}"
        )
    return float(found[1]) * _UNITS[found[2]]


async def clock(
    url: StreamUrl, words: Words, tally: Tally, *, interval_s: float, count: int | None
) -> None:
    """Send ``{"tick":N}`` at each interval, from 0 on, forever or so many times.

    These are the bytes of SeaStreamer's clock.
    """
    loop = asyncio.get_running_loop()
    start = loop.time()
    async with streamer_to_write(url, words) as streamer:
        producer = await streamer.create_producer(url.stream_key)
        while count is None or tally.sent < count:
            await producer.send(f'{{"tick":{tally.sent}}}')
            tally.sent += 1
            if count is None or tally.sent < count:
                await asyncio.sleep(max(0.0, start + tally.sent * interval_s - loop.time()))


async def produce(
    url: StreamUrl, words: Words, tally: Tally, stream: BinaryIO | None, *, is_ndjson: bool
) -> None:
    """Send each line of a stream of bytes.

    Args:
        url: The stream; with NDJSON, the stream of records without a key.
        words: Options of the backend.
        tally: Counts the sent messages.
        stream: The lines; None raises an error.
        is_ndjson: Whether a line is a record with ``payload``, and ``key`` or a ``header``;
            ``message_key`` and ``headers`` as ``cat --format ndjson`` shows them.
    """
    async with streamer_to_write(url, words) as streamer:
        producer = await producer_of(streamer, url)
        async for lines in batches_of_lines(stream):
            try:
                for line in lines:
                    if is_ndjson:
                        _send_record(producer, line, tally.sent + 1)
                    else:
                        producer.send(line.removesuffix(b"\r"))
                    tally.sent += 1
            finally:
                await producer.flush()


def _send_record(producer: Producer, line: bytes, number: int) -> None:
    try:
        record: Any = json.loads(line)
        header = record.get("header") or {}
        payload = _payload_of(record)
        message_key = _data_of(record, "message_key")
        headers = [(_name_of(each), _data_of(each, "value")) for each in record.get("headers", ())]
        key = record.get("key", header.get("stream_key"))
        moment = header.get("timestamp")
        shard_id = header.get("shard_id")
        if not isinstance(key, str | None) or not isinstance(shard_id, int | None):
            raise ValueError("key must be a text and shard_id a number")
        time_ms = None if moment is None else Timestamp.parse(moment)
        send = producer.send if key is None else partial(producer.send_to, StreamKey(key))
    except _NO_RECORD as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise RECORD_UNREADABLE(
            address="standard input", line=number, reason=reason, sent=number - 1
        ) from None
    send(payload, shard_id=shard_id, timestamp_ms=time_ms, key=message_key, headers=headers)


def _data_of(record: Any, name: str) -> bytes | None:
    """Return the bytes of a named field, as text or in base64, or None."""
    if (encoded := record.get(f"{name}_base64")) is not None:
        return base64.b64decode(encoded, validate=True)
    text = record.get(name)
    if not isinstance(text, str | None):
        raise ValueError(f"{name} must be a text")
    return None if text is None else text.encode()


def _name_of(header: Any) -> str:
    """Return the name of a header; refuse invalid Unicode, which JSON can express."""
    name = str(header["name"])
    name.encode()
    return name


def _payload_of(record: Any) -> bytes:
    if (encoded := record.get("payload_base64")) is not None:
        return base64.b64decode(encoded, validate=True)
    payload = record["payload"]
    text = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)
    return text.encode()
