"""Words of the shared graph language without a kind here: `Count` and `Connect`.

Other clients write a count as a vertex of its own, and two connected streams as a vertex in front
of the function that reads both. Here a count is a way of `Reduce`, and `CoProcess` takes the
streams itself. This works on plain data; whatever is wrong in it otherwise is left to its readers.
"""

from __future__ import annotations

from typing import Any

from bicycle_sdk.graph.json_fields import unreadable
from bicycle_sdk.graph.kinds import OperatorKind

__all__ = ["in_own_words"]

_COUNT, _CONNECT = "Count", "Connect"
_CO_PROCESS = OperatorKind.CO_PROCESS.value
_FORWARD = "Forward"


def in_own_words(vertices: list[Any], edges: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return vertices and edges with `Count` and `Connect` as equivalent kinds.

    Args:
        vertices: As in the JSON of a graph.
        edges: Likewise.

    Raises:
        GraphFormatError: a `Connect` does not lead to one `CoProcess` and nothing else.
    """
    connects = [
        each["id"]
        for each in vertices
        if _word_of(each) == _CONNECT and isinstance(each.get("id"), str)
    ]
    for connect in connects:
        vertices, edges = _without_connect(connect, vertices, edges)
    return [_expand_count(vertex) for vertex in vertices], edges


def _word_of(vertex: Any) -> Any:
    """Return the word of an operator without details, which may be null or absent."""
    word = vertex.get("operator_type") if isinstance(vertex, dict) else None
    if isinstance(word, dict) and len(word) == 1:
        [(name, details)] = word.items()
        return name if details in (None, {}) else None
    return word


def _expand_count(vertex: Any) -> Any:
    if _word_of(vertex) != _COUNT:
        return vertex
    return {**vertex, "operator_type": {OperatorKind.REDUCE.value: {"aggregation": "count"}}}


def _without_connect(
    connect: str, vertices: list[Any], edges: list[Any]
) -> tuple[list[Any], list[Any]]:
    """Replace a `Connect` by its inputs at the function after it."""
    known = [edge for edge in edges if isinstance(edge, dict)]
    entering = [edge for edge in known if edge.get("target_id") == connect]
    leaving = [edge for edge in known if edge.get("source_id") == connect]
    readers = [
        each
        for each in vertices
        if isinstance(each, dict) and leaving and each.get("id") == leaving[0].get("target_id")
    ]
    if len(leaving) != 1 or len(readers) != 1 or not _is_co_process(readers[0]):
        raise unreadable(
            f"vertex {connect!r}: {_CONNECT} must have exactly one {_CO_PROCESS} as its consumer"
        )
    moved = [
        {
            **edge,
            "target_id": leaving[0]["target_id"],
            "input_ordinal": edge.get("input_ordinal") or ordinal,
            "partition_strategy": _partitioning(edge, leaving[0]),
        }
        for ordinal, edge in enumerate(entering)
    ]
    others = [edge for edge in edges if edge not in entering and edge not in leaving]
    read = [
        _reading_both(each) if each is readers[0] else each
        for each in vertices
        if not (isinstance(each, dict) and each.get("id") == connect)
    ]
    return read, [*others, *moved]


def _is_co_process(vertex: dict[str, Any]) -> bool:
    word = vertex.get("operator_type")
    return isinstance(word, dict) and list(word) == [_CO_PROCESS]


def _reading_both(vertex: dict[str, Any]) -> dict[str, Any]:
    """Return the function with its kind, which the shared language derives."""
    details = vertex["operator_type"][_CO_PROCESS]
    if not isinstance(details, dict) or "function_kind" in details:
        return vertex
    kind = "co_process" if details.get("is_rich") else "co_map"
    return {**vertex, "operator_type": {_CO_PROCESS: {**details, "function_kind": kind}}}


def _partitioning(entering: dict[str, Any], leaving: dict[str, Any]) -> Any:
    """Return the partitioning of records to the function, "forward" only by default."""
    before = entering.get("partition_strategy") or _FORWARD
    behind = leaving.get("partition_strategy") or _FORWARD
    return before if behind == _FORWARD else behind
