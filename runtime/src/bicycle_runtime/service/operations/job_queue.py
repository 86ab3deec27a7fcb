"""Jobs that wait to begin: a thread starts them as slots and quotas permit.

The request of a waiting job is stored in a file until the job starts, because the row of the
operation contains no secrets. So a waiting job survives any end of the service.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from bicycle_runtime.base.files import own_folder, replace_file
from bicycle_runtime.base.spark_masters import Masters
from bicycle_runtime.base.stored import decode_stored, encode_stored
from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.service.operations.admission import (
    Claim,
    KeptUse,
    PastUse,
    Slots,
    WaitingJob,
    admit,
    pool_of,
)
from bicycle_runtime.service.operations.starting import StoredResume, SubmitFacts, slots_wanted
from bicycle_runtime.service.users.owners import Owners
from bicycle_runtime.service.watching.fleet import Fleet
from bicycle_runtime.service.watching.summaries import KnownJob
from bicycle_runtime.service.watching.workers import slots_of
from bicycle_sdk.clock import Clock
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import log_event

_LOG = logging.getLogger(__name__)
_LOOK_S = 1.0
_COUNT_S = 10.0  # How often use is counted while no job waits.
_SAVE_MS = 60_000
_Facts = SubmitFacts | StoredResume
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class JobQueue:
    """A context manager; its thread runs between entering and leaving.

    Args:
        folder: Folder with the files of waiting jobs.
        fleet: The snapshot of all jobs, which is updated when the reason of a wait changes.
        owners: The owners of jobs and their quotas.
        slots: The slots of the masters.
        clock: The time of day.
        begin: Called, in the thread, with a job that may start.
    """

    def __init__(
        self, folder: Path, fleet: Fleet, owners: Owners, slots: Slots, *, clock: Clock,
        begin: Callable[[int, Any], None],
    ) -> None:  # fmt: skip
        self._folder = folder
        self._fleet = fleet
        self._owners = owners
        self.slots = slots
        self._masters = Masters(clock, slots.pages)
        self._clock = clock
        self._begin = begin
        self._past = PastUse()
        self._past_path = folder.with_name("past-use.json")
        self._saved_ms = clock.now_ms()
        self._waiting: dict[int, tuple[WaitingJob, _Facts]] = {}
        self._begun: dict[int, tuple[WaitingJob, bool]] = {}  # and whether the start is over
        self._reasons: dict[int, str] = {}
        self._news = threading.Condition()
        self._has_news = False
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="job queue", daemon=True)

    def __enter__(self) -> JobQueue:
        self._restore_past()
        for path in self._folder.glob("*.json"):  # Of starts that are over, or were not accepted.
            if int(path.stem) not in self._waiting:
                path.unlink()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._news:
            self._is_closed = True
            self._news.notify()
        self._thread.join()
        self._save_past()

    def _restore_past(self) -> None:
        """Read the past use of owners, if the service has stored it."""
        with contextlib.suppress(FileNotFoundError):
            try:
                data, path = self._past_path.read_bytes(), str(self._past_path)
                kept = decode_stored(data, KeptUse, path=path)
                self._past.restore(kept, now_ms=self._clock.now_ms())
            except (BicycleError, msgspec.MsgspecError) as error:
                log_event(_LOG, "past_use_unreadable", level=logging.WARNING, error=error)

    def _save_past(self) -> None:
        self._saved_ms = self._clock.now_ms()
        own_folder(self._past_path.parent)
        replace_file(self._past_path, encode_stored(self._past.keep(now_ms=self._saved_ms)))

    def keep(self, number: int, facts: _Facts) -> None:
        """Store a request before it is accepted."""
        own_folder(self._folder)
        replace_file(self._file(number), json.dumps(msgspec.to_builtins(facts)).encode())

    def kept(self, number: int, kind: type[_Struct]) -> _Struct | None:
        """Return the stored request, or None if it is missing or unreadable."""
        try:
            return msgspec.json.decode(self._file(number).read_bytes(), type=prepare_type(kind))
        except (OSError, msgspec.MsgspecError):
            return None

    def add(self, number: int, job: str, owner: str, facts: _Facts, *, asked_ms: int) -> None:
        """Add a job to the queue; it may begin at once."""
        master, slots = slots_wanted(facts)
        waiting = WaitingJob(
            number=number, job=job, owner=owner, pool=pool_of(master), slots=slots,
            asked_ms=asked_ms,
        )  # fmt: skip
        with self._news:
            self._waiting[number] = (waiting, facts)
        self.wake()

    def remove(self, number: int) -> bool:
        """Remove a job from the queue; return False if it has begun."""
        with self._news:
            is_waiting = self._waiting.pop(number, None) is not None
            self._reasons.pop(number, None)
        if is_waiting:
            self._forget(number)
        return is_waiting

    def ended(self, number: int, *, is_good: bool) -> None:
        """Note the end of a job's start: the snapshot contains it from now on."""
        self._forget(number)
        with self._news:
            if number in self._begun:
                self._begun[number] = (self._begun[number][0], True)
                if not is_good:
                    self._begun.pop(number)
        self.wake()

    def wake(self) -> None:
        """Look again: something has changed, such as a quota."""
        with self._news:
            self._has_news = True
            self._news.notify()

    def reason(self, number: int) -> str:
        """Return why a job waits, empty when it does not."""
        return self._reasons.get(number, "")

    def waiting(self) -> list[WaitingJob]:
        """Return the waiting jobs, longest wait first."""
        with self._news:
            found = [job for job, _ in self._waiting.values()]
        return sorted(found, key=lambda job: (job.asked_ms, job.number))

    def claims(self) -> list[Claim]:
        """Return the claims of running and starting jobs."""
        jobs = self._fleet.view.jobs
        found = {job.summary.job_id: _claim(job) for job in jobs if job.summary.end_time is None}
        with self._news:
            for job, is_over in self._begun.values():
                if not is_over or job.job not in found:  # Its status has no operators yet.
                    found[job.job] = job.claim()
        return list(found.values())

    def _run(self) -> None:
        while True:
            with self._news:
                if not (self._is_closed or self._has_news):
                    self._news.wait(_LOOK_S if self._waiting else _COUNT_S)
                self._has_news = False
                if self._is_closed:
                    return
            try:
                self._look()
            except Exception as error:  # noqa: BLE001 - The next look may do.
                log_event(_LOG, "job_queue_failed", level=logging.WARNING, error=error)

    def _look(self) -> None:
        self._drop_shown()
        for pool in {job.pool for job in self.waiting()}:
            if not self.slots.is_fixed(pool):
                self.slots.tell(pool, self._masters.cores(pool))
        claims, now_ms = self.claims(), self._clock.now_ms()
        self._past.note(claims, now_s=self._clock.monotonic())
        with self._news:
            waiting = [job for job, _ in self._waiting.values()]
            admitted = admit(
                waiting, claims, slots=self.slots, quotas=self._owners.quotas(), now_ms=now_ms,
                past=self._past,
            )  # fmt: skip
            begun = [(number, self._waiting.pop(number)) for number in admitted.begun]
            for _, (job, _) in begun:
                self._past.begin(job, now_ms=now_ms)
            self._begun |= {number: (job, False) for number, (job, _) in begun}
            changed = [
                number
                for number, reason in admitted.reasons.items()
                if self._reasons.get(number) != reason
            ]
            self._reasons = admitted.reasons
        for number, (_, facts) in begun:
            self._begin(number, facts)
        for number in changed:
            self._fleet.tell_operation(number)
        if begun or now_ms - self._saved_ms >= _SAVE_MS:
            self._save_past()

    def _drop_shown(self) -> None:
        """Forget jobs whose start is over, and which the snapshot shows."""
        view = self._fleet.view
        with self._news:
            for number, (job, is_over) in list(self._begun.items()):
                shown = view.get(job.job)
                if is_over and shown is not None and shown.summary.start_time >= job.asked_ms:
                    self._begun.pop(number)

    def _forget(self, number: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._file(number).unlink()

    def _file(self, number: int) -> Path:
        return self._folder / f"{number}.json"


def _claim(job: KnownJob) -> Claim:
    return Claim(
        job=job.summary.job_id, owner=job.summary.owner, pool=pool_of(job.status.master),
        slots=slots_of(job.status),
    )  # fmt: skip
