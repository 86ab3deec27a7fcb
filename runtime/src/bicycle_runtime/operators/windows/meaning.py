"""The window settings that determine the meaning of sealed contents.

The start of a window is part of the location of its content, and accumulators are in the order of
their aggregates. Gaps of sessions, triggers, evictors and lateness may change: kept content
continues under the new rules.
"""

from __future__ import annotations

from typing import Any

from bicycle_runtime.base.own_code import OWN_PACKAGES
from bicycle_runtime.operators.preaggregation.aggregates import Folding
from bicycle_sdk.contexts import WATERMARK_MAX
from bicycle_sdk.windows import AlignedWindows, SessionWindows, WindowPlan


def complete_end(plan: WindowPlan, watermark: int) -> int:
    """Return the latest end at which a window is complete.

    No record at or before the watermark W is expected, so windows ``[start, W + 1)`` are complete.
    Sessions ``[start, W + 1)`` are not: a record at their end would touch and extend them.

    Args:
        plan: The plan of the windows.
        watermark: The watermark in ms.
    """
    if isinstance(plan.assigner, SessionWindows):
        return watermark
    return min(watermark, WATERMARK_MAX - 1) + 1


def window_settings(plan: WindowPlan, folding: Folding) -> tuple[tuple[str, Any], ...]:
    """Return the settings with their names, as plain data.

    Args:
        plan: The window.
        folding: Its aggregates.
    """
    assigner = plan.assigner
    windows = type(assigner).__name__
    if isinstance(assigner, AlignedWindows):
        verb = "every" if assigner.period_ms == assigner.slide_ms else "growing by"
        times = f"{assigner.slide_ms} ms for {assigner.size_ms} ms from {assigner.offset_ms} ms"
        windows = f"{verb} {times}"
    aggregates = [_name_of(function) for function in folding.functions]
    kept = "records" if plan.keeps_records else f"aggregates {', '.join(aggregates)}"
    return (("the window", windows), ("what is kept", kept))


def due_rules(plan: WindowPlan) -> str:
    """Return the settings that determine due times, besides a window's content."""
    assigner = plan.assigner
    duration_ms = assigner.max_duration_ms if isinstance(assigner, SessionWindows) else None
    return f"{type(assigner).__name__} {plan.is_triggered} {plan.lateness_ms} {duration_ms}"


def _name_of(function: Any) -> str:
    """Return the name of an aggregate of ours; one's own may be renamed."""
    cls = type(function)
    is_ours = cls.__module__.partition(".")[0] in OWN_PACKAGES
    return cls.__name__ if is_ours else "one's own"
