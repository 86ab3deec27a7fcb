"""Options of streams of Redis, Pulsar, files, WebSockets, sockets and pipes.

The address names the stream: ``redis://host:6379/orders``. Records are texts, unless a format is
given::

    env.add_source(redis_source("redis://host:6379/orders", value_format="json", group="readers"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

from bicycle_sdk.client_options import PulsarCluster, RedisServer
from bicycle_sdk.connector_options import SinkOptions, SourceOptions, sink_call, source_call
from bicycle_sdk.formats import Format, split_formats, type_given_by
from bicycle_sdk.options import option
from bicycle_sdk.secrets import Secret
from bicycle_sdk.tls_files import TlsFiles

if TYPE_CHECKING:
    from urllib.parse import SplitResult

__all__ = [
    "FileStreamSinkOptions",
    "FileStreamSourceOptions",
    "PublishedOptions",
    "PulsarSinkOptions",
    "PulsarSourceOptions",
    "ReceivedOptions",
    "RedisSinkOptions",
    "RedisSourceOptions",
    "SentOptions",
    "SocketStreamSinkOptions",
    "SocketStreamSourceOptions",
    "StdioSinkOptions",
    "StdioSourceOptions",
    "StreamSinkOptions",
    "StreamSourceOptions",
    "WebSocketSinkOptions",
    "WebSocketSourceOptions",
    "pulsar_sink",
    "pulsar_source",
    "redis_sink",
    "redis_source",
    "stream_file_sink",
    "stream_file_source",
    "websocket_sink",
    "websocket_source",
]

_LISTEN = "Whether to be the server to which others connect."
_HEADS = "Whether lines have heads as on pipes; otherwise a line is its payload."


def _address(parts: SplitResult) -> dict[str, Any]:
    """Return the option ``address``: the URI without its query."""
    return {"address": f"{parts.scheme}://{parts.netloc}{unquote(parts.path)}"}


class _PayloadSource(SourceOptions[Any]):
    """The options of all sources of streams: the address and the format."""

    address: str = option(
        kw_only=False,
        doc="Address of the streams: PROTOCOL://NODE/KEY,KEY, e.g. redis://host:6379/orders.",
    )
    value_format: str | Format = option(
        default="string", doc="Format of payloads.", aliases=("format",)
    )
    value_format_options: object = option(default=None, doc="Options of the format.")

    @classmethod
    def from_arguments(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return arguments with the format as name and options."""
        return split_formats(given, "value_format")

    @classmethod
    def from_address(cls, parts: SplitResult) -> dict[str, Any]:
        """Return the option with the address."""
        return _address(parts)

    def output_type(self) -> Any:
        """Return the type of the records, if the format has one."""
        return type_given_by(str(self.value_format))


class StreamSourceOptions(_PayloadSource):
    """The options of sources of stored streams: start and end."""

    start: Literal["earliest", "latest"] = option(
        default="earliest",
        doc="Start position of the first run; later runs continue after the last sealed epoch.",
    )
    bounded: bool = option(
        default=False, doc="End with the messages that exist at the first start of the job."
    )
    on_data_loss: Literal["fail", "continue"] = option(
        default="fail",
        doc=(
            "Reaction when unread messages were removed: fail, or continue with the existing "
            "messages."
        ),
    )


class FileStreamSourceOptions(
    StreamSourceOptions, connector="stream_file", call="stream_file_source", schemes=("file",)
):
    """The options of the source of streams in a file: streams, start and format."""


class RedisSourceOptions(
    StreamSourceOptions,
    RedisServer,
    connector="redis",
    extra="redis",
    call="redis_source",
    schemes=("redis", "rediss"),
):
    """The options of the Redis source: streams and server."""

    password: Secret | None = option(default=None, doc="A reference to the password of the server.")
    group: str = option(
        default="", doc="Consumer group in Redis whose position shows the progress of the job."
    )
    retry_timeout_ms: int = option(
        default=60_000,
        low=1_000,
        high=3_600_000,
        doc="Time limit of a task for the first response of the server.",
    )


class PulsarSourceOptions(
    StreamSourceOptions,
    PulsarCluster,
    connector="pulsar",
    extra="pulsar",
    call="pulsar_source",
    schemes=("pulsar", "pulsar+ssl"),
):
    """The options of the Pulsar source: streams and cluster."""

    token: Secret | None = option(default=None, doc="A reference to the token for the login.")
    group: str = option(
        doc=(
            "Subscription that retains unread messages: without a subscription, Pulsar deletes "
            "them."
        ),
    )


class ReceivedOptions(_PayloadSource):
    """The options of received streams: format and journal."""

    journal: bool = option(
        default=False,
        doc=(
            "Whether messages are written to disk before they are read, so that they count "
            "exactly once."
        ),
    )
    journal_bytes_max: int = option(
        default=1 << 30, low=1 << 10, high=1 << 40,
        doc="Received bytes that may wait unread; above this limit, no more are received.",
    )  # fmt: skip
    segment_bytes: int = option(
        default=8 << 20,
        low=1 << 10,
        high=1 << 30,
        doc="Size at which a new journal file begins.",
    )
    journal_epochs_min: int = option(
        default=10, low=1, high=1_000,
        doc="Number of published epochs whose journal is kept, to fall back to an older epoch.",
    )  # fmt: skip


class StdioSourceOptions(
    ReceivedOptions, connector="stdio", call="stdio_source", schemes=("stdio",)
):
    """The options of the source of lines of standard input."""


