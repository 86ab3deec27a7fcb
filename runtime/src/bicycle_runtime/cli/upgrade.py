"""``bicycle upgrade``: a running job continues with another version of its plugin."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from bicycle_runtime.base.options import describe, from_mapping
from bicycle_runtime.cli.access import reached_service, service_options
from bicycle_runtime.cli.commands import examples
from bicycle_runtime.cli.parameters import answers, declared_options, job_names
from bicycle_runtime.cli.remote import job_path
from bicycle_runtime.cli.rendering import answer_json, duration_text
from bicycle_runtime.jobs.upgrading.upgrade import UpgradeOptions

__all__ = ["upgrade_command"]

_OPTIONS = describe(UpgradeOptions)


@click.command(
    "upgrade",
    epilog=examples(
        "bicycle upgrade clicks --wheel dist/clicks-2.0-py3-none-any.whl",
        "bicycle upgrade clicks --wheel clicks-2.0-py3-none-any.whl --plan-only",
        "bicycle upgrade clicks --wheel clicks-2.0-py3-none-any.whl --strategy blue-green",
        "bicycle upgrade clicks --wheel clicks-2.0-py3-none-any.whl --epochs 10 --watch-ms 300000",
    ),
)
@click.argument("job", shell_complete=job_names)
@click.option(
    "--wheel",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="The new version.",
)
@click.option(
    "--lock",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Its lock file, with versions and hashes of its libraries.",
)
@click.option("--plugin", metavar="NAME", help="What the plugin is called, if otherwise than now.")
@click.option("--plan-only", is_flag=True, help="Show what it would do to each state; do nothing.")
@click.option("--allow-dropped-state", is_flag=True, help="Give up state that it does not have.")
@declared_options(_OPTIONS)
@service_options
@answers
def upgrade_command(
    *,
    job: str,
    wheel: Path,
    lock: Path | None,
    plugin: str | None,
    allow_dropped_state: bool,
    plan_only: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Let a running job go on with another version of its plugin.

    The wheel is uploaded to the service that has the job, and held against the last epoch: one that
    does not fit the state changes nothing. Then the job stops at the end of an epoch, the new
    version goes on behind it, and is watched. When it fails, or is restarted, the former version
    goes on behind what was sealed, and the command fails. Nothing is read or published twice.

    With the strategy blue-green the version first runs beside the job: it reads the same input,
    makes state of its own, and nobody sees its output. Only when it has caught up and proved itself
    does the job stop, and the version goes on where it stopped, with the state that it has made.
    """
    present = {name: value for name, value in given.items() if value is not None}
    options = from_mapping(UpgradeOptions, present)
    remote = reached_service()
    digest = remote.upload(wheel=wheel, lock=lock)["digest"]
    facts = {
        "digest": digest, "plugin": plugin, "allow_dropped_state": allow_dropped_state,
        **dataclasses.asdict(options),
    }  # fmt: skip
    done = remote.operation(job_path(job, "upgrade", *(["plan"] if plan_only else [])), facts)
    if as_json:
        answer_json({**done, "digest": digest})
        return
    if done["changes"] is None:
        click.echo(f"{job} runs version {done['plugin_version']} already")
        return
    for each in done["changes"]["operators"]:
        click.echo(f"  {each['verdict']:<9}{each['operator']}")
    if plan_only:
        click.echo(f"{job} would go on with version {done['plugin_version']}; nothing was done")
        return
    gap = "unknown" if done["gap_ms"] is None else duration_text(done["gap_ms"])
    saved = f", savepoint {done['savepoint']}" if done["savepoint"] else ""
    click.echo(
        f"{job} goes on with version {done['plugin_version']} behind epoch {done['epoch']}; "
        f"gap in the output: {gap}{saved}"
    )
