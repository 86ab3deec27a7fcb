"""From failed task reports to one error: the first, with a count and its position in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bicycle_runtime.base.errors import error_from_json
from bicycle_runtime.connectors.contract import Source
from bicycle_runtime.operators.reports import TaskReport

__all__ = ["raise_first_failure"]


def raise_first_failure(reports: Sequence[TaskReport], sources: Mapping[str, Source]) -> None:
    """Raise the error of the first task that failed; do nothing when none did.

    The position of the record is described by its source (``lines.txt line 17``); when several
    tasks failed alike, the fact ``task_count`` says how many.
    """
    failed = sorted(
        (report for report in reports if report.failure),
        key=lambda report: (report.level, report.subtask),
    )
    if not failed:
        return
    error = error_from_json(failed[0].failure or {})
    source, shard, offset = (error.facts.get(name) for name in ("source", "shard", "offset"))
    if isinstance(source, str) and source in sources and shard is not None and offset is not None:
        error.facts["position"] = sources[source].describe(shard, offset)
    error.facts["task_count"] = sum(
        (report.failure or {}).get("code") == error.code for report in failed
    )
    raise error
