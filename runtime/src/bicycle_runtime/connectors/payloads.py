"""What the graph gives a connector beside properties: here, the declared type of its records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bicycle_runtime.connectors.contract import ConnectorSpec
from bicycle_runtime.connectors.errors import ConnectorPayloadError

__all__ = ["require_decodable"]


def require_decodable(
    spec: ConnectorSpec, record_type: Any, new_decoder: Callable[[Any], object]
) -> None:
    """Refuse a type of records that can not be decoded, before anything is read.

    Args:
        spec: The connector.
        record_type: The type.
        new_decoder: A decoder's class of msgspec.

    Raises:
        ConnectorPayloadError: there is no decoder for it.
    """
    try:
        new_decoder(record_type)
    except TypeError as error:
        raise ConnectorPayloadError(
            vertex=spec.vertex_id,
            connector=spec.connector_type,
            role="output_type",
            found=f"{record_type!r}, which can not be decoded ({error})",
            expected="a dataclass, TypedDict, NamedTuple, tuple, dict or list",
        ) from error
