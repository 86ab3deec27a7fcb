"""The contract of connectors: the interfaces of sources and sinks.

Read ``vertex`` (what every connector is told), then ``source`` and ``sink``. Both have two halves.
The driver's half (``Source``, ``Sink``) decides between epochs, and owns no progress: the engine
keeps offsets and the connector's state in the manifest, and hands them back at a start. The
worker's half (readers, writers) is picklable, runs in tasks, and may run twice. A sink has five
methods; what not every sink does is a mixin (``StagedPublication``, ``HoldsBackOutput``, …), which
the engine looks for. Nothing here opens a file or knows a connector.
"""

from __future__ import annotations

from bicycle_runtime.contract.sink import (
    Accepts,
    ChecksBeforeStart,
    DropsRecords,
    EventTimes,
    HoldsBackOutput,
    InterruptiblePublication,
    MakesTargets,
    PreparingWriter,
    PromptWriter,
    Sink,
    SinkWriter,
    StagedFile,
    StagedPublication,
    Waiting,
    WriterFactory,
    WriterTask,
    in_subtask_order,
)
from bicycle_runtime.contract.source import (
    BadRecord,
    Budget,
    FieldReader,
    FollowingReader,
    FollowsPublication,
    Headers,
    Lag,
    Raw,
    ReadOn,
    ReadsOn,
    RereadsEarlierSlices,
    Slice,
    SnapshotsState,
    Source,
    SourceBatch,
    SourceReader,
    SourceStatus,
    StartsBeforeSinks,
    even_slices,
    total_lag,
)
from bicycle_runtime.contract.vertex import (
    ConnectorSpec,
    DriverServices,
    Guarantee,
    LetterFolder,
    Refusal,
)

__all__ = [
    "Accepts",
    "BadRecord",
    "Budget",
    "ChecksBeforeStart",
    "ConnectorSpec",
    "DriverServices",
    "DropsRecords",
    "EventTimes",
    "FieldReader",
    "FollowingReader",
    "FollowsPublication",
    "Guarantee",
    "Headers",
    "HoldsBackOutput",
    "InterruptiblePublication",
    "Lag",
    "LetterFolder",
    "MakesTargets",
    "PreparingWriter",
    "PromptWriter",
    "Raw",
    "ReadOn",
    "ReadsOn",
    "Refusal",
    "RereadsEarlierSlices",
    "Sink",
    "SinkWriter",
    "Slice",
    "SnapshotsState",
    "Source",
    "SourceBatch",
    "SourceReader",
    "SourceStatus",
    "StagedFile",
    "StagedPublication",
    "StartsBeforeSinks",
    "Waiting",
    "WriterFactory",
    "WriterTask",
    "even_slices",
    "in_subtask_order",
    "total_lag",
]
