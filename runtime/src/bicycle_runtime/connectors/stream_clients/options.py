"""Options of streams in jobs, declared once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bicycle_runtime.connectors.settings import codec_for
from bicycle_runtime.contract import ConnectorSpec
from bicycle_runtime.formats.contract import Codec
from bicycle_sdk.options import option
from bicycle_streams.options import TlsOptions
from bicycle_streams.pulsar.options import PulsarClusterOptions
from bicycle_streams.redis.options import RedisServerOptions

__all__ = [
    "PublishedOptions",
    "PulsarSinkOptions",
    "PulsarSourceOptions",
    "PulsarStreamOptions",
    "ReceivedOptions",
    "RedisSinkOptions",
    "RedisSourceOptions",
    "RedisStreamOptions",
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

_LISTEN = "Whether to be the server to which others connect."
_HEADS = "Whether lines have heads as on pipes; otherwise a line is its payload."


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSourceOptions:
    """The options of stream sources: streams, start and format."""

    address: str = option(doc="redis://host:port/KEY,KEY or file://PATH.ss/KEY,KEY.")
    value_format: str = option("string", doc="Format of payloads.", aliases=("format",))
    value_format_options: object = option(None, doc="Options of the format.")
    start: Literal["earliest", "latest"] = option(
        "earliest",
        doc="Start position of the first run; later runs continue after the last sealed epoch.",
    )
    bounded: bool = option(
        default=False, doc="End with the messages that exist at the first start of the job."
    )
    on_data_loss: Literal["fail", "continue"] = option(
        "fail",
        doc=(
            "Reaction when unread messages were removed: fail, or continue with the existing "
            "messages."
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedOptions:
    """The options of publication: the stream, the format, and the time limit."""

    address: str = option(doc="Address of the stream: PROTOCOL://NODE/KEY.")
    value_format: str = option("string", doc="Format of payloads.", aliases=("format",))
    value_format_options: object = option(None, doc="Options of the format.")
    publish_timeout_ms: int = option(
        900_000, low=1_000, high=86_400_000,
        doc="Time without the server after which the job ends; its output is kept.",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSinkOptions(PublishedOptions):
    """The additional options of a sink to a stream with storage."""

    on_rewind: Literal["fail", "publish_again"] = option(
        "fail",
        doc=(
            "Reaction when an older epoch than the published output is restored: fail, or write "
            "again."
        ),
    )


@dataclass(frozen=True, kw_only=True)
class RedisStreamOptions(RedisServerOptions):
    """The connection of a job to a Redis server."""

    __slots__ = ()  # Options of source and sink have room for these, too.

    password: object = option(None, doc="A reference to the password of the server.")


@dataclass(frozen=True, kw_only=True)
class PulsarStreamOptions(PulsarClusterOptions):
    """The connection of a job to a Pulsar cluster."""

    __slots__ = ()  # Options of source and sink have room for these, too.

    token: object = option(None, doc="A reference to the token for the login.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisSourceOptions(StreamSourceOptions, RedisStreamOptions):
    """The options of the Redis source: streams and server."""

    group: str = option(
        "", doc="Consumer group in Redis whose position shows the progress of the job."
    )
    retry_timeout_ms: int = option(
        60_000,
        low=1_000,
        high=3_600_000,
        doc="Time limit of a task for the first response of the server.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisSinkOptions(StreamSinkOptions, RedisStreamOptions):
    """The options of the Redis sink: stream and server."""

    max_length: int | None = option(
        None,
        low=1,
        doc="Approximate number of messages that a stream of Redis keeps; all of them if unset.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarSourceOptions(StreamSourceOptions, PulsarStreamOptions):
    """The options of the Pulsar source: streams and cluster."""

    group: str = option(
        doc=(
            "Subscription that retains unread messages: without a subscription, Pulsar deletes "
            "them."
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedOptions:
    """The options of received streams: address, format and journal."""

    address: str = option(
        doc="ws://host:port/PATH/KEY,KEY, socket://host:port/KEY or stdio:///KEY,KEY."
    )
    value_format: str = option("string", doc="Format of payloads.", aliases=("format",))
    value_format_options: object = option(None, doc="Options of the format.")
    journal: bool = option(
        default=False,
        doc=(
            "Whether messages are written to disk before they are read, so that they count "
            "exactly once."
        ),
    )
    journal_bytes_max: int = option(
        1 << 30, low=1 << 10, high=1 << 40,
        doc="Received bytes that may wait unread; above this limit, no more are received.",
    )  # fmt: skip
    segment_bytes: int = option(
        8 << 20, low=1 << 10, high=1 << 30, doc="Size at which a new journal file begins."
    )
    journal_epochs_min: int = option(
        10, low=1, high=1_000,
        doc="Number of published epochs whose journal is kept, to fall back to an older epoch.",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSocketSourceOptions(ReceivedOptions, TlsOptions):
    """The options of the WebSocket source: streams and subscription."""

    listen: bool = option(default=False, doc=_LISTEN)
    subscribe: str | None = option(
        None,
        doc=(
            "Text sent after each connection; {sequence} is replaced by the last received "
            "sequence, also from before a restart; -1 at first."
        ),
    )
    sequence_field: str | None = option(
        None,
        doc="Field of JSON frames with their sequence, for {sequence} and the detection of gaps.",
    )
    ping_interval_ms: int = option(
        20_000, low=10, high=3_600_000, doc="Interval of pings to the other side."
    )
    ping_timeout_ms: int = option(
        20_000,
        low=10,
        high=3_600_000,
        doc="Time without an answer after which the connection is closed.",
    )
    frame_bytes_max: int = option(16 << 20, low=1, high=1 << 30, doc="Maximum size of a frame.")


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
        16 << 20,
        low=1,
        high=1 << 30,
        doc="Maximum length of a line; a sender with a longer line is disconnected.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SentOptions(PublishedOptions):
    """The options of a sink to a stream without storage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarSinkOptions(SentOptions, PulsarStreamOptions):
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
