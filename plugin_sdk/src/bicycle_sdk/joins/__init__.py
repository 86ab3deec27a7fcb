"""Joins of two or more streams, as functions over keyed state and timers.

A join is a function with several inputs: rows wait in map states sorted by time, and a timer
releases each row once the watermark proves that no match can come. So joins survive crashes,
rescales and late records like all functions. ``streams`` connects the vertices made here.
"""

import typing

from bicycle_sdk import loading

if typing.TYPE_CHECKING:
    from bicycle_sdk.joins.broadcasts import BroadcastJoin
    from bicycle_sdk.joins.intervals import IntervalJoin
    from bicycle_sdk.joins.lookups import LookupCache, LookupJoin, LookupOptions
    from bicycle_sdk.joins.merging import TimeMerge
    from bicycle_sdk.joins.rows import (
        EVICTED_ROWS,
        JoinBuffer,
        JoinOptions,
        RowJoin,
        checked_function,
        checked_how,
        checked_limit,
    )
    from bicycle_sdk.joins.tables import AsOfJoin, TableJoin
    from bicycle_sdk.joins.vertices import check_record_type, co_process_vertex, common_output_type
    from bicycle_sdk.joins.windows import WindowCoGroup, WindowJoin
else:
    __getattr__, __dir__ = loading.on_demand(
        __name__,
        {
            "broadcasts": ("BroadcastJoin",),
            "intervals": ("IntervalJoin",),
            "lookups": ("LookupCache", "LookupJoin", "LookupOptions"),
            "merging": ("TimeMerge",),
            "rows": (
                "EVICTED_ROWS",
                "JoinBuffer",
                "JoinOptions",
                "RowJoin",
                "checked_function",
                "checked_how",
                "checked_limit",
            ),
            "tables": ("AsOfJoin", "TableJoin"),
            "vertices": ("check_record_type", "co_process_vertex", "common_output_type"),
            "windows": ("WindowCoGroup", "WindowJoin"),
        },
    )

__all__ = [
    "EVICTED_ROWS",
    "AsOfJoin",
    "BroadcastJoin",
    "IntervalJoin",
    "JoinBuffer",
    "JoinOptions",
    "LookupCache",
    "LookupJoin",
    "LookupOptions",
    "RowJoin",
    "TableJoin",
    "TimeMerge",
    "WindowCoGroup",
    "WindowJoin",
    "check_record_type",
    "checked_function",
    "checked_how",
    "checked_limit",
    "co_process_vertex",
    "common_output_type",
]
