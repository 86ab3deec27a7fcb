"""Streams: each call adds vertices to the graph, and returns the next stream.

A stream is a point in the graph: a vertex, perhaps one of its side outputs, and the partitioning of
the next edge. Nothing runs here, and no closure is called; the runtime knows the kinds of
``graph.OperatorKind``, and all other calls expand into them.
"""

import typing

from bicycle_sdk import loading
from bicycle_sdk.datastream.data_stream import DataStream, IterativeStream, SinkStream, SplitStream
from bicycle_sdk.datastream.keyed import KeyedStream
from bicycle_sdk.datastream.keyed_joins import JoinedStreams

if typing.TYPE_CHECKING:
    from bicycle_sdk.datastream.connected import ConnectedStreams, KeyedConnectedStreams
    from bicycle_sdk.datastream.windowed import WindowedStream
else:
    __getattr__, __dir__ = loading.on_demand(
        __name__,
        {
            "connected": ("ConnectedStreams", "KeyedConnectedStreams"),
            "windowed": ("WindowedStream",),
        },
    )

__all__ = [
    "ConnectedStreams",
    "DataStream",
    "IterativeStream",
    "JoinedStreams",
    "KeyedConnectedStreams",
    "KeyedStream",
    "SinkStream",
    "SplitStream",
    "WindowedStream",
]
