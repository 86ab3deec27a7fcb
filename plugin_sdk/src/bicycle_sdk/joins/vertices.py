"""The vertex of a function with several inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bicycle_sdk.connected import input_methods
from bicycle_sdk.drafts import VertexDraft
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.functions import full_name
from bicycle_sdk.graph import OperatorKind
from bicycle_sdk.record_types import clash, function_types, type_name

__all__ = ["check_record_type", "co_process_vertex", "common_output_type"]


def co_process_vertex(
    function: Any,
    kind: str,
    *,
    shown: object = None,
    is_keyed: bool,
    has_broadcast: bool = False,
    settings: Mapping[str, Any] | None = None,
    output_type: Any = None,
) -> VertexDraft:
    """Return the vertex of a function with several inputs.

    Args:
        function: The function that the runtime calls.
        kind: The name of its kind: ``co_map``, ``interval_join`` and the like.
        shown: The user's object, for graphs and errors; the function itself when None.
        is_keyed: Whether state is kept by key.
        has_broadcast: Whether the last input goes to all subtasks.
        settings: Bounds and the like, for graphs and plans.
        output_type: Type of the results, None when unknown.
    """
    details: dict[str, Any] = {"is_rich": True, "function_kind": kind, "is_keyed": is_keyed}
    if has_broadcast:
        details["has_broadcast"] = True
    if settings:
        details["settings"] = dict(settings)
    return VertexDraft(
        kind=OperatorKind.CO_PROCESS,
        name=getattr(function, "name", "") or (kind if shown else type(function).__name__),
        plugin_function=full_name(function if shown is None else shown),
        details=details,
        payloads={"function": function},
        output_type=output_type,
    )


def common_output_type(function: Any) -> Any:
    """Return the common type of a function's results, or None."""
    found = [
        function_types(function, name, gives_many=True).gives
        for name, _ in input_methods(function, 2)
    ]
    return found[0] if all(item == found[0] for item in found) else None


def check_record_type(call: str, function: object, method: str, produced: Any) -> None:
    """Refuse a function whose declared record type differs from its input.

    Raises:
        StreamDefinitionError: the two types clash.
    """
    taken = function_types(function, method).takes
    if clash(produced, taken):
        raise StreamDefinitionError(
            call=call,
            problem=(
                f"{full_name(function)}.{method} takes {type_name(taken)}, "
                f"but the stream has {type_name(produced)}"
            ),
            hint="connect the streams in the opposite order, or convert the records first",
        )
