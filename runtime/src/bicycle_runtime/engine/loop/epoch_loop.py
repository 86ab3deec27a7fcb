"""The epoch loop: the only writer of a job's progress.

An epoch is one pass of bounded input through the whole graph, and the checkpoint barrier: nothing
is in flight when it ends. Its manifest is created once; from then on the epoch has happened, with
exactly these outputs. The loop decides when an epoch runs; ``_run_epoch`` shows its steps.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial

from bicycle_runtime.base.faults import fault_point
from bicycle_runtime.contract import (
    ChecksBeforeStart,
    DriverServices,
    DropsRecords,
    FollowsPublication,
    HoldsBackOutput,
    InterruptiblePublication,
    MakesTargets,
    SourceStatus,
    StartsBeforeSinks,
    Waiting,
)
from bicycle_runtime.engine.epoch.failures import run_unmixed
from bicycle_runtime.engine.epoch.merging import EpochWork, merge_ends, next_manifest, plan_record
from bicycle_runtime.engine.epoch.orders import epoch_orders
from bicycle_runtime.engine.epoch.replay_record import (
    BegunEpoch,
    encode_record,
    record_of,
    with_counts,
    with_ends,
)
from bicycle_runtime.engine.epoch.stats import (
    Stopwatch,
    read_counts,
    state_bytes,
    stats_of,
    tasks_ms,
    unread_of,
)
from bicycle_runtime.engine.epoch.watermarks import Timeline
from bicycle_runtime.engine.executor import Executor
from bicycle_runtime.engine.loop.intake import IDLE_MS_MAX, Intake
from bicycle_runtime.engine.loop.loads import LoadWatch, tell_loads
from bicycle_runtime.engine.loop.publishing import Publisher, referenced_paths
from bicycle_runtime.engine.loop.rescaling import Topology
from bicycle_runtime.engine.loop.services import LoopServices, Step
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.engine.planning.setup import JobSetup, locating_operators, require_bounded
from bicycle_runtime.engine.resuming.state_metadata import first_manifest
from bicycle_runtime.operators.spec import JobImage
from bicycle_runtime.operators.tasks.orders import EpochOrder, LetterOrder
from bicycle_runtime.operators.tasks.task_reports import TaskReport
from bicycle_runtime.recovery.ledger import EpochLedger
from bicycle_runtime.recovery.manifest import Manifest
from bicycle_runtime.state.errors import StateFileError
from bicycle_sdk.contexts import WATERMARK_MAX
from bicycle_sdk.logging import log_event

_LOG = logging.getLogger(__name__)


class EpochLoop:
    """Runs the epochs of one job, one ``step`` at a time.

    Use it as a context manager: entering recovers the last sealed epoch, publishes it again if
    need be, and starts connectors and executor; leaving stops them.

    Args:
        setup: The job.
        executor: Runs the tasks.
        options: Sizes and intervals.
        run_id: Unique to this run of the driver.
        services: Clock, console, listener.
    """

    def __init__(
        self,
        setup: JobSetup,
        executor: Executor,
        *,
        options: EngineOptions,
        run_id: str,
        services: LoopServices,
    ) -> None:
        self._setup = setup
        self._executor = executor
        self._options = options
        self._run_id = run_id
        self._services = services
        self._clock = services.clock
        self._ledger = EpochLedger(
            setup.storage, job=setup.job_id, retained_count=options.retained_epochs,
            retained_age_ms=options.retained_age_ms, fence=services.fence,
            sink_paths=partial(referenced_paths, setup), followed=services.followed,
        )  # fmt: skip
        told = services.on_publishing
        self._publisher = Publisher(setup.sinks, self._ledger, rest=executor.rest, told=told)
        self._begun = BegunEpoch(setup.storage, job=setup.job_id)
        self._loads = LoadWatch(setup.storage, run_id, services.on_loaded)
        plan = plan_record(setup, now_ms=self._clock.now_ms(), is_finished=False)
        self._last = Manifest(epoch=0, plan=plan)
        self._folded_at = self._clock.monotonic()
        self._started_at = -math.inf
        self._has_read = self._is_warm = False  # warm: workers had tasks in this run
        timeline = Timeline(setup.plan, services.clock, is_batch=options.is_batch)
        self._intake = Intake(setup, timeline, options)
        self.sealed_at: float | None = None  # of the last epoch; None once there was nothing to do
        self._topology_count = 0

    def __enter__(self) -> EpochLoop:
        try:
            with locating_operators(self._setup.graph):
                self._recover()
            if self._options.is_batch:
                require_bounded(self._setup)
            self._executor.start(self._image())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._publisher.close()
        self._begun.close()
        for source in self._setup.sources.values():
            source.stop()
        for sink in self._setup.sinks.values():
            sink.stop()
        self._executor.stop()

    @property
    def epoch(self) -> int:
        """The last sealed epoch; 0 before the first."""
        return self._last.epoch

    @property
    def manifest(self) -> Manifest:
        """The last sealed manifest (a blank one before the first)."""
        return self._last

    def step(self, *, reads_on: bool = False) -> Step:
        """Look for work and run at most one epoch, which may read on when ``reads_on``."""
        self._intake.slots = self._executor.slots() if reads_on else 0
        statuses = self._intake.poll()
        has_input = any(status.has_input for status in statuses.values())
        has_work = has_input or bool(self._last.feedback)
        now_ms = self._clock.now_ms()
        is_finished = all(status.is_finished for status in statuses.values())
        fires = self._timeline.is_due(self._intake.order, now_ms=now_ms) or (
            # Records fired at the end of all input that go round a loop must have their epochs.
            is_finished and self._setup.plan.has_timed_loops and not self._timeline.is_at_end
        )
        wait_ms = self._interval_left_ms()
        if (has_work or fires) and wait_ms <= 0:
            self._started_at = self._clock.monotonic()
            is_full = self._run_epoch(statuses, fires=fires, is_last=False)
            is_endless = not all(status.is_bounded for status in statuses.values())
            is_caught_up = is_endless and not is_full
            return Step(has_run=True, is_finished=False, wait_ms=0, is_caught_up=is_caught_up)
        if has_work or fires:
            # Meanwhile nothing else waits: neither requests, nor a failed publication, nor workers.
            self._publisher.look()
            self._executor.rest()
            return _idle(statuses, wait_ms=min(wait_ms, IDLE_MS_MAX))
        if is_finished:
            return _idle(statuses, wait_ms=0, is_finished=True)
        if self._is_sink_due(now_ms):
            self._run_epoch({}, is_last=False)
            return Step(has_run=True, is_finished=False, wait_ms=0)
        self._publisher.finish()
        self._executor.rest()
        self.sealed_at = None
        return _idle(statuses, wait_ms=self._intake.wait_ms(statuses, now_ms=now_ms))

    def finish(self, *, is_finished: bool) -> None:
        """Run a last epoch without input, in which sinks close open files, and publish it.

        If all input has ended, event time advances to its end: timers and windows fire.

        Args:
            is_finished: Whether all bounded input was read; False at a stop in the middle.
        """
        is_settled = self._last.plan.is_finished and not self._has_read
        if not is_settled and (self._has_read or is_finished or self._last.epoch):
            fires = is_finished and self._setup.plan.is_timed
            statuses = self._intake.poll() if fires else {}
            self._run_epoch(statuses, fires=fires, is_last=True, is_finished=is_finished)
        self._publisher.finish()

    def close_outputs(self) -> int:
        """Run an epoch without input, in which sinks close open files; publish it.

        Returns:
            Its number: an epoch that needs no output kept by sinks. The job may continue.
        """
        self.run_without_input(fires=False, is_last=True)
        self.settle()
        return self._last.epoch

    def drain(self) -> Step:
        """Run an epoch without input at the end of event time; waiting windows fire.

        It is the last step when nothing went round a loop.
        """
        self._timeline.raise_floor(WATERMARK_MAX)
        self.run_without_input(fires=self._setup.plan.is_timed)
        return Step(has_run=True, is_finished=not self._last.feedback, wait_ms=0)

    def holding(self, epoch: int) -> AbstractContextManager[None]:
        """Protect a published epoch from collection inside the block; for any thread."""
        return self._ledger.holding(epoch)

    @property
    def topology(self) -> Topology:
        """The parts that depend on the parallelism of operators."""
        return Topology(setup=self._setup, last=self._last, timeline=self._timeline)

    def change_topology(self, topology: Topology) -> None:
        """Continue with other parallelism from the next epoch on; see ``rescale``."""
        self._setup, self._last = topology.setup, topology.last
        self._intake.change_topology(topology.setup, topology.timeline)
        self._topology_count += 1
        image = self._image()
        self._loads = LoadWatch(self._setup.storage, image.run_id, self._services.on_loaded)
        self._executor.start(image)

    def run_without_input(
        self, *, fires: bool = True, is_last: bool = False, letters: Sequence[LetterOrder] = ()
    ) -> None:
        """Run an epoch without reading a source; one that fires has a task per subtask.

        ``letters`` are dead letters that its operators get.
        """
        self._run_epoch(self._intake.pause(), fires=fires, is_last=is_last, letters=letters)

    def advance_watermark(self, watermark_ms: int) -> None:
        """Set a minimum of all watermarks from the next epoch on.

        For tests that move event time by hand; only its effects are sealed.
        """
        self._timeline.raise_floor(watermark_ms)

    def settle(self) -> None:
        """Wait until the sealed epoch is published; raise its error."""
        self._publisher.finish()

    def interrupt(self) -> None:
        """Stop a publication that waits for another system; for any thread."""
        for sink in self._setup.sinks.values():
            if isinstance(sink, InterruptiblePublication):
                sink.interrupt()

    def dropped_count(self) -> int:
        """Return how many records the sinks published in this run without a receiver."""
        sinks = self._setup.sinks.values()
        return sum(sink.dropped_count() for sink in sinks if isinstance(sink, DropsRecords))

    def _run_epoch(
        self,
        statuses: Mapping[str, SourceStatus],
        *,
        fires: bool = False,
        is_last: bool,
        is_finished: bool = False,
        letters: Sequence[LetterOrder] = (),
    ) -> bool:
        """Run one epoch, and return whether it was full.

        Tasks run when there is input, or when time alone fires something.

        1. Plan: each source with input returns a bounded slice.
        2. Run: tasks write deltas and staged output, and report.
        3. Seal: create the manifest, once the epoch before is published.
        4. Publish: sinks make the epoch visible, while the next one may already run.
        """
        watch = Stopwatch(self._clock)
        epoch = self._last.epoch + 1
        # 1. Plan: each source with input returns a bounded slice.
        with watch.phase("plan"):
            slices = self._intake.plan(statuses)
        # 2. Run: tasks write deltas and staged output, and report.
        with watch.phase("run"):
            has_work = fires or any(slices.values()) or bool(self._last.feedback)
            work = EpochWork(epoch=epoch, slices=slices, letters=letters)
            if has_work:
                self._intake.begin(statuses, slices)
                work = self._run_tasks(work)
        # 3. Seal: create the manifest, once the epoch before is published.
        with watch.phase("publish_wait"):
            self._publisher.finish()
        with watch.phase("seal"):
            manifest = self._manifest(work, is_last=is_last, is_finished=is_finished)
            fault_point("before_seal")
            self._ledger.seal(manifest)
            fault_point("after_seal")
        self.sealed_at = self._clock.monotonic()
        self._last = manifest
        self._timeline.take(manifest.time)
        for uid, source in self._setup.sources.items():
            source.sealed(merge_ends(work.reports, uid))
        # 4. Publish: sinks make the epoch visible, while the next one may already run.
        self._publisher.start(manifest, lambda: self._commit(manifest))
        return self._tell(manifest, work, statuses, watch)

    @property
    def _timeline(self) -> Timeline:
        return self._intake.timeline

    def _image(self) -> JobImage:
        return self._setup.image(
            f"{self._run_id}-{self._topology_count}" if self._topology_count else self._run_id,
            blocking_call_ms=self._options.blocking_call_ms,
            state=self._options.state_settings,
            state_metadata=self._last.state_metadata,
        )

    def _run_tasks(self, planned: EpochWork) -> EpochWork:
        self._has_read = True
        now_ms, now_s = self._clock.now_ms(), self._clock.monotonic()
        folded_ms = (now_s - self._folded_at) * 1_000
        is_interval_over = folded_ms >= self._options.checkpoint_interval_ms
        if is_interval_over:
            self._folded_at = now_s
        setup, sources = self._setup, self._setup.sources
        orders = epoch_orders(
            setup.plan, self._last, epoch=planned.epoch, now_ms=now_ms, slices=planned.slices,
            is_interval_over=is_interval_over, time=self._intake.order, letters=planned.letters,
        )  # fmt: skip
        orders[0].read_on = self._intake.read_on
        record = record_of(setup, orders, planned.slices, planned.letters)
        loads = self._loads.watching(state_bytes(self._last.states))
        with self._begun.noting(record, sources), loads:
            reports = self._reports_of(orders)
        tell_loads(reports, job=setup.job_id, epoch=planned.epoch)
        record = with_ends(record, {uid: merge_ends(reports, uid) for uid in sources}, sources)
        return replace(planned, reports=reports, replay=encode_record(with_counts(record, reports)))

    def _reports_of(self, orders: list[EpochOrder]) -> list[TaskReport]:
        """Run the tasks; put aside epochs with a damaged file that a task finds."""
        setup = self._setup
        try:
            with locating_operators(setup.graph):
                return run_unmixed(self._executor, orders, setup.sources, job=setup.job_id)
        except StateFileError as error:
            self._ledger.doubt(str(error.facts["path"]))
            raise

    def _manifest(self, work: EpochWork, *, is_last: bool, is_finished: bool) -> Manifest:
        time = self._last.time
        if work.reports:
            time = self._timeline.sealed_after(self._intake.order, work.reports)
        now_ms = self._clock.now_ms()
        plan = plan_record(self._setup, now_ms=now_ms, is_finished=is_finished)
        return next_manifest(self._setup, self._last, work, time=time, plan=plan, is_last=is_last)

    def _commit(self, manifest: Manifest) -> None:
        """Notify the sources of publication, and collect unneeded files."""
        self._ledger.require_lease()  # A source may remove its input of this epoch.
        for uid, source in self._setup.sources.items():
            if isinstance(source, FollowsPublication):
                source.published(manifest.offsets[uid])
        self._ledger.collect(now_ms=self._clock.now_ms())

    def _tell(
        self,
        manifest: Manifest,
        work: EpochWork,
        statuses: Mapping[str, SourceStatus],
        watch: Stopwatch,
    ) -> bool:
        """Learn from an epoch, report its statistics, and return whether it was full."""
        duration_ms, reports, counts = watch.elapsed_ms, work.reports, read_counts(work.reports)
        full_sources = self._intake.full_sources(work.slices, counts)
        # Before the first tasks of a run, workers come up: that time does not predict the next.
        paced_ms = duration_ms if self._is_warm else min(duration_ms, tasks_ms(reports))
        self._is_warm |= bool(reports)
        left = self._intake.learn(paced_ms, counts, statuses)
        stats = stats_of(
            manifest, reports, left, watch,
            graph=self._setup.graph, timeline=self._timeline, duration_ms=duration_ms,
            dropped_count=self.dropped_count(),
        )  # fmt: skip
        stats = replace(stats, waiting=self.waiting(), full_sources=full_sources)
        self._services.on_epoch(replace(stats, fixed_ms=self._intake.pacer.fixed_ms))
        return bool(full_sources)

    def waiting(self) -> dict[str, Waiting]:
        """Return the sealed but invisible output, by sink."""
        sinks = self._setup.sinks.items()
        found = {uid: sink.waiting() for uid, sink in sinks if isinstance(sink, HoldsBackOutput)}
        return {uid: waiting for uid, waiting in found.items() if waiting is not None}

    def _recover(self) -> None:
        last = self._ledger.last(progress=self._services.on_loaded)
        has_waiting = last is not None and not last.is_published
        sealed = self._last if last is None else last.manifest
        self._last = first_manifest(self._setup, sealed, is_published=not has_waiting)
        if last is not None:
            log_event(
                _LOG, "job_recovered", job=self._setup.job_id, epoch=self._last.epoch,
                event_count=self._last.event_count, is_published=last.is_published,
            )  # fmt: skip
        self._start_connectors(has_waiting=has_waiting)
        self._timeline.resume(self._last.time)
        if self._services.fence.is_contested:
            self._occupy_next_epoch()
        self._ledger.sweep()

    def _start_connectors(self, *, has_waiting: bool) -> None:
        """Start sinks and sources, and publish the sealed output that waits.

        Sinks may make their targets: all are checked before one of them does, and a source that
        does not read such a target begins first, so that a failed start leaves nothing behind. But
        waiting output comes before everything.
        """
        sinks, sources = self._setup.sinks, self._setup.sources
        makers = [sink for sink in sinks.values() if isinstance(sink, MakesTargets)]
        made = {name for sink in makers for name in sink.makes()}
        first = [
            uid for uid, source in sources.items()
            if not has_waiting and isinstance(source, StartsBeforeSinks)
            and not source.is_fed_by(made)
        ]  # fmt: skip
        self._start_sources(first)
        begun = {uid: (self._services_of(uid), self._last.sinks.get(uid, {})) for uid in sinks}
        for uid, sink in sinks.items():
            if isinstance(sink, ChecksBeforeStart):
                sink.check(*begun[uid])
        for uid, sink in sinks.items():
            sink.start(*begun[uid])
        if has_waiting:
            self._publisher.publish_again(self._last)
        self._start_sources([uid for uid in sources if uid not in first])

    def _start_sources(self, uids: Iterable[str]) -> None:
        for uid in uids:
            offsets, state = self._last.offsets.get(uid, {}), self._last.sources.get(uid, {})
            self._setup.sources[uid].start(self._services_of(uid), offsets, state)

    def _occupy_next_epoch(self) -> None:
        """Seal an epoch without work, so that an earlier driver cannot seal its number."""
        epoch, is_finished = self._last.epoch + 1, self._last.plan.is_finished
        manifest = self._manifest(EpochWork(epoch=epoch), is_last=False, is_finished=is_finished)
        self._ledger.seal(manifest)
        self._services.fence.settle()
        self._last = manifest
        self._publisher.publish_again(manifest)

    def _services_of(self, uid: str) -> DriverServices:
        services = self._services
        return self._setup.services(
            uid,
            clock=self._clock,
            collected=services.collected,
            console=services.console,
            epoch_interval_ms=self._options.epoch_interval_ms,
            wake=services.wake,
        )

    def _interval_left_ms(self) -> int:
        """Return how long the next epoch has to wait for its interval, in ms, 0 if over.

        The wall clock may be set back by an hour, and the job would wait for as long.
        """
        elapsed_ms = (self._clock.monotonic() - self._started_at) * 1_000
        return round(max(self._options.epoch_interval_ms - elapsed_ms, 0))

    def _is_sink_due(self, now_ms: int) -> bool:
        self._publisher.finish()
        sinks = [sink for sink in self._setup.sinks.values() if isinstance(sink, HoldsBackOutput)]
        deadlines = [sink.deadline_ms() for sink in sinks]
        return any(deadline is not None and deadline <= now_ms for deadline in deadlines)


def _idle(statuses: Mapping[str, SourceStatus], *, wait_ms: int, is_finished: bool = False) -> Step:
    unread = unread_of(statuses)
    return Step(has_run=False, is_finished=is_finished, wait_ms=wait_ms, unread=unread)
