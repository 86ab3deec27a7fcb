"""The driver of one job: from the request to the summary, in one process.

It holds the job's locks, writes its status, and leaves the work to the engine. Bounded input ends
it, a stop request ends it cleanly, an error ends it with the status FAILED; whatever happens, the
last sealed epoch is intact and the same command continues from there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging

from bicycle_runtime.base.stacks import offer_stacks
from bicycle_runtime.engine.errors import SparkStartError
from bicycle_runtime.jobs.control.previous_run import (
    PreviousRun,
    job_locks,
    last_status,
    require_checkpoint,
)
from bicycle_runtime.jobs.home import Home, JobFolder, locate_job
from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.plugins.environments import find_plugin
from bicycle_runtime.jobs.running.epochs import Epochs
from bicycle_runtime.jobs.running.executors import MakeExecutor
from bicycle_runtime.jobs.running.job_run import JobRun
from bicycle_runtime.jobs.running.restarting import run_to_end
from bicycle_runtime.jobs.running.services import DoorServices
from bicycle_runtime.jobs.running.starting import extract_job, plan_job, take_over
from bicycle_runtime.jobs.running.summary import RunSummary, summarize
from bicycle_runtime.jobs.savepoints.trust import require_trust
from bicycle_runtime.jobs.status import JobState
from bicycle_runtime.jobs.supervision.error_reports import foreign_error, java_error
from bicycle_sdk.errors import BicycleError


def run_job(
    request: JobRequest,
    home: Home,
    services: DoorServices,
    *,
    new_executor: MakeExecutor,
    folder: JobFolder | None = None,
) -> RunSummary:
    """Run a job until its input ends or a stop is requested.

    Args:
        request: The job.
        home: Where its folder is.
        services: Clock, output, stop request.
        new_executor: Creates the executor of each start.
        folder: The job's folder when that was settled before.

    Raises:
        JobRunningError: another process of this machine runs it.
        BicycleError: the plugin, its parameters, its input or a function is wrong, or Spark failed.
    """
    plugin = find_plugin(request.options, home)  # A wrong name leaves no trace of a job.
    home.prepare()
    location = locate_job(request.options, home, clock=services.clock, source=services.source)
    location = dataclasses.replace(location, folder=folder or location.folder).for_driver()
    options = request.options
    if options.from_ is not None:
        is_trusted = options.trust or request.no_pickle
        require_trust(options.from_, home, is_trusted=is_trusted, key_file=options.savepoint_key)
    before = None
    is_again = services.former is not None
    if not is_again:
        require_checkpoint(location, last_status(location.folder), is_again=False)
    try:
        with job_locks(location, is_again=is_again):
            # The submitting process restores its former run, after reading the error.
            before = None if services.is_detached else PreviousRun.of(location.folder)
            if not is_again:  # It was read from there; the disk may be full since.
                location.folder.write_request(request)
            run = JobRun(
                request, home, location, services, plugin=plugin, new_executor=new_executor
            )
            with run.listeners:
                return _run(run)
    except BicycleError:
        if before is not None:
            before.put_back()
        raise


def _run(run: JobRun) -> RunSummary:
    """Run the job, and set the status of its end."""
    run.inbox.open(is_again=not run.is_first)
    run.progress.enter(JobState.CREATED if run.is_first else JobState.RESTARTING)
    timeout_s = run.request.options.stop_timeout_ms / 1_000
    run.services.stop.arm(
        timeout_s=timeout_s, on_request=run.note_stop, abort=run.abort, late=run.end_late
    )
    try:
        return _drive(run)
    except SparkStartError as error:
        raise run.fail(java_error() or error) from error
    except BicycleError as error:
        raise run.fail(error) from error.__cause__
    except BaseException as error:
        run.progress.status.error = foreign_error(error)
        run.progress.enter(JobState.FAILED)
        raise


def _drive(run: JobRun) -> RunSummary:
    """Drive the job from its lease to its summary.

    1. Take the job's lease, so that no other driver runs it.
    2. Start Java and extract the plugin's graph at the same time; of a job that has run before
       only the graph, as there may be nothing new to run.
    3. Plan the job and create its connectors.
    4. Run epochs until the input ends or a stop is requested, then publish everything.
    """
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(offer_stacks(run.location.folder.stacks_path))
        cleanup.enter_context(run.watchdog)
        cleanup.enter_context(run.phases.work("starting or ending"))
        cleanup.enter_context(run.outages.reporting())
        # 1. Take the job's lease, so that no other driver runs it.
        cleanup.enter_context(take_over(run))
        cleanup.callback(run.executor.stop)
        # 2. Start Java and extract the plugin's graph at the same time; of a job that has run
        #    before only the graph, as there may be nothing new to run.
        bundle = extract_job(run)
        for name, present, location in bundle.former_names:
            run.log(
                "former_option_name", level=logging.WARNING,
                name=name, present=present, location=location,
            )  # fmt: skip
        # 3. Plan the job and create its connectors.
        setup = plan_job(run, bundle)
        # 4. Run epochs until the input ends or a stop is requested, then publish everything.
        setup, final = run_to_end(run, Epochs(run), setup, bundle)
    run.progress.enter(final)
    summary = summarize(
        run.progress.status, setup, location=run.location, request=run.request,
        was_aborted=run.services.stop.was_aborted and run.loop is not None,
    )  # fmt: skip
    run.log(
        f"job_{final.value.lower()}", epoch=summary.epoch, record_count=summary.record_count,
        duration_ms=summary.duration_ms,
    )  # fmt: skip
    return summary
