"""Sinks from one text: ``redis://host:6379/orders?format=json``, and how such a text is read.

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
from bicycle_sdk.secrets import Secret

__all__ = [
    "REDIS",
    "Query",
    "address_of",
    "format_of",
    "given_options",
    "is_stream_file",
    "payload_options",
    "redis_options",
    "refused",
    "sink_from_uri",
]

REDIS = ("redis", "rediss")
_BOOLS = {"true": True, "false": False}
_WITH_SCHEMA: Mapping[str, Callable[[str], Format]] = {"avro": avro, "protobuf": protobuf}


def sink_from_uri(uri: str) -> SinkDescriptor[Any]:
    """Return the sink that a URI names.

    Args:
        uri: ``redis://host:6379/orders`` or ``file://./events.ss/orders``, with a format behind
            the question mark where records are no texts.

    Raises:
        StreamDefinitionError: the URI names no sink, or an option that it does not have.

    Example:
        >>> sink_from_uri("file://./events.ss/orders?format=json").properties
        {'address': 'file://./events.ss/orders', 'value_format': 'json'}
    """
    parts = urlsplit(uri, allow_fragments=False)
    query = Query(parts)
    if parts.scheme in REDIS:
        word, properties = "redis", redis_options(query)
        properties |= given_options(max_length=query.number("max_length"))
    elif is_stream_file(parts):
        word, properties = "stream_file", {}
    else:
        raise refused(
            f"{uri!r} names no sink", "write redis://host:6379/key or file://./events.ss/key",
            call="to_uri",
        )  # fmt: skip
    properties = {"address": address_of(parts), **payload_options(query, None), **properties}
    query.require_all_used()
    return SinkDescriptor(connector_type=word, properties=properties)


class Query:
    """The options behind the question mark; what nobody asked for is an error."""

    def __init__(self, parts: SplitResult) -> None:
        self._scheme = parts.scheme
        self._values: dict[str, str] = {}
        self._used: list[str] = []
        for name, value in parse_qsl(parts.query, keep_blank_values=True):
            if name in self._values:
                raise refused(f"option {name!r} is given twice", "give it once")
            self._values[name] = value

    def text(self, name: str) -> str | None:
        """Return an option as it is; None when it is not given."""
        self._used.append(name)
        return self._values.get(name)

    def flag(self, name: str) -> bool:
        """Return an option that is true or false; false when it is not given."""
        text = self.text(name)
        if text is not None and text not in _BOOLS:
            raise refused(f"option {name!r} is {text!r}", "give true or false")
        return text is not None and _BOOLS[text]

    def number(self, name: str) -> int | None:
        """Return an option that is a whole number."""
        text = self.text(name)
        if text is not None and not (text.isascii() and text.isdigit()):
            raise refused(f"option {name!r} is {text!r}", "give a whole number")
        return None if text is None else int(text)

    def require_all_used(self) -> None:
        """Refuse options that the source does not have."""
        for name in self._values:
            if name not in self._used:
                known = ", ".join(self._used)
                hint = f"options of {self._scheme}: are {known}"
                raise refused(f"there is no option {name!r}", hint)


def payload_options(query: Query, record_type: Any) -> dict[str, Any]:
    """Return the options that say how payloads are read or written."""
    format = format_of(query)
    if format is None:
        plain = {str: "string", bytes: "bytes", None: "string"}
        name = plain.get(record_type, "json")
        return {} if name == "string" else {"value_format": name}
    return {"value_format": format.name} | given_options(
        value_format_options=dict(format.options) or None
    )


def redis_options(query: Query) -> dict[str, Any]:
    """Return the options that say how a server of Redis is reached."""
    variable = query.text("password_env")
    return given_options(
        username=query.text("username"),
        password=None if variable is None else Secret.env(variable).to_json(),
        db=query.number("db"),
        message_field=query.text("message_field"),
    )


def given_options(**options: Any) -> dict[str, Any]:
    """Return the options that were given: the connector knows the defaults of others."""
    return {name: value for name, value in options.items() if value is not None}


def address_of(parts: SplitResult) -> str:
    """Return the address of streams, without the options behind it."""
    return f"{parts.scheme}://{parts.netloc}{unquote(parts.path)}"


def is_stream_file(parts: SplitResult) -> bool:
    """Whether a URI names streams of a file: ``file://./events.ss/orders``."""
    return parts.scheme == "file" and PurePath(parts.netloc + parts.path).parent.suffix == ".ss"


def format_of(query: Query) -> Format | None:
    """Return the format that a URI names; ``schema`` is what the format needs."""
    name, schema = query.text("format"), query.text("schema")
    make = _WITH_SCHEMA.get(name or "")
    if schema is None:
        return None if name is None else as_format(name, call="from_uri")
    if make is None:
        raise refused(f"the format {name!r} takes no schema", "leave the option 'schema' out")
    return make(schema)


def refused(problem: str, hint: str, *, call: str = "from_uri") -> StreamDefinitionError:
    """Return the error of a text that names nothing."""
    return StreamDefinitionError(call=call, problem=problem, hint=hint)
