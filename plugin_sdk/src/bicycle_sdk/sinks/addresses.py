"""Sinks from a text such as ``redis://host:6379/orders?format=json``.

The scheme names the kind, the rest the place, the query the options. Nothing is opened here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from bicycle_sdk.connectors import SinkDescriptor
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.formats import Format, as_format, avro, protobuf
from bicycle_sdk.kafka import DeliveryGuarantee, KafkaSinkBuilder
from bicycle_sdk.secrets import Secret

__all__ = [
    "NOT_KEPT",
    "PULSAR",
    "REDIS",
    "Query",
    "address_error",
    "address_of",
    "format_of",
    "format_with_schema",
    "given_options",
    "is_stream_file",
    "payload_options",
    "pulsar_options",
    "redis_options",
    "sink_from_uri",
    "socket_address",
    "tls_options",
]

PULSAR = ("pulsar", "pulsar+ssl")
REDIS = ("redis", "rediss")
_BOOLS = {"true": True, "false": False}
NOT_KEPT = {
    "socket": "socket_stream",
    "stdio": "stdio",
    "ws": "websocket",
    "wss": "websocket",
}
_WITH_SCHEMA: Mapping[str, Callable[[str], Format]] = {"avro": avro, "protobuf": protobuf}


def sink_from_uri(uri: str) -> SinkDescriptor[Any]:
    """Return the sink that a URI names.

    Args:
        uri: ``redis://host:6379/orders``, ``file://./events.ss/orders``, ``kafka:``, ``ws:``,
            ``socket:`` or ``stdio:``, with a format behind the question mark where records are no
            texts.

    Raises:
        StreamDefinitionError: the URI names no sink, or an option that it does not have.

    Example:
        >>> sink_from_uri("file://./events.ss/orders?format=json").properties
        {'address': 'file://./events.ss/orders', 'value_format': 'json'}
    """
    parts = urlsplit(uri, allow_fragments=False)
    query = Query(parts, call="to_uri")
    if parts.scheme == "kafka":
        sink = _kafka(parts, query)
    elif parts.scheme == "socket" and not parts.path.strip("/"):
        host, port = socket_address(parts, call="to_uri")
        sink = SinkDescriptor(connector_type="socket", properties={"host": host, "port": port})
    else:
        sink = _stream(uri, parts, query)
    query.require_all_used()
    return sink


def _stream(uri: str, parts: SplitResult, query: Query) -> SinkDescriptor[Any]:
    """Return the sink of one stream of the toolkit."""
    if parts.scheme in REDIS:
        word, properties = "redis", redis_options(query)
        properties |= given_options(max_length=query.number("max_length"))
    elif parts.scheme in PULSAR:
        word, properties = "pulsar", pulsar_options(query)
    elif is_stream_file(parts):
        word, properties = "stream_file", {}
    elif parts.scheme in NOT_KEPT:
        word, properties = NOT_KEPT[parts.scheme], {}
        if word != "stdio":
            properties |= given_options(listen=query.flag("listen") or None)
        if word == "socket_stream":
            properties |= given_options(heads=query.flag("heads") or None)
        if word == "websocket":
            properties |= tls_options(query)
    else:
        raise address_error(
            f"{uri!r} is not the URI of a sink",
            "write redis://host:6379/key, pulsar://host:6650/key, file://./events.ss/key, "
            "kafka://host:9092/topic, ws://host:port/key, socket://host:port or stdio:///key",
            call="to_uri",
        )
    properties = {"address": address_of(parts), **payload_options(query, None), **properties}
    return SinkDescriptor(connector_type=word, properties=properties)


def _kafka(parts: SplitResult, query: Query) -> SinkDescriptor[Any]:
    topic = unquote(parts.path.strip("/"))
    if not parts.netloc or not topic or "," in topic:
        problem = f"the address contains {parts.netloc!r} and {topic!r}"
        raise address_error(problem, "write kafka://host:9092/topic", call="to_uri")
    builder = KafkaSinkBuilder[Any](parts.netloc, topic)
    builder.serializer(format_of(query) or "string")
    guarantee = query.text("guarantee")
    if guarantee is not None:
        known = [each.value for each in DeliveryGuarantee]
        if guarantee not in known:
            hint = f"give {' or '.join(known)}"
            raise address_error(f"option 'guarantee' is {guarantee!r}", hint, call="to_uri")
        builder.delivery_guarantee(DeliveryGuarantee(guarantee))
    return builder.build_connector()


def socket_address(parts: SplitResult, *, call: str = "from_uri") -> tuple[str, int]:
    """Return host and port of an address without a stream."""
    try:
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise address_error(str(error), "write socket://127.0.0.1:9999", call=call) from error
    if host is None or port is None:
        raise address_error("host or port is missing", "write socket://127.0.0.1:9999", call=call)
    return host, port


class Query:
    """The options in a URI's query; an unused option is an error."""

    def __init__(self, parts: SplitResult, *, call: str = "from_uri") -> None:
        self.call = call
        self._scheme = parts.scheme
        self._values: dict[str, str] = {}
        self._used: list[str] = []
        for name, value in parse_qsl(parts.query, keep_blank_values=True):
            if name in self._values:
                raise address_error(f"duplicate option {name!r}", "set it once", call=call)
            self._values[name] = value

    def text(self, name: str) -> str | None:
        """Return an option as it is; None when it is not given."""
        self._used.append(name)
        return self._values.get(name)

    def flag(self, name: str) -> bool:
        """Return an option that is true or false; false when it is not given."""
        text = self.text(name)
        if text is not None and text not in _BOOLS:
            raise address_error(
                f"option {name!r} is {text!r}", "give true or false", call=self.call
            )
        return text is not None and _BOOLS[text]

    def number(self, name: str) -> int | None:
        """Return an option that is a whole number."""
        text = self.text(name)
        if text is not None and not (text.isascii() and text.isdigit()):
            raise address_error(
                f"option {name!r} is {text!r}", "give a whole number", call=self.call
            )
        return None if text is None else int(text)

    def require_all_used(self) -> None:
        """Refuse options that the source does not have."""
        for name in self._values:
            if name not in self._used:
                known = ", ".join(self._used)
                hint = f"known options of {self._scheme}: {known}"
                raise address_error(f"unknown option {name!r}", hint, call=self.call)


