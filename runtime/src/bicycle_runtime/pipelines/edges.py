"""Edges between the vertices of a pipeline: the inputs of each vertex, in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from bicycle_runtime.endpoints.checking import Checks, likely
from bicycle_runtime.endpoints.positions import KeyPath
from bicycle_runtime.pipelines.model import Edge
from bicycle_runtime.pipelines.operator_keys import Union
from bicycle_sdk.quantities import amount

_INPUTS_MAX: Mapping[str, int] = {"source": 0, "join": 2, "union": 1_000, "sql": 1_000}
# Records of several inputs are one stream to these: they keep nothing by the key of their input.
_ONE_STREAM = frozenset(
    {
        "sink", "time", "map", "flat_map", "filter", "rate_limit", "split", "enrich", "http_call",
        "lookup", "key_by", "dedup",
    }
)  # fmt: skip
_NAMED_MAX = 20
_INPUTS_MIN: Mapping[str, int] = {"source": 0, "join": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """The input of a node: the records or a side output of another node."""

    node: str
    partition: str = "forward"
    output: str | None = None


T = TypeVar("T", bound=Any)


def check_edges(checks: Checks, nodes: list[T], *, known: Iterable[str], edges: Any) -> list[T]:
    """Return the nodes with their inputs, each after its inputs.

    Args:
        checks: Takes the problems.
        nodes: The nodes that have no problems themselves.
        known: Ids of all vertices, also of vertices with problems.
        edges: The value of ``edges``.
    """
    by_id = {node.id: node for node in nodes}
    ids = set(known)
    inputs: dict[str, list[Input]] = {node.id: [] for node in nodes}
    senders: set[str] = set()
    for index, data in enumerate(edges if isinstance(edges, list) else []):
        if not isinstance(data, dict):
            continue
        path: KeyPath = ("edges", index)
        ends = [data.get("from"), data.get("to")]
        if not all(isinstance(each, str | None) for each in (*ends, data.get("output"))):
            continue
        for key, end in zip(("from", "to"), ends, strict=True):
            if isinstance(end, str) and end not in ids:
                _unknown(checks, end, ids, (*path, key))
        source, target = by_id.get(ends[0]), by_id.get(ends[1])
        senders.add(str(ends[0]))
        if source is not None and target is not None:
            _check_output(checks, source, data.get("output"), path)
            inputs[target.id].append(_input(data))
    is_whole = not checks.is_wrong(("edges",))
    for node in nodes:
        _check_counts(
            checks, node, len(inputs[node.id]), is_read=node.id in senders, is_whole=is_whole
        )
    found = [replace(node, inputs=tuple(inputs[node.id])) for node in nodes]
    joined = [part for node in found for part in _with_union(checks, node, by_id)]
    return _sort(checks, joined)


def _with_union(checks: Checks, node: T, by_id: Mapping[str, T]) -> list[T]:
    """Return a node, after a union if several edges lead to its single input."""
    if node.operator not in _ONE_STREAM or len(node.inputs) <= 1:
        return [node]
    union_id = f"{node.id}-inputs"
    if union_id in by_id:
        text = f"several edges lead to {node.id!r}, which creates a union with the id {union_id!r}"
        checks.note(by_id[union_id].path, f"{text}: choose another id for this vertex")
        return [node]
    partitions = {each.partition for each in node.inputs}
    if len(partitions) > 1:
        words = " and ".join(sorted(partitions))
        text = (
            f"edges to {node.id!r} have the partitions {words}: use the same partition for all of "
            "them"
        )
        checks.note(node.path, f"{text}, or add a union vertex")
        return [node]
    [partition] = partitions
    inputs = tuple(replace(each, partition="forward") for each in node.inputs)
    union = replace(
        node, id=union_id, operator="union", spec=Union(), inputs=inputs,
        name=None, word="", parallelism=None, on_error=None,
    )  # fmt: skip
    return [union, replace(node, inputs=(Input(node=union_id, partition=partition),))]


def _input(data: Mapping[str, Any]) -> Input:
    default = Edge(from_="-", to="-")
    return Input(
        node=data["from"],
        partition=str(data.get("partition") or default.partition),
        output=data.get("output"),
    )


def _unknown(checks: Checks, end: str, ids: set[str], path: KeyPath) -> None:
    near = likely(end, sorted(ids))
    hint = f"; did you mean {near!r}?" if near else ""
    checks.note(path, f"there is no vertex {end!r}{hint}")


def _check_output(checks: Checks, source: Any, output: Any, path: KeyPath) -> None:
    if source.operator == "split":
        if output is None:
            checks.missing((*path, "output"), f"output must be set: {source.id!r} is a split")
        elif source.spec.outputs is not None:
            known = {*source.spec.outputs, *([source.spec.default] * bool(source.spec.default))}
            if output not in known:
                names = ", ".join(sorted(known))
                checks.note((*path, "output"), f"{source.id!r} has the outputs {names}")
    elif output is not None and (output != "late" or not _has_late(source)):
        text = (
            f"{source.id!r} has no output {output!r}: windows have the output late, and joins of "
            "other types than table"
        )
        checks.note((*path, "output"), text)


def _has_late(source: Any) -> bool:
    """Return whether an operator has late records: a window, or a join over time."""
    is_table = source.operator == "join" and source.spec.type == "table"
    return source.operator in ("window", "join") and not is_table


def _check_counts(checks: Checks, node: Any, count: int, *, is_read: bool, is_whole: bool) -> None:
    """Ensure that a node has its edges; too few are no news where an edge is wrong."""
    low = _INPUTS_MIN.get(node.operator, 1)
    high = _INPUTS_MAX["union"] if node.operator in _ONE_STREAM else 1
    high = _INPUTS_MAX.get(node.operator, high)
    if count < low and is_whole:
        needed = "two inputs: two edges" if low == 2 else "an input: an edge"
        checks.note(node.path, f"{node.id!r} needs {needed} to it")
    elif count > high:
        limit = f"{amount(high, 'input')}; use a union for several" if high else "none"
        checks.note(node.path, f"{node.id!r} has {amount(count, 'input')}, but supports {limit}")
    if node.operator == "sink" and is_read:
        checks.note(node.path, f"the sink {node.id!r} has no output, but an edge starts there")
    if node.operator != "sink" and not is_read and is_whole:
        checks.note(node.path, f"the output of {node.id!r} is not connected: add an edge from it")


def _sort(checks: Checks, nodes: list[T]) -> list[T]:
    """Return the nodes with senders first, else in their order; a circle is a problem."""
    known = {node.id for node in nodes}
    missing = {node.id: {each.node for each in node.inputs} & known for node in nodes}
    takers: dict[str, list[T]] = {}
    for node in nodes:
        for sender in missing[node.id]:
            takers.setdefault(sender, []).append(node)
    ready = [node for node in nodes if not missing[node.id]]
    order = {id(node): index for index, node in enumerate(nodes)}
    found: list[T] = []
    while ready:
        found += ready
        freed = []
        for node in ready:
            for taker in takers.pop(node.id, ()):
                missing[taker.id].discard(node.id)
                if not missing[taker.id]:
                    freed.append(taker)
        ready = sorted(freed, key=lambda node: order[id(node)])
    left = [node for node in nodes if missing[node.id]]
    if left:
        names = ", ".join(repr(node.id) for node in left[:_NAMED_MAX])
        more = f" and {len(left) - _NAMED_MAX} more" if len(left) > _NAMED_MAX else ""
        checks.note(left[0].path, f"edges form a cycle: {names}{more}")
    return found
