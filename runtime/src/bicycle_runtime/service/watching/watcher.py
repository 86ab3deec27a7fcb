"""The thread that looks at all jobs once a second, and when a process ends.

A check lists the folders, reads the changed status files, and determines whether the processes are
alive. The result is the next snapshot, and new rows of the history. A job that cannot be read does
not affect others: it is FAILED, with the reason.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import msgspec

from bicycle_runtime.base.processes import is_frozen
from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.jobs.control.job_queries import end_lost, unreadable_status
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.status import JobState, JobStatus, RestartNote, read_status
from bicycle_runtime.service.store.history import (
    OPERATOR_SAMPLED,
    SAMPLED,
    History,
    KnownRow,
    Noted,
)
from bicycle_runtime.service.users.owners import Owners
from bicycle_runtime.service.users.redaction import JobSecrets
from bicycle_runtime.service.watching.fleet import Fleet
from bicycle_runtime.service.watching.paces import PaceWindow
from bicycle_runtime.service.watching.process_ends import ProcessEnds
from bicycle_runtime.service.watching.states import Intent, State, shown_state, steps
from bicycle_runtime.service.watching.summaries import Dismissal, KnownJob, summary_of
from bicycle_sdk.clock import Clock
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import log_event

_LOG = logging.getLogger(__name__)
_LOOK_S = 1.0
_SAMPLE_S = 5
_SILENT_MS = 3_000  # A driver that writes is not stopped by a signal.
_LAG_WINDOW_MS = 60_000
_LAG_GROWN_MIN = 1_000
_BYTES_A_RECORD = 100  # The estimate for a source that does not count unread records.
_LAG_GROWN_SHARE = 0.1
_NOT_WRITTEN_MAX = 10_000  # Findings that wait for the database; older ones are dropped.
_ASKED = frozenset({State.STOPPING, State.CANCELING})  # Their times are in no status.


class Intents(Protocol):
    """The source of requested operations."""

    def intent(self, job: str) -> tuple[Intent, str] | None:
        """Return the running operation that ends a job, with its requester, or None."""


@dataclass(slots=True)
class _Seen:
    """The findings of the last look at one job."""

    stamp: tuple[int, int, int]
    status: JobStatus
    state: State | None = None
    known: KnownJob | None = None
    lags: deque[tuple[int, int]] = field(default_factory=deque)
    paces: PaceWindow = field(default_factory=PaceWindow)


class Watcher:
    """A context manager; the thread runs between entering and leaving.

    Args:
        home: The home with the jobs.
        fleet: Receives the snapshots.
        history: Receives events; has the states from before this process.
        intents: The requested operations.
        owners: The owners of the jobs.
        secrets: The values of jobs that are never shown.
        clock: The time of day.
    """

    def __init__(
        self, home: Home, *, fleet: Fleet, history: History, intents: Intents, owners: Owners,
        secrets: JobSecrets, clock: Clock,
    ) -> None:  # fmt: skip
        self._home = home
        self._fleet = fleet
        self._history = history
        self._intents = intents
        self._owners = owners
        self._clock = clock
        self._secrets = secrets
        self._process_ends = ProcessEnds()
        self._seen: dict[str, _Seen] = {}
        self._rows: dict[str, KnownRow] = {}
        self._not_written: deque[Noted] = deque(maxlen=_NOT_WRITTEN_MAX)
        self._not_dismissed: set[str] = set()  # Jobs whose dismissals wait for the database.
        self._is_ending = threading.Event()
        self._sampled_s = 0
        self._thread = threading.Thread(target=self._run, name="watch jobs", daemon=True)
        self.look_ms = 0.0

    def __enter__(self) -> Watcher:
        """Look once, so that the first request sees all jobs, and continue in a thread."""
        self._process_ends.__enter__()
        self._rows = self._history.known_rows()
        self.look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ending.set()
        self._process_ends.wake()
        self._thread.join()
        self._process_ends.__exit__()

    def wake(self) -> None:
        """Look now, from any thread."""
        self._process_ends.wake()

    def note_dismissed(self, job: str, dismissed: str) -> None:
        """Show a job without its dismissed need for attention, and store that."""
        row = self._rows.get(job)
        if row is not None:
            self._rows[job] = replace(row, dismissed=dismissed)
        self._write_dismissed(job, dismissed)
        self.wake()

    def _run(self) -> None:
        while not self._is_ending.is_set():
            self._process_ends.wait(_LOOK_S)
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 - The snapshot stays; the next look may do.
                log_event(_LOG, "look_failed", level=logging.WARNING, error=error)

    def look(self) -> None:
        """Look at all jobs once."""
        began, now_ms = self._clock.monotonic(), self._clock.now_ms()
        stamps = _stamps(self._home.path / "jobs")
        changed, noted = [], []
        for job, stamp in stamps.items():
            found = self._look_at(job, stamp, now_ms)
            if found is not None:
                noted += [found] if found.row != self._rows.get(job) or found.events else []
                self._rows[job] = found.row
            seen = self._seen.get(job)
            if seen is not None and self._renew(seen):
                changed.append(job)
        removed = (self._seen.keys() | self._rows.keys()) - stamps.keys()
        for job in removed:
            self._seen.pop(job, None)
            self._rows.pop(job, None)
        self._write(noted, removed, now_ms)
        jobs = (seen.known for seen in self._seen.values())
        order = sorted(
            (known for known in jobs if known is not None),
            key=lambda known: (-known.summary.start_time, known.summary.job_id),
        )
        self._fleet.publish(tuple(order), changed, removed, as_of_ms=now_ms)
        self._forget_the_dead()
        self._sample(order, now_ms // 1_000)
        self.look_ms = (self._clock.monotonic() - began) * 1_000

    def _write(self, noted: list[Noted], removed: set[str], now_ms: int) -> None:
        """Write the findings of a look, after findings that could not be written."""
        for _ in range(len(self._not_written)):
            former = self._not_written.pop()
            if (row := self._rows.get(former.row.id)) is not None:
                noted.insert(0, replace(former, row=row))
        for _ in range(len(self._not_dismissed)):
            row = self._rows.get(self._not_dismissed.pop())
            if row is not None and row.dismissed is not None:
                self._write_dismissed(row.id, row.dismissed)
        if not noted and not removed:
            return

        def end(written: Future[int]) -> None:
            if (error := written.exception()) is not None:
                log_event(_LOG, "findings_not_written", level=logging.WARNING, error=error)
                self._not_written.extend(noted)
            self._fleet.tell_news()

        self._history.note(noted, removed, at_ms=now_ms).add_done_callback(end)

    def _write_dismissed(self, job: str, dismissed: str) -> None:
        """Store that the problems of a job are dismissed; repeat it after a failure."""

        def end(written: Future[None]) -> None:
            if (error := written.exception()) is not None:
                log_event(_LOG, "findings_not_written", level=logging.WARNING, error=error)
                self._not_dismissed.add(job)

        self._history.note_dismissed(job, dismissed).add_done_callback(end)

    def _look_at(self, job: str, stamp: tuple[int, int, int], now_ms: int) -> Noted | None:
        """Read the changes of one job, and return the findings to store."""
        seen = self._seen.get(job)
        if seen is None or seen.stamp != stamp:
            status = self._read(job)
            if status is None:
                return None
            former, seen = seen, _Seen(stamp, status)
            if former is not None:
                seen.state, seen.known, seen.lags = former.state, former.known, former.lags
                seen.paces = former.paces
            self._seen[job] = seen
            _note_lag(seen, now_ms)
            seen.paces.take(status)
        elif (
            job in self._rows
            and seen.state is not None
            and seen.state.is_final
            and seen.status.state.is_final
        ):
            return None
        return self._settle(job, seen, now_ms)

    def _settle(self, job: str, seen: _Seen, now_ms: int) -> Noted:
        """Determine the state of a job, and the steps to it since the last look."""
        status = seen.status
        folder = self._home.folder(job)
        asked = self._intents.intent(job)
        is_driven = self._process_ends.is_alive(status.pid, status.pid_started)
        if not is_driven and not status.state.is_final:  # It may have left a word since.
            status = self._read(job) or status
            seen.status = status
        status.is_frozen = (
            is_driven and now_ms - status.updated_ms > _SILENT_MS and is_frozen(status.pid)
        )
        state = shown_state(
            status,
            is_driven=is_driven,
            is_supervised=self._process_ends.is_alive(
                status.supervisor_pid, status.supervisor_started
            ),
            intent=None if asked is None else asked[0],
            is_pausing=not is_driven
            and not status.state.is_final
            and folder.state_of_stop(status) is JobState.PAUSED,
        )
        if state in (State.FAILED, State.PAUSED) and not status.state.is_final:
            seen.status = status = end_lost(folder, status)
        return self._note(job, seen, state, asked, now_ms=now_ms)

    def _note(
        self, job: str, seen: _Seen, state: State, asked: tuple[Intent, str] | None, *, now_ms: int
    ) -> Noted:
        """Return the findings to store; an impossible state change becomes an event."""
        status, row = seen.status, self._rows.get(job)
        old = None if row is None else State(row.state)
        is_new_run = row is not None and row.run != status.started_ms
        way = steps(old, state, is_new_run=is_new_run)
        events: list[tuple[str, str, Mapping[str, object], int]] = []
        if way is None:
            assert old is not None
            facts = {"old": old.value, "new": state.value}
            events.append(("refused", "warning", facts, now_ms))
            log_event(
                _LOG, "state_change_refused", level=logging.WARNING, job=job, old=old.value,
                new=state.value,
            )  # fmt: skip
            way = (state,)
        known_count = 0 if row is None or is_new_run else row.restarts
        events += [
            ("failure", "warning", msgspec.to_builtins(note), note.time_ms)
            for note in _new_restarts(status, known_count)
        ]
        if State.FAILED in way and status.error is not None:
            last = {name: status.error[name] for name in ("code", "message", "fix")}
            more = status.error.get("facts", {})
            task = {name: more.get(name) for name in ("operator", "subtask")}
            failure = {**last, **task, "epoch": status.epoch}
            events.append(("failure", "error", failure, status.ended_ms or status.updated_ms))
        seen.state = state
        return Noted(
            row=KnownRow(
                id=job, run=status.started_ms, state=state.value, plugin=status.plugin,
                pid=status.pid, pid_started=status.pid_started,
                supervisor_pid=status.supervisor_pid, supervisor_started=status.supervisor_started,
                restarts=status.restart_count,
                dismissed=None if row is None else row.dismissed,
            ),
            steps=tuple(
                zip(
                    _before(old, way), (each.value for each in way),
                    step_times(way, status, is_first=row is None or is_new_run, now_ms=now_ms),
                    strict=True,
                )
            ),
            cause=_cause(state, status, asked),
            actor="" if asked is None else asked[1],
            events=tuple(events),
        )  # fmt: skip

    def _renew(self, seen: _Seen) -> bool:
        """Make the row of a job again; return whether a shown value is another one."""
        assert seen.state is not None
        row = self._rows.get(seen.status.id)
        summary = summary_of(
            seen.status, seen.state, is_lag_growing=_is_growing(seen.lags),
            owner=self._owners.of(seen.status.id),
            dismissed=None if row is None else _dismissal(row),
        )  # fmt: skip
        former = seen.known
        if former is not None and former.summary == summary and former.status is seen.status:
            return False
        is_changed = former is None or former.summary != summary
        next_revision = self._fleet.view.revision + 1
        revision = next_revision if former is None or is_changed else former.revision
        seen.known = KnownJob(
            summary=summary, status=seen.status, revision=revision, paces=seen.paces.paces()
        )
        return is_changed

    def _read(self, job: str) -> JobStatus | None:
        folder = self._home.folder(job)
        try:
            status = read_status(folder.status_path)
        except BicycleError as error:
            return unreadable_status(folder, error, at_ms=_mtime_ms(folder.status_path))
        if status is None:
            return None
        status.id = job  # Commands identify a job by the name of its folder.
        return self._secrets.hide_in_status(status)

    def _forget_the_dead(self) -> None:
        alive = {
            process
            for seen in self._seen.values()
            if seen.state is None or not seen.state.is_final
            for process in (
                (seen.status.pid, seen.status.pid_started),
                (seen.status.supervisor_pid, seen.status.supervisor_started),
            )
        }
        self._process_ends.forget_all_but(alive)

    def _sample(self, jobs: list[KnownJob], now_s: int) -> None:
        """Keep a sample of each job that runs, once in five seconds."""
        at_s = now_s // _SAMPLE_S * _SAMPLE_S
        if at_s == self._sampled_s:
            return
        self._sampled_s = at_s
        running = [job for job in jobs if job.summary.end_time is None]
        rows = [
            (
                job.summary.job_id,
                {name: getattr(job.summary, name) for name in SAMPLED},
                {
                    uid: [getattr(operator, name) for name in OPERATOR_SAMPLED]
                    for uid, operator in job.status.operators.items()
                },
            )
            for job in running
        ]
        if rows:
            self._history.note_samples(rows, at_s=at_s)


def _dismissal(row: KnownRow) -> Dismissal | None:
    if row.dismissed is None:
        return None
    return msgspec.json.decode(row.dismissed, type=prepare_type(Dismissal))


def _stamps(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return a stamp of each job's status file, which changes with the file."""
    found = {}
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries)
    except FileNotFoundError:
        return {}
    for name in names:
        try:
            stat = os.stat(f"{folder}/{name}/status.json")  # noqa: PTH116 - Often, for many jobs.
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:  # Its status has the reason.
            found[name] = (0, 0, 0)
            continue
        # The time of a change is also another one when the file becomes readable.
        found[name] = (stat.st_ctime_ns, stat.st_size, stat.st_ino)
    return found