def payload_options(query: Query, record_type: Any) -> dict[str, Any]:
    """Return the options for reading or writing payloads."""
    format = format_of(query)
    if format is None:
        plain = {str: "string", bytes: "bytes", None: "string"}
        name = plain.get(record_type, "json")
        return {} if name == "string" else {"value_format": name}
    return {"value_format": format.name} | given_options(
        value_format_options=dict(format.options) or None
    )


def redis_options(query: Query) -> dict[str, Any]:
    """Return the options of the connection to a Redis server."""
    variable = query.text("password_env")
    return given_options(
        username=query.text("username"),
        password=None if variable is None else Secret.env(variable).to_json(),
        db=query.number("db"),
        message_field=query.text("message_field"),
        timestamps=query.text("timestamps"),
        **tls_options(query),
    )


def pulsar_options(query: Query) -> dict[str, Any]:
    """Return the options of the connection to a Pulsar cluster."""
    variable = query.text("token_env")
    return given_options(
        namespace=query.text("namespace"),
        admin_url=query.text("admin_url"),
        token=None if variable is None else Secret.env(variable).to_json(),
        **tls_options(query),
    )


def tls_options(query: Query) -> dict[str, Any]:
    """Return the options with the files for TLS."""
    return given_options(
        **{name: query.text(name) for name in ("ca_file", "cert_file", "key_file")}
    )


def given_options(**options: Any) -> dict[str, Any]:
    """Return the options that were given: the connector knows the defaults of others."""
    return {name: value for name, value in options.items() if value is not None}


def address_of(parts: SplitResult) -> str:
    """Return the address of streams, without the options behind it."""
    return f"{parts.scheme}://{parts.netloc}{unquote(parts.path)}"


def is_stream_file(parts: SplitResult) -> bool:
    """Return whether a URI names streams of a file: ``file://./events.ss/orders``."""
    return parts.scheme == "file" and PurePath(parts.netloc + parts.path).parent.suffix == ".ss"


def format_of(query: Query) -> Format | None:
    """Return the format that a URI names, with its ``schema``, or None."""
    name, schema = query.text("format"), query.text("schema")
    if name is None and schema is None:
        return None
    return format_with_schema(name, schema, call=query.call)


def format_with_schema(name: str | None, schema: str | None, *, call: str) -> Format:
    """Return a format by its name, with a schema if it has one.

    Args:
        name: The name.
        schema: The file of an Avro schema, or the location of a Protobuf message.
        call: The call that takes them, for errors.

    Raises:
        StreamDefinitionError: the format needs a schema or has none, or it cannot be read.
    """
    if schema is None:
        return as_format(name or "", call=call)
    make = _WITH_SCHEMA.get(name or "")
    if make is None:
        raise address_error(
            f"the format {name!r} has no schema", "remove the option 'schema'", call=call
        )
    return make(schema)


def address_error(problem: str, hint: str, *, call: str = "from_uri") -> StreamDefinitionError:
    """Return the error of a text that names nothing."""
    return StreamDefinitionError(call=call, problem=problem, hint=hint)
