"""Plans of SQL as text: operators, exchanges, state with its bound, guarantee."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from bicycle_runtime.cli.plan import report_lines

if TYPE_CHECKING:
    from bicycle_runtime.jobs.inspection.reports import JobReport, StateReport
    from bicycle_sdk.graph import JobGraph

_SCOPES = ("key groups", "per subtask")


def explain_lines(report: JobReport, graph: JobGraph) -> list[str]:
    """Return the plan of a query, or of all statements of a file.

    Args:
        report: The report on the job.
        graph: Its graph.
    """
    return [*_operator_lines(report, graph), *_other_lines(report)]


def _operator_lines(report: JobReport, graph: JobGraph) -> Iterator[str]:
    """Yield each operator, the part of the query that it computes, and its batches."""
    batches = {each.operator: each.text.partition(": ")[2] for each in report.columns}
    yield "operators:"
    for vertex in graph.vertices:
        how = batches.get(vertex.id)
        yield f"  {vertex.id}: {vertex.name}{f', on {how}' if how else ''}"


def _other_lines(report: JobReport) -> Iterator[str]:
    states = {state.operator: state for state in report.states}
    _, *lines = report_lines(replace(report, columns=()))
    for line in lines:
        state = states.get(line.strip().partition(": ")[0])
        is_first = state is not None and line.endswith(_SCOPES)
        yield f"{line}{_bound(state, report)}" if is_first and state is not None else line


def _bound(state: StateReport, report: JobReport) -> str:
    """Return the bound of a state, as far as it is known before the job runs."""
    if state.window_growth == "none":
        return ", bounded: a window is removed when the watermark passes its end"
    unbounded = [each for each in report.warnings if each.operator == state.operator]
    if any(each.kind == "unbounded-state" for each in unbounded):
        return ", unbounded: it grows with the number of keys"
    if state.keyed and all(each.ttl_ms is not None for each in state.keyed):
        return ", bounded: entries are removed after their TTL"
    return ""
