"""The life of a job over its restarts: epochs run until an end, or an error.

Functions that raise are opened again on the same Spark; all else begins with a new one. An outage
of the storage, or a lack of file descriptors, is waited for and counts as no attempt.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from bicycle_runtime.base.errors import StorageUnreachableError
from bicycle_runtime.base.open_files import comes_from_open_files, has_room
from bicycle_runtime.base.processes import open_files_max
from bicycle_runtime.base.storage import StorageError
from bicycle_runtime.engine.errors import SparkStartError
from bicycle_runtime.engine.planning.setup import JobSetup
from bicycle_runtime.extraction.bundle import JobBundle
from bicycle_runtime.jobs.running.job_run import JobRun
from bicycle_runtime.jobs.running.starting import plan_job
from bicycle_runtime.jobs.status import JobState
from bicycle_runtime.jobs.supervision.restarts import (
    OF_FUNCTIONS,
    Restarts,
    fails_again,
    may_pass,
    position_of,
)
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import log_event

if TYPE_CHECKING:
    from bicycle_runtime.jobs.running.epochs import Epochs

_LOG = logging.getLogger(__name__)
_FILES_MIN = 24  # A start of the loop opens fewer at a time.
_FILES_PAUSE_MS = 1_000


def run_to_end(
    run: JobRun, epochs: Epochs, setup: JobSetup, bundle: JobBundle
) -> tuple[JobSetup, JobState]:
    """Run epochs until the end; return the job as last planned, and its end state."""
    restarts = _restarts(run, setup)
    try:
        while (final := _run_or_wait(run, epochs, setup, restarts)) is None:
            run.executor.is_deferred = False
            setup = run.outages.survive(lambda: plan_job(run, bundle))
    except StorageUnreachableError:
        if not run.services.stop.is_set:
            raise
        run.lease.abandon()
        final = JobState.STOPPED
    return setup, final


def _restarts(run: JobRun, setup: JobSetup) -> Restarts:
    """Return the restart strategy in use, and write it for the supervisor."""
    options, status = run.request.options, run.progress.status
    restarts = Restarts(
        setup.graph.config.restart_strategy,
        options.restart_attempts,
        delay_ms=options.restart_delay_ms,
        delay_max_ms=options.restart_delay_max_ms,
        source=run.services.source,
    )
    restarts.resume(status.restarts)
    status.restart_plan = restarts.plan()
    return restarts


def _run_or_wait(
    run: JobRun, epochs: Epochs, setup: JobSetup, restarts: Restarts
) -> JobState | None:
    """Run epochs; None when something failed and it is time to start again.

    An epoch that a driver before us sealed in its last moment is a reason to start again, too,
    and so is a damaged state file: the epochs that it belongs to were put aside.
    """
    try:
        return epochs.run(setup)
    except StorageUnreachableError as error:
        if run.services.stop.is_set:
            raise
        run.progress.enter(JobState.RESTARTING)
        run.outages.wait(error)
        run.outages.survive(run.lease.require)
        return None
    except (BicycleError, OSError) as error:
        if comes_from_open_files(error):
            run.progress.enter(JobState.RESTARTING)
            return None if _wait_for_files(run, error) else JobState.STOPPED
        if not isinstance(error, BicycleError) or not _may_restart(run, error, restarts):
            raise
        return JobState.STOPPED if run.services.stop.is_set else None


def _may_restart(run: JobRun, error: BicycleError, restarts: Restarts) -> bool:
    """Return whether an error leads to a restart, after its delay or a stop request.

    If the lease is lost, the loss is raised instead of the errors that it caused.
    """
    stop = run.services.stop
    with contextlib.suppress(StorageError):
        run.lease.require()
    # If Spark was there before, an error that keeps it from starting now may pass.
    is_away = restarts.used_count > 0 and isinstance(error, SparkStartError)
    if not is_away and not may_pass(error):
        return False
    status = run.progress.status
    is_hopeless = (
        run.is_bounded
        and restarts.is_default
        and fails_again(error, status.restarts, epoch=status.epoch)
    )
    delay_ms = (
        None if is_hopeless else restarts.delay_ms(epoch=status.epoch, position=position_of(error))
    )
    if stop.is_set and delay_ms is not None:  # The history shows why the last epoch was lost.
        run.progress.note_failure(error, attempt=restarts.used_count, delay_ms=None)
        return True
    run.progress.note_failure(error, attempt=restarts.used_count, delay_ms=delay_ms)
    if delay_ms is None:
        return False
    log_event(
        _LOG, "job_restarting", level=logging.WARNING, job=run.location.job, error=error,
        delay_ms=delay_ms, attempt=restarts.used_count,
    )  # fmt: skip
    if not isinstance(error, OF_FUNCTIONS):
        run.executor.replace()
    with run.phases.waiting():
        stop.wait(delay_ms)
    return True


def _wait_for_files(run: JobRun, error: BaseException) -> bool:
    """Wait until the driver can open files again; return False on a stop request.

    Leaving the epoch loop closes its connections and files, and the connections of socket clients.
    The epoch that met the lack was not sealed.
    """
    log_event(
        _LOG, "open_files_awaited", level=logging.WARNING, job=run.location.job,
        open_files_max=open_files_max(), reason=f"{type(error).__name__}: {error}",
    )  # fmt: skip
    with run.phases.waiting():
        while True:
            if run.services.stop.wait(
                _FILES_PAUSE_MS
            ):  # At least one pause, even if files are free.
                return False
            if has_room(_FILES_MIN):
                return True