def _mtime_ms(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except OSError:
        return 0


def _before(old: State | None, way: tuple[State, ...]) -> list[str | None]:
    """Return the state before each step."""
    first = None if old is None else old.value
    return [first, *(each.value for each in way)][: len(way)]


def step_times(
    way: tuple[State, ...], status: JobStatus, *, is_first: bool, now_ms: int
) -> list[int]:
    """Return the time of each step of a job, from its status or the look.

    Args:
        way: The states, the last of which is that of now.
        status: That of now.
        is_first: Whether nothing of this run was seen before.
        now_ms: When it is seen.
    """
    ended_ms = status.ended_ms if status.state.is_final else None
    own = {
        State.CREATED: status.started_ms,
        State.RUNNING: status.running_ms if is_first else None,
        State.RESTARTING: status.restarts[-1].time_ms if status.restarts else None,
    }
    times, earliest_ms = [], 0
    for state in way:
        known_ms = own.get(state, None if state in _ASKED else ended_ms)
        earliest_ms = min(max(earliest_ms, known_ms or now_ms), now_ms)
        times.append(earliest_ms)
    return times if ended_ms is None else [min(each, max(ended_ms, 0)) for each in times]


def _new_restarts(status: JobStatus, known_count: int) -> list[RestartNote]:
    """Return the failures that a restart met since so many of them were known."""
    met = [note for note in status.restarts if note.delay_ms is not None]
    new_count = status.restart_count - known_count
    return met[-new_count:] if new_count > 0 else []


def _cause(state: State, status: JobStatus, asked: tuple[Intent, str] | None) -> str:
    if asked is not None:
        return asked[0].kind
    if state in (State.FAILED, State.FAILING) and status.error is not None:
        return str(status.error["code"])
    if state is State.RESTARTING and status.restarts:
        return status.restarts[-1].code
    return ""


def _note_lag(seen: _Seen, now_ms: int) -> None:
    lag = seen.status.lag_records
    if lag is None and seen.status.lag_bytes is not None:
        lag = seen.status.lag_bytes // _BYTES_A_RECORD
    if lag is None:
        seen.lags.clear()
        return
    seen.lags.append((now_ms, lag))
    while len(seen.lags) > 1 and now_ms - seen.lags[1][0] >= _LAG_WINDOW_MS:
        seen.lags.popleft()


def _is_growing(lags: deque[tuple[int, int]]) -> bool:
    """Return whether the unread input grew over the last minute."""
    if not lags or lags[-1][0] - lags[0][0] < _LAG_WINDOW_MS:
        return False
    first, last = lags[0][1], lags[-1][1]
    return last - first >= max(_LAG_GROWN_MIN, first * _LAG_GROWN_SHARE)
