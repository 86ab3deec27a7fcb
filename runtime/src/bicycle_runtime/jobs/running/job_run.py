"""One run of one job: the objects that all its steps share.

It starts nothing. The steps are in ``starting``, ``restarting`` and ``epochs``, in the order in
which ``driver`` goes through them; the watchdog and a stop request reach the run from other
threads.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from bicycle_runtime.base.errors import StorageUnreachableError
from bicycle_runtime.base.processes import is_alive
from bicycle_runtime.base.stacks import ProcessStacks
from bicycle_runtime.base.storage import StorageError
from bicycle_runtime.jobs.control.requests import DriverRequest, Inbox
from bicycle_runtime.jobs.errors import StalledError
from bicycle_runtime.jobs.home import Home, JobLocation
from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.plugins.environments import JobEnvironment
from bicycle_runtime.jobs.running.executors import JobExecutor, MakeExecutor
from bicycle_runtime.jobs.running.first_status import first_status
from bicycle_runtime.jobs.running.listeners import installed_listeners
from bicycle_runtime.jobs.running.phases import Phases
from bicycle_runtime.jobs.running.progress import JobProgress
from bicycle_runtime.jobs.running.services import DoorServices
from bicycle_runtime.jobs.running.storage_outages import StorageOutages
from bicycle_runtime.jobs.savepoints.taking import RunningSavepoints
from bicycle_runtime.jobs.savepoints.trust import signer
from bicycle_runtime.jobs.status import JobState
from bicycle_runtime.jobs.stuck import stuck_threads
from bicycle_runtime.jobs.supervision.error_reports import plain_error
from bicycle_runtime.jobs.supervision.stopping import end_now
from bicycle_runtime.jobs.supervision.watchdog import Watchdog, WatchdogSteps
from bicycle_runtime.recovery.lease import Lease
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import log_event

if TYPE_CHECKING:
    from bicycle_runtime.engine.loop.epoch_loop import EpochLoop

_LOG = logging.getLogger(__name__)
_STALLED_CODE = 1


class JobRun:
    """One run of one job; used once.

    Attributes:
        request: The job; a start with a savepoint and a rescale change it.
        loop: The epoch loop that runs now; None before it has recovered.
        is_bounded: Whether all input ends, as far as is known.
    """

    def __init__(
        self, request: JobRequest, home: Home, location: JobLocation, services: DoorServices,
        *, plugin: JobEnvironment, new_executor: MakeExecutor,
    ) -> None:  # fmt: skip
        self.request = request
        self.plugin = plugin
        self.location = location
        self.services = services
        self.loop: EpochLoop | None = None
        self.is_bounded = False
        status = first_status(
            services.former, request=request, location=location, supervisor=services.supervisor,
            is_detached=services.is_detached, now_ms=services.clock.now_ms(),
        )  # fmt: skip
        self.listeners = installed_listeners(location.job)
        self.progress = JobProgress(
            status, folder=location.folder, clock=services.clock, listener=services.listener,
            hot_key_percent=request.hot_key_percent, listeners=self.listeners,
        )  # fmt: skip
        self.inbox = Inbox(location.folder.path, tried_once=frozenset({DriverRequest.RESCALE}))
        self.savepoints = RunningSavepoints(
            location.storage, job=location.job, clock=services.clock,
            signer=partial(signer, home, request.options.savepoint_key),
        )  # fmt: skip
        steps = WatchdogSteps(let_go=self.abort, end=self._end_stalled)
        self.watchdog = Watchdog(steps, clock=services.clock, job=location.job)
        self.phases = Phases(self.watchdog, self.progress, request.options, location)
        self.executor = JobExecutor(
            lambda: new_executor(self.request, home, location),
            progress=self.progress, phases=self.phases,
        )  # fmt: skip
        self.outages = StorageOutages(
            location.storage, progress=self.progress, stop=services.stop, phases=self.phases
        )
        self.lease = Lease(
            location.storage, job=location.job, clock=services.clock, source=services.source,
            beat_ms=request.options.lease_beat_ms,
        )  # fmt: skip

    @property
    def is_first(self) -> bool:
        """True unless an earlier driver of this run has died."""
        return self.services.former is None

    def note_refused_beat(self, error: StorageError | None) -> None:
        """Show that the checkpoint storage refuses heartbeats, or, for None, accepts them."""
        reason = "" if error is None else f"{error.code} {error.summary.splitlines()[0]}"
        self.progress.take_storage(is_away=error is not None, reason=reason)

    def note_stop(self) -> None:
        """Show that a stop is requested; end Spark if there is no epoch to finish."""
        self.progress.enter_stopping()
        self.log("stop_requested")
        if self.loop is None:  # There is no epoch to finish: Spark is still starting.
            self.executor.kill()

    def abort(self) -> None:
        """End the epoch that runs, without waiting for it."""
        self._note_stuck(self.executor.end_tasks())
        self.executor.abort()
        if self.loop is not None:
            self.loop.interrupt()

    def end_late(self) -> None:
        """Set the status to stopped, though this process does not end."""
        self._note_stuck()
        if not self.progress.status.state.is_final:
            self.progress.enter(JobState.STOPPED)
        if self.loop is None:  # This driver has read nothing: the stop is complete.
            end_now(0)

    def _note_stuck(self, others: Sequence[ProcessStacks] = ()) -> None:
        stacks = self.location.folder.stacks_path
        self.progress.take_stuck(stuck_threads(stacks, driver_pid=os.getpid(), others=others))

    def fail(self, error: BicycleError) -> BicycleError:
        """Set an error that ends the job in the status, and return it."""
        if self.services.stop.is_set and isinstance(error, StorageUnreachableError):
            self.progress.enter(JobState.STOPPED)  # The stop has ended the wait for the storage.
            return error
        self.progress.status.error = plain_error(error)
        self.progress.enter(JobState.FAILED)
        return error

    def log(self, event: str, **fields: Any) -> None:
        """Log an event of the job."""
        log_event(_LOG, event, job=self.location.job, **fields)

    def _end_stalled(self, error: StalledError) -> None:
        """End this process, which makes no progress; a supervisor starts another one.

        A job that was requested to stop has ended by that.
        """
        if self.services.stop.is_set:
            self.end_late()
        elif is_alive(*self.services.supervisor):
            self.progress.status.error = plain_error(error)
            self.progress.write()
        else:
            self.fail(error)
        end_now(_STALLED_CODE)
