"""Answers as text: errors, numbers, durations, tables. Nothing here decides anything.

What goes to a terminal is drawn by ``terminal``; everywhere else it is plain text that stays as it
is: no colours, no boxes, a line for each row.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

import click

from bicycle_sdk.errors import BicycleError, ParameterError
from bicycle_sdk.logging import log_event
from bicycle_sdk.quantities import amount, byte_text, count_text, duration_text, moment_text

if TYPE_CHECKING:
    from pathlib import Path

    from bicycle_runtime.jobs.status import PhaseStatus

__all__ = [
    "answer_json",
    "duration_text",
    "error_text",
    "lag_text",
    "location_text",
    "metric_texts",
    "phase_text",
    "show_overview",
    "show_table",
    "show_text",
    "tell_stop",
    "waiting_texts",
    "watermark_text",
    "write_line",
]

_LOG = logging.getLogger(__name__)
_GAP = "  "


def error_text(error: BicycleError) -> str:
    """Return an error as text: code and message first, the fix last.

    An error that came up in several tasks is shown once, with their number.
    """
    text = f"error: {error.code} {error.summary.rstrip()}{location_text(error.to_json())}"
    text += _trace_text(error.facts)
    task_count = error.facts.get("task_count", 1)
    if isinstance(task_count, int) and task_count > 1:
        text += f"\n  the same in {task_count} tasks"
    return f"{text}\n  fix: {error.remedy}"


def _trace_text(facts: Mapping[str, Any]) -> str:
    """Return the traceback or last output of a plugin that returned no graph."""
    lines = [f"    {line}" for line in facts.get("traceback") or []]
    if facts.get("stderr_tail") and "exception_type" not in facts:  # That says it all.
        lines += ["  last output:", *(f"    {line}" for line in facts["stderr_tail"])]
    return "".join(f"\n{line}" for line in lines)


def location_text(error: Mapping[str, Any]) -> str:
    """Return lines with the location of an error in user code, and its record.

    What the message says is not said again. Anyone who gave a wrong parameter looks for it on the
    command line, not in the plugin.
    """
    facts = error["facts"]
    locations = {
        "at": facts.get("location"),
        "in": facts.get("made"),
        "on the record from": facts.get("position"),
    }
    if error["code"] == ParameterError.code:
        del locations["at"]
    return "".join(
        f"\n  {word} {location}"
        for word, location in locations.items()
        if location and str(location) not in error["message"]
    )


def answer_json(data: Any) -> None:
    """Write the JSON document of a command."""
    click.echo(json.dumps(data, default=str))


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


def show_overview(context: click.Context, *, as_json: bool) -> None:
    """Show the commands of a group that is called without a command."""
    group = context.command
    if context.invoked_subcommand is not None or not isinstance(group, click.Group):
        return
    if as_json:
        commands = {name: child.get_short_help_str(200) for name, child in group.commands.items()}
        answer_json({"commands": commands})
    else:
        click.echo(context.get_help())


def show_text(text: str, *, err: bool = False) -> None:
    """Write lines to standard output, or to standard error."""
    stream = sys.stderr if err else sys.stdout
    if not stream.isatty():
        click.echo(text, err=err)
        return
    # Slow to import, and needed on a terminal only.
    from bicycle_runtime.cli.terminal import draw_text

    draw_text(stream, text)


def show_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, spare: Sequence[str] = ()
) -> None:
    """Write a table; to anything but a terminal as plain columns, a line for each row.

    Args:
        headings: Names of the columns.
        rows: Their texts.
        spare: Columns that a narrow terminal does without, the first one first.
    """
    rows = list(rows)
    if sys.stdout.isatty():
        # Slow to import, and needed on a terminal only.
        from bicycle_runtime.cli.terminal import draw_table

        draw_table(sys.stdout, headings, rows, spare=spare)
        return
    lines = [[heading.upper() for heading in headings], *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        click.echo(_GAP.join(cells).rstrip())


def write_line(stream: IO[str], text: str) -> None:
    """Write a line, or several, at once.

    The reader may be gone, as ``head`` is after some lines: that is told, and no error.
    """
    try:
        stream.write(text + "\n")
        stream.flush()
    except BrokenPipeError:
        _let_go(stream)
        log_event(_LOG, "reader_gone", level=logging.WARNING)


def _let_go(stream: IO[str]) -> None:
    """Redirect a closed pipe to the null device, so that later writes do not fail."""
    with contextlib.suppress(OSError):  # It has no descriptor.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def tell_stop(folder: Path, *, is_clean: bool, as_json: bool) -> None:
    """Print that the servers of a folder were stopped, and whether they ended cleanly."""
    if as_json:
        answer_json({"folder": str(folder), "stopped": True, "clean": is_clean})
    else:
        click.echo("stopped" if is_clean else "killed: it did not end in time")
