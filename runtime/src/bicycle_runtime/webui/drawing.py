"""A job's graph as data for its drawing: chains as boxes, exchanges as lines.

A chain is one box that lists its operators. The digest names the shape: while it is the same, the
browser changes texts and keeps every box where it is. The drawing of streams and jobs has the same
form, with one name in each box.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from bicycle_runtime.jobs.control.topology import JobTopology
from bicycle_runtime.jobs.status import JobStatus, OperatorStatus
from bicycle_runtime.service.watching.paces import OperatorPace, Paces
from bicycle_runtime.webui.formats import count
from bicycle_sdk.quantities import byte_text, share_text, short_text

_BUSY_SHARES = (0.2, 0.4, 0.6)


def operator_rows(
    graph: Mapping[str, Any], status: JobStatus, paces: Paces
) -> list[dict[str, Any]]:
    """Return one row for each operator: kind, counts and pace.

    The lag of a row is the unread input of its shards, so only sources have a lag.
    """
    rows = []
    for vertex in graph["vertices"]:
        name = vertex.get("uid") or vertex["id"]
        shards = status.lags.get(name, {}).values()
        lags = [lag.records for lag in shards if lag.records is not None]
        sizes = [lag.bytes for lag in shards if lag.bytes is not None]
        row = {
            **vertex,
            "counts": _status_of(vertex, status),
            "pace": paces.operators.get(name),
            "lag_records": sum(lags) if lags else None,
            "lag_bytes": sum(sizes) if sizes else None,
            "partitions": _partitions(status, name),
        }
        rows.append({**row, "text": _numbers(row)})
    return rows


def _partitions(status: JobStatus, operator: str) -> list[dict[str, Any]]:
    """Return event time and lag of each partition, the slowest first."""
    times, lags = status.shards.get(operator, {}), status.lags.get(operator, {})
    return [
        {"name": name, "time": times.get(name), "lag": lags.get(name)}
        for name in (*times, *(name for name in lags if name not in times))
    ]


def drawing_of(graph: Mapping[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return boxes and lines with their texts."""
    by_id = {row["id"]: row for row in rows}
    chain_of = {name: chain["index"] for chain in graph["chains"] for name in chain["operators"]}
    lines: dict[tuple[int, int], dict[str, Any]] = {}
    for edge in graph["edges"]:
        ends = (chain_of[edge["source"]], chain_of[edge["target"]])
        if ends[0] != ends[1] or edge["exchange"] == "feedback":
            way = edge["partitioning"].lower()
            line = lines.setdefault(ends, {"from": ends[0], "to": ends[1], "pace": None})
            line["way"] = "" if way == "forward" else way
            line["exchange"] = edge["exchange"]
            line["pace"] = _pace_of(by_id[edge["source"]], line["pace"])
    return {
        "digest": graph["digest"],
        "nodes": [_box(chain, by_id) for chain in graph["chains"]],
        "edges": [{**line, "label": _label(line)} for line in lines.values()],
    }


def topology_drawing(topology: JobTopology) -> dict[str, Any]:
    """Return streams and jobs as boxes, with a line for each source and sink."""
    streams = {each.name: f"stream-{number}" for number, each in enumerate(topology.streams)}
    lines = [
        ends
        for job in topology.jobs
        for ends in (
            *((streams[name], f"job-{job.job}") for name in job.streams("source")),
            *((f"job-{job.job}", streams[name]) for name in job.streams("sink")),
        )
    ]
    nodes = [_named_box(id_, name, "stream", f"#{id_}") for name, id_ in streams.items()]
    nodes += [
        _named_box(f"job-{job.job}", job.job, job.state.lower(), f"/jobs/{job.job}")
        for job in topology.jobs
        if job.uses
    ]
    shape = repr((nodes, lines)).encode()
    return {
        "digest": hashlib.sha256(shape).hexdigest()[:16],
        "nodes": nodes,
        "edges": [
            {"from": begin, "to": end, "way": "", "link": "direct", "label": ""}
            for begin, end in lines
        ],
    }


def _named_box(id_: str, name: str, caption: str, href: str) -> dict[str, Any]:
    """Return a box with one name in it, which leads somewhere."""
    row = {"id": id_, "name": name, "text": "", "busy": 0, "is_failing": False, "href": href}
    return {"id": id_, "caption": caption, "operators": [row]}


def _box(chain: Mapping[str, Any], by_id: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    rows = [by_id[name] for name in chain["operators"]]
    return {
        "id": chain["index"],
        "parallelism": max(row["parallelism"] for row in rows),
        "operators": [
            {
                "id": row["id"],
                "name": row["name"],
                "text": row["text"],
                "busy": sum((row["counts"].busy_share or 0) >= limit for limit in _BUSY_SHARES),
                "is_failing": bool(row["counts"].failed),
            }
            for row in rows
        ],
    }


def _numbers(row: Mapping[str, Any]) -> str:
    counts: OperatorStatus = row["counts"]
    texts = []
    if not row["is_source"]:
        texts.append(f"in {count(counts.records_in)}")
    if not row["is_sink"]:
        texts.append(f"out {count(counts.records_out)}")
    if row["lag_records"] is not None:
        texts.append(f"lag {count(row['lag_records'])}")
    elif row["lag_bytes"] is not None:
        texts.append(f"lag {byte_text(row['lag_bytes'])}")
    if counts.busy_share is not None:
        texts.append(f"busy {share_text(counts.busy_share)}")
    return " · ".join(texts)


def _pace_of(row: Mapping[str, Any], former: float | None) -> float | None:
    """Return the pace of a line with one more operator that writes to it."""
    pace: OperatorPace | None = row["pace"]
    return former if pace is None else pace.records_out + (former or 0.0)


def _label(line: Mapping[str, Any]) -> str:
    pace = "" if line["pace"] is None else f"{short_text(line['pace'])}/s"
    return " ".join(filter(None, (line["way"], pace)))


def _status_of(vertex: Mapping[str, Any], status: JobStatus) -> OperatorStatus:
    found = status.operators.get(vertex.get("uid") or "") or status.operators.get(vertex["id"])
    return found or OperatorStatus()
