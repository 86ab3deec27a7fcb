"""``bicycle replay``: one epoch again, in one process, to examine it."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from typing import Any

import click

from bicycle_runtime.base.errors import error_from_json
from bicycle_runtime.cli.candidates import plugin_names
from bicycle_runtime.cli.parameters import home, job_names, plugin_env_option, set_option
from bicycle_sdk.quantities import amount, count_text
from bicycle_streams.cli.commands import command
from bicycle_streams.cli.exit_codes import FAILED
from bicycle_streams.cli.parameters import answers
from bicycle_streams.cli.rendering import answer_json, error_text, show_table, show_text

_NEXT = "next"
_SHOWN = 10


def _epoch(_context: click.Context, _option: click.Parameter, value: str) -> int | str:
    """Return the epoch that is meant: a number, or ``next``."""
    if value == _NEXT:
        return value
    if not value.isdigit() or int(value) == 0:
        problem = f"{value!r} is neither the number of an epoch nor {_NEXT!r}"
        raise click.BadParameter(problem)
    return int(value)


@command(
    "replay",
    "bicycle replay wordcount",
    "bicycle replay wordcount --epoch 7 --operator counts --key ada",
    "bicycle replay wordcount --pdb",
)
@click.argument("job", required=False, shell_complete=job_names)
@click.option(
    "--checkpoint-dir",
    metavar="URL",
    help="Directory or URL with the checkpoints of one job, or of several jobs.",
)
@click.option(
    "--epoch",
    callback=_epoch,
    default=_NEXT,
    show_default=True,
    metavar="NUMBER",
    help=(
        "A retained epoch, or `next`: the epoch after the last sealed epoch, which failed, hangs "
        "or killed the job."
    ),
)
@click.option(
    "--key",
    metavar="KEY",
    help="Limit keyed operators to this key: JSON, where a list is a tuple, or plain text.",
)
@click.option(
    "--operator",
    metavar="UID",
    help="Show only this operator; with --pdb, stop only in its function.",
)
@click.option(
    "--pdb",
    "is_debugged",
    is_flag=True,
    help=(
        "Stop in Python's debugger at the first record of each function, and where a record "
        "fails. In a failed epoch it stops only at the failure, unless --operator is given."
    ),
)
@click.option(
    "--plugin",
    metavar="NAME",
    shell_complete=plugin_names,
    help="Name of the plugin. Default: the plugin that ran the job.",
)
@plugin_env_option
@set_option
@click.option(
    "--show",
    "shown_count",
    type=click.IntRange(min=0),
    default=_SHOWN,
    help="Maximum number of records shown for each sink, and of changes for each state.",
    show_default=True,
)
@answers
@click.pass_context
def replay_command(context: click.Context, /, *, as_json: bool, **asked: Any) -> None:
    """Replay an epoch of a job to debug it.

    The replay has the same input, state, times and random numbers as the epoch. JOB is a job of
    this machine, or of --checkpoint-dir. The command writes, publishes and locks nothing, so it
    works while the job runs and after a failure. It compares the result with the sealed result:
    exit code 1 reports a difference or a failure.
    """
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.jobs.replay.epochs import ReplayRequest, replay

    with _interrupts_left_to_the_child():
        report = replay(ReplayRequest(**asked), home(), is_quiet=as_json)
    if as_json:
        answer_json(report)
    else:
        _show(report)
    if report.get("differences") or report.get("error"):
        context.exit(FAILED)


@contextlib.contextmanager
def _interrupts_left_to_the_child() -> Iterator[None]:
    """Leave Ctrl-C to the debugger alone, while this process waits for it.

    Not ignored, which the child would take over.
    """
    former = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)


def _show(report: dict[str, Any]) -> None:
    if report.get("left"):
        click.echo("the debugger was quit before the end of the epoch")
        return
    was = "sealed" if report["was_sealed"] else _fate_of(report)
    click.echo(f"epoch {report['epoch']} of {report['url']} ({was})")
    if not report["is_same_plugin"]:
        click.echo("the plugin has changed since the epoch was run")
    if report["key"] is not None:
        click.echo(f"keyed operators processed only the key {report['key']}")
    if report["operators"]:
        names = ("operator", "records_in", "records_out", "failed", "late")
        headings = ("operator", "in", "out", "failed", "late")
        show_table(headings, [[_cell(row[name]) for name in names] for row in report["operators"]])
    for sink in report["sinks"]:
        click.echo(f"{sink['sink']} would write {amount(sink['record_count'], 'record')}")
        for record in sink["records"]:
            click.echo(f"  {record}")
    for state in report["states"]:
        _show_state(state)
    for difference in report["differences"]:
        click.echo(f"differs: {difference}")
    if report["differences"]:
        click.echo(
            "  fix: a function depends on a clock, random numbers or another system outside of "
            "its context, or the plugin has changed"
        )
    sys.stdout.flush()
    if report["error"] is not None:
        show_text(error_text(error_from_json(report["error"])), err=True)
    elif not report["differences"]:
        click.echo(_verdict(report))


def _fate_of(report: dict[str, Any]) -> str:
    """Return the fate of an epoch that was not sealed."""
    return "failed" if report["former_error"] else "did not complete"


def _verdict(report: dict[str, Any]) -> str:
    if not report["was_sealed"]:
        return f"the epoch, which {_fate_of(report)}, does not fail now"
    if report["key"] is not None:
        return "the state of the key equals the sealed state"
    return "the result equals the sealed result"


def _show_state(state: dict[str, Any]) -> None:
    words = ("added", "removed", "changed")
    totals = ", ".join(f"{count_text(state[word])} {word}" for word in words)
    click.echo(f"state of {state['operator']}: {totals}")
    names = ("change", "state", "key", "part", "before", "after")
    used = [name for name in names if any(row[name] is not None for row in state["changes"])]
    if used:
        show_table(used, [[_cell(row[name]) for name in used] for row in state["changes"]])


def _cell(value: Any) -> str:
    if isinstance(value, int):
        return count_text(value)
    return "" if value is None else str(value)
