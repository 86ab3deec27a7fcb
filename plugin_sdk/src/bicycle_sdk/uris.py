"""Sources from one text, as configuration gives them: ``kafka://broker:9092/orders?group=readers``.

The scheme names what is read, the rest where, the query how. A URI says what most jobs need; the
calls of the environment and the builders can say more. Nothing is opened here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from bicycle_sdk import connectors
from bicycle_sdk.connectors import SourceDescriptor
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.formats import Format, as_format, avro, protobuf
from bicycle_sdk.kafka import KafkaSourceBuilder

__all__ = ["source_from_uri"]

_FORMATS = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".log": "text",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".txt": "text",
}
_COMPRESSED = (".gz", ".zst")
_BOOLS = {"true": True, "false": False}


def source_from_uri(uri: str, record_type: Any = None) -> SourceDescriptor[Any]:
    """Return the source that a URI names.

    Args:
        uri: ``file:``, ``kafka:``, ``socket:`` or ``generator:``, as listed in
            ``docs/reference/connectors.md``.
        record_type: Type of the records; None for what the source gives by itself.

    Raises:
        StreamDefinitionError: the URI names no source, or an option that the source does not have.

    Example:
        >>> source_from_uri("file:in/*.jsonl?follow=true").properties
        {'path': 'in/*.jsonl', 'follow': True}
    """
    parts = urlsplit(uri, allow_fragments=False)
    make = _SCHEMES.get(parts.scheme)
    if make is None:
        known = ", ".join(_SCHEMES)
        problem = (
            f"{uri!r} has the scheme {parts.scheme!r}" if parts.scheme else f"{uri!r} has none"
        )
        raise _refused(
            f"{problem}; known schemes: {known}", "begin with one of them, as file:in.txt"
        )
    query = _Query(parts)
    source = make(parts, query, record_type)
    query.require_all_used()
    if record_type is not None and source.output_type is str and record_type is not str:
        raise _refused(f"{uri!r} gives str", "map the lines, or leave the type out")
    return source


class _Query:
    """The options behind the question mark; what nobody asked for is an error."""

    def __init__(self, parts: SplitResult) -> None:
        self._scheme = parts.scheme
        self._values: dict[str, str] = {}
        self._used: list[str] = []
        for name, value in parse_qsl(parts.query, keep_blank_values=True):
            if name in self._values:
                raise _refused(f"option {name!r} is given twice", "give it once")
            self._values[name] = value

    def text(self, name: str) -> str | None:
        """Return an option as it is; None when it is not given."""
        self._used.append(name)
        return self._values.get(name)

    def flag(self, name: str) -> bool:
        """Return an option that is true or false; false when it is not given."""
        text = self.text(name)
        if text is not None and text not in _BOOLS:
            raise _refused(f"option {name!r} is {text!r}", "give true or false")
        return text is not None and _BOOLS[text]

    def number(self, name: str) -> int | None:
        """Return an option that is a whole number."""
        text = self.text(name)
        if text is not None and not (text.isascii() and text.isdigit()):
            raise _refused(f"option {name!r} is {text!r}", "give a whole number")
        return None if text is None else int(text)

    def require_all_used(self) -> None:
        """Refuse options that the source does not have."""
        for name in self._values:
            if name not in self._used:
                known = ", ".join(self._used)
                hint = f"options of {self._scheme}: are {known}"
                raise _refused(f"there is no option {name!r}", hint)


def _file(parts: SplitResult, query: _Query, record_type: Any) -> SourceDescriptor[Any]:
    path = unquote(parts.path)
    if parts.netloc or not path:
        raise _refused(
            f"the path is {parts.netloc + path!r}",
            "write file:relative/path or file:///absolute/path",
        )
    name = PurePath(path).name
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    format = query.text("format") or _FORMATS.get(PurePath(name).suffix, "")
    follow, field = query.flag("follow"), query.text("timestamp_field")
    if format == "text" and field is None:
        return connectors.text_file_source(path, follow=follow)
    typed = _TYPED_FILES.get(format)
    if typed is None:
        problem = f"option 'format' is {format!r}" if format else f"{name!r} tells no format"
        if format == "text":
            problem = "a line of text has no fields for 'timestamp_field'"
        raise _refused(problem, f"add ?format= with one of text, {', '.join(_TYPED_FILES)}")
    return typed(path, follow=follow, record_type=record_type or dict, timestamp_field=field)


def _kafka(parts: SplitResult, query: _Query, record_type: Any) -> SourceDescriptor[Any]:
    topics = [unquote(topic) for topic in parts.path.strip("/").split(",") if topic]
    if not parts.netloc or not topics:
        raise _refused("brokers or topic are missing", "write kafka://host:9092/topic")
    format = _format(query)
    declared = str if record_type is None and format is None else record_type
    builder = KafkaSourceBuilder[Any](parts.netloc, topics=topics, record_type=declared)
    if format is not None:
        builder.deserializer(format)
    calls: Mapping[str, Callable[[Any], Any]] = {
        "group": builder.group_id,
        "start": builder.starting_offsets,
    }
    for name, call in calls.items():
        value = query.text(name)
        if value is not None:
            call(value)
    if query.flag("bounded"):
        builder.bounded()
    return builder.build_connector()


def _format(query: _Query) -> Format | None:
    """Return the format that a URI names; ``schema`` is what the format needs."""
    name, schema = query.text("format"), query.text("schema")
    make = _WITH_SCHEMA.get(name or "")
    if schema is None:
        return None if name is None else as_format(name, call="from_uri")
    if make is None:
        raise _refused(f"the format {name!r} takes no schema", "leave the option 'schema' out")
    return make(schema)


def _socket(parts: SplitResult, _query: _Query, _record_type: Any) -> SourceDescriptor[Any]:
    try:
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise _refused(str(error), "write socket://127.0.0.1:9999") from error
    if host is None or port is None or parts.path.strip("/"):
        raise _refused("host or port are missing", "write socket://127.0.0.1:9999")
    return connectors.socket_source(host=host, port=port)


def _generator(_parts: SplitResult, query: _Query, _record_type: Any) -> SourceDescriptor[Any]:
    rate_ms = query.number("rate_ms")
    return connectors.generator_source(
        rate_ms=100 if rate_ms is None else rate_ms, count=query.number("count")
    )


_WITH_SCHEMA: Mapping[str, Callable[[str], Format]] = {"avro": avro, "protobuf": protobuf}
_TYPED_FILES: Mapping[str, Callable[..., SourceDescriptor[Any]]] = {
    "jsonl": connectors.jsonl_file_source,
    "csv": connectors.csv_file_source,
    "parquet": connectors.parquet_file_source,
}
_SCHEMES: Mapping[str, Callable[[SplitResult, _Query, Any], SourceDescriptor[Any]]] = {
    "file": _file,
    "kafka": _kafka,
    "socket": _socket,
    "generator": _generator,
}


def _refused(problem: str, hint: str) -> StreamDefinitionError:
    return StreamDefinitionError(call="from_uri", problem=problem, hint=hint)
