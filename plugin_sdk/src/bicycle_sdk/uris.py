"""Sources from a URI: ``kafka://broker:9092/orders?group=readers``.

The scheme names the connector, the rest its address, the query its options. Nothing is opened here.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from bicycle_sdk.descriptors import SourceDescriptor
from bicycle_sdk.record_types import clash, type_name
from bicycle_sdk.uri_queries import address_error, read_connector, select_connector

__all__ = ["source_from_uri"]

_CALL = "from_uri"


def source_from_uri(uri: str, record_type: Any = None) -> SourceDescriptor[Any]:
    """Return the source that a URI names.

    Args:
        uri: ``file:``, ``kafka:``, ``redis:``, ``postgresql:``, ``socket:`` and others, as listed
            in ``docs/reference/connectors.md``; or a scheme of an installed extension.
        record_type: Type of the records; None for the source's default.

    Raises:
        StreamDefinitionError: the URI names no source, or an option that the source does not have.

    Example:
        >>> source_from_uri("file:in/*.jsonl?follow=true").properties
        {'follow': True, 'path': 'in/*.jsonl'}
    """
    parts, options_class = select_connector("source", uri, call=_CALL)
    source: SourceDescriptor[Any] = read_connector(
        parts, options_class, call=_CALL, record_type=record_type
    )
    if clash(source.output_type, record_type):
        raise address_error(
            f"{uri!r} returns {type_name(source.output_type)}, not {type_name(record_type)}",
            "convert the records with map, or remove the type",
            call=_CALL,
        )
    return source if record_type is None else dataclasses.replace(source, output_type=record_type)
