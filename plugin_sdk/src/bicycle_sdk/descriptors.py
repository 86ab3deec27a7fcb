"""Sources and sinks as plain values: a type, properties, and separate objects.

A descriptor opens nothing. The runtime looks the word up among its connectors; an extension may
bring further words, which ``SourceDescriptor`` and ``SinkDescriptor`` name directly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, overload

from bicycle_sdk.errors import StreamDefinitionError

__all__ = ["SinkBuilder", "SinkDescriptor", "SourceBuilder", "SourceDescriptor", "built"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)


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
    """A builder of a source; ``env.add_source`` accepts it like a descriptor."""

    def build_connector(self) -> SourceDescriptor[T_co]:
        """Return the source as a plain value."""


class SinkBuilder(Protocol[T_contra]):
    """A builder of a sink; ``stream.sink_to`` accepts it like a descriptor."""

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
