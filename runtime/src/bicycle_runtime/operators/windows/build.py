"""Which operator carries out which window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bicycle_runtime.base.storage import Storage
from bicycle_runtime.operators.calling.policy import RecordPolicy
from bicycle_runtime.operators.folding.aggregates import Folding
from bicycle_runtime.operators.functions.keyed_contexts import KeyedContext
from bicycle_runtime.operators.spec import OperatorSpec
from bicycle_runtime.operators.windows.aligned import AlignedOperator
from bicycle_runtime.operators.windows.base import WindowOperator
from bicycle_runtime.operators.windows.cut_sessions import CutSessionOperator
from bicycle_runtime.operators.windows.sessions import SessionOperator
from bicycle_runtime.operators.windows.triggered import TriggeredOperator
from bicycle_runtime.state.memory.window_tables import MemoryWindows
from bicycle_runtime.state.memory.windows import WindowTable
from bicycle_sdk.windows import SessionWindows, WindowPlan

__all__ = ["build_window", "window_table"]


def window_table(plan: WindowPlan, folding: Folding, record_type: Any) -> WindowTable:
    """Return an empty table for the state of a window.

    Args:
        plan: The window.
        folding: Its aggregates.
        record_type: Declared type of the records, None when unknown.
    """
    operator, windows = _operator_of(plan), MemoryWindows()
    records = windows.records(record_type, is_by_key=operator.is_by_key)
    return windows.table(operator.new_cells(plan, folding, windows), records)


def _operator_of(plan: WindowPlan) -> type[WindowOperator]:
    if plan.is_triggered:
        return TriggeredOperator
    if not isinstance(plan.assigner, SessionWindows):
        return AlignedOperator
    return SessionOperator if plan.assigner.max_duration_ms is None else CutSessionOperator


def build_window(
    spec: OperatorSpec, policy: RecordPolicy, context: KeyedContext, plan: WindowPlan,
    *, key_selector: Callable[[Any], Any], record_type: Any, storage: Storage,
) -> WindowOperator:  # fmt: skip
    """Return the operator of a window vertex.

    Args:
        spec: Which operator this is.
        policy: Settles records and windows whose function failed.
        context: Task info, time, and the states that a window function keeps per key.
        plan: The window.
        key_selector: Gives the key of a record.
        record_type: Declared type of the records, None when unknown.
        storage: Where the state lies.
    """
    kind = _operator_of(plan)
    return kind(
        spec, policy, context, plan,
        key_selector=key_selector, record_type=record_type, storage=storage,
    )  # fmt: skip
