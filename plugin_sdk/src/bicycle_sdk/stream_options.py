"""Options of streams of Redis, Pulsar, files, WebSockets, sockets and pipes.

The address names the stream: ``redis://host:6379/orders``. Records are texts, unless a format is
given::

    env.add_source(redis_source("redis://host:6379/orders", value_format="json", group="readers"))
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import unquote, urlsplit

from bicycle_sdk.client_options import (
    BoundedInput,
    Listening,
    Publication,
    PulsarCluster,
    ReaderGroup,
    RedisServer,
    Rewinding,
    ValueFormat,
)
from bicycle_sdk.connector_options import (
    Conflict,
    ConnectorOptions,
    SinkOptions,
    SourceOptions,
    sink_call,
    source_call,
)
from bicycle_sdk.formats import Format, split_formats, type_given_by
from bicycle_sdk.options import adapt_option, option, shared_options
from bicycle_sdk.passwords import PasswordReference
from bicycle_sdk.secrets import Secret
from bicycle_sdk.tls_files import TlsFiles

if TYPE_CHECKING:
    from urllib.parse import SplitResult

__all__ = [
    "AddressOptions",
    "FileStreamSinkOptions",
    "FileStreamSourceOptions",
    "JournalOptions",
    "PayloadOptions",
    "PublishedOptions",
    "PulsarLogin",
    "PulsarSinkOptions",
    "PulsarSourceOptions",
    "ReceivedOptions",
    "RedisLogin",
    "RedisSinkOptions",
    "RedisSourceOptions",
    "SentOptions",
    "SocketLines",
    "StdioSinkOptions",
    "StdioSourceOptions",
    "StreamSinkOptions",
    "StreamSourceOptions",
    "WebSocketPeer",
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


@shared_options
class PayloadOptions(ValueFormat):
    """The format of payloads, by default text."""

    value_format: str | Format = adapt_option(ValueFormat, "value_format", default="string")

    @classmethod
    def from_arguments(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return arguments with a ``Format`` as its name and its options."""
        return split_formats(given, "value_format")

    def output_type(self) -> Any:
        """Return the type of the records, if the format has one."""
        return type_given_by(str(self.value_format))


@shared_options
class AddressOptions(PayloadOptions):
    """The address of streams, and the format of their payloads."""

    address: str = option(
        kw_only=False,
        doc="Address of the streams: PROTOCOL://NODE/KEY,KEY, e.g. redis://host:6379/orders. A "
        "sink writes one stream.",
    )

    @classmethod
    def from_address(cls, parts: SplitResult) -> dict[str, Any]:
        """Return the option ``address``: the URI without its query."""
        return {"address": f"{parts.scheme}://{parts.netloc}{unquote(parts.path)}"}


