"""The former name of ``bicycle_sdk.datastream``, for jobs that import from it."""

from bicycle_sdk.datastream import (
    ConnectedStreams,
    DataStream,
    IterativeStream,
    JoinedStreams,
    KeyedConnectedStreams,
    KeyedStream,
    SinkStream,
    SplitStream,
    WindowedStream,
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