class WebSocketSourceOptions(
    ReceivedOptions,
    TlsFiles,
    connector="websocket",
    call="websocket_source",
    schemes=("ws", "wss"),
):
    """The options of the WebSocket source: streams and subscription."""

    listen: bool = option(default=False, doc=_LISTEN)
    subscribe: str | None = option(
        default=None,
        doc=(
            "Text sent after each connection; {sequence} is replaced by the last received "
            "sequence, also from before a restart; -1 at first."
        ),
    )
    sequence_field: str | None = option(
        default=None,
        doc="Field of JSON frames with their sequence, for {sequence} and the detection of gaps.",
    )
    ping_interval_ms: int = option(
        default=20_000, low=10, high=3_600_000, doc="Interval of pings to the other side."
    )
    ping_timeout_ms: int = option(
        default=20_000,
        low=10,
        high=3_600_000,
        doc="Time without an answer after which the connection is closed.",
    )
    frame_bytes_max: int = option(
        default=16 << 20, low=1, high=1 << 30, doc="Maximum size of a frame."
    )


class SocketStreamSourceOptions(
    ReceivedOptions, connector="socket_stream", call="socket_stream_source", schemes=("socket",)
):
    """The options of the socket stream source: lines, and the connecting side."""

    listen: bool = option(default=False, doc=_LISTEN)
    heads: bool = option(default=False, doc=_HEADS)
    line_bytes_max: int = option(
        default=16 << 20,
        low=1,
        high=1 << 30,
        doc="Maximum length of a line; a sender with a longer line is disconnected.",
    )


class PublishedOptions(SinkOptions):
    """The options of publication: the stream, the format, and the time limit."""

    address: str = option(kw_only=False, doc="Address of the stream: PROTOCOL://NODE/KEY.")
    value_format: str | Format = option(
        default="string", doc="Format of payloads.", aliases=("format",)
    )
    value_format_options: object = option(default=None, doc="Options of the format.")
    publish_timeout_ms: int = option(
        default=900_000, low=1_000, high=86_400_000,
        doc="Time without the server after which the job ends; its output is kept.",
    )  # fmt: skip

    @classmethod
    def from_arguments(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return arguments with the format as name and options."""
        return split_formats(given, "value_format")

    @classmethod
    def from_address(cls, parts: SplitResult) -> dict[str, Any]:
        """Return the option with the address."""
        return _address(parts)


class StreamSinkOptions(PublishedOptions):
    """The additional options of a sink to a stream with storage."""

    on_rewind: Literal["fail", "publish_again"] = option(
        default="fail",
        doc=(
            "Reaction when an older epoch than the published output is restored: fail, or write "
            "again."
        ),
    )


class FileStreamSinkOptions(
    StreamSinkOptions, connector="stream_file", call="stream_file_sink", schemes=("file",)
):
    """The options of the sink of a stream in a file: stream and format."""


class RedisSinkOptions(
    StreamSinkOptions,
    RedisServer,
    connector="redis",
    extra="redis",
    call="redis_sink",
    schemes=("redis", "rediss"),
):
    """The options of the Redis sink: stream and server."""

    password: Secret | None = option(default=None, doc="A reference to the password of the server.")
    max_length: int | None = option(
        default=None,
        low=1,
        doc="Approximate number of messages that a stream of Redis keeps; all of them if unset.",
    )


class SentOptions(PublishedOptions):
    """The options of a sink to a stream without storage."""


class StdioSinkOptions(SentOptions, connector="stdio", call="stdio_sink", schemes=("stdio",)):
    """The options of the sink of lines of standard output."""


class PulsarSinkOptions(
    SentOptions,
    PulsarCluster,
    connector="pulsar",
    extra="pulsar",
    call="pulsar_sink",
    schemes=("pulsar", "pulsar+ssl"),
):
    """The options of the Pulsar sink: stream and cluster."""

    token: Secret | None = option(default=None, doc="A reference to the token for the login.")


class WebSocketSinkOptions(
    SentOptions, TlsFiles, connector="websocket", call="websocket_sink", schemes=("ws", "wss")
):
    """The options of the WebSocket sink: stream, connecting side and TLS."""

    listen: bool = option(default=False, doc=_LISTEN)


class SocketStreamSinkOptions(
    SentOptions, connector="socket_stream", call="socket_stream_sink", schemes=("socket",)
):
    """The options of a sink to a socket: stream, connecting side and format."""

    listen: bool = option(default=False, doc=_LISTEN)
    heads: bool = option(default=False, doc=_HEADS)


redis_source = source_call(RedisSourceOptions, "Return a source of streams of a Redis server.")
redis_sink = sink_call(RedisSinkOptions, "Return a sink of a stream of a Redis server.")
pulsar_source = source_call(PulsarSourceOptions, "Return a source of topics of a Pulsar cluster.")
pulsar_sink = sink_call(PulsarSinkOptions, "Return a sink of a topic of a Pulsar cluster.")
stream_file_source = source_call(FileStreamSourceOptions, "Return a source of streams of a file.")
stream_file_sink = sink_call(FileStreamSinkOptions, "Return a sink of a stream of a file.")
websocket_source = source_call(
    WebSocketSourceOptions, "Return a source of messages received over WebSockets."
)
websocket_sink = sink_call(WebSocketSinkOptions, "Return a sink of messages over WebSockets.")
