"""The calls of a stream by which it meets others, without keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.streams.connected import ConnectedStreams
from bicycle_sdk.streams.transforms import Transforms

if TYPE_CHECKING:
    from bicycle_sdk.streams.data_stream import DataStream

__all__ = ["Connecting"]

T = TypeVar("T")
V = TypeVar("V")


class Connecting(Transforms[T]):
    """The calls of a stream that take other streams."""

    def connect(self, other: DataStream[V]) -> ConnectedStreams[T, V]:
        """Let this stream and another, of other records, share one function and its state.

        Raises:
            StreamDefinitionError: only one of the two has a key.
        """
        if other._is_keyed():
            raise StreamDefinitionError(
                call="connect",
                problem="one stream has a key and the other has none",
                hint="call key_by(…) on both, or connect(…).key_by(…, …)",
            )
        return ConnectedStreams(self, other)
