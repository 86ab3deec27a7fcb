"""``bicycle checkpoints``: the epochs that a checkpoint directory retains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bicycle_runtime.cli.parameters import home, job_names
from bicycle_runtime.cli.rendering import time_text, watermark_text
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.quantities import amount, byte_text, count_text, duration_text
from bicycle_streams.cli.commands import command
from bicycle_streams.cli.parameters import answers
from bicycle_streams.cli.rendering import answer_json, show_table, show_text

if TYPE_CHECKING:
    from bicycle_runtime.jobs.checkpoints.epoch_reports import EpochReport

F = TypeVar("F", bound=Callable[..., Any])
_HEADINGS = (
    "epoch", "sealed", "age", "status", "bases", "deltas", "files", "records", "offsets",
    "watermark", "parallelism",
)  # fmt: skip


def checkpoint_options(command: F) -> F:
    """Add ``--job`` and ``--checkpoint-dir``, as ``job`` and ``checkpoint_dir``."""
    command = click.argument(
        "others", cls=_Others, nargs=-1, expose_value=False, callback=_refuse_others
    )(command)
    command = click.option(
        "--checkpoint-dir",
        metavar="URL",
        help="Directory or URL with the checkpoints of one job, or of several jobs.",
    )(command)
    return click.option(
        "--job",
        metavar="NAME",
        shell_complete=job_names,
        help="Name of a job of this machine, or of a job below --checkpoint-dir.",
    )(command)


class _Others(click.Argument):
    """Arguments that a command does not have; they are no part of its usage."""

    def get_usage_pieces(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # the contract
        """Return nothing."""
        return []


def _refuse_others(
    _context: click.Context, _argument: click.Parameter, found: tuple[str, ...]
) -> None:
    """Raise a usage error that names ``--job`` for a job in place of an argument."""
    if found:
        text = f"unexpected argument {found[0]!r}; use --job {found[0]}"
        raise click.UsageError(text)


@command(
    "checkpoints",
    "bicycle checkpoints --job wordcount",
    "bicycle checkpoints --checkpoint-dir checkpoints/wordcount --epoch 7 --verify",
)
@checkpoint_options
@click.option("--epoch", type=click.IntRange(min=0), help="Show the details of this epoch only.")
@click.option(
    "--verify", is_flag=True, help="Read all state files and compare checksums, not only sizes."
)
@answers
def checkpoints_command(
    *, job: str | None, checkpoint_dir: str | None, epoch: int | None, verify: bool, as_json: bool
) -> None:
    """List the epochs in a checkpoint directory.

    The list has the newest epoch first and savepoints last, and shows why an epoch is damaged.
    The command only reads the directory: it works while the job runs, takes no lock and needs
    no plugin.
    """
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.jobs.checkpoints.epoch_reports import report_checkpoints
    from bicycle_runtime.jobs.checkpoints.lookup import find_checkpoint
    from bicycle_runtime.jobs.savepoints.commands import list_savepoints

    storage = find_checkpoint(home(), job=job, checkpoint_dir=checkpoint_dir)
    now_ms = SystemClock().now_ms()
    reports = report_checkpoints(storage, now_ms=now_ms, epoch=epoch, is_thorough=verify)
    savepoints = list_savepoints(storage, is_job=True)
    if as_json:
        answer = {
            "url": storage.url,
            "epochs": [asdict(report) for report in reports],
            "savepoints": [asdict(entry) for entry in savepoints],
        }
        answer_json(answer)
        return
    show_text(f"checkpoint {storage.url}")
    if epoch is not None:
        show_text("\n".join(line for report in reports for line in details(report)))
        return
    show_table(_HEADINGS, map(_row, reports))
    for report in reports:
        if report.damage is not None:
            show_text(f"epoch {report.epoch} is damaged: {report.damage}")
    for entry in savepoints:
        what = entry.problem or f"epoch {entry.epoch}, {byte_text(entry.byte_count)}"
        show_text(f"savepoint {entry.name}: {what}")


def _row(report: EpochReport) -> tuple[str, ...]:
    if report.sealed_ms is None:
        return (str(report.epoch), "", "", _status(report), *[""] * (len(_HEADINGS) - 4))
    return (
        str(report.epoch),
        time_text(report.sealed_ms),
        duration_text(report.age_ms or 0),
        _status(report),
        byte_text(report.base_bytes),
        byte_text(report.delta_bytes),
        str(report.file_count),
        count_text(report.record_count),
        _offsets(report),
        watermark_text(report.watermark_ms),
        _span(report.parallelism.values()),
    )


def details(report: EpochReport) -> list[str]:
    """Return all that is known of one epoch, for people."""
    lines = [f"epoch {report.epoch}: {_status(report)}"]
    if report.damage is not None:
        lines.append(f"  damage       {report.damage}")
    if report.sealed_ms is None:
        return lines
    lines += [
        f"  sealed       {time_text(report.sealed_ms)}, {duration_text(report.age_ms or 0)} ago",
        f"  state        bases {byte_text(report.base_bytes)}, "
        f"deltas {byte_text(report.delta_bytes)}, {amount(report.file_count, 'file')}",
        f"  records      {count_text(report.record_count)} since the beginning",
        f"  watermark    {watermark_text(report.watermark_ms)}",
        *(
            f"  offset       {uid}: {shard}: {count_text(offset)}"
            for uid, shards in report.offsets.items()
            for shard, offset in shards.items()
        ),
        *(f"  operator     {uid}: {_operator(report, uid)}" for uid in report.parallelism),
    ]
    return lines


def _operator(report: EpochReport, uid: str) -> str:
    text = f"parallelism {report.parallelism[uid]}"
    size = report.state_bytes.get(uid)
    return text if size is None else f"{text}, state {byte_text(size)}"


def _status(report: EpochReport) -> str:
    if report.damage is not None:
        return "skipped" if report.is_put_aside else "damaged"
    word = "published" if report.is_published else "sealed"
    return f"{word}, final" if report.is_finished else word


def _offsets(report: EpochReport) -> str:
    shards = [offset for found in report.offsets.values() for offset in found.values()]
    if not shards:
        return ""
    where = "1 shard" if len(shards) == 1 else f"{len(shards)} shards"
    return f"{count_text(sum(shards))} in {where}"


def _span(numbers: Any) -> str:
    low, high = min(numbers, default=0), max(numbers, default=0)
    return str(low) if low == high else f"{low} to {high}"
