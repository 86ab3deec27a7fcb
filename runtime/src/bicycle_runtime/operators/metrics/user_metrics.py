"""The metrics that functions keep in ``ctx.metrics``: what an epoch added, and how parts add up.

Values are plain data, as ``Metrics.snapshot()`` gives them, but for a gauge, which has a value for
each subtask. A worker keeps its counters for many epochs, and the next epoch may run elsewhere. So
tasks report what their epoch added, and the driver adds up what was sealed: a record that is
computed again counts once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["MetricValues", "add_metrics", "grown_metrics"]

MetricValues = dict[str, dict[str, Any]]
_Snapshot = Mapping[str, Mapping[str, Any]]
_NOTHING = {"count": 0, "sum": 0.0}


def grown_metrics(before: _Snapshot, after: _Snapshot, *, subtask: int) -> MetricValues:
    """Return what was added between two snapshots of one subtask; empty when it keeps none.

    The bounds of a histogram are those of all its values up to now.

    Example:
        >>> before = {"counters": {"seen": 2}, "gauges": {}, "histograms": {}}
        >>> after = {"counters": {"seen": 5}, "gauges": {"depth": 1.0}, "histograms": {}}
        >>> grown_metrics(before, after, subtask=0)
        {'counters': {'seen': 3}, 'gauges': {'depth': {'0': 1.0}}}
    """
    counters = {
        name: value - before["counters"].get(name, 0) for name, value in after["counters"].items()
    }
    gauges = {name: {str(subtask): value} for name, value in after["gauges"].items()}
    histograms = {
        name: {**value, "count": value["count"] - old["count"], "sum": value["sum"] - old["sum"]}
        for name, value in after["histograms"].items()
        for old in (before["histograms"].get(name, _NOTHING),)
    }
    found = {"counters": counters, "gauges": gauges, "histograms": histograms}
    return {kind: values for kind, values in found.items() if values}


def add_metrics(total: MetricValues, part: MetricValues) -> None:
    """Add to a total what a task or an epoch added: counts and sums grow, a gauge is replaced."""
    for kind, values in part.items():
        known = total.setdefault(kind, {})
        for name, value in values.items():
            if kind == "counters":
                known[name] = known.get(name, 0) + value
            elif kind == "gauges":
                known[name] = {**known.get(name, {}), **value}
            else:
                known[name] = _joined(known[name], value) if name in known else value


def _joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    bounds = [
        pick(found) if (found := [v[name] for v in (one, other) if v[name] is not None]) else None
        for name, pick in (("min", min), ("max", max))
    ]
    count, total = one["count"] + other["count"], one["sum"] + other["sum"]
    return {"count": count, "sum": total, "min": bounds[0], "max": bounds[1]}
