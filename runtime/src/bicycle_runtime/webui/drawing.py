"""A job's graph as data for its drawing: chains as boxes, exchanges as lines, numbers of now.

A chain is one box that lists its operators. The digest names the shape: while it is the same, the
browser changes texts and keeps every box where it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bicycle_runtime.jobs.status import JobStatus, OperatorStatus
from bicycle_runtime.webui.formats import count

__all__ = ["drawing_of", "operator_rows"]


def operator_rows(graph: Mapping[str, Any], status: JobStatus) -> list[dict[str, Any]]:
    """Return one row for each operator: what it is, and how it does.

    The lag of a row is what its own shards have unread, so only sources have one.
    """
    rows = []
    for vertex in graph["vertices"]:
        found = _status_of(vertex, status)
        shards = status.lags.get(vertex.get("uid") or vertex["id"], {})
        lags = [lag.records for lag in shards.values() if lag.records is not None]
        rows.append({**vertex, "counts": found, "lag_records": sum(lags) if lags else None})
    return rows


def drawing_of(graph: Mapping[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return boxes and lines with their texts."""
    by_id = {row["id"]: row for row in rows}
    chain_of = {name: chain["index"] for chain in graph["chains"] for name in chain["operators"]}
    lines: dict[tuple[int, int], dict[str, Any]] = {}
    for edge in graph["edges"]:
        ends = (chain_of[edge["source"]], chain_of[edge["target"]])
        if ends[0] != ends[1] or edge["link"] == "feedback":
            way = edge["partitioning"].lower()
            label = "" if way == "forward" else way
            line = lines.setdefault(ends, {"from": ends[0], "to": ends[1], "label": label})
            line["link"] = edge["link"]
    return {
        "digest": graph["digest"],
        "nodes": [_box(chain, by_id) for chain in graph["chains"]],
        "edges": list(lines.values()),
    }


def _box(chain: Mapping[str, Any], by_id: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    rows = [by_id[name] for name in chain["operators"]]
    return {
        "id": chain["index"],
        "parallelism": max(row["parallelism"] for row in rows),
        "operators": [
            {
                "id": row["id"],
                "name": row["name"],
                "text": _numbers(row),
                "is_failing": bool(row["counts"].failed),
            }
            for row in rows
        ],
    }


def _numbers(row: Mapping[str, Any]) -> str:
    counts: OperatorStatus = row["counts"]
    if row["lag_records"] is not None:
        return f"out {count(counts.records_out)} · lag {count(row['lag_records'])}"
    return f"in {count(counts.records_in)} · out {count(counts.records_out)}"


def _status_of(vertex: Mapping[str, Any], status: JobStatus) -> OperatorStatus:
    found = status.operators.get(vertex.get("uid") or "") or status.operators.get(vertex["id"])
    return found or OperatorStatus()
