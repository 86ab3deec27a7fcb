"""``bicycle metrics`` and ``workers``: figures and resources of jobs."""

from __future__ import annotations

import click
import msgspec

from bicycle_runtime.cli.access import reached_jobs
from bicycle_runtime.cli.parameters import job_names, service_options
from bicycle_sdk.quantities import byte_text, duration_text
from bicycle_streams.cli.commands import command
from bicycle_streams.cli.parameters import answers
from bicycle_streams.cli.rendering import answer_json, show_table


@command("metrics", "bicycle metrics wordcount", "bicycle metrics --json")
@click.argument("job", required=False, shell_complete=job_names)
@service_options
@answers
def metrics_command(*, job: str | None, as_json: bool) -> None:
    """Show throughput, lag and other metrics of running jobs.

    The output has the text format of Prometheus. With --json, each metric is an object with the
    keys name, labels and value.
    """
    found = reached_jobs().figures(job)
    if as_json:
        answer_json({"items": msgspec.to_builtins(found)})
    else:
        for sample in found:
            click.echo(sample.line)


@command("workers", "bicycle workers")
@service_options
@answers
def workers_command(*, as_json: bool) -> None:
    """Show the processes of running jobs with CPU and memory.

    The list contains the drivers, and their Java and Python processes, on the machine where the
    jobs were started. It does not contain workers on other hosts of a cluster.
    """
    found = reached_jobs().workers()
    if as_json:
        answer_json({"items": found})
    elif not found:
        click.echo("no running jobs")
    else:
        rows = [
            (
                each["worker_id"], each["state"], process["role"], str(process["pid"]),
                byte_text(process["resident_bytes"]),
                duration_text(round(process["cpu_seconds"] * 1_000)),
            )
            for each in found
            for process in each["processes"]
        ]  # fmt: skip
        show_table(("job", "state", "process", "pid", "memory", "processor time"), rows)
