"""``bicycle logs``: the log of a submitted job."""

from __future__ import annotations

import sys
from collections import deque

import click

from bicycle_runtime.cli.access import reached_jobs, service_options
from bicycle_runtime.cli.commands import examples
from bicycle_runtime.cli.parameters import answers, job_names
from bicycle_runtime.cli.rendering import answer_json

__all__ = ["logs_command"]


@click.command(
    "logs",
    epilog=examples(
        "bicycle logs wordcount --follow",
        "bicycle logs wordcount -n 20",
    ),
)
@click.argument("job", shell_complete=job_names)
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option(
    "-n", "--lines", "line_count", type=click.IntRange(min=0), help="Only so many lines of the end."
)
@service_options
@answers
def logs_command(*, job: str, follow: bool, line_count: int | None, as_json: bool) -> None:
    """Show the log of a submitted job.

    What its console sinks print is in it. A job in the foreground has no log here: it writes to its
    terminal. With --json each line becomes a JSON text of the list `lines`, and --follow waits for
    the end of the job first.
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
