"""A version of a job in the shadow of the running one: equal, invisible epochs.

Each epoch that the job has sealed is run once more by the functions of the other version: over the
same slices, at the same time of day, and with the job's watermarks, whatever this version makes of
its records: so the same windows and timers fire. Its output for sinks is dropped, since the job has
published it; the state is sealed, in a checkpoint directory of the shadow's own. So after each
epoch the shadow has the state that the job would have, had this version run since it began. No
source and no sink is started, and nothing of the job is changed.

Source: ADR-0053 (a shadow follows epochs).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bicycle_runtime.base.storage import Storage
from bicycle_runtime.contract import SourceReader
from bicycle_runtime.engine.epoch.failures import run_unmixed
from bicycle_runtime.engine.epoch.merging import (
    merge_ends,
    merge_feedback,
    merge_state_metadata,
    merge_states,
    merge_turns,
    plan_record,
)
from bicycle_runtime.engine.epoch.orders import epoch_orders
from bicycle_runtime.engine.epoch.replay_record import ReplayRecord, decode_record
from bicycle_runtime.engine.epoch.stats import lowest_watermark
from bicycle_runtime.engine.epoch.watermarks import Timeline
from bicycle_runtime.engine.errors import REPLAY_GRAPH_CHANGED, SHADOW_ASTRAY, SHADOW_OUTRUN
from bicycle_runtime.engine.executor import Executor
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.engine.planning.setup import JobSetup, locating_operators
from bicycle_runtime.engine.replay.recording import RecordingFactory, SinkInput
from bicycle_runtime.engine.replay.rereading import within
from bicycle_runtime.engine.resuming.operator_ids import operator_ids_of
from bicycle_runtime.engine.resuming.state_metadata import first_manifest
from bicycle_runtime.operators.shard_times import joined_times
from bicycle_runtime.operators.spec import JobImage
from bicycle_runtime.operators.tasks.orders import TimeOrder
from bicycle_runtime.operators.tasks.task_reports import TaskReport
from bicycle_runtime.recovery.adoption import is_same_work
from bicycle_runtime.recovery.history import EpochHistory
from bicycle_runtime.recovery.ledger import EpochLedger
from bicycle_runtime.recovery.manifest import Manifest
from bicycle_sdk.clock import Clock


class ShadowLoop:
    """Follows the epochs of a job, one ``step`` at a time.

    Args:
        setup: The version that follows, on a storage of this shadow alone with a fork of the job.
        followed: Checkpoint storage of the job.
        readers: Readers of the job's sources, which are not started.
        executor: Runs the tasks; its maker stops it.
        options: The options of the job.
        run_id: Unique to this run.
        clock: Measures the age of epochs.
    """

    def __init__(
        self, setup: JobSetup, followed: Storage, readers: Mapping[str, SourceReader],
        executor: Executor, *, options: EngineOptions, run_id: str, clock: Clock,
    ) -> None:  # fmt: skip
        self._setup = setup
        self._history = EpochHistory(followed)
        self._executor = executor
        self._clock = clock
        self._ledger = EpochLedger(
            setup.storage, job=setup.job_id, retained_count=options.retained_epochs,
            sink_paths=lambda _: set(),
        )  # fmt: skip
        last = self._ledger.last()
        assert last is not None
        self._timeline = Timeline(setup.plan, clock, is_batch=options.is_batch)
        self._last = first_manifest(setup, last.manifest, has_outputs=False)
        self._timeline.resume(self._last.time)
        self._executor.start(self._image(run_id, readers, options))

    @property
    def epoch(self) -> int:
        """The last epoch that the shadow followed."""
        return self._last.epoch

    def step(self) -> bool:
        """Follow the job by one epoch; return whether there was one.

        Raises:
            SHADOW_OUTRUN: the job has removed epochs that were not followed yet.
            SHADOW_ASTRAY: the job went back and ran an epoch again, or this version reads other
                input than the job has read.
            BicycleError: a function failed, or input cannot be read once more.
        """
        job, epoch = self._setup.job_id, self._last.epoch
        before, followed = self._history.sealed(epoch), self._history.sealed(epoch + 1)
        if before is None:
            raise SHADOW_OUTRUN(job=job, epoch=epoch)
        if not is_same_work(before, self._last):
            raise SHADOW_ASTRAY(job=job, epoch=epoch, reason="the job has repeated that epoch")
        if followed is None:
            return False
        manifest = self._follow(followed)
        self._ledger.seal(manifest)
        self._ledger.mark_published(manifest.epoch)
        self._ledger.collect(now_ms=self._clock.now_ms())
        self._last = manifest
        return True

    def _image(
        self, run_id: str, readers: Mapping[str, SourceReader], options: EngineOptions
    ) -> JobImage:
        setup = self._setup
        return setup.image(
            run_id,
            blocking_call_ms=options.blocking_call_ms,
            state=options.state_settings,
            state_metadata=self._last.state_metadata,
            readers=readers,
            writers={
                uid: RecordingFactory(sink.writer(), SinkInput(), 0)
                for uid, sink in setup.sinks.items()
            },
        )

    def _follow(self, followed: Manifest) -> Manifest:
        """Run the job's epoch, and return its manifest with this version's state."""
        setup, last = self._setup, self._last
        record = decode_record(followed.replay) if followed.replay else None
        reports: list[TaskReport] = []
        time = last.time
        if record is not None or last.feedback:
            order = self._order(record)
            self._timeline.take(
                msgspec.structs.replace(self._timeline.record, watermarks=order.watermarks)
            )
            reports = self._run(followed, record, order)
            time = self._timeline.sealed_after(order, reports, followed.time.watermarks)
            self._timeline.take(time)
        return Manifest(
            epoch=followed.epoch,
            plan=plan_record(
                setup, now_ms=followed.plan.now_ms, is_finished=followed.plan.is_finished
            ),
            event_count=followed.event_count,
            watermark_ms=lowest_watermark(time) or 0,
            offsets=followed.offsets,
            states=merge_states(last.states, reports),
            state_metadata=merge_state_metadata(last.state_metadata, reports),
            operator_ids=operator_ids_of(setup.graph),
            sinks=followed.sinks,
            sources=followed.sources,
            feedback=merge_feedback(reports) if reports else last.feedback,
            turns=merge_turns(last.turns, reports, setup.plan.edges_with_turns()),
            time=time,
            replay=followed.replay,
            connector_versions=followed.connector_versions,
            connectors=followed.connectors,
            held=followed.held,
        )

    def _run(
        self, followed: Manifest, record: ReplayRecord | None, order: TimeOrder
    ) -> list[TaskReport]:
        """Run the tasks over exactly the input of the job.

        A job that had nothing to do may have a shadow with records in a loop: they go round.
        """
        setup = self._setup
        given = {} if record is None else record.slices
        if missing := sorted(given.keys() - setup.sources.keys()):
            known = ", ".join(sorted(setup.sources))
            raise REPLAY_GRAPH_CHANGED(
                epoch=followed.epoch, missing=", ".join(missing), known_text=known
            )
        ends = followed.offsets
        slices = {uid: within(parts, ends.get(uid, {})) for uid, parts in given.items()}
        orders = epoch_orders(
            setup.plan, self._last, epoch=followed.epoch,
            now_ms=followed.plan.now_ms if record is None else record.now_ms,
            is_interval_over=record is not None and record.is_interval_over,
            slices=slices, time=order, letters=() if record is None else record.letters,
        )  # fmt: skip
        for order_of_level in orders:
            order_of_level.reached = dict(followed.time.watermarks)
        with locating_operators(setup.graph):
            reports = run_unmixed(self._executor, orders, setup.sources, job=setup.job_id)
        for uid in slices:
            for shard, end in merge_ends(reports, uid).items():
                if ends.get(uid, {}).get(shard) != end:
                    reason = f"{uid!r} read {shard!r} up to {end}, the job up to {ends[uid][shard]}"
                    raise SHADOW_ASTRAY(job=setup.job_id, epoch=followed.epoch, reason=reason)
        return reports

    def _order(self, record: ReplayRecord | None) -> TimeOrder:
        """Return the event time of the order; the job determines its watermarks."""
        own = self._timeline.order({})
        if record is None:
            return own
        given = record.time
        return TimeOrder(
            clock_ms=given.clock_ms,
            times=joined_times(
                own.times, {uid: given.times[uid] for uid in own.times.keys() & given.times.keys()}
            ),
            watermarks={**own.watermarks, **given.watermarks},
            finished=[uid for uid in given.finished if uid in own.times],
            floor_ms=given.floor_ms,
        )
