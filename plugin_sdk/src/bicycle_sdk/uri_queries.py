"""The options of connectors in the query of a URI: ``?format=json&group=readers``.

Each option of a connector is accepted by its name and its aliases, and its text is parsed as in any
other text: times and sizes with units, lists with commas, secrets as ``env:NAME``.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import PurePath
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from bicycle_sdk.connector_options import path_of
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.formats import Format, as_format, avro, format_of, protobuf
from bicycle_sdk.former_names import note_former_name
from bicycle_sdk.installed import Role, options_of_scheme, uri_schemes
from bicycle_sdk.options import OptionInfo, describe, parse
from bicycle_sdk.quantities import with_unit
from bicycle_sdk.secrets import Secret

__all__ = [
    "Query",
    "address_error",
    "format_with_schema",
    "keys_of_uri",
    "read_connector",
    "select_connector",
]

_BOOLS = {"true": True, "false": False}
_WITH_SCHEMA: Mapping[str, Callable[[str], Format]] = {"avro": avro, "protobuf": protobuf}
_FORMAT = "value_format"
_EXAMPLES: Mapping[Role, str] = {"source": "file:in.txt", "sink": "jsonl:out"}
_FILE_FORMATS = ("text", "jsonl", "csv", "parquet")
_FORMATS_BY_ENDING: Mapping[str, str] = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".log": "text",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".txt": "text",
}
_COMPRESSED = (".gz", ".zst")


def select_connector(role: Role, uri: str, *, call: str) -> tuple[SplitResult, Any]:
    """Return the parts of a URI, and the options class of the connector that it names.

    The scheme of a file source is the format of the file: ``file:in.csv`` is ``csv:in.csv``.

    Args:
        role: Source or sink.
        uri: The URI.
        call: The call, for errors.

    Raises:
        StreamDefinitionError: the scheme is unknown, or a file has no known format.
    """
    try:
        parts = urlsplit(uri, allow_fragments=False)
    except ValueError as error:
        raise address_error(f"{uri!r}: {error}", "correct the host", call=call) from error
    is_plain_file = parts.scheme == "file" and not _is_stream_file(parts)
    if is_plain_file and role == "source":
        parts = _with_format_as_scheme(parts, call)
        is_plain_file = False
    found = None if is_plain_file else options_of_scheme(role, parts.scheme)
    if found is None:
        problem = f"has the scheme {parts.scheme!r}" if parts.scheme else "has no scheme"
        if is_plain_file:
            problem = "is a file without a stream; write file://./events.ss/key"
        raise address_error(
            f"{uri!r} {problem}; known schemes: {', '.join(sorted(uri_schemes(role)))}",
            f"start the URI with a known scheme, e.g. {_EXAMPLES[role]}",
            call=call,
        )
    return parts, found


def _is_stream_file(parts: SplitResult) -> bool:
    """Return whether a URI names streams of a file: ``file://./events.ss/orders``."""
    return PurePath(parts.netloc + parts.path).parent.suffix == ".ss"


def _with_format_as_scheme(parts: SplitResult, call: str) -> SplitResult:
    """Return the URI of a file with its format as the scheme."""
    try:
        name = PurePath(path_of(parts)).name
    except ValueError as error:
        raise address_error(str(error), "correct the path", call=call) from error
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    query = Query(parts, call=call).texts
    format = query.pop("format", "") or _FORMATS_BY_ENDING.get(PurePath(name).suffix, "")
    if format not in _FILE_FORMATS:
        problem = (
            f"option 'format' is {format!r}" if format else f"{name!r} does not identify a format"
        )
        hint = f"add ?format= with one of {', '.join(_FILE_FORMATS)}"
        raise address_error(problem, hint, call=call)
    return parts._replace(scheme=format, query=urlencode(query))


def keys_of_uri(role: Role, uri: str) -> tuple[Any, dict[str, Any]]:
    """Return the options class that a URI selects, and its options as plain keys.

    A value is a text, or what a JSON text contains; ``password_env=NAME`` is ``password``. Names
    and values are not checked.

    Raises:
        StreamDefinitionError: the scheme is unknown, or the address or the query is malformed.
    """
    parts, options_class = select_connector(role, uri, call="uri")
    keys = _address(parts, options_class, call="uri")
    secrets = {
        f"{info.name}_env": info.name for info in describe(options_class) if info.hint is Secret
    }
    for key, text in Query(parts, call="uri").texts.items():
        name = secrets.get(key, key)
        if name in keys:
            raise address_error(f"duplicate option {name!r}", "set it once", call="uri")
        keys[name] = f"env:{text}" if key in secrets else _value(text)
    return options_class, keys


def _value(text: str) -> Any:
    """Return the value of a JSON table or list, or any other text itself."""
    if text[:1] in ("{", "["):
        with suppress(ValueError):
            return json.loads(text)
    return text


def _address(parts: SplitResult, options_class: Any, *, call: str) -> dict[str, Any]:
    """Return the options in the address of a URI."""
    try:
        address: dict[str, Any] = options_class.from_address(parts)
    except ValueError as error:
        hint = f"see the docs of {options_class.connector.call}"
        raise address_error(str(error), hint, call=call) from error
    return address