@shared_options
class SocketLines(Listening, PayloadOptions):
    """Lines over TCP: the address, the connecting side, and the form of a line.

    Programs of other machines reach a listening socket only if ``host`` allows it. Clients are not
    authenticated.
    """

    port: int = option(
        default=9999,
        low=0,
        high=65_535,
        doc="Port of the socket; to listen, 0 selects a free port.",
    )
    host: str = option(
        default="127.0.0.1",
        doc=(
            "Host to listen on or to connect to; with `0.0.0.0`, other machines can connect "
            "without authentication. An address is accepted, too: socket://host:port/key."
        ),
        aliases=("address",),
    )
    stream: str = option(
        default="",
        doc=(
            "Key of the stream. With a key, the job connects to a server, unless `listen` is set; "
            "without a key, it listens, and other programs connect."
        ),
    )
    heads: bool = option(
        default=False,
        doc="Whether lines of a stream have heads as on pipes; otherwise a line is its payload.",
    )

    @classmethod
    def from_arguments(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return arguments with host and port, which graphs always have."""
        found = super().from_arguments(given)
        host = found.get("host")
        if isinstance(host, str) and host.startswith("socket://"):
            with contextlib.suppress(ValueError):
                address = cls.from_address(urlsplit(host))
                if not (address.keys() - {"host"}) & found.keys():
                    found = found | address
        return {"host": cls.host, "port": cls.port, **found}

    @classmethod
    def from_address(cls, parts: SplitResult) -> dict[str, Any]:
        """Return host, port and stream."""
        host, port, stream = parts.hostname, parts.port, unquote(parts.path).strip("/")
        if not host or port is None:
            raise ValueError("host or port is missing; write socket://127.0.0.1:9999")
        return {"host": host, "port": port, **({"stream": stream} if stream else {})}

    @property
    def is_server(self) -> bool:
        """True if other programs connect."""
        return self.listen or not self.stream

    @property
    def address(self) -> str:
        """The address as a URI."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"socket://{host}:{self.port}" + (f"/{self.stream}" if self.stream else "")

    def conflicts(self) -> Iterator[Conflict]:
        """Yield options that do not fit the connecting side."""
        given = cast("ConnectorOptions", self).given_options()
        if "://" in self.host:
            problem = f"{self.host!r} is not a host, or port or stream is also set"
            yield Conflict("host", problem, "write socket://host:port/key, or a host")
        hint = f"set the stream: {self.address}/key"
        if self.heads and not self.stream:
            yield Conflict("heads", "lines without a stream have no heads", hint)
        for name in ("listen", "journal"):
            if given.get(name) is False and not self.stream:
                yield Conflict(name, "a socket without a stream listens, with a journal", hint)
        if not self.is_server and "clients_max" in given:
            yield Conflict("clients_max", "it applies to a listening socket", "set listen")


@shared_options
class RedisLogin(PasswordReference, RedisServer):
    """The Redis server with a password."""


@shared_options
class PulsarLogin(PulsarCluster):
    """The Pulsar cluster with a token."""

    token: Secret | None = option(default=None, doc="A reference to the token for the login.")


class _PayloadSource(AddressOptions, SourceOptions[Any]):
    """The options of all sources of streams: the address and the format."""


class StreamSourceOptions(BoundedInput, _PayloadSource):
    """The options of sources of stored streams: start and end."""

    start: Literal["earliest", "latest"] = option(
        default="earliest",
        doc="Start position of the first run; later runs continue after the last sealed epoch.",
    )
    on_data_loss: Literal["fail", "continue"] = adapt_option(
        BoundedInput, "on_data_loss", default="fail"
    )


class FileStreamSourceOptions(
    StreamSourceOptions, connector="stream_file", call="stream_file_source"
):
    """The options of the source of streams in a file: streams, start and format."""


class RedisSourceOptions(
    ReaderGroup,
    StreamSourceOptions,
    RedisLogin,
    connector="redis",
    extra="redis",
    call="redis_source",
):
    """The options of the Redis source: streams and server."""

    group: str = adapt_option(
        ReaderGroup,
        "group",
        default="",
        note="A consumer group in Redis whose position shows the progress of the job.",
    )
    retry_timeout_ms: int = option(
        default=60_000,
        low=1_000,
        high=3_600_000,
        doc="Time for which a task retries a lost connection.",
    )


class PulsarSourceOptions(
    ReaderGroup,
    StreamSourceOptions,
    PulsarLogin,
    connector="pulsar",
    extra="pulsar",
    call="pulsar_source",
):
    """The options of the Pulsar source: streams and cluster."""

    group: str = adapt_option(
        ReaderGroup,
        "group",
        note="A subscription, which retains unread messages: without one, Pulsar deletes them.",
    )


@shared_options
class JournalOptions:
    """The journal of received messages."""

    journal: bool = option(
        default=False,
        doc=(
            "Whether messages are written to disk before they are read, so that they count "
            "exactly once; lines of a socket without a stream always are."
        ),
    )
    journal_bytes_max: int = option(
        default=1 << 30, low=1 << 10, high=1 << 40,
        doc="Maximum number of received, unread bytes; at this limit, the source stops receiving.",
    )  # fmt: skip
    segment_bytes: int = option(
        default=8 << 20,
        low=1 << 10,
        high=1 << 30,
        doc="Size at which a new journal file begins.",
    )
    journal_epochs_min: int = option(
        default=10, low=1, high=1_000,
        doc="Number of published epochs whose journal is retained, to resume from an older epoch.",
    )  # fmt: skip

    @property
    def has_journal(self) -> bool:
        """True if messages are on disk before they are read."""
        return self.journal


class ReceivedOptions(JournalOptions, _PayloadSource):
    """The options of received streams: format and journal."""


class StdioSourceOptions(ReceivedOptions, connector="stdio", call="stdio_source"):
    """The options of the source of lines of standard input."""


@shared_options
class WebSocketPeer(Listening, TlsFiles):
    """The side of a connection over WebSockets, and its TLS files."""

    def conflicts(self) -> Iterator[Conflict]:
        """Yield an option that only applies to a server."""
        if not self.listen and "clients_max" in cast("ConnectorOptions", self).given_options():
            yield Conflict("clients_max", "it applies to a server", "set listen")


class WebSocketSourceOptions(
    WebSocketPeer,
    ReceivedOptions,
    connector="websocket",
    call="websocket_source",
):
    """The options of the WebSocket source: streams and subscription."""

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


class PublishedOptions(AddressOptions, Publication, SinkOptions):
    """The options of publication: the stream, the format, and the time limit."""


class StreamSinkOptions(Rewinding, PublishedOptions):
    """The additional options of a sink to a stream with storage."""


class FileStreamSinkOptions(StreamSinkOptions, connector="stream_file", call="stream_file_sink"):
    """The options of the sink of a stream in a file: stream and format."""


class RedisSinkOptions(
    StreamSinkOptions,
    RedisLogin,
    connector="redis",
    extra="redis",
    call="redis_sink",
):
    """The options of the Redis sink: stream and server."""

    max_length: int | None = option(
        default=None,
        low=1,
        doc="Approximate number of messages that a stream of Redis keeps; all of them if unset.",
    )


class SentOptions(PublishedOptions):
    """The options of a sink to a stream without storage."""


class StdioSinkOptions(SentOptions, connector="stdio", call="stdio_sink"):
    """The options of the sink of lines of standard output."""


class PulsarSinkOptions(
    SentOptions,
    PulsarLogin,
    connector="pulsar",
    extra="pulsar",
    call="pulsar_sink",
):
    """The options of the Pulsar sink: stream and cluster."""


class WebSocketSinkOptions(
    WebSocketPeer,
    SentOptions,
    connector="websocket",
    call="websocket_sink",
):
    """The options of the WebSocket sink: stream, connecting side and TLS."""


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
