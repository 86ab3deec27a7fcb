"""``bicycle serve``: figures for Prometheus, and nothing else."""

from __future__ import annotations

from pathlib import Path

import click

from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.supervision.stopping import StopRequest
from bicycle_runtime.service.metrics.endpoint import serving_metrics
from bicycle_sdk.clock import SystemClock
from bicycle_streams.cli.commands import command
from bicycle_streams.cli.parameters import answers
from bicycle_streams.cli.rendering import answer_json
from bicycle_streams.cli.server_options import home_option

_LOOK_MS = 60_000


@command("serve", "bicycle serve", "bicycle serve --port 9898")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=9_898,
    show_default=True,
    help="Port of 127.0.0.1; 0 selects a free port.",
)
@home_option
@answers
def serve_command(*, port: int, home: Path, as_json: bool) -> None:
    """Serve metrics of the jobs of this machine to Prometheus.

    GET /metrics has the metrics of all jobs of the home, including `bicycle run`, until Ctrl-C
    or SIGTERM. The command works without the extra `service`. `bicycle up` serves the same metrics.
    """
    clock = SystemClock()
    with (
        StopRequest(clock=clock).on_signals() as stop,
        serving_metrics(Home(home), port=port, clock=clock) as url,
    ):
        if as_json:
            answer_json({"url": url})
        else:
            click.echo(url)
        while not stop.wait(_LOOK_MS):
            continue
