"""Sinks from a text such as ``redis://host:6379/orders?format=json``.

The scheme names the connector, the rest its address, the query its options. Nothing is opened here.
"""

from __future__ import annotations

from typing import Any

from bicycle_sdk.descriptors import SinkDescriptor
from bicycle_sdk.uri_queries import read_connector, select_connector

__all__ = ["sink_from_uri"]

_CALL = "to_uri"


def sink_from_uri(uri: str) -> SinkDescriptor[Any]:
    """Return the sink that a URI names.

    Args:
        uri: ``redis://host:6379/orders``, ``delta:lake/orders``, ``jsonl:out`` and others, as
            listed in ``docs/reference/connectors.md``; or a scheme of an installed extension.

    Raises:
        StreamDefinitionError: the URI names no sink, or an option that it does not have.

    Example:
        >>> sink_from_uri("file://./events.ss/orders?format=json").properties
        {'address': 'file://./events.ss/orders', 'value_format': 'json'}
    """
    parts, options_class = select_connector("sink", uri, call=_CALL)
    sink: SinkDescriptor[Any] = read_connector(parts, options_class, call=_CALL, record_type=None)
    return sink
