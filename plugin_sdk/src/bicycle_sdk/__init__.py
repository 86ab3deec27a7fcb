"""The API for authors of Bicycle jobs.

A job is a function that gets a ``StreamEnvironment`` and builds streams on it; ``@bicycle_plugin``
marks it. This package starts nothing and needs only the standard library. Descriptors of sources
and sinks are in ``bicycle_sdk.connectors``, harnesses for functions in ``bicycle_sdk.testing``.
"""

import typing

from bicycle_sdk import loading

if typing.TYPE_CHECKING:
    from bicycle_sdk.connected import (
        BroadcastContext,
        BroadcastProcessFunction,
        CoGroupFunction,
        CoMapFunction,
        CoProcessFunction,
        JoinFunction,
        KeyedCoProcessFunction,
        ReadOnlyBroadcastContext,
    )
    from bicycle_sdk.connectors import (
        SinkDescriptor,
        SourceDescriptor,
        file_sink,
    )
    from bicycle_sdk.contexts import (
        Context,
        KeyedProcessContext,
        OnTimerContext,
        ProcessContext,
        RuntimeContext,
        SourceMessage,
        TaskInfo,
    )
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
    from bicycle_sdk.environment import (
        StreamEnvironment,
    )
    from bicycle_sdk.errors import (
        BicycleError,
        GraphError,
        ParameterError,
        PluginDefinitionError,
        StreamDefinitionError,
    )
    from bicycle_sdk.expressions import (
        col,
        lit,
    )
    from bicycle_sdk.failures import (
        dead_letter,
        fail,
        retry,
        skip,
    )
    from bicycle_sdk.functions import (
        AsyncFunction,
        AsyncIOBatchFunction,
        AsyncIOFunction,
        FilterFunction,
        FlatMapFunction,
        KeyedProcessFunction,
        KeySelector,
        MapFunction,
        ProcessFunction,
        ReduceFunction,
        RichAsyncFunction,
    )
    from bicycle_sdk.graph import (
        JobGraph,
        RestartStrategy,
    )
    from bicycle_sdk.joins import (
        LookupCache,
    )
    from bicycle_sdk.kafka import (
        DeliveryGuarantee,
        KafkaSinkBuilder,
        KafkaSourceBuilder,
    )
    from bicycle_sdk.plugin import (
        bicycle_plugin,
    )
    from bicycle_sdk.secrets import (
        Secret,
    )
    from bicycle_sdk.state import (
        AggregatingState,
        AggregatingStateDescriptor,
        Aliases,
        ListState,
        ListStateDescriptor,
        MapState,
        MapStateDescriptor,
        OperatorListStateDescriptor,
        ReducingState,
        ReducingStateDescriptor,
        StateTtl,
        TimerService,
        UnionListStateDescriptor,
        ValueState,
        ValueStateDescriptor,
    )
    from bicycle_sdk.time import (
        WatermarkGenerator,
        WatermarkStrategy,
    )
    from bicycle_sdk.windows import (
        AggregateFunction,
        LateRecord,
        WindowContext,
        WindowFunction,
        WindowResult,
    )
