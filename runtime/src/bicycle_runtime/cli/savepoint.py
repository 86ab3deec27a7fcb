"""``bicycle savepoint``: copies of one epoch that are on their own."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click
import msgspec

from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.cli.access import reached_jobs
from bicycle_runtime.cli.checkpoints import details
from bicycle_runtime.cli.operations import add_operations
from bicycle_runtime.cli.parameters import complete_savepoint, job_names, service_options
from bicycle_runtime.cli.rendering import time_text
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.quantities import amount, byte_text, count_text
from bicycle_streams.cli.commands import command, command_group
from bicycle_streams.cli.parameters import answers
from bicycle_streams.cli.rendering import answer_json, show_table, show_text

if TYPE_CHECKING:
    from bicycle_runtime.jobs.savepoints.commands import SavepointEntry
    from bicycle_runtime.layouts.savepoint import Savepoint

_HEADINGS = ("savepoint", "job", "plugin", "epoch", "created", "records", "size", "files")
_SPARE_COLUMNS = ("files", "records", "plugin")

_JOB_HELP = "Treat URL as the name of a savepoint of this job."


savepoint_command = command_group(
    "savepoint",
    "Create, list, inspect, restore and delete savepoints.\n\n"
    "A savepoint is a complete copy of one epoch of a job. A job on another machine, in "
    "another checkpoint directory or with a newer version of the plugin can start from it.",
    "bicycle savepoint create wordcount",
    "bicycle savepoint list wordcount",
)


add_operations(savepoint_command)


@command(
    "list",
    "bicycle savepoint list",
    "bicycle savepoint list wordcount",
    "bicycle savepoint list --checkpoint-dir s3://bucket/savepoints",
    group=savepoint_command,
)
@click.argument("job", required=False, shell_complete=job_names)
@click.option(
    "--checkpoint-dir", metavar="URL", help="List all savepoints below this directory or URL."
)
@service_options
@answers
def list_command(*, job: str | None, checkpoint_dir: str | None, as_json: bool) -> None:
    """List savepoints, newest first.

    The list covers one job, a location, or all jobs of this machine. For savepoints that were
    created with --to, pass the same location as --checkpoint-dir.
    """
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.base.storage_urls import open_storage
    from bicycle_runtime.jobs.savepoints.commands import SavepointEntry, list_savepoints

    if checkpoint_dir is not None and job is not None:
        raise click.UsageError("pass either JOB or --checkpoint-dir")
    if checkpoint_dir is not None:
        found = list_savepoints(open_storage(checkpoint_dir))
    else:
        found = [SavepointEntry(**plain) for plain in reached_jobs().savepoints(job)]
    if as_json:
        answer_json([asdict(entry) for entry in found])
    elif not found:
        click.echo("no savepoints")
    else:
        show_table(_HEADINGS, map(_row, found), spare=_SPARE_COLUMNS)
        for entry in found:
            show_text(f"{entry.name}: {entry.url}")
            if entry.problem is not None:
                show_text(f"  problem: {entry.problem}")


@command(
    "inspect",
    "bicycle savepoint inspect savepoints/before-upgrade --verify",
    "bicycle savepoint inspect before-upgrade --job wordcount",
    group=savepoint_command,
)
@click.argument("url", shell_complete=complete_savepoint)
@click.option("--job", metavar="JOB", shell_complete=job_names, help=_JOB_HELP)
@click.option("--verify", is_flag=True, help="Read all files and compare checksums.")
@service_options
@answers
def inspect_command(*, url: str, job: str | None, verify: bool, as_json: bool) -> None:
    """Show the job, offsets, operators and sizes of a savepoint.

    To show its state, run `bicycle state` with the savepoint as --checkpoint-dir.
    """
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.base.storage_urls import open_storage
    from bicycle_runtime.jobs.checkpoints.epoch_reports import EpochReport
    from bicycle_runtime.jobs.savepoints.commands import savepoint_report
    from bicycle_runtime.layouts.savepoint import Savepoint

    if job is not None:
        plain = reached_jobs().savepoint(job, url, is_thorough=verify)
    else:
        now_ms = SystemClock().now_ms()
        plain = savepoint_report(open_storage(url), is_thorough=verify, now_ms=now_ms)
    if as_json:
        answer_json(plain)
    else:
        savepoint = msgspec.convert(plain, prepare_type(Savepoint))
        lines = _savepoint_lines(savepoint, str(plain["url"]), is_verified=verify)
        show_text(
            "\n".join(
                [*lines, *details(msgspec.convert(plain["checkpoint"], prepare_type(EpochReport)))]
            )
        )


def _row(entry: SavepointEntry) -> tuple[str, ...]:
    if entry.problem is not None:
        return (entry.name, *[""] * (len(_HEADINGS) - 1))
    return (
        entry.name,
        entry.job,
        f"{entry.plugin} {entry.plugin_version}".strip(),
        str(entry.epoch),
        time_text(entry.created_ms),
        count_text(entry.event_count),
        byte_text(entry.byte_count),
        str(entry.file_count),
    )


def _savepoint_lines(savepoint: Savepoint, url: str, *, is_verified: bool) -> list[str]:
    plugin = f"{savepoint.plugin} {savepoint.plugin_version}".strip()
    whole = ", all intact" if is_verified else ""
    return [
        f"savepoint {savepoint.name} in {url}",
        f"  job          {savepoint.job}, plugin {plugin or 'unknown'}",
        f"  created      {time_text(savepoint.created_ms)}",
        f"  size         {byte_text(savepoint.byte_count)} in "
        f"{amount(savepoint.file_count, 'file')}{whole}",
        f"  digest       {savepoint.bundle_digest}",
    ]
