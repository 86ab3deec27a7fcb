"""``bicycle dlq``: dead letters, the records that functions refused, and replays."""

from __future__ import annotations

from datetime import UTC, datetime

import click
import msgspec

from bicycle_runtime.cli.access import reached_jobs
from bicycle_runtime.cli.operations import add_operations
from bicycle_runtime.cli.parameters import job_names, service_options
from bicycle_runtime.jobs.control.dead_letters import DeadLetter
from bicycle_sdk.quantities import byte_text
from bicycle_streams.cli.commands import command, command_group
from bicycle_streams.cli.parameters import answers
from bicycle_streams.cli.rendering import answer_json, show_table

_HEADINGS = ("letter", "time (UTC)", "operator", "error", "your code", "record", "size", "replayed")
_SPARE_COLUMNS = ("size", "your code")


dlq_command = command_group(
    "dlq",
    "List, show and replay dead letters.\n\n"
    "A record becomes a dead letter if its function raises and the operator has "
    "on_error(dead_letter()).",
    "bicycle dlq list wordcount",
    "bicycle dlq replay wordcount --all",
)


@command(
    "list",
    "bicycle dlq list wordcount",
    "bicycle dlq list wordcount --operator parse",
    group=dlq_command,
)
@click.argument("job", shell_complete=job_names)
@click.option("--operator", metavar="UID", help="Show only dead letters of this operator.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    help="Maximum number of dead letters.",
)
@click.option("--after", metavar="LETTER", help="Show only letters older than LETTER.")
@service_options
@answers
def list_letters(
    *, job: str, operator: str | None, limit: int, after: str | None, as_json: bool
) -> None:
    """List the dead letters of a job, newest first, without their values."""
    found, following = reached_jobs().letters(job, operator=operator, limit=limit, after=after)
    if as_json:
        answer_json({"items": msgspec.to_builtins(found), "next": following})
        return
    if not found:
        click.echo("no dead letters")
        return
    show_table(_HEADINGS, map(_row, found), spare=_SPARE_COLUMNS)
    if following is not None:
        click.echo(f"more dead letters: --after {following}")


@command(
    "show", "bicycle dlq show wordcount part-000000000007-0.jsonl:1 --reveal", group=dlq_command
)
@click.argument("job", shell_complete=job_names)
@click.argument("letter")
@click.option("--reveal", is_flag=True, help="Also show the value of the record.")
@service_options
@answers
def show_letter(*, job: str, letter: str, reveal: bool, as_json: bool) -> None:
    """Show one dead letter.

    LETTER is a name from `bicycle dlq list`.
    """
    found = reached_jobs().letter(job, letter, is_revealed=reveal)
    if as_json:
        answer_json(found)
        return
    for name, value in found.items():
        if value not in (None, ""):
            click.echo(f"{name}: {value}")


add_operations(dlq_command)


def _row(letter: DeadLetter) -> tuple[str, ...]:
    return (
        letter.id, _time(letter.time_ms), letter.operator,
        f"{letter.exception}: {letter.message}", letter.location, record_text(letter),
        byte_text(letter.value_bytes),
        "" if letter.replayed_epoch is None else f"in epoch {letter.replayed_epoch}",
    )  # fmt: skip


def _time(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1_000, tz=UTC):%Y-%m-%d %H:%M:%S}"


def record_text(letter: DeadLetter) -> str:
    """Return where a record came from, for people."""
    if letter.source is None:
        return f"key {letter.key}"
    end = "" if letter.end_offset is None else f" to {letter.end_offset}"
    return f"{letter.source}, {letter.shard} @ {letter.offset}{end}"