else:
    __getattr__, __dir__ = loading.on_demand(
        __name__,
        {
            "connected": (
                "BroadcastContext",
                "BroadcastProcessFunction",
                "CoGroupFunction",
                "CoMapFunction",
                "CoProcessFunction",
                "JoinFunction",
                "KeyedCoProcessFunction",
                "ReadOnlyBroadcastContext",
            ),
            "connectors": (
                "SinkDescriptor",
                "SourceDescriptor",
                "file_sink",
            ),
            "contexts": (
                "Context",
                "KeyedProcessContext",
                "OnTimerContext",
                "ProcessContext",
                "RuntimeContext",
                "SourceMessage",
                "TaskInfo",
            ),
            "environment": ("StreamEnvironment",),
            "errors": (
                "BicycleError",
                "GraphError",
                "ParameterError",
                "PluginDefinitionError",
                "StreamDefinitionError",
            ),
            "expressions": (
                "col",
                "lit",
            ),
            "failures": (
                "dead_letter",
                "fail",
                "retry",
                "skip",
            ),
            "functions": (
                "AsyncFunction",
                "AsyncIOBatchFunction",
                "AsyncIOFunction",
                "FilterFunction",
                "FlatMapFunction",
                "KeySelector",
                "KeyedProcessFunction",
                "MapFunction",
                "ProcessFunction",
                "ReduceFunction",
                "RichAsyncFunction",
            ),
            "graph": (
                "JobGraph",
                "RestartStrategy",
            ),
            "joins": ("LookupCache",),
            "kafka": (
                "DeliveryGuarantee",
                "KafkaSinkBuilder",
                "KafkaSourceBuilder",
            ),
            "plugin": ("bicycle_plugin",),
            "secrets": ("Secret",),
            "state": (
                "AggregatingState",
                "AggregatingStateDescriptor",
                "Aliases",
                "ListState",
                "ListStateDescriptor",
                "MapState",
                "MapStateDescriptor",
                "OperatorListStateDescriptor",
                "ReducingState",
                "ReducingStateDescriptor",
                "StateTtl",
                "TimerService",
                "UnionListStateDescriptor",
                "ValueState",
                "ValueStateDescriptor",
            ),
            "datastream": (
                "ConnectedStreams",
                "DataStream",
                "IterativeStream",
                "JoinedStreams",
                "KeyedConnectedStreams",
                "KeyedStream",
                "SinkStream",
                "SplitStream",
                "WindowedStream",
            ),
            "time": (
                "WatermarkGenerator",
                "WatermarkStrategy",
            ),
            "windows": (
                "AggregateFunction",
                "LateRecord",
                "WindowContext",
                "WindowFunction",
                "WindowResult",
            ),
        },
    )

__all__ = [
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "Aliases",
    "AsyncFunction",
    "AsyncIOBatchFunction",
    "AsyncIOFunction",
    "BicycleError",
    "BroadcastContext",
    "BroadcastProcessFunction",
    "CoGroupFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "ConnectedStreams",
    "Context",
    "DataStream",
    "DeliveryGuarantee",
    "FilterFunction",
    "FlatMapFunction",
    "GraphError",
    "IterativeStream",
    "JobGraph",
    "JoinFunction",
    "JoinedStreams",
    "KafkaSinkBuilder",
    "KafkaSourceBuilder",
    "KeySelector",
    "KeyedCoProcessFunction",
    "KeyedConnectedStreams",
    "KeyedProcessContext",
    "KeyedProcessFunction",
    "KeyedStream",
    "LateRecord",
    "ListState",
    "ListStateDescriptor",
    "LookupCache",
    "MapFunction",
    "MapState",
    "MapStateDescriptor",
    "OnTimerContext",
    "OperatorListStateDescriptor",
    "ParameterError",
    "PluginDefinitionError",
    "ProcessContext",
    "ProcessFunction",
    "ReadOnlyBroadcastContext",
    "ReduceFunction",
    "ReducingState",
    "ReducingStateDescriptor",
    "RestartStrategy",
    "RichAsyncFunction",
    "RuntimeContext",
    "Secret",
    "SinkDescriptor",
    "SinkStream",
    "SourceDescriptor",
    "SourceMessage",
    "SplitStream",
    "StateTtl",
    "StreamDefinitionError",
    "StreamEnvironment",
    "TaskInfo",
    "TimerService",
    "UnionListStateDescriptor",
    "ValueState",
    "ValueStateDescriptor",
    "WatermarkGenerator",
    "WatermarkStrategy",
    "WindowContext",
    "WindowFunction",
    "WindowResult",
    "WindowedStream",
    "bicycle_plugin",
    "col",
    "dead_letter",
    "fail",
    "file_sink",
    "lit",
    "retry",
    "skip",
]

__version__ = "0.1.0"
