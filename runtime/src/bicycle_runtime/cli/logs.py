"""``bicycle logs``: the log of a submitted job."""

from __future__ import annotations

import sys
from collections import deque

import click

from bicycle_runtime.cli.access import reached_jobs
from bicycle_runtime.cli.parameters import job_names, service_options
from bicycle_streams.cli.commands import command
from bicycle_streams.cli.parameters import answers
from bicycle_streams.cli.rendering import answer_json


@command("logs", "bicycle logs wordcount --follow", "bicycle logs wordcount -n 20")
@click.argument("job", shell_complete=job_names)
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the job ends.")
@click.option(
    "-n", "--lines", "line_count", type=click.IntRange(min=0), help="Show only the last N lines."
)
@service_options
@answers
def logs_command(*, job: str, follow: bool, line_count: int | None, as_json: bool) -> None:
    """Show or follow the log of a submitted job.

    The log includes the output of console sinks. A job in the foreground writes to its terminal
    instead. With --json, the output is the list `lines`, and --follow waits for the end of the
    job.
    """
    jobs = reached_jobs()
    if not as_json:
        for piece in jobs.log(job, line_count=line_count, follow=follow):
            sys.stdout.write(piece)
            sys.stdout.flush()
        return
    if follow:
        deque(jobs.log(job, line_count=0, follow=True), maxlen=0)
    lines = "".join(jobs.log(job, line_count=line_count, follow=False)).split("\n")
    answer_json({"job": job, "lines": lines if lines[-1] else lines[:-1]})