def read_connector(parts: SplitResult, options_class: Any, *, call: str, record_type: Any) -> Any:
    """Return the source or sink of a URI, from the options class of its connector.

    Args:
        parts: The URI.
        options_class: A subclass of ``SourceOptions`` or ``SinkOptions``.
        call: The call, for errors.
        record_type: The declared type of records, or None.

    Raises:
        StreamDefinitionError: the address or an option is wrong.
    """
    address = _address(parts, options_class, call=call)
    infos = describe(options_class)
    options = Query(parts, call=call).options(infos, address)
    address |= _type_of_records(options_class, record_type)
    given = {*address, *options}
    if missing := [info for info in infos if info.is_required and info.name not in given]:
        name = missing[0].name
        hint = f"add {name}=… to the query: {missing[0].doc}"
        raise address_error(f"option {name!r} is not set", hint, call=call)
    default = {info.name: info.default for info in infos}.get(_FORMAT, "")
    if default != "" and _FORMAT not in options:
        name = "string" if record_type is None else format_of(record_type)
        options |= {} if name == default else {_FORMAT: name}
    return options_class(**address, **options).build_connector()


def _type_of_records(options_class: Any, record_type: Any) -> dict[str, Any]:
    """Return the type of the records for a class that takes it beside its options."""
    names = {field.name for field in dataclasses.fields(options_class)} & {"record_type", "type"}
    return {} if record_type is None else dict.fromkeys(names, record_type)


class Query:
    """The options in a URI's query; an unused option is an error.

    Args:
        parts: The URI.
        call: The call, for errors.

    Attributes:
        texts: The texts of the options, by the names in the query.
    """

    def __init__(self, parts: SplitResult, *, call: str) -> None:
        self.call = call
        self._scheme = parts.scheme
        self.texts: dict[str, str] = {}
        for name, value in parse_qsl(parts.query, keep_blank_values=True):
            if name in self.texts:
                raise address_error(f"duplicate option {name!r}", "set it once", call=call)
            self.texts[name] = value

    def options(
        self, infos: Collection[OptionInfo], address: Collection[str] = ()
    ) -> dict[str, Any]:
        """Return the options of a connector that the query has, as values of their types.

        Args:
            infos: The options of the connector.
            address: The options that are in the address of the URI.

        Raises:
            StreamDefinitionError: an option is unknown, set twice, or has a wrong value.
        """
        known = {info.name: info for info in infos if info.name not in address}
        names = {alias: info.name for info in known.values() for alias in info.aliases}
        names |= {f"{info.name}_env": info.name for info in known.values() if info.hint is Secret}
        if _FORMAT in known:
            names |= {"format": _FORMAT, "schema": "value_format_options"}
        found: dict[str, Any] = {}
        for key, text in self.texts.items():
            name = names.get(key, key)
            if name not in known:
                raise self._unknown(key, known, names)
            if name in found:
                raise address_error(f"duplicate option {key!r}", "set it once", call=self.call)
            if key in known[name].aliases and key != "format":
                note_former_name(key, name)
            found[name] = self._parse(key, text, known[name])
        return found | self._format(found)

    def _unknown(self, name: str, known: Collection[str], more: Collection[str]) -> Exception:
        near = difflib.get_close_matches(name, [*known, *more], n=1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        hint = f"{meant}known options of {self._scheme}: {', '.join(known)}"
        return address_error(f"unknown option {name!r}", hint, call=self.call)

    def _parse(self, key: str, text: str, info: OptionInfo) -> Any:
        """Return the value of an option from its text."""
        if key == f"{info.name}_env":
            text = f"env:{text}"
        if info.unit == "ms":
            text = with_unit(key, text)
        try:
            is_open = info.hint is object or info.is_map or hasattr(info.hint, "from_option")
            if is_open and text[:1] in ("{", "["):
                return parse(info, json.loads(text))
            if info.hint is bool and text not in _BOOLS:
                raise ValueError(text)
            return parse(info, text)
        except ValueError as error:
            shown = "not a valid value" if info.hides_values else repr(text)
            raise address_error(
                f"option {key!r} is {shown}", f"give {info.expected}", call=self.call
            ) from error

    def _format(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """Return the format of values with its schema, if the query has one."""
        schema, name = self.texts.get("schema"), found.get(_FORMAT)
        if (name is None and schema is None) or "value_format_options" in self.texts:
            return {}
        format = format_with_schema(name, schema, call=self.call)
        options = {"value_format_options": dict(format.options)} if format.options else {}
        return {_FORMAT: format.name, **options}


def format_with_schema(name: str | None, schema: str | None, *, call: str) -> Format:
    """Return a format by its name, with a schema if it has one.

    Args:
        name: The name.
        schema: The file of an Avro schema, or the location of a Protobuf message.
        call: The call with these arguments, for errors.

    Raises:
        StreamDefinitionError: a schema is missing, not supported by the format, or not readable.
    """
    make = _WITH_SCHEMA.get(name or "")
    if schema is None:
        if make is not None:
            problem = f"the format {name!r} needs a schema"
            raise address_error(problem, "set the option 'schema'", call=call)
        return as_format(name or "", call=call)
    if make is None:
        raise address_error(
            f"the format {name!r} has no schema", "remove the option 'schema'", call=call
        )
    return make(schema)


def address_error(problem: str, hint: str, *, call: str) -> StreamDefinitionError:
    """Return the error of a text that names nothing."""
    return StreamDefinitionError(call=call, problem=problem, hint=hint)
