"""Opening streamers, producers and positions from the words of a command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bicycle_streams.addresses import WILDCARD, StreamKey, StreamUrl
from bicycle_streams.connecting import backend_of, connect
from bicycle_streams.contract import Streamer
from bicycle_streams.errors import StreamKeyEmptyError, StreamUnsupportedError
from bicycle_streams.messages import At, Timestamp
from bicycle_streams.producing import Producer

Words = Mapping[str, object]


@dataclass(slots=True)
class Tally:
    """The number of sent messages, available also when a tool is canceled."""

    sent: int = 0


def position(text: str) -> At | Timestamp:
    """Return where to begin: a sequence number, or a moment in ISO 8601.

    Raises:
        MOMENT_UNREADABLE: it is neither.

    Example:
        >>> position("7"), position("1970-01-01T00:00:01")
        (At(sequence=7), Timestamp(1000))
    """
    return At(int(text)) if text.isdecimal() else Timestamp.parse(text)


def streamer_to_read(url: StreamUrl, words: Words) -> Streamer:
    """Return the streamer of an address that names streams.

    Raises:
        StreamKeyEmptyError: the address names no stream.
    """
    if not url.stream_keys:
        raise StreamKeyEmptyError(address=str(url), problem="the address has no stream")
    return connect(url, words)


def streamer_to_write(url: StreamUrl, words: Words) -> Streamer:
    """Return the streamer of an address, which creates missing streams by default."""
    return connect(url, {**backend_of(url.streamer).words_to_write, **words})


async def refuse_unknown(streamer: Streamer, keys: Iterable[StreamKey]) -> None:
    """Ensure that streams without messages exist, if the backend can report it.

    Raises:
        STREAM_UNKNOWN: one is not.
    """
    try:
        admin = streamer.admin()
    except StreamUnsupportedError:
        return
    for key in keys:
        if key != WILDCARD:
            await admin.describe(key)


async def producer_of(streamer: Streamer, url: StreamUrl) -> Producer:
    """Return a producer of the stream of an address, or of any stream.

    Raises:
        StreamUrlError: it names several.
    """
    if url.stream_keys:
        return await streamer.create_producer(url.stream_key)
    return await streamer.create_generic_producer()
