"""Figures of jobs as text: phases, lag, output of sinks, metrics, watermarks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from bicycle_sdk.quantities import amount, byte_text, count_text, duration_text, moment_text
from bicycle_streams.cli.rendering import answer_json

if TYPE_CHECKING:
    from pathlib import Path

    from bicycle_runtime.jobs.status import PhaseStatus


def time_text(time_ms: int) -> str:
    """Return a time of the clock, in UTC."""
    return f"{datetime.fromtimestamp(time_ms / 1_000, tz=UTC):%Y-%m-%d %H:%M:%S}Z"


def phase_text(phase: PhaseStatus) -> str:
    """Return the phase of a start, its progress, and the remaining time."""
    text = f"{phase.name} ({phase.target})"
    if phase.total:
        show = byte_text if phase.unit == "bytes" else count_text
        unit = "" if phase.unit == "bytes" else f" {phase.unit}"
        text += f": {show(phase.done)} of {show(phase.total)}{unit}"
    if phase.eta_ms:
        text += f", {duration_text(phase.eta_ms)} left"
    return text


def lag_text(record_count: int | None, byte_count: int | None, waiting_ms: int | None) -> str:
    """Return the unread input, and the age of its first record, empty if unknown.

    Example:
        >>> lag_text(1200, None, 2_100), lag_text(0, 0, 0), lag_text(None, 512, None)
        ('1,200 records, 2.1 s', '0 records', '512 B')
        >>> lag_text(20, 512, None)
        '20 records (512 B)'
    """
    if record_count is not None:
        text = amount(record_count, "record")
        text += f" ({byte_text(byte_count)})" if byte_count else ""
    else:
        text = "" if byte_count is None else byte_text(byte_count)
    return f"{text}, {duration_text(waiting_ms)}" if text and waiting_ms else text


def waiting_texts(waiting: Mapping[str, Mapping[str, Any]], *, now_ms: int | None) -> list[str]:
    """Return the sealed but invisible output of sinks, one text each.

    Args:
        waiting: By sink: ``records``, ``bytes`` and ``visible_ms``.
        now_ms: The time, of a job that runs; None for one that does not.

    Example:
        >>> out = {"out": {"records": 1_200, "bytes": 4_096, "visible_ms": 9_000}}
        >>> waiting_texts(out, now_ms=5_000)
        ['out: 1,200 records, 4 KiB, visible in 4.0 s']
        >>> waiting_texts(out, now_ms=None)
        ['out: 1,200 records, 4 KiB, visible when the job runs again']
    """
    texts = []
    for uid, each in waiting.items():
        records = f"{amount(each['records'], 'record')}, " if each["records"] else ""
        then = "when the job runs again"
        if now_ms is not None:
            left = max((each["visible_ms"] or now_ms) - now_ms, 0)
            then = f"in {duration_text(left)}" if left else "soon"
        texts.append(f"{uid}: {records}{byte_text(each['bytes'])}, visible {then}")
    return texts


def metric_texts(metrics: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the metrics of a function, one text each.

    Example:
        >>> metric_texts({"counters": {"orders": 1200}, "gauges": {"depth": {"0": 1.0, "1": 2.5}}})
        ['orders 1,200', 'depth 1 to 2.5']
    """
    texts = [f"{name} {count_text(value)}" for name, value in metrics.get("counters", {}).items()]
    for name, values in metrics.get("gauges", {}).items():
        texts.append(f"{name} {_span_text(min(values.values()), max(values.values()))}")
    for name, seen in metrics.get("histograms", {}).items():
        if seen["count"]:
            mean, span = seen["sum"] / seen["count"], _span_text(seen["min"], seen["max"])
            texts.append(f"{name} {amount(seen['count'], 'value')}, mean {mean:.4g}, {span}")
    return texts


def _span_text(low: float, high: float) -> str:
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def watermark_text(watermark_ms: int | None) -> str:
    """Return how far event time has come.

    Example:
        >>> watermark_text(1_000), watermark_text(None), watermark_text(2**63 - 1)
        ('1970-01-01T00:00:01Z', 'none', 'at the end')
    """
    return "none" if watermark_ms is None else moment_text(watermark_ms)


def tell_stop(folder: Path, *, is_clean: bool, as_json: bool) -> None:
    """Print that the servers of a folder were stopped, and whether they ended cleanly."""
    if as_json:
        answer_json({"folder": str(folder), "stopped": True, "clean": is_clean})
    else:
        click.echo("stopped" if is_clean else "killed: it did not end in time")
