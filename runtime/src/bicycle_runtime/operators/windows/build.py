"""The operators of windows: the folding one, and the one that asks a trigger or an evictor."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bicycle_runtime.operators.folding.aggregates import Folding
from bicycle_runtime.operators.windows.base import WindowOperator
from bicycle_runtime.operators.windows.cut_sessions import CutSessions
from bicycle_runtime.operators.windows.folding_operator import FoldingOperator, KeptWindows
from bicycle_runtime.operators.windows.kept_slices import KeptSlices
from bicycle_runtime.operators.windows.sessions import KeptSessions
from bicycle_runtime.operators.windows.triggered import TriggeredOperator, pane_cells
from bicycle_runtime.state.memory.space import MemorySpace
from bicycle_runtime.state.memory.windows import WindowTable
from bicycle_sdk.windows import SessionWindows, WindowPlan

__all__ = ["window_operator", "window_table"]


def window_operator(plan: WindowPlan) -> Callable[..., WindowOperator]:
    """Return what makes the operator of a window, from what a ``WindowOperator`` is made of."""
    kind = _kind_of(plan)
    return TriggeredOperator if kind is None else partial(FoldingOperator, kind=kind)


def window_table(plan: WindowPlan, folding: Folding, record_type: Any) -> WindowTable:
    """Return an empty table for the state of a window.

    Args:
        plan: The window.
        folding: Its aggregates.
        record_type: Declared type of the records, None when unknown.
    """
    kind, windows = _kind_of(plan), MemorySpace()
    records = windows.records(record_type, is_by_key=kind is None or kind.is_by_key)
    new_cells = pane_cells if kind is None else kind.new_cells
    return windows.table(new_cells(plan, folding, windows), records)


def _kind_of(plan: WindowPlan) -> type[KeptWindows] | None:
    """Return what is kept of windows that fire by the watermark; None of those with a trigger."""
    if plan.is_triggered:
        return None
    if not isinstance(plan.assigner, SessionWindows):
        return KeptSlices
    return KeptSessions if plan.assigner.max_duration_ms is None else CutSessions
