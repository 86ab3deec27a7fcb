"""The head of a loop: a stream that takes records of a later one, an epoch later."""

from __future__ import annotations

from typing import TypeVar

from bicycle_sdk.streams.data_stream import DataStream

__all__ = ["IterativeStream"]

T = TypeVar("T")


class IterativeStream(DataStream[T]):
    """The head of a loop."""

    def feedback(self, stream: DataStream[T]) -> DataStream[T]:
        """Send the records of ``stream`` to the head of the loop, one epoch later."""
        self._check_same_draft("feedback", stream)
        ordinal = sum(edge.target is self._vertex for edge in self._draft.edges)
        stream._connect_to(self._vertex, input_ordinal=ordinal, feedback=True)
        return stream
