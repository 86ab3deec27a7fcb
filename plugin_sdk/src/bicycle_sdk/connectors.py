"""Sources and sinks as plain values: a type, properties, and separate objects.

A descriptor opens nothing. The runtime looks the word up among its connectors; an extension may
bring further words, which ``SourceDescriptor`` and ``SinkDescriptor`` name directly.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar, overload

from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.record_types import common_item_type

__all__ = [
    "FileFormat",
    "SinkBuilder",
    "SinkDescriptor",
    "SourceBuilder",
    "SourceDescriptor",
    "built",
    "collect_sink",
    "collection_source",
    "console_sink",
    "csv_file_source",
    "file_sink",
    "generator_source",
    "jsonl_file_source",
    "parquet_file_source",
    "socket_sink",
    "socket_source",
    "text_file_source",
]

T = TypeVar("T")
S = TypeVar("S")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)
FileFormat = Literal["jsonl", "text", "csv"]
_Path = str | os.PathLike[str]

_FILE_SINKS: Mapping[str, str] = {"jsonl": "jsonl_file", "text": "text_file", "csv": "csv_file"}
_PORT_MAX = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDescriptor(Generic[T_co]):
    """A source of records.

    Args:
        connector_type: The word by which the runtime finds the connector.
        properties: Plain JSON; the connector rejects names that it does not know.
        payloads: Objects that are not JSON, by role; they travel beside the graph.
        output_type: The type of the records, None when unknown.
    """

    connector_type: str
    properties: Mapping[str, Any] = field(default_factory=dict)
    payloads: Mapping[str, Any] = field(default_factory=dict)
    output_type: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkDescriptor(Generic[T_contra]):
    """A sink of records; fields as in ``SourceDescriptor``, with an ``input_type``."""

    connector_type: str
    properties: Mapping[str, Any] = field(default_factory=dict)
    payloads: Mapping[str, Any] = field(default_factory=dict)
    input_type: Any = None


class SourceBuilder(Protocol[T_co]):
    """Whatever builds a source; ``env.add_source`` takes it as it takes a descriptor."""

    def build_connector(self) -> SourceDescriptor[T_co]:
        """Return the source as a plain value."""


class SinkBuilder(Protocol[T_contra]):
    """Whatever builds a sink; ``stream.sink_to`` takes it as it takes a descriptor."""

    def build_connector(self) -> SinkDescriptor[T_contra]:
        """Return the sink as a plain value."""


@overload
def built(call: str, builder: SourceBuilder[T]) -> SourceDescriptor[T]: ...
@overload
def built(call: str, builder: SinkBuilder[T]) -> SinkDescriptor[T]: ...
def built(call: str, builder: Any) -> Any:
    """Return the descriptor that a builder of a source or sink builds.

    Raises:
        StreamDefinitionError: it is not a connector.
    """
    if not hasattr(builder, "build_connector"):
        raise StreamDefinitionError(
            call=call,
            problem=f"{builder!r} is neither a source or sink nor a builder of a source or sink",
            hint="pass a source or sink, e.g. file_sink(path) or KafkaSourceBuilder(…)",
        )
    return builder.build_connector()


def collection_source(items: Iterable[T]) -> SourceDescriptor[T]:
    """Return a source of exactly these records, in order."""
    kept = list(items)
    return SourceDescriptor(
        connector_type="collection", payloads={"items": kept}, output_type=common_item_type(kept)
    )


def generator_source(*, rate_ms: int = 100, count: int | None = None) -> SourceDescriptor[str]:
    """Return a source that repeats seven words.

    Args:
        rate_ms: Pause between two words; 0 for as fast as they are read.
        count: Words in all; None forever.
    """
    _check(rate_ms >= 0, "generator_source", f"rate_ms is {rate_ms}, expected 0 or more")
    _check(count is None or count >= 0, "generator_source", f"count is {count}, expected 0 or more")
    properties = {"rate_ms": rate_ms} | ({} if count is None else {"count": count})
    return SourceDescriptor(connector_type="generator", properties=properties, output_type=str)


def socket_source(
    *, host: str = "127.0.0.1", port: int = 9999, clients_max: int | None = None
) -> SourceDescriptor[str]:
    """Return a source of lines from clients of a TCP server on ``host:port`` (0: any).

    Only programs of this machine reach it, unless ``host`` is an address that others reach; clients
    are not authenticated. ``clients_max`` is the limit of connected clients; more are refused.
    """
    properties = _socket_properties("socket_source", host, port, clients_max)
    return SourceDescriptor(connector_type="socket", properties=properties, output_type=str)


def text_file_source(path: _Path, *, follow: bool = False) -> SourceDescriptor[str]:
    """Return a source of the lines of a file, of files of a glob, or of a directory.

    Args:
        path: File, glob or directory.
        follow: Wait for appended lines and new files; otherwise the source ends when all is read.
    """
    properties = {"path": _file_path("read_text", path), "follow": follow}
    return SourceDescriptor(connector_type="text", properties=properties, output_type=str)


@overload
def jsonl_file_source(
    path: _Path, *, follow: bool = False, timestamp_field: str | None = None
) -> SourceDescriptor[dict[str, Any]]: ...
@overload
def jsonl_file_source(
    path: _Path, *, follow: bool = False, record_type: type[S], timestamp_field: str | None = None
) -> SourceDescriptor[S]: ...
def jsonl_file_source(
    path: _Path,
    *,
    follow: bool = False,
    record_type: Any = dict,
    timestamp_field: str | None = None,
) -> SourceDescriptor[Any]:
    """Return a source of JSON lines as records of ``record_type``.

    Args:
        path: File, glob or directory.
        follow: Wait for appended lines and new files.
        record_type: The type to which records are decoded.
        timestamp_field: Field with the event time, RFC 3339 or ms since 1970.
    """
    output_type = dict[str, Any] if record_type is dict else record_type
    return _file_source("jsonl", path, output_type, follow=follow, timestamp_field=timestamp_field)


@overload
def csv_file_source(
    path: _Path, *, follow: bool = False, timestamp_field: str | None = None
) -> SourceDescriptor[dict[str, str]]: ...
@overload
def csv_file_source(
    path: _Path, *, follow: bool = False, record_type: type[S], timestamp_field: str | None = None
) -> SourceDescriptor[S]: ...
def csv_file_source(
    path: _Path,
    *,
    follow: bool = False,
    record_type: Any = dict,
    timestamp_field: str | None = None,
) -> SourceDescriptor[Any]:
    """Return a source of CSV rows as records of ``record_type``, with a header row.

    Args:
        path: File, glob or directory.
        follow: Wait for appended lines and new files.
        record_type: The type to which records are decoded.
        timestamp_field: Field with the event time, RFC 3339 or ms since 1970.
    """
    output_type = dict[str, str] if record_type is dict else record_type
    return _file_source("csv", path, output_type, follow=follow, timestamp_field=timestamp_field)


@overload
def parquet_file_source(
    path: _Path, *, follow: bool = False, timestamp_field: str | None = None
) -> SourceDescriptor[dict[str, Any]]: ...
@overload
def parquet_file_source(
    path: _Path, *, follow: bool = False, record_type: type[S], timestamp_field: str | None = None
) -> SourceDescriptor[S]: ...
def parquet_file_source(
    path: _Path,
    *,
    follow: bool = False,
    record_type: Any = dict,
    timestamp_field: str | None = None,
) -> SourceDescriptor[Any]:
    """Return a source of Parquet rows as records of ``record_type``, columns by name.

    Args:
        path: File, glob or directory.
        follow: Wait for new files; a file must be whole when it appears.
        record_type: The type to which rows are converted; only its fields are read.
        timestamp_field: Column with the event time: a time with a zone, or ms since 1970.
    """
    output_type = dict[str, Any] if record_type is dict else record_type
    return _file_source(
        "parquet", path, output_type, follow=follow, timestamp_field=timestamp_field
    )


def console_sink() -> SinkDescriptor[Any]:
    """Return a sink that prints a line ``[SINK] <record>`` for each record."""
    return SinkDescriptor(connector_type="console")


def file_sink(
    path: _Path,
    *,
    format: FileFormat = "jsonl",
    roll_bytes: int | None = None,
    roll_ms: int | None = None,
    timestamp_field: str | None = None,
) -> SinkDescriptor[Any]:
    """Return a sink of files in a directory; only complete, sealed files are visible.

    Args:
        path: The directory; it is made when missing.
        format: JSON lines, text lines or CSV rows.
        roll_bytes: A file ends when it has this size; None: as the connector decides.
        roll_ms: A file ends when it is this old; None: as the connector decides.
        timestamp_field: Field of JSON lines or CSV that gets the event time, in ms since 1970.
    """
    _check(format in _FILE_SINKS, "file_sink", f"format must be jsonl, text or csv, got {format!r}")
    properties: dict[str, Any] = {"path": os.fspath(path)}
    if timestamp_field is not None:
        _check(
            format != "text",
            "file_sink",
            "timestamp_field needs format jsonl or csv; text has no fields",
        )
        properties["timestamp_field"] = timestamp_field
    for name, value in (("roll_bytes", roll_bytes), ("roll_ms", roll_ms)):
        if value is not None:
            _check(value >= 1, "file_sink", f"{name} is {value}, expected 1 or more")
            properties[name] = value
    return SinkDescriptor(connector_type=_FILE_SINKS[format], properties=properties)


def socket_sink(
    *, host: str = "127.0.0.1", port: int = 9998, clients_max: int | None = None
) -> SinkDescriptor[Any]:
    """Return a sink of lines to clients of a TCP server on ``host:port`` (0: any).

    Only programs of this machine reach it, unless ``host`` is an address that others reach; clients
    are not authenticated. ``clients_max`` is the limit of connected clients; more are refused.
    """
    properties = _socket_properties("socket_sink", host, port, clients_max)
    return SinkDescriptor(connector_type="socket", properties=properties)


def collect_sink(name: str) -> SinkDescriptor[Any]:
    """Return a sink to a list of that name in the test harness."""
    return SinkDescriptor(connector_type="collect", properties={"name": name})


def _file_source(
    connector_type: str, path: _Path, output_type: Any,
    *, follow: bool, timestamp_field: str | None,
) -> SourceDescriptor[Any]:  # fmt: skip
    call = f"read_{connector_type.removesuffix('_file')}"
    properties: dict[str, Any] = {"path": _file_path(call, path), "follow": follow}
    if timestamp_field is not None:
        properties["timestamp_field"] = timestamp_field
    return SourceDescriptor(
        connector_type=connector_type, properties=properties, output_type=output_type
    )


def _socket_properties(call: str, host: str, port: int, clients_max: int | None) -> dict[str, Any]:
    properties: dict[str, Any] = {"host": host, "port": _port(call, port)}
    if clients_max is not None:
        _check(clients_max >= 1, call, f"clients_max is {clients_max}, expected 1 or more")
        properties["clients_max"] = clients_max
    return properties


def _file_path(call: str, path: _Path) -> str:
    """Return the path of files to read; refuse a URI."""
    text = os.fspath(path)
    scheme, has_scheme, _ = text.partition("://")
    if has_scheme and scheme.isalnum():
        raise StreamDefinitionError(
            call=call,
            problem=f"{text!r} is a URI, not the path of a file",
            hint=f"call from_uri({text!r}), which supports URIs (kafka, socket, file, …)",
        )
    return text


def _port(call: str, port: int) -> int:
    _check(0 <= port <= _PORT_MAX, call, f"port is {port}, expected 0..{_PORT_MAX}")
    return port


def _check(condition: bool, call: str, problem: str) -> None:
    if not condition:
        raise StreamDefinitionError(
            call=call, problem=problem, hint="give a value within the bounds"
        )
