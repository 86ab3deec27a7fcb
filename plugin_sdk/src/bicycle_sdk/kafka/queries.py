"""Kafka sources and sinks from options in a text, such as a URI."""

from __future__ import annotations

import dataclasses
from typing import Any

from bicycle_sdk.kafka.base import is_secret_property
from bicycle_sdk.option_values import stored
from bicycle_sdk.options import describe
from bicycle_sdk.secrets import Secret

__all__ = ["read_properties"]


def read_properties(builder: Any, options_class: type[Any], options: dict[str, Any]) -> Any:
    """Return the source or sink of a builder, with options from a text.

    Args:
        builder: A builder of a source or sink.
        options_class: Its options class.
        options: Options by name; they replace those of the builder.

    Raises:
        StreamDefinitionError: a start position or a property of the client is wrong.
    """
    options = dict(options)
    start = options.pop("starting_offsets", None)
    if isinstance(start, dict):
        options["starting_offsets"] = start
    elif start is not None:
        builder.starting_offsets(start)
    for name, value in (options.pop("properties", None) or {}).items():
        builder.property(name, Secret.parse(str(value)) if is_secret_property(name) else value)
    built = builder.build_connector()
    hints = {info.name: info.hint for info in describe(options_class)}
    given = {name: stored(hints[name], value) for name, value in options.items()}
    return dataclasses.replace(built, properties={**built.properties, **given})
