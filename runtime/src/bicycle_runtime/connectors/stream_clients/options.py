"""Options of streams in jobs, declared once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bicycle_runtime.base.options import option
from bicycle_runtime.connectors.settings import codec_for
from bicycle_runtime.contract import ConnectorSpec
from bicycle_runtime.formats.contract import Codec
from bicycle_runtime.streams.options import TlsOptions
from bicycle_runtime.streams.pulsar.options import PulsarClusterOptions
from bicycle_runtime.streams.redis.options import RedisServerOptions

__all__ = [
    "PublishedOptions",
    "PulsarPlaceOptions",
    "PulsarSinkOptions",
    "PulsarSourceOptions",
    "ReceivedOptions",
    "RedisPlaceOptions",
    "RedisSinkOptions",
    "RedisSourceOptions",
    "SentOptions",
    "SentToPeersOptions",
    "SentToSocketOptions",
    "SocketStreamOptions",
    "StreamSinkOptions",
    "StreamSourceOptions",
    "WebSocketSinkOptions",
    "WebSocketSourceOptions",
    "codec_of",
]

_LISTEN = "Whether to be the server that others connect to."
_HEADS = "Whether lines have heads as on pipes; a line is its payload otherwise."


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSourceOptions:
    """The options of stream sources: streams, start and format."""

    address: str = option(doc="redis://host:port/KEY,KEY or file://PATH.ss/KEY,KEY.")
    value_format: str = option("string", doc="The format of payloads.")
    value_format_options: object = option(None, doc="Options of the format.")
    start: Literal["earliest", "latest"] = option(
        "earliest", doc="Where the first run begins; later ones go on where the last one sealed."
    )
    bounded: bool = option(
        default=False, doc="End with the messages that are there when the job first starts."
    )
    on_data_loss: Literal["fail", "continue"] = option(
        "fail",
        doc="What to do when messages are gone before they were read: fail, or go on with what is "
        "there.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedOptions:
    """The options of publication: the stream, the format, and the time limit."""

    address: str = option(doc="The stream: PROTOCOL://PLACE/KEY.")
    value_format: str = option("string", doc="The format of payloads.")
    value_format_options: object = option(None, doc="Options of the format.")
    publish_timeout_ms: int = option(
        900_000, low=1_000, high=86_400_000,
        doc="A server that is away for longer ends the job; its output is kept.",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSinkOptions(PublishedOptions):
    """The additional options of a sink to a stream with storage."""

    on_rewind: Literal["fail", "publish_again"] = option(
        "fail",
        doc="What to do when an older epoch was restored than was written: fail, or write again.",
    )


@dataclass(frozen=True, kw_only=True)
class RedisPlaceOptions(RedisServerOptions):
    """The connection of a job to a Redis server."""

    __slots__ = ()  # Those of source and sink have room for these, too.

    password: object = option(None, doc="A reference to the password of the server.")


@dataclass(frozen=True, kw_only=True)
class PulsarPlaceOptions(PulsarClusterOptions):
    """The connection of a job to a Pulsar cluster."""

    __slots__ = ()  # Those of source and sink have room for these, too.

    token: object = option(None, doc="A reference to the token with which we log in.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisSourceOptions(StreamSourceOptions, RedisPlaceOptions):
    """The options of the Redis source: streams and server."""

    group: str = option("", doc="A group of Redis whose position tells others what was read.")
    retry_timeout_ms: int = option(
        60_000, low=1_000, high=3_600_000, doc="How long a task waits for a server that is away."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisSinkOptions(StreamSinkOptions, RedisPlaceOptions):
    """The options of the Redis sink: stream and server."""

    max_length: int | None = option(
        None, low=1, doc="About how many messages a stream of Redis keeps; all of them if unset."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarSourceOptions(StreamSourceOptions, PulsarPlaceOptions):
    """The options of the Pulsar source: streams and cluster."""

    group: str = option(
        doc="The subscription that holds what is not read yet: without one, Pulsar deletes it.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedOptions:
    """The options of received streams: address, format and journal."""

    address: str = option(
        doc="ws://host:port/PATH/KEY,KEY, socket://host:port/KEY or stdio:///KEY,KEY."
    )
    value_format: str = option("string", doc="The format of payloads.")
    value_format_options: object = option(None, doc="Options of the format.")
    journal: bool = option(
        default=False,
        doc="Whether a message is on the disk before it is read, so that it counts exactly once.",
    )
    journal_bytes_max: int = option(
        1 << 30, low=1 << 10, high=1 << 40,
        doc="Received bytes that may wait unread; nothing is taken while there are more.",
    )  # fmt: skip
    segment_bytes: int = option(
        8 << 20, low=1 << 10, high=1 << 30, doc="Size at which a new journal file begins."
    )
    journal_epochs_min: int = option(
        10, low=1, high=1_000,
        doc="Journal of so many published epochs is kept, for a fall back to an older one.",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSocketSourceOptions(ReceivedOptions, TlsOptions):
    """The options of the WebSocket source: streams and subscription."""

    listen: bool = option(default=False, doc=_LISTEN)
    subscribe: str | None = option(
        None,
        doc="A text that is sent after each connection; {sequence} in it stands for the last "
        "sequence that was received, also before a restart; -1 at first.",
    )
    sequence_field: str | None = option(
        None, doc="The field of JSON frames with their sequence, for {sequence} and gaps."
    )
    ping_interval_ms: int = option(
        20_000, low=10, high=3_600_000, doc="How often the other side is asked whether it lives."
    )
    ping_timeout_ms: int = option(
        20_000, low=10, high=3_600_000, doc="After how long without an answer it is dead."
    )
    frame_bytes_max: int = option(16 << 20, low=1, high=1 << 30, doc="The largest frame.")


def codec_of(
    spec: ConnectorSpec, options: StreamSourceOptions | PublishedOptions | ReceivedOptions
) -> Codec:
    """Return the codec of payloads.

    Raises:
        CONNECTOR_OPTION_WRONG: there is no such format, or it cannot be used so.
    """
    return codec_for(
        spec, "value", options.value_format, record_type=spec.record_type,
        options=options.value_format_options,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketStreamOptions(ReceivedOptions):
    """The options of the socket stream source: lines, and the connecting side."""

    listen: bool = option(default=False, doc=_LISTEN)
    heads: bool = option(default=False, doc=_HEADS)
    line_bytes_max: int = option(
        16 << 20, low=1, high=1 << 30, doc="Who sends a longer line is disconnected."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SentOptions(PublishedOptions):
    """The options of a sink to a stream without storage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarSinkOptions(SentOptions, PulsarPlaceOptions):
    """The options of the Pulsar sink: stream and cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentToPeersOptions(SentOptions):
    """The options of a sink to peers: the stream, and the connecting side."""

    listen: bool = option(default=False, doc=_LISTEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSocketSinkOptions(SentToPeersOptions, TlsOptions):
    """The options of the WebSocket sink: stream and TLS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentToSocketOptions(SentToPeersOptions):
    """The options of a sink to a socket: stream and format."""

    heads: bool = option(default=False, doc=_HEADS)
