"""The calls of a keyed stream by which it meets others under their keys."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from bicycle_sdk.graph import Partitioning
from bicycle_sdk.record_types import function_types
from bicycle_sdk.streams.connected import KeyedConnectedStreams
from bicycle_sdk.streams.data_stream import DataStream

if TYPE_CHECKING:
    from bicycle_sdk.streams.keyed import KeyedStream

__all__ = ["KeyedJoins"]

T = TypeVar("T")
V = TypeVar("V")
K = TypeVar("K", bound=Hashable)


class KeyedJoins(DataStream[T], Generic[K, T]):
    """The calls of a keyed stream that take other keyed streams."""

    _default_partitioning = Partitioning.HASH

    # The keys of both must agree, which the call of a stream without keys can not ask for.
    def connect(self, other: KeyedStream[K, V]) -> KeyedConnectedStreams[K, T, V]:  # type: ignore[override]
        """Let this stream and another, keyed alike, share one function, its state and timers.

        Raises:
            StreamDefinitionError: the other has no key, or keys of another type.
        """
        return KeyedConnectedStreams(self, other)

    def _key_type(self) -> Any:
        return function_types(self._vertex.payloads["function"], "get_key").gives
