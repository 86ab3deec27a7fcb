"""Windows as plain values: their assignment, firing and results.

Streams take them (``stream.key_by(…).tumbling_window(…)``), the runtime carries them out. Nothing
here runs a job or reads a clock.
"""

import typing

from bicycle_sdk import loading

if typing.TYPE_CHECKING:
    from bicycle_sdk.windows.aggregates import (
        ApproximateDistinct,
        Average,
        Count,
        Distinct,
        Maximum,
        Minimum,
        Reduction,
        Sum,
    )
    from bicycle_sdk.windows.assigners import (
        AlignedWindows,
        CountWindows,
        CumulativeWindows,
        GlobalWindows,
        SessionWindows,
        WindowAssigner,
        cumulative_windows,
        duration_ms,
        session_windows,
        sliding_windows,
        tumbling_windows,
    )
    from bicycle_sdk.windows.evictors import CountEvictor, Evictor, TimedValue, TimeEvictor
    from bicycle_sdk.windows.functions import AggregateFunction, WindowContext, WindowFunction
    from bicycle_sdk.windows.panes import LateRecord, Window, WindowResult
    from bicycle_sdk.windows.plan import WindowPlan
    from bicycle_sdk.windows.triggers import (
        ContinuousEventTimeTrigger,
        CountTrigger,
        EventTimeTrigger,
        NeverTrigger,
        ProcessingTimeTrigger,
        PurgingTrigger,
        Trigger,
        TriggerContext,
        TriggerResult,
    )
else:
    __getattr__, __dir__ = loading.on_demand(
        __name__,
        {
            "aggregates": (
                "ApproximateDistinct",
                "Average",
                "Count",
                "Distinct",
                "Maximum",
                "Minimum",
                "Reduction",
                "Sum",
            ),
            "assigners": (
                "AlignedWindows",
                "CountWindows",
                "CumulativeWindows",
                "GlobalWindows",
                "SessionWindows",
                "WindowAssigner",
                "cumulative_windows",
                "duration_ms",
                "session_windows",
                "sliding_windows",
                "tumbling_windows",
            ),
            "evictors": ("CountEvictor", "Evictor", "TimeEvictor", "TimedValue"),
            "functions": ("AggregateFunction", "WindowContext", "WindowFunction"),
            "panes": ("LateRecord", "Window", "WindowResult"),
            "plan": ("WindowPlan",),
            "triggers": (
                "ContinuousEventTimeTrigger",
                "CountTrigger",
                "EventTimeTrigger",
                "NeverTrigger",
                "ProcessingTimeTrigger",
                "PurgingTrigger",
                "Trigger",
                "TriggerContext",
                "TriggerResult",
            ),
        },
    )

__all__ = [
    "AggregateFunction",
    "AlignedWindows",
    "ApproximateDistinct",
    "Average",
    "ContinuousEventTimeTrigger",
    "Count",
    "CountEvictor",
    "CountTrigger",
    "CountWindows",
    "CumulativeWindows",
    "Distinct",
    "EventTimeTrigger",
    "Evictor",
    "GlobalWindows",
    "LateRecord",
    "Maximum",
    "Minimum",
    "NeverTrigger",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "Reduction",
    "SessionWindows",
    "Sum",
    "TimeEvictor",
    "TimedValue",
    "Trigger",
    "TriggerContext",
    "TriggerResult",
    "Window",
    "WindowAssigner",
    "WindowContext",
    "WindowFunction",
    "WindowPlan",
    "WindowResult",
    "cumulative_windows",
    "duration_ms",
    "session_windows",
    "sliding_windows",
    "tumbling_windows",
]
