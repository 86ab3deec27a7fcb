"""Totals and rates of epochs, and the status that shows both.

The driver calls in from its one thread, a stop request from another. The status file is written at
most twice a second, a change of state at once; epochs are logged at most every five seconds, so
that a fast job does not drown its own log.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from bicycle_runtime.contract import Waiting
from bicycle_runtime.engine.epoch.stats import EpochStats, Unread, state_bytes
from bicycle_runtime.jobs.home import JobFolder
from bicycle_runtime.jobs.journal import EpochLine, LineJournal
from bicycle_runtime.jobs.running.listeners import Listeners
from bicycle_runtime.jobs.running.process_notes import note_ended_workers, note_stuck
from bicycle_runtime.jobs.running.skew import Skew
from bicycle_runtime.jobs.running.timings import Rate, Timings
from bicycle_runtime.jobs.status import (
    JobState,
    JobStatus,
    OpenPublication,
    OperatorStatus,
    PhaseStatus,
    ShardLag,
    ShardStatus,
    StuckThread,
    WaitingOutput,
    write_status,
)
from bicycle_runtime.jobs.supervision.restarts import add_failure_note, position_of
from bicycle_runtime.operators.heartbeats import LastPosition
from bicycle_runtime.operators.metrics import OperatorCounts, date_failures
from bicycle_runtime.recovery.manifest import Manifest
from bicycle_sdk.clock import Clock
from bicycle_sdk.contexts import WATERMARK_MIN
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import log_event

_LOG = logging.getLogger(__name__)
_WRITE_INTERVAL_S = 0.5
_LOG_INTERVAL_S = 5.0
_RATE_WINDOW_S = 5.0
_SHARDS_SHOWN_MAX = 64
_HOT_KEYS_TOLD_MAX = 100
_LOADING = "loading state"


class JobProgress:
    """The status of a running job, its file, and its listeners.

    Args:
        status: As of the start.
        folder: Where the status file is; it exists.
        clock: For times and intervals.
        listener: Gets the status after each epoch and while idle; must be quick.
        hot_key_percent: A key with this share of an operator's input is logged.
        listeners: The listeners of extensions.
    """

    def __init__(
        self,
        status: JobStatus,
        *,
        folder: JobFolder,
        clock: Clock,
        listener: Callable[[JobStatus], None],
        hot_key_percent: int = 30,
        listeners: Listeners | None = None,
    ) -> None:
        self.status = status
        self._listeners = listeners
        self._folder = folder
        self._clock = clock
        self._listener = listener
        self._rate = Rate(clock, _RATE_WINDOW_S)
        self._lock = threading.Lock()
        self._written = -_WRITE_INTERVAL_S
        self._is_epoch_shown = False  # Whether the file has shown an epoch of this run.
        self._logged = -_LOG_INTERVAL_S
        self._phase_started = self._phase_logged = 0.0
        self._unshown: Unread | None = None
        self._hot_key_percent = hot_key_percent
        self._timings = Timings(clock)
        self._journal = LineJournal(folder.journal_path, job=status.job)
        self._skews: dict[str, Skew] = {}
        self._told: set[tuple[str, str]] = set()

    def enter(self, state: JobState) -> None:
        """Take note of a new state; written at once. A stop may be a pause."""
        now_ms = self._clock.now_ms()
        if state is JobState.STOPPED:
            state = self._folder.state_of_stop(self.status)
        self.status.state = state
        if state is JobState.RUNNING and self.status.running_ms is None:
            self.status.running_ms = now_ms
            self._rate = Rate(self._clock, _RATE_WINDOW_S)
        if state is JobState.FINISHED:
            self._catch_up()
        if state.is_final:
            self.status.end(state, now_ms)
        if state.is_final or state is JobState.RESTARTING:
            self.status.publication = None
        self._show_at_once()
        if self._listeners is not None:
            found = self.status.error if state is JobState.FAILED else None
            code = None if found is None else found.get("code")
            self._listeners.entered(state.value, epoch=self.status.epoch, error=code)

    def resume_from(self, manifest: Manifest) -> None:
        """Take over the state of the last sealed epoch."""
        if self.status.restarts:  # A driver may have ended before it reported its last records.
            self.status.record_count += max(manifest.event_count - self.status.event_count, 0)
        self.status.epoch = manifest.epoch
        self.status.event_count = manifest.event_count
        self.status.state_bytes = state_bytes(manifest.states)

    @contextlib.contextmanager
    def phase(self, name: str, target: str) -> Iterator[None]:
        """Show a phase of a start while inside.

        Args:
            name: The work, in a few words.
            target: The object of the work.
        """
        started = self._clock.monotonic()
        self.status.phase = PhaseStatus(name=name, target=target, started_ms=self._clock.now_ms())
        self._phase_started = self._phase_logged = started
        self._show_at_once()  # It may last, and nothing else is written meanwhile.
        try:
            yield
        finally:
            self.status.phase = None
            duration_ms = round((self._clock.monotonic() - started) * 1_000)
            log_event(
                _LOG, "phase_ended", job=self.status.job, phase=name, target=target,
                duration_ms=duration_ms,
            )  # fmt: skip

    def advance(self, target: str, done: int, total: int, *, unit: str) -> None:
        """Take note of how far the phase has come. From any thread; cheap.

        Without a phase it is the loading of state, which the first epoch begins with.

        Args:
            target: The object of the work.
            done: How much of it is done.
            total: How much there is; 0 when that is not known.
            unit: The counted unit.
        """
        now = self._clock.monotonic()
        phase = self.status.phase
        if phase is None:
            if done >= total:
                return
            now_ms = self._clock.now_ms()
            phase = self.status.phase = PhaseStatus(name=_LOADING, started_ms=now_ms)
            self._phase_logged = now
        if target != phase.target or (phase.unit and unit != phase.unit):
            self._phase_started = now
        phase.target, phase.done, phase.total, phase.unit = target, done, total, unit
        phase.eta_ms = None
        if done and total:
            pace_s = (now - self._phase_started) / done
            phase.eta_ms = round(pace_s * max(total - done, 0) * 1_000)
        if now - self._phase_logged >= _LOG_INTERVAL_S:
            self._phase_logged = now
            log_event(
                _LOG, "phase_advanced", job=self.status.job, phase=phase.name, target=target,
                done=done, total=total, unit=unit, eta_ms=phase.eta_ms,
            )  # fmt: skip
        if phase.name == _LOADING and done >= total:
            self.status.phase = None
        self._refresh()

    def note_failure(self, error: BicycleError, *, attempt: int, delay_ms: int | None) -> None:
        """Record a failure and its restart; without a delay, the last failure."""
        status = self.status
        status.restarts = add_failure_note(
            status.restarts, error, now_ms=self._clock.now_ms(),
            epoch=status.epoch, attempt=attempt, delay_ms=delay_ms, position=position_of(error),
        )  # fmt: skip
        if delay_ms is not None:
            status.restart_count += 1
            self.enter(JobState.RESTARTING)

    def take_storage(self, *, is_away: bool, reason: str = "") -> None:
        """Show whether the checkpoint storage responds; from any waiting thread, too."""
        status, self.status.storage_reason = self.status, reason
        if not is_away:
            if status.silent_storage_ms is not None:
                log_event(_LOG, "storage_back", job=status.job, since_ms=status.silent_storage_ms)
                status.silent_storage_ms = None
                self._show_at_once()
        elif status.silent_storage_ms is None:
            status.silent_storage_ms = self._clock.now_ms()
            log_event(_LOG, "storage_awaited", level=logging.WARNING, job=status.job)
            self._show_at_once()
        else:
            self._refresh()

    def take_ended_workers(self, ends: Sequence[LastPosition]) -> None:
        """Count, show and log the workers that ended unasked."""
        if ends:
            note_ended_workers(self.status, ends, now_ms=self._clock.now_ms())
            self._show_at_once()

    def take_stuck(self, stuck: Sequence[StuckThread]) -> None:
        """Log and keep the threads that hang, which are abandoned."""
        if stuck:
            note_stuck(self.status, stuck)
            self._show_at_once()  # The process may be killed next.

    def take_parallelisms(self, parallelisms: Mapping[str, int]) -> None:
        """Record each operator's parallelism; a change is written at once."""
        for uid, parallelism in parallelisms.items():
            self.status.operators.setdefault(uid, OperatorStatus()).parallelism = parallelism
        self.write()

    @contextlib.contextmanager
    def epoch(self) -> Iterator[None]:
        """Record an epoch, or a look for one, while inside the block."""
        self.status.epoch_began_ms, self.status.reading_count = self._clock.now_ms(), 0
        self.status.reading_ms = None
        if not self._is_epoch_shown:  # Code that keeps the interpreter prevents a later write.
            self._is_epoch_shown = True
            self._show_at_once()
        try:
            yield
        finally:
            self.status.epoch_began_ms = None

    def take_reading(self, record_count: int) -> None:
        """Show how many records the epoch that runs has read. From any thread."""
        if record_count != self.status.reading_count:
            self.status.reading_ms = self._clock.now_ms()
        self.status.reading_count = record_count
        self._refresh()

    def take_publishing(self, epoch: int, sink: str | None) -> None:
        """Take note of the sink that begins to publish an epoch, None when all have. Cheap.

        It is shown with the next epoch, or by ``look`` when the sink takes long. From any thread.
        """
        self.status.publication = (
            None if sink is None
            else OpenPublication(epoch=epoch, sink=sink, since_ms=self._clock.now_ms())
        )  # fmt: skip

    def look(self) -> None:
        """Show that the job is alive during a long epoch or publication."""
        self._refresh()

    def enter_stopping(self) -> None:
        """Take note of a stop request, unless the job has ended meanwhile."""
        if not self.status.state.is_final:
            self.enter(JobState.STOPPING)

    def take_epoch(self, stats: EpochStats) -> None:
        """Add an epoch."""
        status = self.status
        status.phase = status.epoch_began_ms = None
        self._rate.add(stats.record_count)
        status.epoch = stats.epoch
        status.epoch_count += 1
        status.record_count += stats.record_count
        status.event_count = stats.event_count
        self._take_unread(stats.unread)
        status.state_bytes = stats.state_bytes
        status.watermark_ms = stats.watermark_ms
        status.fixed_ms = stats.fixed_ms
        status.dropped_count = stats.dropped_count
        status.late_dropped_count += stats.late_dropped_count
        for uid, counts in stats.counts.items():
            total = status.operators.setdefault(uid, OperatorStatus())
            self._tell_blocking(uid, total, counts)
            self._tell_failures(uid, total, counts)
            total.add(counts)
            date_failures(total.failures, counts.failures, now_ms=self._clock.now_ms())
            self._note_skew(uid, total, stats)
        for uid, watermark_ms in stats.time.watermarks.items():
            operator = status.operators.setdefault(uid, OperatorStatus())
            operator.watermark_ms = _known_watermark(watermark_ms)
            operator.slowest_input = stats.slowest_inputs.get(uid)
        self._timings.take(status, stats)
        status.shards = _shards_of(stats)
        self.take_waiting(stats.waiting)
        if self._listeners is not None:
            self._listeners.sealed(stats)
        self._note(stats)
        self._log_epoch(stats)
        self._begin()

    def _note(self, stats: EpochStats) -> None:
        """Write the epoch into the journal."""
        sealed_ms = self._clock.now_ms()
        line = EpochLine(
            epoch=stats.epoch, began_ms=sealed_ms - round(stats.duration_ms), sealed_ms=sealed_ms,
            phases_ms={name: round(ms, 3) for name, ms in stats.phases_ms.items()},
            records=stats.record_count, state_bytes=stats.state_bytes,
        )  # fmt: skip
        self._journal.take(line, now_s=self._clock.monotonic())

    def take_waiting(self, waiting: Mapping[str, Waiting]) -> None:
        """Record the sealed but invisible output, by sink."""
        self.status.waiting = {
            uid: WaitingOutput(
                records=each.record_count, bytes=each.byte_count, visible_ms=each.visible_ms
            )
            for uid, each in waiting.items()
        }

    def _tell_blocking(self, uid: str, total: OperatorStatus, counts: OperatorCounts) -> None:
        """Log the first blocked event loop of an operator; the summary has all of them."""
        if counts.blocked and not total.blocked:
            log_event(
                _LOG, "event_loop_blocked", level=logging.WARNING, job=self.status.job,
                operator=uid, location=counts.blocked_at, blocked_ms=counts.blocked_ms,
            )  # fmt: skip

    def _tell_failures(self, uid: str, total: OperatorStatus, counts: OperatorCounts) -> None:
        """Log the first epoch in which all records of an operator failed."""
        if counts.is_all_failed and not total.records_in:
            kind, found = max(counts.failures.items(), key=lambda item: item[1].count)
            log_event(
                _LOG, "all_records_failed", level=logging.ERROR, job=self.status.job,
                operator=uid, failed=counts.failed, failure=kind, example=found.example,
            )  # fmt: skip

    def _note_skew(self, uid: str, total: OperatorStatus, stats: EpochStats) -> None:
        skew = self._skews.setdefault(uid, Skew())
        parallelism = total.parallelism or 1
        skew.add_records(stats.subtask_counts.get(uid, {}), parallelism)
        total.skew = skew.ratio()
        if uid not in stats.keys:
            return
        skew.add_keys(stats.keys[uid])
        total.hot_keys = skew.hot_keys()
        for hot in total.hot_keys:
            operator_key = (uid, hot.key)
            is_hot = parallelism > 1 and hot.share * 100 >= self._hot_key_percent
            if is_hot and operator_key not in self._told and len(self._told) < _HOT_KEYS_TOLD_MAX:
                self._told.add(operator_key)
                log_event(
                    _LOG, "hot_key", level=logging.WARNING, job=self.status.job, operator=uid,
                    key=hot.key, share=hot.share,
                )  # fmt: skip

    def take_idle(self, unread: Unread | None) -> None:
        """Show that the job is alive though nothing happened.

        Args:
            unread: The remaining input of the sources; None when they were not queried.
        """
        self._take_unread(unread)
        self._begin()

    def _take_unread(self, unread: Unread | None) -> None:
        if unread is None:
            return
        status = self.status
        status.lag_records, status.lag_bytes = unread.lag.record_count, unread.lag.byte_count
        status.lag_ms = unread.lag.age_ms
        now_ms, known = self._clock.now_ms(), status.silent_sources
        status.silent_sources = {uid: known.get(uid, now_ms) for uid in sorted(unread.silent)}
        self._unshown = unread

    def _catch_up(self) -> None:
        self._show_lags()
        status = self.status
        status.lag_records = _nothing_of(status.lag_records)
        status.lag_bytes = _nothing_of(status.lag_bytes)
        status.lag_ms = _nothing_of(status.lag_ms)
        status.lags = {uid: _without_lag(lags) for uid, lags in status.lags.items()}
        status.silent_sources = {}

    def _show_lags(self) -> None:
        """Take over the lags of shards; not at each step, for there may be many."""
        unshown, self._unshown = self._unshown, None
        if unshown is not None:
            self.status.lags = _lags_of(unshown)

    def _begin(self) -> None:
        """Show the status; the first time at once, as the submitting process waits for it."""
        if self.status.has_begun:
            self._show()
        else:
            self.status.has_begun = True
            self._show_at_once()

    def _show(self) -> None:
        self.status.records_per_second = round(self._rate.per_second(), 1)
        self._refresh()

    def _refresh(self) -> None:
        if self._clock.monotonic() - self._written >= _WRITE_INTERVAL_S:
            self.write()
        self._listener(self.status)

    def _show_at_once(self) -> None:
        self.write()
        self._listener(self.status)

    def write(self) -> None:
        """Write the file as it is now."""
        with self._lock:
            self._written = self._clock.monotonic()
            self.status.updated_ms = self._clock.now_ms()
            self._show_lags()
            self._timings.show(self.status)
            self._journal.flush()
            try:
                write_status(self._folder.status_path, self.status)
            except OSError as error:  # A full disk of the home is no reason to end the job.
                log_event(
                    _LOG,
                    "status_not_written",
                    level=logging.WARNING,
                    job=self.status.job,
                    reason=error.strerror or str(error),
                )

    def _log_epoch(self, stats: EpochStats) -> None:
        now = self._clock.monotonic()
        if now - self._logged < _LOG_INTERVAL_S:
            return
        self._logged = now
        log_event(
            _LOG,
            "epoch_sealed",
            job=self.status.job,
            epoch=stats.epoch,
            record_count=stats.record_count,
            duration_ms=round(stats.duration_ms),
            records_per_second=round(self._rate.per_second()),
            lag_bytes=self.status.lag_bytes,
            state_bytes=stats.state_bytes,
            event_count=stats.event_count,
        )


