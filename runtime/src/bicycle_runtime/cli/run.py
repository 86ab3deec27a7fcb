"""``bicycle run`` and ``bicycle submit``: a job in the foreground or background."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import click

from bicycle_runtime.cli.parameters import (
    declared_options,
    home,
    plugin_option,
    service_options,
    set_option,
)
from bicycle_runtime.cli.uploading import submit_wheel, wheel_options
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.jobs.options import JobOptions, JobRequest, options_of_new_job
from bicycle_runtime.jobs.status import JobStatus
from bicycle_sdk.options import describe
from bicycle_streams.cli.commands import CommandWithSections, command
from bicycle_streams.cli.parameters import answers, pairs

_JOB_OPTIONS = describe(JobOptions)
_ENGINE_OPTIONS = describe(EngineOptions)


_GROUPS = {
    "Common options": (
        *("plugin", "pipeline", "plugin_env", "params", "params_file", "wheel", "lock"),
        *("name", "checkpoint_dir", "from_", "parallelism", "mode", "follow"),
        *("latency_target_ms", "http_port"),
    ),
    "State and checkpoints": (
        *("state_backend", "state_dir", "checkpoint_interval_ms", "retained_epochs"),
        *("retained_age_ms", "allow_dropped_state", "trust", "savepoint_key", "no_pickle"),
        *("state_cache_entries", "state_block_cache_bytes", "state_write_buffer_bytes"),
    ),
    "Restarts": (
        *("restart_attempts", "restart_delay_ms", "restart_delay_max_ms", "on_data_loss"),
        *("watchdog_timeout_ms", "epoch_stall_timeout_ms", "stop_timeout_ms"),
    ),
    "Spark": ("master", "cluster_timeout_ms", "spark"),
}
_IN_GROUPS = {name for names in _GROUPS.values() for name in names}
_SECTIONS = {
    **_GROUPS,
    "Advanced": tuple(
        info.name for info in (*_JOB_OPTIONS, *_ENGINE_OPTIONS) if info.name not in _IN_GROUPS
    ),
}


def _job_flags(command: Any) -> Any:
    """Add the flags that select a job, common to both commands."""
    spark = click.option(
        "--conf",
        "spark",
        multiple=True,
        metavar="SPARK.NAME=VALUE",
        callback=lambda _context, _option, values: pairs(values, "--conf", prefix="spark."),
        help="A setting of Spark, such as spark.driver.memory=4g. Repeatable.",
    )
    command = declared_options(_ENGINE_OPTIONS)(spark(command))
    flags = [info for info in _JOB_OPTIONS if info.name != "plugin"]
    return plugin_option(declared_options(flags)(set_option(command)))


def _request(params: dict[str, str], spark: dict[str, str], given: dict[str, Any]) -> JobRequest:
    _check_pipeline(given["plugin"])
    present = {name: value for name, value in given.items() if value is not None}
    job = {info.name: present[info.name] for info in _JOB_OPTIONS if info.name in present}
    engine = {info.name: present[info.name] for info in _ENGINE_OPTIONS if info.name in present}
    return JobRequest(options=options_of_new_job(job), params=params, engine=engine, spark=spark)


def _check_pipeline(job: str) -> None:
    """Check a job that is a pipeline before anything starts.

    Raises:
        PIPELINE_INVALID: with all that is wrong.
    """
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.extraction.scripts import read_pipeline
    from bicycle_runtime.pipelines.documents import notation_of

    if notation_of(job) is not None:
        # As above, and needed for a pipeline alone.
        from bicycle_runtime.pipelines.nodes import check_pipeline

        check_pipeline(read_pipeline(job))


@command(
    "run",
    "bicycle run clicks.py --set input=clicks.csv",
    "bicycle run --plugin wordcount --set input=in --set output=out --checkpoint-dir cp",
    "bicycle run views.sql --checkpoint-dir checkpoints",
    cls=CommandWithSections,
    sections=_SECTIONS,
)
@_job_flags
@click.option(
    "--http-port",
    type=click.IntRange(0, 65_535),
    default=0,
    show_default=True,
    help="Port of 127.0.0.1 that serves metrics for Prometheus at /metrics; 0 disables it.",
)
@answers
def run_command(
    *, params: dict[str, str], spark: dict[str, str], http_port: int, as_json: bool, **given: Any
) -> None:
    """Run a job in the foreground.

    The job is an installed plugin, a Python file with a function that is decorated with
    @bicycle_plugin (FILE.py or FILE.py:FUNCTION), an SQL file (FILE.sql), a folder of SQL files, or
    a pipeline (FILE.toml or FILE.yaml). It runs on embedded Spark unless --master is set. The
    content of a file is read once, at the start.

    A job with bounded input ends with exit code 0 and a summary. SIGTERM or Ctrl-C finishes and
    publishes the current epoch, and also ends with exit code 0; a second signal ends the job
    immediately. After any end, including a crash, the same command continues from the last
    sealed epoch.
    """
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.jobs.running.early_java import EarlyJava

    request = _request(params, spark, given)
    with _figures(http_port), EarlyJava(request, home()) as early:
        # Slow to import: Java comes up meanwhile.
        from bicycle_runtime.cli.foreground import run_in_foreground

        run_in_foreground(request, home(), early, as_json=as_json)


def _figures(port: int) -> AbstractContextManager[object]:
    """Serve figures while inside, where a port is given."""
    if not port:
        return nullcontext()
    # Slow to import, and needed with a port only.
    # As above.
    from bicycle_runtime.service.metrics.endpoint import serving_metrics
    from bicycle_sdk.clock import SystemClock

    return serving_metrics(home(), port=port, clock=SystemClock())


@command(
    "submit",
    "bicycle submit --plugin wordcount --params job.toml --checkpoint-dir cp",
    "bicycle submit clicks.py --set input=clicks.csv --name clicks",
    "bicycle submit --plugin clicks --wheel dist/clicks-1.0-py3-none-any.whl",
    cls=CommandWithSections,
    sections=_SECTIONS,
)
@_job_flags
@wheel_options
@service_options
@answers
def submit_command(
    *,
    params: dict[str, str],
    spark: dict[str, str],
    wheel: Path | None,
    lock: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Start a job in the background and print its id.

    FILE is a Python file, an SQL file, a folder of SQL files or a pipeline, as for `bicycle run`.
    The command returns when the job runs, or with an error if the start fails. Pass the id to
    status, logs, stop and cancel.

    With --wheel, the command uploads the wheel to a service, which installs it in a separate
    environment and runs the job from it. Without --wheel, the service that --service or
    BICYCLE_SERVICE names runs the job, or this machine if no service is named.
    """
    # Slow to import, and not needed to run a job or to show the help.
    from bicycle_runtime.cli.access import reached_service, remote_start
    from bicycle_streams.cli.rendering import answer_json

    if wheel is None and lock is not None:
        raise click.UsageError("--lock needs --wheel")
    request = _request(params, spark, given)
    if wheel is not None:
        answer = submit_wheel(reached_service(), request, wheel=wheel, lock=lock)
    else:
        answer = (remote_start(request) or _start(request)).to_json()
    if as_json:
        answer_json(answer)
    else:
        click.echo(answer["id"])


def _start(request: JobRequest) -> JobStatus:
    # As above.
    from bicycle_runtime.jobs.control.submitting import submit

    return submit(request, home(), python=sys.executable)
