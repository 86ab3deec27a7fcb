"""The driver of one job: from the request to the summary, in one process.

It holds the job's locks, writes its status, and leaves the work to the engine. Bounded input ends
it, a stop request ends it cleanly, an error ends it with the status FAILED; whatever happens, the
last sealed epoch is intact and the same command goes on from there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from bicycle_runtime.base.errors import StorageUnreachableError
from bicycle_runtime.base.ids import attempt_id
from bicycle_runtime.base.logging import log_event
from bicycle_runtime.base.processes import is_alive
from bicycle_runtime.base.storage import StorageError
from bicycle_runtime.connectors.errors import PublishInterruptedError
from bicycle_runtime.engine.errors import EpochFailedError, SparkLostError, SparkStartError
from bicycle_runtime.engine.loop.epoch_loop import EpochLoop
from bicycle_runtime.engine.loop.rescaling import rescale
from bicycle_runtime.engine.loop.services import LoopServices
from bicycle_runtime.engine.planning.setup import JobSetup
from bicycle_runtime.engine.resuming.operator_ids import last_operator_ids, with_operator_ids
from bicycle_runtime.extraction.bundle import JobBundle
from bicycle_runtime.extraction.discovery import PluginRef
from bicycle_runtime.extraction.extract import extract
from bicycle_runtime.jobs.checkpoints.job_file import note_run
from bicycle_runtime.jobs.control.letter_replay import REPLAY_LETTERS, replay_asked
from bicycle_runtime.jobs.control.requests import Handler, Inbox
from bicycle_runtime.jobs.control.rescaling import RESCALE, request_rescaled, rescale_request
from bicycle_runtime.jobs.errors import StalledError
from bicycle_runtime.jobs.home import Home, JobFolder, JobPlace, place_job
from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.plugins.environments import JobEnvironment, find_plugin
from bicycle_runtime.jobs.running.announcements import socket_lines
from bicycle_runtime.jobs.running.epoch_pauses import pause_ms
from bicycle_runtime.jobs.running.executors import JobExecutor, spark_executor
from bicycle_runtime.jobs.running.first_status import first_status, take_setup
from bicycle_runtime.jobs.running.job_setup import prepare_job_setup
from bicycle_runtime.jobs.running.listeners import installed_listeners
from bicycle_runtime.jobs.running.phases import Phases
from bicycle_runtime.jobs.running.previous_run import PreviousRun, job_locks
from bicycle_runtime.jobs.running.progress import Progress
from bicycle_runtime.jobs.running.reading import ReadingWatch
from bicycle_runtime.jobs.running.services import DoorServices, DriverExecutor
from bicycle_runtime.jobs.running.starting_point import adopt_starting_point
from bicycle_runtime.jobs.running.storage_outages import StorageOutages
from bicycle_runtime.jobs.running.summary import JobSummary, summarize
from bicycle_runtime.jobs.savepoints.running import RunningSavepoints
from bicycle_runtime.jobs.savepoints.trust import require_trust, signer
from bicycle_runtime.jobs.status import JobState
from bicycle_runtime.jobs.supervision.error_reports import foreign_error, java_error, plain_error
from bicycle_runtime.jobs.supervision.restarts import OF_FUNCTIONS, Restarts, may_pass, place_of
from bicycle_runtime.jobs.supervision.stopping import end_now
from bicycle_runtime.jobs.supervision.watchdog import Watchdog, WatchdogSteps
from bicycle_runtime.recovery.history import EpochHistory
from bicycle_runtime.recovery.lease import Lease, LeaseKeeper
from bicycle_sdk.errors import BicycleError, ParameterError

__all__ = ["run_job"]

_LOG = logging.getLogger(__name__)
_STALLED_CODE = 1
_WAIT_MS_MAX = 1_000  # Requests are met between two waits.
# How a start, or an epoch, fails whose Java process was ended.
_CUT_SHORT = (SparkStartError, SparkLostError, EpochFailedError, PublishInterruptedError)


def run_job(
    request: JobRequest,
    home: Home,
    services: DoorServices,
    *,
    folder: JobFolder | None = None,
    new_executor: Callable[[JobRequest, Home, JobPlace], DriverExecutor] | None = None,
) -> JobSummary:
    """Run a job until its input ends or somebody stops it.

    Args:
        request: The job.
        home: Where its folder is.
        services: Clock, output, stop request.
        folder: The job's folder when that was settled before.
        new_executor: Makes what runs the tasks, for each start; None for Spark.

    Raises:
        JobRunningError: another process of this machine runs it.
        BicycleError: the plugin, its parameters, its input or a function is wrong, or Spark failed.
    """
    plugin = find_plugin(request.options, home)  # A wrong name leaves no trace of a job.
    home.prepare()
    place = place_job(request.options, home, clock=services.clock, source=services.source)
    if new_executor is None:
        new_executor = partial(spark_executor, errors=services.worker_log)
    if folder is not None:
        place = dataclasses.replace(place, folder=folder)
    options = request.options
    if options.from_ is not None:
        is_trusted = options.trust or request.no_pickle
        require_trust(options.from_, home, is_trusted=is_trusted, key_file=options.savepoint_key)
    before = None
    try:
        with job_locks(place):
            # The submitting process puts its former run back, after reading what went wrong.
            before = None if services.is_detached else PreviousRun.of(place.folder)
            place.folder.write_request(request)
            driver = _Driver(
                request, home, place, services, plugin=plugin, new_executor=new_executor
            )
            with driver.listeners:
                return driver.run(plugin.ref)
    except BicycleError:
        if before is not None:
            before.put_back()
        raise


class _Driver:
    """One run of one job; used once."""

    def __init__(
        self, request: JobRequest, home: Home, place: JobPlace, services: DoorServices,
        *, plugin: JobEnvironment,
        new_executor: Callable[[JobRequest, Home, JobPlace], DriverExecutor],
    ) -> None:  # fmt: skip
        self._request = request
        self._plugin = plugin
        self._place = place
        self._services = services
        status = first_status(
            services.former, request=request, place=place, supervisor=services.supervisor,
            is_detached=services.is_detached, now_ms=services.clock.now_ms(),
        )  # fmt: skip
        self.listeners = installed_listeners(place.job)
        self._progress = Progress(
            status, folder=place.folder, clock=services.clock, listener=services.listener,
            hot_key_percent=request.hot_key_percent, listeners=self.listeners,
        )  # fmt: skip
        self._inbox = Inbox(place.folder.path)
        self._running: EpochLoop | None = None
        self._savepoints = RunningSavepoints(
            place.storage, job=place.job, clock=services.clock,
            signer=partial(signer, home, request.options.savepoint_key),
        )  # fmt: skip
        self._is_draining = False
        steps = WatchdogSteps(let_go=self._abort_epoch, end=self._end_stalled)
        self._watchdog = Watchdog(steps, clock=services.clock, job=place.job)
        self._phases = Phases(self._watchdog, self._progress, request.options, place)
        self._executor = JobExecutor(
            lambda: new_executor(self._request, home, place),
            progress=self._progress, phases=self._phases,
        )  # fmt: skip
        self._outages = StorageOutages(
            place.storage, progress=self._progress, stop=services.stop, phases=self._phases
        )
        self._lease = Lease(
            place.storage,
            job=place.job,
            clock=services.clock,
            source=services.source,
            beat_ms=request.options.lease_beat_ms,
        )

    def run(self, ref: PluginRef) -> JobSummary:
        is_first = self._services.former is None
        self._inbox.open(is_again=not is_first)
        self._progress.enter(JobState.CREATED if is_first else JobState.RESTARTING)
        try:
            return self._run(ref)
        except SparkStartError as error:
            raise self._failed(java_error() or error) from error
        except BicycleError as error:
            raise self._failed(error) from error.__cause__
        except BaseException as error:
            self._progress.status.error = foreign_error(error)
            self._progress.enter(JobState.FAILED)
            raise

    def _run(self, ref: PluginRef) -> JobSummary:
        """Run the job.

        1. Take the job's lease, so that no other driver runs it.
        2. Start Java and extract the plugin's graph at the same time; of a job that has run before
           only the graph, as there may be nothing new to run.
        3. Plan the job and create its connectors.
        4. Run epochs until the input ends or a stop is requested, then publish everything.
        """
        with contextlib.ExitStack() as cleanup:
            cleanup.enter_context(self._watchdog)
            cleanup.enter_context(self._phases.work("starting or ending"))
            cleanup.enter_context(self._outages.told())
            # 1. Take the job's lease, so that no other driver runs it.
            self._outages.prove(
                source=self._services.source, is_first=self._services.former is None
            )
            with self._phases.taking_over():
                cleanup.enter_context(
                    LeaseKeeper(
                        self._lease,
                        beat_ms=self._request.options.lease_beat_ms,
                        on_lost=self._abort_epoch,
                    )
                )
            cleanup.callback(self._executor.stop)
            # 2. Start Java and extract the plugin's graph at the same time; of a job that has run
            #    before only the graph, as there may be nothing new to run.
            bundle = self._extracted(ref)
            self._plugin.enter()  # Its types say whether the state fits.
            with self._phases.copying():
                self._request = adopt_starting_point(
                    self._request, self._place, bundle, clock=self._services.clock
                )
            bundle = with_operator_ids(bundle, last_operator_ids(self._place.storage))
            # 3. Plan the job and create its connectors.
            setup = self._prepare(bundle)
            # 4. Run epochs until the input ends or a stop is requested, then publish everything.
            restarts = self._restarts(setup)
            setup, final = self._run_to_end(setup, bundle, restarts)
        return self._summary(setup, final)

    def _run_to_end(
        self, setup: JobSetup, bundle: JobBundle, restarts: Restarts
    ) -> tuple[JobSetup, JobState]:
        """Run epochs until there is an end; return the job as it was planned last, and its end."""
        try:
            while (final := self._run_or_wait(setup, restarts)) is None:
                self._executor.is_deferred = False
                setup = self._outages.survive(lambda: self._prepare(bundle))
        except StorageUnreachableError:
            if not self._services.stop.is_set:
                raise
            self._lease.abandon()
            final = JobState.STOPPED
        return setup, final

    def _extract(self, ref: PluginRef) -> JobBundle:
        """Return the plugin's job; what was given for a parameter in vain is not kept."""
        try:
            return extract(ref, self._request.params)
        except ParameterError:
            # It may be a secret that was written where a reference to it belongs.
            self._place.folder.write_request(dataclasses.replace(self._request, params={}))
            raise

    def _extracted(self, ref: PluginRef) -> JobBundle:
        has_run = bool(EpochHistory(self._place.storage).epochs())
        # A driver in the place of a dead one has work, and every second counts.
        is_in_place = self._services.former is not None and not self._services.only_settles
        self._executor.is_deferred = has_run and not is_in_place
        if self._executor.is_deferred:
            with self._phases.step_of_start("extracting the plugin", ref.name):
                return self._extract(ref)
        with self._phases.step_of_start("starting Spark and extracting the plugin", ref.name):
            return self._executor.boot_beside(lambda: self._extract(ref))

    def _run_or_wait(self, setup: JobSetup, restarts: Restarts) -> JobState | None:
        """Run epochs; None when something failed and it is time to start again.

        Functions that raise are opened again on the same Spark; all else begins with a new one.
        An epoch that a driver before us sealed in its last moment is a reason to start again, too,
        and so is a damaged state file: the epochs that it belongs to were put aside.
        An outage of the storage is waited for and counts as no attempt. When our lease is gone,
        that is the error, whatever else it led to.
        """
        try:
            return self._run_epochs(setup)
        except StorageUnreachableError as error:
            if self._services.stop.is_set:
                raise
            self._progress.enter(JobState.RESTARTING)
            self._outages.wait(error)
            self._outages.survive(self._lease.require)
            return None
        except BicycleError as error:
            with contextlib.suppress(StorageError):
                self._lease.require()
            # Where Spark was there before, what keeps it from starting now may pass.
            is_away = restarts.used_count > 0 and isinstance(error, SparkStartError)
            if not is_away and not may_pass(error):
                raise
            place = place_of(error)
            delay_ms = restarts.delay_ms(epoch=self._progress.status.epoch, place=place)
            if self._services.stop.is_set:
                raise
            self._progress.note_failure(error, attempt=restarts.used_count, delay_ms=delay_ms)
            if delay_ms is None:
                raise
            log_event(
                _LOG, "job_restarting", level=logging.WARNING, job=self._place.job, error=error,
                delay_ms=delay_ms, attempt=restarts.used_count,
            )  # fmt: skip
            if not isinstance(error, OF_FUNCTIONS):
                self._executor.replace()
            with self._phases.waiting():
                is_stopped = self._services.stop.wait(delay_ms)
            if is_stopped:
                raise
            return None

    def _restarts(self, setup: JobSetup) -> Restarts:
        """Return how the job is started again, and let its supervisor know."""
        options, status = self._request.options, self._progress.status
        restarts = Restarts(
            setup.graph.config.restart_strategy,
            options.restart_attempts,
            delay_ms=options.restart_delay_ms,
            delay_max_ms=options.restart_delay_max_ms,
            source=self._services.source,
        )
        restarts.resume(status.restarts)
        status.restart_plan = restarts.plan()
        return restarts

    def _prepare(self, bundle: JobBundle) -> JobSetup:
        self._executor.ship(self._plugin.shipment(bundle))
        setup = prepare_job_setup(bundle, self._request, self._place)
        status = self._progress.status
        take_setup(status, setup)
        status.java_pid = self._executor.java_pid
        return setup

    def _run_epochs(self, setup: JobSetup) -> JobState:
        stop, progress = self._services.stop, self._progress
        stop.arm(
            timeout_s=self._request.options.stop_timeout_ms / 1_000,
            on_request=self._note_stop,
            abort=self._abort_epoch,
        )
        if stop.is_set:  # It was asked for before anything could be interrupted.
            self._note_stop()
            return JobState.STOPPED
        try:
            clock, storage = self._services.clock, self._place.storage
            with (
                self._recovered(setup) as loop,
                ReadingWatch(storage, progress, clock=clock, on_wait=self._watchdog.allow),
            ):
                self._running = loop
                note_run(setup, now_ms=self._services.clock.now_ms())
                progress.resume_from(loop.manifest)
                progress.take_waiting(loop.waiting())
                progress.take_parallelisms(loop.topology.parallelisms)
                progress.enter(JobState.RUNNING)
                for line in socket_lines(setup.graph):
                    self._services.announce(line)
                self._log("job_started", epoch=loop.epoch, operators=len(setup.graph.vertices))
                settles = self._services.only_settles
                is_finished = not settles and self._step_until_done(loop)
                loop.finish(is_finished=is_finished and not self._is_draining)
                progress.status.dropped_count = loop.dropped_count()
                return JobState.FINISHED if is_finished else JobState.STOPPED
        except _CUT_SHORT:
            if self._is_stopped_at_its_start():
                return JobState.STOPPED
            if not stop.was_aborted:
                raise
            self._log("epoch_aborted", epoch=progress.status.epoch + 1)
            return JobState.STOPPED
        finally:
            with self._phases.copying():
                self._savepoints.wait()

    def _is_stopped_at_its_start(self) -> bool:
        return self._services.stop.is_set and self._running is None

    @contextlib.contextmanager
    def _recovered(self, setup: JobSetup) -> Iterator[EpochLoop]:
        """Give the epoch loop, which has recovered; entering, leaving and pauses are watched."""
        self._running = None
        with contextlib.ExitStack() as running:
            running.enter_context(self._phases.work("working between epochs"))
            with self._phases.beginning():
                loop = running.enter_context(self._loop(setup))
            yield loop

    def _loop(self, setup: JobSetup) -> EpochLoop:
        services = self._services
        return EpochLoop(
            setup,
            self._executor.for_loop(self._request),
            options=self._request.engine_options(setup.graph),
            run_id=attempt_id(source=services.source),
            services=LoopServices(
                clock=services.clock,
                console=services.console,
                on_epoch=self._progress.take_epoch,
                fence=self._lease,
                on_loaded=lambda done, total: self._phases.take_loaded(
                    done, total, is_running=self._running is not None
                ),
            ),
        )

    def _step_until_done(self, loop: EpochLoop) -> bool:
        """Return whether all input is finished; False when a stop was requested."""
        stop, clock = self._services.stop, self._services.clock
        rests_until = clock.monotonic()
        while not stop.is_set:
            if self._lease.is_lost:
                self._lease.require()
            self._inbox.serve(self._handlers())
            begun_at = clock.monotonic()
            if begun_at < rests_until and not self._is_asked():
                self._progress.take_idle(None)
                self._wait(round((rests_until - begun_at) * 1_000))
                continue
            with self._phases.epoch(loop.epoch + 1), self._progress.epoch():
                self._savepoints.meet(loop)
                step = loop.drain() if self._is_draining else loop.step()
            if step.is_finished:
                return True
            if not step.has_run:
                self._progress.take_idle(step.unread)
                self._wait(step.wait_ms)
            elif step.is_caught_up:
                now = clock.monotonic()
                target_ms = self._request.options.latency_target_ms
                rests_until = now + pause_ms(target_ms, (now - begun_at) * 1_000) / 1_000
        return False

    def _is_asked(self) -> bool:
        """Tell whether somebody asked for something that needs an epoch."""
        return self._is_draining or self._savepoints.is_asked

    def _wait(self, wait_ms: int) -> None:
        with self._phases.waiting():
            self._services.stop.wait(min(wait_ms, _WAIT_MS_MAX))

    def _handlers(self) -> dict[str, Handler]:
        """Return what the job does between two epochs when it is asked, by the kind of request."""
        return {
            "savepoint": self._savepoints.ask,
            "drain": self._begin_draining,
            RESCALE: self._rescale,
            REPLAY_LETTERS: partial(replay_asked, self._running, self._place, self._request),
        }

    def _rescale(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        assert self._running is not None
        done = rescale(self._running, rescale_request(facts), self._services.clock)
        self._request = request_rescaled(self._request, done, self._place.folder)
        self._progress.take_parallelisms(done.new)
        self._log("job_rescaled", epoch=done.epoch, pause_ms=done.pause_ms, parallelism=done.new)
        return done.to_json()

    def _begin_draining(self, _: Mapping[str, Any]) -> dict[str, Any]:
        self._is_draining = True
        self._log("drain_requested")
        return {}

    def _end_stalled(self, error: StalledError) -> None:
        """End this process, in which nothing moves any more; a supervisor starts another."""
        if is_alive(*self._services.supervisor):
            self._progress.status.error = plain_error(error)
            self._progress.write()
        else:
            self._failed(error)
        end_now(_STALLED_CODE)

    def _summary(self, setup: JobSetup, final: JobState) -> JobSummary:
        self._progress.enter(final)
        summary = summarize(
            self._progress.status,
            setup,
            place=self._place,
            request=self._request,
            was_aborted=self._services.stop.was_aborted,
        )
        self._log(
            f"job_{final.value.lower()}",
            epoch=summary.epoch,
            record_count=summary.record_count,
            duration_ms=summary.duration_ms,
        )
        return summary

    def _note_stop(self) -> None:
        self._progress.enter_stopping()
        self._log("stop_requested")
        if self._running is None:  # There is no epoch to finish: Spark is still starting.
            self._executor.kill()

    def _abort_epoch(self) -> None:
        self._executor.abort()
        if self._running is not None:
            self._running.interrupt()

    def _failed(self, error: BicycleError) -> BicycleError:
        self._progress.status.error = plain_error(error)
        self._progress.enter(JobState.FAILED)
        return error

    def _log(self, event: str, **fields: Any) -> None:
        log_event(_LOG, event, job=self._place.job, **fields)