def _shards_of(stats: EpochStats) -> dict[str, dict[str, ShardStatus]]:
    """Return the status of shards; of many shards, the slowest of each generator."""
    shown = {}
    for uid, shards in stats.time.shards.items():
        slowest = sorted((time.watermark_ms, shard) for shard, time in shards.items() if shard)
        shown[uid] = {
            shard: ShardStatus(
                watermark_ms=_known_watermark(shards[shard].watermark_ms),
                event_ms=_known_watermark(shards[shard].event_ms),
                is_idle=shard in stats.idle_shards.get(uid, ()),
            )
            for _, shard in slowest[:_SHARDS_SHOWN_MAX]
        }
    return {uid: shards for uid, shards in shown.items() if shards}


def _lags_of(unread: Unread) -> dict[str, dict[str, ShardLag]]:
    """Return the status of lags; of many shards, the greatest of each source."""
    shown = {}
    for uid, lags in unread.shard_lags.items():
        greatest = sorted(lags, key=lambda shard: -(lags[shard].record_count or 0))
        shown[uid] = {
            shard: ShardLag(
                records=lags[shard].record_count,
                bytes=lags[shard].byte_count,
                waiting_ms=lags[shard].age_ms,
            )
            for shard in greatest[:_SHARDS_SHOWN_MAX]
        }
    return {uid: lags for uid, lags in shown.items() if lags}


def _without_lag(lags: dict[str, ShardLag]) -> dict[str, ShardLag]:
    return {
        shard: ShardLag(
            records=_nothing_of(lag.records),
            bytes=_nothing_of(lag.bytes),
            waiting_ms=_nothing_of(lag.waiting_ms),
        )
        for shard, lag in lags.items()
    }


def _nothing_of(amount: int | None) -> int | None:
    """Return zero, or None for an unknown amount."""
    return None if amount is None else 0


def _known_watermark(watermark_ms: int) -> int | None:
    return None if watermark_ms == WATERMARK_MIN else watermark_ms
