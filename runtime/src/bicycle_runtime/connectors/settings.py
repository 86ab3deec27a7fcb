"""A connector's options from its graph properties, with errors for the vertex.

Beside properties the graph has payloads of a connector: here, the declared type of its records.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from bicycle_runtime.connectors.errors import CONNECTOR_OPTION_WRONG, CONNECTOR_PAYLOAD_WRONG
from bicycle_runtime.contract import ConnectorSpec
from bicycle_runtime.formats.contract import Codec
from bicycle_runtime.formats.registry import make_codec
from bicycle_sdk.connector_options import ConnectorOptions
from bicycle_sdk.errors import (
    BicycleError,
    ConfigError,
    DuplicateOptionError,
    MissingOptionError,
    OptionError,
    UnknownOptionError,
)
from bicycle_sdk.option_values import OptionValueError
from bicycle_sdk.options import from_mapping
from bicycle_sdk.record_types import type_name
from bicycle_sdk.stream_options import PayloadOptions

_T = TypeVar("_T")


def option_error(spec: ConnectorSpec, name: str, problem: str, hint: str) -> BicycleError:
    """Return the error about an option of a source or sink."""
    return CONNECTOR_OPTION_WRONG(
        vertex=spec.vertex_id, connector=spec.connector_type, name=name, problem=problem, hint=hint
    )


def require_decodable(
    spec: ConnectorSpec, record_type: Any, new_decoder: Callable[[Any], object]
) -> None:
    """Refuse a type of records that cannot be decoded, before anything is read.

    Args:
        spec: The connector.
        record_type: The type.
        new_decoder: Makes the decoder; raises TypeError for a type without one.

    Raises:
        CONNECTOR_PAYLOAD_WRONG: there is no decoder for it.
    """
    try:
        new_decoder(record_type)
    except TypeError as error:
        raise CONNECTOR_PAYLOAD_WRONG(
            vertex=spec.vertex_id,
            connector=spec.connector_type,
            role="output_type",
            found=f"{type_name(record_type)}, which cannot be decoded ({error})",
            expected="a dataclass, TypedDict, NamedTuple, msgspec.Struct, a model of Pydantic 2, "
            "tuple, dict or list",
        ) from error


def codec_for(
    spec: ConnectorSpec, role: str, name: str, *, record_type: Any, options: object
) -> Codec:
    """Return the codec of a format that a connector's options request.

    Args:
        spec: The connector.
        role: The subject of the format, as in the option: ``value`` for ``value_format``.
        name: Of the format.
        record_type: Declared type of its records; None when there is no type.
        options: Of the format, as they were given.

    Raises:
        CONNECTOR_OPTION_WRONG: there is no such format, or it cannot be used so.
    """
    try:
        if not isinstance(options, Mapping | None):
            problem = f"{role}_format_options is {options!r}"
            raise ConfigError(problem=problem, hint="use a mapping from name to value")
        return make_codec(name, record_type, options or {})
    except BicycleError as error:
        raise option_error(spec, f"{role}_format", error.summary, error.remedy) from error


def payload_codec(spec: ConnectorSpec, options: PayloadOptions) -> Codec:
    """Return the codec of a stream's payloads; errors as of ``codec_for``."""
    return codec_for(
        spec, "value", str(options.value_format), record_type=spec.record_type,
        options=options.value_format_options,
    )  # fmt: skip


def read_options(options_class: type[_T], spec: ConnectorSpec) -> _T:
    """Return the options of a connector.

    Args:
        options_class: A dataclass whose fields are declared with ``base.options.option``.
        spec: The connector; its properties hold JSON values or texts.

    Raises:
        CONNECTOR_OPTION_WRONG: a property is unknown, missing, ill-typed or out of bounds, or
            contradicts another one.
    """
    cause: ConfigError
    try:
        options = from_mapping(options_class, spec.properties)
    except UnknownOptionError as error:
        cause, problem = error, "unknown property"
        hint = f"known are: {error.facts['known_text']}"
        if error.facts["closest"]:
            hint = f"use {error.facts['closest']!r}; {hint}"
    except DuplicateOptionError as error:
        cause, problem = error, f"it is also set as {error.facts['other']!r}"
        hint = error.remedy
    except MissingOptionError as error:
        cause, problem = error, "it is required"
        hint = f"set {error.facts['expected']}: {error.facts['doc']}"
    except OptionError as error:
        cause, problem = error, f"{error.facts['found']!r} is not valid"
        hint = f"use {error.facts['expected']}"
        if isinstance(error.__cause__, OptionValueError):
            problem, hint = error.__cause__.problem, error.__cause__.hint
    else:
        _refuse_conflicts(options, spec)
        return options
    raise option_error(spec, cause.facts["name"], problem, hint) from cause


def _refuse_conflicts(options: object, spec: ConnectorSpec) -> None:
    found = options.conflicts() if isinstance(options, ConnectorOptions) else ()
    for each in found:
        raise option_error(spec, each.option, each.problem, each.hint)


def typed_path(spec: ConnectorSpec, path: str | os.PathLike[str], *, name: str = "path") -> str:
    """Return the path that an option means; ``name`` is that of the option.

    Raises:
        CONNECTOR_OPTION_WRONG: it is empty, as an unset variable of a shell leaves it.
    """
    text = os.fspath(path)
    if not text.strip():
        raise option_error(spec, name, "it is empty", "use a path; '.' is the working directory")
    if text.startswith("~"):
        with contextlib.suppress(RuntimeError):  # There is no such user, so it is a name.
            return str(Path(text).expanduser())
    return text
