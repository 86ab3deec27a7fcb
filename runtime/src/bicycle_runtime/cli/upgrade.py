"""``bicycle upgrade``: a running job continues with another version of its plugin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bicycle_runtime.cli.access import RemoteJobs, reached_service, service_options
from bicycle_runtime.cli.parameters import declared_options, job_names
from bicycle_runtime.service.operations.upgrading import PLAN_UPGRADE, UPGRADE
from bicycle_sdk.quantities import duration_text
from bicycle_streams.cli.commands import examples
from bicycle_streams.cli.parameters import answers
from bicycle_streams.cli.rendering import answer_json

_OPTIONS = [info for info in UPGRADE.option_infos if info.name != "digest"]


@click.command(
    "upgrade",
    epilog=examples(
        "bicycle upgrade clicks --wheel dist/clicks-2.0-py3-none-any.whl",
        "bicycle upgrade clicks --wheel clicks-2.0-py3-none-any.whl --plan-only",
        "bicycle upgrade clicks --wheel clicks-2.0-py3-none-any.whl --strategy blue-green",
    ),
)
@click.argument("job", shell_complete=job_names)
@click.option(
    "--wheel",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="Wheel of the new version.",
)
@click.option(
    "--lock",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Lock file with versions and hashes of its libraries.",
)
@click.option("--plan-only", is_flag=True, help="Show the effect on each state, without changes.")
@declared_options(_OPTIONS)
@service_options
@answers
def upgrade_command(
    *,
    job: str,
    wheel: Path,
    lock: Path | None,
    plan_only: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Upgrade a running job to another version of its plugin.

    The wheel is uploaded to the service of the job and compared with the last epoch: if the
    version does not match the state, the job is unchanged. Otherwise the job stops after an
    epoch, and the new version continues after it and is monitored. If it fails or restarts, the
    previous version continues after the last sealed epoch, and the command fails. No record is
    read or published twice.

    With the strategy blue-green, the new version first runs in parallel with the job: it reads
    the same input and builds separate state without visible output. When it has caught up and is
    stable, the job stops, and the new version continues at the same position with its state.
    """
    present = {name: value for name, value in given.items() if value is not None}
    UPGRADE.parse({**present, "digest": ""})  # A wrong option is reported before the upload.
    remote = reached_service()
    digest = remote.upload(wheel=wheel, lock=lock)["digest"]
    kind = PLAN_UPGRADE if plan_only else UPGRADE
    done = RemoteJobs(remote).perform(kind, job, kind.parse({**present, "digest": digest}))
    if as_json:
        answer_json({**done, "digest": digest})
        return
    if done["changes"] is None:
        click.echo(f"{job} already runs version {done['plugin_version']}")
        return
    for each in done["changes"]["operators"]:
        click.echo(f"  {each['verdict']:<9}{each['operator']}")
    if plan_only:
        click.echo(
            f"{job} would continue with version {done['plugin_version']}; nothing was changed"
        )
        return
    gap = "unknown" if done["gap_ms"] is None else duration_text(done["gap_ms"])
    saved = f", savepoint {done['savepoint']}" if done["savepoint"] else ""
    click.echo(
        f"{job} continues with version {done['plugin_version']} after epoch {done['epoch']}; gap "
        f"in the output: {gap}{saved}"
    )
