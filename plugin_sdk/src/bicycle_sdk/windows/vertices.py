"""The vertices of a window: the window, and the combining step before the shuffle."""

from __future__ import annotations

from typing import Any

from bicycle_sdk.drafts import VertexDraft
from bicycle_sdk.functions import FunctionObject, full_name
from bicycle_sdk.graph import OperatorKind
from bicycle_sdk.windows.plan import WindowPlan

__all__ = ["combine_vertex", "window_vertex"]


def window_vertex(
    plan: WindowPlan, *, name: str, function: object, output_type: Any
) -> VertexDraft:
    """Return the vertex of a window.

    Args:
        plan: The settings of the window.
        name: The name for people: ``count``, ``sum`` or the like.
        function: The user's function, for graphs and errors.
        output_type: Type of its results, None when unknown.
    """
    details = plan.details() | {"is_keyed": True}
    if plan.combines_early:
        details["is_combined"] = True
    if isinstance(function, FunctionObject) and function.name:
        name = function.name
    return VertexDraft(
        kind=OperatorKind.WINDOW,
        name=name,
        plugin_function=full_name(function),
        details=details,
        payloads={"function": plan},
        output_type=output_type,
    )


def combine_vertex(plan: WindowPlan, *, window: VertexDraft, key_by: VertexDraft) -> VertexDraft:
    """Return the vertex that folds records per key and window before they travel.

    It belongs to the window: it has no uid of its own and takes over how errors are settled.
    """
    return VertexDraft(
        kind=OperatorKind.WINDOW_COMBINE,
        name=f"combine for {window.name}",
        plugin_function=window.plugin_function,
        details={"window_type": plan.details()["window_type"]},
        payloads={"function": plan},
        output_type=bytes,
        follows=key_by,
        serves=window,
    )
