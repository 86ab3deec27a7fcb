"""Answers as text: errors, numbers, tables. Nothing here decides anything.

Text on a terminal is drawn by ``terminal`` if ``rich`` is installed; everywhere else it is plain
text: no colors, no boxes, a line for each row.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import IO, Any

import click

from bicycle_sdk.errors import BicycleError, ParameterError
from bicycle_sdk.logging import log_event
from bicycle_sdk.result_tables import text_table

_LOG = logging.getLogger(__name__)


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
    if facts.get("stderr_tail") and "exception_type" not in facts:  # The output contains the error.
        lines += ["  last output:", *(f"    {line}" for line in facts["stderr_tail"])]
    return "".join(f"\n{line}" for line in lines)


def location_text(error: Mapping[str, Any]) -> str:
    """Return lines with the location of an error in user code, and its record.

    A location that the message contains is not repeated. The location of a wrong parameter is the
    command line, not the plugin.
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


def show_overview(context: click.Context, *, as_json: bool) -> None:
    """Show the commands of a group that is called without a command."""
    group = context.command
    if context.invoked_subcommand is not None or not isinstance(group, click.Group):
        return
    if as_json:
        found = [(name, group.get_command(context, name)) for name in group.list_commands(context)]
        commands = {name: child.get_short_help_str(200) for name, child in found if child}
        answer_json({"commands": commands})
    else:
        click.echo(context.get_help())


def show_text(text: str, *, err: bool = False) -> None:
    """Write lines to standard output, or to standard error."""
    stream = sys.stderr if err else sys.stdout
    if not _can_draw_on(stream):
        click.echo(text, err=err)
        return
    # Slow to import, and needed on a terminal only.
    from bicycle_streams.cli.terminal import draw_text

    draw_text(stream, text)


def show_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, spare: Sequence[str] = (),
    are_numbers: Sequence[bool] = (),
) -> None:  # fmt: skip
    """Write a table; to anything but a terminal as plain columns, a line for each row.

    Args:
        headings: Names of the columns.
        rows: Their texts.
        spare: Columns that a narrow terminal does without, the first one first.
        are_numbers: For data: whether each column has numbers. Headings of data stay as they are.
    """
    rows = list(rows)
    if _can_draw_on(sys.stdout):
        # Slow to import, and needed on a terminal only.
        from bicycle_streams.cli.terminal import draw_table

        draw_table(sys.stdout, headings, rows, spare=spare, are_numbers=are_numbers)
        return
    names = headings if are_numbers else [heading.upper() for heading in headings]
    click.echo("\n".join(text_table(names, rows, are_numbers=are_numbers)))


def _can_draw_on(stream: IO[str]) -> bool:
    """Return whether a stream is a terminal and ``rich`` is installed."""
    return stream.isatty() and find_spec("rich") is not None


def write_line(stream: IO[str], text: str) -> None:
    """Write a line, or several, at once.

    If the reader has closed the pipe, as ``head`` does, this is logged and is not an error.
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
